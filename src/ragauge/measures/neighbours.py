"""Measures of vector search: what approximate neighbours cost in distance. Run scores are negative distances."""

from __future__ import annotations

import numpy as np

from ragauge.errors import MissingEvidence
from ragauge.measures.judged import JudgedRanks
from ragauge.records import Floats


def relative_distance_error(judged: JudgedRanks, k: int) -> Floats:
    """How much farther the k neighbours found are than the k true ones.

    Formula: mean over ranks r <= k of found distance / true distance - 1.
    Rule: a true distance of 0 is left out; places that were not filled count as the worst found (or true) distance.
    Paper: Patella and Ciaccia (2008), The Many Facets of Approximate Similarity Search.

    >>> from ragauge import evaluate, neighbours
    >>> truth = neighbours([["a", "b"]], [[1.0, 2.0]], queries=["q"])
    >>> evaluate(truth, {"q": {"a": -1.0, "c": -3.0}}, ["relative_distance_error@2"]).means
    {'relative_distance_error@2': 0.25}
    """
    if judged.judgments.distances is None or judged.top is None:
        raise MissingEvidence(
            "relative_distance_error needs the distances of the true neighbours",
            hint="make the judgments with ragauge.neighbours(ids, distances)",
        )
    values = np.zeros(judged.n)
    for i, query in enumerate(judged.pool.queries):
        true = np.asarray(judged.judgments.distances[query][:k], np.float64)
        found = -judged.top.scores[i][:k]
        worst = max([*found.tolist(), true[-1]])
        found = np.concatenate([found, np.full(max(0, len(true) - len(found)), worst)])[: len(true)]
        apart = true > 0
        values[i] = (found[apart] / true[apart] - 1).mean() if apart.any() else 0.0
    return values
