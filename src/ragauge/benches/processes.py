"""A process of its own for every store: started, listened to, given up after its time; a crash is a sentence here."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ragauge.benches.clocks import environment
from ragauge.benches.orders import Order
from ragauge.errors import BackendFailed, BadInput, MissingExtra, RagaugeError

Progress = Callable[[str, int, int], None]
"""What is being done, how much of it is done, and of how much."""
KINDS: dict[str, type[RagaugeError]] = {"BadInput": BadInput, "MissingExtra": MissingExtra}
LAST_WORDS = 2_000
PATIENCE = 15.0
"""Seconds that a process has to end once it is done."""
LAST_SECONDS = 5.0
"""And once it is told to, to stop a server that it started."""


def carry_out(order: Order, progress: Progress | None = None) -> None:
    """Let a new process do what an order says; what it raises is raised here, in its own words."""
    log = Path(order.folder) / f"{order.stage}.log"
    with log.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "ragauge.benches.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            env={**os.environ, **environment(order.plan.threads)},
            start_new_session=True,
        )
        try:
            _send(process, order)
            said = _listen(process, order, progress)
            # Once it has said that all is done, it need not be waited for: engines may leave threads that never end.
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE)
        finally:
            _end(process)
    if "error" in said:
        raise _error(said)
    if "ended" not in said:
        raise BackendFailed(f"the process {died(process.returncode)} while {_doing(order)}{_last_words(log)}")
    log.unlink(missing_ok=True)


def _send(process: subprocess.Popen[bytes], order: Order) -> None:
    """The order goes through a pipe, which stays open: it may hold the key to a server, and no file should."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.write(order.text().encode() + b"\n")
            process.stdin.flush()


def _listen(process: subprocess.Popen[bytes], order: Order, progress: Progress | None) -> dict[str, Any]:
    """Follow what a process tells, line by line, until it ends or its time is over; the last that it said."""
    out: IO[bytes] = process.stdout or sys.stdin.buffer
    until = time.monotonic() + order.plan.timeout
    stage, buffered = order.stage, b""
    said: dict[str, Any] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(out, selectors.EVENT_READ)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise BackendFailed(
                    f"gave up after {order.plan.timeout:g} seconds while {_doing(order, stage)}",
                    hint="--timeout gives it longer",
                )
            if not waiting.select(timeout=min(left, 1.0)):
                continue
            got = os.read(out.fileno(), 65_536)
            if not got:
                return said
            *lines, buffered = (buffered + got).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "stage" in said:
                    stage = said["stage"]
                    if progress is not None:
                        progress(stage, said["done"], said["total"])


def _doing(order: Order, stage: str = "") -> str:
    words = {"build": "building", "cold": "opening it again", "load": "under load", "filters": "filtering"}
    return {**words, "changes": "changing it", "insert": "inserting", "index": "indexing", "search": "searching"}.get(
        stage or order.stage, stage or order.stage
    )


def _error(said: dict[str, Any]) -> RagaugeError:
    if said["error"] == "MissingExtra":
        missing = MissingExtra(said["message"], "")
        missing.message, missing.hint = said["message"], said["hint"]
        return missing
    return KINDS.get(said["error"], BackendFailed)(said["message"], hint=said["hint"])


def died(code: int | None) -> str:
    """What became of a process, by its exit code.

    >>> died(-9), died(3)
    ('was ended by SIGKILL', 'ended with exit code 3')
    """
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _last_words(log: Path) -> str:
    said = (log.read_bytes() if log.exists() else b"")[-LAST_WORDS:].decode(errors="replace").strip().splitlines()
    return f"; its last words: {said[-1]}" if said else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it goes on: neither the process nor what it started and did not detach."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        process.terminate()  # so that it can stop a server that it started
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=LAST_SECONDS)
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
