"""The one table that every rank measure is counted from: judged documents and the ranks at which they were returned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats, Ints, Judgments, Pool, Run

FEW_LEVELS = 16
"""Up to this many different grades, counting them is faster than sorting the judged documents."""


@dataclass(frozen=True, eq=False)
class Relevant:
    """The relevant documents that were returned, by query and rank, at one least grade."""

    query: Ints
    rank: Ints
    nth: Ints
    """1 for the first relevant document of its query, 2 for the second, …"""
    total: Ints
    """How many relevant documents each query has."""
    found: Ints
    """How many of them each query got."""


@dataclass(frozen=True, eq=False)
class Top:
    """The first documents of each query, for measures that look at more than judged ranks.

    At least as many as asked for, where there are so many; a tie at the end is there whole.
    """

    ids: Sequence[Sequence[str]]
    scores: Sequence[Floats]


@dataclass(frozen=True)
class JudgedQuery:
    """One query, as a measure of your own sees it."""

    query: str
    """Its id."""
    ranks: list[int]
    """The ranks (from 1) at which judged documents were returned, ascending."""
    grades: list[float]
    """Their grades."""
    judged: list[float]
    """The grades of all judged documents, best first."""
    retrieved: int
    """How many documents were returned."""


def defined_depth(run: Run) -> float | None:
    """Return the deepest defined cutoff of a run: its k, infinity if all rankings are complete, None if unknown.

    A ranking is complete if the system returned fewer documents than requested, or if k covers the corpus. A failed
    query is an empty ranking at every depth.
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
    """Each judged document that was returned, with its rank; ordered by query, then rank."""

    judgments: Judgments
    query: Ints
    """Which query, as an index into `pool.queries`."""
    rank: Ints
    """Its rank, from 1."""
    row: Ints
    """Which judged document, as a row of `pool`."""
    retrieved: Ints
    """How many documents each query got."""
    answered: NDArray[np.bool_]
    """Whether the run has the query at all."""
    tie_first: Ints | None = None
    """The best rank that each document could have among equal scores; only where ties are averaged."""
    tie_last: Ints | None = None
    """And the worst."""
    tie_span: tuple[Ints, Ints] | None = None
    """Best and worst rank of each document among equal scores, if a rule settled ties; None if ranks were changed."""
    top: Top | None = None
    """The first documents of each query; only where a measure asked for them."""
    ties: str = "trec"
    """The rule by which ties were settled."""
    name: str = "run"
    """The run's name."""
    extra_queries: int = 0
    """How many queries the run has that nobody judged."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{query: error}` of the judged queries that the system failed on, if the run recorded them."""
    tag: str = ""
    """The last column of a TREC run, where there is one."""
    depth: float | None = None
    """Deepest cutoff that is defined: the k of the run, infinity if its rankings are complete, None if unknown."""
    _relevant: dict[float, Relevant] = field(default_factory=dict)

    @property
    def averaged(self) -> bool:
        """Whether measures are to be averaged over the orders of equal scores."""
        return self.tie_first is not None

    @property
    def pool(self) -> Pool:
        """All judged documents."""
        return self.judgments.pool

    @property
    def n(self) -> int:
        """How many queries were judged."""
        return len(self.pool.queries)

    @cached_property
    def grade(self) -> Floats:
        """The grade of each returned judged document."""
        return self.pool.grades[self.row]

    def count(self, query: Ints, weights: Floats | None = None) -> Floats:
        """How many rows (or how much weight) each query has."""
        return np.bincount(query, weights, self.n).astype(np.float64, copy=False)

    def relevant(self, rel: float) -> Relevant:
        """The returned documents graded `rel` or more; counted once for all measures."""
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
        """The place of each judged document in its query, best grade first and then as given, from 0."""
        pool = self.pool
        place = np.empty(len(pool.grades), np.int64)
        place[np.lexsort((-pool.grades, pool.owner))] = np.arange(len(place)) - pool.starts[pool.owner]
        return place

    @cached_property
    def ideal(self) -> tuple[Floats, Ints]:
        """The grades of each query best first (queries in order), and the place of each, from 0."""
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
        # One integer key per document sorts several times faster than a sort by two columns.
        return levels[len(levels) - 1 - np.sort(keys) % len(levels)], place

    def each(self) -> Iterator[JudgedQuery]:
        """The queries one by one, for measures written as plain functions."""
        bounds = np.searchsorted(self.query, np.arange(self.n + 1))
        best, _ = self.ideal
        for i, name in enumerate(self.pool.queries):
            mine = slice(bounds[i], bounds[i + 1])
            judged = best[self.pool.starts[i] : self.pool.starts[i + 1]].tolist()
            ranks, grades = self.rank[mine].tolist(), self.grade[mine].tolist()
            yield JudgedQuery(name, ranks, grades, judged, int(self.retrieved[i]))
