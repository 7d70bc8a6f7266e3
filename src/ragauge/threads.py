"""Waiting for what cannot be awaited: a call in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def in_a_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call in a thread of its own: in the loop's few, calls that hang would keep others from ever beginning."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def done(result: Any, error: Exception | None) -> None:
        if future.done():  # nobody waits any more for one that was given up
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
        except Exception as error:  # raised again where it is waited for
            failure = error
        except BaseException as error:  # what would end a thread must not end the loop
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        if isinstance(failure, StopIteration):  # a future refuses to hold one
            failure = RuntimeError(f"StopIteration: {failure}")
        with contextlib.suppress(RuntimeError):  # the loop may be gone by then
            loop.call_soon_threadsafe(done, result, failure)

    threading.Thread(target=call, daemon=True, name="ragauge-call").start()
    return await future
