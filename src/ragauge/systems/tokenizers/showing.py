"""Pieces as people read them: what would not be seen is written so that it is."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

UNKNOWN = "⟨?⟩"
"""What stands for something that a tokenizer does not know."""
SEEN = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
LONE = re.compile("[\ud800-\udfff]")


def sound(text: str) -> str:
    r"""The same text as UTF-8 can hold it: halves of characters become U+FFFD.

    >>> sound("a\ud800b")
    'a�b'
    """
    return text if text.isascii() else LONE.sub("\ufffd", text)


def visible(text: str) -> str:
    r"""A piece in which blanks, line ends, marks without a letter and what has no form can be seen.

    >>> visible(" the\n"), visible("\u0301"), visible("a\u200bb")
    ('␣the↵', '◌́', 'a\\u200bb')
    """
    told = "".join(SEEN.get(c) or (c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
    return f"◌{told}" if told and unicodedata.combining(told[0]) else told


def visible_bytes(data: bytes) -> str:
    r"""The same of bytes; those that make no whole character stand as numbers.

    >>> visible_bytes(" é".encode()), visible_bytes(b"\xf0\x9f")
    ('␣é', '\\xf0\\x9f')
    """
    return visible(data.decode("utf-8", "backslashreplace"))


@cache
def byte_letters() -> dict[str, int]:
    """The letter that byte-level tokenizers write for each byte: its own where it has one, else one from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
