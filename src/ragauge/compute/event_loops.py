"""Event loops: run coroutines from synchronous code and in background threads, and gather their results."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


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


class LoopThread:
    """Event loop in a daemon thread, for an asynchronous client that synchronous code uses.

    `closing` closes the client. It runs in the loop before the loop ends, which is when this object is closed or
    collected.
    """

    def __init__(self, closing: Callable[[], Awaitable[None]]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="ragauge-loop", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end_loop, self._loop, closing)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; it is cancelled if the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the client and end the loop."""
        self._end()
        self._thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end_loop(loop: asyncio.AbstractEventLoop, closing: Callable[[], Awaitable[None]]) -> None:
    """Schedule the end of a loop without waiting for it: the garbage collector may run in the loop's own thread."""

    async def end() -> None:
        with contextlib.suppress(Exception):
            await closing()
        loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)


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


async def map_async(items: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Run `work` on every item, at most `workers` at a time."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    await gather_or_cancel(worker() for _ in range(min(workers, len(items))))
