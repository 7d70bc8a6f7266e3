"""Random vectors as a baseline: an embedder that is no better has learned nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ragauge.errors import BadInput
from ragauge.seams import Vectors


class Chance:
    """Embedder with a random vector of unit length for each text, determined by text and seed.

    Equal texts have equal vectors; all other pairs are equally distributed. Each of N documents is among the first k
    hits of a query with probability k/N.
    """

    def __init__(self, *, dimensions: int = 64, seed: int = 0) -> None:
        if dimensions < 1:
            raise BadInput(f"there are no vectors of {dimensions} dimensions")
        self._dimensions, self._seed = dimensions, seed
        self.limit = None
        """No token limit: the whole text determines the vector."""
        self.parameters = 0
        self.trained = False
        self.name = f"chance-{dimensions}-{seed}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        vectors = np.empty((len(texts), self._dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            told = f"{self._seed}\0{text}".encode("utf-8", "surrogatepass")
            drawn = np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.blake2b(told, digest_size=16).digest())))
            direction = drawn.standard_normal(self._dimensions)
            row[:] = direction / np.linalg.norm(direction)
        return vectors
