"""Multiple-comparison correction of p-values."""

from __future__ import annotations

import numpy as np

from ragauge.records import Floats


def corrected(p_values: Floats, how: str) -> Floats:
    """Correct p-values for multiple comparisons.

    NaN is not counted as a test and stays NaN. `bonferroni`: times m. `holm`: the smallest times m, the next times m
    - 1, made non-decreasing. Both keep the probability of any false positive below the level. `bh` (Benjamini and
    Hochberg): the i-th smallest times m / i, made non-increasing from the largest down; it keeps the expected share
    of false positives below the level. `none`: unchanged.

    >>> [corrected(np.array([0.01, 0.04, 0.03]), how).tolist() for how in ("bonferroni", "holm", "bh")]
    [[0.03, 0.12, 0.09], [0.03, 0.06, 0.06], [0.03, 0.04, 0.04]]
    """
    out = p_values.astype(np.float64).copy()
    known = np.flatnonzero(~np.isnan(out))
    m = len(known)
    if not m or how == "none":
        return out
    order = known[np.argsort(out[known], kind="stable")]
    p = out[order]
    if how == "bonferroni":
        p = p * m
    elif how == "holm":
        p = np.maximum.accumulate(p * np.arange(m, 0, -1))
    else:
        p = np.minimum.accumulate((p * m / np.arange(1, m + 1))[::-1])[::-1]
    out[order] = np.minimum(1.0, p)
    return out
