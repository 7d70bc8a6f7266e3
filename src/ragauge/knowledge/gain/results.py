"""Result types of gain: terms, queries, contributions and the best batch."""

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


@dataclass(frozen=True)
class DocumentContribution:
    """Contribution of one added document."""

    id: str
    causal: float
    """Gain with all added documents minus the gain without this one.

    The novelty of the others stays as it is; the document contributes its own divided by the number added. NaN if it
    was not computed or a query failed.
    """
    labelled: float
    """Sum over its relevant queries of grade times the query's weighted mean change.

    The weighted mean change is the weighted sum of changes over the sum of absolute weights. It is not causal.
    """
    novelty: float
    alone: float = float("nan")
    """Gain if no other document is added, with its full novelty.

    The reference is the corpus after, minus all added documents. This is the corpus before, unless documents were also
    removed or changed.
    """
    changes: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING)
    """`causal` by term, unweighted; empty if it is NaN."""
    helped: Sequence[str] = ()
    """Queries that are worse without it."""
    harmed: Sequence[str] = ()
    """Queries that are better without it."""
    relevant: int = 0
    """Number of queries to which it is judged relevant."""
    entered: int = 0
    """Number of queries with it in the top k."""


class BatchStep(NamedTuple):
    """Step of the best batch: a document and the gain of the batch up to it."""

    id: str
    marginal: float
    total: float
    changes: Mapping[str, float] = EMPTY_MAPPING
    """`marginal` by term, weighted."""


@record("ragauge-gain", 1)
@dataclass(frozen=True)
class Gain(TabularResult):
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
    documents: Sequence[DocumentContribution] = ()
    """Added documents, largest contribution first."""
    batch: Sequence[BatchStep] = ()
    """Documents chosen greedily, starting from the reference corpus of `alone`."""
    batch_measured: float = float("nan")
    """Measured gain if only the batch is added to the corpus before.

    NaN if it was not measured, a query failed, or documents were also removed or changed.
    """
    query_gain: float = float("nan")
    """Gain from queries: `total` without novelty."""
    query_gain_low: float = float("nan")
    query_gain_high: float = float("nan")
    p: float = float("nan")
    """P-value of the gain from queries, by a randomisation test over queries."""
    attribution: str = "none"
    """Method for `causal`: `rebuilt`, `dropped` or `none`.

    `rebuilt` builds the system again without each document. `dropped` removes the document from a deeper ranking.
    """
    exact: bool = True
    """Whether removing a document from a ranking equals building the system without it."""
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
