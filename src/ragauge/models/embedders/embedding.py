"""Embedding of many texts: in batches, with checked vectors, and on request without stopping at a text that fails."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BackendFailed, MissingExtra, RagaugeError
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.vectors import InvalidVectors, check_vectors
from ragauge.models.embedders import CachedEmbedder

EMBEDDING_BATCH_SIZE = 256
MAX_INITIAL_FAILURES = 20
"""Number of failures before any success after which the embedder, not the texts, is blamed."""
MAX_ERROR_CHARS = 500
"""Maximum number of characters kept of an error message."""


class CheckedEmbedder:
    """Embedder that checks the shape of its vectors, counts its texts and measures its time."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.computed = 0
        """Number of texts embedded."""
        self.seconds = 0.0
        """Time to embed them, in seconds."""
        self._dimension: int | None = None

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts, one row per text; raise InvalidVectors for any other output."""
        began = time.perf_counter()
        vectors = check_vectors(self._embedder.embed(texts), len(texts), self.name)
        self._check_dimension(vectors)
        self.seconds += time.perf_counter() - began
        self.computed += len(texts)
        return vectors

    def _check_dimension(self, vectors: Vectors) -> None:
        if not len(vectors):
            return
        if self._dimension is None:
            self._dimension = vectors.shape[1]
        if vectors.shape[1] != self._dimension:
            raise InvalidVectors(
                f"the embedder `{self.name}` returned vectors of {self._dimension} dimensions, then of "
                f"{vectors.shape[1]}"
            )


@dataclass(frozen=True, eq=False)
class EmbeddingResult:
    """Vectors of texts, and the texts that failed."""

    vectors: Vectors
    """One row per text, of NaN for a text that failed."""
    failures: Mapping[int, str]
    """Error message by row of a text that failed."""
    computed: int = 0
    """Number of vectors computed rather than read from the cache."""
    seconds: float = math.nan
    """Time to compute these vectors, in seconds."""


def embed_texts(
    embedder: Embedder,
    texts: Sequence[str],
    *,
    cache: Path | None = None,
    progress: ProgressCallback = no_progress,
    on_error: Literal["raise", "record"] = "raise",
) -> EmbeddingResult:
    """Embed texts in batches of similar length, so that embedders with padding compute little padding.

    With the folder `cache`, known vectors are reused. With `on_error="record"`, a batch that fails is halved down to
    the texts that fail, and BackendFailed is raised only if all of them fail, or many before the first success.

    >>> from ragauge.models.embedders.baselines import RandomEmbedder
    >>> result = embed_texts(RandomEmbedder(dimensions=4), ["one", "two"])
    >>> result.vectors.shape, result.computed, result.failures
    ((2, 4), 2, {})
    """
    checked = CheckedEmbedder(embedder)
    source: Embedder = checked if cache is None else CachedEmbedder(checked, cache / "embeddings")
    if on_error == "raise" and len(texts) <= EMBEDDING_BATCH_SIZE:
        return EmbeddingResult(source.embed(texts), {}, checked.computed, checked.seconds)
    batches = _EmbeddedBatches(source, texts, progress, records_errors=on_error == "record")
    batches.embed_all()
    return EmbeddingResult(batches.vectors(), dict(sorted(batches.failed.items())), checked.computed, checked.seconds)


def raises_for_all(error: Exception) -> bool:
    """Return whether an error concerns the embedder as a whole, so that it must not be recorded for single texts."""
    return isinstance(error, InvalidVectors | MissingExtra) or (
        isinstance(error, BackendFailed) and error.fails_all_calls
    )


def summarise_error(error: BaseException) -> str:
    """Return the message of an error in one line, with its class if it is not an error of ragauge."""
    message = error.message if isinstance(error, RagaugeError) else f"{type(error).__name__}: {error}"
    return " ".join(message.split())[:MAX_ERROR_CHARS]


class _EmbeddedBatches:
    """Texts being embedded in batches, with their vectors and errors."""

    def __init__(
        self, source: Embedder, texts: Sequence[str], progress: ProgressCallback, *, records_errors: bool
    ) -> None:
        self._source, self._texts, self._progress, self._records_errors = source, texts, progress, records_errors
        self._rows: dict[int, Vectors] = {}
        self.failed: dict[int, str] = {}
        self._last_error: Exception | None = None

    def embed_all(self) -> None:
        order = sorted(range(len(self._texts)), key=lambda row: len(self._texts[row]))
        batches = [order[start : start + EMBEDDING_BATCH_SIZE] for start in range(0, len(order), EMBEDDING_BATCH_SIZE)]
        middle = len(batches) // 2
        # Texts of median length first: an embedder that fails on those fails on all. The shortest texts may be empty,
        # and there may be many of them.
        for batch in [*batches[middle : middle + 1], *batches[:middle], *batches[middle + 1 :]]:
            self._embed_batch(batch)
            self._progress(Progress("embedding", len(self._rows) + len(self.failed), len(order)))
        if self._texts and not self._rows:
            raise self._failure_error(f"all {len(self._texts)} texts")

    def vectors(self) -> Vectors:
        """Return one row per text, of NaN for each that failed."""
        dimensions = {len(vector) for vector in self._rows.values()}
        if len(dimensions) > 1:
            names = ", ".join(map(str, sorted(dimensions)))
            raise InvalidVectors(f"the embedder `{self._source.name}` has vectors of different dimensions: {names}")
        kind = np.float32 if self._records_errors or not self._rows else next(iter(self._rows.values())).dtype
        out: Vectors = np.full((len(self._texts), *dimensions) if dimensions else (0, 0), math.nan, kind)
        for row, vector in self._rows.items():
            out[row] = vector
        return out

    def _embed_batch(self, rows: Sequence[int]) -> None:
        try:
            vectors = self._source.embed([self._texts[row] for row in rows])
        except Exception as error:  # any error can be due to one of these texts
            if not self._records_errors or raises_for_all(error):
                raise
            self._isolate_failure(rows, error)
            return
        self._rows.update(zip(rows, vectors, strict=True))

    def _isolate_failure(self, rows: Sequence[int], error: Exception) -> None:
        if len(rows) > 1:
            half = len(rows) // 2
            self._embed_batch(rows[:half])
            self._embed_batch(rows[half:])
            return
        self.failed[rows[0]] = summarise_error(error)
        self._last_error = error
        if not self._rows and len(self.failed) >= MAX_INITIAL_FAILURES:
            raise self._failure_error(f"the first {MAX_INITIAL_FAILURES} texts")

    def _failure_error(self, texts: str) -> BackendFailed:
        error = self._last_error
        reason = summarise_error(error) if error is not None else "it returned nothing"
        hint = error.hint if isinstance(error, RagaugeError) else None
        return BackendFailed(f"the embedder `{self._source.name}` failed on {texts}: {reason}", hint=hint)


class BatchedEmbedder:
    """Embedder that splits many texts into batches and reports progress."""

    def __init__(self, embedder: Embedder, progress: ProgressCallback = no_progress) -> None:
        self._embedder = embedder
        self._progress = progress
        self.name = embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        return embed_texts(self._embedder, texts, progress=self._progress).vectors
