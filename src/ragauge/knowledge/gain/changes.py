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
        return _mean_intervals(self.parts[:, None], confidence)[0] if self.told else (math.nan, math.nan)

    def p(self) -> float:
        """Compute the p-value of the total by Fisher's randomisation test."""
        return float(randomisation_test(self.parts[:, None])[0]) if self.told and len(self.queries) else math.nan

    def terms(self, confidence: float, why: Mapping[str, str]) -> list[GainTerm]:
        """Return each term with its interval, or the reason why it has no value."""
        ends = _mean_intervals(self.gaps, confidence)
        found = []
        for at, name in enumerate(self.names):
            both = ~np.isnan(self.gaps[:, at])
            if not both.any():
                reason = why.get(name, "no query has a value on both sides")
                found.append(GainTerm(name, float(self.weights[at]), math.nan, why=reason))
                continue
            before, after = (float(side[both, at].mean()) for side in (self.before, self.after))
            mean = float(self.gaps[both, at].mean())
            low, high = ends[at]
            found.append(GainTerm(name, float(self.weights[at]), mean, low, high, before, after, int(both.sum())))
        return found

    def moved(
        self, texts: Mapping[str, str], entered: Mapping[str, DocumentRanking], left: Mapping[str, DocumentRanking]
    ) -> list[QueryChange]:
        """Return the queries that changed, largest change first.

        Terms with weight 0 count too.
        """
        gains = self.weighed(self.gaps)
        rows = [
            row
            for row in range(len(self.queries))
            if abs(gains[row]) > ROUNDING_TOLERANCE
            or np.nanmax(np.abs(self.gaps[row]), initial=0.0) > ROUNDING_TOLERANCE
        ]
        found = []
        for row in sorted(rows, key=lambda one: (-abs(gains[one]), self.queries[one])):
            name = self.queries[row]
            by_term = {
                term: float(gap)
                for term, gap in zip(self.names, self.gaps[row].tolist(), strict=True)
                if not math.isnan(gap)
            }
            gain = float(gains[row]) if abs(gains[row]) > ROUNDING_TOLERANCE else 0.0
            found.append(
                QueryChange(name, texts.get(name, ""), gain, by_term, entered.get(name, ()), left.get(name, ()))
            )
        return found


def _mean_intervals(columns: Floats, confidence: float) -> list[tuple[float, float]]:
    """Compute an interval of the mean of each column; NaN for too few or equal values."""
    lows, highs = mean_intervals(columns, confidence)
    found = []
    for at in range(columns.shape[1]):
        mine = columns[~np.isnan(columns[:, at]), at]
        told = len(mine) >= MIN_INTERVAL_VALUES and float(mine.max() - mine.min()) > ROUNDING_TOLERANCE
        found.append((float(lows[at]), float(highs[at])) if told else (math.nan, math.nan))
    return found


def added_in_top_k(after: RankingsByQuery, added: frozenset[str], k: int) -> dict[str, DocumentRanking]:
    """Return the added documents in the top k of each query."""
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


FEW_MOVED_QUERIES = 10
"""Number of changed queries below which a note warns that they are few."""


def missing_terms_note(terms: Sequence[GainTerm]) -> str:
    """Name the terms that make up the total if others are undefined.

    Empty if all are defined.

    >>> missing_terms_note([GainTerm("recall@10", 0.5, 0.1), GainTerm("novelty", 0.5, math.nan,
    ...     why="nothing was added")])
    'the gain is 0.5 recall@10 alone: novelty cannot be told (nothing was added), and is not counted as 0'
    """
    told = [one for one in terms if not math.isnan(one.value)]
    lacking = [one for one in terms if math.isnan(one.value)]
    if not lacking or not told:
        return ""
    what = " + ".join(f"{one.weight:.3g} {one.name}" for one in told)
    without = "; ".join(f"{one.name} cannot be told ({one.why})" for one in lacking)
    return f"the gain is {what}{' alone' if len(told) == 1 else ''}: {without}, and is not counted as 0"


def count_judged(added: Sequence[str], judged: ScoresByQuery) -> int:
    """Count the added documents that have a judgment."""
    some = {doc for docs in judged.values() for doc in docs}
    return sum(one in some for one in added)


def short_run_note(queries: int, documents: int, needed: int) -> str:
    """Describe what cannot be computed because the run after is too short.

    >>> short_run_note(3, 2, 12)  # doctest: +ELLIPSIS
    'the run afterwards ends too soon for 3 queries: ... causal of 2 documents, alone and ... cannot be told ...'
    """
    causal = f"causal of {documents:,} document{'' if documents == 1 else 's'}, " if documents else ""
    return (
        f"the run afterwards ends too soon for {queries:,} quer{'y' if queries == 1 else 'ies'}: what would take the "
        f"place of an added document is not in it, so that {causal}alone and the best batch cannot be told "
        f"(retrieve {needed:,} documents a query: as many as are looked at, and as were added)"
    )


def failed_rebuilds_note(lost: Mapping[str, str], added: int) -> str:
    """Describe the documents without which the rebuilt system failed.

    >>> failed_rebuilds_note({"d7": "no memory"}, 3)
    'causal of 1 of 3 documents cannot be told: built without it a query failed, the first (without d7) with: no memory'
    """
    doc, why = next(iter(lost.items()))
    without = "it" if len(lost) == 1 else "them"
    return (
        f"causal of {len(lost):,} of {added:,} documents cannot be told: built without {without} a query failed, "
        f"the first (without {doc}) with: {why}"
    )


def failed_batch_note(why: str) -> str:
    """Describe why the gain of the best batch could not be measured."""
    return f"what the batch really gains cannot be told: {why}"


def gain_notes(gain: Gain, judged: int, failed: Mapping[str, str], *, built: bool) -> Iterator[str]:
    """Yield the notes on a gain; `built` says whether the system was built here."""
    if text := missing_terms_note(gain.terms):
        yield text
    ranked = [one.name for one in gain.terms if one.name not in (CONTEXT_RECALL, NOVELTY) and not math.isnan(one.value)]
    if gain.added and not judged and ranked:
        yield (
            f"none of the added documents is judged: to {ranked[0]} they can only be in the way, "
            "however good they are (judge them, or give --weight context_recall=1)"
        )
    elif gain.added and judged < gain.added and ranked:
        yield f"{judged:,} of {gain.added:,} added documents are judged: of the others {ranked[0]} sees only the harm"
    if gain.known and not gain.added and not gain.changed and not gain.removed:
        yield "nothing was added, changed or removed"
    if gain.removed or gain.changed:
        yield (
            f"before and after differ by more than what was added: {gain.removed:,} documents are gone and "
            f"{gain.changed:,} have another text; what that does is in the gain, and in no document's part: "
            "alone and the best batch begin with what is there afterwards, less all that was added"
        )
    if failed:
        query, why = next(iter(failed.items()))
        yield f"{len(failed):,} queries failed on a side and are left out, the first ({query}) with: {why}"
    moved = len(gain.moved)
    if 0 < moved < FEW_MOVED_QUERIES and gain.queries >= FEW_MOVED_QUERIES:
        yield f"only {moved} of {gain.queries:,} queries moved: a few others could turn the result round"
    zero = not math.isnan(gain.asked_low) and gain.asked_low <= 0 <= gain.asked_high
    if moved and (zero or gain.p > 1 - gain.confidence):
        new = next((one for one in gain.terms if one.name == NOVELTY and not math.isnan(one.value)), None)
        more = "; the rest is novelty, which no query has a part in" if new is not None and new.weight else ""
        yield f"what queries gained ({gain.asked:+.4f}) cannot be told from chance (p = {gain.p:.3f}){more}"
    alone = any(not math.isnan(one.alone) for one in gain.documents)
    if alone and not gain.exact:
        told = " and in a batch is" if gain.batch else " is"
        real = "" if math.isnan(gain.batch_measured) else ": what the batch really gains is told beside it"
        yield (
            f"what documents do alone{told} found by leaving the others out of one deep ranking, which for "
            f"this system is near but not exact{real}"
        )
    if gain.attribution == "dropped" and not gain.exact and any(not math.isnan(one.causal) for one in gain.documents):
        better = " (--attribution rebuilt is)" if built else ""
        yield f"documents are left out of a deep ranking, not of the system: causal is near, but not exact{better}"
