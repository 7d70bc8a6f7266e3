"""A chat whose calls are made by the workers of an executor; whatever is decided about them is decided here.

Handing a part to a cluster takes milliseconds, and a worker has few threads. So calls that are ready go together, and a
worker makes all of them at once. Parts that only wait make room on a cluster, and there are many small ones there;
elsewhere one part at a time is on each lane, and comes back with the last of its calls.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from ragauge import seams
from ragauge.errors import BackendFailed, RagaugeError
from ragauge.executors import Errands, lanes, stand_aside
from ragauge.judges.asking import attempt
from ragauge.seams import Chat, Message
from ragauge.together import together
from ragauge.verdicts import Reply

MOMENT = 0.002
"""Seconds: calls that come within a moment go together."""
HANDING = 0.03
"""Seconds that a part of a cluster is to be worth: with the quickest chats there are thirty parts a second."""
IDLE = 60.0
"""Seconds without a call after which a worker closes its chat: nobody can tell it that the last one was made."""


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
        self._lanes = lanes(executor)
        own = getattr(chat, "concurrency", None)
        self.concurrency = concurrency if own is None else min(concurrency, own * self._lanes)
        """More would wait for each other where each worker has a chat that takes few at a time."""
        self._calls = Calls(chat.name, opening, dict(chat.identity), timeout, borrowed=borrowed)
        self._errands: Errands[Sequence[Call], Said] | None = None
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
            self._errands = Errands(self._executor, self._calls, idle=True)
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

    def _give(self, errands: Errands[Sequence[Call], Said]) -> None:
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

    def _parts(self, errands: Errands[Sequence[Call], Said]) -> int:
        """How many parts may be under way: many small ones where they make room for each other."""
        if not errands.make_room:
            return self._lanes
        most = math.inf if not self._made else self._seconds / self._made / HANDING
        return int(min(self.concurrency, max(self._lanes, most)))

    def _over(self, errands: Errands[Sequence[Call], Said], task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if self._ready and self._moment is None and not task.cancelled():
            self._give(errands)

    async def _sent(
        self, errands: Errands[Sequence[Call], Said], part: Sequence[tuple[Call, asyncio.Future[Reply]]]
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
        self._lock = threading.Lock()
        self._room: _Room | None = None
        self._busy = 0
        self._last = 0.0

    def __reduce__(self) -> tuple[Any, ...]:  # a copy is nobody else's to close
        return Calls, (self._name, self._opening, self._identity, self._timeout)

    def __call__(self, calls: Sequence[Call]) -> Said:
        """Make all of these calls at once."""
        stand_aside()
        with self._lock:
            if self._room is None:
                self._room = _Room(self._opened(), self._timeout, borrowed=self._borrowed)
                self._room.start(self._until_idle(self._room))
            self._busy += 1
            room = self._room
        try:
            said: Said = room.run(room.said(calls))
            return said
        finally:
            with self._lock:
                self._busy -= 1
                self._last = time.monotonic()

    async def close(self) -> None:
        """Close the chat, where it is open."""
        with self._lock:
            room, self._room = self._room, None
        if room is not None:
            await asyncio.to_thread(room.run, room.close())
            room.end()

    def _opened(self) -> Chat:
        """The chat as this process has it, which must be the one whose replies are kept."""
        try:
            chat = self._opening()
        except RagaugeError as error:
            raise BackendFailed(
                f"a worker cannot open {self._name}: {error.message}", hint=error.hint, final=True
            ) from None
        own = dict(chat.identity)
        other = next((name for name in (*self._identity, *own) if own.get(name) != self._identity.get(name)), None)
        if other is not None:
            raise BackendFailed(
                f"a worker opens another {self._name}: its {other} is {own.get(other)!r}, "
                f"not {self._identity.get(other)!r}",
                hint="the same files, packages and variables on every worker; openai:MODEL@URL says where",
                final=True,
            )
        return chat

    async def _until_idle(self, room: _Room) -> None:
        """Wait until nobody has asked for long, and close the chat."""
        while True:
            await asyncio.sleep(IDLE / 4)
            with self._lock:
                if self._room is not room:
                    return
                if not self._busy and time.monotonic() - self._last > IDLE:
                    self._room = None
                    break
        await room.close()
        room.end()


class _Room:
    """A chat, and an event loop in a thread of its own: connections belong to the loop that they were made in."""

    def __init__(self, chat: Chat, timeout: float, *, borrowed: bool) -> None:
        self._chat = chat
        self._borrowed = borrowed
        self._timeout = timeout
        own = getattr(chat, "concurrency", None)
        self._place: AbstractAsyncContextManager[Any] = nullcontext() if own is None else asyncio.Semaphore(own)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._live, daemon=True, name="ragauge-chat").start()

    def _live(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin with what nobody waits for."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What comes of it; for any thread but its own."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def said(self, calls: Sequence[Call]) -> Said:
        """What the chat says to all of them."""
        found = await together(self._one(call) for call in calls)
        notes = list(getattr(self._chat, "notes", ()))
        return Said([reply for reply, _ in found], sum(seconds for _, seconds in found), notes)

    async def _one(self, call: Call) -> tuple[Reply | RagaugeError, float]:
        reply: Reply | RagaugeError
        async with self._place:
            began = time.perf_counter()
            try:
                found = await attempt(self._chat, call.messages, call.schema, self._timeout)
                reply = found._replace(probabilities=dict(found.probabilities))  # which may not be one that travels
            except RagaugeError as error:
                reply = error
            return reply, time.perf_counter() - began

    async def close(self) -> None:
        """Give up what is under way, and close the chat."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        closing = None if self._borrowed else seams.close(self._chat)
        if inspect.isawaitable(closing):
            await closing

    def end(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
