"""Measures of vector search, for runs whose scores are negative distances."""

from __future__ import annotations

import numpy as np

from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranking import true_and_found
from ragauge.records import Floats


def relative_distance_error(judged: JudgedRanks, k: int) -> Floats:
    """Relative increase in distance of the neighbours found over the exact ones.

    Formula: mean over ranks r <= k of found distance / true distance - 1.
    Rule: lower is better; a query missing from the run is unscored, since 0 would be perfect. A true distance of 0
    is left out; unfilled ranks count as the largest found (or true) distance.
    Paper: Patella and Ciaccia (2008), The Many Facets of Approximate Similarity Search.

    >>> from ragauge import evaluate, neighbours
    >>> truth = neighbours([["a", "b"]], [[1.0, 2.0]], queries=["q"])
    >>> evaluate(truth, {"q": {"a": -1.0, "c": -3.0}}, ["relative_distance_error@2"]).means
    {'relative_distance_error@2': 0.25}
    """
    values = np.full(judged.n, np.nan)
    for i, (true, near) in enumerate(true_and_found(judged, k, "relative_distance_error")):
        apart = true > 0
        if judged.answered[i] and len(true):
            worst = max([*near.tolist(), true[-1]])
            found = np.concatenate([near, np.full(max(0, len(true) - len(near)), worst)])[: len(true)]
            values[i] = (found[apart] / true[apart] - 1).mean() if apart.any() else 0.0
    return values
