"""Confidence intervals of means and quantiles, also for grouped samples."""

from __future__ import annotations

import math

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.stats.resampling import bootstrap_means

ROUNDS = 10_000
ORDINARY = 256
"""Largest binary exponent (and negative of the smallest) for which cubes neither overflow nor underflow."""


def powers(columns: Floats) -> Ints:
    """Return the power of two by which to scale each column before squaring.

    0 except for extreme values. Scaling by a power of two is exact, and avoids overflow and underflow of squares and
    cubes.

    >>> powers(np.array([[1e-300, 0.5], [2e-300, 0.25]])).tolist()
    [995, 0]
    """
    power = np.frexp(np.abs(columns).max(axis=0))[1]
    return np.where(np.abs(power) > ORDINARY, -power, 0).astype(np.int64)


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
    outside = (1 - confidence) / 2
    return np.asarray(np.quantile(resampled, [outside, 1 - outside], axis=0))


def bca_interval(columns: Floats, resampled: Floats, confidence: float) -> Floats:
    """Compute bias-corrected and accelerated (BCa) bootstrap intervals.

    Formula: with z0 the normal quantile of the share of resampled means below the mean (ties count half) and a a
    sixth of the skewness of the leave-one-out means, the ends are the percentiles Phi(z0 + (z0 + z) / (1 - a (z0 +
    z))) for z = -+ the normal quantile of the confidence. If all values are equal, both ends are the mean.
    Paper: Efron, JASA 1987.
    """
    from scipy.special import ndtr, ndtri

    mean = columns.mean(axis=0)
    ends = np.empty((2, columns.shape[1]))
    power = powers(columns)
    gaps = np.ldexp(columns - mean, power) / (len(columns) - 1)  # leave-one-out means are the mean minus these
    cubes, squares = (gaps**3).sum(axis=0), (gaps**2).sum(axis=0)
    for j in range(columns.shape[1]):
        if squares[j] <= (1e-15 * abs(np.ldexp(mean[j], power[j]))) ** 2:
            ends[:, j] = mean[j]
            continue
        near = 1e-11 * float(np.abs(columns[:, j]).mean())  # tolerance for sums of equal values in another order
        below = ((resampled[:, j] < mean[j] - near).mean() + (resampled[:, j] <= mean[j] + near).mean()) / 2
        z0 = ndtri(np.clip(below, 0.5 / len(resampled), 1 - 0.5 / len(resampled)))
        a = cubes[j] / (6 * squares[j] ** 1.5)
        z = z0 + np.array([-1.0, 1.0]) * ndtri((1 + confidence) / 2)
        ends[:, j] = np.quantile(resampled[:, j], ndtr(z0 + z / (1 - a * z)))
    return ends


def mean_intervals(columns: Floats, confidence: float = 0.95, *, rounds: int = ROUNDS, seed: int = 0) -> Floats:
    """Compute a BCa interval of the mean of each column, ignoring NaN.

    The result has a row of lower ends and a row of upper ends. Columns with values in the same rows share their
    resamples. NaN for fewer than two values.

    >>> mean_intervals(np.array([[0.0, 1.0, math.nan], [1.0, 1.0, 1.0]] * 50)).round(1).tolist()
    [[0.4, 1.0, 1.0], [0.6, 1.0, 1.0]]
    """
    ends = np.full((2, columns.shape[1]), math.nan)
    known = ~np.isnan(columns)
    places: dict[bytes, list[int]] = {}
    for j in range(columns.shape[1]):
        places.setdefault(known[:, j].tobytes(), []).append(j)
    for together in places.values():
        mine = columns[known[:, together[0]]][:, together]
        if len(mine) > 1:
            ends[:, together] = bca_interval(mine, bootstrap_means(mine, rounds, seed), confidence)
    return ends


def bootstrap_upper(
    columns: Floats, confidence: float = 0.95, *, worst: float = 1.0, rounds: int = ROUNDS, seed: int = 0
) -> Floats:
    """Compute a one-sided bootstrap upper bound of each column's mean loss.

    Formula: the confidence quantile of the means of `rounds` samples of n + 1 values, drawn with replacement from
    the n values and `worst`. Without the added value the bootstrap knows only observed losses, and n queries without
    loss would give a bound of 0. With it that bound is near 3/n, and for losses of 0 and 1 near Clopper and
    Pearson's.

    >>> bool(0.02 < bootstrap_upper(np.zeros((100, 1)))[0] < 0.04)
    True
    """
    known = np.vstack([columns, np.full((1, columns.shape[1]), worst)])
    return np.asarray(np.quantile(bootstrap_means(known, rounds, seed), confidence, axis=0))
