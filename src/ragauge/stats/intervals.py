"""Confidence intervals of means and quantiles, also for grouped samples."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.stats.resampling import bootstrap_means, draw_counts

ONE_GROUP = "all samples belong to one question, so no interval can be computed"


def cluster_ids(n: int, groups: Ints | None) -> int:
    """Return the number of groups of n samples; without groups each sample is one.

    >>> cluster_ids(5, None), cluster_ids(5, np.array([7, 7, 7, 2, 2]))
    (5, 2)
    """
    return n if groups is None else len(np.unique(groups))


def cluster_deviations(confidence: float, groups: Ints | None) -> float:
    """Return the half-width of an interval in standard errors.

    That is the normal quantile, or Student's t with G - 1 degrees of freedom for G groups.

    >>> round(cluster_deviations(0.95, None), 3), round(cluster_deviations(0.95, np.arange(30) // 3), 3)
    (1.96, 2.262)
    """
    from scipy.special import ndtri, stdtrit

    level = (1 + confidence) / 2
    if groups is None:
        return float(ndtri(level))
    degrees_of_freedom = cluster_ids(len(groups), groups) - 1
    return float(stdtrit(degrees_of_freedom, level)) if degrees_of_freedom > 0 else math.inf


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
    ungrouped_variance = float((centred**2).sum()) * len(hits) / (len(hits) - 1)
    if not ungrouped_variance or cluster_ids(len(hits), groups) < 2:
        return float((np.bincount(groups).astype(np.float64) ** 2).sum()) / len(hits)
    wider = (cluster_deviations(confidence, groups) / cluster_deviations(confidence, None)) ** 2
    return max(1.0, variance_of_sum(centred, groups) / ungrouped_variance) * wider


def cluster_resample_counts(n: int, groups: Ints | None, rounds: int, seed: int) -> Iterator[Floats]:
    """Yield blocks of resamples of n samples as counts.

    Samples of one group have equal counts.
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        yield from draw_counts(n, rounds, rng)
        return
    _, group = np.unique(groups, return_inverse=True)
    for counts in draw_counts(int(group.max()) + 1, rounds, rng):
        yield counts[:, group]


BOOTSTRAP_ROUNDS = 10_000
MAX_SAFE_EXPONENT = 256
"""Largest binary exponent (and negative of the smallest) for which cubes neither overflow nor underflow."""


def scaling_exponents(columns: Floats) -> Ints:
    """Return the power of two by which to scale each column before squaring.

    0 except for extreme values. Scaling by a power of two is exact, and avoids overflow and underflow of squares and
    cubes.

    >>> scaling_exponents(np.array([[1e-300, 0.5], [2e-300, 0.25]])).tolist()
    [995, 0]
    """
    power = np.frexp(np.abs(columns).max(axis=0))[1]
    return np.where(np.abs(power) > MAX_SAFE_EXPONENT, -power, 0).astype(np.int64)


def t_interval(values: Floats, confidence: float) -> tuple[float, float]:
    """Compute Student's t interval of a mean.

    Formula: mean -+ t s / sqrt(n), with t the (1 + confidence) / 2 quantile for n - 1 degrees of freedom.

    >>> tuple(round(end, 4) for end in t_interval(np.array([1.0, 2.0, 3.0]), 0.95))
    (-0.4841, 4.4841)
    """
    from scipy.special import stdtrit

    n, mean = len(values), float(values.mean())
    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
    return mean - reach, mean + reach


def percentile_interval(resampled: Floats, confidence: float) -> Floats:
    """Compute percentile intervals from resampled means.

    The result has a row of lower ends and a row of upper ends.

    >>> percentile_interval(np.arange(101.0)[:, None], 0.5).ravel().tolist()
    [25.0, 75.0]
    """
    tail = (1 - confidence) / 2
    return np.asarray(np.quantile(resampled, [tail, 1 - tail], axis=0))


def bca_interval(columns: Floats, resampled: Floats, confidence: float) -> Floats:
    """Compute bias-corrected and accelerated (BCa) bootstrap intervals.

    Formula: with z0 the normal quantile of the share of resampled means below the mean (ties count half) and a a
    sixth of the skewness of the leave-one-out means, the ends are the percentiles Phi(z0 + (z0 + z) / (1 - a (z0 +
    z))) for z = -+ the normal quantile of the confidence. If all values are equal, both ends are the mean.
    Paper: Efron, JASA 1987.
    """
    from scipy.special import ndtr, ndtri

    mean = columns.mean(axis=0)
    bounds = np.empty((2, columns.shape[1]))
    power = scaling_exponents(columns)
    deviations = np.ldexp(columns - mean, power) / (len(columns) - 1)  # leave-one-out means are the mean minus these
    cubes, squares = (deviations**3).sum(axis=0), (deviations**2).sum(axis=0)
    for j in range(columns.shape[1]):
        if squares[j] <= (1e-15 * abs(np.ldexp(mean[j], power[j]))) ** 2:
            bounds[:, j] = mean[j]
            continue
        tolerance = 1e-11 * float(np.abs(columns[:, j]).mean())  # tolerance for sums of equal values in another order
        below = ((resampled[:, j] < mean[j] - tolerance).mean() + (resampled[:, j] <= mean[j] + tolerance).mean()) / 2
        z0 = ndtri(np.clip(below, 0.5 / len(resampled), 1 - 0.5 / len(resampled)))
        a = cubes[j] / (6 * squares[j] ** 1.5)
        z = z0 + np.array([-1.0, 1.0]) * ndtri((1 + confidence) / 2)
        bounds[:, j] = np.quantile(resampled[:, j], ndtr(z0 + z / (1 - a * z)))
    return bounds


def mean_intervals(
    columns: Floats, confidence: float = 0.95, *, rounds: int = BOOTSTRAP_ROUNDS, seed: int = 0
) -> Floats:
    """Compute a BCa interval of the mean of each column, ignoring NaN.

    The result has a row of lower ends and a row of upper ends. Columns with values in the same rows share their
    resamples. NaN for fewer than two values.

    >>> mean_intervals(np.array([[0.0, 1.0, math.nan], [1.0, 1.0, 1.0]] * 50)).round(1).tolist()
    [[0.4, 1.0, 1.0], [0.6, 1.0, 1.0]]
    """
    bounds = np.full((2, columns.shape[1]), math.nan)
    is_scored = ~np.isnan(columns)
    columns_by_mask: dict[bytes, list[int]] = {}
    for j in range(columns.shape[1]):
        columns_by_mask.setdefault(is_scored[:, j].tobytes(), []).append(j)
    for same_mask in columns_by_mask.values():
        scored_columns = columns[is_scored[:, same_mask[0]]][:, same_mask]
        if len(scored_columns) > 1:
            bounds[:, same_mask] = bca_interval(
                scored_columns, bootstrap_means(scored_columns, rounds, seed), confidence
            )
    return bounds


def quantile_interval(values: Floats, share: float, confidence: float) -> tuple[float, float]:
    """Compute a distribution-free interval of a quantile.

    Its ends are two of the sorted values.

    Formula: of n values the number below the quantile is binomial (n, share). The ends are the l-th and the u-th
    smallest with P(B < l) <= a / 2 and P(B >= u) <= a / 2, a = 1 - confidence. An end is NaN if there are too few
    values.

    >>> quantile_interval(np.arange(1.0, 101.0), 0.5, 0.95)
    (40.0, 61.0)
    """
    from scipy.special import bdtr

    n = len(values)
    if not n:
        return math.nan, math.nan
    ordered, tail = np.sort(values), (1 - confidence) / 2
    below = bdtr(np.arange(n, dtype=np.float64), n, share)  # at index i the probability of at most i values below
    lower = int(np.searchsorted(below, tail, side="right"))  # number of indexes with a probability of at most that
    upper = int(np.searchsorted(below, 1 - tail, side="left"))
    return float(ordered[lower - 1]) if lower else math.nan, float(ordered[upper]) if upper < n else math.nan
