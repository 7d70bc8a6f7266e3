"""Measures of neighbour searches: reported distances compared with exact ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats

SHARE = 0.9
"""Minimum share of adjacent results whose reported distances are in the opposite order of the exact ones."""
ROUNDING = 1e-5
"""Minimum relative difference of two exact distances; below it their order may be due to rounding."""


def are_similarities(claims: Floats, true: Floats, known: NDArray[np.bool_]) -> bool:
    """Return whether reported distances fall as the exact ones rise.

    Adjacent results of a row are compared, or adjacent rows if k is 1. `known` marks the results with both
    distances.

    >>> true = np.array([[0.1, 0.2, 0.4]])
    >>> known = np.ones((1, 3), dtype=bool)
    >>> are_similarities(1 - true, true, known), are_similarities(2 * true, true, known)
    (True, False)
    """
    if not known.any():
        return False
    axis = 1 if claims.shape[1] > 1 else 0
    claimed, real = (np.diff(np.where(known, values, np.nan), axis=axis) for values in (claims, true))
    apart = np.isfinite(real) & (np.abs(real) > ROUNDING * np.abs(true[known]).mean())
    return bool(apart.any()) and float((claimed[apart] * real[apart] < 0).mean()) >= SHARE
