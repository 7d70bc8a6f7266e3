"""Await blocking calls by running each in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_a_thread(function: Callable[..., Any], *arguments: Any) -> Any:
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
