"""Chats and judges for other processes, which import them from here."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import literal_judge
from ragauge.errors import BackendFailed
from ragauge.judges.lexical import Lexical
from ragauge.judges.tasks import Reading, Task
from ragauge.verdicts import Reply


class Literal:
    """A chat that takes everything literally."""

    name = "literal"

    def __init__(self, **about: Any) -> None:
        self.identity = {"chat": "literal", **about}
        self.closed = False

    def complete(self, messages: Any, schema: Any = None) -> Reply:
        return Reply(literal_judge.answer(messages, schema), 10, 5, model="literal")

    def close(self) -> None:
        self.closed = True


class Located(Literal):
    """One that replies under the number of its process."""

    def complete(self, messages: Any, schema: Any = None) -> Reply:
        time.sleep(0.02)
        return super().complete(messages, schema)._replace(model=str(os.getpid()))


class Moody(Literal):
    """One that will not speak of some things, and breaks over others."""

    def complete(self, messages: Any, schema: Any = None) -> Reply:
        if "moody" in messages[1]["content"]:
            raise BackendFailed("not in the mood", hint="ask tomorrow")
        if "broken" in messages[1]["content"]:
            raise KeyError("no such thing")
        return super().complete(messages, schema)


class Single(Literal):
    """One that takes a call at a time."""

    concurrency = 1

    def __init__(self) -> None:
        super().__init__()
        self.busy = 0

    async def complete(self, messages: Any, schema: Any = None) -> Reply:
        import asyncio

        self.busy += 1
        if self.busy > self.concurrency:
            raise BackendFailed("two at a time", final=True)
        await asyncio.sleep(0.01)
        self.busy -= 1
        return super().complete(messages, schema)


class Fickle(Literal):
    """Another one in every process."""

    def __init__(self) -> None:
        super().__init__(model=f"of {os.getpid()}")

    def __reduce__(self) -> Any:
        return Fickle, ()


class Deadly(Literal):
    """One that ends the process that asks it."""

    def complete(self, messages: Any, schema: Any = None) -> Reply:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().complete(messages, schema)


class Locked(Literal):
    """One that no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Wordy:
    """A judge of somebody's own: it looks at words."""

    name = "wordy"
    identity = {"judge": "wordy"}  # noqa: RUF012 - as somebody would write it

    async def answer(self, task: Task) -> Reading:
        return Lexical().say(task)
