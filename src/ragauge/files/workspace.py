"""Working folders and files: locks, the identity of saved work, atomic writes, temporary files, the cache folder.

A temporary name contains the host, the process id and a random token, so that no two writers share one. The first use
of a folder in a process removes the temporary files there whose process, on this host, is dead.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput, MissingExtra, error_summary
from ragauge.core.hashes import hash_bytes
from ragauge.core.secrets import has_secrets, redact_bytes
from ragauge.core.text import replace_control_characters
from ragauge.files.source import InputFile

LOCK_FILE = ".lock"


@contextmanager
def hold_folder(folder: str | Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder, created if needed, during the block.

    Raise BadInput if another process or thread holds it. Holders of `shared` locks exclude only holders of exclusive
    ones. The operating system releases the lock of a process that ends, also after a kill.
    """
    path = Path(folder)
    is_new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = _acquire_lock(path / LOCK_FILE, shared=shared)
    except BlockingIOError:
        raise busy_folder_error(folder) from None
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=str(folder)) from None
    try:
        yield
    finally:
        if _try_lock(file, shared=False):  # otherwise another process shares the lock and needs the file
            with contextlib.suppress(OSError):
                (path / LOCK_FILE).unlink(missing_ok=True)
        os.close(file)
        if is_new:
            with contextlib.suppress(OSError):  # not empty: files were written
                path.rmdir()


def busy_folder_error(folder: str | Path) -> BadInput:
    """Return the error for a folder that another process has locked."""
    return BadInput(
        "another process is working in this folder",
        file=str(folder),
        hint="wait until it ends, or use another folder",
    )


def _acquire_lock(path: Path, *, shared: bool) -> int:
    """Open and lock a file; raise BlockingIOError if it is locked."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        is_current = False
        try:
            if not _try_lock(file, shared=shared):
                raise BlockingIOError
            with contextlib.suppress(FileNotFoundError):  # the process that held the lock has removed the file
                is_current = os.path.samestat(os.fstat(file), path.stat())
        finally:
            if not is_current:
                os.close(file)
        if is_current:
            return file


def _try_lock(file: int, *, shared: bool) -> bool:
    """Lock an open file without waiting; return False if another process holds it.

    Windows has no shared locks: the function then returns True without locking.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            if not shared:
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


RESTART_HINT = "use another --out, or --fresh to start again"


class WorkKey(NamedTuple):
    """Settings that identify the work in a folder, by part, e.g. `{"plan": {"k": 10}}`."""

    required: Mapping[str, Any] = EMPTY_MAPPING
    """Parts that must be equal; a folder of other work is refused."""
    optional: Mapping[str, Any] = EMPTY_MAPPING
    """Parts that may differ; the work is then done again."""

    @property
    def parts(self) -> dict[str, Any]:
        """All parts, as they are written to a folder."""
        return {**self.optional, **self.required}

    def check(self, stored: Mapping[str, Any], folder: Path, noun: str, *, hint: str = RESTART_HINT) -> str:
        """Describe the differences of the optional parts from those found in a folder; empty if there are none.

        Raise BadInput if a required part differs.

        >>> key = WorkKey({"plan": {"k": 3}}, {"system": {"name": "mine"}})
        >>> key.check({"plan": {"k": 3}, "system": {"name": "other"}}, Path("out"), "the run")
        'name other -> mine'
        """
        changes: list[tuple[str, str]] = []
        for part, value in json.loads(json.dumps(self.parts)).items():
            old_values = stored.get(part)
            old_values = old_values if isinstance(old_values, Mapping) else {}  # a corrupt file may contain any type
            names = [name for name in {**old_values, **value} if old_values.get(name) != value.get(name)]
            changes += [(part, f"{name} {old_values.get(name)} -> {value.get(name)}") for name in names]
        described = ", ".join(change for _, change in changes[:3]) + (", …" if len(changes) > 3 else "")
        if any(part in self.required for part, _ in changes):
            raise BadInput(f"holds {noun} of other work ({described})", file=str(folder), hint=hint)
        return described


MAX_NAME_BYTES = 120
"""Maximum length of the target's name in the name of its temporary file."""

MAX_RENAMES = 10
"""Maximum number of attempts to replace a folder that other processes write too."""

_swept_folders: set[Path] = set()


@contextmanager
def replace_file(target: Path) -> Iterator[Path]:
    """Yield the path of a new file next to `target`, and rename it at the end.

    The file is empty at first. After an exception `target` is unchanged and the temporary file is removed.
    """
    path = _sibling_path(target)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield path
        os.replace(path, target)
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder next to `target`, and rename it at the end.

    After an exception `target` is unchanged and the new folder is removed. An existing folder is replaced if
    `overwrite`; otherwise, it must be empty.
    """
    path = _sibling_path(target)
    try:
        path.mkdir()
        yield path
        for remaining in reversed(range(MAX_RENAMES)):
            if overwrite:
                shutil.rmtree(target, ignore_errors=True)
            try:
                path.rename(target)
                break
            except OSError as error:
                # Another process has written the folder since it was removed.
                if not (overwrite and remaining and error.errno in (errno.ENOTEMPTY, errno.EEXIST)):
                    raise
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
    pattern = re.compile(rf"(?:ragauge-|\.).*[-.]{_host_id()}-(\d+)-[0-9a-f]{{8}}(?:\.part)?")
    try:
        with os.scandir(folder) as entries:
            orphans = [
                entry
                for entry in entries
                if (match := pattern.fullmatch(entry.name)) and not _is_alive(int(match[1])) and _is_own(entry)
            ]
    except OSError:
        return
    for entry in orphans:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with suppress(OSError):
                os.unlink(entry.path)


def _sibling_path(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_orphans_once(target.parent)
    name = os.fsdecode(os.fsencode(target.name)[:MAX_NAME_BYTES])
    return target.parent / f".{name}.{_unique_suffix()}.part"


def _temporary_path(purpose: str, parent: Path | None) -> Path:
    try:
        folder = Path(tempfile.gettempdir()) if parent is None else parent
    except FileNotFoundError:
        raise BadInput(
            "no temporary folder can be written", hint="set TMPDIR to a folder with free space, e.g. TMPDIR=."
        ) from None
    _remove_orphans_once(folder)
    return folder / f"ragauge-{purpose}-{_unique_suffix()}"


def _remove_orphans_once(folder: Path) -> None:
    """Remove orphans once per folder and process.

    Scanning the folder for each file would be slow.
    """
    folder = folder.absolute()
    if folder not in _swept_folders:
        _swept_folders.add(folder)
        remove_orphans(folder)


def _unique_suffix() -> str:
    return f"{_host_id()}-{os.getpid()}-{secrets.token_hex(4)}"


@cache
def _host_id() -> str:
    """Identify the host and its process namespace.

    Process ids of other containers have no meaning here.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return hash_bytes(f"{platform.node()} {namespace}".encode(), size_bytes=3)


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


FORMAT_BY_ENDING = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


REDACTED_ENDINGS = {
    *FORMAT_BY_ENDING,
    ".html",
    ".md",
    ".tex",
    ".txt",
    ".svg",
    ".run",
    ".trec",
    ".qrels",
    ".toml",
    "",
} - {".parquet"}
"""Endings of files in which secrets are redacted while they are written."""


def check_writable(path: str, *, folder: bool = False) -> None:
    """Raise BadInput if a path cannot be written later; nothing is written now."""
    target = Path(path)
    if path == "-":
        return
    if target.exists() and target.is_dir() is not folder:
        raise BadInput("is a file, not a folder" if folder else "is a folder, not a file to write", file=path)
    ancestors = target.absolute().parents
    parent = next(candidate for candidate in ((target, *ancestors) if folder else ancestors) if candidate.exists())
    if not parent.is_dir():
        raise BadInput(f"cannot be written: {parent.name} is a file, not a folder", file=path)
    if not os.access(parent, os.W_OK):
        raise BadInput(f"cannot be written: no permission to write in {parent}", file=path)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file that appears only when it is complete and on the disk.

    `-` is standard output, without control characters on a terminal; .gz and .zst are compressed. Of concurrent
    writers, the last one to finish wins. A device or pipe is written directly.
    """
    path = str(path)
    if path == "-" and sys.stdout.isatty():
        shown = io.BytesIO()
        yield shown
        sys.stdout.write(replace_control_characters(shown.getvalue().decode(errors="replace")))
        return
    if path == "-":
        yield sys.stdout.buffer
        return
    target = Path(path)
    if not target.name or target.is_dir():
        raise BadInput("is a folder, not a file to write", file=path)
    try:
        # A device or a pipe cannot be replaced by a file.
        direct = target.exists() and not target.is_file()
        with nullcontext(target) if direct else replace_file(target) as part:
            with _open_compressed(part, path) as out:
                if has_secrets() and InputFile(path).ending in REDACTED_ENDINGS:
                    redacting = RedactingWriter(out)
                    yield cast(IO[bytes], redacting)
                    redacting.finish()
                else:
                    yield out
            if not direct:
                _sync_to_disk(part)
    except OSError as error:
        raise BadInput(f"cannot be written ({error.strerror})", file=path) from None
    except Exception as error:
        if "IO error: " not in str(error):
            raise
        # polars wraps the message of the file system if a Parquet file does not fit on the disk.
        reason = error_summary(error).rpartition("IO error: ")[2]
        raise BadInput(f"cannot be written ({reason})", file=path) from None


def _sync_to_disk(path: Path) -> None:
    """Write a file's data to the disk, so that a power failure after the renaming cannot leave an empty file."""
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class RedactingWriter:
    """A binary file object that redacts registered secrets in whole lines before it writes them."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._line = b""

    def write(self, data: bytes) -> int:
        """Write the complete lines and buffer the rest."""
        lines = self._line + bytes(data)
        end = lines.rfind(b"\n") + 1
        self._out.write(redact_bytes(lines[:end]))
        self._line = lines[end:]
        return len(data)

    def finish(self) -> None:
        """Write the buffered last line."""
        self._out.write(redact_bytes(self._line))
        self._line = b""

    def flush(self) -> None:
        """Flush the complete lines."""
        self._out.flush()


def _open_compressed(part: Path, path: str) -> IO[bytes]:
    if path.endswith(".gz"):
        return io.BufferedWriter(gzip.open(part, "wb", compresslevel=6))
    if path.endswith(".zst"):
        try:
            import zstandard
        except ImportError:
            raise MissingExtra("writing .zst", "zstd") from None
        stream: IO[bytes] = zstandard.open(part, "wb")
        return stream
    return part.open("wb")


def cache_folder() -> Path:
    """Return the folder RAGAUGE_CACHE, or else the cache folder of the user."""
    override = os.environ.get("RAGAUGE_CACHE")
    if override:
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ragauge"


def folder_name(name: str) -> str:
    """Convert a name to a safe folder name of at most 100 characters.

    >>> folder_name("../dense(store=faiss)")
    'dense_store=faiss'
    """
    safe_name = re.sub(r"[^\w.+=-]+", "_", name).strip("._") or "system"
    if len(safe_name) <= 100:
        return safe_name
    return f"{safe_name[:80]}-{hash_bytes(name.encode('utf-8', 'replace'), size_bytes=6)}"
