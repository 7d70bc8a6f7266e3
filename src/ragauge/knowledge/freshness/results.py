"""Result types of freshness: versions, stale hits and version conflicts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.record_types import TabularResult, record
from ragauge.core.records import MeasureDict, Scores
from ragauge.evaluation.indicators import FRESHNESS_RATES

DERIVED_COUNTS = (
    "query_count",
    "total_considered",
    "versioned_count",
    "stale_hit_count",
    "stale_query_count",
    "conflict_group_count",
    "conflicting_doc_count",
    "conflict_query_count",
)
"""Counts that are written to the JSON in addition to the fields, named as by rig."""
VERSIONS_JUDGE_PREFIX = "versions "
"""Prefix of the judge name of freshness scores; the fingerprint of the versions follows."""


class DocumentVersion(NamedTuple):
    """Version of a document. Documents with one key are versions of the same content."""

    doc: str
    key: str | None = None
    effective: float | None = None
    """Time from which the version is valid, in seconds since 1970. Only the order matters."""
    superseded_by: str | None = None


class StaleHit(NamedTuple):
    """Document in a ranking that a newer version replaces."""

    doc: str
    rank: int
    """Rank, counted from 1."""
    newer: str
    """Id of the newest document in the chain of replacements."""
    newer_rank: int | None = None
    """Rank of the newer document within the top k; None if it is not there."""
    why: str = ""
    """`superseded` if the versions name a successor, `older` if another document of its key is newer."""


class VersionConflict(NamedTuple):
    """Two or more versions of the same content in one ranking."""

    key: str
    docs: tuple[str, ...]
    """Document ids, in ranking order."""
    excerpts: tuple[str, ...] = ()
    """Words around the first difference, one excerpt per document; empty if a text is unknown."""


@dataclass(frozen=True)
class QueryFreshness:
    """Stale hits and version conflicts in the top k of one query."""

    query: str
    considered: int
    """Number of hits checked: k, or fewer if fewer were returned. At least 1."""
    versioned: int
    """Number of these hits that have a version."""
    stale: Sequence[StaleHit] = ()
    conflicts: Sequence[VersionConflict] = ()
    """Groups of versions whose texts differ."""
    copies: Sequence[VersionConflict] = ()
    """Groups of versions with identical text; these are not conflicts."""

    def __post_init__(self) -> None:
        """Raise ValueError if a count exceeds the number of hits checked."""
        if self.considered < 1:
            raise ValueError(f"query `{self.query}` must have at least 1 document, got {self.considered}")
        if not max(self.versioned, len(self.stale), self.conflicting) <= self.considered:
            raise ValueError(f"query `{self.query}` has more versioned, stale or conflicting documents than documents")
        if any(not 1 <= hit.rank <= self.considered for hit in self.stale):
            raise ValueError(f"query `{self.query}` has a stale document below its {self.considered} documents")

    @property
    def conflicting(self) -> int:
        """Number of hits that conflict with another hit."""
        return sum(len(conflict.docs) for conflict in self.conflicts)


@record("ragauge-freshness", 1, derived=(*DERIVED_COUNTS, *FRESHNESS_RATES))
@dataclass(frozen=True)
class Freshness(TabularResult):
    """Freshness of a run.

    All rates are over queries that returned at least one document.
    """

    run: str
    k: int
    queries: Sequence[QueryFreshness]
    unscored: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """`{query: reason}` of queries that have no freshness, such as those without results."""
    versions: int = 0
    """Number of documents that have a version."""
    compared: bool = False
    """Whether texts were compared to separate conflicts from copies. Scores with and without texts are not comparable.
    """
    fingerprint: str = ""
    """Short hash of the versions. Rates computed with other versions are not comparable."""
    texts: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """`{query: text}` of the queries with a stale hit or a conflict, if the texts are known."""
    as_of: str = ""
    """Time of the evaluation, as given; empty for all versions."""
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    def __post_init__(self) -> None:
        """Raise ValueError if a query has more than k hits."""
        for query in self.queries:
            if query.considered > self.k:
                raise ValueError(
                    f"query `{query.query}` has {query.considered} documents; expected at most k = {self.k}"
                )

    @property
    def judge(self) -> str:
        """Name of the versions and text comparison used.

        Scores with different judges are not comparable.
        """
        texts = "texts compared" if self.compared else "texts not compared"
        return f"{VERSIONS_JUDGE_PREFIX}{self.fingerprint} ({texts})" if self.fingerprint else ""

    @property
    def query_ids(self) -> frozenset[str]:
        """Ids of all queries, unscored ones included."""
        return frozenset(query.query for query in self.queries) | frozenset(self.unscored)

    @property
    def query_count(self) -> int:
        """Number of queries that returned at least one document."""
        return len(self.queries)

    @property
    def total_considered(self) -> int:
        """Number of hits checked, over all queries."""
        return sum(query.considered for query in self.queries)

    @property
    def versioned_count(self) -> int:
        """Number of checked hits that have a version."""
        return sum(query.versioned for query in self.queries)

    @property
    def stale_hit_count(self) -> int:
        """Number of checked hits that are stale."""
        return sum(len(query.stale) for query in self.queries)

    @property
    def stale_query_count(self) -> int:
        """Number of queries with at least one stale hit."""
        return sum(bool(query.stale) for query in self.queries)

    @property
    def stale_rate(self) -> float:
        """Share of the checked hits that are stale; NaN if there are none."""
        return _ratio(self.stale_hit_count, self.total_considered)

    @property
    def stale_query_rate(self) -> float:
        """Share of the queries with at least one stale hit; NaN if there are none."""
        return _ratio(self.stale_query_count, self.query_count)

    @property
    def conflict_group_count(self) -> int:
        """Number of version conflicts, over all queries."""
        return sum(len(query.conflicts) for query in self.queries)

    @property
    def conflicting_doc_count(self) -> int:
        """Number of hits that are part of a version conflict."""
        return sum(query.conflicting for query in self.queries)

    @property
    def conflict_query_count(self) -> int:
        """Number of queries with at least one version conflict."""
        return sum(bool(query.conflicts) for query in self.queries)

    @property
    def conflict_rate(self) -> float:
        """Share of the checked hits that are part of a version conflict.

        NaN if there are none.
        """
        return _ratio(self.conflicting_doc_count, self.total_considered)

    @property
    def conflict_query_rate(self) -> float:
        """Share of the queries with at least one version conflict; NaN if there are none."""
        return _ratio(self.conflict_query_count, self.query_count)

    def only(self, ids: Collection[str] | None) -> Freshness:
        """Restrict the result to some queries; None keeps all of them."""
        if ids is None:
            return self
        return replace(
            self,
            queries=[query for query in self.queries if query.query in ids],
            unscored={query: why for query, why in self.unscored.items() if query in ids},
        )

    def scores(self) -> Scores:
        """Compute `stale@k` and `conflict@k`: for each query, the share of its hits.

        Their means are over queries, while the rates are over hits. Both are equal if every query has the same number
        of hits.
        """
        by_query = {query.query: query for query in self.queries}
        query_ids = [*by_query, *self.unscored]
        counts = {
            f"stale@{self.k}": {
                query: len(freshness.stale) / freshness.considered for query, freshness in by_query.items()
            },
            f"conflict@{self.k}": {
                query: freshness.conflicting / freshness.considered for query, freshness in by_query.items()
            },
        }
        columns = {
            name: np.array([values.get(query, math.nan) for query in query_ids], np.float64)
            for name, values in counts.items()
        }
        return Scores(
            run=self.run,
            convention="default",
            queries=query_ids,
            values=MeasureDict(columns, str),
            means=MeasureDict({name: _nan_mean(column) for name, column in columns.items()}, str),
            unscored=MeasureDict(dict.fromkeys(columns, self.unscored), str),
            notes=self.notes,
            lower_is_better=frozenset(columns),
            judge=self.judge,
        )


def _ratio(part: int, total: int) -> float:
    return part / total if total else math.nan


def _nan_mean(column: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    scored = column[~np.isnan(column)]
    return float(scored.mean()) if len(scored) else math.nan
