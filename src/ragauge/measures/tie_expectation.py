"""Expected values of measures over all orders of equal scores.

After McSherry and Najork (2008), Computing IR Performance Measures Efficiently in the Presence of Tied Scores. A tie
group consists of the ranks `first` to `last` that its documents share; all orders are equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

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
            values[query] = 1 - comb(size - n_relevant, n_in_top) / comb(size, n_in_top)
    return values


def reciprocal_rank(judged: JudgedRanks, k: int | None, rel: float) -> Floats:
    """Compute the expected reciprocal rank of the first relevant document."""
    values = np.zeros(judged.n)
    for query, first, size, n_relevant, above in _tie_groups(judged, rel):
        if above == 0:
            # Probability that the first of `inside` relevant documents among `size` positions is at position i.
            n_arrangements = comb(size, n_relevant)
            positions = range(size - n_relevant + 1)
            values[query] = sum(
                comb(size - i - 1, n_relevant - 1) / n_arrangements / (first + i)
                for i in positions
                if k is None or first + i <= k
            )
    return values


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
        value = 0.0
        for x in range(max(0, n_in_top - (size - n_relevant)), min(n_relevant, n_in_top) + 1):
            probability = comb(n_relevant, x) * comb(size - n_relevant, n_in_top - x) / comb(size, n_in_top)
            expected_above = np.arange(n_in_top) * (x - 1) / max(n_in_top - 1, 1)
            group_sum = (
                float((x / n_in_top * (above + expected_above + 1) / np.arange(first, first + n_in_top)).sum())
                if x
                else 0.0
            )
            value += probability * (complete[query] + group_sum) / (above + x) if above + x else 0.0
            if n_in_top == size:
                complete[query] += group_sum
        values[query] = value
    return values
