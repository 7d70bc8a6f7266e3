"""Classify errors of chat endpoints: temporary, final, or specific to one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ragauge.errors import BackendFailed
from ragauge.judges.chats.limits import retry_after

LONGEST = 500
"""Maximum number of characters of an endpoint's error message."""
EMPTY_ACCOUNT = {"insufficient_quota", "billing_not_active", "billing_hard_limit_reached", "insufficient_balance"}
MODERATED = ("moderation", "flagged", "content policy")
NOT_SENT = ("ConnectError", "ConnectTimeout")
"""Names of errors that occur before a request is sent."""
HINTS = {
    401: "the key comes from OPENAI_API_KEY, or from the variable that the option `key` names",
    402: "the account behind the key is empty",
    404: "the address usually ends in /v1, and the model must be one that is served there",
}


class Problem(NamedTuple):
    """Error of a request that returned no reply."""

    status: int | None
    """HTTP status; None if there was no response."""
    words: str
    code: str = ""
    parameter: str = ""
    after: float | None = None

    @property
    def about(self) -> str:
        """Parameter, code and message in lower case, for searching."""
        return f"{self.parameter} {self.code} {self.words}".lower()

    def failure(self, where: str) -> BackendFailed:
        """Return the BackendFailed exception to raise, with a hint for known causes."""
        said = " ".join(self.words.split())
        said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
        if self.status is None:
            failure = BackendFailed(f"{where}: {said}", passing=True)
            failure.unanswered = not said.startswith(NOT_SENT)
            return failure
        message = f"{where} answered {self.status}: {said}"
        empty = any(word in EMPTY_ACCOUNT for word in self.code.split()) or "insufficient_quota" in self.words
        moderated = any(word in self.words.lower() for word in MODERATED)
        if empty or self.status in (401, 402, 404) or (self.status == 403 and not moderated):
            return BackendFailed(message, hint=HINTS[402] if empty else HINTS.get(self.status), final=True)
        if self.status in (408, 409, 425, 429) or self.status >= 500:
            busy = self.status in (429, 503, 529)
            return BackendFailed(message, passing=True, busy=busy, after=self.after)
        return BackendFailed(message)


def problem_of(status: int, body: Any, text: str, headers: Mapping[str, str]) -> Problem:
    """Parse an error response; the layouts of several servers are supported."""
    inner: Any = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(inner, Mapping):
        return Problem(status, str(inner or text or "nothing"), after=retry_after(headers))
    words = next((str(inner[name]) for name in ("message", "detail", "error") if inner.get(name)), text)
    kinds = [str(inner[name]) for name in ("code", "type") if inner.get(name)]
    return Problem(status, words or "nothing", " ".join(kinds), str(inner.get("param") or ""), retry_after(headers))
