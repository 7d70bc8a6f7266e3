"""Byte tokenizer with the ids of ByT5: covers every text, without a vocabulary to learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.systems.tokenizers.showing import sound, visible_bytes

FIRST = 3
"""Id of the first byte; ids 0 to 2 of ByT5 are padding, end of text and unknown."""
SENTINELS = 125
"""Number of sentinel ids after the bytes, which ByT5 uses in training only."""


class Bytes:
    r"""Tokenizer of UTF-8 bytes: the id is the byte plus 3; 384 ids, as in google/byt5 models.

    >>> Bytes().encode(["é"]), Bytes().pieces("é!")
    ([[198, 172]], ['\\xc3', '\\xa9', '!'])
    """

    name = "bytes"
    vocabulary = FIRST + 256 + SENTINELS
    unknown = None
    marks = 1
    """Number of special tokens: the end of a text."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        data = (np.frombuffer(sound(text).encode(), np.uint8) for text in texts)
        return [(one.astype(np.int64) + FIRST).tolist() for one in data]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids; bytes that form no character are dropped."""
        return bytes(n - FIRST for n in numbers if FIRST <= n < FIRST + 256).decode("utf-8", "ignore")

    def pieces(self, text: str) -> list[str]:
        """Return a printable piece for each byte."""
        return [visible_bytes(bytes([byte])) for byte in sound(text).encode()]

    def kept(self) -> dict[str, Any]:
        """Return the state for `restore_tokenizer`."""
        return {"kind": "bytes"}
