"""Clocks, CPU pinning, disturbances, memory and disk of processes.

All times are read from one clock, `now`, whose values are comparable across the processes of a machine.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.core.errors import MissingExtra
from ragauge.core.records import Floats

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
PROC_STAT_PATH = "/proc/stat"
CPU_TIME_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Columns of /proc/stat that add up to the total CPU time."""


@dataclass(frozen=True)
class MachineSnapshot:
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

    def since(self, before: MachineSnapshot) -> Floats:
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


SNAPSHOT_DIFFERENCES = ("seconds", "cpu_seconds", "switches", "faults", "stolen", "ticks")
"""Names of the values that `MachineSnapshot.since` returns, in order."""


def take_snapshot() -> MachineSnapshot:
    """Read the counters of the process and of its CPUs now."""
    switches = faults = np.nan
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        switches, faults = usage.ru_nivcsw, usage.ru_majflt
    stolen, ticks = _read_cpu_ticks()
    return MachineSnapshot(now(), time.process_time_ns(), switches, faults, stolen, ticks)


@contextmanager
def without_gc() -> Iterator[None]:
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
def usable_cores() -> tuple[int, ...]:
    """Return the CPUs that this process may use, before any pinning.

    They are determined on the first call.
    """
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def pin_to_cores(threads: int, *, first: int = 0, among: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """Pin this process and its future children to a number of CPUs.

    Return the CPUs, or None if the system does not support pinning. `first` is the index of the first CPU to use;
    indices wrap around, so that several processes can get different CPUs.
    """
    cores = usable_cores() if among is None else among
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = {cores[(first + offset) % len(cores)] for offset in range(min(threads, len(cores)))}
    try:
        os.sched_setaffinity(0, chosen)
    except OSError:
        return None
    return tuple(sorted(chosen))


def thread_limits(threads: int) -> dict[str, str]:
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
    while (remaining := due - now()) > margin:
        time.sleep((remaining - margin) / 1e9)
    while now() < due:
        pass


def _read_cpu_ticks() -> tuple[float, float]:
    """Read stolen ticks and all ticks of the CPUs that this process may use now."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    cpu_names = {f"cpu{cpu}" for cpu in cpus}
    stolen = ticks = 0.0
    try:
        with Path(PROC_STAT_PATH).open(encoding="ascii") as lines:
            for line in lines:
                name, *columns = line.split()
                if name in cpu_names:
                    counts = [float(column) for column in columns[: len(CPU_TIME_COLUMNS)]]
                    stolen += counts[-1] if len(counts) == len(CPU_TIME_COLUMNS) else np.nan
                    ticks += sum(counts)
    except (OSError, ValueError):
        return np.nan, np.nan
    return (stolen, ticks) if ticks else (np.nan, np.nan)


MEMORY_SAMPLE_INTERVAL_S = 0.1
"""Seconds between two samples of memory. A sample takes about 50 microseconds and does not slow a build down."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory of several processes, and how it was measured."""

    bytes: int
    method: str
    """`pss`: shared pages are divided among processes. `rss`, if PSS is not available: they count for each process."""
    processes: int


@dataclass
class PeakMemory:
    """Peak of resident memory inside a block, to be read after the block."""

    bytes: int = 0
    bytes_before: int = 0
    """Bytes at the first sample."""
    n_samples: int = 0

    @property
    def increase(self) -> int:
        """Return the increase over the first sample, in bytes."""
        return self.bytes - self.bytes_before


def measure_memory(pids: Iterable[int] = ()) -> MemoryUse:
    """Measure the memory of this process, of other processes, and of their children.

    Workers of a PostgreSQL server share their buffers, so their resident sizes cannot be added up; proportional
    sizes (PSS) can. If one process does not report its PSS, the resident size is used for all.
    """
    processes = _find_processes(pids)
    with suppress(Exception):
        sizes = [_process_memory(process, "pss") for process in processes]
        if all(size is not None for size in sizes):
            return MemoryUse(sum(size or 0 for size in sizes), "pss", len(processes))
    return MemoryUse(sum(_process_memory(process, "rss") or 0 for process in processes), "rss", len(processes))


@contextmanager
def measure_peak_memory(pids: Iterable[int] = ()) -> Iterator[PeakMemory]:
    """Measure the peak of resident memory inside the block.

    Memory is sampled every 0.1 s and at both ends. Pages that processes share count for each of them here, because
    reading PSS is too slow for this rate.
    """
    peak, stopped, chosen_pids = PeakMemory(), threading.Event(), list(pids)

    def take_sample() -> None:
        rss_bytes = sum(_process_memory(process, "rss") or 0 for process in _find_processes(chosen_pids))
        peak.bytes = max(peak.bytes, rss_bytes)
        peak.n_samples += 1

    def sample() -> None:
        while not stopped.wait(MEMORY_SAMPLE_INTERVAL_S):
            take_sample()

    take_sample()
    peak.bytes_before = peak.bytes
    thread = threading.Thread(target=sample, name="peak", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join()
        take_sample()


def release_free_memory() -> None:
    """Return free memory to the system before the next measurement."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def disk_bytes(folder: str | Path) -> int:
    """Add up the sizes of all files of a folder, in bytes.

    A sparse file counts with the blocks that it occupies (engines reserve files of many megabytes), a small file
    with its length instead of its block size. A file with several hard links counts once, and symbolic links are not
    followed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(b"12345")
    ...     disk_bytes(folder)
    5
    """
    total, counted_files = 0, set()
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file was removed meanwhile
                status = (Path(path) / name).lstat()
                if (status.st_dev, status.st_ino) in counted_files:
                    continue
                counted_files.add((status.st_dev, status.st_ino))
                # Some file systems report 0 blocks until a file is written to disk.
                occupied = getattr(status, "st_blocks", 0) * 512 or status.st_size
                total += min(status.st_size, occupied)
    return total


def _find_processes(pids: Iterable[int]) -> list[Any]:
    try:
        import psutil
    except ImportError as error:
        raise MissingExtra("measuring memory", "bench") from error
    processes: dict[int, Any] = {}
    for pid in {os.getpid(), *pids}:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for member in (process, *process.children(recursive=True)):
                processes[member.pid] = member
    return list(processes.values())


def is_connected_elsewhere() -> bool:
    """Return whether this process or a child has an open TCP connection to any other process."""
    import psutil

    connections = []
    for process in _find_processes([]):
        with suppress(psutil.Error):
            connections += process.net_connections(kind="tcp")
    own = {connection.laddr for connection in connections}
    return any(
        connection.status == psutil.CONN_ESTABLISHED and connection.raddr not in own for connection in connections
    )


def _process_memory(process: Any, kind: str) -> int | None:
    """Read the memory of a process in bytes.

    Return None if it is not reported, and 0 if the process has ended.
    """
    import psutil

    try:
        memory = process.memory_full_info() if kind == "pss" else process.memory_info()
    except psutil.AccessDenied:
        return None
    except psutil.Error:
        return 0
    size = getattr(memory, kind, None)
    return None if size is None else int(size)
