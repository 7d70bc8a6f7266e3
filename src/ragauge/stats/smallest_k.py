"""Smallest sufficient k: the smallest cutoff that loses no more than a tolerance, with confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragauge.core.errors import MissingEvidence
from ragauge.core.records import Floats
from ragauge.stats.intervals import bootstrap_upper_bound


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
) -> SmallestK:
    """Find the smallest k whose loss is within the tolerance, with confidence.

    The loss is relative to the best k. If that is the largest k and the measure still rises there, no k is
    sufficient. Among equal means the largest k is the best; with few queries no smaller one is sufficient. `values`
    has an array of one value per query for each k (NaN if unscored), `tokens` the mean number of tokens in a context
    of k documents. Raises `MissingEvidence` for fewer than two scored queries.

    >>> print(smallest_k({1: np.array([0.0, 1.0] * 50), 5: np.ones(100)}, "hit_rate"))
    k=5: hit_rate 1.0000, the best
    >>> print(smallest_k({1: np.zeros(100), 5: np.array([0.0, 1.0] * 50)}, "hit_rate"))
    no tried k is enough: hit_rate still rises from 0.0000 at k=1 to 0.5000 at k=5
    """
    return smallest_k_each({"": values}, measure, tolerance, confidence, tokens)[""]


def smallest_k_each(
    several: Mapping[str, Mapping[int, Floats]],
    measure: str,
    tolerance: float = 0.02,
    confidence: float = 0.95,
    tokens: Mapping[int, float] | None = None,
) -> dict[str, SmallestK]:
    """Find the smallest sufficient k of several systems; see `smallest_k`.

    Systems scored on the same queries share their resamples.

    >>> rising, flat = {1: np.array([0.0, 1.0] * 50), 5: np.ones(100)}, {1: np.ones(100), 5: np.ones(100)}
    >>> found = smallest_k_each({"rising": rising, "flat": flat}, "recall", tolerance=0.05)
    >>> found["rising"].k, found["flat"].k
    (5, 1)
    """
    losses = {name: _LossByK(values) for name, values in several.items()}
    names_by_mask: dict[bytes, list[str]] = {}
    for name, loss in losses.items():
        names_by_mask.setdefault(loss.scored.tobytes(), []).append(name)
    bounds: dict[str, Floats] = {}
    for names in names_by_mask.values():
        columns = [losses[name].losses for name in names]
        splits = np.cumsum([column.shape[1] for column in columns])[:-1]
        bounds |= zip(names, np.split(bootstrap_upper_bound(np.column_stack(columns), confidence), splits), strict=True)
    return {name: loss.advice(bounds[name], measure, tolerance, confidence, tokens) for name, loss in losses.items()}


class _LossByK:
    """Loss per query of each k relative to the best one."""

    def __init__(self, values: Mapping[int, Floats]) -> None:
        self.ks = sorted(values)
        table = np.stack([values[k] for k in self.ks])
        self.scored = ~np.isnan(table).any(axis=0)
        if self.scored.sum() < 2:
            raise MissingEvidence("a recommendation needs at least two scored queries", hint="add judged queries")
        scored_values = table[:, self.scored]
        self.means = scored_values.mean(axis=1)
        # The largest k among equal means, so that a smaller one has to show that it loses nothing on other queries
        # either.
        self.best = max(range(len(self.ks)), key=lambda i: (self.means[i], self.ks[i]))
        self.losses: Floats = (scored_values[self.best] - scored_values).T

    def advice(
        self,
        bounds: Floats,
        measure: str,
        tolerance: float,
        confidence: float,
        tokens: Mapping[int, float] | None,
    ) -> SmallestK:
        table: list[dict[str, float]] = []
        for i, k in enumerate(self.ks):
            row = {
                "k": float(k),
                "value": float(self.means[i]),
                "loss": float(self.losses[:, i].mean()),
                "loss_at_most": 0.0 if i == self.best else float(bounds[i]),
            }
            if tokens is not None:
                row |= {"tokens": tokens[k], "tokens_more": tokens[k] - (table[-1]["tokens"] if table else 0.0)}
            table.append(row)
        enough = next((int(row["k"]) for row in table if row["loss_at_most"] <= tolerance), self.ks[self.best])
        # The largest k has no loss by definition; a larger one could still be better, unless every query has the
        # maximum.
        rises = len(self.ks) == 1 or self.means[-1] > self.means[-2]
        open_ended = enough == self.ks[-1] and self.means[-1] < 1 and rises
        n = int(self.scored.sum())
        return SmallestK(None if open_ended else enough, measure, tolerance, confidence, table, n)


def estimate_tokens(text: str) -> float:
    """Estimate the number of tokens in a text as a quarter of its bytes.

    English and code have about four bytes per token in common vocabularies.
    """
    return len(text.encode("utf-8", "surrogatepass")) / 4
