"""Report of scores: means of each run and measure, and the scores of single queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ragauge.core.records import Scores
from ragauge.evaluation.charts import build_score_chart
from ragauge.evaluation.indicators import find_measure
from ragauge.evaluation.results import EvaluatedRuns
from ragauge.measures.conventions import ANSWER_OPTIONS, parse_convention
from ragauge.output.numbers import format_number, join_names, join_with_and, pluralise
from ragauge.output.report import FILES_ONLY, PAGE_ONLY, Charts, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table

MAX_NAMED_RUNS = 3
"""Maximum number of runs that the summary names."""


def build_report(result: EvaluatedRuns) -> Report:
    sections = [
        Section("scores", "Scores", [build_score_table(result)], "Scores"),
        Section("charts", "Chart", [Charts(lambda: build_score_chart(result))], "Chart", PAGE_ONLY),
    ]
    if result.queries:
        sections.append(
            Section("queries", "Queries", [build_query_table(result, collapsed=True)], "Queries", FILES_ONLY)
        )
    return Report(
        "scores",
        "Scores",
        summarise_scores(result),
        sections,
        [join_names(list(result.runs)), pluralise(result.n_queries, "judged query", "judged queries")],
        notes=[describe_convention(result), *result.notes],
        provenance=result.provenance,
    )


def summarise_scores(result: EvaluatedRuns) -> str:
    """Summarise the first measure in one sentence: the run with the best mean, or the mean of the only run."""
    measure = result.measures[0]
    means = {name: scores[measure].mean for name, scores in result.runs.items() if measure in scores}
    known_means = {name: mean for name, mean in means.items() if not math.isnan(mean)}
    if not known_means:
        return f"No query has a value of {measure}."
    sign = -1 if result.is_lower_better(measure) else 1
    best = max(sign * mean for mean in known_means.values())
    leaders = [name for name, mean in known_means.items() if sign * mean == best]
    value = format_number(sign * best, measure_style(measure))
    if len(result.runs) == 1:
        return f"{measure} of {leaders[0]} is {value}."
    verb = "have" if len(leaders) > 1 else "has"
    leader_text = join_with_and(leaders) if len(leaders) <= MAX_NAMED_RUNS else pluralise(len(leaders), "run")
    return f"{leader_text} {verb} the {'lowest' if sign < 0 else 'highest'} {measure}: {value}."


def describe_convention(result: EvaluatedRuns) -> str:
    """Describe the number of queries and the convention, with the options that differ from the default."""
    text = f"{result.n_queries:,} judged queries, convention {result.convention}"
    convention = parse_convention(result.convention)
    if convention is None or "," in result.convention:
        return text
    departures = convention.departures().items()
    options = ", ".join(f"{name}={value}" for name, value in departures if name not in ANSWER_OPTIONS)
    return f"{text} ({options})" if options else text


def build_score_table(result: EvaluatedRuns) -> Table:
    """Build the table of means with one row per run, or per measure for one run; best values are marked."""
    columns = [
        Column("run", "name"),
        *(measure_column(result, measure) for measure in result.measures),
        Column("n", "count", legend="number of scored queries"),
    ]
    rows: list[Row] = []
    for name, scores in result.runs.items():
        means = [scores[measure].mean if measure in scores else None for measure in result.measures]
        rows.append([name, *means, _counts_cell([measure.n for measure in scores.values()])])
    table = Table("scores", columns, rows).mark_best()
    return table if len(result.runs) > 1 else transpose_scores(table, result)


def transpose_scores(table: Table, result: EvaluatedRuns) -> Table:
    """Return the table of means with one row per measure."""
    by_run = table.cells()
    columns = [
        Column("measure", "name"),
        *(Column(name, "score") for name in result.runs),
        Column("n", "count", legend="number of scored queries"),
    ]
    rows: list[Row] = []
    for i, measure in enumerate(result.measures, 1):
        style = measure_style(measure)
        cells = [row[i]._replace(style=style) for row in by_run]
        counts = [scores[measure].n for scores in result.runs.values() if measure in scores]
        rows.append([measure, *cells, _counts_cell(counts)])
    return Table(table.id, columns, rows)


def measure_style(measure: str) -> str:
    parsed = find_measure(measure)
    return "count" if parsed is not None and parsed.is_count else "score"


def measure_column(result: EvaluatedRuns | Scores, measure: str) -> Column:
    style = measure_style(measure)
    better: Literal[-1, 0, 1] = 0 if style == "count" else -1 if result.is_lower_better(measure) else 1
    return Column(measure, style, better)


def _counts_cell(counts: Sequence[int]) -> Cell:
    lowest, highest = min(counts), max(counts)
    return Cell(lowest, text="" if lowest == highest else f"{lowest}-{highest}")


def build_query_table(result: EvaluatedRuns, *, collapsed: bool = False) -> Table:
    """Build the table with one row per run and query."""
    has_several_runs = len(result.runs) > 1
    columns = [Column("query", "name"), *([Column("run", "name")] if has_several_runs else [])]
    columns += [Column(measure, measure_style(measure)) for measure in result.measures]
    rows: list[Row] = [
        [
            query,
            *([name] if has_several_runs else []),
            *(scores[measure].per_query.get(query) if measure in scores else None for measure in result.measures),
        ]
        for name, scores in result.runs.items()
        for query in result.queries
    ]
    return Table("queries", columns, rows, collapsed=collapsed)


def build_long_query_table(result: EvaluatedRuns) -> Table:
    """Build the table with one row per run, measure and query, for a narrow terminal."""
    has_several_runs = len(result.runs) > 1
    columns = [
        Column("query", "name"),
        *([Column("run", "name")] if has_several_runs else []),
        Column("measure", "name"),
    ]
    rows: list[Row] = [
        [
            query,
            *([name] if has_several_runs else []),
            measure,
            Cell(measured.per_query.get(query), measure_style(measure)),
        ]
        for name, scores in result.runs.items()
        for measure, measured in scores.items()
        for query in result.queries
    ]
    return Table("queries", [*columns, Column("value", "score")], rows)


def build_csv_table(result: EvaluatedRuns) -> Table:
    """Build the table with one row per run and measure; with scores of single queries, one row for each score."""
    if not result.queries:
        has_trials = any(measured.trials for scores in result.runs.values() for measured in scores.values())
        columns = ["run", "measure", "mean", "n", "unscored", *(["trials", "lowest", "highest"] if has_trials else [])]
        means: list[Row] = []
        for name, scores in result.runs.items():
            for measure, measured in scores.items():
                trial_means = measured.trials or [measured.mean]
                spread = [len(trial_means), min(trial_means), max(trial_means)] if has_trials else []
                means.append([name, measure, measured.mean, measured.n, measured.unscored, *spread])
        return Table("means", [Column(name) for name in columns], means)
    names = ("run", "query", "measure", "value", "lower_is_better")
    rows: list[Row] = [
        [name, query, measure, measured.per_query.get(query), result.is_lower_better(measure)]
        for name, scores in result.runs.items()
        for measure, measured in scores.items()
        for query in result.queries
    ]
    return Table("queries", [Column(name) for name in names], rows)


REPORTER = ResultReporter(
    build_report, {"csv": TableBuilder("one row per run and measure, or per score with -q", build_csv_table)}
)
