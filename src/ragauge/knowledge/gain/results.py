"""Result types of gain: terms, queries and added documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.record_types import TabularResult, record


class GainTerm(NamedTuple):
    """Term of a gain: a change and its weight."""

    name: str
    """A measure, context_recall or novelty. The value of a measure is its change, positive if better."""
    weight: float
    value: float
    """NaN if undefined, with the reason in `why`; such a term is not in the sum."""
    low: float = float("nan")
    high: float = float("nan")
    before: float = float("nan")
    after: float = float("nan")
    n: int = 0
    """Number of queries with a value; for `novelty`, of documents."""
    reason: str = ""


class QueryChange(NamedTuple):
    """Change of one query."""

    query: str
    text: str
    gain: float
    """Weighted sum of its changes."""
    changes: Mapping[str, float]
    """Change by term, positive if better; terms without a value are missing."""
    entered: tuple[str, ...] = ()
    """Added documents in its top k after."""
    pushed_out: tuple[str, ...] = ()
    """Relevant documents in its top k before but not after."""


class AddedDocument(NamedTuple):
    """One added document."""

    id: str
    novelty: float
    """NaN if unknown."""
    relevant: int
    """Number of queries to which it is judged relevant."""
    entered: int
    """Number of queries with it in the top k."""


@record("ragauge-gain", 1)
@dataclass(frozen=True)
class Gain(TabularResult, report="ragauge.knowledge.gain.report"):
    """Gain of a corpus from added documents."""

    total: float
    """Sum of weight times value over the defined terms; NaN if there are none."""
    low: float
    high: float
    confidence: float
    terms: Sequence[GainTerm]
    k: int
    added: int
    removed: int
    changed: int
    """Number of documents with the same id and another text."""
    queries: int
    """Number of queries run on both snapshots."""
    changed_queries: Sequence[QueryChange]
    """Queries with a changed term, largest gain or loss first; changes may cancel out."""
    documents: Sequence[AddedDocument] = ()
    """Added documents; those in the top k of most queries first."""
    query_gain: float = float("nan")
    """Gain from queries: `total` without novelty."""
    query_gain_low: float = float("nan")
    query_gain_high: float = float("nan")
    p: float = float("nan")
    """P-value of the gain from queries, by a randomisation test over queries."""
    novelty_definition: str = "mean"
    """Definition of novelty used for the term."""
    documents_known: bool = True
    """Whether the documents of both snapshots are known; otherwise the added ones may be unknown."""
    terms_without_cutoff: Sequence[str] = ()
    """Measures that cannot have a cutoff in ranks; they are computed on the first k documents."""
    system: str = ""
    dataset: str = ""
    judge: str = ""
    embedder: str = ""
    before: str = ""
    after: str = ""
    """Name of the snapshot after."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    @property
    def gained(self) -> list[QueryChange]:
        """Queries with a positive gain."""
        return [query for query in self.changed_queries if query.gain > 0]

    @property
    def lost(self) -> list[QueryChange]:
        """Queries with a negative gain."""
        return [query for query in self.changed_queries if query.gain < 0]

    @property
    def even(self) -> list[QueryChange]:
        """Queries that changed with a gain of 0: changes cancel out or have no weight."""
        return [query for query in self.changed_queries if not query.gain]
