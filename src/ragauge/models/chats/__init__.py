"""Open chat models by name: `openai:MODEL@URL`, `local:FILE.gguf`, `local:smollm2`, `replay:FILE`, or a plug-in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragauge.core import plugins
from ragauge.core.errors import BadInput, UnknownName, add_suggestion, suggest_name
from ragauge.core.plugin_parameters import read_parameters
from ragauge.core.protocols import Chat
from ragauge.core.secrets import redact_url

CHAT_NAME = re.compile(r"(?P<kind>[\w-]+)(?::(?P<what>.*))?", re.S)
CHAT_NAME_EXAMPLES = "openai:MODEL@URL, openai:MODEL, local:FILE.gguf, local:smollm2, replay:FILE"

OTHER_PROVIDERS = frozenset({"anthropic", "azure", "bedrock", "cohere", "gemini", "google", "mistral", "vertex"})
"""Names before a colon that are services, not part of a model name such as `qwen3:8b`."""


def open_chat(text: str, options: Mapping[str, Any] | None = None) -> Chat:
    """Open the chat model of a name; options are keyword arguments of its constructor.

    >>> open_chat("openai:llama3@http://localhost:11434/v1", {"seed": 1}).name
    'openai:llama3@http://localhost:11434/v1'
    """
    match = CHAT_NAME.fullmatch(text.strip())
    if match is None:
        raise BadInput(
            f"unknown chat `{redact_chat_name(text)}`",
            hint=add_suggestion(_suggest_chat_name(text), f"choose one of lexical, {CHAT_NAME_EXAMPLES}"),
        )
    kind, model_or_file = match["kind"], match["what"] or ""
    if kind not in (named := plugins.plugin_names("chats")):
        named = ["lexical", *named]
        choices = f"choose one of {', '.join(named)}"
        hint = choices if suggest_name(kind, named) else add_suggestion(_suggest_chat_name(text), choices)
        raise UnknownName("chat", kind, named, hint=hint)
    factory = plugins.load_plugin("chats", kind)
    arguments = dict(options or {})
    model, at, url = _split_at_url(model_or_file)
    if kind == "openai" and at:
        model_or_file, arguments["url"] = model, url
    if not model_or_file:
        raise BadInput(f"`{redact_chat_name(text)}` lacks the model or file", hint=CHAT_NAME_EXAMPLES)
    parameters = read_parameters(factory)
    first, *names = parameters.options  # The first parameter is the model or file.
    for name in arguments:
        if name not in names and not parameters.accepts_any:
            suggestion = suggest_name(name, names)
            hint = f"did you mean `{suggestion}`?" if suggestion else f"choose one of {', '.join(names) or 'none'}"
            raise BadInput(f"the chat `{kind}` has no option `{name}`", hint=hint)
    chat: Chat = parameters.call({first: model_or_file, **arguments})
    return chat


def redact_chat_name(text: str) -> str:
    """Remove the credentials from the URL in a chat name.

    >>> redact_chat_name("openai:m@http://me:secret@host/v1")
    'openai:m@http://host/v1'
    """
    before, at, url = _split_at_url(text)
    return f"{before}{at}{redact_url(url)}" if at else text


def _suggest_chat_name(text: str) -> str:
    """Suggest a chat name for a model name or URL; empty if it is neither.

    >>> _suggest_chat_name("gpt-4o-mini"), _suggest_chat_name("http://localhost:8000/v1")
    ('openai:gpt-4o-mini', 'openai:MODEL@http://localhost:8000/v1')
    >>> _suggest_chat_name("anthropic:claude")
    ''
    """
    bare = text.strip()
    if bare.partition(":")[0] in OTHER_PROVIDERS:
        return ""
    url = re.match(r"https?://", bare)
    if not bare or (not url and re.search(r"\s", bare)):
        return ""
    return f"openai:{f'MODEL@{redact_url(bare)}' if url else redact_chat_name(bare)}"


def _split_at_url(text: str) -> tuple[str, str, str]:
    """Split a chat name at the `@` before its URL; model names may contain an `@` too."""
    separator = re.search(r"@(?=\w+://)", text)
    separator = separator or (re.search(r"@(?=[^@]*[:/][^@]*$)", text) if text else None)
    return (text[: separator.start()], "@", text[separator.end() :]) if separator else (text, "", "")
