"""Where things are asked that belong to one event loop: connections, locks and queues work in no other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from ragauge.errors import BackendFailed

T = TypeVar("T")
R = TypeVar("R")

IDLE = 60.0
"""Seconds without work after which a room is closed: nobody can tell another process which work was the last."""

ENDINGS = (SystemExit, KeyboardInterrupt)
"""What ends a loop; work that raises it in a thread is not the one to say so."""


class _Opened(NamedTuple, Generic[T]):
    thing: T
    loop: asyncio.AbstractEventLoop
    end: Callable[[], None]
    """Ends the loop, from within."""


class Room(Generic[T]):
    """A thing that is opened with the first work on it, and an event loop in a thread of its own for all such work.

    It is closed by `close`, or when there was no work for long, and opened again where there is some after all.
    A copy in another process has a thing and a loop of its own.
    """

    def __init__(self, opening: Callable[[], T], closing: Callable[[T], Awaitable[None]] | None = None) -> None:
        self._opening = opening
        self._closing = closing
        self._lock = threading.Lock()
        self._open: _Opened[T] | None = None
        self._busy = 0
        self._last = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return Room, (self._opening, self._closing)

    def run(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """What comes of work on the thing; for any thread but that of the room."""
        with self._lock:
            if self._open is None:
                self._open = _Opened(self._opening(), *_loop())
                asyncio.run_coroutine_threadsafe(self._until_idle(self._open), self._open.loop)
            thing, loop, _ = self._open
            self._busy += 1
            # Before anybody can close the room: what is under way then is given up, and not waited for forever.
            coming = asyncio.run_coroutine_threadsafe(work(thing), loop)
        try:
            failure = coming.exception()
            if isinstance(failure, ENDINGS):
                raise BackendFailed(f"what was asked ended: {type(failure).__name__}: {failure}", final=True) from None
            return coming.result()
        finally:
            with self._lock:
                self._busy -= 1
                self._last = time.monotonic()

    async def close(self) -> None:
        """Give up what is under way, close the thing where it is open, and end the thread."""
        with self._lock:
            opened, self._open = self._open, None
        if opened is not None:
            await asyncio.shield(asyncio.wrap_future(self._emptied(opened)))

    async def _until_idle(self, opened: _Opened[T]) -> None:
        """Wait until there was no work for long."""
        while True:
            await asyncio.sleep(IDLE / 4)
            with self._lock:
                if self._open is not opened:
                    return
                if not self._busy and time.monotonic() - self._last > IDLE:
                    self._open = None
                    break
        self._emptied(opened)

    def _emptied(self, opened: _Opened[T]) -> Future[None]:
        thing, loop, end = opened
        coming = asyncio.run_coroutine_threadsafe(self._over(thing), loop)
        coming.add_done_callback(lambda _: loop.call_soon_threadsafe(end))
        return coming

    async def _over(self, thing: T) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._closing is not None:
            await self._closing(thing)


def _loop() -> tuple[asyncio.AbstractEventLoop, Callable[[], None]]:
    """An event loop that runs in a thread of its own, and what ends it, to be called in it."""
    loop, ended = asyncio.new_event_loop(), threading.Event()

    def live() -> None:
        # What ends a loop is told where the work is waited for, once the loop goes on; a stop that comes together with
        # it the loop would forget.
        while not ended.is_set():
            with suppress(*ENDINGS):
                loop.run_forever()
        loop.close()

    def end() -> None:
        ended.set()
        loop.stop()

    threading.Thread(target=live, daemon=True, name="ragauge-room").start()
    return loop, end
