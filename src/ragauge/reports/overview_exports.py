"""Tables of an overview for CSV: means and other values of systems, and scores of single queries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.records import Scores
from ragauge.output.tables import Column, Row, Table, Value
from ragauge.reports.latency_tables import (
    CACHED_BUILD_TEXT,
    EMBEDDING_COLUMNS,
    count_failures,
    count_unknown_ids,
    is_cached_build,
)
from ragauge.reports.overview_tables import UNKNOWN_MEAN, find_query_count

if TYPE_CHECKING:
    import polars as pl

LATENCY_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "min", "max")
DATE_COLUMNS = ("made", "reused")
"""Columns with the date of a system's results."""


def build_values_table(overview: Overview) -> Table:
    """Build the long table, one row per system and value."""
    columns = [Column(name) for name in ("system", "name", "value", "low", "high", "n", *DATE_COLUMNS)]
    rows = [
        [entry.name, *row, *_date_values(entry)]
        for entry in overview.entries.values()
        for row in _system_values(overview, entry)
    ]
    return Table("values", columns, rows)


def _date_values(entry: SystemSummary) -> tuple[Value, Value]:
    """Return the date of a system's results and whether they were reused; None if unknown."""
    return (None, None) if entry.run_date is None else (entry.run_date.made, entry.run_date.reused)


def _system_values(overview: Overview, entry: SystemSummary) -> Iterator[list[Value]]:
    """Yield name, value, interval and number of queries of every value of a system."""
    for measure in overview.measures:
        mean = entry.means.get(measure, UNKNOWN_MEAN)
        yield [measure, mean.value, mean.low, mean.high, find_query_count(mean)]
    for measure, variation in entry.variation.items():
        values: dict[str, Value] = {"trials": variation.trials}
        values |= {f"variance_{part}": value for part, value in variation.variances._asdict().items()}
        values |= {
            "standard_error": variation.error,
            "by_trials": variation.by_trials,
            "unstable": variation.unstable / variation.n,
        }
        for name, value in values.items():
            yield [f"{name}({measure})", value, None, None, variation.n]
    for row in () if overview.compared is None else overview.compared.rows:
        if row.system == entry.name:
            pair = f"({row.measure}, {row.baseline})"
            yield [f"difference{pair}", row.difference, *row.ci, row.n]
            yield [f"p_corrected{pair}", row.p_corrected, None, None, row.n]
    speed = entry.speed
    if speed is not None:
        for stage, latency in speed.stages.items():
            for name in LATENCY_STATISTICS:
                yield [f"{stage}_{name}_ms", getattr(latency, name), None, None, latency.n]
        yield ["throughput", speed.throughput, None, None, speed.asked]
    if entry.doubts:
        yield ["unreliable_times", "; ".join(entry.doubts), None, None, 1]
    for name in EMBEDDING_COLUMNS:
        if name in entry.embedding:
            yield [name, entry.embedding[name], None, None, 1]
    for cost in entry.costs:
        yield [cost, _cost_value(entry, cost), None, None, 1]
    if speed is not None:
        yield ["failed", count_failures(entry), None, None, speed.asked]
    if count_unknown_ids(entry):
        yield ["unknown_ids", count_unknown_ids(entry), None, None, int(entry.manifest["unknown_ids"]["returned"])]


def _cost_value(entry: SystemSummary, cost: str) -> Value:
    return CACHED_BUILD_TEXT if is_cached_build(entry, cost) else entry.costs.get(cost)


def build_wide_table(overview: Overview) -> Table:
    """Build the wide table, one row per system and one column per value."""
    entries = overview.entries.values()
    stages = list(dict.fromkeys(stage for e in entries if e.speed is not None for stage in e.speed.stages))
    costs = list(dict.fromkeys(cost for entry in entries for cost in entry.costs))
    names = ["system", *(f"{m}{end}" for m in overview.measures for end in ("", "_low", "_high", "_n"))]
    names += [f"{stage}_{name}_ms" for stage in stages for name in LATENCY_STATISTICS]
    facts = [name for name in EMBEDDING_COLUMNS if any(name in entry.embedding for entry in entries)]
    names += ["throughput", "asked", "failed", *costs, *facts, *DATE_COLUMNS]
    rows: list[Row] = []
    for entry in entries:
        row: list[Value] = [entry.name]
        for measure in overview.measures:
            mean = entry.means.get(measure, UNKNOWN_MEAN)
            row += [mean.value, mean.low, mean.high, find_query_count(mean)]
        speed = entry.speed
        stage_latencies = {} if speed is None else speed.stages
        for stage in stages:
            row += [
                getattr(stage_latencies[stage], name) if stage in stage_latencies else None
                for name in LATENCY_STATISTICS
            ]
        if speed is None:
            row += [None, None, len(entry.failed) or None]
        else:
            row += [speed.throughput, speed.asked, count_failures(entry)]
        row += [*(_cost_value(entry, cost) for cost in costs), *(entry.embedding.get(name) for name in facts)]
        rows.append([*row, *_date_values(entry)])
    return Table("wide", [Column(name) for name in names], rows)


class QueryTrial(NamedTuple):
    """Latency and status of one query in one trial."""

    total_ms: float = math.nan
    status: str = ""
    """`ok`, `error` or `timeout`; empty if unknown."""


def _query_trials(timings: pl.DataFrame | None, trial: int) -> dict[str, QueryTrial]:
    """Return latency and status by query in one trial."""
    if timings is None:
        return {}
    if "repeat" in timings.columns:
        timings = timings.filter(timings["repeat"] == trial)
    rows = timings.select("query", "total_ns", "status").iter_rows()
    return {
        query: QueryTrial(math.nan if total is None else total / 1e6, status or "") for query, total, status in rows
    }


def _has_several_trials(overview: Overview) -> bool:
    return any(len(entry.scores) > 1 for entry in overview.entries.values())


def _iterate_trials(overview: Overview) -> Iterator[tuple[SystemSummary, int, list[Value], Scores]]:
    """Yield each trial of each system with its number, the first cells of its rows, and its scores."""
    has_several = _has_several_trials(overview)
    for entry in overview.entries.values():
        for trial, scores in enumerate(entry.scores):
            yield entry, trial, [entry.name, *([trial] if has_several else [])], scores


def build_query_values_table(overview: Overview) -> Table:
    """Build the long table of scores, one row per system, trial, query and measure."""
    trial = ["trial"] if _has_several_trials(overview) else []
    rows: list[Row] = []
    for _, _, lead, scores in _iterate_trials(overview):
        for measure in (m for m in overview.measures if m in scores.values):
            lower = scores.is_lower_better(measure)
            values = zip(scores.queries, scores.values[measure].tolist(), strict=True)
            rows += [[*lead, query, measure, value, lower] for query, value in values]
    columns = [Column(name) for name in ("run", *trial, "query", "measure", "value", "lower_is_better")]
    return Table("queries", columns, rows)


def build_queries_table(overview: Overview) -> Table:
    """Build the wide table of scores, one row per system, trial and query, with latency and status."""
    trial_column = ["trial"] if _has_several_trials(overview) else []
    text_column = ["text"] if overview.queries else []
    rows: list[Row] = []
    for entry, trial, lead, scores in _iterate_trials(overview):
        trials = _query_trials(None if entry.run is None else entry.run.timings, trial)
        values = [scores.values[m].tolist() if m in scores.values else None for m in overview.measures]
        for i, query in enumerate(scores.queries):
            text = [overview.queries.get(query, "")] if text_column else []
            cells = [None if column is None else column[i] for column in values]
            rows.append([*lead, query, *text, *cells, *trials.get(query, QueryTrial())])
    names = ["run", *trial_column, "query", *text_column, *overview.measures, "total_ms", "status"]
    return Table("queries-wide", [Column(name) for name in names], rows)
