"""Redaction of keys and passwords in all text that is shown or written.

Code that uses a secret registers it with `register_secrets`. `redact` then removes it from messages, also encoded as
base64, as part of a URL, in JSON or in HTML. Data that is judged or saved must not change because a dummy key is also
a word: `redact_data` removes only keys that cannot be words. Secrets of fewer than 4 characters are not registered,
because they are part of ordinary text.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit, urlunsplit

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 4
"""Minimum length of a registered secret in characters."""
MIN_SUBSTRING_CHARS = 8
"""Minimum length in characters of a secret that is also redacted inside of words."""
MIN_DISTINCTIVE_CHARS = 16
"""Minimum length in characters of a key that is also redacted in data, if it has letters and digits."""
MIN_TOKEN_CHARS = 20
"""Minimum length in characters of a value in a URL query that counts as a key regardless of its name."""
SECRET_NAME = re.compile(r"(^|[-_])(pass|passwd|password|pwd|secret|token|key|apikey|auth|authorization|cookie)$", re.I)
"""Names of options, headers and fields whose values are secrets."""
_AUTH_SCHEME = re.compile(r"(?:Basic|Bearer|Token|ApiKey)\s+(?=\S)", re.I)
_OPENAI_KEY = re.compile(r"(?<![\w*-])sk-[\w*-]*")
_BASE64_TOKEN = re.compile(r"[A-Za-z0-9+/_=-]+")
_registered_secrets: set[str] = set()


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

    Servers repeat a key with asterisks in the middle; such a key is replaced too.

    >>> register_secrets("hunter-22/x")
    >>> redact('{"a": "hunter-22/x", "b": "aHVudGVyLTIyL3g=", "c": "hunter-22%2Fx"}')
    '{"a": "[redacted]", "b": "[redacted]", "c": "[redacted]"}'
    >>> redact("Incorrect API key provided: sk-abc****wxyz.")
    'Incorrect API key provided: [redacted].'
    """
    redacted = _redact_keys(text, _registered_secrets)
    return _OPENAI_KEY.sub(lambda match: REDACTED if "*" in match[0] else match[0], redacted)


def redact_data(text: str) -> str:
    """Replace registered secrets in data that is judged or saved: only keys that cannot be words or numbers.

    >>> register_secrets("anything", "sk-0123456789abcdef")
    >>> redact_data("it does not say anything about sk-0123456789abcdef")
    'it does not say anything about [redacted]'
    """
    return _redact_keys(text, filter(is_distinctive, _registered_secrets))


def redact_bytes(data: bytes) -> bytes:
    """Replace registered secrets in data that is UTF-8 text."""
    if not _registered_secrets:
        return data
    text = data.decode("utf-8", "surrogateescape")
    clean = redact_data(text)
    return data if clean == text else clean.encode("utf-8", "surrogateescape")


def is_distinctive(secret: str) -> bool:
    """Return whether a secret cannot be a word or a number, and is therefore also redacted in data."""
    has_letter, has_digit = any(map(str.isalpha, secret)), any(map(str.isdigit, secret))
    return len(secret) >= MIN_DISTINCTIVE_CHARS and has_letter and has_digit


def _redact_keys(text: object, keys: Iterable[str]) -> str:
    """Replace the given keys in a text."""
    redacted = str(text)
    fragments: list[str] = []
    for key in sorted(keys, key=len, reverse=True):
        if len(key) < MIN_SUBSTRING_CHARS or (len(key) < 2 * MIN_SUBSTRING_CHARS and (key.isalpha() or key.isdigit())):
            # Only as a whole word: `postgres` is part of `postgresql`.
            redacted = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", REDACTED, redacted)
        else:
            for form in _encode_secret(key):
                redacted = redacted.replace(form, REDACTED)
        fragments += (fragment for fragment in _encode_base64(key) if fragment in redacted)
    if fragments:
        redacted = _BASE64_TOKEN.sub(
            lambda match: REDACTED if any(fragment in match[0] for fragment in fragments) else match[0], redacted
        )
    return redacted


@cache
def _encode_secret(secret: str) -> tuple[str, ...]:
    """Return a secret as it is, and as part of JSON, HTML and URLs."""
    data = secret.encode("utf-8", "surrogatepass")
    in_urls = [quote(data, safe=""), quote(data), quote_plus(data)]
    in_urls += [re.sub("%..", lambda match: match[0].lower(), form) for form in in_urls]
    in_json = [json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    in_json += [form.replace("/", "\\/") for form in in_json]
    return tuple(dict.fromkeys([secret, *in_json, *in_urls, html.escape(secret)]))


@cache
def _encode_base64(secret: str) -> tuple[str, ...]:
    """Return base64 fragments of a secret, for each of its possible offsets in a longer encoded text."""
    data = secret.encode("utf-8", "surrogatepass")
    encoded: list[str] = []
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        # Characters that also depend on the bytes before and after the secret are left out.
        last = (offset + len(data)) * 8 // 6
        part = b64encode(bytes(offset) + data).decode()[first:last]
        if len(part) >= MIN_SUBSTRING_CHARS:  # A shorter fragment also occurs in other texts.
            encoded += [part, part.replace("+", "-").replace("/", "_")]
    return tuple(dict.fromkeys(encoded))


def redact_url(url: str) -> str:
    """Remove user name, password and query from a URL.

    >>> redact_url("https://me:secret@host:8000/v1/?key=1")
    'https://host:8000/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
