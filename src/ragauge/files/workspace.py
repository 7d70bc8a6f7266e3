"""Working folders and files: locks, atomic writes, temporary files, the cache folder.

A temporary name contains the host, the process id and a random token, so that no two writers share one. The first use
of a folder in a process removes the temporary files there whose process, on this host, is dead.
"""

from __future__ import annotations

import gzip
import io
import os
import platform
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import IO, cast

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
            with suppress(OSError):
                (path / LOCK_FILE).unlink(missing_ok=True)
        os.close(file)
        if is_new:
            with suppress(OSError):  # not empty: files were written
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
            with suppress(FileNotFoundError):  # the process that held the lock has removed the file
                is_current = os.path.samestat(os.fstat(file), path.stat())
        finally:
            if not is_current:
                os.close(file)
        if is_current:
            return file


def _try_lock(file: int, *, shared: bool) -> bool:
    """Lock an open file without waiting; return False if another process holds it."""
    import fcntl  # not at the top, because only POSIX has it, and most commands lock nothing

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


MAX_NAME_BYTES = 120
"""Maximum length of the target's name in the name of its temporary file."""


@contextmanager
def replace_file(target: Path) -> Iterator[Path]:
    """Yield the path of a new file next to `target`, and rename it at the end.

    The file is empty at first. After an exception `target` is unchanged and the temporary file is removed.
    """
    path = _sibling_path(target)
    try:
        path.touch(exist_ok=False)
        yield path
        os.replace(path, target)
    finally:
        _remove(path)


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder next to `target`, and replace `target` by it at the end.

    After an exception `target` is unchanged and the new folder is removed. The caller excludes other writers.
    """
    path = _sibling_path(target)
    try:
        path.mkdir()
        yield path
        _remove(target)
        path.rename(target)
    finally:
        _remove(path)


@contextmanager
def temporary_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a new private folder and remove it at the end.

    `parent` is the system's temporary folder by default.
    """
    path = create_temporary_folder(purpose, parent)
    try:
        yield path
    finally:
        _remove(path)


def create_temporary_folder(purpose: str, parent: Path | None = None) -> Path:
    """Create a private folder that the caller removes.

    If the caller was killed, the next process removes it.
    """
    path = _temporary_path(purpose, parent)
    path.mkdir(mode=0o700)
    return path


def create_temporary_file(purpose: str) -> Path:
    """Create a private file that the caller removes."""
    path = _temporary_path(purpose, None)
    path.touch(mode=0o600, exist_ok=False)
    return path


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink()


def _sibling_path(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_orphans(target.parent.absolute())
    name = os.fsdecode(os.fsencode(target.name)[:MAX_NAME_BYTES])
    return target.parent / f".{name}.{_unique_suffix()}.part"


def _temporary_path(purpose: str, parent: Path | None) -> Path:
    try:
        folder = Path(tempfile.gettempdir()) if parent is None else parent
    except FileNotFoundError:
        raise BadInput(
            "no temporary folder can be written", hint="set TMPDIR to a folder with free space, e.g. TMPDIR=."
        ) from None
    _remove_orphans(folder.absolute())
    return folder / f"ragauge-{purpose}-{_unique_suffix()}"


@cache  # once per folder and process: scanning a folder for each file would be slow
def _remove_orphans(folder: Path) -> None:
    """Remove the temporary files and folders of dead processes of this host."""
    pattern = re.compile(rf"(?:ragauge-|\.).*[-.]{_host_id()}-(\d+)-[0-9a-f]{{8}}(?:\.part)?")
    try:
        paths = list(folder.iterdir())
    except OSError:
        return
    for path in paths:
        match = pattern.fullmatch(path.name)
        if match is not None and not _is_alive(int(match[1])):
            _remove(path)


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


FORMAT_BY_ENDING = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}


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
                if has_secrets() and InputFile(path).ending != ".parquet":
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
