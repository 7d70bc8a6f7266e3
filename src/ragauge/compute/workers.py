"""Worker processes for code that may crash or hang: one function, called with one task in a process of its own.

A capability writes `run_task(task, send)`: `task` is a dataclass, `send` sends progress and messages, and the return
value is the result. The parent calls it with `call_worker`, or with a `Worker` if it follows the events. The task
travels through standard input, because it may contain the key of a server.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeVar

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.compute.worker_process import BOOTSTRAP, NUMBER_BYTES, TERMINATE_TIMEOUT_S, Message, split_lines
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BackendFailed, RagaugeError, rebuild_error
from ragauge.files.serialization import from_json_data, to_json_data

R = TypeVar("R")
MAX_LOG_BYTES = 65_536
"""Maximum number of bytes of the end of a log that are read."""
START_DELAY_NS = 50_000_000
"""Delay between the last worker of a group being ready and the common start."""


class WorkerTimeout(BackendFailed):
    """A worker process exceeded its time limit."""


class WorkerDied(BackendFailed):
    """A worker process ended without a result."""

    def __init__(self, end: str, log: str) -> None:
        last_line = (log.strip().splitlines() or [""])[-1]
        super().__init__(f"the process {end}" + (f"; last line of its log: {last_line}" if last_line else ""))
        self.end = end
        """How it ended, e.g. `was ended by SIGKILL`."""
        self.last_line = last_line


class LibraryError(Exception):
    """Cause of an error in a worker process: the class and the whole message of the library's error."""


@dataclass(frozen=True)
class WorkerLimits:
    """Limits and environment of a worker process."""

    timeout_s: float
    """Time limit in seconds."""
    restarts_with_event: bool = False
    """Whether the time limit starts again with every event."""
    stop_wait_s: float = 15.0
    """Time in seconds to exit after the result. Then the process is killed: engines may leave threads that never end.
    """
    environment: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """Additional environment variables."""
    cores: int | None = None
    """Number of CPU cores that the process and the threads of its libraries may use; None does not limit them."""


class Worker:
    """Process that calls `module:function` with one task; use it in a `with` block."""

    def __init__(
        self,
        function: str,
        task: Any,
        limits: WorkerLimits,
        *,
        log: Path | None = None,
        mode: Literal["task", "service"] = "task",
        shared_file: int | None = None,
    ) -> None:
        self._limits = limits
        self._outcome: dict[str, Any] | None = None
        self._parts: list[bytes] = []
        self._log: IO[bytes] = tempfile.TemporaryFile() if log is None else log.open("w+b")  # noqa: SIM115
        self._log_text = ""
        self._process = subprocess.Popen(  # noqa: S603 - a function of ours
            # -P: with -c alone, a json.py in the current folder would be imported instead of Python's.
            [sys.executable, "-P", "-c", BOOTSTRAP, function, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **_thread_limits(limits.cores), **limits.environment},
            start_new_session=True,
            pass_fds=() if shared_file is None else (shared_file,),
        )
        try:
            self.restart_clock()
            path = [folder for folder in sys.path if folder]
            self.send({"task": to_json_data(task), "path": path, "cores": limits.cores, "shared_file": shared_file})
        except BaseException:  # interrupted before the caller could end it
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outcome is not None and (kind is None or issubclass(kind, Exception)):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=self._limits.stop_wait_s)
        self.close()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def has_result(self) -> bool:
        """Whether the process has sent its result."""
        return self._outcome is not None and "result" in self._outcome

    @property
    def has_failed(self) -> bool:
        """Whether the process has sent an error."""
        return self._outcome is not None and "error" in self._outcome

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the process. If it has ended, the next event says so."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()

    def events(self) -> Iterator[Progress | Message]:
        """Yield the events of the process until it sends its result or ends; raise WorkerTimeout if it is late."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            while self._outcome is None:
                if not selector.select(timeout=min(self.check_time_left(), 1.0)):
                    continue
                events = self.read_events()
                if events is None:
                    return
                yield from events

    def read_events(self) -> list[Progress | Message] | None:
        """Read the events that have arrived; None if the process has ended."""
        data = os.read(self.stdout.fileno(), 65_536)
        events: list[Progress | Message] = []
        for line in split_lines(self._parts, data):
            content = json.loads(line)
            if "event" in content:
                events.append(content["event"])
            elif "progress" in content:
                events.append(Progress(*content["progress"]))
            else:
                self._outcome = content
        if self._limits.restarts_with_event:
            self.restart_clock()
        return events if data else None

    def check_time_left(self) -> float:
        """Return the seconds that are left; raise WorkerTimeout if there are none."""
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:
            raise WorkerTimeout(f"the process gave no result within {self._limits.timeout_s:g} s")
        return seconds_left

    def result(self, kind: type[R]) -> R:
        """Wait for the result; raise the error of the worker, WorkerDied or WorkerTimeout.

        An error has the class, message and hint that it had in the worker. Its `__cause__` is a LibraryError if a
        library raised it.
        """
        for _ in self.events():
            pass
        if self._outcome is None:
            self.wait_for_end()
            raise WorkerDied(describe_exit(self._process.returncode), self.log_text())
        if "error" in self._outcome:
            raise _build_error(self._outcome["error"])
        data: Any = self._outcome["result"]
        return (
            typing.cast(R, data) if kind is type(None) else from_json_data(kind, data, source="the result of a worker")
        )

    def kill(self) -> None:
        """Kill the process with SIGKILL, together with its children.

        Detached children are not killed.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait_for_end(self) -> None:
        """Wait until a process that has closed its output has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=self._limits.stop_wait_s)
        self.close()

    def log_text(self) -> str:
        """Read the end of the log: standard error, and anything that libraries print."""
        if not self._log.closed:
            # Not with seek: the process writes at the same position.
            size = os.fstat(self._log.fileno()).st_size
            data = os.pread(self._log.fileno(), MAX_LOG_BYTES, max(0, size - MAX_LOG_BYTES))
            self._log_text = data.decode(errors="replace")
        return self._log_text

    def close(self) -> None:
        """End the process and all of its children that it did not detach."""
        process = self._process
        if self._log.closed:
            return
        self.stdout.close()
        if process.poll() is None:
            process.terminate()  # so that it can stop a server that it started
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=TERMINATE_TIMEOUT_S)
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        self.kill()
        process.wait()
        self.log_text()
        self._log.close()

    @property
    def stdout(self) -> IO[bytes]:
        """Pipe with the events of the process."""
        if self._process.stdout is None:
            raise BackendFailed("the process has no standard output")
        return self._process.stdout

    def restart_clock(self, duration_s: float = 0.0) -> None:
        """Let the time limit begin after `duration_s` seconds."""
        self._deadline = time.monotonic() + duration_s + self._limits.timeout_s


class WorkerService(Worker):
    """Process that serves until it is closed; its first message is its `address`."""

    def __init__(self, function: str, task: Any, limits: WorkerLimits) -> None:
        super().__init__(function, task, limits, mode="service")

    def read_address(self) -> str:
        """Wait for the address of the service; raise its error if it cannot be started."""
        for event in self.events():
            if isinstance(event, Mapping) and "address" in event:
                return str(event["address"])
        self.result(type(None))
        raise BackendFailed("the process ended without an address")


def call_worker(
    function: str,
    task: Any,
    kind: type[R],
    limits: WorkerLimits,
    *,
    progress: ProgressCallback = no_progress,
    log: Path | None = None,
) -> R:
    """Call `module:function` with a task in a new process, and return its result.

    Errors of the function are raised here with the same class, message and hint.
    """
    with Worker(function, task, limits, log=log) as worker:
        for event in worker.events():
            if isinstance(event, Progress):
                progress(event)
        return worker.result(kind)


class GroupFailure(BackendFailed):
    """A worker of a group failed; the cause is its error."""

    def __init__(self, index: int, error: RagaugeError) -> None:
        super().__init__(error.message, hint=error.hint)
        self.index = index
        """Position of the worker in its group, from 0."""
        self.__cause__ = error


@contextmanager
def worker_group(
    function: str, tasks: Sequence[Any], limits: WorkerLimits, *, duration_s: float = 0.0, shared_numbers: int = 0
) -> Iterator[list[Worker]]:
    """Start one worker per task, and let all begin at the same instant.

    Each one calls `wait_for_start`. They share the numbers below `shared_numbers`, which each takes with `take_number`.
    The time limit applies to getting ready, and again after the `duration_s` of the work. Raise GroupFailure.
    """
    from ragauge.compute.resources import now

    with ExitStack() as stack:
        numbers = stack.enter_context(tempfile.TemporaryFile())
        numbers.write(b"".join(number.to_bytes(NUMBER_BYTES, "little") for number in range(shared_numbers)))
        numbers.seek(0)
        workers = [stack.enter_context(Worker(function, task, limits, shared_file=numbers.fileno())) for task in tasks]
        _wait_for_all(workers, "ready")
        start = {"start_ns": now() + START_DELAY_NS}
        for worker in workers:
            worker.restart_clock(duration_s)
            worker.send(start)
        yield workers


def gather_results(workers: Sequence[Worker], kind: type[R]) -> list[R]:
    """Return the results of all workers of a group; raise GroupFailure for the first one that fails."""
    _wait_for_all(workers)
    return [worker.result(kind) for worker in workers]


def _wait_for_all(workers: Sequence[Worker], message: str = "") -> None:
    """Wait until each worker has sent its result, or a message of that name."""
    waiting = dict(enumerate(workers))
    with selectors.DefaultSelector() as selector:
        for position, worker in waiting.items():
            selector.register(worker.stdout, selectors.EVENT_READ, position)
        while waiting:
            readable = {key.data for key, _ in selector.select(timeout=1.0)}
            for position, worker in list(waiting.items()):
                try:
                    worker.check_time_left()
                    events = worker.read_events() if position in readable else []
                    if events is None or worker.has_failed:
                        worker.result(type(None))
                except RagaugeError as error:
                    raise GroupFailure(position, error) from error
                if worker.has_result or any(isinstance(event, Mapping) and message in event for event in events or ()):
                    selector.unregister(worker.stdout)
                    del waiting[position]


def _build_error(content: Mapping[str, Any]) -> RagaugeError:
    """Build the error that a worker sent; an error of an unknown class becomes a BackendFailed."""
    module, _, name = content["class"].partition(":")
    kind = getattr(sys.modules.get(module), name, BackendFailed)
    error = rebuild_error(kind, (content["state"]["message"],), content["state"])
    error.__cause__ = LibraryError(content["detail"]) if content["detail"] else None
    return error


def _thread_limits(cores: int | None) -> dict[str, str]:
    if cores is None:
        return {}
    from ragauge.compute.resources import thread_limits

    return thread_limits(cores)


def describe_exit(code: int | None) -> str:
    """Describe how a process ended, by its exit code.

    >>> describe_exit(-9), describe_exit(3)
    ('was ended by SIGKILL', 'ended with exit code 3')
    """
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
