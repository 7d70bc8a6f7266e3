"""Vectors of the texts of a study, its texts without a usable vector, and the speed of embedding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragauge.compute.progress import ProgressCallback, no_progress
from ragauge.core.errors import MissingExtra
from ragauge.core.protocols import Embedder, Vectors
from ragauge.core.records import Ints
from ragauge.embedder_study.results import EmbeddingFailure, FailureCount
from ragauge.embedder_study.scoring import usable_rows
from ragauge.models.embedders.embedding import embed_texts
from ragauge.output.numbers import pluralise

SPEED_SAMPLE_TEXTS = 256
"""Number of texts embedded again to measure the speed if vectors came from the cache."""
MIN_COMPUTED_SHARE = 0.9
"""Minimum share of texts computed, not cached, for their time to count as the speed."""
MAX_FAILURES_LISTED = 50
"""Maximum number of failures listed; all are counted."""


@dataclass(frozen=True, eq=False)
class TextVectors:
    """Vectors of texts.

    A text without a usable vector has a row of NaN or zeros, and a failure.
    """

    vectors: Vectors
    failed_texts: Sequence[EmbeddingFailure]
    computed: int = 0
    """Number of vectors computed rather than read from the cache."""
    per_second: float = math.nan
    """Computed vectors per second; NaN if none was computed."""

    @property
    def valid_rows(self) -> Ints:
        """Rows with a usable vector."""
        return np.flatnonzero(usable_rows(self.vectors))


def embed_by_id(
    embedder: Embedder,
    texts: Mapping[str, str],
    *,
    kind: str = "document",
    cache: Path | None = None,
    progress: ProgressCallback = no_progress,
) -> TextVectors:
    """Embed texts by id, and record those that fail; BackendFailed is raised if all fail."""
    for text in list(texts.values())[:1]:
        _warm_up(embedder, text)
    result = embed_texts(embedder, list(texts.values()), cache=cache, progress=progress, on_error="record")
    failed_texts = list_failures(list(texts), result.vectors, kind, result.failures)
    return TextVectors(result.vectors, failed_texts, result.computed, result.per_second)


def _warm_up(embedder: Embedder, text: str) -> None:
    """Embed one text to trigger lazy loading, whose time would count as embedding time."""
    try:
        embedder.embed([text])
    except MissingExtra:
        raise
    except Exception:  # noqa: S110 - it is raised again when the text is embedded
        pass


class EmbeddingSpeed(NamedTuple):
    """Texts per second, with a note if they are those of a sample."""

    per_second: float
    note: str = ""


def measure_speed(embedder: Embedder, texts: Sequence[str], embedded: TextVectors) -> EmbeddingSpeed:
    """Measure texts per second, with a sample if too many vectors came from the cache."""
    # The texts that were not cached may be unusual, for example only the long ones.
    different = len(set(texts))
    if embedded.computed >= MIN_COMPUTED_SHARE * different:
        return EmbeddingSpeed(embedded.per_second)
    # Sample evenly over the lengths, each in proportion to its frequency.
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    positions = np.linspace(0, len(order) - 1, min(SPEED_SAMPLE_TEXTS, len(order))).astype(int).tolist()
    sample = {str(order[position]): texts[order[position]] for position in positions}
    note = (
        f"{different - embedded.computed:,} of {different:,} vectors are cached: docs/s was measured by embedding a "
        f"sample of {pluralise(len(positions), 'document')} again"
    )
    return EmbeddingSpeed(embed_by_id(embedder, sample).per_second, note)


def list_failures(
    names: Sequence[str], vectors: Vectors, kind: str, errors: Mapping[int, str]
) -> list[EmbeddingFailure]:
    """List the texts without a usable vector, first those with an error (by row), then the others."""
    failures = [EmbeddingFailure(names[row], kind, "failed", error) for row, error in errors.items()]
    is_finite = np.asarray(np.isfinite(vectors).all(axis=1))
    failures += [
        EmbeddingFailure(names[row], kind, "zero" if is_finite[row] else "nan")
        for row in np.flatnonzero(~usable_rows(vectors)).tolist()
        if row not in errors
    ]
    return failures


def count_failures(failures: Sequence[EmbeddingFailure]) -> list[FailureCount]:
    """Count failures by kind of text and reason.

    >>> count_failures([EmbeddingFailure("d1", "document", "zero"), EmbeddingFailure("d2", "document", "zero")])
    [FailureCount(kind='document', reason='zero', n=2)]
    """
    counts = Counter((failure.kind, failure.reason) for failure in failures)
    return [FailureCount(kind, reason, n) for (kind, reason), n in counts.items()]
