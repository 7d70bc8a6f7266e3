"""Smallest sufficient k: the smallest cutoff that loses no more than a tolerance, with confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragauge.core.errors import MissingEvidence
from ragauge.core.records import Floats
from ragauge.stats.margin_tests import loss_upper_bound


@dataclass(frozen=True)
class SmallestK:
    """Smallest sufficient k, with the score and the context size of each k that was tried."""

    k: int | None
    """Smallest k that is enough; None if the measure still rises at the largest k that was tried."""
    measure: str
    tolerance: float
    confidence: float
    table: Sequence[Mapping[str, float]]
    """One row per k: `k`, `value`, `loss` to the best value, `loss_at_most`; if texts are available, `tokens` of the
    context
    and `tokens_more` than at the k before.
    """
    n: int = 0
    """Number of scored queries."""
    notes: Sequence[str] = ()
    """Limitations of the result: failed queries, relevant ids that the database does not contain."""

    def __str__(self) -> str:
        return "; ".join([self._summary(), *self.notes])

    def _summary(self) -> str:
        if self.k is None:
            last_row = self.table[-1]
            previous = (
                f" from {self.table[-2]['value']:.4f} at k={self.table[-2]['k']:g}" if len(self.table) > 1 else ""
            )
            rises = f"{self.measure} still rises{previous} to" if previous else f"{self.measure} is"
            return f"no tried k is enough: {rises} {last_row['value']:.4f} at k={last_row['k']:g}"
        chosen_row = next(row for row in self.table if row["k"] == self.k)
        best = max(self.table, key=lambda row: (row["value"], row["k"]))
        loss = "the best"
        if chosen_row is not best:
            loss = (
                f"at most {max(0.0, chosen_row['loss_at_most']):.4f} below the best ({best['value']:.4f} at "
                f"k={best['k']:g}) with {self.confidence:.0%} confidence"
            )
        text = f"k={self.k}: {self.measure} {chosen_row['value']:.4f}, {loss}"
        equal_row = next((row for row in self.table if row["k"] < self.k and row["value"] == chosen_row["value"]), None)
        if equal_row is not None:
            text += (
                f"; k={equal_row['k']:g} scores the same, but {self.n} queries cannot exclude a loss of up to "
                f"{equal_row['loss_at_most']:.4f}"
            )
        largest = self.table[-1]
        if (
            "tokens" not in largest
            or math.isnan(largest["tokens"])
            or round(chosen_row["tokens"]) >= round(largest["tokens"])
        ):
            return text  # No tokens are saved.
        return (
            f"{text}; about {chosen_row['tokens']:.0f} tokens instead of {largest['tokens']:.0f} at k={largest['k']:g}"
        )


def smallest_k(
    values: Mapping[int, Floats],
    measure: str,
    tolerance: float = 0.02,
    confidence: float = 0.95,
    tokens: Mapping[int, float] | None = None,
    max_loss: float = 1.0,
) -> SmallestK:
    """Find the smallest k whose loss is within the tolerance, with confidence.

    The loss is relative to the best k. If that is the largest k and the measure still rises there, no k is
    sufficient. Among equal means the largest k is the best; with few queries no smaller one is sufficient. `values`
    has an array of one value per query for each k (NaN if unscored), `tokens` the mean number of tokens in a context
    of k documents. `max_loss` is the largest possible loss, infinite if it is unknown. Raises `MissingEvidence` for
    fewer than two scored queries.

    >>> print(smallest_k({1: np.array([0.0, 1.0] * 50), 5: np.ones(100)}, "hit_rate"))
    k=5: hit_rate 1.0000, the best
    >>> print(smallest_k({1: np.zeros(100), 5: np.array([0.0, 1.0] * 50)}, "hit_rate"))
    no tried k is enough: hit_rate still rises from 0.0000 at k=1 to 0.5000 at k=5
    """
    ks = sorted(values)
    scores = np.stack([values[k] for k in ks])
    scores = scores[:, ~np.isnan(scores).any(axis=0)]
    n = scores.shape[1]
    if n < 2:
        raise MissingEvidence("a recommendation needs at least two scored queries", hint="add judged queries")
    means = scores.mean(axis=1)
    # The largest k among equal means, so that a smaller one has to show that it loses nothing on other queries either.
    best = max(range(len(ks)), key=lambda i: (means[i], ks[i]))
    table: list[dict[str, float]] = []
    for i, k in enumerate(ks):
        losses = scores[best] - scores[i]
        row = {
            "k": float(k),
            "value": float(means[i]),
            "loss": float(losses.mean()),
            "loss_at_most": 0.0 if i == best else loss_upper_bound(losses, confidence, max_loss),
        }
        if tokens is not None:
            row |= {"tokens": tokens[k], "tokens_more": tokens[k] - (table[-1]["tokens"] if table else 0.0)}
        table.append(row)
    enough = next((int(row["k"]) for row in table if row["loss_at_most"] <= tolerance), ks[best])
    # The largest k has no loss by definition; a larger one could still be better, unless every query has the maximum.
    rises = len(ks) == 1 or means[-1] > means[-2]
    open_ended = enough == ks[-1] and means[-1] < 1 and rises
    return SmallestK(None if open_ended else enough, measure, tolerance, confidence, table, n)


def estimate_tokens(text: str) -> float:
    """Estimate the number of tokens in a text as a quarter of its bytes.

    English and code have about four bytes per token in common vocabularies.
    """
    return len(text.encode("utf-8", "surrogatepass")) / 4
