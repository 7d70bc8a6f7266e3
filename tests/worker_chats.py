"""Chats and judges for other processes, which import them from here."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import threading
import time
from concurrent.futures import Executor, Future
from typing import Any

import literal_judge
from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Reply
from ragauge.judging.lexical_judge import LexicalJudge
from ragauge.judging.tasks import JudgeTask, TaskResult


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

    async def answer(self, task: JudgeTask) -> TaskResult:
        return LexicalJudge().say(task)


class Queueing(Wordy):
    """One that answers one task after the other, whoever asks; a lock that somebody waits for belongs to a loop."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()

    async def answer(self, task: JudgeTask) -> TaskResult:
        async with self.turn:
            await asyncio.sleep(0.001)
            return await super().answer(task)


class Leaving(Wordy):
    """One that wants the process to end."""

    async def answer(self, task: JudgeTask) -> TaskResult:
        raise SystemExit(7)


class Wiretap(Executor):
    """Does everything at once and here, and notes each byte that another process would be sent or send back."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        self.heard.append(pickle.dumps((work, arguments, named)))
        found: Future[Any] = Future()
        threading.Thread(target=self._work, args=(found, self.heard[-1]), daemon=True).start()
        return found

    def _work(self, found: Future[Any], sent: bytes) -> None:
        work, arguments, named = pickle.loads(sent)
        try:
            self.heard.append(pickle.dumps(work(*arguments, **named)))
            found.set_result(pickle.loads(self.heard[-1]))
        except Exception as error:
            self.heard.append(pickle.dumps(error))
            found.set_exception(pickle.loads(self.heard[-1]))
