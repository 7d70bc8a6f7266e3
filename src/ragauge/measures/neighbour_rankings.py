"""Ranking measures of neighbour searches with binary relevance: nDCG, MAP, hit rate and F1 for all queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats, Ints


def ranking_columns(relevant: NDArray[np.bool_], total: Ints, returned: Ints, k: int) -> dict[str, Floats]:
    """Return one value per query by canonical name of the measure.

    `relevant` marks relevant neighbours in the order of the ranking (queries, k), `total` is the number of relevant
    ones, `returned` the number of returned rows. Measures without relevant neighbours are 0.

    >>> found = ranking_columns(np.array([[True, False, True]]), np.array([4]), np.array([3]), 3)
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
        f"ndcg@{k}": _ratio((relevant * discounts).sum(axis=1), ideal),
        f"map@{k}": _ratio(precisions, total),
        f"map(of=capped)@{k}": _ratio(precisions, capped),
        f"hit_rate@{k}": np.minimum(good, 1).astype(np.float64),
        f"f1@{k}": _f1(good / k, _ratio(good, total)),
        f"f1(precision_of=retrieved,recall_of=capped)@{k}": _f1(_ratio(good, returned), _ratio(good, capped)),
    }


def _f1(precision: Floats, recall: Floats) -> Floats:
    return _ratio(2 * precision * recall, precision + recall)


def _ratio(part: Floats | Ints, whole: Floats | Ints) -> Floats:
    divided = np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
    return np.asarray(divided, dtype=np.float64)
