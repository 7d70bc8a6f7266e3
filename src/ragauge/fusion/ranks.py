"""Fusion of ranks: scores decide only who stands above whom."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ragauge.fusion.order import Ranking, added, borda_points, by_rank, gathered, shares, union
from ragauge.fusion.scores import Rankings, Weights
from ragauge.records import Floats

_CELLS = 1 << 16
"""How many pairs of documents are compared at once: what fits a processor's cache."""


def rrf(rankings: Rankings, *, k: float = 60, weights: Weights = None) -> Ranking:
    """The sum of 1 / (k + rank), each times the weight of its ranking where there are weights.

    >>> rrf([{"a": 9.0, "b": 8.0}, {"b": 0.2}], k=0)
    {'a': 1.0, 'b': 1.5}
    """
    values = [1 / (k + rank) for rank in range(1, max(map(len, rankings)) + 1)]
    return added([dict(zip(ranking, values, strict=False)) for ranking in rankings], weights)


def rbc(rankings: Rankings, *, phi: float = 0.8) -> Ranking:
    """The sum of (1 - phi) * phi^(rank - 1): a reader goes on to the next document with probability phi."""
    return added([by_rank(ranking, lambda rank: (1 - phi) * phi ** (rank - 1)) for ranking in rankings])


def _inverse_squares(rankings: Rankings) -> dict[str, list[float]]:
    return gathered([by_rank(ranking, lambda rank: 1 / rank**2) for ranking in rankings])


def isr(rankings: Rankings) -> Ranking:
    """The sum of 1 / rank^2 times the number of rankings that have the document.

    >>> isr([{"a": 9.0, "b": 8.0}, {"b": 0.2}])
    {'a': 1.0, 'b': 2.5}
    """
    return {doc: math.fsum(parts) * len(parts) for doc, parts in _inverse_squares(rankings).items()}


def log_isr(rankings: Rankings) -> Ranking:
    """The same with the logarithm of that number: a document that only one ranking has gets 0."""
    return {doc: math.fsum(parts) * math.log(len(parts)) for doc, parts in _inverse_squares(rankings).items()}


def logn_isr(rankings: Rankings, *, sigma: float = 0.01) -> Ranking:
    """The same with the logarithm of that number plus sigma, so that ranks count also where one ranking is alone."""
    return {doc: math.fsum(parts) * math.log(len(parts) + sigma) for doc, parts in _inverse_squares(rankings).items()}


def bordafuse(rankings: Rankings) -> Ranking:
    """The sum of Borda points."""
    return added(borda_points(rankings))


def w_bordafuse(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """The sum of Borda points, each times the weight of its ranking."""
    return added(borda_points(rankings), shares(weights, rankings))


def condorcet(rankings: Rankings) -> Ranking:
    """One plus the number of documents that a document beats by majority; half for each that it is level with.

    Where majorities agree on an order, these are the places in it, counted from the last. Where they go round in a
    circle or nobody wins, no order is the majority's; counting victories (Copeland) then needs no order to begin with.

    >>> condorcet([{"a": 3.0, "b": 2.0}, {"a": 9.0, "c": 8.0}, {"b": 7.0, "c": 6.0}])
    {'a': 3.0, 'b': 2.0, 'c': 1.0}
    """
    return _victories(rankings, [1.0] * len(rankings))


def w_condorcet(rankings: Rankings, *, weights: Weights = None) -> Ranking:
    """The same with votes that weigh as much as their ranking."""
    return _victories(rankings, weights or [1.0] * len(rankings))


def _victories(rankings: Rankings, votes: Sequence[float]) -> Ranking:
    docs = union(rankings)
    n = len(docs)
    if n == 0:
        return {}
    # A ranking puts what it has above what it lacks, and has no opinion on two documents that it lacks.
    ranks = [{doc: rank for rank, doc in enumerate(ranking)} for ranking in rankings]
    places = np.array([[mine.get(doc, n) for doc in docs] for mine in ranks], np.int32)
    alike = len(set(votes)) == 1
    ballots = np.ones(len(votes), np.int16) if alike else np.asarray(votes, np.float64)
    level = 0 if alike else 1e-12 * sum(votes)  # sums of weights such as 0.1 + 0.2 and 0.3 differ in their last digit
    wins: Floats = np.empty(n)
    rows = max(1, _CELLS // n)
    for begin in range(0, n, rows):
        part = places[:, begin : begin + rows, None]
        margins = np.zeros((part.shape[1], n), ballots.dtype)
        for mine, theirs, ballot in zip(part, places, ballots, strict=True):
            opinions = (theirs > mine).view(np.int8) - (theirs < mine).view(np.int8)
            margins += opinions if alike else ballot * opinions
        beaten, beats = (margins < -level).sum(axis=1), (margins > level).sum(axis=1)
        wins[begin : begin + rows] = (beats - beaten + n) / 2
    # Victories, and half of the draws, are half of (n + victories - defeats); a document's draw with itself is in it.
    return dict(zip(docs, (wins + 0.5).tolist(), strict=True))
