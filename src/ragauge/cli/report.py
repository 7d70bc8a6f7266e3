"""`ragauge report RUN… -o report.html`: write a report with all tables and charts, in several formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import allow_only_options, check_output_libraries
from ragauge.cli.options import (
    ChartsFolder,
    CommonQueries,
    Correction,
    CountMissing,
    Family,
    HigherIsBetter,
    LowerIsBetter,
    MinRelevantGrade,
    OptionalConventionName,
    OutputFiles,
    PrintJson,
    SignificanceTest,
    Split,
    TargetMap,
    TestConfidence,
    baseline_option,
    csv_option,
    measures_option,
    resolve_convention,
)
from ragauge.cli.output import describe_omitted, print_report
from ragauge.cli.progress import show_progress
from ragauge.comparison.results import Overview
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.evaluation.tie_notes import describe_ties
from ragauge.files import judged_folders
from ragauge.judging import results_folder
from ragauge.output.formats import format_for_path
from ragauge.reports import registry
from ragauge.reports.overview_report import build_report, describe_tables
from ragauge.reports.overviews import OUTPUT_FORMATS
from ragauge.reports.overviews import report as make_report
from ragauge.reports.settings import OverviewOptions
from ragauge.runs.folder import JUDGMENTS_FILE
from ragauge.store_benchmarks.results_folder import find_benchmark_file

STORED_RESULT_OPTIONS = ("out", "form", "as_json", "as_csv", "charts")
"""Options that apply to a stored result, which is written or printed without new computations."""


def report(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...",
            help="Folders of `run`, `bench` or `judge`; judgments, then runs (NAME=FILE names one); tables of scores; "
            f"or JSON of {', '.join(registry.STORED_RESULT_COMMANDS)}. Required.",
        ),
    ] = None,
    out: OutputFiles = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"Print this format, or write it to the file of -o: {', '.join(OUTPUT_FORMATS)}.",
        ),
    ] = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("value of a system")] = False,
    charts: ChartsFolder = None,
    baseline: Annotated[str | None, baseline_option("that of the runs")] = None,
    measure: Annotated[
        list[str] | None,
        measures_option("those of the runs", "Measures, e.g. ndcg@10,map; systems are compared by the first."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Tag of the queries whose values are reported separately. Can be repeated."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--dataset",
            metavar="DATASET",
            show_default="that of the runs",
            help="Dataset with the texts, by name or folder.",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", show_default="by the input", help="Title of the report."),
    ] = None,
    joined: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE.json",
            help="Further results, as sections of the page: JSON of "
            f"{', '.join(registry.STORED_RESULT_COMMANDS)}. Can be repeated.",
        ),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit/--no-audit", help="Audit the scores for suspicious causes.")] = True,
    confidence: TestConfidence = 0.95,
    test: SignificanceTest = "t",
    correction: Correction = "holm",
    family: Family = "measure",
    common_queries: CommonQueries = False,
    count_missing: CountMissing = False,
    convention: OptionalConventionName = None,
    rel: MinRelevantGrade = None,
    split: Split = None,
    target_map: TargetMap = None,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
) -> None:
    """Write a report of results: page, tables, charts, JSON, CSV, LaTeX.

    [dim]ragauge report runs/pydocs -o report.html --charts charts[/dim]

    [dim]ragauge report runs/pydocs -o table.tex -o report.json[/dim]
    """
    if not files:
        raise BadInput(
            "no input given; expected run folders, or QRELS and at least one RUN",
            hint="use `ragauge report runs/pydocs`",
        )
    console.check_exclusive({"--json": as_json, "--csv": as_csv, "--format": form is not None})
    if (as_json or as_csv) and any(file != "-" for file in out or ()):
        raise BadInput("--json and --csv print the report, and -o writes it", hint="remove one of them")
    form = "json" if as_json else "csv" if as_csv else form
    if form is not None and out and len(out) > 1:
        raise BadInput(
            f"--format applies to one file, got {len(out)} files",
            hint="remove --format; the ending of each file decides, e.g. `-o report.html -o report.json`",
        )
    check_output_libraries(out or [], charts)
    targets = [] if out is None else [path for path in out if path != "-"]  # without a file, it is printed anyway
    if out and len(targets) < len(out) and form is None:
        raise BadInput("no format given for standard output", hint="add `--format json`, `--format csv` or another one")
    if len(files) == 1 and (benchmark := find_benchmark_file(files[0])) is not None:
        allow_only_options(context, STORED_RESULT_OPTIONS, "a benchmark that `bench` wrote")
        _report_stored_results([benchmark], targets, form, charts)
        return
    if all(registry.is_result_file(path) for path in files):
        allow_only_options(context, STORED_RESULT_OPTIONS, f"results of {', '.join(registry.STORED_RESULT_COMMANDS)}")
        _report_stored_results(files, targets, form, charts)
        return
    is_experiment = (Path(files[0]) / JUDGMENTS_FILE).exists()
    judged = [] if len(files) > 1 or is_experiment else judged_folders.list_judged_folders(files[0])
    if len(judged) == 1:
        allow_only_options(context, STORED_RESULT_OPTIONS, "a folder that `judge` wrote")
        _report_judged(judged[0], targets, form, charts)
        return
    options: OverviewOptions = {
        "baseline": baseline, "by": by or (), "dataset": dataset, "title": title, "joined": joined or (),
        "audited": audit, "confidence": confidence, "test": test, "correction": correction, "family": family,
        "common_queries": common_queries, "count_missing": count_missing, "split": split,
        "targets": target_map,
        "lower_is_better": lower_is_better, "higher_is_better": higher_is_better,
    }  # fmt: skip
    if convention is not None or rel is not None:
        options["convention"] = resolve_convention(convention or "default", rel=rel)
    if measure is not None:
        options["measures"] = measure
    with show_progress() as progress:
        overview = make_report(files, targets, format=form, charts=charts, progress=progress, **options)
    if form is not None and not targets:
        console.write_data(OUTPUT_FORMATS[format_for_path("", form, OUTPUT_FORMATS)].write([overview]), nl=False)
    if targets or form is not None or charts is not None:
        console.print_notes([*_overview_notes(overview), *_describe_written_files(targets, charts)])
    else:
        print_overview(overview)


def print_overview(overview: Overview) -> None:
    """Print the summary, the tables and notes on them."""
    dropped = print_report(build_report(overview))
    omitted = describe_omitted(dropped, "--format markdown")
    notes = console.limit_notes([*_overview_notes(overview), *describe_tables(overview)])
    console.print_notes([*notes, *omitted, "next: the same command with -o report.html"])


def _overview_notes(overview: Overview) -> list[str]:
    ties = describe_ties(entry.scores for entry in overview.entries.values())
    return [*overview.notes, *ties]


def _report_judged(folder: str, targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print stored verdicts."""
    _check_not_source({(Path(folder) / name).resolve() for name in results_folder.RESULT_FILES}, targets)
    _report_results([results_folder.read_judged_folder(folder)], targets, form, charts)


def _report_stored_results(files: list[str], targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print stored results; several are combined in one report."""
    results = [result for file in files for result in registry.read_results(file)]
    _check_not_source({Path(file).resolve() for file in files}, targets)
    _report_results(results, targets, form, charts)


def _report_results(results: Sequence[Result], targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print results."""
    registry.write_results(results, targets, form, charts)
    formats = registry.find_formats(type(results[0]))
    if form is not None and not targets:
        console.write_data(formats[format_for_path("", form, formats)].write(results), nl=False)
    elif not targets and charts is None:
        reports = registry.build_reports(results)
        for report in reports[: len(reports) - len(results)] or reports:
            dropped = print_report(report)
            missing = [f"columns omitted: {', '.join(dropped)} (terminal too narrow)"] if dropped else []
            console.print_notes([*console.limit_notes(report.notes), *missing])
    console.print_notes(_describe_written_files(targets, charts))


def _check_not_source(read: set[Path], targets: list[str]) -> None:
    for target in targets:
        if Path(target).resolve() in read:
            raise BadInput("this file is read", file=target, hint="give the output another name")


def _describe_written_files(files: list[str], charts: str | None) -> list[str]:
    lines = [f"wrote {file} ({_format_file_size(Path(file).stat().st_size)})" for file in files if file != "-"]
    return lines + ([] if charts is None else [f"wrote the charts to {charts}"])


def _format_file_size(number: int) -> str:
    """Format a file size.

    >>> _format_file_size(900), _format_file_size(5_300), _format_file_size(1_690_000)
    ('900 bytes', '5 kB', '1.7 MB')
    """
    if number < 1000:
        return f"{number} bytes"
    return f"{number / 1e3:.0f} kB" if number < 1e6 else f"{number / 1e6:.1f} MB"
