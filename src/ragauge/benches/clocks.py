"""Clocks that tell when not to believe them: a quiet process, pinned threads, and what the machine did meanwhile.

All times are of one clock, `now`, which every process of a machine reads the same.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from ragauge.records import Floats

now = time.perf_counter_ns
"""Nanoseconds. On Linux, macOS and Windows this clock belongs to the machine, not to the process."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "TOKIO_WORKER_THREADS",
    "LANCE_CPU_THREADS",
    "GOMAXPROCS",
)
"""What the libraries behind stores read when they are loaded. LANCE_IO_THREADS is not among them: with one such thread
LanceDB waits for itself for ever."""
STAT = "/proc/stat"
TICKS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Its columns that add up to the whole time."""


@dataclass(frozen=True)
class Reading:
    """What the system says of this process and its processors at a moment; NaN where it does not say."""

    wall_ns: int
    cpu_ns: int
    """Of all threads of the process."""
    switches: float
    """How often a thread was put aside though it had work to do."""
    faults: float
    """How often something had to be read from disk into memory first."""
    stolen: float
    """Ticks that the host took from the processors that this process may use."""
    ticks: float
    """All ticks of those processors."""

    def since(self, before: Reading) -> Floats:
        """The differences: seconds, seconds of processor time, switches, faults, stolen ticks, ticks."""
        return np.array(
            [
                (self.wall_ns - before.wall_ns) / 1e9,
                (self.cpu_ns - before.cpu_ns) / 1e9,
                self.switches - before.switches,
                self.faults - before.faults,
                self.stolen - before.stolen,
                self.ticks - before.ticks,
            ]
        )


READINGS = ("seconds", "cpu_seconds", "switches", "faults", "stolen", "ticks")
"""The names of what `Reading.since` gives, in its order."""


def read() -> Reading:
    """How things stand now."""
    switches = faults = np.nan
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        switches, faults = usage.ru_nivcsw, usage.ru_majflt
    stolen, ticks = _ticks()
    return Reading(now(), time.process_time_ns(), switches, faults, stolen, ticks)


@contextmanager
def undisturbed() -> Iterator[None]:
    """A time in which the garbage collector does not run: what is there already is not looked at again.

    A collection in the middle of a search takes milliseconds that the store has nothing to do with.
    """
    enabled, frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    if not frozen:  # what somebody else has frozen stays so afterwards
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
        if enabled:
            gc.enable()


@cache
def cores() -> tuple[int, ...]:
    """The processors that this process was given when first asked, before it was pinned to some of them."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def pin(threads: int, *, first: int = 0, among: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """Keep this process and all that it will start on so many processors; None where the system has no such thing.

    `first` says from which place on they are taken, around the end, so that several processes get different ones.
    """
    known = cores() if among is None else among
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = {known[(first + place) % len(known)] for place in range(min(threads, len(known)))}
    try:
        os.sched_setaffinity(0, chosen)
    except OSError:
        return None
    return tuple(sorted(chosen))


def environment(threads: int) -> dict[str, str]:
    """Variables that keep libraries to so many threads: for a process to come, since they are read on loading."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads)) | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
    }


def wait_until(due: int, *, spin: bool = True) -> None:
    """Wait for a moment of `now`: asleep, and the last third of a millisecond awake, since sleep oversleeps."""
    margin = 300_000 if spin else 0
    while (left := due - now()) > margin:
        time.sleep((left - margin) / 1e9)
    while now() < due:
        pass


def _ticks() -> tuple[float, float]:
    """Stolen ticks and all ticks of the processors that this process may use now."""
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    wanted = {f"cpu{place}" for place in mine}
    stolen = ticks = 0.0
    try:
        with Path(STAT).open(encoding="ascii") as lines:
            for line in lines:
                name, *columns = line.split()
                if name in wanted:
                    counts = [float(column) for column in columns[: len(TICKS)]]
                    stolen += counts[-1] if len(counts) == len(TICKS) else np.nan
                    ticks += sum(counts)
    except (OSError, ValueError):
        return np.nan, np.nan
    return (stolen, ticks) if ticks else (np.nan, np.nan)
