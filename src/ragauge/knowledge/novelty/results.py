"""Results of `novelty`: how new each document is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.record_types import TabularResult, record

CONTAINED_SHARE = 0.95
"""Minimum share of a document's shingles in one known document for the state `contained`."""
NEAR_PERCENTILE = 5.0
"""Percentile rank of novelty below which a document is `near`: more similar to a known one than these usually are."""


class ChunkSettings(NamedTuple):
    """How texts were split before they were embedded."""

    size: int
    """Maximum size of a chunk, in `unit`s."""
    overlap: int = 0
    unit: str = "characters"
    splitter: str = ""
    """Library that split the texts, with its version."""


class NearestChunk(NamedTuple):
    """Chunk of a document and its nearest known chunk."""

    chunk: int
    """Index of the chunk in the document, from 0."""
    text: str
    similarity: float
    """Cosine of the two; NaN if nothing is known or the chunk has a zero vector."""
    document: str = ""
    """Document of the nearest chunk."""
    known_text: str = ""
    """Text of the nearest chunk."""


class DocumentClaim(NamedTuple):
    """Claim of a document and its state: `new`, `known`, `conflicting` or `unscored`."""

    text: str
    state: str
    documents: tuple[str, ...] = ()
    """Documents that support or contradict it."""
    reason: str = ""
    """Reason if it is unscored, otherwise the judge's explanation, if any."""


@dataclass(frozen=True)
class DocumentNovelty:
    """Novelty of one document.

    NaN means undefined, for example for a text without words.
    """

    id: str
    chunks: int
    mean: float
    """Mean over its chunks of 1 minus the highest cosine with a known chunk."""
    least: float
    """1 minus the highest cosine of any of its chunks with a known chunk."""
    lexical: float
    """Share of its shingles that no known document has."""
    percentile: float = float("nan")
    """Percentile rank of `mean` among known documents, each against all others; 0 to 100."""
    least_percentile: float = float("nan")
    lexical_percentile: float = float("nan")
    """Percentile ranks of `least` and `lexical`."""
    contained: float = float("nan")
    """Largest share of its shingles in a single known document."""
    container: str = ""
    """Id of that document."""
    reason: str = ""
    """Reason why a value is undefined."""
    nearest: Sequence[NearestChunk] = ()
    """Nearest known chunk of each chunk."""
    claims: Sequence[DocumentClaim] = ()
    """Judged claims, if a judge was used."""

    @property
    def state(self) -> str:
        """`contained`, `near` or `new`; empty if undefined."""
        if self.contained >= CONTAINED_SHARE:
            return "contained"
        if math.isnan(self.percentile):
            return ""
        return "near" if self.percentile < NEAR_PERCENTILE else "new"


@record("ragauge-novelty", 1)
@dataclass(frozen=True)
class Novelty(TabularResult, report="ragauge.knowledge.novelty.report"):
    """Novelty of documents against a corpus."""

    documents: Sequence[DocumentNovelty]
    known: int
    """Number of known documents."""
    known_chunks: int
    embedder: str
    chunking: ChunkSettings
    reference_chunks: int = 0
    """Number of known chunks behind the percentiles; a sample if there are too many."""
    reference_documents: int = 0
    """Number of known documents with these chunks; whole documents are sampled."""
    reference_values: Mapping[str, Sequence[float]] = field(default_factory=lambda: EMPTY_MAPPING)
    """`mean`, `least` and `lexical` of these documents, each against all others except exact copies."""
    judge: str = ""
    seconds: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
