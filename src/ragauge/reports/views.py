"""Reports of single comparisons, overviews and experiments for notebooks and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragauge.comparison.report import STARS_LEGEND, build_fields_table
from ragauge.comparison.results import DatasetOverviews, Overview
from ragauge.core.summaries import Estimate
from ragauge.output.report import Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table
from ragauge.reports import experiment_set
from ragauge.reports.overview_report import build_report
from ragauge.reports.overviews import overview
from ragauge.runs.results import Experiment, ExperimentSet
from ragauge.stats.comparisons import Comparison


def build_differences_table(rows: Sequence[Comparison]) -> Table:
    """Build the table with one row per comparison: means, difference with interval, corrected p-value."""
    columns = [
        Column("measure", "name"),
        Column("baseline", "name"),
        Column("system", "name"),
        Column("n", "count"),
        Column("mean of baseline", "score"),
        Column("mean of system", "score"),
        Column("difference", "signed"),
        Column("p", "p"),
    ]
    return Table(
        "differences",
        columns,
        [
            [
                row.measure,
                row.baseline,
                row.system,
                row.n,
                *row.means,
                Estimate(row.difference, *row.ci, row.n),
                Cell(row.p_corrected, stars=row.stars),
            ]
            for row in rows
        ],
        note=f"p: corrected for the number of comparisons; {STARS_LEGEND}",
    )


def _report_comparison(result: Comparison) -> Report:
    summary = f"{result.system} against {result.baseline} by {result.measure}, {result.n} queries."
    sections = [Section("differences", "Difference", [build_differences_table([result])])]
    return Report("comparison", "Comparison", summary, sections)


def build_means_table(datasets: Mapping[str, Overview]) -> Table:
    """Build the table with one row per dataset, system and measure: mean, interval, number of queries."""
    names = ("dataset", "system", "measure", "mean", "ci_low", "ci_high", "n")
    rows: list[Row] = [
        [dataset, name, measure, mean.value, mean.low, mean.high, mean.n]
        for dataset, overview in datasets.items()
        for name, entry in overview.entries.items()
        for measure, mean in entry.means.items()
    ]
    return Table("means", [Column(name) for name in names], rows)


def _overview_each(result: ExperimentSet) -> DatasetOverviews:
    overviews = {name: overview(experiment, audited=False) for name, experiment in result.experiments.items()}
    return DatasetOverviews("Experiments", overviews, {name: error.message for name, error in result.failures.items()})


def _report_experiment_set(result: ExperimentSet) -> Report:
    if not result.experiments:
        return Report("study", "Experiments", "No dataset was run.")
    return experiment_set.build_report(_overview_each(result))


def _means_of_experiment(result: Experiment) -> Table:
    return build_means_table({result.dataset.name: overview(result, audited=False)})


COMPARISON_REPORTER = ResultReporter(
    _report_comparison,
    {"csv": TableBuilder("one row", lambda result: build_fields_table([result]))},
)
EXPERIMENT_REPORTER = ResultReporter(
    lambda result: build_report(overview(result, audited=False)),
    {"csv": TableBuilder("one row per system and measure", _means_of_experiment)},
)
EXPERIMENT_SET_REPORTER = ResultReporter(
    _report_experiment_set,
    {
        "csv": TableBuilder(
            "one row per dataset, system and measure",
            lambda result: build_means_table(_overview_each(result).datasets),
        )
    },
)
