"""Waiting for a state of another process or thread, so that no test depends on the speed of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""Seconds after which a state that was not reached fails a test. A busy machine is slow, and a hang must end."""


def wait_until(condition: Callable[[], object], state: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `condition()` is true; fail with the name of the `state` after `timeout_s` seconds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {state}"
        time.sleep(0.01)


def wait_while_running(process: object, condition: Callable[[], object], state: str) -> None:
    """Wait until `condition()` is true; fail at once if the process ends first."""

    def reached() -> bool:
        if condition():
            return True
        assert process.poll() is None, f"the process ended before this: {state}"  # type: ignore[attr-defined]
        return False

    wait_until(reached, state)


def count_lines(path) -> int:
    """Count the complete lines of a file; 0 if there is no such file."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
