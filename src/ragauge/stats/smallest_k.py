"""Smallest sufficient k: the smallest cutoff that loses no more than a tolerance, with confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ragauge.core.errors import MissingEvidence
from ragauge.core.records import Floats
from ragauge.stats.margin_tests import bounded_upper_bound, loss_upper_bound, queries_to_rule_out


class AcceptableK(NamedTuple):
    """Smallest k whose score is at least a given level, with the confidence interval of its score."""

    level: float
    k: int | None
    """None if no tried k reaches the level; the other fields are then those of the best k."""
    value: float
    low: float
    high: float
    queries_needed: float
    """Estimated number of queries at which the interval excludes the level; infinite if no number does."""

    def describe(self, measure: str, confidence: float, n: int) -> str:
        """Describe the k, its interval, and whether the interval excludes the level."""
        interval = f"{measure} {self.value:.4f} ({confidence:.0%} interval {self.low:.4f} to {self.high:.4f})"
        if self.k is None:
            text, is_shown = f"no tried k reaches {self.level:g}: at best {interval}", self.high < self.level
        else:
            text, is_shown = f"at least {self.level:g}: k={self.k}, {interval}", self.low >= self.level
        if is_shown:
            return text
        return f"{text}; {n} queries do not show it, {_describe_needed(self.queries_needed, 'it equals the level')}"


@dataclass(frozen=True)
class SmallestK:
    """Smallest sufficient k, with the score and the context size of each k that was tried."""

    k: int | None
    """Smallest k that is enough; None if the measure still rises at the largest k that was tried."""
    measure: str
    tolerance: float
    confidence: float
    table: Sequence[Mapping[str, float]]
    """One row per k: `k`, `value`, `loss` to the best value, `loss_at_least`, `loss_at_most`, and `queries_needed`,
    the number of queries that would decide (NaN if decided, infinite if no number does); if texts are available,
    `tokens` of the context and `tokens_more` than at the k before; with a price, `cost` per query.
    """
    n: int = 0
    """Number of scored queries."""
    notes: Sequence[str] = ()
    """Limitations of the result: failed queries, relevant ids that the database does not contain."""
    acceptable: AcceptableK | None = None
    """Smallest k at the requested level; None if none was requested."""

    def __str__(self) -> str:
        return "; ".join([*self.sentences(), *self.notes])

    def sentences(self) -> list[str]:
        """Describe the acceptable k, the smallest sufficient one, and the price of a larger one."""
        acceptable = self.acceptable
        level = "" if acceptable is None else acceptable.describe(self.measure, self.confidence, self.n)
        return list(filter(None, [level, self._summary(), self._describe_price()]))

    def decide(self, row: Mapping[str, float]) -> str:
        """Return what is known about a k: `enough`, `not enough` or `undecided`.

        If the measure still rises at the largest k, that is only the `best tried`.
        """
        if self.k is None and row is self.table[-1]:
            return "best tried"
        if row["loss_at_most"] <= self.tolerance:
            return "enough"
        return "not enough" if row.get("loss_at_least", -math.inf) > self.tolerance else "undecided"

    @property
    def undecided(self) -> list[Mapping[str, float]]:
        """Rows of undecided k, of which all are below the smallest sufficient one."""
        largest = math.inf if self.k is None else self.k
        return [row for row in self.table if row["k"] < largest and self.decide(row) == "undecided"]

    def _summary(self) -> str:
        first_undecided = self._describe_undecided(self.undecided[0]) if self.undecided else ""
        if self.k is None:
            last_row = self.table[-1]
            previous = (
                f" from {self.table[-2]['value']:.4f} at k={self.table[-2]['k']:g}" if len(self.table) > 1 else ""
            )
            rises = f"{self.measure} still rises{previous} to" if previous else f"{self.measure} is"
            outcome = "no tried k is shown to be enough" if first_undecided else "no tried k is enough"
            text = f"{outcome}: {rises} {last_row['value']:.4f} at k={last_row['k']:g}"
            return "; ".join(filter(None, [text, first_undecided]))
        chosen_row = next(row for row in self.table if row["k"] == self.k)
        best = max(self.table, key=lambda row: (row["value"], row["k"]))
        loss = "the best"
        if chosen_row is not best:
            loss = (
                f"at most {max(0.0, chosen_row['loss_at_most']):.4f} below the best ({best['value']:.4f} at "
                f"k={best['k']:g}) with {self.confidence:.0%} confidence"
            )
        text = "; ".join(
            filter(None, [f"k={self.k}: {self.measure} {chosen_row['value']:.4f}, {loss}", first_undecided])
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

    def _describe_undecided(self, row: Mapping[str, float]) -> str:
        """Describe the loss that the queries cannot exclude, and how many would decide."""
        if math.isinf(row["loss_at_most"]):  # a measure of unknown range
            return f"k={row['k']:g} is undecided: too few of {self.n} queries differ from the best k"
        at_most = f"{row['loss_at_most']:.4f}"
        if row["loss"] == 0:
            text = f"k={row['k']:g} scores the same, but {self.n} queries cannot exclude a loss of up to {at_most}"
        else:
            text = (
                f"k={row['k']:g} is undecided with {self.n} queries: its loss is {row['loss']:.4f}, at most {at_most}"
            )
        needed = row.get("queries_needed", math.nan)
        return text if math.isnan(needed) else f"{text} ({_describe_needed(needed, 'it equals the tolerance')})"

    def _describe_price(self) -> str:
        """Describe what the best k gains over the smallest one that may suffice, and what it costs more."""
        best = max(self.table, key=lambda row: (row["value"], -row["k"]), default={})
        ks = [self.acceptable.k] if self.acceptable is not None else []
        ks += [int(row["k"]) for row in self.undecided] + ([self.k] if "cost" in best else [])
        rows = {row["k"]: row for row in self.table if row["value"] < best["value"]}
        row = next((rows[k] for k in ks if k in rows), None)
        if row is None or math.isnan(best.get("tokens", math.nan)):
            return ""
        gain, tokens = best["value"] - row["value"], best["tokens"] - row["tokens"]
        text = (
            f"k={best['k']:g} instead of {row['k']:g} gains {gain:.4f} {self.measure} for {tokens:,.0f} more tokens "
            f"per query, {tokens / gain / 100:,.0f} per 0.01"
        )
        if "cost" not in best:
            return text
        cost = 1000 * (best["cost"] - row["cost"])
        return f"{text}, and for ${cost:,.4g} more per 1,000 queries, ${cost / gain / 100:,.4g} per 0.01"


def _describe_needed(needed: float, equality: str) -> str:
    if math.isinf(needed):
        return f"{equality}, so no number of queries decides"
    return f"about {needed:,.0f} would decide"


def smallest_k(
    values: Mapping[int, Floats],
    measure: str,
    tolerance: float = 0.02,
    confidence: float = 0.95,
    tokens: Mapping[int, float] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    at_least: float | None = None,
    token_price: float | None = None,
) -> SmallestK:
    """Find the smallest k whose loss is within the tolerance, with confidence.

    The loss is relative to the best k. If that is the largest k and the measure still rises there, no k is
    sufficient. Among equal means the largest k is the best; with few queries no smaller one is sufficient. `values`
    has an array of one value per query for each k (NaN if unscored), `tokens` the mean number of tokens in a context
    of k documents, `bounds` the range of the measure, infinite if it is unknown. `at_least` also finds the smallest k
    whose score is at least that. `token_price` is in dollars per million tokens. Raises `MissingEvidence` for fewer
    than two scored queries.

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
    means, span = scores.mean(axis=1), bounds[1] - bounds[0]
    # The largest k among equal means, so that a smaller one has to show that it loses nothing on other queries either.
    best = max(range(len(ks)), key=lambda i: (means[i], ks[i]))
    table: list[dict[str, float]] = []
    for i, k in enumerate(ks):
        row = {"k": float(k), "value": float(means[i])}
        row |= _describe_loss(scores[best] - scores[i], tolerance, confidence, span) if i != best else NO_LOSS
        if tokens is not None:
            row |= {"tokens": tokens[k], "tokens_more": tokens[k] - (table[-1]["tokens"] if table else 0.0)}
            row |= {} if token_price is None else {"cost": tokens[k] * token_price / 1e6}
        table.append(row)
    enough = next((int(row["k"]) for row in table if row["loss_at_most"] <= tolerance), ks[best])
    # The largest k has no loss by definition; a larger one could still be better, unless every query has the maximum.
    rises = len(ks) == 1 or means[-1] > means[-2]
    open_ended = enough == ks[-1] and means[-1] < bounds[1] and rises
    acceptable = None
    if at_least is not None:
        reached = next((i for i in range(len(ks)) if means[i] >= at_least - 1e-12), None)
        chosen = best if reached is None else reached
        interval = _interval_at_level(scores[chosen], at_least, (1 + confidence) / 2, bounds)
        acceptable = AcceptableK(at_least, None if reached is None else ks[reached], float(means[chosen]), *interval)
    return SmallestK(None if open_ended else enough, measure, tolerance, confidence, table, n, acceptable=acceptable)


NO_LOSS = {"loss": 0.0, "loss_at_least": 0.0, "loss_at_most": 0.0, "queries_needed": math.nan}
"""Loss of the best k, by definition."""


def _describe_loss(losses: Floats, tolerance: float, confidence: float, span: float) -> dict[str, float]:
    """Return the mean loss with its one-sided bounds, and the number of queries that would decide."""
    mean = float(losses.mean())
    at_least, at_most = -loss_upper_bound(-losses, confidence, span), loss_upper_bound(losses, confidence, span)
    needed = math.nan
    if at_least <= tolerance < at_most:
        signed, limit = (losses, tolerance) if mean < tolerance else (-losses, -tolerance)
        needed = max(len(losses) + 1.0, queries_to_rule_out(signed, limit, confidence, span))
    return {"loss": mean, "loss_at_least": at_least, "loss_at_most": at_most, "queries_needed": needed}


def _interval_at_level(
    scores: Floats, level: float, confidence: float, bounds: tuple[float, float]
) -> tuple[float, float, float]:
    """Return both bounds of a mean score, each at this confidence, and the number of queries that exclude the level."""
    span = bounds[1] - bounds[0]
    low_end, high_end = bounds if math.isfinite(span) else (0.0, 0.0)
    below_best, above_worst = high_end - scores, scores - low_end
    upper_bound = bounded_upper_bound if math.isfinite(span) else loss_upper_bound
    low = high_end - upper_bound(below_best, confidence, span)
    high = low_end + upper_bound(above_worst, confidence, span)
    is_below = float(scores.mean()) < level
    signed, limit = (above_worst, level - low_end) if is_below else (below_best, high_end - level)
    return low, high, queries_to_rule_out(signed, limit, confidence, span)


def estimate_tokens(text: str) -> float:
    """Estimate the number of tokens in a text as a quarter of its bytes.

    English and code have about four bytes per token in common vocabularies.
    """
    return len(text.encode("utf-8", "surrogatepass")) / 4
