"""Locks of working folders: only one process at a time writes into a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragauge.errors import BadInput

LOCK = ".lock"


@contextmanager
def hold_folder(folder: str | Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, created if needed, during the block.

    Raise BadInput if another process or thread holds it. Holders of `shared` locks exclude only holders of exclusive
    ones. The operating system releases the lock of a process that ends, also after a kill.
    """
    place = Path(folder)
    is_new = not place.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        file = _acquire(place / LOCK, shared=shared)
    except BlockingIOError:
        raise BadInput(
            "another process is working in this folder",
            file=str(folder),
            hint="wait until it ends, or use another folder",
        ) from None
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=str(folder)) from None
    try:
        yield
    finally:
        if _lock(file, shared=False):  # otherwise another process shares the lock and needs the file
            with contextlib.suppress(OSError):
                (place / LOCK).unlink(missing_ok=True)
        os.close(file)
        if is_new:
            with contextlib.suppress(OSError):  # not empty: files were written
                place.rmdir()


def _acquire(path: Path, *, shared: bool) -> int:
    """Open and lock a file; raise BlockingIOError if it is locked."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        is_current = False
        try:
            if not _lock(file, shared=shared):
                raise BlockingIOError
            with contextlib.suppress(FileNotFoundError):  # the process that held the lock has removed the file
                is_current = os.path.samestat(os.fstat(file), path.stat())
        finally:
            if not is_current:
                os.close(file)
        if is_current:
            return file


def _lock(file: int, *, shared: bool) -> bool:
    """Lock an open file without waiting; return False if another process holds it.

    Return True if the system does not support file locks.
    """
    try:
        import fcntl
    except ImportError:  # not on every system
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
