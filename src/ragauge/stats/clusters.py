"""Samples that hang together: several answers to one question are not as many samples as they look."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.stats.resampling import resampled_counts

ONE_GROUP = "all samples are of one question, which does not tell how far it may be off"


def separate(n: int, groups: Ints | None) -> int:
    """How many groups n samples are in; without groups each is one.

    >>> separate(5, None), separate(5, np.array([7, 7, 7, 2, 2]))
    (5, 2)
    """
    return n if groups is None else len(np.unique(groups))


def deviations(confidence: float, groups: Ints | None) -> float:
    """How many standard errors an interval reaches: the normal quantile, or Student's for G - 1 where G groups say it.

    >>> round(deviations(0.95, None), 3), round(deviations(0.95, np.arange(30) // 3), 3)
    (1.96, 2.262)
    """
    from scipy.special import ndtri, stdtrit

    level = (1 + confidence) / 2
    if groups is None:
        return float(ndtri(level))
    free = separate(len(groups), groups) - 1
    return float(stdtrit(free, level)) if free > 0 else math.inf


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


def design_effect(hits: Floats, groups: Ints | None, confidence: float = 0.95) -> float:
    """How many times more a share varies because whole groups are drawn; never below 1, so no interval gets narrower.

    Formula: the variance of the groups' sums over that of as many separate samples, times (t/z)^2, since G groups tell
    a variance no better than G samples would. Where all samples are alike, or in one group, nothing tells how far those
    of a group hang together, and they count as one: the sum of the squares of the groups' sizes over n.
    Papers: Kish, Survey Sampling, 1965; Korn and Graubard, Survey Methodology 1998.

    >>> round(design_effect(np.array([1.0, 1.0, 0.0, 0.0] * 25), np.arange(100) // 2), 2)
    2.12
    >>> design_effect(np.ones(100), np.arange(100) // 2), design_effect(np.array([1.0, 0.0]), None)
    (2.0, 1.0)
    """
    if groups is None or len(hits) < 2:
        return 1.0
    centred = hits - hits.mean()
    alone = float((centred**2).sum()) * len(hits) / (len(hits) - 1)
    if not alone or separate(len(hits), groups) < 2:
        return float((np.bincount(groups).astype(np.float64) ** 2).sum()) / len(hits)
    wider = (deviations(confidence, groups) / deviations(confidence, None)) ** 2
    return max(1.0, variance_of_sum(centred, groups) / alone) * wider


def grouped_counts(n: int, groups: Ints | None, rounds: int, seed: int) -> Iterator[Floats]:
    """Blocks of resamples of n samples as counts; samples of one group come and go together."""
    rng = np.random.default_rng(seed)
    if groups is None:
        yield from resampled_counts(n, rounds, rng)
        return
    _, group = np.unique(groups, return_inverse=True)
    for counts in resampled_counts(int(group.max()) + 1, rounds, rng):
        yield counts[:, group]
