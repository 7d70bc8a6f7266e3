"""Send requests to a chat model, with a timeout and without blocking the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge.errors import BackendFailed, RagaugeError
from ragauge.keys import redact, redact_data
from ragauge.seams import Chat, Message
from ragauge.threads import in_a_thread
from ragauge.verdicts import Reply

LONGEST_WORDS = 500
"""Maximum number of characters of an error message of a user-supplied chat model."""


def is_async(chat: Any) -> bool:
    """Return whether the result of the chat model's `complete` must be awaited."""
    return bool(getattr(chat, "asynchronous", False)) or inspect.iscoroutinefunction(chat.complete)


async def ask(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
    """Send one request and return the reply.

    `complete` of some chat models makes several requests, to find the format that an endpoint accepts. They also have
    `request`, which makes one request and raises BackendFailed with `adapted` if another one is needed. It is used if
    available, because limits count requests.
    """
    return await _call(chat, getattr(chat, "request", chat.complete), messages, schema)


async def ask_until_adapted(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
    """Return the reply of `complete`, which may make several requests."""
    return await _call(chat, chat.complete, messages, schema)


async def _call(
    chat: Chat, call: Callable[..., Any], messages: Sequence[Message], schema: Mapping[str, Any] | None
) -> Reply:
    found = call(messages, schema) if is_async(chat) else await in_a_thread(call, messages, schema)
    reply = await found if inspect.isawaitable(found) else found
    if not isinstance(reply, Reply):
        raise BackendFailed(f"the chat `{chat.name}` gave a {type(reply).__name__}, not a Reply")
    return reply._replace(
        text=redact_data(reply.text), finish=redact_data(reply.finish), model=redact_data(reply.model)
    )


async def attempt(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None, limit: float) -> Reply:
    """Send one request and wait at most `limit` seconds for the reply.

    Any error of the chat model is raised as BackendFailed, with the original message.
    """
    scope = asyncio.timeout(limit)
    try:
        async with scope:
            return await ask(chat, messages, schema)
    except RagaugeError:
        raise
    except TimeoutError as error:
        words = f"no reply within {limit:.3g} s" if scope.expired() else f"TimeoutError: {error}"
        failure = BackendFailed(words, passing=True)
        failure.unanswered = True
    except Exception as error:  # A user-supplied chat model may raise any exception.
        words = redact(" ".join(f"{type(error).__name__}: {error}".split()))[:LONGEST_WORDS]
        failure = BackendFailed(words, passing=isinstance(error, OSError))
    raise failure
