"""Call endpoints with OpenAI's chat protocol: OpenAI, vLLM, Ollama, llama.cpp, LM Studio and others."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.hashes import hash_text
from ragauge.core.protocols import Message, Reply
from ragauge.core.secrets import register_fields
from ragauge.core.structured_text import parse_json
from ragauge.models.chats.openai_protocol import (
    RESPONSE_FORMATS,
    EndpointError,
    RequestFormat,
    parse_endpoint_error,
    wait_for_limit,
)
from ragauge.models.chats.reply_parsing import (
    compute_word_probabilities,
    enum_words,
    has_trailing_text,
    match_word,
    strip_thoughts,
)
from ragauge.models.http_client import find_failure
from ragauge.models.openai_client import OpenAIEndpoint

CHAT_EXAMPLE = "openai:MODEL@http://localhost:8000/v1"
MAX_FORMAT_REQUESTS = 12
"""Maximum number of requests per call while the accepted format is determined."""
MAX_REPLY_WAIT_S = 3600.0
"""Timeout of a reply in seconds; the caller usually sets a shorter one."""
MAX_TOKEN_COUNT = 10**12
"""Maximum plausible token count; larger values are ignored."""
FINISH_REASONS = {
    "stop": ("", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"),
    "length": ("length", "max_tokens", "model_length"),
    "content_filter": ("content_filter", "safety"),
    "tool": ("tool_calls", "tool_use", "function_call"),
}
"""Finish reason, and the names that endpoints use for it."""


@dataclass(frozen=True)
class SamplingSettings:
    """How a chat model samples a reply, and how structured replies are requested."""

    temperature: float | None = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    structured: str = "auto"

    def __post_init__(self) -> None:
        if self.structured not in ("auto", *RESPONSE_FORMATS):
            raise BadInput(f"structured is `{self.structured}`", hint=f"one of auto, {', '.join(RESPONSE_FORMATS)}")

    @property
    def formats(self) -> Sequence[str]:
        """Ways to request structured replies, in the order in which they are tried."""
        return RESPONSE_FORMATS if self.structured == "auto" else (self.structured,)


class OpenAIChat:
    """Chat model at `url`, at OPENAI_BASE_URL, or at OpenAI.

    The API key is read from the environment variable named by `key` and is neither shown nor written. An endpoint that
    is given by its address needs none. `structured` is the way to request structured replies: `auto` begins with
    `json_schema` and falls back to `json_object` and `plain` if the endpoint refuses or ignores it. `grammar` restricts
    one-word replies to the allowed words (llama.cpp only). `effort` is the reasoning effort. `extra` is added to every
    request.
    """

    asynchronous = True

    def __init__(
        self,
        model: str,
        *,
        url: str | None = None,
        sampling: SamplingSettings = SamplingSettings(),
        effort: str | None = None,
        grammar: bool = False,
        extra: Mapping[str, Any] | None = None,
        key: str = "OPENAI_API_KEY",
    ) -> None:
        self._endpoint = OpenAIEndpoint("the chat `openai`", url, key=key, example=CHAT_EXAMPLE)
        self._shown = self._endpoint.shown
        register_fields(extra or {})
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._model = model
        more = dict(extra or {})
        settings = {"temperature": sampling.temperature, "seed": sampling.seed, "reasoning_effort": effort}
        sent = {name: value for name, value in settings.items() if value is not None and name not in more}
        self._request_format = RequestFormat({**sent, **more}, sampling.max_tokens, sampling.formats, grammar=grammar)
        self.name = f"openai:{model}" + (f"@{self._shown}" if self._endpoint.is_given else "")
        self.identity: Mapping[str, Any] = {
            "chat": "openai",
            "endpoint": self._shown,
            "model": model,
            **sent,
            "max_tokens": sampling.max_tokens,
            "structured": sampling.structured,
            **({"grammar": True} if grammar else {}),
            **({"extra": {name: _hash_parameter(name, value) for name, value in more.items()}} if more else {}),
        }

    @property
    def local(self) -> bool:
        """Whether the endpoint is on this machine."""
        return self._endpoint.is_local

    @property
    def missing_key(self) -> str:
        """Environment variable of a required key that is missing; empty if none is."""
        return self._endpoint.missing_key

    def keyed(self, secret: str) -> Self:
        """Set the key directly instead of by a variable, and return this object."""
        self._endpoint.use_key(secret)
        return self

    @property
    def notes(self) -> list[str]:
        """Requested features that the endpoint does not support, as text."""
        return [f"{self.name}: {note}" for note in self._request_format.notes]

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Return the reply, with as many requests as needed to find a format.

        The tokens of requests in formats that the endpoint did not accept are added to it.
        """
        prompt = completion = 0
        for _ in range(MAX_FORMAT_REQUESTS):
            try:
                reply = await self.request(messages, schema)
            except BackendFailed as failure:
                failure.prompt_tokens = prompt = prompt + failure.prompt_tokens
                failure.completion_tokens = completion = completion + failure.completion_tokens
                if not failure.needs_other_format:
                    raise
                continue
            return reply._replace(
                prompt_tokens=reply.prompt_tokens + prompt, completion_tokens=reply.completion_tokens + completion
            )
        raise _with_token_counts(
            BackendFailed(f"{self._shown} accepts no request format"), Reply("", prompt, completion)
        )

    async def request(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Send one request and return the reply.

        Raise BackendFailed with `needs_other_format` if the next request has another format.
        """
        self.ready()
        words = enum_words(schema)
        reply_format = self._request_format.choose_format(words, schema)
        body = self._request_format.body(messages, schema, reply_format)
        payload: dict[str, Any] = {}
        headers: Mapping[str, str] = {}
        problem: EndpointError | BackendFailed | None
        try:
            # The SDK's typed methods are slower than the request itself, because they validate all types twice.
            response = await self._loop_client().post(
                "/chat/completions", cast_to=self._endpoint.http.Response, body={"model": self._model, **body}
            )
        except self._endpoint.sdk.OpenAIError as error:
            problem = self._parse_error(error)
        else:
            headers, (payload, problem) = response.headers, _parse_response(response)
        if isinstance(problem, BackendFailed):  # Outside of the handler: its context would show the request headers.
            raise problem from None
        if problem is not None:
            failure = problem.failure(self._shown)
            failure.needs_other_format = self._request_format.switch_after_refusal(problem, body, reply_format)
            raise failure
        reply = self._parse_reply(payload, headers, reply_format, words)
        if schema is not None and self._request_format.switch_after_reply(reply, body, reply_format, schema):
            failure = _with_token_counts(
                BackendFailed(f"{self._shown}: the reply does not have the requested format", needs_other_format=True),
                reply,
            )
            raise failure
        return reply

    def ready(self) -> None:
        """Raise BackendFailed if a required key is missing. Cost estimates need no key."""
        self._endpoint.check_key(f"openai:{self._model}@http://localhost:8000/v1")

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    def _parse_error(self, error: Exception) -> EndpointError | BackendFailed:
        """Describe an error of the SDK."""
        if isinstance(error, self._endpoint.sdk.APIStatusError):
            response = error.response
            return parse_endpoint_error(error.status_code, error.body, response.text, response.headers)
        cause = error.__cause__ or error
        described = EndpointError(None, f"{type(cause).__name__}: {cause}".removesuffix(": "))
        return find_failure(error) or described

    def _loop_client(self) -> Any:
        """Return the client of the running event loop: connections belong to one loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = self._endpoint.open_async_client(MAX_REPLY_WAIT_S)
            self._loop = loop
        return self._client

    def _parse_reply(
        self, payload: dict[str, Any], headers: Mapping[str, str], reply_format: str, words: list[str]
    ) -> Reply:
        choice = _as_mapping(payload["choices"][0])
        message = _as_mapping(choice.get("message"))
        text, finish = _parse_message(message, str(choice.get("finish_reason") or ""))
        chances: dict[str, float] = {}
        if words and finish in ("stop", "length"):
            chances = compute_word_probabilities(_as_mapping(choice.get("logprobs")).get("content"), words, text)
            word = match_word(text, words, chances)
            if word in words and has_trailing_text(text, word):
                finish = "stop"  # Only text after the word can be cut off.
            text, reply_format = word, "tokens" if chances else "plain"
        usage = _as_mapping(payload.get("usage"))
        details = _as_mapping(usage.get("prompt_tokens_details"))
        return Reply(
            text,
            prompt_tokens=_parse_token_count(usage.get("prompt_tokens")),
            completion_tokens=_parse_token_count(usage.get("completion_tokens")),
            cached_tokens=_parse_token_count(details.get("cached_tokens"))
            or _parse_token_count(usage.get("prompt_cache_hit_tokens")),
            finish=finish,
            model=str(payload.get("model") or ""),
            probabilities=chances,
            how=reply_format,
            hold=wait_for_limit(headers),
        )


def _parse_response(response: Any) -> tuple[dict[str, Any], EndpointError | None]:
    """Return the JSON object of a response, and what is wrong with it."""
    try:
        payload = parse_json(response.content, unique_keys=False)
    except ValueError:
        text = response.text
        is_page = text.lstrip().startswith("<")
        message = f"{'a page' if is_page else 'no whole JSON'}: {text[:200]!r}"
        return {}, EndpointError(200 if is_page else None, message)
    if not isinstance(payload, dict) or not isinstance(payload.get("choices"), list) or not payload["choices"]:
        body_of = payload if isinstance(payload, dict) else {}
        inner = body_of.get("error")
        code = inner.get("code") if isinstance(inner, dict) else None
        status = code if isinstance(code, int) and code >= 400 else 200
        return {}, parse_endpoint_error(status, payload, response.text, response.headers)
    return payload, None


def _parse_message(message: Mapping[str, Any], end: str) -> tuple[str, str]:
    """Return text and finish reason of a message, including refusals and tool calls."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    if message.get("refusal"):
        return str(message["refusal"]), "refusal"
    if called := message.get("tool_calls") or message.get("function_call"):
        return text or json.dumps(called, ensure_ascii=False), "tool"
    finish = next((name for name, reasons in FINISH_REASONS.items() if end.lower() in reasons), end)
    after = strip_thoughts(text)
    return after if after == text else after.strip(), finish


def _with_token_counts(failure: BackendFailed, spent: Reply) -> BackendFailed:
    failure.prompt_tokens, failure.completion_tokens = spent.prompt_tokens, spent.completion_tokens
    return failure


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _parse_token_count(value: Any) -> int:
    """Parse a token count of any type; 0 if it is invalid."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(number) if math.isfinite(number) and 0 <= number <= MAX_TOKEN_COUNT else 0


def _hash_parameter(name: str, value: Any) -> str:
    """Hash a parameter for the identity, because its value may be secret."""
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        raise BadInput(f"`{name}` of the option `extra` must be a JSON value") from None
    return hash_text(text, 16)
