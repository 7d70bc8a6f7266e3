"""Fusion methods without training, by ranks (RRF, Borda, …) or by scores (CombSUM, …)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ragauge.core.records import Floats
from ragauge.fusion.normalisation import (
    Ranking,
    all_documents,
    apply_weights,
    borda_points,
    map_ranks,
    normalised_weights,
    scores_by_document,
    sum_scores,
)

Rankings = Sequence[Ranking]
Weights = Sequence[float] | None


def comb_min(rankings: Rankings) -> Ranking:
    """Take the lowest score of each document."""
    return {doc: min(scores) for doc, scores in scores_by_document(rankings).items()}


def comb_max(rankings: Rankings) -> Ranking:
    """Take the highest score of each document."""
    return {doc: max(scores) for doc, scores in scores_by_document(rankings).items()}


def comb_med(rankings: Rankings) -> Ranking:
    """Take the median of each document's scores.

    >>> comb_med([{"a": 1.0}, {"a": 3.0, "b": 2.0}])
    {'a': 2.0, 'b': 2.0}
    """
    medians = {}
    for doc, scores in scores_by_document(rankings).items():
        scores.sort()
        half = len(scores) // 2
        medians[doc] = scores[half] if len(scores) % 2 else (scores[half - 1] + scores[half]) / 2
    return medians


def comb_sum(rankings: Rankings) -> Ranking:
    """Sum each document's scores."""
    return sum_scores(rankings)


def comb_anz(rankings: Rankings) -> Ranking:
    """Average each document's scores over the rankings with the document."""
    return {doc: math.fsum(scores) / len(scores) for doc, scores in scores_by_document(rankings).items()}


def comb_mnz(rankings: Rankings) -> Ranking:
    """Sum each document's scores, times the number of rankings with the document.

    >>> comb_mnz([{"a": 1.0}, {"a": 0.5, "b": 2.0}])
    {'a': 3.0, 'b': 2.0}
    """
    return {doc: math.fsum(scores) * len(scores) for doc, scores in scores_by_document(rankings).items()}


def comb_gmnz(rankings: Rankings, *, gamma: float = 0.5) -> Ranking:
    """Sum the scores, times (number of rankings with the document)^gamma.

    gamma=0 is comb_sum, 1 is comb_mnz, -1 is comb_anz.
    """
    return {doc: math.fsum(scores) * len(scores) ** gamma for doc, scores in scores_by_document(rankings).items()}


def wsum(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum the scores, each multiplied by the weight of its ranking.

    >>> wsum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[0.75, 0.25])
    {'a': 0.875, 'b': 0.25}
    """
    return sum_scores(rankings, normalised_weights(weights, rankings))


def wmnz(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum the scores, times the sum of the weights of the rankings with the document."""
    trust = sum_scores([dict.fromkeys(ranking, 1.0) for ranking in rankings], normalised_weights(weights, rankings))
    return {doc: score * trust[doc] for doc, score in sum_scores(rankings).items()}


def mixed(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum the weighted scores, times the square root of their number."""
    scores_by_doc = scores_by_document(apply_weights(rankings, normalised_weights(weights, rankings)))
    return {doc: math.fsum(scores) * math.sqrt(len(scores)) for doc, scores in scores_by_doc.items()}


_PAIRS_PER_BLOCK = 1 << 16
"""Number of document pairs compared at a time; fits the CPU cache."""


def rrf(rankings: Rankings, *, k: float = 60, weights: Weights = None) -> Ranking:
    """Sum 1 / (k + rank), multiplied by the weight of the ranking if given.

    >>> rrf([{"a": 9.0, "b": 8.0}, {"b": 0.2}], k=0)
    {'a': 1.0, 'b': 1.5}
    """
    values = [1 / (k + rank) for rank in range(1, max(map(len, rankings)) + 1)]
    return sum_scores([dict(zip(ranking, values, strict=False)) for ranking in rankings], weights)


def rbc(rankings: Rankings, *, phi: float = 0.8) -> Ranking:
    """Sum (1 - phi) * phi^(rank - 1).

    phi is the probability that a user reads the next document.
    """
    return sum_scores([map_ranks(ranking, lambda rank: (1 - phi) * phi ** (rank - 1)) for ranking in rankings])


def _inverse_square_ranks(rankings: Rankings) -> dict[str, list[float]]:
    return scores_by_document([map_ranks(ranking, lambda rank: 1 / rank**2) for ranking in rankings])


def isr(rankings: Rankings) -> Ranking:
    """Sum 1 / rank^2, times the number of rankings with the document.

    >>> isr([{"a": 9.0, "b": 8.0}, {"b": 0.2}])
    {'a': 1.0, 'b': 2.5}
    """
    return {doc: math.fsum(parts) * len(parts) for doc, parts in _inverse_square_ranks(rankings).items()}


def log_isr(rankings: Rankings) -> Ranking:
    """Sum 1 / rank^2, times the log of the number of rankings with the document.

    A document in only one ranking gets 0.
    """
    return {doc: math.fsum(parts) * math.log(len(parts)) for doc, parts in _inverse_square_ranks(rankings).items()}


def logn_isr(rankings: Rankings, *, sigma: float = 0.01) -> Ranking:
    """Sum 1 / rank^2, times log(number of rankings with the document + sigma).

    With sigma > 0, ranks count even for a document in only one ranking.
    """
    return {
        doc: math.fsum(parts) * math.log(len(parts) + sigma) for doc, parts in _inverse_square_ranks(rankings).items()
    }


def bordafuse(rankings: Rankings) -> Ranking:
    """Sum Borda points."""
    return sum_scores(borda_points(rankings))


def w_bordafuse(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum Borda points, multiplied by the weight of the ranking."""
    return sum_scores(borda_points(rankings), normalised_weights(weights, rankings))


def condorcet(rankings: Rankings) -> Ranking:
    """Score documents by pairwise majority (Copeland).

    The score is 1 + documents beaten + half of the draws. If majorities agree on an order, the score is the position
    counted from the last. Counting victories needs no such order, so cycles and draws are no problem.

    >>> condorcet([{"a": 3.0, "b": 2.0}, {"a": 9.0, "c": 8.0}, {"b": 7.0, "c": 6.0}])
    {'a': 3.0, 'b': 2.0, 'c': 1.0}
    """
    return _count_victories(rankings, [1.0] * len(rankings))


def w_condorcet(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Score documents by pairwise weighted majority; a ranking's vote is its weight."""
    return _count_victories(rankings, weights or [1.0] * len(rankings))


def _count_victories(rankings: Rankings, votes: Sequence[float]) -> Ranking:
    docs = all_documents(rankings)
    n = len(docs)
    if n == 0:
        return {}
    # A ranking prefers documents it has to those it lacks, and has no preference between two that it lacks.
    ranks = [{doc: rank for rank, doc in enumerate(ranking)} for ranking in rankings]
    positions = np.array([[ranks_by_doc.get(doc, n) for doc in docs] for ranks_by_doc in ranks], np.int32)
    has_equal_votes = len(set(votes)) == 1
    vote_weights = np.ones(len(votes), np.int16) if has_equal_votes else np.asarray(votes, np.float64)
    tolerance = (
        0 if has_equal_votes else 1e-12 * sum(votes)
    )  # sums of weights such as 0.1 + 0.2 and 0.3 differ in the last digit
    wins: Floats = np.empty(n)
    rows = max(1, _PAIRS_PER_BLOCK // n)
    for begin in range(0, n, rows):
        block = positions[:, begin : begin + rows, None]
        margins = np.zeros((block.shape[1], n), vote_weights.dtype)
        for block_ranks, all_ranks, vote in zip(block, positions, vote_weights, strict=True):
            opinions = (all_ranks > block_ranks).view(np.int8) - (all_ranks < block_ranks).view(np.int8)
            margins += opinions if has_equal_votes else vote * opinions
        beaten, beats = (margins < -tolerance).sum(axis=1), (margins > tolerance).sum(axis=1)
        wins[begin : begin + rows] = (beats - beaten + n) / 2
    # Victories + draws / 2 = (n + victories - defeats) / 2, which includes a document's draw with itself.
    return dict(zip(docs, (wins + 0.5).tolist(), strict=True))
