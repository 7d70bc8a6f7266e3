"""Memory of a store's processes and its size on disk."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragauge.errors import MissingExtra

EVERY_SECONDS = 0.1
"""Seconds between two samples of memory. A sample takes about 50 microseconds and does not slow a build down."""


@dataclass(frozen=True)
class Memory:
    """Memory of several processes, and how it was measured."""

    bytes: int
    by: str
    """`pss`: shared pages are divided among processes. `rss`, if PSS is not available: they count for each process."""
    processes: int


@dataclass
class Peak:
    """Peak of resident memory inside a block, to be read after the block."""

    bytes: int = 0
    before: int = 0
    """Bytes at the first sample."""
    looks: int = 0

    @property
    def more(self) -> int:
        """Return the increase over the first sample, in bytes."""
        return self.bytes - self.before


def memory(pids: Iterable[int] = ()) -> Memory:
    """Measure the memory of this process, of other processes, and of their children.

    Workers of a PostgreSQL server share their buffers, so their resident sizes cannot be added up; proportional
    sizes (PSS) can. If one process does not report its PSS, the resident size is used for all.
    """
    found = _processes(pids)
    with suppress(Exception):
        sizes = [_of(process, "pss") for process in found]
        if all(size is not None for size in sizes):
            return Memory(sum(size or 0 for size in sizes), "pss", len(found))
    return Memory(sum(_of(process, "rss") or 0 for process in found), "rss", len(found))


@contextmanager
def watched(pids: Iterable[int] = ()) -> Iterator[Peak]:
    """Measure the peak of resident memory inside the block.

    Memory is sampled every 0.1 s and at both ends. Pages that processes share count for each of them here, because
    reading PSS is too slow for this rate.
    """
    peak, over, chosen = Peak(), threading.Event(), list(pids)

    def look() -> None:
        seen = sum(_of(process, "rss") or 0 for process in _processes(chosen))
        peak.bytes = max(peak.bytes, seen)
        peak.looks += 1

    def sample() -> None:
        while not over.wait(EVERY_SECONDS):
            look()

    look()
    peak.before = peak.bytes
    thread = threading.Thread(target=sample, name="peak", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        look()


def settle() -> None:
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
    total, seen = 0, set()
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file was removed meanwhile
                told = (Path(path) / name).lstat()
                if (told.st_dev, told.st_ino) in seen:
                    continue
                seen.add((told.st_dev, told.st_ino))
                # Some file systems report 0 blocks until a file is written to disk.
                there = getattr(told, "st_blocks", 0) * 512 or told.st_size
                total += min(told.st_size, there)
    return total


def _processes(pids: Iterable[int]) -> list[Any]:
    try:
        import psutil
    except ImportError as error:
        raise MissingExtra("measuring memory", "bench") from error
    found: dict[int, Any] = {}
    for pid in {os.getpid(), *pids}:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                found[one.pid] = one
    return list(found.values())


def _of(process: Any, kind: str) -> int | None:
    """Read the memory of a process in bytes.

    Return None if it is not reported, and 0 if the process has ended.
    """
    import psutil

    try:
        told = process.memory_full_info() if kind == "pss" else process.memory_info()
    except psutil.AccessDenied:
        return None
    except psutil.Error:
        return 0
    size = getattr(told, kind, None)
    return None if size is None else int(size)
