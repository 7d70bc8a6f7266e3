"""Power analysis: the smallest difference that a query set can detect, and the number of queries needed."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ragauge.core.errors import BadInput

MAX_QUERIES = 10_000_000
"""Maximum number of queries considered."""


def t_test_power(effect: float, n: int, *, alpha: float = 0.05) -> float:
    """Compute the power of a two-sided paired t-test on n queries.

    `effect` is the true difference divided by the standard deviation of the differences. Formula: P(|T| > t) where T
    has n - 1 degrees of freedom and noncentrality effect * sqrt(n), and t is the 1 - alpha/2 quantile without it.

    >>> round(t_test_power(0.5, 34), 4)
    0.8078
    """
    from scipy.special import chdtri, nctdtr, ndtr, stdtrit

    df, shift = n - 1, abs(effect) * math.sqrt(n)
    edge = float(stdtrit(df, 1 - alpha / 2))
    below, above = nctdtr(df, shift, -edge), nctdtr(df, shift, edge)
    if shift > 30 or math.isnan(above):  # the noncentral distribution is inaccurate this far out
        chances = (np.arange(4096) + 0.5) / 4096
        return float(ndtr(shift - edge * np.sqrt(chdtri(df, chances) / df)).mean())
    return float(1 - above + (0.0 if math.isnan(below) else below))


def detectable_difference(sd: float, n: int, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Compute the smallest true difference that n queries detect with the given power.

    `sd` is the standard deviation of the differences. NaN for fewer than two queries, or if no query differs.

    >>> round(detectable_difference(0.1, 100), 4)
    0.0283
    """
    _check_power(alpha, power)
    return sd * _smallest_effect(n, alpha, power) if n >= 2 and sd > 0 else math.nan


@lru_cache(maxsize=1024)
def _smallest_effect(n: int, alpha: float, power: float) -> float:
    """Compute the smallest detectable effect size.

    Cached, because it is equal for all measures and systems.
    """
    from scipy.optimize import brentq

    high = 1.0
    while t_test_power(high, n, alpha=alpha) < power:
        high *= 2
        if high > 1e9:
            return math.nan
    return float(brentq(lambda effect: t_test_power(effect, n, alpha=alpha) - power, 0.0, high, xtol=1e-12))


def queries_needed(sd: float, difference: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Compute the number of queries that detect a true difference.

    None above ten million. Raises `BadInput` if the difference or its standard deviation is 0.

    >>> queries_needed(0.1, 0.05), queries_needed(0.1, 0.01)
    (34, 787)
    """
    _check_power(alpha, power)
    if not abs(difference) > 0:
        raise BadInput("a difference of 0 cannot be detected", hint="pass the smallest difference that matters")
    if not sd > 0:
        raise BadInput("the standard deviation of the differences is 0", hint="pass a standard deviation above 0")
    effect = difference / sd
    low, high = 1, 2
    while t_test_power(effect, high, alpha=alpha) < power:
        low, high = high, high * 2
        if high > MAX_QUERIES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if t_test_power(effect, middle, alpha=alpha) >= power else (middle, high)
    return high


def _check_power(alpha: float, power: float) -> None:
    if not (0 < alpha < 1 and alpha < power < 1):
        raise BadInput(
            f"alpha and power must be between 0 and 1, got {alpha:g} and {power:g}", hint="use alpha=0.05, power=0.8"
        )
