"""Provide a chat model with scripted replies, for tests and examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragauge.errors import BackendFailed
from ragauge.seams import Message
from ragauge.verdicts import Reply

Line = str | Reply | Exception
"""Reply, or exception to raise."""
Script = Iterable[Line] | Callable[[Sequence[Message], Mapping[str, Any] | None], Line]


class Scripted:
    """Chat model that replies from a list in order, or by a function of messages and schema.

    `asked` lists all calls.

    >>> chat = Scripted(["yes", "no"])
    >>> chat.complete([{"role": "user", "content": "Is it?"}]).text
    'yes'
    >>> chat.asked[0][0][0]["content"]
    'Is it?'
    """

    stays = True

    def __init__(self, script: Script, *, name: str = "scripted") -> None:
        self.name = name
        self.identity: Mapping[str, Any] = {"chat": "scripted", "name": name}
        self.asked: list[tuple[Sequence[Message], Mapping[str, Any] | None]] = []
        """Messages and schema of every call."""
        self._answer = script if callable(script) else None
        self._lines = iter(()) if callable(script) else iter(script)

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the next scripted reply, or raise it if it is an exception."""
        self.asked.append((messages, schema))
        if self._answer is not None:
            line = self._answer(messages, schema)
        else:
            try:
                line = next(self._lines)
            except StopIteration:
                raise BackendFailed(f"the script has no reply number {len(self.asked)}") from None
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else Reply(line)
