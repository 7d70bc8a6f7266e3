"""Tokens in readable form: invisible characters are shown by visible ones."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

UNKNOWN = "⟨?⟩"
"""Text shown for an unknown token."""
SEEN = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
LONE = re.compile("[\ud800-\udfff]")


def sound(text: str) -> str:
    r"""Replace unpaired surrogates, which UTF-8 cannot encode, by U+FFFD.

    >>> sound("a\ud800b")
    'a�b'
    """
    return text if text.isascii() else LONE.sub("\ufffd", text)


def visible(text: str) -> str:
    r"""Show blanks, line ends, combining marks and non-printable characters visibly.

    >>> visible(" the\n"), visible("\u0301"), visible("a\u200bb")
    ('␣the↵', '◌́', 'a\\u200bb')
    """
    told = "".join(SEEN.get(c) or (c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
    return f"◌{told}" if told and unicodedata.combining(told[0]) else told


def visible_bytes(data: bytes) -> str:
    r"""Show bytes as visible text.

    Incomplete characters are shown as hexadecimal numbers.

    >>> visible_bytes(" é".encode()), visible_bytes(b"\xf0\x9f")
    ('␣é', '\\xf0\\x9f')
    """
    return visible(data.decode("utf-8", "backslashreplace"))


@cache
def byte_letters() -> dict[str, int]:
    """Return the letters that byte-level tokenizers use, as `{letter: byte}`.

    Printable bytes stand for themselves, the others for letters from U+0100 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
