"""Embedding of texts that isolates failures of single texts."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.records import Ints
from ragauge.embedder_study.results import EmbeddingFailure
from ragauge.embedder_study.scoring import usable_rows
from ragauge.models.embedders import EMBEDDING_BATCH_SIZE, CachedEmbedder
from ragauge.output.numbers import pluralise

MAX_INITIAL_FAILURES = 20
"""Number of failures before any success after which the embedder, not the texts, is blamed."""
SPEED_SAMPLE_TEXTS = 256
"""Number of texts embedded again to measure the speed if vectors came from the cache."""
MIN_COMPUTED_SHARE = 0.9
"""Minimum share of texts computed, not cached, for their time to count as the speed."""
MAX_FAILURES_LISTED = 50
"""Maximum number of failures listed; all are counted."""
MAX_ERROR_CHARS = 500
"""Maximum number of characters kept of an error message."""


@dataclass(frozen=True, eq=False)
class EmbeddedTexts:
    """Vectors of texts.

    A text without a usable vector has a row of NaN or zeros, and a failure.
    """

    vectors: Vectors
    faults: Sequence[EmbeddingFailure]
    computed: int = 0
    """Number of vectors computed rather than read from the cache."""
    seconds: float = math.nan
    """Time to compute these vectors, in seconds."""

    @property
    def good(self) -> Ints:
        """Rows with a usable vector."""
        return np.flatnonzero(usable_rows(self.vectors))

    @property
    def per_second(self) -> float:
        """Computed vectors per second; NaN if none was computed."""
        return self.computed / self.seconds if self.computed and self.seconds > 0 else math.nan


def embed_texts(
    embedder: Embedder,
    texts: Mapping[str, str],
    *,
    what: str = "document",
    cache: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> EmbeddedTexts:
    """Embed texts by id, in batches of similar length.

    With `cache`, known vectors are reused. A batch that fails is halved down to the texts that fail. BackendFailed is
    raised if all texts fail.
    """
    watched = TimedEmbedder(embedder)
    if texts and not callable(getattr(embedder, "embed", None)):
        raise BadInput(f"{embedder!r} is no embedder: it has no `embed`")
    source: Embedder = watched if cache is None else CachedEmbedder(watched, cache / "embeddings")
    if texts:
        watched.warm_up(next(iter(texts.values())))
    rows = _GuardedEmbedding(source, list(texts.values()), progress)
    rows.fill()
    vectors = rows.vectors()
    names = list(texts)
    faults = [EmbeddingFailure(names[at], what, "failed", why) for at, why in sorted(rows.failed.items())]
    faults += find_unusable_vectors(names, vectors, what, known=rows.failed)
    return EmbeddedTexts(vectors, faults, watched.computed, watched.seconds)


class EmbeddingSpeed(NamedTuple):
    """Texts per second, with a note if they are those of a sample."""

    per_second: float
    note: str = ""


def measure_speed(embedder: Embedder, texts: Sequence[str], found: EmbeddedTexts) -> EmbeddingSpeed:
    """Measure texts per second, with a sample if too many vectors came from the cache."""
    # The texts that were not cached may be unusual, for example only the long ones.
    different = len(set(texts))
    if found.computed >= MIN_COMPUTED_SHARE * different:
        return EmbeddingSpeed(found.per_second)
    # Sample evenly over the lengths, each in proportion to its frequency.
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    chosen = [
        order[at] for at in np.linspace(0, len(order) - 1, min(SPEED_SAMPLE_TEXTS, len(order))).astype(int).tolist()
    ]
    fresh = embed_texts(embedder, {str(at): texts[at] for at in chosen})
    note = (
        f"{different - found.computed:,} of {different:,} vectors are cached: docs/s is that of a sample of "
        f"{pluralise(len(chosen), 'document')}, which was embedded again"
    )
    return EmbeddingSpeed(fresh.per_second, note)


def find_unusable_vectors(
    names: Sequence[str], vectors: Vectors, what: str, known: Mapping[int, str] | None = None
) -> list[EmbeddingFailure]:
    """Return the vectors that cannot be ranked, except those in `known`."""
    numbers = np.asarray(np.isfinite(vectors).all(axis=1))
    return [
        EmbeddingFailure(names[at], what, "zero" if numbers[at] else "nan")
        for at in np.flatnonzero(~usable_rows(vectors)).tolist()
        if at not in (known or {})
    ]


def count_failures(faults: Sequence[EmbeddingFailure]) -> dict[str, int]:
    """Count failures by text type and reason.

    >>> count_failures([EmbeddingFailure("d1", "document", "zero"), EmbeddingFailure("d2", "document", "zero"),
    ...     EmbeddingFailure("q1", "query", "nan")])
    {'document zero': 2, 'query nan': 1}
    """
    return dict(Counter(f"{one.what} {one.why}" for one in faults))


def error_summary(error: BaseException) -> str:
    """Return the message of an error in one line, at most MAX_ERROR_CHARS long."""
    message = getattr(error, "message", None)
    told = message if isinstance(message, str) else f"{type(error).__name__}: {error}"
    return " ".join(told.split())[:MAX_ERROR_CHARS]


class InvalidVectors(BadInput):
    """Embedder output that is not one row of numbers per text.

    No single text causes this.
    """


class TimedEmbedder:
    """Embedder wrapper that measures time and checks the vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.computed = 0
        self.seconds = 0.0
        self._dimension: int | None = None

    def warm_up(self, text: str) -> None:
        """Embed one text to trigger lazy loading.

        Errors other than MissingExtra are ignored here.
        """
        try:
            self._embedder.embed([text])
        except MissingExtra:
            raise
        except Exception:  # noqa: S110 - whatever it is, it comes again
            pass

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, one row per text; raise InvalidVectors for any other output."""
        began = time.perf_counter()
        vectors = self._check_vectors(self._embedder.embed(texts), len(texts))
        self.seconds += time.perf_counter() - began
        self.computed += len(texts)
        return vectors

    def _check_vectors(self, given: object, wanted: int) -> Vectors:
        try:
            vectors = np.asarray(given, np.float32)
        except (TypeError, ValueError) as error:
            raise InvalidVectors(
                f"the embedder `{self.name}` gave something else than rows of numbers ({error})"
            ) from None
        if vectors.ndim != 2 or len(vectors) != wanted or not vectors.shape[1]:
            shape = " x ".join(map(str, vectors.shape)) or "no"
            raise InvalidVectors(
                f"the embedder `{self.name}` gave {shape} numbers for {wanted} texts, not a row for each"
            )
        if self._dimension is None:
            self._dimension = vectors.shape[1]
        if vectors.shape[1] != self._dimension:
            raise InvalidVectors(
                f"the embedder `{self.name}` gave vectors of {self._dimension} numbers, and then of {vectors.shape[1]}"
            )
        return vectors


class _GuardedEmbedding:
    """Texts being embedded in batches, with their vectors and errors."""

    def __init__(self, source: Embedder, texts: Sequence[str], progress: ProgressCallback) -> None:
        self._source, self._texts, self._progress = source, texts, progress
        self._found: dict[int, Vectors] = {}
        self.failed: dict[int, str] = {}
        self._last: Exception | None = None

    def fill(self) -> None:
        order = sorted(range(len(self._texts)), key=lambda at: len(self._texts[at]))
        pieces = [order[start : start + EMBEDDING_BATCH_SIZE] for start in range(0, len(order), EMBEDDING_BATCH_SIZE)]
        middle = len(pieces) // 2
        # Texts of median length first: an embedder that fails on those fails on everything. The shortest may be empty,
        # and
        # there may be many of them.
        for piece in [*pieces[middle : middle + 1], *pieces[:middle], *pieces[middle + 1 :]]:
            self._embed_batch(piece)
            self._progress(Progress("embedding", len(self._found) + len(self.failed), len(order)))
        if self._texts and not self._found:
            raise self._failure_error(f"every one of {len(self._texts)} texts")

    def vectors(self) -> Vectors:
        """Return one row per text, NaN for each that failed."""
        dimensions = {len(row) for row in self._found.values()}
        if len(dimensions) > 1:
            raise InvalidVectors(f"the embedder `{self._source.name}` has vectors of {sorted(dimensions)} numbers")
        out = np.full((len(self._texts), *dimensions) if dimensions else (0, 0), math.nan, np.float32)
        for at, row in self._found.items():
            out[at] = row
        return out

    def _embed_batch(self, places: Sequence[int]) -> None:
        try:
            vectors = self._source.embed([self._texts[at] for at in places])
        except (InvalidVectors, MissingExtra):
            raise
        except Exception as error:  # any other error is due to these texts
            if getattr(error, "final", False):
                raise
            self._isolate_failure(places, error)
            return
        self._found.update(zip(places, vectors, strict=True))

    def _isolate_failure(self, places: Sequence[int], error: Exception) -> None:
        if len(places) > 1:
            half = len(places) // 2
            self._embed_batch(places[:half])
            self._embed_batch(places[half:])
            return
        self.failed[places[0]] = error_summary(error)
        self._last = error
        if not self._found and len(self.failed) >= MAX_INITIAL_FAILURES:
            raise self._failure_error(f"the first {MAX_INITIAL_FAILURES} texts")

    def _failure_error(self, what: str) -> BackendFailed:
        said = error_summary(self._last) if self._last is not None else "it gave nothing"
        hint = getattr(self._last, "hint", None)
        return BackendFailed(f"the embedder `{self._source.name}` failed on {what}: {said}", hint=hint)
