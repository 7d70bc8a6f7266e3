"""Timing of benchmarks: one clock, CPU pinning, and counters of what disturbed the process.

All times are read from one clock, `now`, whose values are comparable across the processes of a machine.
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
"""Current time in nanoseconds. On Linux, macOS and Windows all processes of a machine share this clock."""

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
"""Environment variables that set the number of threads of libraries behind stores, read when a library is loaded.

LANCE_IO_THREADS is left out: LanceDB deadlocks with a single I/O thread.
"""
STAT = "/proc/stat"
TICKS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Columns of /proc/stat that add up to the total CPU time."""


@dataclass(frozen=True)
class Reading:
    """Counters of this process and of the CPUs it may use, at one moment; NaN if the system does not provide one."""

    wall_ns: int
    cpu_ns: int
    """CPU time of all threads of the process."""
    switches: float
    """Number of involuntary context switches."""
    faults: float
    """Number of major page faults, which read from disk."""
    stolen: float
    """Ticks that the hypervisor took from the CPUs that this process may use."""
    ticks: float
    """All ticks of those CPUs."""

    def since(self, before: Reading) -> Floats:
        """Return the differences to an earlier snapshot.

        They are in the order of SNAPSHOT_DIFFERENCES.
        """
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
"""Names of the values that `MachineSnapshot.since` returns, in order."""


def read() -> Reading:
    """Read the counters of the process and of its CPUs now."""
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
    """Run the block without garbage collection, so that no collection is timed.

    A collection during a search takes milliseconds that are not due to the store.
    """
    enabled, frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    if not frozen:  # objects that other code froze stay frozen afterwards
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
    """Return the CPUs that this process may use, before any pinning.

    They are determined on the first call.
    """
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def pin(threads: int, *, first: int = 0, among: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """Pin this process and its future children to a number of CPUs.

    Return the CPUs, or None if the system does not support pinning. `first` is the index of the first CPU to use;
    indices wrap around, so that several processes can get different CPUs.
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
    """Return environment variables that limit the threads of libraries.

    They are for a process to be started. They have no effect on the present process, because libraries read them
    when they are loaded.
    """
    return dict.fromkeys(THREAD_VARIABLES, str(threads)) | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
    }


def wait_until(due: int, *, spin: bool = True) -> None:
    """Wait until `due` on the clock `now`, in nanoseconds.

    With `spin`, the last 0.3 ms are spent in a busy loop, because sleep takes longer than requested.
    """
    margin = 300_000 if spin else 0
    while (left := due - now()) > margin:
        time.sleep((left - margin) / 1e9)
    while now() < due:
        pass


def _ticks() -> tuple[float, float]:
    """Read stolen ticks and all ticks of the CPUs that this process may use now."""
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
