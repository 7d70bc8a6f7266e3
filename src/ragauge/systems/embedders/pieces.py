"""Embed many texts in batches, to report progress and to lose little work on interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ragauge.seams import Embedder, Vectors

PIECE = 256


class InPieces:
    """Embedder that splits many texts into batches and calls `progress` with done and total."""

    def __init__(self, embedder: Embedder, progress: Callable[[int, int], None]) -> None:
        self._embedder = embedder
        self._progress = progress
        self.name = embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text."""
        if len(texts) <= PIECE:
            return self._embedder.embed(texts)
        parts = []
        # Sorted by length, so that embedders with padding get texts of similar length.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), PIECE):
            parts.append(self._embedder.embed([texts[i] for i in order[start : start + PIECE]]))
            self._progress(min(start + PIECE, len(order)), len(order))
        vectors = np.concatenate(parts)
        out = np.empty_like(vectors)
        out[order] = vectors
        return out
