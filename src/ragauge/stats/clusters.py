"""Samples that hang together: several answers to one question are not as many samples as they look."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.stats.resampling import resampled_counts


def variance_of_sum(parts: Floats, groups: Ints | None) -> float:
    """The variance of a sum of centred parts, when whole groups are drawn: that of the groups' own sums.

    Formula: G / (G - 1) times the sum of the squares of the G groups' sums; without groups each part is one.

    >>> variance_of_sum(np.array([1.0, -1.0]), None), variance_of_sum(np.array([1.0, 1.0, -2.0]), np.array([0, 0, 1]))
    (4.0, 16.0)
    """
    sums = parts if groups is None else np.bincount(groups, weights=parts)
    if groups is not None:
        sums = sums[np.bincount(groups) > 0]
    return float((sums**2).sum()) * len(sums) / (len(sums) - 1) if len(sums) > 1 else 0.0


def design_effect(hits: Floats, groups: Ints | None) -> float:
    """How many times more a share varies because whole groups are drawn; never below 1, so no interval gets narrower.

    Paper: Kish, Survey Sampling, 1965.

    >>> round(design_effect(np.array([1.0, 1.0, 0.0, 0.0] * 25), np.arange(100) // 2), 2)
    2.02
    >>> design_effect(np.array([1.0, 0.0]), None)
    1.0
    """
    if groups is None or len(hits) < 2:
        return 1.0
    centred = hits - hits.mean()
    alone = float((centred**2).sum()) * len(hits) / (len(hits) - 1)
    return max(1.0, variance_of_sum(centred, groups) / alone) if alone else 1.0


def grouped_counts(n: int, groups: Ints | None, rounds: int, seed: int) -> Iterator[Floats]:
    """Blocks of resamples of n samples as counts; samples of one group come and go together."""
    rng = np.random.default_rng(seed)
    if groups is None:
        yield from resampled_counts(n, rounds, rng)
        return
    _, group = np.unique(groups, return_inverse=True)
    for counts in resampled_counts(int(group.max()) + 1, rounds, rng):
        yield counts[:, group]
