"""Reports of the scores that `evaluate` returns, for notebooks and data frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ragauge.core.records import Scores
from ragauge.core.scores_by_run import ScoresByRun
from ragauge.core.summaries import Estimate
from ragauge.evaluation.report import (
    build_csv_table,
    describe_convention,
    measure_column,
    measure_style,
    summarise_scores,
)
from ragauge.evaluation.results import EvaluatedRuns, collect_scores
from ragauge.output.report import Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table
from ragauge.stats.intervals import mean_intervals

CONFIDENCE = 0.95


def collect_any(result: Scores | ScoresByRun, *, per_query: bool = False) -> EvaluatedRuns:
    """Collect the scores of one or several runs."""
    return collect_scores(_scores_by_name(result), per_query=per_query)


def _scores_by_name(result: Scores | ScoresByRun) -> Mapping[str, Scores]:
    return {result.run or "run": result} if isinstance(result, Scores) else result


def build_report(result: Scores | ScoresByRun) -> Report:
    """Build the report of scores with the confidence intervals of the means."""
    collected = collect_any(result)
    note = f"in brackets: {CONFIDENCE:.0%} confidence interval of the mean, BCa bootstrap over queries"
    table = build_interval_table(_scores_by_name(result))
    notes = [describe_convention(collected), *([note] if _has_interval(table) else []), *collected.notes]
    return Report("scores", "Scores", summarise_scores(collected), [Section("scores", "Scores", [table])], notes=notes)


def build_interval_table(runs: Mapping[str, Scores]) -> Table:
    """Build the table of means with intervals: one row per run, or per measure if there is only one run."""
    estimates = {
        name: dict(zip(scores.measures, _estimate_means(scores), strict=True)) for name, scores in runs.items()
    }
    first = next(iter(runs.values()))
    if len(runs) == 1:
        columns = [Column("measure", "name"), *(Column(name, "score") for name in runs), Column("n", "count")]
        rows: list[Row] = [
            [measure, Cell(estimate, measure_style(measure)), estimate.n]
            for measure, estimate in estimates[next(iter(runs))].items()
        ]
        return Table("scores", columns, rows)
    columns = [Column("run", "name"), *(measure_column(first, measure) for measure in first.measures)]
    rows = [
        [name, *means.values(), min((estimate.n for estimate in means.values()), default=0)]
        for name, means in estimates.items()
    ]
    return Table("scores", [*columns, Column("n", "count")], rows).mark_best()


def _estimate_means(scores: Scores) -> Sequence[Estimate]:
    """Return the mean of each measure; a sum or a geometric mean has no interval."""
    if not scores.measures:
        return []
    columns = np.column_stack([scores.values[measure] for measure in scores.measures])
    estimates = []
    for position, (low, high) in enumerate(mean_intervals(columns, CONFIDENCE).T.tolist()):
        mean, n = scores.means[scores.measures[position]], scores.n[scores.measures[position]]
        column = columns[:, position]
        average = float(column[~np.isnan(column)].mean()) if n else math.nan
        has_interval = math.isclose(mean, average, rel_tol=1e-9, abs_tol=1e-12) and not math.isnan(low)
        # Rounding must not put the mean outside its interval if all values are equal.
        estimates.append(Estimate(mean, min(low, mean), max(high, mean), n) if has_interval else Estimate(mean, n=n))
    return estimates


def _has_interval(table: Table) -> bool:
    values = [cell.value for row in table.cells() for cell in row]
    return any(isinstance(value, Estimate) and not math.isnan(value.low) for value in values)


def _build_query_rows(result: Scores | ScoresByRun) -> Table:
    return build_csv_table(collect_any(result, per_query=True))


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per run, query and measure", _build_query_rows)})
