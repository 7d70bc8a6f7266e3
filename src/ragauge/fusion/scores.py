"""Fusion of scores: what is done with the numbers that a document got from each ranking that has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.fusion.order import Ranking, added, gathered, shares, weighted

Rankings = Sequence[Ranking]
Weights = Sequence[float] | None


def comb_min(rankings: Rankings) -> Ranking:
    """The least score of each document."""
    return {doc: min(scores) for doc, scores in gathered(rankings).items()}


def comb_max(rankings: Rankings) -> Ranking:
    """The greatest score of each document."""
    return {doc: max(scores) for doc, scores in gathered(rankings).items()}


def comb_med(rankings: Rankings) -> Ranking:
    """The median of each document's scores.

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
    """The sum of each document's scores."""
    return added(rankings)


def comb_anz(rankings: Rankings) -> Ranking:
    """The mean over the rankings that have the document."""
    return {doc: math.fsum(scores) / len(scores) for doc, scores in gathered(rankings).items()}


def comb_mnz(rankings: Rankings) -> Ranking:
    """The sum times the number of rankings that have the document.

    >>> comb_mnz([{"a": 1.0}, {"a": 0.5, "b": 2.0}])
    {'a': 3.0, 'b': 2.0}
    """
    return {doc: math.fsum(scores) * len(scores) for doc, scores in gathered(rankings).items()}


def comb_gmnz(rankings: Rankings, *, gamma: float = 0.5) -> Ranking:
    """The sum times that number to the power gamma: 0 is sum, 1 is mnz, -1 is anz."""
    return {doc: math.fsum(scores) * len(scores) ** gamma for doc, scores in gathered(rankings).items()}


def wsum(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """The sum of the scores, each times the weight of its ranking.

    >>> wsum([{"a": 1.0}, {"a": 0.5, "b": 1.0}], weights=[0.75, 0.25])
    {'a': 0.875, 'b': 0.25}
    """
    return added(rankings, shares(weights, rankings))


def wmnz(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """The sum of the scores times the sum of the weights of the rankings that have the document."""
    trust = added([dict.fromkeys(ranking, 1.0) for ranking in rankings], shares(weights, rankings))
    return {doc: score * trust[doc] for doc, score in added(rankings).items()}


def mixed(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """The weighted sum times the square root of the number of rankings that have the document."""
    found = gathered(weighted(rankings, shares(weights, rankings)))
    return {doc: math.fsum(scores) * math.sqrt(len(scores)) for doc, scores in found.items()}
