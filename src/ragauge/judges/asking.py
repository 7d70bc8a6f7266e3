"""Asking a chat once, and no longer than it may take; one that is not async must not hold up the loop."""

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
"""Characters of what a chat of somebody's own says when it fails."""


def is_async(chat: Any) -> bool:
    """Whether what a chat's `complete` gives must be awaited."""
    return bool(getattr(chat, "asynchronous", False)) or inspect.iscoroutinefunction(chat.complete)


async def ask(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
    """Return the reply to one request.

    `complete` of some chats makes several requests, to find the format that an endpoint accepts. These have `request`
    too, which makes one and raises BackendFailed with `adapted` if another is needed: limits count requests.
    """
    return await _call(chat, getattr(chat, "request", chat.complete), messages, schema)


async def ask_until_adapted(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
    """Return the reply of a chat, with as many requests as it makes."""
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
    """What a chat replies within so many seconds; whatever it fails with is BackendFailed, in its own words."""
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
    except Exception as error:  # whatever a chat of somebody's own raises
        words = redact(" ".join(f"{type(error).__name__}: {error}".split()))[:LONGEST_WORDS]
        failure = BackendFailed(words, passing=isinstance(error, OSError))
    raise failure
