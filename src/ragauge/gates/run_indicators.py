"""Indicators of a run for a gate: measures, latencies, counts and facts of its manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragauge.core.records import Floats, Run, Scores
from ragauge.core.summaries import Speed
from ragauge.evaluation.indicators import Indicator, find_aggregate
from ragauge.measures.judged_ranks import defined_depth
from ragauge.measures.latency import summarise_timings
from ragauge.measures.scoring import MISSING_QUERY, NO_RELEVANT
from ragauge.output.numbers import pluralise
from ragauge.stats.system_pairs import paired_differences

if TYPE_CHECKING:
    import polars as pl


QuerySubset = frozenset[str] | None
"""Ids of the queries used; None for all."""

EXPECTED_REASONS = (MISSING_QUERY, NO_RELEVANT)
"""Reasons for which the convention leaves a query out; any other reason is missing evidence."""


class IndicatorValue(NamedTuple):
    """Value of an indicator, its number of queries, and the reason if it is undefined."""

    value: float = math.nan
    n: int = 0
    reason: str = ""


@dataclass(frozen=True, eq=False)
class RunIndicators:
    """A run with all inputs from which its indicators are computed."""

    name: str
    scores: Scores
    timings: pl.DataFrame | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    uncomputable: Mapping[str, str] = field(default_factory=dict)
    """Measures that cannot be computed from the data, with the reasons."""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lost_queries: frozenset[str] = frozenset()
    """Queries of the baseline that are missing from these scores."""
    covers_all_queries: bool = False
    """Whether the scores are known to include every query; a query without a value is then unscored, not missing."""

    @cached_property
    def missing_queries(self) -> frozenset[str]:
        """Judged queries that are missing from the run."""
        scores = self.scores
        if self.covers_all_queries:
            return self.lost_queries
        if scores.judged is not None:
            absent = np.flatnonzero(~scores.judged.answered).tolist()
            return self.lost_queries | {scores.queries[i] for i in absent}
        columns = [set(scores.unscored[m]) for m in scores.measures]
        return self.lost_queries | (frozenset(set.intersection(*columns)) if columns else frozenset())

    @cached_property
    def empty_queries(self) -> frozenset[str]:
        """Judged queries without any returned document: failed, empty or missing."""
        if self.scores.judged is None:
            return self.missing_queries
        none = np.flatnonzero(self.scores.judged.retrieved == 0).tolist()
        return self.missing_queries | {self.scores.queries[i] for i in none}

    @property
    def n_skipped_queries(self) -> int:
        """Number of judged queries of the dataset that were not run, as with `--max-queries`."""
        return int(self.manifest.get("judged_not_asked") or 0)

    @cached_property
    def expected_queries(self) -> frozenset[str]:
        """Queries that the run should contain."""
        return frozenset(self.scores.queries) | self.lost_queries

    @property
    def depth(self) -> float | None:
        """Deepest defined cutoff; None if unknown."""
        import polars as pl

        return defined_depth(Run(pl.DataFrame(), timings=self.timings, manifest=self.manifest))

    @property
    def longest_ranking(self) -> float:
        """Largest number of documents of a query that can be known: k, or fewer if every ranking is complete."""
        k = float(self.manifest["plan"]["k"])
        if self.depth != math.inf or self.scores.judged is None:
            return k
        return min(k, float(self.scores.judged.retrieved.max(initial=0)))

    def read(self, indicator: Indicator, subset: QuerySubset = None, *, lenient: bool = False) -> IndicatorValue:
        """Compute an indicator for the run, or for a subset of its queries.

        `lenient` accepts a mean over part of the queries.
        """
        if indicator.source == "measure":
            result = self._read_measure(indicator, subset, lenient=lenient)
        else:
            readers = {
                "latency": self._read_latency,
                "count": self._read_count,
                "whole": self._read_run_value,
                "corpus": self._read_corpus_size,
            }
            result = readers[indicator.source](indicator, subset)
        if not result.reason and not math.isfinite(result.value):
            return IndicatorValue(math.nan, result.n, f"{indicator.name} is not a finite number")
        return result

    def _missing_measure_reason(self, name: str) -> str:
        """Return why a measure is missing; empty if it is available."""
        if name in self.uncomputable:
            return self.uncomputable[name]
        available = self.scores.measures
        if name not in available:  # Other spellings do not count: a convention may define them differently.
            return f"no scores of {name}; available: {', '.join(available) or 'none'}"
        return ""

    def _read_measure(self, indicator: Indicator, subset: QuerySubset, *, lenient: bool) -> IndicatorValue:
        name, scores = indicator.name, self.scores
        reason = self._missing_measure_reason(name)
        if reason:
            return IndicatorValue(reason=reason)
        chosen = _row_indices(scores, subset)
        column = scores.values[name][chosen]
        queries = [scores.queries[i] for i in chosen]
        scored = ~np.isnan(column)
        n = int(scored.sum())
        reasons = {query: scores.unscored[name].get(query, "") for query in queries if query in scores.unscored[name]}
        unexpected = [query for query, reason in reasons.items() if reason not in EXPECTED_REASONS]
        if unexpected and not n and len(set(reasons.values())) == 1:  # undefined for the run, not for single queries
            return IndicatorValue(reason=reasons[unexpected[0]])
        if unexpected and not (lenient and n):
            have = pluralise(len(unexpected), "query has", "queries have")
            return IndicatorValue(
                n=n, reason=f"{have} no {name} ({format_first_names(unexpected)}): {reasons[unexpected[0]]}"
            )
        if not n:
            reason = next(iter(reasons.values()), "no query is judged")
            return IndicatorValue(reason=f"no query has a value of {name}: {reason}")
        unpenalised = [q for q, v in zip(queries, column.tolist(), strict=True) if q in self.empty_queries and v == 0]
        if indicator.lower_is_better and unpenalised:
            problem = f"{len(unpenalised)} queries without any document count as 0, which is the best {name}"
            return IndicatorValue(n=n, reason=f"{problem} ({format_first_names(unpenalised)})")
        aggregate = find_aggregate(name)
        if subset is None or aggregate is None:
            return IndicatorValue(scores.means[name], n)
        return IndicatorValue(float(aggregate(column[scored])), n)

    def speed_of(self, subset: QuerySubset) -> Speed | None:
        """Compute latency and throughput on some queries; None without timings."""
        if self.timings is None:
            return None
        import polars as pl

        return summarise_timings(
            self.timings if subset is None else self.timings.filter(pl.col("query").is_in(list(subset)))
        )

    def _read_latency(self, indicator: Indicator, subset: QuerySubset) -> IndicatorValue:
        speed = self.speed_of(subset)
        if speed is None:
            return IndicatorValue(reason=NO_TIMINGS_REASON)
        if indicator.stage not in speed.stages:
            return IndicatorValue(reason=f"unknown stage `{indicator.stage}`; available: {', '.join(speed.stages)}")
        latency = speed.stages[indicator.stage]
        if not latency.n:
            return IndicatorValue(reason="no query succeeded")
        return IndicatorValue(float(asdict(latency)[indicator.statistic]), latency.n)

    def _read_count(self, indicator: Indicator, subset: QuerySubset) -> IndicatorValue:
        judged = self.expected_queries if subset is None else self.expected_queries & subset
        lacking = self.missing_queries & judged
        if indicator.name == "failed":
            speed = self.speed_of(subset)
            if speed is None:
                return IndicatorValue(reason=NO_TIMINGS_REASON)
            if not speed.asked:
                return IndicatorValue(reason="no query was run")
            return IndicatorValue(speed.failed + speed.timed_out, speed.asked)
        if not judged:
            return IndicatorValue(reason="no query is judged")
        if indicator.measure:
            reason = self._missing_measure_reason(indicator.measure)
            values = (
                self.scores.values[indicator.measure][_row_indices(self.scores, subset)] if not reason else np.zeros(0)
            )
            return IndicatorValue(reason=reason) if reason else IndicatorValue(int(np.isnan(values).sum()), len(values))
        if indicator.name == "empty":
            if self.scores.judged is None:
                return IndicatorValue(reason="the rankings are unknown; the scores alone do not show empty ones")
            return IndicatorValue(len(self.empty_queries & judged), len(judged))
        n_not_asked = self.n_skipped_queries if subset is None else 0
        count = len(lacking) + n_not_asked if indicator.name == "missing" else len(judged) - len(lacking)
        return IndicatorValue(count, len(judged) + n_not_asked)

    def _read_run_value(self, indicator: Indicator, subset: QuerySubset) -> IndicatorValue:
        if indicator.name == "throughput":
            speed = self.speed_of(subset)
            return (
                IndicatorValue(reason=NO_TIMINGS_REASON)
                if speed is None
                else IndicatorValue(speed.throughput, speed.asked)
            )
        value = self.manifest.get(indicator.name)
        if value is None and indicator.name == "build_seconds" and self.manifest.get("build_cached") is True:
            return IndicatorValue(
                reason="the build time is unknown: vectors came from the cache (set RAGAUGE_CACHE to a new folder)"
            )
        if value is None:
            return IndicatorValue(reason=f"{indicator.name} is not recorded; only `ragauge run` records it")
        return IndicatorValue(float(value), 1)

    def _read_corpus_size(self, _indicator: Indicator, _subset: QuerySubset) -> IndicatorValue:
        size = (self.manifest.get("dataset") or {}).get("documents")
        if not size:
            return IndicatorValue(reason="the number of documents is unknown: the run has no dataset with a corpus")
        return IndicatorValue(float(size), 1)

    def times(self, stage: str) -> dict[str, dict[int, float]]:
        """Return the latencies of a stage in ms: `{query: {repeat: ms}}`.

        Only those that count in its percentiles.
        """
        times: dict[str, dict[int, float]] = {}
        if self.timings is None:
            return times
        waited = ("ok", "timeout") if stage == "total" else ("ok",)
        columns = ("query", "repeat", "status", f"{stage}_ns")
        for query, repeat, status, nanoseconds in self.timings.select(columns).iter_rows():
            if status in waited and nanoseconds is not None:
                times.setdefault(query, {})[repeat] = nanoseconds / 1e6
        return times


NO_TIMINGS_REASON = "no timings: only folders written by `ragauge run` contain them"


def _row_indices(scores: Scores, subset: QuerySubset) -> list[int]:
    """Return the row indices of the scores of some queries."""
    return [i for i, query in enumerate(scores.queries) if subset is None or query in subset]


def paired_score_differences(run_scores: Mapping[str, float], base_scores: Mapping[str, float]) -> tuple[Floats, str]:
    """Return the differences per query, or the reason why the queries do not match."""
    removed, added = [q for q in base_scores if q not in run_scores], [q for q in run_scores if q not in base_scores]
    if removed:
        return np.zeros(
            0
        ), f"{len(removed)} queries have no value, but have one in the baseline ({format_first_names(removed)})"
    if added:
        return np.zeros(0), f"the baseline has no value for {len(added)} queries ({format_first_names(added)})"
    values = np.array([[run_scores[query], base_scores[query]] for query in run_scores]).reshape(-1, 2)
    return paired_differences(values[:, :1], values[:, 1:])[:, 0], ""


def pair_latencies(
    run_times: Mapping[str, Mapping[int, float]], base_times: Mapping[str, Mapping[int, float]], subset: QuerySubset
) -> tuple[Floats, Floats]:
    """Return the latencies of queries that both runs answered in every trial.

    Two arrays with one row per query and one column per trial.
    """
    shared = [q for q in run_times if q in base_times and (subset is None or q in subset)]
    run_repeats, base_repeats = (
        {repeat for times in times_by_query.values() for repeat in times} for times_by_query in (run_times, base_times)
    )
    order = sorted(run_repeats & base_repeats)
    complete_queries = (
        [q for q in shared if all(r in run_times[q] and r in base_times[q] for r in order)] if order else []
    )
    return (
        np.array([[run_times[q][r] for r in order] for q in complete_queries]).reshape(
            len(complete_queries), len(order)
        ),
        np.array([[base_times[q][r] for r in order] for q in complete_queries]).reshape(
            len(complete_queries), len(order)
        ),
    )


def format_first_names(names: Sequence[str]) -> str:
    """Join the first three names."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
