"""Embedders without a model: hashed word counts and random vectors."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Vectors
from ragauge.core.text import split_words
from ragauge.core.vectors import to_unit_rows


class RandomEmbedder:
    """Embedder with a random vector of unit length for each text, determined by text and seed.

    Equal texts have equal vectors; all other pairs are equally distributed. Each of N documents is among the first k
    hits of a query with probability k/N.
    """

    def __init__(self, *, dimensions: int = 64, seed: int = 0) -> None:
        if dimensions < 1:
            raise BadInput(f"dimensions must be at least 1, got {dimensions}")
        self._dimensions, self._seed = dimensions, seed
        self.limit = None
        """No token limit: the whole text determines the vector."""
        self.parameters = 0
        self.trained = False
        self.name = f"chance-{dimensions}-{seed}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.empty((len(texts), self._dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            seed_bytes = f"{self._seed}\0{text}".encode("utf-8", "surrogatepass")
            rng = np.random.Generator(
                np.random.PCG64(int.from_bytes(hashlib.blake2b(seed_bytes, digest_size=16).digest()))
            )
            direction = rng.standard_normal(self._dimensions)
            row[:] = direction / np.linalg.norm(direction)
        return vectors


WORD_PATTERN = re.compile(r"\w+")


def _word_bucket(word: str, places: int) -> int:
    return zlib.crc32(word.encode("utf-8", "replace")) % places


class ChecksumTokenizer:
    """Tokenizer of lower-case words by checksum: ids may be shared by words and cannot be decoded."""

    unknown = None

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.name = f"checksums-{vocabulary}"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the words of each text."""
        return [[_word_bucket(word, self.vocabulary) for word in self.pieces(text)] for text in texts]

    def decode(self, numbers: Sequence[int]) -> str:  # noqa: ARG002 -- a hash cannot be inverted
        """Return an empty text, because checksums cannot be reversed."""
        return ""

    def pieces(self, text: str) -> list[str]:
        """Return the words of a text in lower case."""
        return split_words(text, fold="lower")


class BagOfWordsEmbedder:
    """Embedder that counts lower-case words in dimensions chosen by checksum; unit length.

    Values are square roots of the counts. Two texts are similar only if they share words. A text without words has a
    vector of zeros.
    """

    def __init__(self, *, dimensions: int = 2048) -> None:
        self._dimensions = dimensions
        self.limit = None
        """No token limit: all words of a text count."""
        self.parameters = 0
        self.tokenizer = ChecksumTokenizer(dimensions)
        self.name = f"words-{dimensions}"

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the words of each text."""
        return [len(WORD_PATTERN.findall(text)) for text in texts]

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self._dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word, times in Counter(split_words(text, fold="lower")).items():
                row[_word_bucket(word, self._dimensions)] += times
        return to_unit_rows(np.sqrt(vectors))
