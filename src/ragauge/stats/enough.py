"""Which k is enough: the smallest that loses no more than a tolerance, as far as these queries can tell."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ragauge.errors import MissingEvidence
from ragauge.outcomes import Advice
from ragauge.records import Floats
from ragauge.stats.intervals import bootstrap_upper


def enough(
    values: Mapping[int, Floats],
    measure: str,
    tolerance: float = 0.02,
    confidence: float = 0.95,
    tokens: Mapping[int, float] | None = None,
) -> Advice:
    """The smallest k whose loss against the best k is within the tolerance, with confidence.

    `values` has for each k a value a query (NaN where unscored), `tokens` the mean tokens of a context of k documents.

    >>> print(enough({1: np.array([0.0, 1.0] * 50), 5: np.ones(100)}, "hit_rate"))
    k=5: hit_rate 1.0000, the best
    """
    wanted = sorted(values)
    scored = ~np.isnan(np.stack([values[k] for k in wanted])).any(axis=0)
    if scored.sum() < 2:
        raise MissingEvidence("a recommendation needs at least two scored queries", hint="give more ground truth")
    means = {k: float(values[k][scored].mean()) for k in wanted}
    best = max(wanted, key=lambda k: (means[k], -k))
    table: list[dict[str, float]] = []
    for k in wanted:
        loss: Floats = (values[best] - values[k])[scored]
        row = {
            "k": float(k),
            "value": means[k],
            "loss": float(loss.mean()),
            "loss_at_most": 0.0 if k >= best and not (loss > 0).any() else bootstrap_upper(loss, confidence),
        }
        if tokens is not None:
            row |= {"tokens": tokens[k], "tokens_more": tokens[k] - (table[-1]["tokens"] if table else 0.0)}
        table.append(row)
    chosen = next((int(row["k"]) for row in table if row["loss_at_most"] <= tolerance), best)
    return Advice(chosen, measure, tolerance, confidence, table)


def quarter_of_bytes(text: str) -> float:
    """About how many tokens a text has: English and code have four bytes to a token in the common vocabularies."""
    return len(text.encode("utf-8", "surrogatepass")) / 4
