"""Corrections for correlated samples, such as several answers to one question."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.stats.resampling import resampled_counts

ONE_GROUP = "all samples are of one question, which does not tell how far it may be off"


def separate(n: int, groups: Ints | None) -> int:
    """Return the number of groups of n samples; without groups each sample is one.

    >>> separate(5, None), separate(5, np.array([7, 7, 7, 2, 2]))
    (5, 2)
    """
    return n if groups is None else len(np.unique(groups))


def deviations(confidence: float, groups: Ints | None) -> float:
    """Return the half-width of an interval in standard errors.

    That is the normal quantile, or Student's t with G - 1 degrees of freedom for G groups.

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
    """Compute the variance of a sum of centred parts if whole groups are sampled.

    Formula: G / (G - 1) times the sum of the squares of the G group sums; without groups each part is one.

    >>> variance_of_sum(np.array([1.0, -1.0]), None), variance_of_sum(np.array([1.0, 1.0, -2.0]), np.array([0, 0, 1]))
    (4.0, 16.0)
    """
    sums = parts if groups is None else np.bincount(groups, weights=parts)
    if groups is not None:
        sums = sums[np.bincount(groups) > 0]
    return float((sums**2).sum()) * len(sums) / (len(sums) - 1) if len(sums) > 1 else 0.0


def design_effect(hits: Floats, groups: Ints | None, confidence: float = 0.95) -> float:
    """Compute the factor by which grouping increases the variance of a share.

    At least 1.

    Formula: the variance of the group sums over that of as many independent samples, times (t/z)^2, since a variance
    from G groups is no more precise than from G samples. If all samples are equal, or in one group, the correlation
    within groups is unknown, and each group counts as one sample: the sum of the squares of the group sizes over n.
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
    """Yield blocks of resamples of n samples as counts.

    Samples of one group have equal counts.
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        yield from resampled_counts(n, rounds, rng)
        return
    _, group = np.unique(groups, return_inverse=True)
    for counts in resampled_counts(int(group.max()) + 1, rounds, rng):
        yield counts[:, group]
