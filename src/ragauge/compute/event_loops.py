"""Event loops: run coroutines from synchronous code and in background threads, and gather their results."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from ragauge.core.errors import BackendFailed

T = TypeVar("T")
R = TypeVar("R")

IDLE_TIMEOUT_S = 60.0
"""Seconds without work after which a loop is closed; a worker process is not told which task is the last."""

LOOP_ENDING_ERRORS = (SystemExit, KeyboardInterrupt)
"""Exceptions that end an event loop; they are suppressed in its thread and reported to the caller."""


class _OpenLoop(NamedTuple, Generic[T]):
    thing: T
    loop: asyncio.AbstractEventLoop
    end: Callable[[], None]
    """Ends the loop; call it in the loop."""


class LoopThread(Generic[T]):
    """A resource opened on first use, and an event loop in its own thread for all work on it.

    Connections, locks and queues belong to one event loop. The resource is closed by `close` or after some time
    without work, and opened again on the next use. A pickled copy opens its own resource and loop.
    """

    def __init__(self, opening: Callable[[], T], closing: Callable[[T], Awaitable[None]] | None = None) -> None:
        self._opening = opening
        self._closing = closing
        self._lock = threading.Lock()
        self._open: _OpenLoop[T] | None = None
        self._busy = 0
        self._last = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return LoopThread, (self._opening, self._closing)

    def run(self, work: Callable[[T], Coroutine[Any, Any, R]]) -> R:
        """Run work on the resource and return its result; call from any other thread."""
        with self._lock:
            if self._open is None:
                self._open = _OpenLoop(self._opening(), *_start_loop_thread())
                asyncio.run_coroutine_threadsafe(self._close_when_idle(self._open), self._open.loop)
            thing, loop, _ = self._open
            self._busy += 1
            # Schedule while holding the lock, so that close() cancels this task instead of leaving it pending.
            coming = asyncio.run_coroutine_threadsafe(work(thing), loop)
        try:
            failure = coming.exception()
            if isinstance(failure, LOOP_ENDING_ERRORS):
                raise BackendFailed(f"what was asked ended: {type(failure).__name__}: {failure}", final=True) from None
            return coming.result()
        finally:
            with self._lock:
                self._busy -= 1
                self._last = time.monotonic()

    async def close(self) -> None:
        """Cancel running tasks, close the resource if it is open, and end the thread."""
        with self._lock:
            opened, self._open = self._open, None
        if opened is not None:
            await asyncio.shield(asyncio.wrap_future(self._stop_loop(opened)))

    async def _close_when_idle(self, opened: _OpenLoop[T]) -> None:
        """Close the resource after IDLE_TIMEOUT_S seconds without work."""
        while True:
            await asyncio.sleep(IDLE_TIMEOUT_S / 4)
            with self._lock:
                if self._open is not opened:
                    return
                if not self._busy and time.monotonic() - self._last > IDLE_TIMEOUT_S:
                    self._open = None
                    break
        self._stop_loop(opened)

    def _stop_loop(self, opened: _OpenLoop[T]) -> Future[None]:
        thing, loop, end = opened
        coming = asyncio.run_coroutine_threadsafe(self._cancel_and_close(thing), loop)
        coming.add_done_callback(lambda _: loop.call_soon_threadsafe(end))
        return coming

    async def _cancel_and_close(self, thing: T) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._closing is not None:
            await self._closing(thing)


def _start_loop_thread() -> tuple[asyncio.AbstractEventLoop, Callable[[], None]]:
    """Start an event loop in its own thread; return it and a function that ends it.

    Call the function in the loop.
    """
    loop, ended = asyncio.new_event_loop(), threading.Event()

    def live() -> None:
        # Such an exception is reported to the caller once the loop runs again. The loop would lose a stop that comes at
        # the same time, so it is checked separately.
        while not ended.is_set():
            with suppress(*LOOP_ENDING_ERRORS):
                loop.run_forever()
        loop.close()

    def end() -> None:
        ended.set()
        loop.stop()

    threading.Thread(target=live, daemon=True, name="ragauge-room").start()
    return loop, end


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; inside a running loop (a notebook), in a new thread."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run_task(loop, task)
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(_run_task(loop, task))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="ragauge-loop", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return result[0]


def _run_task(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """Run a task to its end like asyncio.run, but react to Ctrl-C at once.

    asyncio.run would wait until the system is built, because building awaits nothing.
    """
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():  # Waiting for a task that Ctrl-C has ended would never return.
            task.cancel()
            with contextlib.suppress(BaseException):
                loop.run_until_complete(task)
        raise
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a blocking call in its own thread and await its result.

    In the loop's thread pool, calls that hang would block others.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def done(result: Any, error: Exception | None) -> None:
        if future.done():  # cancelled: the result is not needed any more
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def call() -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = context.run(function, *arguments)
        except Exception as error:  # raised again in the awaiting task
            failure = error
        except BaseException as error:  # what would end a thread must not end the loop
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        if isinstance(failure, StopIteration):  # a future cannot store it
            failure = RuntimeError(f"StopIteration: {failure}")
        with contextlib.suppress(RuntimeError):  # the loop may be closed by then
            loop.call_soon_threadsafe(done, result, failure)

    threading.Thread(target=call, daemon=True, name="ragauge-call").start()
    return await future


async def gather_or_cancel(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results in input order.

    The first exception cancels the rest and is re-raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def map_async(things: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Run `work` on every item, at most `workers` at a time."""
    left = iter(things)

    async def worker() -> None:
        for one in left:
            await work(one)

    await gather_or_cancel(worker() for _ in range(min(workers, len(things))))
