"""Expected values of measures over all orders of equal scores.

After McSherry and Najork (2008), Computing IR Performance Measures Efficiently in the Presence of Tied Scores. A tie
group consists of the ranks `first` to `last` that its documents share; all orders are equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.measures.judged_ranks import JudgedRanks


def rank_bounds(judged: JudgedRanks) -> tuple[Ints, Ints]:
    """Return the first and the last rank that each document can have."""
    if judged.tie_first is None or judged.tie_last is None:
        return judged.rank, judged.rank
    return judged.tie_first, judged.tie_last


def mean_discount(judged: JudgedRanks, discount: Floats) -> Floats:
    """Average `discount[rank]` over the ranks that each document can have.

    0 beyond the array.
    """
    first, last = rank_bounds(judged)
    upto = np.concatenate([[0.0], np.cumsum(discount[1:])])
    end = len(upto) - 1
    total: Floats = upto[np.minimum(last, end)] - upto[np.minimum(first - 1, end)]
    return total / (last - first + 1)


def _tie_groups(judged: JudgedRanks, rel: float) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the tie groups with relevant documents.

    Each is a tuple of query, first rank, size, number of relevant documents in it, and number above it.
    """
    first, last = rank_bounds(judged)
    is_relevant = judged.grade >= rel
    table = np.stack(
        [judged.query[is_relevant], first[is_relevant], last[is_relevant] - first[is_relevant] + 1], axis=1
    )
    groups, counts = np.unique(table, axis=0, return_counts=True)
    query, above = -1, 0
    for (group_query, begin, size), n_relevant in zip(groups.tolist(), counts.tolist(), strict=True):
        if group_query != query:
            query, above = group_query, 0
        yield group_query, begin, size, n_relevant, above
        above += n_relevant


def hit_rate(judged: JudgedRanks, k: int, rel: float) -> Floats:
    """Compute the probability that a relevant document is in the first k."""
    values = np.zeros(judged.n)
    for query, first, size, n_relevant, above in _tie_groups(judged, rel):
        n_in_top = min(size, k - first + 1)
        if above == 0 and n_in_top > 0:
            values[query] = 1 - _no_relevant_above(size, n_relevant, n_in_top)[-1]
    return values


def reciprocal_rank(judged: JudgedRanks, k: int | None, rel: float) -> Floats:
    """Compute the expected reciprocal rank of the first relevant document."""
    values = np.zeros(judged.n)
    for query, first, size, n_relevant, above in _tie_groups(judged, rel):
        if above == 0:
            n_positions = size - n_relevant + 1
            positions = np.arange(n_positions if k is None else min(n_positions, max(0, k - first + 1)))
            is_first = _no_relevant_above(size, n_relevant, len(positions))[:-1] * n_relevant / (size - positions)
            values[query] = (is_first / (first + positions)).sum()
    return values


def _no_relevant_above(size: int, n_relevant: int, n_positions: int) -> Floats:
    """Return the probability that the first 0, 1, … n positions of a tie group hold no relevant document."""
    positions = np.arange(n_positions)
    shares = np.maximum(size - n_relevant - positions, 0) / (size - positions)
    return np.cumprod(np.concatenate([[1.0], shares]))


def precision_sum(judged: JudgedRanks, k: int | None, rel: float) -> Floats:
    """Compute the expected sum of the precisions at the relevant ranks up to k."""
    values = np.zeros(judged.n)
    for query, first, size, n_relevant, above in _tie_groups(judged, rel):
        ranks = np.arange(first, first + size)
        expected_above = np.arange(size) * (n_relevant - 1) / max(size - 1, 1)
        precisions = n_relevant / size * (above + expected_above + 1) / ranks
        values[query] += precisions.sum() if k is None else precisions[ranks <= k].sum()
    return values


def precision_of_found(judged: JudgedRanks, k: int, rel: float) -> Floats:
    """Compute the expected mean precision at the relevant ranks found up to k."""
    values = np.zeros(judged.n)
    complete = np.zeros(judged.n)
    for query, first, size, n_relevant, above in _tie_groups(judged, rel):
        n_in_top = min(size, k - first + 1)
        if n_in_top <= 0:
            continue
        # Groups above the cutoff are complete. Of the group that it splits, x relevant documents are in with this
        # probability.
        x = np.arange(max(0, n_in_top - (size - n_relevant)), min(n_relevant, n_in_top) + 1)
        positions = np.arange(n_in_top)
        expected_above = (x - 1) / max(n_in_top - 1, 1) * (positions / (first + positions)).sum()
        group_sums = x / n_in_top * ((above + 1) * (1 / (first + positions)).sum() + expected_above)
        shares = (complete[query] + group_sums) / np.maximum(above + x, 1)  # without relevant documents both are 0
        values[query] = (_hypergeometric(size, n_relevant, n_in_top, x) * shares).sum()
        if n_in_top == size:
            complete[query] += group_sums[0]
    return values


def _hypergeometric(size: int, n_relevant: int, n_drawn: int, x: Ints) -> Floats:
    """Return the probability of each number of relevant documents among those drawn; `x` has all possible ones."""
    ratios = (n_relevant - x[:-1]) * (n_drawn - x[:-1]) / (x[1:] * (size - n_relevant - n_drawn + x[1:]))
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    weights = np.exp(logarithms - logarithms.max())
    return np.asarray(weights / weights.sum())
