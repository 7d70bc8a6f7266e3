"""Ranks of scores among all scores of their query, and the table of judged ranks built from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks, Top
from ragauge.records import Floats, Ints, Judgments

OWN = -1
"""Pool row of a document that is the query itself, if such documents are removed."""


@dataclass(frozen=True)
class Standing:
    """Number of scores of the query above each match, and number that are not below it (itself included)."""

    above: Ints
    through: Ints
    in_order: NDArray[np.bool_]
    """Whether the scores of each segment are sorted best first."""

    @property
    def tied(self) -> Ints:
        """Matches whose score another document of the query has too."""
        return np.flatnonzero(self.through - self.above > 1)


def standing(scores: Floats, starts: Ints, segment: Ints, score: Floats) -> Standing:
    """Rank each match among the scores of its segment.

    The scores of a segment are `scores[starts[segment]:starts[segment + 1]]`.

    >>> s = standing(np.array([3.0, 2.0, 2.0, 1.0]), np.array([0, 4]), np.array([0, 0]), np.array([2.0, 1.0]))
    >>> s.above.tolist(), s.through.tolist()
    ([1, 3], [3, 4])
    """
    in_order = np.ones(len(starts) - 1, np.bool_)
    rises = np.flatnonzero(scores[1:] > scores[:-1]) + 1
    owner = np.searchsorted(starts, rises, side="right") - 1
    in_order[owner[starts[owner] != rises]] = False
    if not in_order.all():
        scores = scores.copy()
        for i in np.flatnonzero(~in_order).tolist():
            part = scores[starts[i] : starts[i + 1]]
            part[:] = -np.sort(-part)
    begin, end = starts[segment], starts[segment + 1]
    above = _bisect(scores, begin, end, score, strict=True)
    after = above + 1
    tied = np.flatnonzero((after < end) & (scores[np.minimum(after, len(scores) - 1)] == score))
    through = after.copy()
    if len(tied):
        through[tied] = _bisect(scores, after[tied], end[tied], score[tied], strict=False)
    return Standing(above - begin, through - begin, in_order)


def _bisect(scores: Floats, low: Ints, high: Ints, score: Floats, *, strict: bool) -> Ints:
    """Find positions in descending ranges of scores.

    For each score it is the first position whose score is not above it, or not equal if not strict.
    """
    low = low.copy()
    step = 1 << int((high - low).max(initial=0)).bit_length()
    while step := step >> 1:
        probe = low + step
        there = scores.take(np.minimum(probe, high) - 1)
        further = (there > score) if strict else (there >= score)
        further &= probe <= high
        np.add(low, step, out=low, where=further)
    return low


@dataclass
class Matches:
    """Judged documents that were returned, in any order, as lists of arrays."""

    query: list[Ints]
    rank: list[Ints]
    row: list[Ints]
    first: list[Ints]
    last: list[Ints]

    @classmethod
    def none(cls) -> Matches:
        """Return an empty collection."""
        return cls([], [], [], [], [])

    def add(self, query: Ints, row: Ints, place: Ints, standing: Standing) -> None:
        """Add matches; `place` is the number of documents with equal score before each."""
        self.query.append(query)
        self.row.append(row)
        self.rank.append(standing.above + place + 1)
        self.first.append(standing.above + 1)
        self.last.append(standing.through)

    def extend(self, others: Matches) -> None:
        """Add the matches of another part."""
        for name in ("query", "rank", "row", "first", "last"):
            getattr(self, name).extend(getattr(others, name))


def assemble(
    judgments: Judgments,
    rules: Convention,
    matches: Matches,
    lengths: Ints,
    answered: NDArray[np.bool_],
    *,
    name: str,
    extra_queries: int,
    top: tuple[Sequence[Sequence[str]], Sequence[Floats]] | None,
) -> JudgedRanks:
    """Sort the matches, and apply the options that remove documents from the ranking."""
    columns = (matches.query, matches.rank, matches.row, matches.first, matches.last)
    table = np.stack([_joined(parts) for parts in columns])
    table = table[:, np.argsort(table[0] * (table[1].max(initial=0) + 1) + table[1])]
    retrieved = lengths.astype(np.int64)
    if rules.own == "dropped":
        query, rank, row = table[:3]
        own = row == OWN
        own_rank = np.full(len(retrieved), np.iinfo(np.int64).max)
        own_rank[query[own]] = rank[own]
        retrieved = retrieved - np.bincount(query[own], minlength=len(retrieved))
        table[1] -= rank > own_rank[query]
        table = table[:, ~own]
    if rules.depth is not None:
        table = table[:, table[1] <= rules.depth]
        retrieved = np.minimum(retrieved, rules.depth)
    if rules.duplicates == "first":
        table = table[:, np.sort(np.unique(table[2], return_index=True)[1])]
    query, rank, row, first, last = table
    if rules.unjudged == "condensed":
        keep = judgments.pool.grades[row] >= 0
        query, row = query[keep], row[keep]
        retrieved = np.bincount(query, minlength=len(retrieved))
        rank = np.arange(1, len(query) + 1) - (np.cumsum(retrieved) - retrieved)[query]
    averaged = rules.ties == "expected"
    unchanged = (rules.own, rules.depth, rules.unjudged) == ("kept", None, "nonrelevant")
    return JudgedRanks(
        judgments,
        query,
        rank,
        row,
        retrieved,
        answered,
        tie_first=first if averaged else None,
        tie_last=last if averaged else None,
        tie_span=(first, last) if not averaged and unchanged else None,
        top=None if top is None else Top(*top),
        ties=rules.ties,
        name=name,
        extra_queries=extra_queries,
    )


def leading(
    ids: list[str],
    scores: Floats,
    ranks: Floats | None,
    top: int,
    rules: Convention,
    *,
    query: str,
    judged: Mapping[str, float],
) -> tuple[Sequence[str], Floats]:
    """Return the first documents of one query and their scores, by the tie rule.

    Documents tied with the last one are included, so that another tie rule can be applied.
    """
    order = list(range(len(ids)))
    if rules.ties != "ranked":
        order.sort(key=lambda i: ids[i], reverse=True)
    elif ranks is not None:
        order.sort(key=lambda i: ranks[i])
    order.sort(key=lambda i: -scores[i])
    if rules.own == "dropped":
        order = [i for i in order if ids[i] != query]
    order = order[: rules.depth]
    if rules.unjudged == "condensed":
        order = [i for i in order if judged.get(ids[i], -1) >= 0]
    end = min(top, len(order))
    while 0 < end < len(order) and scores[order[end]] == scores[order[end - 1]]:
        end += 1
    return [ids[i] for i in order[:end]], scores[order[:end]]


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
