"""More nouns: a corpus looked at as a graph (`Web`), and how far its answers are from where a walk begins (`Reach`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.findings import Bar
from ragauge.outcomes import Mean
from ragauge.records import NOTHING

STEPS = 3
"""So many links are counted one by one; what lies behind them is `further`."""
DISTANCES = ("seeds", "1 link", "2 links", "3 links", "further", "never")
"""How far a document is from the nearest seed; `never` has no way to any."""
NEAR = 2
"""At most so many links are near."""


class Kind(NamedTuple):
    """Links of one kind."""

    name: str
    links: int
    """Pairs of documents."""
    only: int
    """Of these, pairs that no other kind links."""
    documents: int
    """Documents that have such a link."""


class Shared(NamedTuple):
    """Pairs of documents that two kinds link both."""

    one: str
    other: str
    pairs: int


class Degrees(NamedTuple):
    """How many links documents have."""

    mean: float
    median: float
    most: int
    isolated: int
    """Documents without any."""
    bars: Sequence[Bar] = ()
    """How many documents have so many links; the last has all that are beyond the others."""


class Hub(NamedTuple):
    """A document with many links."""

    id: str
    title: str
    """Or how its text begins."""
    links: int


class QueryReach(NamedTuple):
    """The documents of one query by their distance, in the order of DISTANCES."""

    query: str
    relevant: tuple[int, ...]
    others: tuple[int, ...]
    """All documents that are not relevant."""
    plain: tuple[int, ...]
    """Relevant documents that plain search has among its first, where it returns as many as are within 0, 1, 2, 3."""


class Within(NamedTuple):
    """The most that a walk of so many links can find: what it would if it returned everything within them."""

    links: int
    documents: float
    """How many documents that is, a query."""
    share: float
    """The part of the corpus that they are."""
    recall: Mean
    plain: Mean
    """The recall of plain search where it returns as many documents."""
    gap: Mean
    """By how much the former is higher, query by query."""


@dataclass(frozen=True)
class Reach:
    """How far relevant documents are from the seeds, along the links of one kind or of all."""

    kind: str
    """Nothing for all kinds together."""
    nearer: Mean
    """The chance that a relevant document is nearer than one that is not, neither being a seed; ties count half."""
    near: Mean
    """The part of the relevant documents, less the seeds, that is near."""
    near_others: Mean
    """The same of all others."""
    relevant: Sequence[Mean]
    """The part at each of DISTANCES."""
    others: Sequence[Mean]
    within: Sequence[Within]
    queries: Sequence[QueryReach] = ()


class Following(NamedTuple):
    """Whether links join what is relevant to the same query."""

    kind: str
    """Nothing for all kinds together."""
    links: int
    pairs: int
    """Pairs of documents that some query has both of as relevant."""
    linked: int
    """Of these, the ones that are linked."""
    possible: int
    """All pairs of documents."""
    queries: int = 0
    """Queries with several relevant documents."""
    star: float = math.nan
    """How much these are the neighbours of a single document: the mean over queries of the greatest overlap, shared
    ones divided by all of both."""
    stars: int = 0
    """Queries of which they are exactly these."""

    @property
    def share(self) -> float:
        """The part of the links that joins such a pair."""
        return self.linked / self.links if self.links else math.nan

    @property
    def chance(self) -> float:
        """The part that would, were the same number of links laid anywhere."""
        return self.pairs / self.possible if self.possible else math.nan

    @property
    def covered(self) -> float:
        """The part of such pairs that is linked."""
        return self.linked / self.pairs if self.pairs else math.nan


@dataclass(frozen=True)
class Web:
    """A corpus as a graph, and what walking on it could find at most."""

    corpus: str
    documents: int
    links: int
    """Pairs of documents, whatever links them."""
    kinds: Sequence[Kind]
    degrees: Degrees
    components: int
    """Parts that no link joins, documents without a link among them."""
    largest: Sequence[int]
    """How many documents the largest of them have."""
    clustering: float
    """The mean over documents of the part of their neighbours' pairs that is linked; 0 for fewer than two."""
    hubs: Sequence[Hub] = ()
    shared: Sequence[Shared] = ()
    embedder: str = ""
    """What finds the seeds."""
    seeds: int = 0
    queries: int = 0
    """How many were asked: those with a relevant document in the corpus."""
    confidence: float = 0.95
    reach: Sequence[Reach] = ()
    """All kinds together first, then, where several have links, each alone; nothing where nothing is judged."""
    following: Sequence[Following] = ()
    """Likewise."""
    doubts: Sequence[str] = ()
    """What may be wrong with the links, a sentence each: there are none, or they name no documents."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
