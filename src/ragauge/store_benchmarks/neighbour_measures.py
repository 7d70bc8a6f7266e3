"""Measures of neighbour searches, and the check of reported distances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragauge.core.records import Floats, Ints

MIN_REVERSED_SHARE = 0.9
"""Minimum share of adjacent results whose reported distances are in the opposite order of the exact ones."""
MIN_RELATIVE_DIFFERENCE = 1e-5
"""Minimum relative difference of two exact distances; below it their order may be due to rounding."""


def are_similarities(claims: Floats, true: Floats, is_known: NDArray[np.bool_]) -> bool:
    """Return whether reported distances fall as the exact ones rise.

    Adjacent results of a row are compared, or adjacent rows if k is 1. `is_known` marks the results with both
    distances.

    >>> true = np.array([[0.1, 0.2, 0.4]])
    >>> known = np.ones((1, 3), dtype=bool)
    >>> are_similarities(1 - true, true, known), are_similarities(2 * true, true, known)
    (True, False)
    """
    if not is_known.any():
        return False
    axis = 1 if claims.shape[1] > 1 else 0
    claimed, real = (np.diff(np.where(is_known, values, np.nan), axis=axis) for values in (claims, true))
    is_apart = np.isfinite(real) & (np.abs(real) > MIN_RELATIVE_DIFFERENCE * np.abs(true[is_known]).mean())
    return bool(is_apart.any()) and float((claimed[is_apart] * real[is_apart] < 0).mean()) >= MIN_REVERSED_SHARE


def compute_ranking_measures(relevant: NDArray[np.bool_], total: Ints, returned: Ints, k: int) -> dict[str, Floats]:
    """Return one value per query by canonical name of the measure.

    `relevant` marks relevant neighbours in the order of the ranking (queries, k), `total` is the number of relevant
    ones, `returned` the number of returned rows. Measures without relevant neighbours are 0.

    >>> found = compute_ranking_measures(np.array([[True, False, True]]), np.array([4]), np.array([3]), 3)
    >>> {name: round(float(values[0]), 4) for name, values in found.items() if name.startswith(("map", "f1", "hit"))}
    {'map@3': 0.4167, 'map(of=capped)@3': 0.5556, 'hit_rate@3': 1.0, 'f1@3': 0.5714, \
'f1(precision_of=retrieved,recall_of=capped)@3': 0.6667}
    """
    ranks = np.arange(1, relevant.shape[1] + 1)
    discounts = 1 / np.log2(ranks + 1)
    capped = np.minimum(total, k)
    ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(1, k + 1) + 1))])[capped]
    precisions = (np.cumsum(relevant, axis=1) / ranks * relevant).sum(axis=1)
    good = relevant.sum(axis=1)
    return {
        f"ndcg@{k}": _ratio_or_zero((relevant * discounts).sum(axis=1), ideal),
        f"map@{k}": _ratio_or_zero(precisions, total),
        f"map(of=capped)@{k}": _ratio_or_zero(precisions, capped),
        f"hit_rate@{k}": np.minimum(good, 1).astype(np.float64),
        f"f1@{k}": _f1_score(good / k, _ratio_or_zero(good, total)),
        f"f1(precision_of=retrieved,recall_of=capped)@{k}": _f1_score(
            _ratio_or_zero(good, returned), _ratio_or_zero(good, capped)
        ),
    }


def _f1_score(precision: Floats, recall: Floats) -> Floats:
    return _ratio_or_zero(2 * precision * recall, precision + recall)


def _ratio_or_zero(part: Floats | Ints, whole: Floats | Ints) -> Floats:
    divided = np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
    return np.asarray(divided, dtype=np.float64)
