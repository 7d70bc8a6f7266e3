"""Distances that a store claims, compared with the true ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats

SHARE = 0.9
"""Share of neighbouring results whose claimed distances are in the opposite order of the true ones."""
ROUNDING = 1e-5
"""Difference of two true distances, as a share of the mean, below which their order may be rounding."""


def are_similarities(claims: Floats, true: Floats, known: NDArray[np.bool_]) -> bool:
    """Return whether claimed distances fall where the true ones rise: within the rows, or over the rows if k is 1.

    `known` says which results have both distances.

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
