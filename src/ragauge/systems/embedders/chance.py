"""Chance: a direction for each text that says nothing about it. Whoever is no better has learned nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ragauge.errors import BadInput
from ragauge.seams import Vectors


class Chance:
    """A direction drawn for each text by the text itself and `seed`; unit length.

    The same text has the same direction everywhere; any two others are as near as any two. Over N documents, each is
    among the first k of a query with probability k/N.
    """

    def __init__(self, *, dimensions: int = 64, seed: int = 0) -> None:
        if dimensions < 1:
            raise BadInput(f"there are no vectors of {dimensions} dimensions")
        self._dimensions, self._seed = dimensions, seed
        self.limit = None
        """All of a text decides."""
        self.parameters = 0
        self.trained = False
        self.name = f"chance-{dimensions}-{seed}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        vectors = np.empty((len(texts), self._dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            told = f"{self._seed}\0{text}".encode("utf-8", "surrogatepass")
            drawn = np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.blake2b(told, digest_size=16).digest())))
            direction = drawn.standard_normal(self._dimensions)
            row[:] = direction / np.linalg.norm(direction)
        return vectors
