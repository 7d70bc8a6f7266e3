"""Worker processes for code that may crash: started with one order, read line by line, and ended in any case.

The parent uses a `Worker`; the worker process calls `serve_worker`. The order and the events are single lines of
JSON.
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

SendEvent = Callable[[Mapping[str, Any]], None]
"""Function with which a worker process sends an event to its parent."""
MAX_LOG_TAIL_BYTES = 2_000
"""Maximum number of bytes of the end of a log that are read."""
EXIT_TIMEOUT_S = 15.0
"""Default time in seconds that a process has to exit once it is done."""
TERMINATE_TIMEOUT_S = 5.0
"""Time in seconds that a terminated process has to stop a server that it started."""


class WorkerTimeout(Exception):
    """A worker process that exceeded its time limit; the caller decides what that means."""


class Worker:
    """A process that runs a module of ragauge with one order; use it in a `with` block."""

    def __init__(
        self,
        module: str,
        order: str,
        *,
        log: Path,
        timeout: float,
        silence: bool = False,
        patience: float = EXIT_TIMEOUT_S,
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
            self._send_order(order)
        except BaseException:  # interrupted before the caller could end it
            self._end_process()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._late:
            # Its work is done, so it is killed after a while: engines may leave threads that never end.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=self._patience)
        self._end_process()

    def words(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the process until it ends.

        Raise WorkerTimeout after `timeout` seconds in total, or with `silence` after that time without an event.
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
                    raise WorkerTimeout
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
        """Kill the process with SIGKILL, together with its children.

        Detached children are not killed.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def fate(self, meanwhile: str = "") -> str:
        """Describe the exit of the process, what it was doing, and its last log line."""
        said = self.wrote().strip().splitlines()
        return describe_exit(self._process.returncode) + meanwhile + (f"; its last words: {said[-1]}" if said else "")

    def wrote(self) -> str:
        """Read the end of the log: standard error, and anything that libraries print."""
        return (self._log.read_bytes() if self._log.exists() else b"")[-MAX_LOG_TAIL_BYTES:].decode(errors="replace")

    def _send_order(self, order: str) -> None:
        """Send the order through a pipe that stays open.

        The order may contain the key of a server, which should not be written to a file.
        """
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(order.encode() + b"\n")
                self._process.stdin.flush()

    def _end_process(self) -> None:
        """End the process and all of its children that it did not detach."""
        process = self._process
        if process.stdout is not None:
            process.stdout.close()
        if process.poll() is None:
            process.terminate()  # so that it can stop a server that it started
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=TERMINATE_TIMEOUT_S)
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        self.kill()
        process.wait()


def describe_exit(code: int | None) -> str:
    """Describe how a process ended, by its exit code.

    >>> describe_exit(-9), describe_exit(3)
    ('was ended by SIGKILL', 'ended with exit code 3')
    """
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def serve_worker(carry_out: Callable[[str, SendEvent], int]) -> int:
    """Run a worker process: read the order, carry it out, and send events.

    Events go to the original standard output. Anything that a library prints goes to standard error instead, so that
    it cannot be mistaken for an event.
    """
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as out:
        os.dup2(2, 1)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that cleanup code runs
        order = sys.stdin.readline()
        threading.Thread(target=_exit_with_parent, daemon=True).start()

        def tell(what: Mapping[str, Any]) -> None:
            out.write(json.dumps(what) + "\n")
            out.flush()

        return carry_out(order, tell)


def _exit_with_parent() -> None:
    """Exit when the parent process ends: a later command may need the same folder.

    Standard input stays open as long as the parent lives.
    """
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(TERMINATE_TIMEOUT_S)
    os.kill(os.getpid(), signal.SIGKILL)
