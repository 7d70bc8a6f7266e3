"""OpenAI's protocol: request formats, errors and rate limits of an endpoint."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ragauge.core.errors import BackendFailed
from ragauge.core.protocols import Message, Reply
from ragauge.core.structured_text import parse_json
from ragauge.models.chats.reply_parsing import enum_words, has_thought_start, schema_violation

UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
MAX_TIME_CHARS = 100
"""Maximum length of a time in a header; a longer one is ignored, because parsing takes quadratic time."""
RATE_LIMIT_SUFFIXES = ("-requests", "-tokens", "")


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before a retry; None if the headers do not say.

    Checked in this order: `retry-after-ms`, `Retry-After` (seconds or a date), and the reset time of an exhausted
    limit.

    >>> parse_retry_after({"retry-after": "2.5"}), parse_retry_after({"retry-after-ms": "20"}), parse_retry_after({})
    (2.5, 0.02, None)
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = (headers.get(name) or "").strip()
        if not text or len(text) > MAX_TIME_CHARS:
            continue
        try:
            return max(0.0, float(text) * unit)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, OverflowError):  # Neither a number nor a date.
            continue
    return wait_for_limit(headers) or None


def wait_for_limit(headers: Mapping[str, str]) -> float:
    """Return the seconds until an exhausted rate limit is reset; 0 if there is none.

    >>> wait_for_limit({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"})
    360.0
    >>> wait_for_limit({"x-ratelimit-remaining-requests": "7", "x-ratelimit-reset-requests": "6m0s"})
    0.0
    """
    longest = 0.0
    for kind in RATE_LIMIT_SUFFIXES:
        if (headers.get(f"x-ratelimit-remaining{kind}") or "").strip() == "0":
            longest = max(longest, parse_duration(headers.get(f"x-ratelimit-reset{kind}") or "") or 0.0)
    return longest


def parse_duration(text: str) -> float | None:
    """Parse a duration and return it in seconds; None if it is not one.

    Accepted are `20ms`, `1s`, `6m0s`, a number of seconds, and a Unix time in seconds or milliseconds.

    >>> parse_duration("1h2m3.5s"), parse_duration("20ms"), parse_duration("7"), parse_duration("soon")
    (3723.5, 0.02, 7.0, None)
    """
    text = text.strip()
    if len(text) > MAX_TIME_CHARS:
        return None
    parts = DURATION_PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)
    try:
        number = float(text)
    except ValueError:
        return None
    if number > 1e11:
        number /= 1000
    return max(0.0, number - time.time()) if number > 1e9 else max(0.0, number)


MAX_MESSAGE_CHARS = 500
"""Maximum number of characters of an endpoint's error message."""
EMPTY_ACCOUNT_CODES = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "insufficient_balance"}
MODERATION_TERMS = ("moderation", "flagged", "content policy")
NOT_SENT_ERRORS = ("ConnectError", "ConnectTimeout")
"""Names of errors that occur before a request is sent."""
STATUS_HINTS = {
    401: "the key comes from OPENAI_API_KEY, or from the variable that the option `key` names",
    402: "the account behind the key is empty",
    404: "the address usually ends in /v1, and the model must be one that is served there",
}


class EndpointError(NamedTuple):
    """Error of a request that returned no reply."""

    status: int | None
    """HTTP status; None if there was no response."""
    message: str
    code: str = ""
    parameter: str = ""
    retry_after: float | None = None

    @property
    def search_text(self) -> str:
        """Parameter, code and message in lower case, for searching."""
        return f"{self.parameter} {self.code} {self.message}".lower()

    def failure(self, where: str) -> BackendFailed:
        """Return the BackendFailed exception to raise, with a hint for known causes."""
        text = " ".join(self.message.split())
        text = text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]}…"
        if self.status is None:
            was_sent = not text.startswith(NOT_SENT_ERRORS)
            return BackendFailed(f"{where}: {text}", is_temporary=True, has_unknown_cost=was_sent)
        message = f"{where} answered {self.status}: {text}"
        empty = any(word in EMPTY_ACCOUNT_CODES for word in self.code.split()) or "insufficient_quota" in self.message
        moderated = any(word in self.message.lower() for word in MODERATION_TERMS)
        if empty or self.status in (401, 402, 404) or (self.status == 403 and not moderated):
            return BackendFailed(
                message, hint=STATUS_HINTS[402] if empty else STATUS_HINTS.get(self.status), fails_all_calls=True
            )
        if self.status in (408, 409, 425, 429) or self.status >= 500:
            is_overload = self.status in (429, 503, 529)
            return BackendFailed(message, is_temporary=True, is_overload=is_overload, retry_after_s=self.retry_after)
        return BackendFailed(message)


def parse_endpoint_error(status: int, body: Any, text: str, headers: Mapping[str, str]) -> EndpointError:
    """Parse an error response; the layouts of several servers are supported."""
    inner: Any = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return EndpointError(status, str(inner or text or "nothing"), retry_after=parse_retry_after(headers))
    message = next((str(inner[name]) for name in ("message", "detail", "error") if inner.get(name)), text)
    kinds = [str(inner[name]) for name in ("code", "type") if inner.get(name)]
    return EndpointError(
        status, message or "nothing", " ".join(kinds), str(inner.get("param") or ""), parse_retry_after(headers)
    )


RESPONSE_FORMATS = ("json_schema", "json_object", "plain")
"""Ways to request structured replies, strictest first."""
FORMAT_REFUSED = re.compile(r"response_format|json_schema|json_object|json mode|grammar|structured|guided|schema")
PARAMETER_REFUSED = re.compile(r"support|permitted|allowed|unrecogni|unknown|unexpected|extra|only the default")
"""Wording of a server that does not support a parameter or allows only its default; other errors are the user's."""
TOP_LOGPROBS = (20, 5, 0)
"""Numbers of token probabilities to request, in order of preference."""
MAX_WORD_TOKENS = 8
"""Maximum number of tokens of a one-word reply."""
SCHEMA_INSTRUCTION = "Reply with JSON and nothing else. The JSON must obey this schema:\n"


class RequestFormat:
    """Request bodies for one endpoint, adapted when it refuses or ignores a feature."""

    def __init__(
        self, settings: Mapping[str, Any], max_tokens: int | None, formats: Sequence[str], *, grammar: bool = False
    ) -> None:
        self._settings = dict(settings)
        self._grammar = grammar
        self._max_tokens = max_tokens
        self._limit_name = "max_tokens"
        self._formats = formats
        self._format_index = 0
        self._is_schema_obeyed = False
        """Whether a reply to `json_schema` was valid. Later violations are then treated as exceptions."""
        self._limits_word_tokens = True
        self._requests_logprobs = True
        self._top_logprobs_index = 0
        self.notes: list[str] = []
        """Requested features that the endpoint does not support, as text."""

    def choose_format(self, words: Sequence[str], schema: Mapping[str, Any] | None) -> str:
        """Return the format in which a reply is requested now."""
        return "tokens" if words else "plain" if schema is None else self._formats[self._format_index]

    def body(self, messages: Sequence[Message], schema: Mapping[str, Any] | None, reply_format: str) -> dict[str, Any]:
        """Return the request body, without the model name."""
        body: dict[str, Any] = {"messages": list(messages), **self._settings}
        limit = self._max_tokens
        if reply_format == "tokens":
            limit = MAX_WORD_TOKENS if self._limits_word_tokens else limit
            if self._grammar:
                # Allow a capital letter, so that a model that prefers "No" is not forced to say "yes".
                forms = [form for word in enum_words(schema) for form in dict.fromkeys((word, word.capitalize()))]
                body["grammar"] = f"root ::= {' | '.join(map(json.dumps, forms))}"
            if self._requests_logprobs:
                body["logprobs"] = True
                if TOP_LOGPROBS[self._top_logprobs_index]:
                    body["top_logprobs"] = TOP_LOGPROBS[self._top_logprobs_index]
        elif reply_format == "json_schema":
            body["response_format"] = {
                "type": reply_format,
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            }
        elif schema is not None:
            body["messages"] = add_schema_instruction(messages, schema)
            if reply_format == "json_object":
                body["response_format"] = {"type": reply_format}
        if limit is not None:
            body[self._limit_name] = limit
        return body

    def switch_after_refusal(self, problem: EndpointError, body: Mapping[str, Any], reply_format: str) -> bool:
        """Return whether a refusal can be avoided by another format, which is then used."""
        about = problem.search_text
        if problem.status in (500, 501):  # Some servers fail on a grammar instead of refusing it.
            return (
                "response_format" in body
                and "grammar" in about
                and self._use_next_format(reply_format, problem.message)
            )
        if problem.status not in (400, 422):
            return False
        if "max_tokens" in body and ("max_completion_tokens" in about or problem.parameter == "max_tokens"):
            self._limit_name = "max_completion_tokens"
            return True
        if "top_logprobs" in body and "top_logprobs" in about:
            self._top_logprobs_index = max(
                self._top_logprobs_index, min(TOP_LOGPROBS.index(body["top_logprobs"]) + 1, len(TOP_LOGPROBS) - 1)
            )
            return True
        if "logprobs" in body and "logprobs" in about:
            self._requests_logprobs = False
            self._add_note("it returns no probabilities")
            return True
        if "response_format" in body and FORMAT_REFUSED.search(about):
            return self._use_next_format(reply_format, problem.message)
        for name in ("temperature", "seed"):
            if name in body and re.search(rf"\b{name}\b", about) and PARAMETER_REFUSED.search(about):
                self._settings.pop(name, None)
                self._add_note(f"it does not accept {name}; its own value applies")
                return True
        return False

    def switch_after_reply(
        self, reply: Reply, body: Mapping[str, Any], reply_format: str, schema: Mapping[str, Any]
    ) -> bool:
        """Return whether a reply shows that the format does not work.

        The next format is then used.
        """
        if reply_format == "tokens":
            is_short = body.get(self._limit_name) == MAX_WORD_TOKENS != self._max_tokens
            if (reply.text and not has_thought_start(reply.text)) or reply.finish != "length" or not is_short:
                return False
            self._limits_word_tokens = False  # The model writes its reasoning first.
            return True
        if reply_format != "json_schema" or self._is_schema_obeyed or reply.finish != "stop":
            return False
        violation = find_outer_violation(reply.text, schema)
        if violation is not None:
            return self._use_next_format(reply_format, violation)
        self._is_schema_obeyed = reply.text.rstrip().endswith(("}", "]"))
        return False

    def _use_next_format(self, reply_format: str, error: str) -> bool:
        position = self._formats.index(reply_format) + 1
        if position >= len(self._formats):
            return False
        if position > self._format_index:
            self._format_index = position
            reason = " ".join(error.split())[:200]
            self._add_note(
                f"structured replies are requested as {self._formats[position]}; error with {reply_format}: {reason}"
            )
        return True

    def _add_note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def add_schema_instruction(messages: Sequence[Message], schema: Mapping[str, Any]) -> list[Message]:
    """Append the schema and an instruction to the system message."""
    shape = SCHEMA_INSTRUCTION + json.dumps(schema, ensure_ascii=False)
    if messages and messages[0].get("role") == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{shape}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": shape}, *messages]


def find_outer_violation(text: str, schema: Mapping[str, Any]) -> str | None:
    """Describe how a reply violates the outer level of a schema; None if it does not.

    >>> schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}
    >>> (find_outer_violation("All is well.", schema), find_outer_violation('{"b": 1}', schema),
    ...  find_outer_violation('{"a": "y"}', schema))
    ('the reply is not JSON', 'the reply has no `a`', None)
    >>> find_outer_violation('{"a": "x', schema)
    """
    try:
        value = parse_json(text, unique_keys=False)
    except ValueError:
        # A truncated or empty reply does not show that the format was ignored.
        return None if text.lstrip()[:1] in ("", "{", "[") else "the reply is not JSON"
    # Only the outermost level: the code that parses the reply checks the rest.
    outermost = {name: value for name, value in schema.items() if name in ("type", "required")}
    return schema_violation(value, outermost)
