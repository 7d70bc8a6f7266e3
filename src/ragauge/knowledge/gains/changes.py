"""Changes of terms and queries between two snapshots, and notes on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ragauge.knowledge.gains.values import Ranking, Rankings
from ragauge.records import Floats
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.paired import randomisation_test
from ragauge.worths import QueryChange, Term

FEWEST = 5
"""Minimum number of values, not all equal, for a confidence interval."""
NOTHING_LESS = 1e-12
"""Absolute values up to this count as 0."""


@dataclass(frozen=True, eq=False)
class Changes:
    """Values of every query before and after: one row per query, one column per term."""

    queries: Sequence[str]
    names: Sequence[str]
    weights: Floats
    signs: Floats
    before: Floats
    after: Floats

    @cached_property
    def gaps(self) -> Floats:
        """Improvement of each query by term; NaN if a side has no value."""
        return np.asarray(self.signs * (self.after - self.before))

    @cached_property
    def known(self) -> Floats:
        """Number of queries with a value on both sides, by term."""
        return np.asarray((~np.isnan(self.gaps)).sum(axis=0), np.float64)

    @cached_property
    def told(self) -> list[int]:
        """Indices of the terms with a value for at least one query."""
        return np.flatnonzero(self.known).tolist()

    def mean(self, gaps: Floats) -> Floats:
        """Average changes by term over all queries with a value.

        Queries without a row count as 0.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.known > 0, np.nansum(gaps, axis=0) / self.known, math.nan))

    def weighed(self, gaps: Floats) -> Floats:
        """Return each row's gain: the weighted sum of its terms, without NaN."""
        return np.asarray(np.nansum(gaps * self.weights, axis=1))

    def total(self, means: Floats) -> float:
        """Return the weighted sum of term means; NaN if no term has a value."""
        return float(means[self.told] @ self.weights[self.told]) if self.told else math.nan

    @cached_property
    def parts(self) -> Floats:
        """Per-query values with the mean and the variance of the total.

        Terms may be missing for different queries. Formula: for each term, weight times (mean + n / n_t times the
        query's deviation from the mean), summed. If all queries have all terms, it is the query's gain.
        """
        found = np.zeros(len(self.queries))
        for term in self.told:
            column = self.gaps[:, term]
            mean = float(np.nanmean(column))
            share = len(column) / self.known[term]
            found += self.weights[term] * (mean + share * np.where(np.isnan(column), 0.0, column - mean))
        return found

    def interval(self, confidence: float) -> tuple[float, float]:
        """Compute the confidence interval of the total by a paired bootstrap over queries."""
        return _ends(self.parts[:, None], confidence)[0] if self.told else (math.nan, math.nan)

    def p(self) -> float:
        """Compute the p-value of the total by Fisher's randomisation test."""
        return float(randomisation_test(self.parts[:, None])[0]) if self.told and len(self.queries) else math.nan

    def terms(self, confidence: float, why: Mapping[str, str]) -> list[Term]:
        """Return each term with its interval, or the reason why it has no value."""
        ends = _ends(self.gaps, confidence)
        found = []
        for at, name in enumerate(self.names):
            both = ~np.isnan(self.gaps[:, at])
            if not both.any():
                reason = why.get(name, "no query has a value on both sides")
                found.append(Term(name, float(self.weights[at]), math.nan, why=reason))
                continue
            before, after = (float(side[both, at].mean()) for side in (self.before, self.after))
            mean = float(self.gaps[both, at].mean())
            low, high = ends[at]
            found.append(Term(name, float(self.weights[at]), mean, low, high, before, after, int(both.sum())))
        return found

    def moved(
        self, texts: Mapping[str, str], entered: Mapping[str, Ranking], left: Mapping[str, Ranking]
    ) -> list[QueryChange]:
        """Return the queries that changed, largest change first.

        Terms with weight 0 count too.
        """
        gains = self.weighed(self.gaps)
        rows = [
            row
            for row in range(len(self.queries))
            if abs(gains[row]) > NOTHING_LESS or np.nanmax(np.abs(self.gaps[row]), initial=0.0) > NOTHING_LESS
        ]
        found = []
        for row in sorted(rows, key=lambda one: (-abs(gains[one]), self.queries[one])):
            name = self.queries[row]
            by_term = {
                term: float(gap)
                for term, gap in zip(self.names, self.gaps[row].tolist(), strict=True)
                if not math.isnan(gap)
            }
            gain = float(gains[row]) if abs(gains[row]) > NOTHING_LESS else 0.0
            found.append(
                QueryChange(name, texts.get(name, ""), gain, by_term, entered.get(name, ()), left.get(name, ()))
            )
        return found


def _ends(columns: Floats, confidence: float) -> list[tuple[float, float]]:
    """Compute an interval of the mean of each column; NaN for too few or equal values."""
    lows, highs = mean_intervals(columns, confidence)
    found = []
    for at in range(columns.shape[1]):
        mine = columns[~np.isnan(columns[:, at]), at]
        told = len(mine) >= FEWEST and float(mine.max() - mine.min()) > NOTHING_LESS
        found.append((float(lows[at]), float(highs[at])) if told else (math.nan, math.nan))
    return found


def entered(after: Rankings, added: frozenset[str], k: int) -> dict[str, Ranking]:
    """Return the added documents in the top k of each query."""
    return {query: tuple(doc for doc in ranking[:k] if doc in added) for query, ranking in after.items()}


def pushed_out(before: Rankings, after: Rankings, relevant: Mapping[str, frozenset[str]], k: int) -> dict[str, Ranking]:
    """Return the relevant documents that left the top k of each query."""
    return {
        query: tuple(
            doc for doc in ranking[:k] if doc in relevant.get(query, frozenset()) and doc not in after[query][:k]
        )
        for query, ranking in before.items()
    }
