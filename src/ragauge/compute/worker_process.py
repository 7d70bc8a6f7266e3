"""Child side of a worker process: call one function with a task, and send its events, result or error.

`python -P -c BOOTSTRAP module:function MODE` reads the task from the first line of standard input. Lines of JSON go to
the original standard output: `event`, `progress`, and at the end `result` or `error`. Anything that a library prints
goes to standard error instead, so that it cannot be mistaken for an event.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any, get_type_hints

from ragauge.compute.progress import Progress
from ragauge.core.errors import BackendFailed, RagaugeError
from ragauge.files.serialization import from_json_data, to_json_data

Message = Mapping[str, Any]
"""Event of a worker process that is not progress: JSON data by name."""
SendEvent = Callable[[Progress | Message], None]
"""Function with which a task sends an event to the parent process."""
BOOTSTRAP = "from ragauge.compute.worker_process import main; main()"
"""Code of a worker process. Without `-m`, because the functions of this module must exist only once."""
TERMINATE_TIMEOUT_S = 5.0
"""Time in seconds that a terminated process has to stop a server that it started."""
NUMBER_BYTES = 8
"""Size of a number in the file that the workers of a group share."""

_received: SimpleQueue[Any] = SimpleQueue()
_shared_file: int | None = None


def main() -> None:
    """Run the function that the arguments name, with the task from standard input."""
    global _shared_file  # noqa: PLW0603 - a worker process has one group
    name, mode = sys.argv[1:3]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        # The end of a service must not wait for a reply in progress. A task runs its cleanup code.
        signal.signal(signal.SIGTERM, _exit_at_once if mode == "service" else _exit_with_cleanup)
        lines = read_lines(0)
        request = json.loads(next(lines))
        # Last, for modules of the user: they never replace those of Python or of an installed package.
        sys.path.extend(folder for folder in request["path"] if folder not in sys.path)
        _shared_file = request["shared_file"]
        threading.Thread(target=_follow_parent, args=(lines,), daemon=True).start()

        def send_line(line: Mapping[str, Any]) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        def send(event: Progress | Message) -> None:
            if isinstance(event, Progress):
                send_line({"progress": list(event)})
            else:
                send_line({"event": to_json_data(event)})

        if request["cores"] is not None:
            from ragauge.compute.resources import pin_to_cores

            pin_to_cores(request["cores"])
        send_line(_call_function(name, request["task"], send))


def wait_for_start(send: SendEvent) -> int:
    """Report that this worker is ready, and wait until all workers of its group are.

    Return the common start in nanoseconds, on the clock `ragauge.compute.resources.now`; it lies in the future.
    """
    send({"ready": True})
    start: int = _received.get()["start_ns"]
    return start


def take_number() -> int | None:
    """Take the next number that no other worker of the group has taken; None if all are taken.

    The workers share the position in an open file. The operating system moves it with every read, so this takes one
    system call and no lock.
    """
    if _shared_file is None:
        return None
    data = os.read(_shared_file, NUMBER_BYTES)
    return int.from_bytes(data, "little") if data else None


def read_lines(file: int) -> Iterator[bytes]:
    """Read whole lines from a file descriptor.

    Unlike a buffered file, this does not block the end of the interpreter while a thread waits for a line.
    """
    parts: list[bytes] = []
    while data := os.read(file, 65_536):
        yield from split_lines(parts, data)


def split_lines(parts: list[bytes], data: bytes) -> Iterator[bytes]:
    """Yield the lines that `data` completes; `parts` keeps the start of the next line."""
    *ends, next_start = data.split(b"\n")
    for end in ends:
        parts.append(end)
        line = b"".join(parts)
        parts.clear()
        yield line
    if next_start:
        parts.append(next_start)


def _call_function(name: str, task: Any, send: SendEvent) -> dict[str, Any]:
    """Call `module:function` with the task, and return the last line to send."""
    try:
        module, _, attribute = name.partition(":")
        function = getattr(importlib.import_module(module), attribute)
        kind = next(iter(get_type_hints(function).values()))
        argument = None if kind is type(None) else from_json_data(kind, task, source="the task of a worker")
        return {"result": to_json_data(function(argument, send))}
    except (KeyboardInterrupt, SystemExit):
        raise
    except RagaugeError as error:
        cause = error.__cause__
        return {"error": _describe_error(error, "" if cause is None else format_error(cause))}
    except BaseException as error:  # panics of engines in Rust are not subclasses of Exception
        traceback.print_exc()
        detail = format_error(error)
        return {"error": _describe_error(BackendFailed(" ".join(detail.split())), detail)}


def _describe_error(error: RagaugeError, detail: str) -> dict[str, Any]:
    state = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
    return {"class": f"{type(error).__module__}:{type(error).__qualname__}", "state": state, "detail": detail}


def format_error(error: BaseException) -> str:
    """Return the class and the whole message of a library's error."""
    return f"{type(error).__name__}: {error}" if str(error) else repr(error)


def _exit_at_once(_signal: int, _frame: Any) -> None:
    os._exit(128 + signal.SIGTERM)


def _exit_with_cleanup(_signal: int, _frame: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


def _follow_parent(lines: Iterator[bytes]) -> None:
    """Keep what the parent process sends, and exit when it ends: a later command may need the same folder.

    Standard input stays open as long as the parent lives.
    """
    for line in lines:
        _received.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(TERMINATE_TIMEOUT_S)
    os.kill(os.getpid(), signal.SIGKILL)
