"""Fusion methods that learn the value of each rank of each system from judged queries.

Training takes the ranks at which a system returned relevant documents, and returns a sequence of numbers for the
system. Fusion looks up the ranks of documents in these sequences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragauge.core.records import Floats
from ragauge.fusion.normalisation import Ranking, sum_scores
from ragauge.fusion.untrained_methods import Rankings

LearnedValues = Sequence[float]
BAYESFUSE_SEGMENT_ENDS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
"""Last rank of each segment of bayesfuse."""
SEGFUSE_SEGMENT_ENDS = tuple(10 * 2**k - 5 for k in range(10))
"""Last rank of each segment of segfuse: 5, 15, 35, …; each segment is twice as long as the one before."""
MIN_PROBABILITY = 0.001
"""Probability used instead of 0, because odds of 0 have no logarithm."""
ABSENT_LOG_ODDS = math.log(MIN_PROBABILITY / (1 - MIN_PROBABILITY))
"""Log odds of a document that a system did not return."""


@dataclass(frozen=True)
class TrainedFusion:
    """Trained fusion method: learned values of each run, in the order of the runs."""

    method: str
    norm: str
    """Normalisation of the training runs; fusion uses it too unless another is given."""
    rows: tuple[LearnedValues, ...] = field(repr=False)
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the training."""
    queries: int = 0
    """Number of judged queries used for training."""


@dataclass(frozen=True)
class RelevantRanks:
    """Ranks at which one system returned relevant documents: an array of 1 or 0 by rank per judged query."""

    lists: Sequence[Floats]
    relevant: Sequence[int]
    """Number of relevant documents of each query."""

    def share(self, begin: int, end: int) -> float:
        """Return the share of the ranks in a segment that hold a relevant document.

        The share is over all queries; ranks without a document count as not relevant.
        """
        return math.fsum(hits[begin:end].sum() for hits in self.lists) / (len(self.lists) * (end - begin))


def mean_average_precision(hits: RelevantRanks) -> LearnedValues:
    """Compute the system's mean average precision, as a sequence of one value."""
    total = 0.0
    for is_relevant, relevant in zip(hits.lists, hits.relevant, strict=True):
        ranks = np.flatnonzero(is_relevant) + 1
        total += float((np.arange(1, len(ranks) + 1) / ranks).sum()) / max(relevant, 1)
    return (total / len(hits.lists),)


def position_probabilities(hits: RelevantRanks) -> LearnedValues:
    """Compute the probability of a relevant document at each rank.

    It is the share among the rankings that reach the rank.
    """
    depth = max(map(len, hits.lists))
    n_relevant, n_lists = np.zeros(depth), np.zeros(depth)
    for is_relevant in hits.lists:
        n_relevant[: len(is_relevant)] += is_relevant
        n_lists[: len(is_relevant)] += 1
    return tuple((n_relevant / np.maximum(n_lists, 1)).tolist())


def segment_probabilities(hits: RelevantRanks, *, n_segments: int = 25) -> LearnedValues:
    """Compute the mean share of relevant documents in n equal segments.

    An empty segment counts as 0.
    """
    shares = np.zeros(n_segments)
    for is_relevant in hits.lists:
        size = math.ceil(len(is_relevant) / n_segments)
        for k in range(math.ceil(len(is_relevant) / size) if size else 0):
            shares[k] += is_relevant[k * size : (k + 1) * size].mean()
    return tuple((shares / len(hits.lists)).tolist())


def doubling_probabilities(hits: RelevantRanks) -> LearnedValues:
    """Compute the share of relevant ranks for each segment of segfuse."""
    return tuple(
        hits.share(begin, end) for begin, end in zip((0, *SEGFUSE_SEGMENT_ENDS), SEGFUSE_SEGMENT_ENDS, strict=False)
    )


def segment_log_odds(hits: RelevantRanks) -> LearnedValues:
    """Compute the log odds of relevance for each segment of bayesfuse."""
    odds = []
    for begin, end in zip((0, *BAYESFUSE_SEGMENT_ENDS), BAYESFUSE_SEGMENT_ENDS, strict=False):
        share = hits.share(begin, end) or MIN_PROBABILITY
        odds.append(math.log(share / ((1 - share) or MIN_PROBABILITY)))
    return tuple(odds)


def mapfuse(rankings: Rankings, *, rows: Sequence[LearnedValues]) -> Ranking:
    """Sum the system's mean average precision / rank."""
    return sum_scores(
        [{doc: row[0] / rank for rank, doc in enumerate(r, 1)} for r, row in _pair_rankings(rankings, rows)]
    )


def posfuse(rankings: Rankings, *, rows: Sequence[LearnedValues]) -> Ranking:
    """Sum the learned probabilities that the rank holds a relevant document.

    Ranks below those seen in training have probability 0.
    """
    return sum_scores([_assign_rank_values(r, row[: len(r)], 0.0) for r, row in _pair_rankings(rankings, rows)])


def slidefuse(rankings: Rankings, *, rows: Sequence[LearnedValues], w: int = 5) -> Ranking:
    """Sum the learned probabilities, averaged over a window.

    The window is w ranks before and after the rank.
    """
    parts = []
    for ranking, row in _pair_rankings(rankings, rows):
        n = len(ranking)
        windows = [(max(i - w, 0), min(i + w + 1, n)) for i in range(n)]
        parts.append(_assign_rank_values(ranking, [math.fsum(row[a:b]) / (b - a) for a, b in windows], 0.0))
    return sum_scores(parts)


def probfuse(rankings: Rankings, *, rows: Sequence[LearnedValues]) -> Ranking:
    """Sum the learned probability of the document's segment / segment number."""
    parts = []
    for ranking, row in _pair_rankings(rankings, rows):
        size = math.ceil(len(ranking) / len(row))
        parts.append(_assign_rank_values(ranking, [row[i // size] / (i // size + 1) for i in range(len(ranking))], 0.0))
    return sum_scores(parts)


def segfuse(rankings: Rankings, *, rows: Sequence[LearnedValues]) -> Ranking:
    """Sum the learned probability of the document's segment times (1 + its score)."""
    weighted = []
    for ranking, row in _pair_rankings(rankings, rows):
        values = _expand_segments(row, SEGFUSE_SEGMENT_ENDS, len(ranking))
        probabilities = _assign_rank_values(ranking, values, 0.0)
        weighted.append({doc: probabilities[doc] * (score + 1) for doc, score in ranking.items()})
    return sum_scores(weighted)


def bayesfuse(rankings: Rankings, *, rows: Sequence[LearnedValues]) -> Ranking:
    """Sum the learned log odds of the document's ranks.

    A system that did not return the document adds the log odds of probability 0.001.
    """
    ranking_log_odds = [
        _assign_rank_values(r, _expand_segments(row, BAYESFUSE_SEGMENT_ENDS, len(r)), ABSENT_LOG_ODDS)
        for r, row in _pair_rankings(rankings, rows)
    ]
    docs = dict.fromkeys(doc for log_odds in ranking_log_odds for doc in log_odds)
    return sum_scores([{doc: log_odds.get(doc, ABSENT_LOG_ODDS) for doc in docs} for log_odds in ranking_log_odds])


def _pair_rankings(rankings: Rankings, rows: Sequence[LearnedValues]) -> list[tuple[Ranking, LearnedValues]]:
    return list(zip(rankings, rows, strict=True))


def _expand_segments(row: LearnedValues, segment_ends: Sequence[int], n: int) -> list[float]:
    """Return the value of each of the first n ranks from the values of their segments."""
    values: list[float] = []
    for value, end in zip(row, segment_ends, strict=True):
        values += [value] * (min(end, n) - len(values))
    return values


def _assign_rank_values(ranking: Ranking, values: Sequence[float], beyond: float) -> Ranking:
    """Map each document to the value of its rank; ranks without a value get `beyond`."""
    tail = [beyond] * (len(ranking) - len(values))
    return dict(zip(ranking, [*values, *tail], strict=True))
