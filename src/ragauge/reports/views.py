"""Reports of comparisons, gates, audits and experiments for notebooks and data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragauge.audits.report import summarise_audit
from ragauge.comparison.report import STARS_LEGEND, describe_test, summarise_comparisons
from ragauge.comparison.results import DatasetOverviews, Overview
from ragauge.core.findings import Audit
from ragauge.core.summaries import Estimate
from ragauge.gates.report import gate_report_notes, summarise_gate
from ragauge.gates.results import Gate
from ragauge.output.report import Findings, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table
from ragauge.reports import experiment_set, overview
from ragauge.reports.overview_report import build_report
from ragauge.runs.results import Experiment, ExperimentSet
from ragauge.stats.comparisons import Comparison, Comparisons, comparison_fields


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


def build_comparison_fields_table(rows: Sequence[Comparison]) -> Table:
    """Build the table with one row per comparison and all its values."""
    records = [comparison_fields(row) for row in rows]
    return Table("comparisons", [Column(name) for name in records[0]], [list(record.values()) for record in records])


def _report_comparison(result: Comparison) -> Report:
    summary = f"{result.system} against {result.baseline} by {result.measure}, {result.n} queries."
    sections = [Section("differences", "Difference", [build_differences_table([result])])]
    return Report("comparison", "Comparison", summary, sections)


def _report_comparisons(result: Comparisons) -> Report:
    sections = [Section("differences", "Differences", [build_differences_table(result.rows)])]
    if result.strata:
        sections.append(Section("strata", "Strata", [build_differences_table(result.strata)]))
    summary = "; ".join(summarise_comparisons(result))
    return Report("comparisons", "Comparison", summary, sections, notes=[describe_test(result), *result.notes])


def build_checks_table(gate: Gate) -> Table:
    """Build the table with one row per check of a gate."""
    columns = [
        Column("result", "name"),
        Column("check", "name"),
        Column("value", "number"),
        Column("limit", "number"),
        Column("n", "count"),
        Column("change", "signed"),
        Column("p", "p"),
        Column("reason"),
    ]
    rows: list[Row] = [
        [
            "pass" if check.passed else "FAIL",
            str(check.rule),
            check.value,
            check.limit,
            check.n,
            Estimate(check.difference, *check.ci, check.n),
            check.p,
            check.reason,
        ]
        for check in gate.checks
    ]
    return Table("checks", columns, rows)


def _report_gate(result: Gate) -> Report:
    sections = [Section("checks", "Checks", [build_checks_table(result)])]
    return Report("gate", "Gate", f"{summarise_gate(result)}.", sections, notes=gate_report_notes(result))


def build_findings_table(audit: Audit) -> Table:
    """Build the table with one row per finding."""
    names = ("subject", "check", "problem", "count", "message", "effect", "remedy")
    rows: list[Row] = [
        [one.subject, one.what, one.problem, one.count, one.message, one.effect, one.remedy] for one in audit.findings
    ]
    return Table("findings", [Column(name) for name in names], rows)


def _report_audit(result: Audit) -> Report:
    sections = [Section("findings", "Findings", [Findings(result.findings, result.skipped)])]
    return Report("audit", "Audit", f"{summarise_audit(result)}.", sections, notes=result.notes)


def build_means_table(datasets: Mapping[str, Overview]) -> Table:
    """Build the table with one row per dataset, system and measure: mean, interval, number of queries."""
    names = ("dataset", "system", "measure", "mean", "ci_low", "ci_high", "n")
    rows: list[Row] = [
        [dataset, name, measure, mean.value, mean.low, mean.high, mean.n]
        for dataset, found in datasets.items()
        for name, entry in found.entries.items()
        for measure, mean in entry.means.items()
    ]
    return Table("means", [Column(name) for name in names], rows)


def _overview_each(result: ExperimentSet) -> DatasetOverviews:
    overviews = {name: overview(one, audited=False) for name, one in result.experiments.items()}
    return DatasetOverviews("Experiments", overviews, {name: one.message for name, one in result.failures.items()})


def _report_experiment_set(result: ExperimentSet) -> Report:
    if not result.experiments:
        return Report("study", "Experiments", "No dataset was run.")
    return experiment_set.build_report(_overview_each(result))


def _means_of_experiment(result: Experiment) -> Table:
    return build_means_table({result.dataset.name: overview(result, audited=False)})


REPORTERS: Mapping[str, ResultReporter] = {
    "Audit": ResultReporter(_report_audit, {"csv": TableBuilder("one row per finding", build_findings_table)}),
    "Comparison": ResultReporter(
        _report_comparison,
        {"csv": TableBuilder("one row", lambda result: build_comparison_fields_table([result]))},
    ),
    "Comparisons": ResultReporter(
        _report_comparisons,
        {
            "csv": TableBuilder(
                "one row per comparison and stratum",
                lambda result: build_comparison_fields_table([*result.rows, *result.strata]),
            )
        },
    ),
    "Experiment": ResultReporter(
        lambda result: build_report(overview(result, audited=False)),
        {"csv": TableBuilder("one row per system and measure", _means_of_experiment)},
    ),
    "ExperimentSet": ResultReporter(
        _report_experiment_set,
        {
            "csv": TableBuilder(
                "one row per dataset, system and measure",
                lambda result: build_means_table(_overview_each(result).overviews),
            )
        },
    ),
    "Gate": ResultReporter(_report_gate, {"csv": TableBuilder("one row per check", build_checks_table)}),
}
"""Reporters by class name, until the class is a record with a report of its own."""
