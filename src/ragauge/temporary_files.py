"""Temporary files and folders: atomic replacement, unique names, removal of orphans.

A temporary name contains the host, the process id and a random token, so that no two writers share one. The first use
of a folder in a process removes the temporary files there whose process, on this host, is dead.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ragauge.errors import BadInput

MAX_NAME_BYTES = 120
"""Maximum length of the target's name in the name of its temporary file."""

_swept: set[Path] = set()


@contextmanager
def replace_file(target: Path) -> Iterator[Path]:
    """Yield the path of a new file next to `target`, and rename it at the end.

    The file is empty at first. After an exception `target` is unchanged and the temporary file is removed.
    """
    path = _sibling(target)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield path
        os.replace(path, target)
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def sibling_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder next to `target`, which the caller renames.

    It is removed at the end if it still exists.
    """
    path = _sibling(target)
    try:
        path.mkdir()
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def temporary_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a new private folder and remove it at the end.

    `parent` is the system's temporary folder by default.
    """
    path = create_temporary_folder(purpose, parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def create_temporary_folder(purpose: str, parent: Path | None = None) -> Path:
    """Create a private folder that the caller removes.

    If the caller was killed, the next process removes it.
    """
    path = _temporary_path(purpose, parent)
    path.mkdir(mode=0o700)
    return path


def create_temporary_file(purpose: str) -> tuple[int, Path]:
    """Create and open a private file that the caller removes.

    Return its descriptor and path.
    """
    path = _temporary_path(purpose, None)
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), path


def remove_orphans(folder: Path) -> None:
    """Remove the temporary files and folders of dead processes of this host and user."""
    pattern = re.compile(rf"(?:ragauge-|\.).*[-.]{_host()}-(\d+)-[0-9a-f]{{8}}(?:\.part)?")
    try:
        with os.scandir(folder) as entries:
            orphans = [
                entry
                for entry in entries
                if (found := pattern.fullmatch(entry.name)) and not _is_alive(int(found[1])) and _is_own(entry)
            ]
    except OSError:
        return
    for entry in orphans:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(entry.path)


def _sibling(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    name = os.fsdecode(os.fsencode(target.name)[:MAX_NAME_BYTES])
    return target.parent / f".{name}.{_mark()}.part"


def _temporary_path(purpose: str, parent: Path | None) -> Path:
    try:
        folder = Path(tempfile.gettempdir()) if parent is None else parent
    except FileNotFoundError:
        raise BadInput(
            "no temporary folder can be written", hint="set TMPDIR to a folder with free space, e.g. TMPDIR=."
        ) from None
    _sweep(folder)
    return folder / f"ragauge-{purpose}-{_mark()}"


def _sweep(folder: Path) -> None:
    """Remove orphans once per folder and process.

    Scanning the folder for each file would be slow.
    """
    folder = folder.absolute()
    if folder not in _swept:
        _swept.add(folder)
        remove_orphans(folder)


def _mark() -> str:
    return f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"


@cache
def _host() -> str:
    """Identify the host and its process namespace.

    Process ids of other containers have no meaning here.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hashlib.blake2b(f"{platform.node()} {namespace}".encode(), digest_size=3).hexdigest()


def _is_alive(pid: int) -> bool:
    if os.name != "posix":  # on Windows os.kill ends the process for any signal
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _is_own(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry belongs to this user.

    Others can create any name in a shared temporary folder. Root removes the orphans of every user, because a server
    that it starts has its own user.
    """
    try:
        return not hasattr(os, "getuid") or os.getuid() in (0, entry.stat(follow_symlinks=False).st_uid)
    except OSError:
        return False
