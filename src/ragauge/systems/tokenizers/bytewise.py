"""Bytes: every text, no vocabulary to learn, nothing unknown; numbered as ByT5 has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.systems.tokenizers.showing import sound, visible_bytes

FIRST = 3
"""ByT5's numbers 0 to 2 are padding, the end of a text and the unknown."""
SENTINELS = 125
"""Numbers after the bytes that stand for gaps in its training; no text has them."""


class Bytes:
    r"""The bytes of UTF-8, each 3 more than it is; 384 numbers, as the models of google/byt5 have them.

    >>> Bytes().encode(["é"]), Bytes().pieces("é!")
    ([[198, 172]], ['\\xc3', '\\xa9', '!'])
    """

    name = "bytes"
    vocabulary = FIRST + 256 + SENTINELS
    unknown = None
    marks = 1
    """The end of a text."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text."""
        data = (np.frombuffer(sound(text).encode(), np.uint8) for text in texts)
        return [(one.astype(np.int64) + FIRST).tolist() for one in data]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers; bytes that make no character are left out."""
        return bytes(n - FIRST for n in numbers if FIRST <= n < FIRST + 256).decode("utf-8", "ignore")

    def pieces(self, text: str) -> list[str]:
        """A piece for each byte."""
        return [visible_bytes(bytes([byte])) for byte in sound(text).encode()]

    def kept(self) -> dict[str, Any]:
        """What `reopened` makes it from again."""
        return {"kind": "bytes"}
