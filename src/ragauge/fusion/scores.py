"""Fusion methods that use scores, without training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.fusion.order import Ranking, added, gathered, shares, weighted

Rankings = Sequence[Ranking]
Weights = Sequence[float] | None


def comb_min(rankings: Rankings) -> Ranking:
    """Take the lowest score of each document."""
    return {doc: min(scores) for doc, scores in gathered(rankings).items()}


def comb_max(rankings: Rankings) -> Ranking:
    """Take the highest score of each document."""
    return {doc: max(scores) for doc, scores in gathered(rankings).items()}


def comb_med(rankings: Rankings) -> Ranking:
    """Take the median of each document's scores.

    >>> comb_med([{"a": 1.0}, {"a": 3.0, "b": 2.0}])
    {'a': 2.0, 'b': 2.0}
    """
    medians = {}
    for doc, scores in gathered(rankings).items():
        scores.sort()
        half = len(scores) // 2
        medians[doc] = scores[half] if len(scores) % 2 else (scores[half - 1] + scores[half]) / 2
    return medians


def comb_sum(rankings: Rankings) -> Ranking:
    """Sum each document's scores."""
    return added(rankings)


def comb_anz(rankings: Rankings) -> Ranking:
    """Average each document's scores over the rankings with the document."""
    return {doc: math.fsum(scores) / len(scores) for doc, scores in gathered(rankings).items()}


def comb_mnz(rankings: Rankings) -> Ranking:
    """Sum each document's scores, times the number of rankings with the document.

    >>> comb_mnz([{"a": 1.0}, {"a": 0.5, "b": 2.0}])
    {'a': 3.0, 'b': 2.0}
    """
    return {doc: math.fsum(scores) * len(scores) for doc, scores in gathered(rankings).items()}


def comb_gmnz(rankings: Rankings, *, gamma: float = 0.5) -> Ranking:
    """Sum the scores, times (number of rankings with the document)^gamma.

    gamma=0 is comb_sum, 1 is comb_mnz, -1 is comb_anz.
    """
    return {doc: math.fsum(scores) * len(scores) ** gamma for doc, scores in gathered(rankings).items()}


def wsum(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum the scores, each multiplied by the weight of its ranking.

    >>> wsum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[0.75, 0.25])
    {'a': 0.875, 'b': 0.25}
    """
    return added(rankings, shares(weights, rankings))


def wmnz(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum the scores, times the sum of the weights of the rankings with the document."""
    trust = added([dict.fromkeys(ranking, 1.0) for ranking in rankings], shares(weights, rankings))
    return {doc: score * trust[doc] for doc, score in added(rankings).items()}


def mixed(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """Sum the weighted scores, times the square root of their number."""
    found = gathered(weighted(rankings, shares(weights, rankings)))
    return {doc: math.fsum(scores) * math.sqrt(len(scores)) for doc, scores in found.items()}
