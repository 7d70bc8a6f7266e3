"""Stop the embedded PostgreSQL server when its last user process has ended.

This also works after `kill -9`.

Run by its path with the standard library only, so that it starts quickly and stays small. Each user process holds a
shared lock, which the kernel releases when the process ends; the guard waits for the exclusive one.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

with suppress(ImportError):  # Windows has no fcntl, and no embedded server to stop
    import fcntl

USERS_LOCK_FILE, START_LOCK_FILE, GUARD_LOCK_FILE = "postgres-users.lock", "postgres.lock", "postgres-guard.lock"
"""Lock files: held by each user process, during start and stop of the server, and by the guard."""
LOCK_FOLDER = "postgres-locks"
"""Private folder next to the data folder: any process that can open a lock file can hold it."""
MAX_STOP_ATTEMPTS = 6
RETRY_PAUSE_S = 0.5


def lock_path(folder: Path, name: str) -> Path:
    """Return the path of a lock file of the server with this data folder."""
    return folder.parent / LOCK_FOLDER / name


def main(folder: Path, pg_ctl: str, user: str) -> None:
    """Wait until no process uses the server in `folder`, then stop it.

    `pg_ctl` is the program that stops it, `user` the system user that runs it.
    """
    with ExitStack() as opened:
        guard = opened.enter_context(lock_path(folder, GUARD_LOCK_FILE).open("r+"))
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another guard is waiting already
        users = opened.enter_context(lock_path(folder, USERS_LOCK_FILE).open("r+"))
        # A process killed while starting the server leaves a server that cannot be stopped yet.
        for _ in range(MAX_STOP_ATTEMPTS):
            if _stop_server(folder, users.fileno(), [pg_ctl, "-D", str(folder), "-w", "-m", "fast", "stop"], user):
                return
            time.sleep(RETRY_PAUSE_S)


def _stop_server(folder: Path, users: int, command: list[str], user: str) -> bool:
    """Wait for the last user and stop the server; return whether it was running."""
    while True:
        fcntl.flock(users, fcntl.LOCK_EX)
        try:
            with lock_path(folder, START_LOCK_FILE).open("r+") as start:
                fcntl.lockf(start, fcntl.LOCK_EX | fcntl.LOCK_NB)
                done = subprocess.run(command, user=user or None, capture_output=True, check=False)  # noqa: S603
                return done.returncode == 0
        except FileNotFoundError:
            return True  # the folder was deleted, and the server with it
        except OSError:  # another process is starting the server and waits for the shared lock
            fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(RETRY_PAUSE_S)
        finally:
            with suppress(OSError):
                fcntl.flock(users, fcntl.LOCK_UN)


if __name__ == "__main__":
    with suppress(FileNotFoundError):  # the folder was deleted
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
