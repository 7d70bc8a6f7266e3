"""Characters: the code points of Unicode, as CANINE reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.systems.tokenizers.showing import sound, visible


class Characters:
    """The code point of each character: as many numbers as Unicode has.

    >>> Characters().encode(["é日"]), Characters().decode([233, 26085])
    ([[233, 26085]], 'é日')
    """

    name = "characters"
    vocabulary = 0x110000
    unknown = None
    marks = 2
    """CANINE's, before and after a text."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text."""
        return [np.frombuffer(sound(text).encode("utf-32-le"), np.uint32).tolist() for text in texts]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of numbers."""
        return "".join(map(chr, numbers))

    def pieces(self, text: str) -> list[str]:
        """A piece for each character."""
        return [visible(c) for c in sound(text)]

    def kept(self) -> dict[str, Any]:
        """What `reopened` makes it from again."""
        return {"kind": "characters"}
