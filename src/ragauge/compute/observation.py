"""Observation of timed work outside of `bench`: counters of the machine, and whether the times are reliable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.resources import now, take_snapshot
from ragauge.core.records import Floats


@dataclass(frozen=True)
class ClockCheck:
    """Evidence of whether other work on the machine disturbed a measurement."""

    floor_ms: float
    """Median latency of the null store in the same process at the same time, in ms."""
    switches: int
    """Number of involuntary context switches."""
    steal: float
    """Share of CPU time that the host of a virtual machine took away."""
    doubts: Sequence[str] = ()
    """Reasons why the times are not reliable; empty if none."""


RawArrays = Mapping[str, NDArray[Any]]
MAX_NULL_STORE_DRIFT = 1.5
"""Maximum latency of the null store as a multiple of its usual value; in CPU time it varies by at most 1.1."""
MAX_QPS_ERROR = 0.1
"""Maximum relative standard error of QPS over the repeats; in CPU time it is at most 0.04."""
MAX_DISPLACED_SHARE = 0.05
"""Maximum share of time in which other processes had the CPU; on an idle machine it is below 0.01."""
MAX_SWITCH_S = 0.01
"""Maximum time that an involuntary context switch is assumed to cost.

A process that waits by itself, for a disk or for its own threads, is rarely switched involuntarily.
"""
MAX_STOLEN_SHARE = 0.02
MIN_STOLEN_TICKS = 3
"""Minimum number of stolen ticks of 10 ms; one or two occur on any host."""


def qps_error(nanoseconds: NDArray[Any]) -> float:
    """Return the relative standard error of QPS over the repeats.

    NaN for a single repeat.

    >>> round(qps_error(np.array([[1e6], [1e6], [1.3e6]])), 3)
    0.091
    """
    if len(nanoseconds) < 2:
        return math.nan
    means = np.asarray(nanoseconds, np.float64).mean(axis=1)
    return float(means.std(ddof=1) / math.sqrt(len(means)) / means.mean())


def assess_clock(raw: RawArrays, *, in_process: bool = True, usual_floor_ns: float = math.inf) -> ClockCheck:
    """Assess whether the times of a configuration are reliable.

    They are not if QPS is uncertain by more than 10% (standard error over the repeats), if the median latency of the
    null store is much larger than usual, or if other processes or the host had the CPU. `usual_floor_ns` is the usual
    latency of the null store. A store that waits by itself is not penalised, nor is a client that waits for a server.
    `raw` has `nanoseconds`, `floor_ns` and `readings`.
    """
    floors = np.asarray(raw["floor_ns"], np.float64).reshape(-1, 2)
    seconds, cpu, switches, _, stolen, ticks = np.asarray(raw["readings"], np.float64).reshape(-1, 6).sum(axis=0)
    # The smaller of the two around a round: a short delay between two rounds does not affect either.
    drift = float(np.median(floors.min(axis=1))) / usual_floor_ns if floors.size and usual_floor_ns > 0 else math.nan
    steal = float(stolen / ticks) if ticks > 0 else math.nan
    error = qps_error(raw["nanoseconds"])
    displaced = _displaced_share(seconds, cpu, switches) if in_process else 0.0
    doubts = []
    if error > MAX_QPS_ERROR:
        doubts.append(f"QPS is uncertain by ±{error:.0%} (standard error over the repeats)")
    if drift > MAX_NULL_STORE_DRIFT:
        doubts.append(f"the harness itself took {drift:.1f} times as long as usual")
    if displaced > MAX_DISPLACED_SHARE:
        doubts.append(f"other processes had the CPU for {displaced:.0%} of the time")
    if steal > MAX_STOLEN_SHARE and stolen >= MIN_STOLEN_TICKS:
        doubts.append(f"the host took {steal:.0%} of the CPU time")
    return ClockCheck(float(np.median(floors)) / 1e6, 0 if math.isnan(switches) else int(switches), steal, doubts)


def _displaced_share(seconds: float, cpu: float, switches: float) -> float:
    """Return the share of time in which a process was ready but another had the CPU.

    NaN if the system does not report it.
    """
    return float(min(seconds - cpu, MAX_SWITCH_S * switches) / seconds) if seconds > 0 and switches >= 0 else math.nan


EMPTY_CALLS_TIMED = 256
"""Number of timed calls of an empty function: enough for a median, and done in less than a millisecond."""
_call_overheads_ns: list[float] = []
"""Medians measured in this process so far, in nanoseconds."""


class Observation:
    """Machine snapshots before and after timed work."""

    def __init__(self) -> None:
        self._floors: list[list[float]] = []
        self._readings: list[Floats] = []

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Take snapshots before and after the block."""
        floors = [_measure_call_overhead_ns()]
        before = take_snapshot()
        try:
            yield
        finally:
            self._readings.append(take_snapshot().since(before))
            self._floors.append([*floors, _measure_call_overhead_ns()])

    def assess(self, trials: Sequence[Sequence[int]], *, in_process: bool) -> ClockCheck | None:
        """Decide, as `bench` does, whether times are reliable.

        Return None if no work was observed. `trials` are the times of the same queries in nanoseconds, one row per
        trial. `in_process` is false if a system may wait for a server.
        """
        if not self._readings or not trials:
            return None
        raw = {
            "nanoseconds": np.array(trials, np.int64),
            "floor_ns": np.array(self._floors),
            "readings": np.array(self._readings),
        }
        return assess_clock(raw, in_process=in_process, usual_floor_ns=float(np.median(_call_overheads_ns)))


def _measure_call_overhead_ns() -> float:
    """Measure the median time of a call of an empty function, in nanoseconds."""
    durations = []
    for _ in range(EMPTY_CALLS_TIMED):
        began = now()
        _do_nothing()
        durations.append(now() - began)
    _call_overheads_ns.append(float(np.median(durations)))
    return _call_overheads_ns[-1]


def _do_nothing() -> None:
    """Do nothing."""
