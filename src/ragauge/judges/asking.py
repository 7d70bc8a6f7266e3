"""Asking a chat once, whether it is async or not: one that is not must not hold up the loop."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.errors import BackendFailed
from ragauge.seams import Chat, Message
from ragauge.threads import in_a_thread
from ragauge.verdicts import Reply


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
