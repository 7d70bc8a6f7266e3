"""Asking a chat once, and no longer than it may take; one that is not async must not hold up the loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.errors import BackendFailed, RagaugeError
from ragauge.seams import Chat, Message
from ragauge.threads import in_a_thread
from ragauge.verdicts import Reply

LONGEST_WORDS = 500
"""Characters of what a chat of somebody's own says when it fails."""


def is_async(chat: Any) -> bool:
    """Whether what a chat's `complete` gives must be awaited."""
    return bool(getattr(chat, "asynchronous", False)) or inspect.iscoroutinefunction(chat.complete)


async def ask(chat: Chat, messages: Sequence[Message], schema: Mapping[str, Any] | None) -> Reply:
    """What a chat replies."""
    if is_async(chat):
        found: Any = chat.complete(messages, schema)
    else:
        found = await in_a_thread(chat.complete, messages, schema)
    reply = await found if inspect.isawaitable(found) else found
    if not isinstance(reply, Reply):
        raise BackendFailed(f"the chat `{chat.name}` gave a {type(reply).__name__}, not a Reply")
    return reply


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
    except Exception as error:  # whatever a chat of somebody's own raises
        words = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_WORDS]
        failure = BackendFailed(words, passing=isinstance(error, OSError))
    raise failure
