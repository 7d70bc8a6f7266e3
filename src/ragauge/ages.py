"""The nouns of freshness: which version of what a document is, and what of a ranking is stale."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ragauge.records import NOTHING, ByMeasure, Scores

RATES = ("stale_rate", "stale_query_rate", "conflict_rate", "conflict_query_rate")
"""What a run has of which less is better."""
BY_VERSIONS = "versions "
"""How the judge of such figures is called, before the fingerprint of the versions."""


class Version(NamedTuple):
    """What is known of a document's age. Documents that share a key say the same thing at different times."""

    doc: str
    key: str | None = None
    effective: float | None = None
    """When it began to hold, in seconds since 1970; only the order matters."""
    superseded_by: str | None = None


class StaleHit(NamedTuple):
    """A document in a ranking that another one replaces."""

    doc: str
    rank: int
    """From 1."""
    newer: str
    """The one that replaces it, or the one that replaces that, and so on to the newest."""
    newer_rank: int | None = None
    """Where that one stands within the top k, if it does."""
    why: str = ""
    """`superseded` where the versions say so, `older` where another one of its key is newer."""


class Conflict(NamedTuple):
    """Versions of one thing, all in one ranking."""

    key: str
    docs: tuple[str, ...]
    """In the order of the ranking."""
    excerpts: tuple[str, ...] = ()
    """From the text of each the words around the place where they first part; empty where a text is not known."""


@dataclass(frozen=True)
class QueryFreshness:
    """What is stale in the top k of one query."""

    query: str
    considered: int
    """How many documents were looked at: k, or fewer where fewer were returned. Of none nothing can be said."""
    versioned: int
    """How many of them are in the versions at all."""
    stale: Sequence[StaleHit] = ()
    conflicts: Sequence[Conflict] = ()
    """Versions of one thing that do not say the same."""
    copies: Sequence[Conflict] = ()
    """Versions of one thing that say the same, word by word: no conflict."""

    def __post_init__(self) -> None:
        """Refuse what cannot be: every rate is of what was looked at."""
        if self.considered < 1:
            raise ValueError(f"query `{self.query}` looked at {self.considered} documents; one without any is unscored")
        if not max(self.versioned, len(self.stale), self.conflicting) <= self.considered:
            raise ValueError(f"query `{self.query}` has more that is versioned, stale or in conflict than documents")
        if any(not 1 <= hit.rank <= self.considered for hit in self.stale):
            raise ValueError(f"query `{self.query}` has a stale document beyond its {self.considered} documents")

    @property
    def conflicting(self) -> int:
        """How many documents are in conflict with another."""
        return sum(len(one.docs) for one in self.conflicts)


@dataclass(frozen=True)
class Freshness:
    """How much of what a system returns is stale. All rates are over queries that returned something."""

    run: str
    k: int
    queries: Sequence[QueryFreshness]
    unscored: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """`{query: why}`: a query that returned nothing is not fresh."""
    versions: int = 0
    """How many documents have a version."""
    compared: bool = False
    """Whether texts were there to tell conflicts from copies: figures with and without them do not compare."""
    fingerprint: str = ""
    """A short hash of what the versions say: rates by other versions do not compare."""
    texts: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """`{query: text}` of those that have something stale or a conflict, where they are known."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        """Refuse a query for which more than k documents were considered."""
        for one in self.queries:
            if one.considered > self.k:
                raise ValueError(f"query `{one.query}` has {one.considered} documents; expected at most k = {self.k}")

    @property
    def judge(self) -> str:
        """What tells stale from fresh, and conflicts from copies: figures by another do not compare."""
        texts = "texts compared" if self.compared else "texts not compared"
        return f"{BY_VERSIONS}{self.fingerprint} ({texts})" if self.fingerprint else ""

    @property
    def asked(self) -> frozenset[str]:
        """Every query that was looked at or is unscored."""
        return frozenset(one.query for one in self.queries) | frozenset(self.unscored)

    @property
    def query_count(self) -> int:
        """How many queries returned something."""
        return len(self.queries)

    @property
    def total_considered(self) -> int:
        """How many positions were looked at."""
        return sum(one.considered for one in self.queries)

    @property
    def versioned_count(self) -> int:
        """At how many of them stands a document that has a version."""
        return sum(one.versioned for one in self.queries)

    @property
    def stale_hit_count(self) -> int:
        """At how many of them stands a stale document."""
        return sum(len(one.stale) for one in self.queries)

    @property
    def stale_query_count(self) -> int:
        """How many queries returned something stale."""
        return sum(bool(one.stale) for one in self.queries)

    @property
    def stale_rate(self) -> float:
        """Which part of the positions is stale; NaN where there are none."""
        return _part(self.stale_hit_count, self.total_considered)

    @property
    def stale_query_rate(self) -> float:
        """Which part of the queries returned something stale."""
        return _part(self.stale_query_count, self.query_count)

    @property
    def conflict_group_count(self) -> int:
        """How often versions of one thing stood in one ranking and did not say the same."""
        return sum(len(one.conflicts) for one in self.queries)

    @property
    def conflicting_doc_count(self) -> int:
        """How many documents were in these groups."""
        return sum(one.conflicting for one in self.queries)

    @property
    def conflict_query_count(self) -> int:
        """How many queries returned such a group."""
        return sum(bool(one.conflicts) for one in self.queries)

    @property
    def conflict_rate(self) -> float:
        """Which part of the positions is in such a group."""
        return _part(self.conflicting_doc_count, self.total_considered)

    @property
    def conflict_query_rate(self) -> float:
        """Which part of the queries returned such a group."""
        return _part(self.conflict_query_count, self.query_count)

    def only(self, some: Collection[str] | None) -> Freshness:
        """The same of some queries; None is all of them."""
        if some is None:
            return self
        return replace(
            self,
            queries=[one for one in self.queries if one.query in some],
            unscored={query: why for query, why in self.unscored.items() if query in some},
        )

    def scores(self) -> Scores:
        """`stale@k` and `conflict@k`: for each query the part of its positions, to be compared and gated.

        Their means are over queries and the rates over positions: the same where every query returned as many.
        """
        known = {one.query: one for one in self.queries}
        chosen = [*known, *self.unscored]
        counts = {
            f"stale@{self.k}": {query: len(one.stale) / one.considered for query, one in known.items()},
            f"conflict@{self.k}": {query: one.conflicting / one.considered for query, one in known.items()},
        }
        columns = {
            name: np.array([values.get(query, math.nan) for query in chosen], np.float64)
            for name, values in counts.items()
        }
        return Scores(
            run=self.run,
            convention="default",
            queries=chosen,
            values=ByMeasure(columns, str),
            means=ByMeasure({name: _mean(column) for name, column in columns.items()}, str),
            unscored=ByMeasure(dict.fromkeys(columns, self.unscored), str),
            notes=self.notes,
            lower_is_better=frozenset(columns),
            judge=self.judge,
        )


def _part(some: int, whole: int) -> float:
    return some / whole if whole else math.nan


def _mean(column: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    scored = column[~np.isnan(column)]
    return float(scored.mean()) if len(scored) else math.nan
