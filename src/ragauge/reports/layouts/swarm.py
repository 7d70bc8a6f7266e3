"""Read and write the swarm notebook's table: one row per method, seed and query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput
from ragauge.core.records import Floats, Judgments, MeasureDict, Scores
from ragauge.core.summaries import Mean
from ragauge.files.scores import read_scores
from ragauge.files.source import InputFile
from ragauge.files.table_rows import TableRows
from ragauge.reports.layouts.cells import (
    LayoutMeasures,
    parse_count,
    parse_row_numbers,
    read_layout_table,
    to_csv,
    unknown_column_notes,
)

V = TypeVar("V")

MEASURE_BY_COLUMN: Mapping[str, str] = {
    "Hit@1": "hit_rate@1",
    "Hit@5": "hit_rate@5",
    "Hit@10": "hit_rate@10",
    "Hit@20": "hit_rate@20",
    "MRR": "mrr@20",
    "Recall@1": "recall@1",
    "Recall@5": "recall@5",
    "Recall@10": "recall@10",
    "Recall@20": "recall@20",
    "DR@20": "dr(targets=identity)@20",
    "Diversity_Count": "diversity_count(targets=identity)@20",
}
"""Measure behind each column. The notebook uses 20 documents, and each is its own target."""
TARGET_MAP_MEASURE_BY_COLUMN: Mapping[str, str] = {
    **MEASURE_BY_COLUMN,
    "DR@20": "dr@20",
    "Diversity_Count": "diversity_count@20",
}
"""Measure behind each column for datasets with a target map."""
TARGET_MAP_CONVENTION = "swarm, targets=map"
"""Convention for target maps. A column that the notebook's table lacks records it."""
REQUIRED_COLUMNS = ("method", "query_id", "seed")
COLUMNS = (*MEASURE_BY_COLUMN, "latency", "method", "query_id", "gt_count", "seed", "query_complexity")
LAYOUT_MEASURES = LayoutMeasures("swarm", "swarm", tuple(MEASURE_BY_COLUMN.values()))
TARGET_MAP_LAYOUT_MEASURES = LayoutMeasures("swarm", "swarm", tuple(TARGET_MAP_MEASURE_BY_COLUMN.values()))
LATENCY_COLUMN = "latency"
"""Column with the latency in seconds. It is stored as a measure, because each query has its own value."""


def read_swarm(path: str) -> Overview:
    """Read scores by method and seed, tags of the queries, and all latencies."""
    source = InputFile(path)
    rows = read_layout_table(path, REQUIRED_COLUMNS, MEASURE_BY_COLUMN, "the swarm notebook")
    seeds: dict[str, dict[str, None]] = {}
    for at in range(len(rows)):
        seeds.setdefault(rows.id("method", at, "method"), {})[rows.id("seed", at, "seed")] = None
        parse_row_numbers(rows, at, (*MEASURE_BY_COLUMN, LATENCY_COLUMN))  # Raises if a number column contains text.
    scores_by_method, tags = read_scores(path)
    trials_by_method = {
        name: [scores] if isinstance(scores, Scores) else list(scores.values())
        for name, scores in scores_by_method.items()
    }
    target_map_flags = {
        scores.convention == TARGET_MAP_CONVENTION
        for method_scores in trials_by_method.values()
        for scores in method_scores
    }
    if len(target_map_flags) > 1:
        raise BadInput(
            f"some rows follow `{TARGET_MAP_CONVENTION}` and some do not",
            file=source.label,
            hint="keep only one kind of rows",
        )
    layout_measures, names = (
        (TARGET_MAP_LAYOUT_MEASURES, TARGET_MAP_MEASURE_BY_COLUMN)
        if target_map_flags == {True}
        else (LAYOUT_MEASURES, MEASURE_BY_COLUMN)
    )
    rules = TARGET_MAP_CONVENTION if layout_measures is TARGET_MAP_LAYOUT_MEASURES else layout_measures.convention
    entries = {}
    for name, seed_scores in trials_by_method.items():
        trials = [_with_canonical_measures(scores, names, rules) for scores in seed_scores]
        latencies = [scores.values[LATENCY_COLUMN] for scores in trials if LATENCY_COLUMN in scores.values]
        seconds = np.concatenate(latencies) if latencies else np.zeros(0)
        times = {"total": seconds[~np.isnan(seconds)] * 1000} if not np.isnan(seconds).all() else {}
        means = _means_over_seeds(trials, layout_measures.measures)
        entries[name] = SystemSummary(name, means, trials, times=times, stated_manifest={"seeds": list(seeds[name])})
    measures = [name for name in layout_measures.measures if any(name in entry.means for entry in entries.values())]
    for query, count in _read_relevant_counts(rows).items():
        tags.setdefault(query, {})["gt_count"] = str(count)
    notes = unknown_column_notes(rows, (*COLUMNS, "convention"))
    return Overview(source.stem, entries, measures, rules, notes=notes, tags=tags)


def render_swarm(overview: Overview) -> str:
    """Format an overview as the table, with latencies in seconds.

    A system whose trials were identical was scored once, but has a row for every trial.
    """
    uses_target_map = overview.convention == TARGET_MAP_CONVENTION
    names, extra_columns = (
        (TARGET_MAP_MEASURE_BY_COLUMN, {"convention": TARGET_MAP_CONVENTION})
        if uses_target_map
        else (MEASURE_BY_COLUMN, {})
    )
    (TARGET_MAP_LAYOUT_MEASURES if uses_target_map else LAYOUT_MEASURES).check(overview)
    rows: list[dict[str, Any]] = []
    for name, entry in overview.entries.items():
        if not entry.scores:
            raise BadInput(
                f"only means of {name} are known, but the swarm notebook's table has one row per query",
                hint="give its run, or a table of scores",
            )
        latencies = find_latencies_s(entry)
        n_trials = 1 + max((trial for _, trial in latencies), default=0) if len(entry.scores) == 1 else 1
        trials = [*entry.scores] * n_trials
        labels = entry.stated_manifest.get("seeds") or range(len(trials))
        for trial, (label, scores) in enumerate(zip(labels, trials, strict=True)):
            columns = {
                column_name: scores.values[measure].tolist()
                for column_name, measure in names.items()
                if measure in scores.values
            }
            for at, query in enumerate(scores.queries):
                tags = overview.tags.get(query, {})
                rows.append(
                    {
                        **{column_name: column[at] for column_name, column in columns.items()},
                        LATENCY_COLUMN: latencies.get((query, trial)),
                        "method": name,
                        "query_id": query,
                        "gt_count": _count_relevant(overview.judgments, query, scores.rel, tags.get("gt_count")),
                        "seed": label,
                        "query_complexity": tags.get("complexity"),
                        **extra_columns,
                    }
                )
    return to_csv((*COLUMNS, *extra_columns), rows)


def find_latencies_s(entry: SystemSummary) -> dict[tuple[str, int], float]:
    """Return the latency in seconds by query and trial.

    Errors are omitted, timeouts are included.
    """
    if entry.run is not None and entry.run.timings is not None:
        rows = entry.run.timings.select("query", "repeat", "status", "total_ns").iter_rows()
        return {(query, int(repeat)): ns / 1e9 for query, repeat, status, ns in rows if status in ("ok", "timeout")}
    return {
        (query, trial): value
        for trial, scores in enumerate(entry.scores)
        for query, value in scores.per_query.get(LATENCY_COLUMN, {}).items()
    }


def _count_relevant(
    judgments: Judgments | None, query: str, rel: float | None, fallback: str | None
) -> int | str | None:
    """Count the relevant documents of a query.

    Without judgments, `fallback` is returned.
    """
    if judgments is None or query not in judgments.nested:
        return fallback
    return sum(grade > 0 if rel is None else grade >= rel for grade in judgments.nested[query].values())


def _with_canonical_measures(scores: Scores, names: Mapping[str, str], rules: str) -> Scores:
    """Return scores under canonical measure names.

    The table's names still work as keys.
    """

    def canonical(name: str) -> str:
        return names.get(name, name)

    def by_measure(values: Mapping[str, V]) -> MeasureDict[V]:
        return MeasureDict({canonical(name): value for name, value in values.items()}, canonical)

    return replace(
        scores,
        convention=rules,
        values=by_measure(scores.values),
        means=by_measure(scores.means),
        unscored=by_measure(scores.unscored),
    )


def _means_over_seeds(trials: Sequence[Scores], measures: Sequence[str]) -> dict[str, Mean]:
    """Compute the mean over seeds of each seed's mean over queries."""
    means = {}
    for name in measures:
        scored_trials = [scores for scores in trials if name in scores.values]
        seed_means: Floats = np.array([scores.means[name] for scores in scored_trials])
        if not np.isnan(seed_means).all():
            means[name] = Mean(float(np.nanmean(seed_means)), max(scores.n[name] for scores in scored_trials))
        elif scored_trials:
            means[name] = Mean(math.nan, 0)
    return means


def _read_relevant_counts(rows: TableRows) -> dict[str, int]:
    """Read the number of relevant documents by query.

    Raises BadInput if rows disagree.
    """
    counts: dict[str, int] = {}
    for at, cell in enumerate(rows.columns.get("gt_count", ())):
        query, count = rows.id("query_id", at, "query"), parse_count(cell, "gt_count", rows.label, rows.line(at))
        if count is None:
            continue
        if counts.setdefault(query, count) != count:
            raise BadInput(
                f"gt_count of query `{query}` is {count}, but {counts[query]} in an earlier row",
                file=rows.label,
                line=rows.line(at),
            )
    return counts
