"""Functions that the tests of `ragauge.compute.workers` call in worker processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ragauge.compute.progress import Progress
from ragauge.compute.worker_process import SendEvent, take_number, wait_for_start
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra


@dataclass(frozen=True)
class SumTask:
    numbers: Sequence[float]
    key: str = ""


class SumResult(NamedTuple):
    total: float
    pid: int
    arguments: str = ""


class TakenNumbers(NamedTuple):
    start_ns: int
    numbers: list[int]


def add(task: SumTask, send: SendEvent) -> SumResult:
    os.write(1, b"an engine prints this\n")
    for place in range(len(task.numbers)):
        send(Progress("add", place, len(task.numbers)))
    arguments = " ".join([*sys.orig_argv, *os.environ.values()])
    return SumResult(sum(task.numbers), os.getpid(), arguments)


def fail(task: str, send: SendEvent) -> None:
    if task == "input":
        raise BadInput("cannot be used", file="a.txt", line=3, hint="use b.txt")
    if task == "extra":
        raise MissingExtra("a store", "faiss")
    if task == "wrapped":
        raise BackendFailed("the store failed") from OSError("disk\nfull")
    if task == "library":
        raise KeyError("first\nsecond")
    if task == "kill":
        os.write(1, b"last line\n")
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def take_numbers(task: int, send: SendEvent) -> TakenNumbers:
    start, numbers = wait_for_start(send), []
    while (number := take_number()) is not None:
        numbers.append(number)
        time.sleep(0.001)
    return TakenNumbers(start, numbers)


def fail_second(task: int, send: SendEvent) -> None:
    if task == 1:
        raise BackendFailed("no store here")
    wait_for_start(send)


def serve(task: str, send: SendEvent) -> None:
    Path(task).write_text(str(os.getpid()))
    send({"address": "http://127.0.0.1:1"})
    threading.Event().wait()
