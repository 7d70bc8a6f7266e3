"""Observation of timed work outside of `bench`: counters of the machine, and whether the times are reliable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ragauge.benches.clocks import now, read
from ragauge.measures.stores import clock
from ragauge.records import Floats
from ragauge.sweeps import Clock

CALLS = 256
"""Number of timed calls of an empty function: enough for a median, and done in less than a millisecond."""
_floors_ns: list[float] = []
"""Medians measured in this process so far, in nanoseconds."""


class Observation:
    """Machine snapshots before and after timed work."""

    def __init__(self) -> None:
        self._floors: list[list[float]] = []
        self._readings: list[Floats] = []

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Take snapshots before and after the block."""
        floors = [_floor_ns()]
        before = read()
        try:
            yield
        finally:
            self._readings.append(read().since(before))
            self._floors.append([*floors, _floor_ns()])

    def assess(self, trials: Sequence[Sequence[int]], *, in_process: bool) -> Clock | None:
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
        return clock(raw, in_process=in_process, usual_floor_ns=float(np.median(_floors_ns)))


def _floor_ns() -> float:
    """Measure the median time of a call of an empty function, in nanoseconds."""
    taken = []
    for _ in range(CALLS):
        began = now()
        _do_nothing()
        taken.append(now() - began)
    _floors_ns.append(float(np.median(taken)))
    return _floors_ns[-1]


def _do_nothing() -> None:
    """Do nothing."""
