"""Changes of terms and queries between two snapshots, and notes on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ragauge.core.records import Floats, ScoresByQuery
from ragauge.knowledge.gain.results import Gain, GainTerm, QueryChange
from ragauge.knowledge.gain.terms import CONTEXT_RECALL, NOVELTY, DocumentRanking, RankingsByQuery
from ragauge.output.numbers import format_number, format_p_value, pluralise
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.paired_tests import randomisation_test

MIN_INTERVAL_VALUES = 5
"""Minimum number of values, not all equal, for a confidence interval."""
ROUNDING_TOLERANCE = 1e-12
"""Absolute values up to this count as 0."""


@dataclass(frozen=True, eq=False)
class SnapshotChanges:
    """Values of every query before and after: one row per query, one column per term."""

    queries: Sequence[str]
    names: Sequence[str]
    weights: Floats
    signs: Floats
    before: Floats
    after: Floats

    @cached_property
    def improvements(self) -> Floats:
        """Improvement of each query by term; NaN if a side has no value."""
        return np.asarray(self.signs * (self.after - self.before))

    @cached_property
    def n_scored(self) -> Floats:
        """Number of queries with a value on both sides, by term."""
        return np.asarray((~np.isnan(self.improvements)).sum(axis=0), np.float64)

    @cached_property
    def scored_terms(self) -> list[int]:
        """Indices of the terms with a value for at least one query."""
        return np.flatnonzero(self.n_scored).tolist()

    @cached_property
    def query_gains(self) -> Floats:
        """Gain of each query: the weighted sum of its terms, without NaN."""
        return np.asarray(np.nansum(self.improvements * self.weights, axis=1))

    @cached_property
    def total(self) -> float:
        """Weighted sum of the mean improvement by term; NaN if no term has a value."""
        if not self.scored_terms:
            return math.nan
        means = np.nansum(self.improvements, axis=0)[self.scored_terms] / self.n_scored[self.scored_terms]
        return float(means @ self.weights[self.scored_terms])

    @cached_property
    def query_contributions(self) -> Floats:
        """Per-query values with the mean and the variance of the total.

        Terms may be missing for different queries. Formula: for each term, weight times (mean + n / n_t times the
        query's deviation from the mean), summed. If all queries have all terms, it is the query's gain.
        """
        parts = np.zeros(len(self.queries))
        for term in self.scored_terms:
            column = self.improvements[:, term]
            mean = float(np.nanmean(column))
            share = len(column) / self.n_scored[term]
            parts += self.weights[term] * (mean + share * np.where(np.isnan(column), 0.0, column - mean))
        return parts

    def interval(self, confidence: float) -> tuple[float, float]:
        """Compute the confidence interval of the total by a paired bootstrap over queries."""
        return (
            _mean_intervals(self.query_contributions[:, None], confidence)[0]
            if self.scored_terms
            else (math.nan, math.nan)
        )

    def p(self) -> float:
        """Compute the p-value of the total by Fisher's randomisation test."""
        return (
            float(randomisation_test(self.query_contributions[:, None])[0])
            if self.scored_terms and len(self.queries)
            else math.nan
        )

    def terms(self, confidence: float, reasons: Mapping[str, str]) -> list[GainTerm]:
        """Return each term with its interval, or the reason why it has no value."""
        ends = _mean_intervals(self.improvements, confidence)
        terms = []
        for i, name in enumerate(self.names):
            has_both = ~np.isnan(self.improvements[:, i])
            if not has_both.any():
                reason = reasons.get(name, "no query has a value on both sides")
                terms.append(GainTerm(name, float(self.weights[i]), math.nan, reason=reason))
                continue
            before, after = (float(values[has_both, i].mean()) for values in (self.before, self.after))
            mean = float(self.improvements[has_both, i].mean())
            low, high = ends[i]
            terms.append(GainTerm(name, float(self.weights[i]), mean, low, high, before, after, int(has_both.sum())))
        return terms

    def changed_queries(
        self,
        texts: Mapping[str, str],
        entered: Mapping[str, DocumentRanking],
        pushed_out: Mapping[str, DocumentRanking],
    ) -> list[QueryChange]:
        """Return the queries that changed, largest change first.

        Terms with weight 0 count too.
        """
        gains = self.query_gains
        rows = [
            row
            for row in range(len(self.queries))
            if abs(gains[row]) > ROUNDING_TOLERANCE
            or np.nanmax(np.abs(self.improvements[row]), initial=0.0) > ROUNDING_TOLERANCE
        ]
        queries = []
        for row in sorted(rows, key=lambda index: (-abs(gains[index]), self.queries[index])):
            name = self.queries[row]
            by_term = {
                term: float(gap)
                for term, gap in zip(self.names, self.improvements[row].tolist(), strict=True)
                if not math.isnan(gap)
            }
            gain = float(gains[row]) if abs(gains[row]) > ROUNDING_TOLERANCE else 0.0
            queries.append(
                QueryChange(name, texts.get(name, ""), gain, by_term, entered.get(name, ()), pushed_out.get(name, ()))
            )
        return queries


def _mean_intervals(columns: Floats, confidence: float) -> list[tuple[float, float]]:
    """Compute an interval of the mean of each column; NaN for too few or equal values."""
    lows, highs = mean_intervals(columns, confidence)
    intervals = []
    for i in range(columns.shape[1]):
        values = columns[~np.isnan(columns[:, i]), i]
        has_interval = len(values) >= MIN_INTERVAL_VALUES and float(values.max() - values.min()) > ROUNDING_TOLERANCE
        intervals.append((float(lows[i]), float(highs[i])) if has_interval else (math.nan, math.nan))
    return intervals


def added_in_top_k(after: RankingsByQuery, added: frozenset[str], k: int) -> dict[str, DocumentRanking]:
    return {query: tuple(doc for doc in ranking[:k] if doc in added) for query, ranking in after.items()}


def relevant_pushed_out(
    before: RankingsByQuery, after: RankingsByQuery, relevant: Mapping[str, frozenset[str]], k: int
) -> dict[str, DocumentRanking]:
    """Return the relevant documents that left the top k of each query."""
    return {
        query: tuple(
            doc for doc in ranking[:k] if doc in relevant.get(query, frozenset()) and doc not in after[query][:k]
        )
        for query, ranking in before.items()
    }


FEW_CHANGED_QUERIES = 10
"""Number of changed queries below which a note warns that they are few."""


def missing_terms_note(terms: Sequence[GainTerm]) -> str:
    """Name the terms that make up the total if others are undefined.

    Empty if all are defined.

    >>> missing_terms_note([GainTerm("recall@10", 0.5, 0.1), GainTerm("novelty", 0.5, math.nan,
    ...     reason="no documents were added")])
    'the gain is 0.5 recall@10: novelty is undefined (no documents were added), and is not counted as 0'
    """
    defined = [term for term in terms if not math.isnan(term.value)]
    undefined = [term for term in terms if math.isnan(term.value)]
    if not undefined or not defined:
        return ""
    total = " + ".join(f"{term.weight:.3g} {term.name}" for term in defined)
    reasons = "; ".join(f"{term.name} is undefined ({term.reason})" for term in undefined)
    return f"the gain is {total}: {reasons}, and is not counted as 0"


def count_judged(added: Sequence[str], judged: ScoresByQuery) -> int:
    """Count the added documents that have a judgment."""
    judged_documents = {doc for docs in judged.values() for doc in docs}
    return sum(doc in judged_documents for doc in added)


def gain_notes(gain: Gain, judged: int, failed: Mapping[str, str]) -> Iterator[str]:
    """Yield the notes on a gain, of whose added documents `judged` have a judgment."""
    if text := missing_terms_note(gain.terms):
        yield text
    yield from _judgment_notes(gain, judged)
    if gain.documents_known and not gain.added and not gain.changed and not gain.removed:
        yield "no document was added, changed or removed"
    if gain.removed or gain.changed:
        yield f"{pluralise(gain.removed, 'document')} removed and {gain.changed:,} changed: their effect is in the gain"
    if failed:
        query, reason = next(iter(failed.items()))
        yield f"{pluralise(len(failed), 'query')} failed before or after and left out, first {query}: {reason}"
    yield from _significance_notes(gain)


def _judgment_notes(gain: Gain, judged: int) -> Iterator[str]:
    """Warn if added documents are not judged."""
    measures = [
        term.name for term in gain.terms if term.name not in (CONTEXT_RECALL, NOVELTY) and not math.isnan(term.value)
    ]
    if gain.added and not judged and measures:
        yield (
            f"none of the added documents is judged, so they can only lower {measures[0]}; add judgments, or use "
            "--weight context_recall=1"
        )
    elif gain.added and judged < gain.added and measures:
        yield (
            f"{judged:,} of {pluralise(gain.added, 'added document')} {'is' if judged == 1 else 'are'} judged; the "
            f"others can only lower {measures[0]}"
        )


def _significance_notes(gain: Gain) -> Iterator[str]:
    """Warn if few queries changed, or if the change is not significant."""
    n_changed = len(gain.changed_queries)
    if 0 < n_changed < FEW_CHANGED_QUERIES and gain.queries >= FEW_CHANGED_QUERIES:
        yield f"only {n_changed} of {gain.queries:,} queries changed; a few other queries could reverse the result"
    has_zero = not math.isnan(gain.query_gain_low) and gain.query_gain_low <= 0 <= gain.query_gain_high
    if n_changed and (has_zero or gain.p > 1 - gain.confidence):
        has_novelty = any(term.name == NOVELTY and term.weight and not math.isnan(term.value) for term in gain.terms)
        novelty_note = "; the rest of the gain is novelty, which does not depend on queries" if has_novelty else ""
        gained = format_number(gain.query_gain, "signed")
        yield f"the gain of the queries ({gained}) is not significant ({format_p_value(gain.p)}){novelty_note}"
