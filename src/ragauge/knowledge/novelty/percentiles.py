"""Percentile ranks of values among others."""

from __future__ import annotations

import numpy as np

from ragauge.records import Floats


def percentiles(values: Floats, among: Floats) -> Floats:
    """Return the percentile rank, 0 to 100, of each value.

    Ties count half; NaN if `among` is empty.

    >>> percentiles(np.array([0.0, 2.0, 9.0, np.nan]), np.array([1.0, 2.0, 2.0, 3.0])).tolist()
    [0.0, 50.0, 100.0, nan]
    """
    known = np.sort(among[~np.isnan(among)])
    if not len(known):
        return np.full(len(values), np.nan)
    below, upto = (np.searchsorted(known, values, side) for side in ("left", "right"))
    return np.where(np.isnan(values), np.nan, (below + upto) * 50.0 / len(known))
