"""Distribution-free confidence intervals of quantiles."""

from __future__ import annotations

import math

import numpy as np

from ragauge.records import Floats


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
    ordered, outside = np.sort(values), (1 - confidence) / 2
    below = bdtr(np.arange(n, dtype=np.float64), n, share)  # at index i the probability of at most i values below
    lower = int(np.searchsorted(below, outside, side="right"))  # number of indexes with a probability of at most that
    upper = int(np.searchsorted(below, 1 - outside, side="left"))
    return float(ordered[lower - 1]) if lower else math.nan, float(ordered[upper]) if upper < n else math.nan
