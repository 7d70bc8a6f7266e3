"""Keeping keys and passwords out of everything that is shown or written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, urlsplit, urlunsplit

HIDDEN = "(the key)"
MASKED = re.compile(r"\bsk-[\w-]*\*+[\w*-]*")
"""A key that a server repeats with its middle starred out."""


def without_keys(text: object, keys: Iterable[str]) -> str:
    """A text without the keys, which some servers repeat.

    >>> without_keys("Incorrect API key provided: my-secret-1.", ["my-secret-1"])
    'Incorrect API key provided: (the key).'
    >>> without_keys("Incorrect API key provided: sk-abc****wxyz.", [])
    'Incorrect API key provided: (the key).'
    """
    shown = str(text)
    for key in sorted(filter(None, keys), key=len, reverse=True):
        for form in {key, quote(key, safe=""), json.dumps(key)[1:-1]}:
            # A key of a few letters is hidden where it stands alone, and not in the middle of every word.
            alone = rf"(?<!\w){re.escape(form)}(?!\w)"
            shown = re.sub(alone, HIDDEN, shown) if len(form) < 8 else shown.replace(form, HIDDEN)
    return MASKED.sub(HIDDEN, shown)


def without_credentials(url: str) -> str:
    """An address without the name, the password and the query that may stand in it.

    >>> without_credentials("https://me:secret@host:8000/v1/?key=1")
    'https://host:8000/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def credentials(url: str) -> list[str]:
    """What of an address must not be shown: its password, or the name where that is all there is, and the query.

    >>> credentials("https://me:secret@host/v1?key=abc")
    ['secret', 'abc']
    """
    parts = urlsplit(url)
    own = parts.password or parts.username
    asked = [value for _, _, value in (one.partition("=") for one in parts.query.split("&")) if value]
    return [unquote(one) for one in [*([own] if own else []), *asked]]
