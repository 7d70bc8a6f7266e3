"""Recorded and scripted chat models: replies without cost or network."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.core.errors import BackendFailed, BadInput, error_summary
from ragauge.core.hashes import hash_file, hash_text
from ragauge.core.protocols import Chat, Message, Reply
from ragauge.core.structured_text import parse_json
from ragauge.models.chats.calls import AdaptedChat

DATA_TAG = re.compile(r"data-[0-9a-f]{16}")
"""Tag around data in a prompt; it is random for each call."""
MAX_MESSAGE_CHARS_SHOWN = 200


def hash_request(messages: Sequence[Message], schema: Mapping[str, Any] | None) -> str:
    """Return the hash of messages and schema, regardless of the random data tags."""
    text = json.dumps([[dict(message) for message in messages], schema], ensure_ascii=False, sort_keys=True)
    names: dict[str, str] = {}
    plain = DATA_TAG.sub(lambda tag: names.setdefault(tag[0], f"data-{len(names)}"), text)
    return hash_text(plain)


class Replay:
    """Chat model that replies from a file written by `Recording`.

    If a request was recorded several times, its replies are returned in order; the last one is repeated.
    """

    def __init__(self, path: str) -> None:
        file = Path(path)
        if not file.is_file():
            raise BadInput("no such file", file=path, hint="record it with Recording(chat, path)")
        raw = file.read_bytes()
        self._replies: dict[str, list[Reply]] = defaultdict(list)
        self._next: dict[str, int] = defaultdict(int)
        self._file = file.name
        recorded_identity: Any = None
        for number, line in enumerate(raw.decode("utf-8", errors="replace").split("\n"), 1):
            if not line.strip():
                continue
            try:
                row = parse_json(line)
                if "identity" in row:
                    recorded_identity = row["identity"]
                    continue
                reply = Reply(**row["reply"])
                self._replies[hash_request(row["messages"], row["schema"])].append(reply)
            except (ValueError, TypeError, KeyError) as error:
                message = f"not a recorded reply ({error_summary(error, with_class=True)})"
                raise BadInput(message, file=path, line=number) from None
        self.name = f"replay:{file.name}"
        self.identity: Mapping[str, Any] = {
            "chat": "replay",
            "file": file.name,
            "sha256": hash_file(file),
            "of": recorded_identity,
        }

    def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the recorded reply; raise BackendFailed if there is none."""
        request_hash = hash_request(messages, schema)
        replies = self._replies.get(request_hash)
        if not replies:
            shown_request = " ".join(str(messages[-1].get("content", "")).split()) if messages else ""
            shown_request = (
                shown_request
                if len(shown_request) <= MAX_MESSAGE_CHARS_SHOWN
                else f"{shown_request[:MAX_MESSAGE_CHARS_SHOWN]}…"
            )
            raise BackendFailed(
                f"{self._file} has no recorded reply to: {shown_request}",
                hint="record it again: the rubrics or the data have changed",
            )
        position = self._next[request_hash]
        self._next[request_hash] = position + 1
        return replies[min(position, len(replies) - 1)]


class Recording:
    """Chat model that also writes its replies to a file, for `Replay`.

    Failed requests and API keys are not written.
    """

    asynchronous = True

    def __init__(self, chat: Chat, path: str | Path) -> None:
        self._chat = AdaptedChat(chat)
        self._path = Path(path)

    @property
    def name(self) -> str:
        """Name of the chat model."""
        return self._chat.name

    @property
    def identity(self) -> Mapping[str, Any]:
        """Identity of the chat model."""
        return self._chat.chat.identity

    @property
    def notes(self) -> Sequence[str]:
        """Notes of the chat model."""
        return self._chat.notes

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the chat's reply and write it to the file."""
        return self._record_reply(messages, schema, await self._chat.complete(messages, schema))

    async def request(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the reply to one request and write it to the file."""
        return self._record_reply(messages, schema, await self._chat.request(messages, schema))

    def _record_reply(self, messages: Sequence[Message], schema: Mapping[str, Any] | None, reply: Reply) -> Reply:
        fields = {**reply._asdict(), "probabilities": dict(reply.probabilities)}
        self._append_row({"messages": [dict(message) for message in messages], "schema": schema, "reply": fields})
        return reply

    async def close(self) -> None:
        """Close the chat model."""
        await self._chat.close()

    def _append_row(self, row: Mapping[str, Any]) -> None:
        rows = [row]
        if not self._path.exists() or not self._path.stat().st_size:
            rows = [{"chat": self.name, "identity": dict(self.identity)}, row]
        # Open the file for each row, because close() may never be called.
        with self._path.open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in rows)


ScriptedReply = str | Reply | Exception
"""Reply, or exception to raise."""
ReplyScript = Iterable[ScriptedReply] | Callable[[Sequence[Message], Mapping[str, Any] | None], ScriptedReply]


class ScriptedChat:
    """Chat model that replies from a list in order, or by a function of messages and schema.

    `asked` lists all calls.

    >>> chat = ScriptedChat(["yes", "no"])
    >>> chat.complete([{"role": "user", "content": "Is it?"}]).text
    'yes'
    >>> chat.asked[0][0][0]["content"]
    'Is it?'
    """

    def __init__(self, script: ReplyScript, *, name: str = "scripted") -> None:
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
                raise BackendFailed(f"the script lacks reply number {len(self.asked)}") from None
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, Reply) else Reply(line)
