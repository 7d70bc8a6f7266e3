"""A chat whose calls are made by the workers of an executor; whatever is decided about them is decided here.

Handing a part to a cluster takes milliseconds, and a worker has few threads. So calls that are ready go together, and a
worker makes all of them at once. Parts that only wait make room on a cluster, and there are many small ones there;
elsewhere one part at a time is on each lane, and comes back with the last of its calls.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from ragauge.compute.event_loops import LoopThread, gather_or_cancel
from ragauge.compute.executors import AsyncTasks, secede, worker_count
from ragauge.core import protocols
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError
from ragauge.core.protocols import Chat, Message, Reply
from ragauge.models.chats.calls import attempt_request

MOMENT = 0.002
"""Seconds: calls that come within a moment go together."""
HANDING = 0.03
"""Seconds that a part of a cluster is to be worth: with the quickest chats there are thirty parts a second."""


class Call(NamedTuple):
    """What one call sends."""

    messages: Sequence[Message]
    schema: Mapping[str, Any] | None


class Said(NamedTuple):
    """What a part of the calls came to."""

    replies: list[Reply | RagaugeError]
    """In the order of the calls: a failure is that of its call, and nobody else's."""
    seconds: float
    """Of all its calls, one after the other."""
    notes: list[str]
    """What the worker's chat has to say by now."""


class Elsewhere:
    """The same chat by its name, identity and notes, asked by workers that open it for themselves.

    `opening` opens it there, `timeout` is what one call may take there, and `concurrency` how many there are at a time.
    A `borrowed` one is closed by whoever gave it. It belongs to one event loop.
    """

    asynchronous = True

    def __init__(
        self,
        chat: Chat,
        opening: Callable[[], Chat],
        executor: Executor,
        *,
        concurrency: int,
        timeout: float,
        borrowed: bool = False,
    ) -> None:
        self._chat = chat
        self._executor = executor
        self._lanes = worker_count(executor)
        own = getattr(chat, "concurrency", None)
        self.concurrency = concurrency if own is None else min(concurrency, own * self._lanes)
        """More would wait for each other where each worker has a chat that takes few at a time."""
        self._calls = Calls(chat.name, opening, dict(chat.identity), timeout, borrowed=borrowed)
        self._errands: AsyncTasks[Sequence[Call], Said] | None = None
        self._ready: deque[tuple[Call, asyncio.Future[Reply]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._moment: asyncio.TimerHandle | None = None
        self._made, self._seconds = 0, 0.0
        self._notes: dict[str, None] = {}

    @property
    def name(self) -> str:
        """That of the chat."""
        return self._chat.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """That of the chat."""
        return self._chat.identity

    @property
    def notes(self) -> list[str]:
        """Those of the chats of all workers."""
        return list(self._notes)

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """The reply, from whichever worker it came."""
        if self._errands is None:
            self._errands = self._office()
        loop = asyncio.get_running_loop()
        said: asyncio.Future[Reply] = loop.create_future()
        self._ready.append((Call(messages, schema), said))
        if self._moment is None:
            self._moment = loop.call_later(MOMENT, self._give, self._errands)
        return await said

    async def close(self) -> None:
        """Take back what is under way, and close the chat where this process has it."""
        if self._moment is not None:
            self._moment.cancel()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._calls.close()

    def _office(self) -> AsyncTasks[Sequence[Call], Said]:
        """Who gives the calls out; an object that cannot travel has a name, as a rule, and a name can."""
        try:
            return AsyncTasks(self._executor, self._calls, idle=True)
        except BadInput as error:
            raise BadInput(
                f"the chat {self.name}: {error.message}",
                hint='name it, and each worker opens it for itself: chat="openai:MODEL@URL", with its options beside '
                "it; one of your own has to be at the top of a module; a ThreadPoolExecutor takes any",
            ) from None

    def _give(self, errands: AsyncTasks[Sequence[Call], Said]) -> None:
        """Give out what is ready, as far as there is room."""
        self._moment = None
        most = self._parts(errands)
        while self._ready and len(self._under_way) < most:
            part: list[tuple[Call, asyncio.Future[Reply]]] = []
            while self._ready and len(part) < math.ceil(self.concurrency / most):
                if not (one := self._ready.popleft())[1].done():  # nobody may wait for it any more
                    part.append(one)
            if part:
                task = asyncio.create_task(self._sent(errands, part))
                self._under_way.add(task)
                task.add_done_callback(partial(self._over, errands))

    def _parts(self, errands: AsyncTasks[Sequence[Call], Said]) -> int:
        """How many parts may be under way: many small ones where they make room for each other."""
        if not errands.make_room:
            return self._lanes
        most = math.inf if not self._made else self._seconds / self._made / HANDING
        return int(min(self.concurrency, max(self._lanes, most)))

    def _over(self, errands: AsyncTasks[Sequence[Call], Said], task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._ready and self._moment is None and not task.cancelled():
            self._give(errands)

    async def _sent(
        self, errands: AsyncTasks[Sequence[Call], Said], part: Sequence[tuple[Call, asyncio.Future[Reply]]]
    ) -> None:
        replies: Sequence[Reply | RagaugeError]
        try:
            found = await errands([call for call, _ in part])
        except RagaugeError as error:
            replies = [error] * len(part)
        except Exception as error:  # of the executor, and not of a call
            words = f"the executor cannot ask {self.name}: {type(error).__name__}: {error}"
            replies = [BackendFailed(words, final=True)] * len(part)
        else:
            replies = found.replies
            self._made += len(part)
            self._seconds += found.seconds
            self._notes |= dict.fromkeys(found.notes)
        for (_, said), reply in zip(part, replies, strict=True):
            if said.done():
                continue
            if isinstance(reply, RagaugeError):
                said.set_exception(reply)
            else:
                said.set_result(reply)


class Calls:
    """The work: calls that are made in whatever process this is, by a chat that is opened with the first of them."""

    def __init__(
        self,
        name: str,
        opening: Callable[[], Chat],
        identity: Mapping[str, Any],
        timeout: float,
        *,
        borrowed: bool = False,
    ) -> None:
        self._name = name
        self._borrowed = borrowed
        self._opening = opening
        self._identity = identity
        self._timeout = timeout
        self._room = LoopThread(self._seated, _Desk.close)

    def __reduce__(self) -> tuple[Any, ...]:  # a copy is nobody else's to close
        return Calls, (self._name, self._opening, self._identity, self._timeout)

    def __call__(self, calls: Sequence[Call]) -> Said:
        """Make all of these calls at once."""
        secede()
        return self._room.run(lambda desk: desk.said(calls))

    async def close(self) -> None:
        """Close the chat, where it is open."""
        await self._room.close()

    def _seated(self) -> _Desk:
        return _Desk(self._opened(), self._timeout, borrowed=self._borrowed)

    def _opened(self) -> Chat:
        """The chat as this process has it, which must be the one whose replies are kept."""
        try:
            chat = self._opening()
        except RagaugeError as error:
            raise self._closed_to(error) from None
        own = dict(chat.identity)
        other = next((name for name in (*self._identity, *own) if own.get(name) != self._identity.get(name)), None)
        if other is not None:
            raise BackendFailed(
                f"a worker opens another {self._name}: its {other} is {own.get(other)!r}, "
                f"not {self._identity.get(other)!r}",
                hint="the same files, packages and variables on every worker; openai:MODEL@URL says where",
                final=True,
            )
        try:
            getattr(chat, "ready", lambda: None)()
        except RagaugeError as error:
            raise self._closed_to(error) from None
        return chat

    def _closed_to(self, error: RagaugeError) -> BackendFailed:
        """What keeps a worker from asking; whatever it lacks may well be here."""
        hint = f"on every worker, before it starts: {error.hint}" if error.hint else None
        return BackendFailed(f"a worker cannot open {self._name}: {error.message}", hint=hint, final=True)


class _Desk:
    """A chat as one process has it, asked no more at a time than it takes."""

    def __init__(self, chat: Chat, timeout: float, *, borrowed: bool) -> None:
        self._chat = chat
        self._borrowed = borrowed
        self._timeout = timeout
        own = getattr(chat, "concurrency", None)
        self._place: AbstractAsyncContextManager[Any] = nullcontext() if own is None else asyncio.Semaphore(own)

    async def said(self, calls: Sequence[Call]) -> Said:
        """What the chat says to all of them."""
        found = await gather_or_cancel(self._one(call) for call in calls)
        notes = list(getattr(self._chat, "notes", ()))
        return Said([reply for reply, _ in found], sum(seconds for _, seconds in found), notes)

    async def _one(self, call: Call) -> tuple[Reply | RagaugeError, float]:
        reply: Reply | RagaugeError
        async with self._place:
            began = time.perf_counter()
            try:
                found = await attempt_request(self._chat, call.messages, call.schema, self._timeout)
                reply = found._replace(probabilities=dict(found.probabilities))  # which may not be one that travels
            except RagaugeError as error:
                reply = error
            return reply, time.perf_counter() - began

    async def close(self) -> None:
        """Close the chat, unless somebody else is to."""
        closing = None if self._borrowed else protocols.close_if_possible(self._chat)
        if inspect.isawaitable(closing):
            await closing
