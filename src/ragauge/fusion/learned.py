"""Fusion by what each system was worth at each rank, learned from judged queries.

Every method has two halves. Training looks at where a system returned relevant documents, and gives a row of numbers
for that system. Fusing looks ranks up in those rows. Only the rows travel from one half to the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragauge.fusion.order import Ranking, added
from ragauge.fusion.scores import Rankings
from ragauge.records import Floats

Row = Sequence[float]
BAYES_ENDS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
"""Where the segments of bayesfuse end."""
SEGMENT_ENDS = tuple(10 * 2**k - 5 for k in range(10))
"""Where the segments of segfuse end: 5, 15, 35, …; each is twice as long as the one before."""
LEAST = 0.001
"""The probability that stands for none, since odds of 0 have no logarithm."""
ABSENT = math.log(LEAST / (1 - LEAST))
"""The log odds of a document that a system did not return."""


@dataclass(frozen=True)
class Trained:
    """What a method learned: a row of numbers for each run, in the order of the runs."""

    method: str
    norm: str
    """The normalisation that the runs had; fusing takes the same one."""
    rows: tuple[Row, ...] = field(repr=False)
    params: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the training."""
    queries: int = 0
    """How many judged queries it was learned from."""


@dataclass(frozen=True)
class Hits:
    """Where one system returned relevant documents: for each judged query a 1 or 0 by rank."""

    lists: Sequence[Floats]
    relevant: Sequence[int]
    """How many relevant documents each query has."""

    def share(self, begin: int, end: int) -> float:
        """The share of the ranks in a segment that hold a relevant document, over all queries; ranks may be empty."""
        return math.fsum(hits[begin:end].sum() for hits in self.lists) / (len(self.lists) * (end - begin))


def mean_average_precision(hits: Hits) -> Row:
    """One number: the system's mean average precision."""
    total = 0.0
    for found, relevant in zip(hits.lists, hits.relevant, strict=True):
        at = np.flatnonzero(found) + 1
        total += float((np.arange(1, len(at) + 1) / at).sum()) / max(relevant, 1)
    return (total / len(hits.lists),)


def position_probabilities(hits: Hits) -> Row:
    """For each rank the share of the lists so long that have a relevant document there."""
    depth = max(map(len, hits.lists))
    found, reached = np.zeros(depth), np.zeros(depth)
    for one in hits.lists:
        found[: len(one)] += one
        reached[: len(one)] += 1
    return tuple((found / np.maximum(reached, 1)).tolist())


def segment_probabilities(hits: Hits, *, n_segments: int = 25) -> Row:
    """For each of n equal segments of a list the mean share of relevant documents in it; an empty one counts 0."""
    shares = np.zeros(n_segments)
    for one in hits.lists:
        size = math.ceil(len(one) / n_segments)
        for k in range(math.ceil(len(one) / size) if size else 0):
            shares[k] += one[k * size : (k + 1) * size].mean()
    return tuple((shares / len(hits.lists)).tolist())


def doubling_probabilities(hits: Hits) -> Row:
    """For each segment of segfuse the share of its ranks that hold a relevant document."""
    return tuple(hits.share(begin, end) for begin, end in zip((0, *SEGMENT_ENDS), SEGMENT_ENDS, strict=False))


def log_odds(hits: Hits) -> Row:
    """For each segment of bayesfuse the logarithm of the odds that a rank in it holds a relevant document."""
    odds = []
    for begin, end in zip((0, *BAYES_ENDS), BAYES_ENDS, strict=False):
        share = hits.share(begin, end) or LEAST
        odds.append(math.log(share / ((1 - share) or LEAST)))
    return tuple(odds)


def mapfuse(rankings: Rankings, *, rows: Sequence[Row]) -> Ranking:
    """The sum of the system's mean average precision / rank."""
    return added([{doc: row[0] / rank for rank, doc in enumerate(r, 1)} for r, row in _pairs(rankings, rows)])


def posfuse(rankings: Rankings, *, rows: Sequence[Row]) -> Ranking:
    """The sum of the probabilities that such a rank of the system holds a relevant document; 0 below all known."""
    return added([_looked_up(r, row[: len(r)], 0.0) for r, row in _pairs(rankings, rows)])


def slidefuse(rankings: Rankings, *, rows: Sequence[Row], w: int = 5) -> Ranking:
    """The same, each probability the mean over w ranks before and after it."""
    parts = []
    for ranking, row in _pairs(rankings, rows):
        n = len(ranking)
        windows = [(max(i - w, 0), min(i + w + 1, n)) for i in range(n)]
        parts.append(_looked_up(ranking, [math.fsum(row[a:b]) / (b - a) for a, b in windows], 0.0))
    return added(parts)


def probfuse(rankings: Rankings, *, rows: Sequence[Row]) -> Ranking:
    """The sum of the probability of the document's segment / the number of that segment."""
    parts = []
    for ranking, row in _pairs(rankings, rows):
        size = math.ceil(len(ranking) / len(row))
        parts.append(_looked_up(ranking, [row[i // size] / (i // size + 1) for i in range(len(ranking))], 0.0))
    return added(parts)


def segfuse(rankings: Rankings, *, rows: Sequence[Row]) -> Ranking:
    """The sum of the probability of the document's segment times (1 + its score)."""
    parts = []
    for ranking, row in _pairs(rankings, rows):
        values = _spread(row, SEGMENT_ENDS, len(ranking))
        known = _looked_up(ranking, values, 0.0)
        parts.append({doc: known[doc] * (score + 1) for doc, score in ranking.items()})
    return added(parts)


def bayesfuse(rankings: Rankings, *, rows: Sequence[Row]) -> Ranking:
    """The sum of the log odds of the document's ranks; a system that lacks it adds those of one in a thousand."""
    parts = [_looked_up(r, _spread(row, BAYES_ENDS, len(r)), ABSENT) for r, row in _pairs(rankings, rows)]
    docs = dict.fromkeys(doc for part in parts for doc in part)
    return added([{doc: part.get(doc, ABSENT) for doc in docs} for part in parts])


def _pairs(rankings: Rankings, rows: Sequence[Row]) -> list[tuple[Ranking, Row]]:
    return list(zip(rankings, rows, strict=True))


def _spread(row: Row, ends: Sequence[int], n: int) -> list[float]:
    """The value of each of the first n ranks, from the values of the segments they lie in."""
    values: list[float] = []
    for value, end in zip(row, ends, strict=True):
        values += [value] * (min(end, n) - len(values))
    return values


def _looked_up(ranking: Ranking, values: Sequence[float], beyond: float) -> Ranking:
    """Each document with the value of its rank; where the values end, what lies beyond."""
    tail = [beyond] * (len(ranking) - len(values))
    return dict(zip(ranking, [*values, *tail], strict=True))
