"""A system that was asked several times: what of the variance lies between queries, and what chance brings in."""

from __future__ import annotations

import numpy as np

from ragauge.overviews import Parts, Variation
from ragauge.records import Floats


def mean_squares(table: Floats) -> Parts:
    """Between queries, between trials, and of the rest; a row for each trial, a column for each query, two or more.

    Formula: with n queries and T trials, T times the variance of the queries' means, n times that of the trials' means,
    and the sum of (value - its query's mean - its trial's mean + mean)^2 over (n - 1)(T - 1).

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
    """How the values of a system vary; None of a single trial, or of fewer than two queries that all trials scored.

    A query that some trial has no value for is left out: with it the table would have a hole, and the mean squares no
    longer the expectations that they are solved by.

    >>> found = variation(np.array([[1.0, 2.0], [3.0, 8.0]]))
    >>> found.estimates, found.unstable
    (Parts(queries=2.5, trials=6.0, rest=4.0), 2)
    """
    whole = table[:, ~np.isnan(table).any(axis=0)]
    count, n = whole.shape
    if count < 2 or n < 2:
        return None
    unstable = int((whole != whole[0]).any(axis=0).sum())
    if not unstable:  # without what rounding leaves
        return Variation(count, n, Parts(count * float(whole[0].var(ddof=1)), 0.0, 0.0), 0, table.shape[1] - n)
    return Variation(count, n, mean_squares(whole), unstable, table.shape[1] - n)
