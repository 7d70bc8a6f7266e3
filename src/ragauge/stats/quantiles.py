"""How far a percentile may be off."""

from __future__ import annotations

import math

import numpy as np

from ragauge.records import Floats


def quantile_interval(values: Floats, share: float, confidence: float) -> tuple[float, float]:
    """An interval of a quantile that holds whatever the distribution: two of the sorted values.

    Formula: of n values the number below the quantile is binomial (n, share). The ends are the l-th and the u-th
    smallest with P(B < l) <= a / 2 and P(B >= u) <= a / 2, a being what the confidence leaves; where so few values
    have no such l or u the end is NaN: they do not say how far it may be off.

    >>> quantile_interval(np.arange(1.0, 101.0), 0.5, 0.95)
    (40.0, 61.0)
    """
    from scipy.special import bdtr

    n = len(values)
    if not n:
        return math.nan, math.nan
    ordered, outside = np.sort(values), (1 - confidence) / 2
    below = bdtr(np.arange(n, dtype=np.float64), n, share)  # at place i the chance of at most i values below
    lower = int(np.searchsorted(below, outside, side="right"))  # so many places have a chance no more than that
    upper = int(np.searchsorted(below, 1 - outside, side="left"))
    return float(ordered[lower - 1]) if lower else math.nan, float(ordered[upper]) if upper < n else math.nan
