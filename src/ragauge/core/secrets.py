"""Redaction of keys and passwords in all text that is shown or written.

Code that uses a secret registers it with `register_secrets`. `redact` then removes it, also encoded as base64, as part
of a URL, in JSON or in HTML. It is applied to everything that a service returns, to error messages, and in the writer
of files. Secrets of fewer than 4 characters are not registered, because they are part of ordinary text.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

REDACTED = "[redacted]"
MASKED_KEY = re.compile(r"\bsk-[\w-]*\*+[\w*-]*")
"""A key whose middle is masked with asterisks, as servers repeat it."""
MIN_SECRET_CHARS = 4
"""Minimum length of a registered secret in characters."""
MIN_SUBSTRING_CHARS = 8
"""Minimum length in characters of a secret that is also redacted inside of words."""
MIN_TOKEN_CHARS = 20
"""Minimum length in characters of a value in a URL query that counts as a key regardless of its name."""
SECRET_NAME = re.compile(r"(^|[-_])(pass|passwd|password|pwd|secret|token|key|apikey|auth|authorization|cookie)$", re.I)
"""Names of options, headers and fields whose values are secrets."""
_AUTH_SCHEME = re.compile(r"(?:Basic|Bearer|Token|ApiKey)\s+(?=\S)", re.I)
_BASE64_PATTERN = r"[A-Za-z0-9+/_=-]*"
_HTML_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_registered_secrets: set[str] = set()


class _SecretForms(NamedTuple):
    """Encodings in which a secret can appear in a text."""

    secret: str
    base64: tuple[str, ...]
    """Base64 fragments of this secret, for each of its possible offsets in a longer encoded text."""
    escaped: re.Pattern[str]
    """The secret with any of its characters escaped for JSON, URLs or HTML."""


def register_secrets(*secrets: str | None) -> None:
    """Add secrets to those that `redact` removes.

    Empty and very short ones are left out.
    """
    for secret in secrets:
        if secret is not None and len(secret.strip()) >= MIN_SECRET_CHARS:
            _registered_secrets.add(secret.strip())


def register_url(url: str) -> None:
    """Register the secrets of a URL: its password and the keys in its query.

    The password is also registered in the form of basic authentication.

    >>> register_url("https://me:hunter22@host/v1?lang=english&sig=4711-0815")
    >>> redact("bWU6aHVudGVyMjI= and 4711-0815 are wrong for me in english")
    '[redacted] and [redacted] are wrong for me in english'
    """
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if password:
        register_secrets(password, f"{user}:{password}")
    elif parts.scheme in ("http", "https"):  # a token instead of a user name
        register_secrets(user)
    for field in parts.query.split("&"):
        name, _, value = field.partition("=")
        if SECRET_NAME.search(name) or name in ("sig", "signature", "code") or len(value) >= MIN_TOKEN_CHARS:
            register_secrets(unquote(value), value)


def register_fields(fields: Mapping[str, Any]) -> None:
    """Register the values of headers or options whose names say that they are secret.

    >>> register_fields({"Authorization": "Bearer abc-123-def", "Accept": "text/html"})
    >>> redact("abc-123-def is not a valid token for text/html")
    '[redacted] is not a valid token for text/html'
    """
    for name, value in fields.items():
        if isinstance(value, Mapping):
            register_fields(value)
        elif isinstance(value, str) and SECRET_NAME.search(name):
            register_secrets(value, _AUTH_SCHEME.sub("", value, count=1))


def forget_secrets() -> None:
    """Remove all registered secrets."""
    _registered_secrets.clear()


def has_secrets() -> bool:
    """Return whether any secret is registered."""
    return bool(_registered_secrets)


def redact(text: str) -> str:
    """Replace every registered secret in a message.

    >>> register_secrets("hunter-22/x")
    >>> redact('{"a": "hunter-22/x", "b": "aHVudGVyLTIyL3g=", "c": "hunter-22%2Fx"}')
    '{"a": "[redacted]", "b": "[redacted]", "c": "[redacted]"}'
    """
    return redact_keys(text, _registered_secrets)


def redact_data(text: str) -> str:
    """Replace registered secrets in data, that is in replies and files.

    Short words and short numbers stay. Keys such as `test` or `1234` are common in data, where replacing them would
    change results.
    """
    return redact_keys(text, filter(_is_distinctive, _registered_secrets))


def redact_bytes(data: bytes) -> bytes:
    """Replace registered secrets in data that is UTF-8 text."""
    if not _registered_secrets:
        return data
    text = data.decode("utf-8", "surrogateescape")
    clean = redact_data(text)
    return data if clean == text else clean.encode("utf-8", "surrogateescape")


def _is_distinctive(secret: str) -> bool:
    mixed = not secret.isdigit() and not secret.isalpha()
    return len(secret) >= MIN_SUBSTRING_CHARS or (mixed and len(secret) >= MIN_SUBSTRING_CHARS - 2)


def redact_keys(text: object, keys: Iterable[str]) -> str:
    """Replace the given keys in a text.

    >>> redact_keys("Incorrect API key provided: my-secret-1.", ["my-secret-1"])
    'Incorrect API key provided: [redacted].'
    >>> redact_keys("Incorrect API key provided: sk-abc****wxyz.", [])
    'Incorrect API key provided: [redacted].'
    """
    redacted = str(text)
    for key in sorted(filter(None, tuple(keys)), key=len, reverse=True):
        forms = _build_secret_forms(key)
        if len(key) < MIN_SUBSTRING_CHARS or (len(key) < 2 * MIN_SUBSTRING_CHARS and (key.isalpha() or key.isdigit())):
            # Only as a whole word: `postgres` is part of `postgresql`.
            redacted = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", REDACTED, redacted)
        else:
            redacted = redacted.replace(key, REDACTED)
            if "\\" in redacted or "%" in redacted or "&" in redacted:
                redacted = forms.escaped.sub(REDACTED, redacted)
        for encoded in forms.base64:
            if encoded in redacted:
                redacted = re.sub(f"{_BASE64_PATTERN}{re.escape(encoded)}{_BASE64_PATTERN}", REDACTED, redacted)
    return MASKED_KEY.sub(REDACTED, redacted)


@cache
def _build_secret_forms(secret: str) -> _SecretForms:
    data = secret.encode("utf-8", "surrogatepass")
    encoded: list[str] = []
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        # Characters that also depend on the bytes before and after the secret are left out.
        last = (offset + len(data)) * 8 // 6
        part = b64encode(bytes(offset) + data).decode()[first:last]
        # A short fragment also occurs in other texts.
        encoded += (
            dict.fromkeys([part, part.replace("+", "-").replace("/", "_")]) if len(part) >= MIN_SUBSTRING_CHARS else []
        )
    return _SecretForms(secret, tuple(encoded), re.compile("".join(map(_escape_pattern, secret))))


def _escape_pattern(character: str) -> str:
    """Return a pattern of a character and its escapes in JSON, URLs and HTML."""
    code = ord(character)
    units = character.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        re.escape(character),
        "".join(rf"\\+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4)),
        "".join(f"%(?i:{byte:02x})" for byte in character.encode("utf-8", "surrogatepass")),
        rf"&#(?:0*{code}|[xX]0*(?i:{code:x}));",
    ]
    if character in _HTML_ENTITIES:
        forms.append(f"&{_HTML_ENTITIES[character]};")
    if character in "\\\"'/":
        forms.insert(0, re.escape(f"\\{character}"))
    if character == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def redact_url(url: str) -> str:
    """Remove user name, password and query from a URL.

    >>> redact_url("https://me:secret@host:8000/v1/?key=1")
    'https://host:8000/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
