"""Result types of the graph analysis of a corpus."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.findings import HistogramBin
from ragauge.core.record_types import TabularResult, record
from ragauge.core.summaries import Mean

MAX_STEPS = 3
"""Number of links up to which distances are counted; larger ones are `further`."""
DISTANCE_LABELS = ("seeds", "1 link", "2 links", "3 links", "further", "never")
"""Distances of a document from the nearest seed; `never` means that there is no path."""
NEAR_MAX_LINKS = 2
"""Maximum number of links that counts as near."""


class LinkKind(NamedTuple):
    """Links of one kind."""

    name: str
    links: int
    """Number of linked document pairs."""
    only: int
    """Number of these pairs that no other kind links."""
    documents: int
    """Number of documents with such a link."""


class SharedLinks(NamedTuple):
    """Number of document pairs that two kinds both link."""

    one: str
    other: str
    pairs: int


class DegreeSummary(NamedTuple):
    """Links per document."""

    mean: float
    median: float
    max: int
    isolated: int
    """Number of documents without links."""
    bars: Sequence[HistogramBin] = ()
    """Histogram of links per document; the last bar holds all larger values."""


class Hub(NamedTuple):
    """Document with many links."""

    id: str
    title: str
    """Title, or the start of the text."""
    links: int


class QueryReach(NamedTuple):
    """Number of documents of one query by distance, in the order of DISTANCE_LABELS."""

    query: str
    relevant: tuple[int, ...]
    others: tuple[int, ...]
    """Documents that are not relevant."""
    plain: tuple[int, ...]
    """Relevant documents found by plain search at the same depth as 0, 1, 2 and 3 links."""


class ReachableRecall(NamedTuple):
    """Recall if every document within a number of links is returned."""

    links: int
    documents: float
    """Mean number of these documents per query."""
    share: float
    """Their share of the corpus."""
    recall: Mean
    plain: Mean
    """Recall of plain search that returns the same number of documents."""
    gap: Mean
    """Difference `recall` minus `plain`, paired by query."""


@dataclass(frozen=True)
class Reach:
    """Distance of relevant documents from the seeds, along one kind of links or all."""

    kind: str
    """Link kind; empty for all kinds together."""
    nearer: Mean
    """Probability that a relevant document is nearer than another, seeds excluded; ties count half."""
    near: Mean
    """Share of the relevant documents that are near, seeds excluded."""
    near_others: Mean
    """Share of the other documents that are near, seeds excluded."""
    relevant: Sequence[Mean]
    """Share at each of DISTANCE_LABELS."""
    others: Sequence[Mean]
    within: Sequence[ReachableRecall]
    queries: Sequence[QueryReach] = ()


class LinkRelevance(NamedTuple):
    """How often links connect documents that are relevant to the same query."""

    kind: str
    """Link kind; empty for all kinds together."""
    links: int
    pairs: int
    """Number of document pairs that are relevant to a common query."""
    linked: int
    """Number of these pairs that are linked."""
    possible: int
    """Number of all document pairs."""
    queries: int = 0
    """Number of queries with two or more relevant documents."""
    star: float = math.nan
    """Mean over these queries of the largest Jaccard overlap with one document's neighbours."""
    stars: int = 0
    """Number of queries whose relevant documents are exactly the neighbours of one document."""

    @property
    def share(self) -> float:
        """Share of the links that connect such a pair."""
        return self.linked / self.links if self.links else math.nan

    @property
    def chance(self) -> float:
        """Expected share for randomly placed links."""
        return self.pairs / self.possible if self.possible else math.nan

    @property
    def covered(self) -> float:
        """Share of such pairs that are linked."""
        return self.linked / self.pairs if self.pairs else math.nan


@record("ragauge-graph", 2)
@dataclass(frozen=True)
class GraphAnalysis(TabularResult):
    """Corpus as a graph, with the recall that graph retrieval could reach at most."""

    corpus: str
    documents: int
    links: int
    """Number of linked document pairs, over all kinds."""
    kinds: Sequence[LinkKind]
    degrees: DegreeSummary
    components: int
    """Number of connected components, including isolated documents."""
    largest: Sequence[int]
    """Sizes of the largest components, in documents."""
    clustering: float
    """Mean local clustering coefficient; 0 for documents with fewer than two neighbours."""
    hubs: Sequence[Hub] = ()
    shared: Sequence[SharedLinks] = ()
    embedder: str = ""
    """Embedder that finds the seeds."""
    seeds: int = 0
    queries: int = 0
    """Number of queries with a relevant document in the corpus."""
    confidence: float = 0.95
    reach: Sequence[Reach] = ()
    """All kinds together first, then each kind if several have links; empty without judgments."""
    link_relevance: Sequence[LinkRelevance] = ()
    """All kinds together first, then each kind if several have links; empty without judgments."""
    warnings: Sequence[str] = ()
    """Possible problems with the links, one sentence each."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
