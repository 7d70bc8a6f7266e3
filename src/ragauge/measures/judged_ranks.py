"""Judged ranks: judged documents and the ranks at which they were returned, the input of all ranking measures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ragauge.core.records import Floats, Ints, JudgedPool, Judgments, Run
from ragauge.measures.conventions import Convention

MAX_LEVELS_TO_COUNT = 16
"""Maximum number of distinct grades for which counting is faster than sorting the judged documents."""


@dataclass(frozen=True, eq=False)
class ReturnedRelevant:
    """Relevant documents that were returned, by query and rank, for one minimum relevant grade."""

    query: Ints
    rank: Ints
    nth: Ints
    """1 for the first relevant document of its query, 2 for the second, …"""
    total: Ints
    """Number of relevant documents of each query."""
    n_returned: Ints
    """Number of relevant documents returned for each query."""


@dataclass(frozen=True, eq=False)
class TopDocuments:
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


def rules_for_rows(convention: Convention, run: object) -> Convention:
    """Return the convention for the rows of a run, given the run or its metadata.

    In the hits that ragauge recorded, a repeated document counts at its first rank, and later ones keep their rank.
    """
    return replace(convention, duplicates="first") if isinstance(run, Run) and run.rows_are_hits else convention


NO_HITS = np.zeros((2, 0), np.int64)


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
    repeats: Ints | None = None
    """Number of hits of each query that repeat a document of its ranking; None if there are none."""
    repeat_rule: str = ""
    """Option that decides how repeats count."""
    repeated: Ints = field(default_factory=NO_HITS.copy)
    """Query and rank of the hits that repeat a judged document and score nothing."""
    tie_first: Ints | None = None
    """Best rank that each document can have among equal scores; None unless ties are averaged."""
    tie_last: Ints | None = None
    """Worst rank that each document can have among equal scores; None unless ties are averaged."""
    tie_span: tuple[Ints, Ints] | None = None
    """Best and worst rank of each document among scores that are equal in single precision, as in trec_eval 9.

    None unless a rule settled ties, and if ranks were changed.
    """
    has_single_ties: bool = False
    """Whether judged documents have scores that differ, but are equal to others in single precision."""
    top: TopDocuments | None = None
    """First documents of each query; None unless a measure needs them."""
    ties: str = "trec"
    """Rule that ordered ties."""
    name: str = "run"
    """Name of the run."""
    unjudged_queries: Sequence[str] = ()
    """Queries of the run that are unjudged."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """`{query: error}` of the judged queries that the system failed on, if the run recorded them."""
    tag: str = ""
    """Last column of a TREC run; empty if there is none."""
    depth: float | None = None
    """Deepest defined cutoff: the k of the run, infinity if its rankings are complete, None if unknown."""
    _relevant: dict[float, ReturnedRelevant] = field(default_factory=dict)

    @property
    def averaged(self) -> bool:
        """Whether measures are averaged over the orders of equal scores."""
        return self.tie_first is not None

    @property
    def pool(self) -> JudgedPool:
        return self.judgments.pool

    @property
    def n(self) -> int:
        """Number of judged queries."""
        return len(self.pool.queries)

    @cached_property
    def grade(self) -> Floats:
        """Grade of each returned judged document."""
        return self.pool.grades[self.row]

    @cached_property
    def judged_hits(self) -> Ints:
        """Query and rank of each hit with a judged document, repeats included."""
        is_judged = self.grade >= 0
        return np.concatenate([np.stack([self.query[is_judged], self.rank[is_judged]]), self.repeated], axis=1)

    def count(self, query: Ints, weights: Floats | None = None) -> Floats:
        """Count the rows, or sum their weights, per query."""
        return np.bincount(query, weights, self.n).astype(np.float64, copy=False)

    def relevant(self, rel: float) -> ReturnedRelevant:
        """Return the returned documents with a grade of at least `rel`.

        Cached for all measures.
        """
        if rel not in self._relevant:
            keep = self.grade >= rel
            query = self.query[keep]
            n_returned = np.bincount(query, minlength=self.n)
            starts = np.cumsum(n_returned) - n_returned
            nth = np.arange(1, len(query) + 1) - starts[query]
            total = np.bincount(self.pool.owner[self.pool.grades >= rel], minlength=self.n)
            self._relevant[rel] = ReturnedRelevant(query, self.rank[keep], nth, total, n_returned)
        return self._relevant[rel]

    @cached_property
    def pool_position(self) -> Ints:
        """Position of each judged document in its query, from 0.

        Sorted by grade, best first, then in input order.
        """
        pool = self.pool
        position = np.empty(len(pool.grades), np.int64)
        position[np.lexsort((-pool.grades, pool.owner))] = np.arange(len(position)) - pool.starts[pool.owner]
        return position

    @cached_property
    def ideal(self) -> tuple[Floats, Ints]:
        """Grades of each query, best first, and the position of each, from 0."""
        pool = self.pool
        position = np.arange(len(pool.grades)) - pool.starts[pool.owner]
        low, high = pool.grades.min(initial=0), pool.grades.max(initial=0)
        if high - low < 1024 and (pool.grades == np.floor(pool.grades)).all():
            levels, level = np.arange(low, high + 1), (pool.grades - low).astype(np.int64)
        else:
            levels, level = np.unique(pool.grades, return_inverse=True)
        keys = pool.owner * len(levels) + (len(levels) - 1 - level)
        if len(levels) <= MAX_LEVELS_TO_COUNT:
            counts = np.bincount(keys, minlength=self.n * len(levels))
            return np.repeat(np.tile(levels[::-1], self.n), counts), position
        # Sorting one integer key per document is several times faster than sorting by two columns.
        return levels[len(levels) - 1 - np.sort(keys) % len(levels)], position

    def iterate_queries(self) -> Iterator[JudgedQuery]:
        """Yield the queries one by one, for measures written as plain functions."""
        bounds = np.searchsorted(self.query, np.arange(self.n + 1))
        best, _ = self.ideal
        for i, name in enumerate(self.pool.queries):
            query_rows = slice(bounds[i], bounds[i + 1])
            judged = best[self.pool.starts[i] : self.pool.starts[i + 1]].tolist()
            ranks, grades = self.rank[query_rows].tolist(), self.grade[query_rows].tolist()
            yield JudgedQuery(name, ranks, grades, judged, int(self.retrieved[i]))


SELF_RETRIEVED = -1
"""Pool row of a document that is the query itself, if such documents are removed."""


@dataclass(frozen=True)
class RankWithTies:
    """Number of scores of the query above each match, and number that are not below it (itself included)."""

    n_above: Ints
    n_at_or_above: Ints
    in_order: NDArray[np.bool_]
    """Whether the scores of each segment are sorted best first."""
    single: tuple[Ints, Ints]
    """Both numbers for scores in single precision."""

    @property
    def tied(self) -> Ints:
        """Matches whose score another document of the query has too."""
        return np.flatnonzero(self.n_at_or_above - self.n_above > 1)


def rank_scores(scores: Floats, starts: Ints, segment: Ints, score: Floats) -> RankWithTies:
    """Rank each match among the scores of its segment.

    The scores of a segment are `scores[starts[segment]:starts[segment + 1]]`.

    >>> s = rank_scores(np.array([3.0, 2.0, 2.0, 1.0]), np.array([0, 4]), np.array([0, 0]), np.array([2.0, 1.0]))
    >>> s.n_above.tolist(), s.n_at_or_above.tolist()
    ([1, 3], [3, 4])
    """
    in_order = np.ones(len(starts) - 1, np.bool_)
    rises = np.flatnonzero(scores[1:] > scores[:-1]) + 1
    owner = np.searchsorted(starts, rises, side="right") - 1
    in_order[owner[starts[owner] != rises]] = False
    if not in_order.all():
        scores = scores.copy()
        for i in np.flatnonzero(~in_order).tolist():
            segment_scores = scores[starts[i] : starts[i + 1]]
            segment_scores[:] = -np.sort(-segment_scores)
    begin, end = starts[segment], starts[segment + 1]
    above = _bisect_descending(scores, begin, end, score, strict=True)
    next_position = above + 1
    tied = np.flatnonzero((next_position < end) & (scores[np.minimum(next_position, len(scores) - 1)] == score))
    through = next_position.copy()
    if len(tied):
        through[tied] = _bisect_descending(scores, next_position[tied], end[tied], score[tied], strict=False)
    single_above, single_through = _bisect_in_single_precision(scores, (begin, end), (above, through), score)
    return RankWithTies(above - begin, through - begin, in_order, (single_above - begin, single_through - begin))


def _bisect_in_single_precision(
    scores: Floats, bounds: tuple[Ints, Ints], found: tuple[Ints, Ints], score: Floats
) -> tuple[Ints, Ints]:
    """Find the positions of equal scores in single precision, where they differ from those `found` in double precision.

    Only scores next to a tie are compared, so runs without such ties take little time.
    """
    (begin, end), (above, through) = bounds, found
    with np.errstate(over="ignore"):
        single = score.astype(np.float32)
        higher = scores[np.maximum(above - 1, 0)].astype(np.float32)
        lower = scores[np.minimum(through, len(scores) - 1)].astype(np.float32)
        wider = np.flatnonzero(((above > begin) & (higher == single)) | ((through < end) & (lower == single)))
        if not len(wider):
            return above, through
        rounded = scores.astype(np.float32).astype(np.float64)
    above, through = above.copy(), through.copy()
    for positions, strict in ((above, True), (through, False)):
        positions[wider] = _bisect_descending(
            rounded, begin[wider], end[wider], single[wider].astype(np.float64), strict=strict
        )
    return above, through


def _bisect_descending(scores: Floats, low: Ints, high: Ints, score: Floats, *, strict: bool) -> Ints:
    """Find positions in descending ranges of scores.

    For each score it is the first position whose score is not above it, or not equal if not strict.
    """
    low = low.copy()
    step = 1 << int((high - low).max(initial=0)).bit_length()
    while step := step >> 1:
        probe = low + step
        probed_scores = scores.take(np.minimum(probe, high) - 1)
        must_advance = (probed_scores > score) if strict else (probed_scores >= score)
        must_advance &= probe <= high
        np.add(low, step, out=low, where=must_advance)
    return low


@dataclass
class JudgedMatches:
    """Judged documents that were returned, in any order, as lists of arrays."""

    query: list[Ints]
    rank: list[Ints]
    row: list[Ints]
    first: list[Ints]
    last: list[Ints]
    single_first: list[Ints]
    single_last: list[Ints]

    @classmethod
    def none(cls) -> JudgedMatches:
        """Return an empty collection."""
        return cls([], [], [], [], [], [], [])

    def add(self, query: Ints, row: Ints, tie_position: Ints, standing: RankWithTies) -> None:
        """Add matches; `tie_position` is the number of documents with equal score before each."""
        self.query.append(query)
        self.row.append(row)
        self.rank.append(standing.n_above + tie_position + 1)
        self.first.append(standing.n_above + 1)
        self.last.append(standing.n_at_or_above)
        self.single_first.append(standing.single[0] + 1)
        self.single_last.append(standing.single[1])

    def extend(self, matches: JudgedMatches) -> None:
        """Add the matches of another part."""
        for item in fields(self):
            getattr(self, item.name).extend(getattr(matches, item.name))


def find_unjudged_queries(queries: Iterable[str], judgments: Judgments) -> list[str]:
    """Return the queries that have no judgments, each once."""
    judged = set(judgments.pool.queries)
    return [query for query in dict.fromkeys(queries) if query not in judged]


def build_judged_ranks(
    judgments: Judgments,
    convention: Convention,
    matches: JudgedMatches,
    lengths: Ints,
    answered: NDArray[np.bool_],
    *,
    name: str,
    unjudged_queries: Sequence[str],
    top: tuple[Sequence[Sequence[str]], Sequence[Floats]] | None,
) -> JudgedRanks:
    """Sort the matches, and apply the options that remove documents from the ranking."""
    table = np.stack([_concatenate_parts(getattr(matches, column.name)) for column in fields(matches)])
    table = table[:, np.argsort(table[0] * (table[1].max(initial=0) + 1) + table[1])]
    retrieved = lengths.astype(np.int64)
    if convention.own == "dropped":
        query, rank, row = table[:3]
        is_self_retrieved = row == SELF_RETRIEVED
        own_rank = np.full(len(retrieved), np.iinfo(np.int64).max)
        own_rank[query[is_self_retrieved]] = rank[is_self_retrieved]
        retrieved = retrieved - np.bincount(query[is_self_retrieved], minlength=len(retrieved))
        table[1] -= rank > own_rank[query]
        table = table[:, ~is_self_retrieved]
    if convention.depth is not None:
        table = table[:, table[1] <= convention.depth]
        retrieved = np.minimum(retrieved, convention.depth)
    if convention.unjudged == "condensed":
        table = table[:, judgments.pool.grades[table[2]] >= 0]
        retrieved = np.bincount(table[0], minlength=len(retrieved))
        table[1] = np.arange(1, table.shape[1] + 1) - (np.cumsum(retrieved) - retrieved)[table[0]]
    repeated = NO_HITS
    if convention.duplicates == "first":
        first_hits = np.sort(np.unique(table[2], return_index=True)[1])
        repeated = np.delete(table, first_hits, axis=1)
        repeated = repeated[:2, judgments.pool.grades[repeated[2]] >= 0]
        table = table[:, first_hits]
    query, rank, row, first, last, single_first, single_last = table
    averaged = convention.ties == "expected"
    unchanged = (convention.own, convention.depth, convention.unjudged) == ("kept", None, "nonrelevant")
    return JudgedRanks(
        judgments,
        query,
        rank,
        row,
        retrieved,
        answered,
        repeat_rule="unit" if convention.unit == "document" else convention.duplicates,
        repeated=repeated,
        tie_first=first if averaged else None,
        tie_last=last if averaged else None,
        tie_span=(single_first, single_last) if not averaged and unchanged else None,
        has_single_ties=bool((single_last - single_first > last - first).any()),
        top=None if top is None else TopDocuments(*top),
        ties=convention.ties,
        name=name,
        unjudged_queries=unjudged_queries,
    )


def first_documents(
    ids: list[str],
    scores: Floats,
    ranks: Floats | None,
    top: int,
    convention: Convention,
    *,
    query: str,
    judged: Mapping[str, float],
) -> tuple[Sequence[str], Floats]:
    """Return the first documents of one query and their scores, by the tie rule.

    Documents tied with the last one are included, so that another tie rule can be applied.
    """
    order = list(range(len(ids)))
    if convention.ties != "ranked":
        order.sort(key=lambda i: ids[i], reverse=True)
    elif ranks is not None:
        order.sort(key=lambda i: ranks[i])
    order.sort(key=lambda i: -scores[i])
    if convention.own == "dropped":
        order = [i for i in order if ids[i] != query]
    order = order[: convention.depth]
    if convention.unjudged == "condensed":
        order = [i for i in order if judged.get(ids[i], -1) >= 0]
    end = min(top, len(order))
    while 0 < end < len(order) and scores[order[end]] == scores[order[end - 1]]:
        end += 1
    return [ids[i] for i in order[:end]], scores[order[:end]]


def _concatenate_parts(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


FirstOfQuery = tuple[Sequence[str], Floats]
"""First documents of a query, and their scores."""


@dataclass
class PartialRanks:
    """Judged ranks of some whole queries; the parts of a run are merged in its order."""

    matches: JudgedMatches = field(default_factory=JudgedMatches.none)
    judged: list[Ints] = field(default_factory=list)
    """Judged queries in this part, as indexes into the pool."""
    lengths: list[Ints] = field(default_factory=list)
    """Number of documents of each of these queries."""
    repeats: list[Ints] = field(default_factory=list)
    """Number of hits of each of these queries that repeat a document."""
    top_documents: list[FirstOfQuery] = field(default_factory=list)
    """First documents of each of these queries; empty unless a measure needs them."""
    unjudged_queries: list[str] = field(default_factory=list)
    """Queries that are unjudged."""
    rows: int = 0
    """Number of rows processed."""
    scattered: bool = False
    """Whether the rows of a query are not adjacent; if True, the other fields are not valid."""


def merge_parts(
    judgments: Judgments, convention: Convention, parts: Iterable[PartialRanks], *, name: str, top: bool
) -> JudgedRanks | None:
    """Merge partial ranks into those of a whole run.

    None if a query is in several parts.
    """
    n = len(judgments.pool.queries)
    matches = JudgedMatches.none()
    lengths, repeats, answered = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    firsts: list[Sequence[str]] = [()] * n if top else []
    first_scores: list[Floats] = [np.zeros(0)] * n if top else []
    unjudged_queries: dict[str, None] = {}
    for part in parts:
        if part.scattered:
            return None
        matches.extend(part.matches)
        for queries, sizes, n_repeats in zip(part.judged, part.lengths, part.repeats, strict=True):
            if answered[queries].any():
                return None
            lengths[queries], repeats[queries], answered[queries] = sizes, n_repeats, True
        if top:
            for query, first in zip(np.concatenate([*part.judged, []]).tolist(), part.top_documents, strict=True):
                firsts[int(query)], first_scores[int(query)] = first
        if not unjudged_queries.keys().isdisjoint(part.unjudged_queries):
            return None
        unjudged_queries.update(dict.fromkeys(part.unjudged_queries))
    judged_ranks = build_judged_ranks(
        judgments,
        convention,
        matches,
        lengths,
        answered,
        name=name,
        unjudged_queries=list(unjudged_queries),
        top=(firsts, first_scores) if top else None,
    )
    return replace(judged_ranks, repeats=repeats) if repeats.any() else judged_ranks
