"""Asking a chat once, whether it is async or not: one that is not must not hold up the loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge.errors import BackendFailed
from ragauge.seams import Chat, Message
from ragauge.verdicts import Reply


def is_async(chat: Any) -> bool:
    """Whether what a chat's `complete` gives must be awaited."""
    return bool(getattr(chat, "asynchronous", False)) or inspect.iscoroutinefunction(chat.complete)


async def ask(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
    """What a chat replies."""
    if is_async(chat):
        found: Any = chat.complete(messages, schema)
    else:
        found = await _in_a_thread(chat.complete, messages, schema)
    reply = await found if inspect.isawaitable(found) else found
    if not isinstance(reply, Reply):
        raise BackendFailed(f"the chat `{chat.name}` gave a {type(reply).__name__}, not a Reply")
    return reply


async def _in_a_thread(function: Callable[..., Any], *arguments: Any) -> Any:
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

    threading.Thread(target=call, daemon=True, name="ragauge-chat").start()
    return await future
