"""Variance components of repeated trials of one system: between queries, between trials, residual."""

from __future__ import annotations

import numpy as np

from ragauge.overviews import Parts, Variation
from ragauge.records import Floats


def mean_squares(table: Floats) -> Parts:
    """Compute the mean squares between queries, between trials, and of the residual.

    `table` has one row per trial and one column per query, at least two of each. Formula: with n queries and T
    trials, T times the variance of the query means, n times that of the trial means, and the sum of (value - query
    mean - trial mean + mean)^2 over (n - 1)(T - 1).

    >>> mean_squares(np.array([[1.0, 2.0], [3.0, 8.0]]))
    Parts(queries=9.0, trials=16.0, rest=4.0)
    """
    count, n = table.shape
    queries, trials = table.mean(axis=0), table.mean(axis=1)
    rest = table - queries - trials[:, None] + table.mean()
    return Parts(
        count * float(queries.var(ddof=1)),
        n * float(trials.var(ddof=1)),
        float((rest**2).sum()) / ((count - 1) * (n - 1)),
    )


def variation(table: Floats) -> Variation | None:
    """Analyse how the scores of a system vary.

    None for one trial, or fewer than two complete queries. A query without a value in some trial is left out,
    because the estimates from mean squares need a complete table.

    >>> found = variation(np.array([[1.0, 2.0], [3.0, 8.0]]))
    >>> found.estimates, found.unstable
    (Parts(queries=2.5, trials=6.0, rest=4.0), 2)
    """
    whole = table[:, ~np.isnan(table).any(axis=0)]
    count, n = whole.shape
    if count < 2 or n < 2:
        return None
    unstable = int((whole != whole[0]).any(axis=0).sum())
    if not unstable:  # exactly 0, without rounding errors
        return Variation(count, n, Parts(count * float(whole[0].var(ddof=1)), 0.0, 0.0), 0, table.shape[1] - n)
    return Variation(count, n, mean_squares(whole), unstable, table.shape[1] - n)
