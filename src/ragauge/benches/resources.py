"""What a store takes: memory of every process that belongs to it, and bytes on disk."""

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
"""How often memory is looked at for its peak: a look takes 50 microseconds, so a build is not slowed by it."""


@dataclass(frozen=True)
class Memory:
    """Bytes of some processes, and how they were counted."""

    bytes: int
    by: str
    """`pss`: what processes share is divided among them; `rss`, where the system has no such figure: it counts for
    each."""
    processes: int


@dataclass
class Peak:
    """The most resident memory that was seen; read it once the block is over."""

    bytes: int = 0
    before: int = 0
    """At the first look."""
    looks: int = 0

    @property
    def more(self) -> int:
        """How much came on top of what was there."""
        return self.bytes - self.before


def memory(pids: Iterable[int] = ()) -> Memory:
    """Memory of this process, of all its descendants, and of other processes (a server's) with their descendants.

    The workers of a PostgreSQL server share their buffers, so their resident sizes cannot be added up; the proportional
    ones can. Where one process does not tell its proportional size, all are counted by the resident one.
    """
    found = _processes(pids)
    with suppress(Exception):
        sizes = [_of(process, "pss") for process in found]
        if all(size is not None for size in sizes):
            return Memory(sum(size or 0 for size in sizes), "pss", len(found))
    return Memory(sum(_of(process, "rss") or 0 for process in found), "rss", len(found))


@contextmanager
def watched(pids: Iterable[int] = ()) -> Iterator[Peak]:
    """The peak of resident memory inside the block, by looking every tenth of a second, and at both ends.

    Pages that processes share count for each of them here: the exact figure takes too long to be asked for that often.
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
    """Give back what is free already, so that the next look at memory sees what is in use and not what was."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def disk_bytes(folder: str | Path) -> int:
    """Bytes of all files of a folder.

    A file with holes counts with what is really there (engines reserve files of many megabytes), a small one with its
    own length and not with its block's; one with two names counts once, and links are not followed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a").write_bytes(b"12345")
    ...     disk_bytes(folder)
    5
    """
    total, seen = 0, set()
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a file that went away meanwhile
                told = (Path(path) / name).lstat()
                if (told.st_dev, told.st_ino) in seen:
                    continue
                seen.add((told.st_dev, told.st_ino))
                # Some file systems say 0 blocks until they have written a file.
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
    """One process's memory: None where it does not say, 0 where it is gone."""
    import psutil

    try:
        told = process.memory_full_info() if kind == "pss" else process.memory_info()
    except psutil.AccessDenied:
        return None
    except psutil.Error:
        return 0
    size = getattr(told, kind, None)
    return None if size is None else int(size)
