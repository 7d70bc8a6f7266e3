"""A process of its own for what may break: started with one order, listened to line by line, ended whatever happens.

The parent has a `Child`; the child calls `serve`. Orders and words are single lines of JSON.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

Tell = Callable[[Mapping[str, Any]], None]
"""What a child says something with."""
LAST_WORDS = 2_000
"""So many bytes of what a process wrote last are looked at."""
PATIENCE = 15.0
"""Seconds that a process has to end once it is done, unless its owner says otherwise."""
LAST_SECONDS = 5.0
"""And once it is told to, to stop a server that it started."""


class OutOfTime(Exception):
    """A child took too long; its owner says what that means."""


class Child:
    """A process that runs a module of ours and is given one order; to be used in a `with`."""

    def __init__(
        self,
        module: str,
        order: str,
        *,
        log: Path,
        timeout: float,
        silence: bool = False,
        patience: float = PATIENCE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._timeout, self._silence, self._late = timeout, silence, False
        self._patience = patience
        self._log = log
        with log.open("wb") as words:
            self._process = subprocess.Popen(  # noqa: S603 - a module of ours
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        try:
            self._send(order)
        except BaseException:  # interrupted before anybody could end it
            self._end()
            raise

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._late:
            # Once it has said that all is done, it need not be waited for: engines may leave threads that never end.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=self._patience)
        self._end()

    def words(self) -> Iterator[dict[str, Any]]:
        """What it tells, until it ends.

        OutOfTime is raised after `timeout` seconds: of all its time, or with `silence` since it last said something.
        """
        out = self._process.stdout
        if out is None:
            return
        until, buffered = time.monotonic() + self._timeout, b""
        with selectors.DefaultSelector() as waiting:
            waiting.register(out, selectors.EVENT_READ)
            while True:
                left = until - time.monotonic()
                if left <= 0:
                    self._late = True
                    raise OutOfTime
                if not waiting.select(timeout=min(left, 1.0)):
                    continue
                got = os.read(out.fileno(), 65_536)
                if not got:
                    return
                *lines, buffered = (buffered + got).split(b"\n")
                for line in lines:
                    yield json.loads(line)
                if self._silence:
                    until = time.monotonic() + self._timeout

    def kill(self) -> None:
        """End it at once, as `kill -9` does, with all that it started and did not detach."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def fate(self, meanwhile: str = "") -> str:
        """What became of it once it has ended, what it was doing, and the last line that it wrote."""
        said = self.wrote().strip().splitlines()
        return died(self._process.returncode) + meanwhile + (f"; its last words: {said[-1]}" if said else "")

    def wrote(self) -> str:
        """What it wrote last on standard error, or where it had better not have."""
        return (self._log.read_bytes() if self._log.exists() else b"")[-LAST_WORDS:].decode(errors="replace")

    def _send(self, order: str) -> None:
        """The order goes through a pipe, which stays open: it may hold the key to a server, and no file should."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(order.encode() + b"\n")
                self._process.stdin.flush()

    def _end(self) -> None:
        """Nothing of it goes on: neither the process nor what it started and did not detach."""
        process = self._process
        if process.stdout is not None:
            process.stdout.close()
        if process.poll() is None:
            process.terminate()  # so that it can stop a server that it started
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=LAST_SECONDS)
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        self.kill()
        process.wait()


def died(code: int | None) -> str:
    """What became of a process, by its exit code.

    >>> died(-9), died(3)
    ('was ended by SIGKILL', 'ended with exit code 3')
    """
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def serve(carry_out: Callable[[str, Tell], int]) -> int:
    """The life of a child: read the order, carry it out, and tell on what was standard output.

    Whatever a library prints goes to standard error, so that nothing can be taken for a word of ours.
    """
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as out:
        os.dup2(2, 1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is to be done at the end is done
        order = sys.stdin.readline()
        threading.Thread(target=_die_with_the_parent, daemon=True).start()

        def tell(what: Mapping[str, Any]) -> None:
            out.write(json.dumps(what) + "\n")
            out.flush()

        return carry_out(order, tell)


def _die_with_the_parent() -> None:
    """Whoever gave the order may be killed; then nobody wants it carried out, and the next may want the same folder.

    Standard input stays open as long as there is somebody, and waiting for its end costs nothing.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
