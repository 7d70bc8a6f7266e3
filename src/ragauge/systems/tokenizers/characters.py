"""Character tokenizer: Unicode code points, as in CANINE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.systems.tokenizers.showing import sound, visible


class Characters:
    """Tokenizer of characters: the id is the Unicode code point.

    >>> Characters().encode(["é日"]), Characters().decode([233, 26085])
    ([[233, 26085]], 'é日')
    """

    name = "characters"
    vocabulary = 0x110000
    unknown = None
    marks = 2
    """Number of special tokens of CANINE, before and after a text."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [np.frombuffer(sound(text).encode("utf-32-le"), np.uint32).tolist() for text in texts]

    def decode(self, numbers: Sequence[int]) -> str:
        """Return the text of token ids."""
        return "".join(map(chr, numbers))

    def pieces(self, text: str) -> list[str]:
        """Return a printable piece for each character."""
        return [visible(c) for c in sound(text)]

    def kept(self) -> dict[str, Any]:
        """Return the state for `restore_tokenizer`."""
        return {"kind": "characters"}
