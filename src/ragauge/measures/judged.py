"""Judged ranks: judged documents and the ranks at which they were returned, the input of all ranking measures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats, Ints, Judgments, Pool, Run

FEW_LEVELS = 16
"""Maximum number of distinct grades for which counting is faster than sorting the judged documents."""


@dataclass(frozen=True, eq=False)
class Relevant:
    """Relevant documents that were returned, by query and rank, for one minimum relevant grade."""

    query: Ints
    rank: Ints
    nth: Ints
    """1 for the first relevant document of its query, 2 for the second, …"""
    total: Ints
    """Number of relevant documents of each query."""
    found: Ints
    """Number of relevant documents returned for each query."""


@dataclass(frozen=True, eq=False)
class Top:
    """First documents of each query, for measures that need more than judged ranks.

    At least the requested number, if the run has that many; a tie at the end is included completely.
    """

    ids: Sequence[Sequence[str]]
    scores: Sequence[Floats]


@dataclass(frozen=True)
class JudgedQuery:
    """One query, as passed to user-defined measures."""

    query: str
    """Query id."""
    ranks: list[int]
    """Ranks (from 1) at which judged documents were returned, ascending."""
    grades: list[float]
    """Grades of the returned judged documents."""
    judged: list[float]
    """Grades of all judged documents, best first."""
    retrieved: int
    """Number of documents returned."""


def defined_depth(run: Run) -> float | None:
    """Return the deepest defined cutoff of a run.

    It is the k of the run, or infinity if all rankings are complete. None if unknown. A ranking is complete if the
    system returned fewer documents than requested, or if k covers the corpus. A failed query is an empty ranking at
    every depth.
    """
    k = (run.manifest.get("plan") or {}).get("k")
    n_documents = (run.manifest.get("dataset") or {}).get("documents") or math.inf  # 0: the corpus is unknown
    if k is None or n_documents <= k:
        return None if k is None else math.inf
    if run.timings is None or not {"status", "complete"} <= set(run.timings.columns):
        return int(k)
    complete = (run.timings["status"] != "ok") | run.timings["complete"].fill_null(False)
    return math.inf if complete.all() else int(k)


@dataclass(frozen=True, eq=False)
class JudgedRanks:
    """Judged documents that were returned, with their ranks; ordered by query, then rank."""

    judgments: Judgments
    query: Ints
    """Index of the query in `pool.queries`."""
    rank: Ints
    """Rank, from 1."""
    row: Ints
    """Row of the judged document in `pool`."""
    retrieved: Ints
    """Number of documents returned for each query."""
    answered: NDArray[np.bool_]
    """Whether the run contains the query."""
    tie_first: Ints | None = None
    """Best rank that each document can have among equal scores; None unless ties are averaged."""
    tie_last: Ints | None = None
    """Worst rank that each document can have among equal scores; None unless ties are averaged."""
    tie_span: tuple[Ints, Ints] | None = None
    """Best and worst rank of each document among equal scores, if a rule settled ties; None if ranks were changed."""
    top: Top | None = None
    """First documents of each query; None unless a measure needs them."""
    ties: str = "trec"
    """Rule that ordered ties."""
    name: str = "run"
    """Name of the run."""
    extra_queries: int = 0
    """Number of queries in the run that are unjudged."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{query: error}` of the judged queries that the system failed on, if the run recorded them."""
    tag: str = ""
    """Last column of a TREC run; empty if there is none."""
    depth: float | None = None
    """Deepest defined cutoff: the k of the run, infinity if its rankings are complete, None if unknown."""
    _relevant: dict[float, Relevant] = field(default_factory=dict)

    @property
    def averaged(self) -> bool:
        """Whether measures are averaged over the orders of equal scores."""
        return self.tie_first is not None

    @property
    def pool(self) -> Pool:
        """All judged documents."""
        return self.judgments.pool

    @property
    def n(self) -> int:
        """Number of judged queries."""
        return len(self.pool.queries)

    @cached_property
    def grade(self) -> Floats:
        """Grade of each returned judged document."""
        return self.pool.grades[self.row]

    def count(self, query: Ints, weights: Floats | None = None) -> Floats:
        """Count the rows, or sum their weights, per query."""
        return np.bincount(query, weights, self.n).astype(np.float64, copy=False)

    def relevant(self, rel: float) -> Relevant:
        """Return the returned documents with a grade of at least `rel`.

        Cached for all measures.
        """
        if rel not in self._relevant:
            keep = self.grade >= rel
            query = self.query[keep]
            found = np.bincount(query, minlength=self.n)
            starts = np.cumsum(found) - found
            nth = np.arange(1, len(query) + 1) - starts[query]
            total = np.bincount(self.pool.owner[self.pool.grades >= rel], minlength=self.n)
            self._relevant[rel] = Relevant(query, self.rank[keep], nth, total, found)
        return self._relevant[rel]

    @cached_property
    def pool_place(self) -> Ints:
        """Position of each judged document in its query, from 0.

        Sorted by grade, best first, then in input order.
        """
        pool = self.pool
        place = np.empty(len(pool.grades), np.int64)
        place[np.lexsort((-pool.grades, pool.owner))] = np.arange(len(place)) - pool.starts[pool.owner]
        return place

    @cached_property
    def ideal(self) -> tuple[Floats, Ints]:
        """Grades of each query, best first, and the position of each, from 0."""
        pool = self.pool
        place = np.arange(len(pool.grades)) - pool.starts[pool.owner]
        low, high = pool.grades.min(initial=0), pool.grades.max(initial=0)
        if high - low < 1024 and (pool.grades == np.floor(pool.grades)).all():
            levels, level = np.arange(low, high + 1), (pool.grades - low).astype(np.int64)
        else:
            levels, level = np.unique(pool.grades, return_inverse=True)
        keys = pool.owner * len(levels) + (len(levels) - 1 - level)
        if len(levels) <= FEW_LEVELS:
            counts = np.bincount(keys, minlength=self.n * len(levels))
            return np.repeat(np.tile(levels[::-1], self.n), counts), place
        # Sorting one integer key per document is several times faster than sorting by two columns.
        return levels[len(levels) - 1 - np.sort(keys) % len(levels)], place

    def each(self) -> Iterator[JudgedQuery]:
        """Yield the queries one by one, for measures written as plain functions."""
        bounds = np.searchsorted(self.query, np.arange(self.n + 1))
        best, _ = self.ideal
        for i, name in enumerate(self.pool.queries):
            mine = slice(bounds[i], bounds[i + 1])
            judged = best[self.pool.starts[i] : self.pool.starts[i + 1]].tolist()
            ranks, grades = self.rank[mine].tolist(), self.grade[mine].tolist()
            yield JudgedQuery(name, ranks, grades, judged, int(self.retrieved[i]))
