"""Counted words: no model at all, but everywhere, at once, and the same for ever."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ragauge.seams import Vectors

WORD = re.compile(r"\w+")


def _place(word: str, places: int) -> int:
    return zlib.crc32(word.encode("utf-8", "replace")) % places


class Checksums:
    """Words in lower case, known by a checksum: every word has a number, some share one, and none comes back."""

    unknown = None

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.name = f"checksums-{vocabulary}"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """A number for each word."""
        return [[_place(word, self.vocabulary) for word in self.pieces(text)] for text in texts]

    def decode(self, numbers: Sequence[int]) -> str:  # noqa: ARG002 -- nobody can tell which word it was
        """Nothing."""
        return ""

    def pieces(self, text: str) -> list[str]:
        """The words."""
        return WORD.findall(text.lower())


class Words:
    """Words in lower case, each where its checksum puts it, by the root of how often it comes; unit length.

    Two texts are near if they have words in common, and for no other reason. A text without words is all zeros.
    """

    def __init__(self, *, dimensions: int = 2048) -> None:
        self._dimensions = dimensions
        self.limit = None
        """All words of a text are counted."""
        self.parameters = 0
        self.tokenizer = Checksums(dimensions)
        self.name = f"words-{dimensions}"

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """How many words each text has."""
        return [len(WORD.findall(text)) for text in texts]

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        vectors = np.zeros((len(texts), self._dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word, times in Counter(WORD.findall(text.lower())).items():
                row[_place(word, self._dimensions)] += times
        vectors = np.sqrt(vectors)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)
