"""`ragauge report RUN… -o report.html`: write a report with all tables and charts, in several formats."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as packaged
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.evaluate import parse_convention_options
from ragauge.cli.option_checks import allow_only_options, check_output_libraries
from ragauge.cli.options import CommonQueries, HigherIsBetter, LowerIsBetter, MinRelevantGrade
from ragauge.cli.progress import show_status
from ragauge.cli.tie_notes import describe_ties
from ragauge.comparison.results import Overview
from ragauge.comparison.scored_files import expand_judged_folder
from ragauge.core.errors import BadInput
from ragauge.core.text import one_line
from ragauge.files import judged_folders
from ragauge.judging import report_formats, results_folder
from ragauge.output import report as output_report
from ragauge.output.formats import format_for_path
from ragauge.reports import OUTPUT_FORMATS, benchmark_files, registry
from ragauge.reports import report as make_report
from ragauge.reports.registry import REPORT_BUILDERS, build_joint_reports, build_report
from ragauge.reports.summary import summarise_overview
from ragauge.reports.systems_tables import describe_systems_tables, render_systems_tables
from ragauge.store_benchmarks import report as store_benchmarks_report
from ragauge.store_benchmarks import results_folder as store_benchmarks_results_folder

STORED_RESULT_OPTIONS = ("out", "form", "charts")
"""Options that apply to a stored result, which is written or printed without new computations."""


def report(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...",
            help="Folders that `run` wrote, or one that `bench` or `judge` wrote; JSON of "
            f"{', '.join(REPORT_BUILDERS)}; or judgments, then runs, as in evaluate; or tables of scores; or results "
            f"in the "
            "layout of another system.",
        ),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help=".html, .json, .csv, .md or .tex; again for more."),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help=f"Output format: {', '.join(OUTPUT_FORMATS)}.")
    ] = None,
    charts: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write every chart there, as SVG and as PNG.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("-b", "--baseline", help="Compare with this one.  [dim]default the run's[/dim]")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m", "--measure", help="A measure; the first decides; again for more.  [dim]default the run's[/dim]"
        ),
    ] = None,
    by: Annotated[list[str] | None, typer.Option(help="A tag to split queries by; again for more.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d", "--dataset", show_default="that of the runs", help="Dataset with the texts, by name or folder."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="What stands above it.")] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE.json",
            help=f"What one of {', '.join(REPORT_BUILDERS)} wrote, as sections of the page; again for more.",
        ),
    ] = None,
    audit: Annotated[bool, typer.Option("--audit/--no-audit", help="Audit the scores for suspicious causes.")] = True,
    confidence: Annotated[float, typer.Option(help="Of every interval; the tests' level is the rest.")] = 0.95,
    test: Annotated[str, typer.Option(help="As in compare.")] = "t",
    correction: Annotated[str, typer.Option(help="As in compare.")] = "holm",
    family: Annotated[str, typer.Option(help="As in compare.")] = "measure",
    common_queries: CommonQueries = False,
    count_missing: Annotated[
        bool, typer.Option("--count-missing", help="A query that a run lacks counts 0, as in evaluate.")
    ] = False,
    convention: Annotated[str | None, typer.Option("-C", "--convention", help="As in evaluate.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="One option of the convention.")
    ] = None,
    rel: MinRelevantGrade = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder.")] = None,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON's schema, and do nothing else.")] = False,
) -> None:
    """Write a report of results: page, tables, charts, JSON, CSV, LaTeX.

    [dim]ragauge report runs/pydocs -o report.html --charts charts[/dim]

    [dim]ragauge report runs/pydocs -o table.tex -o report.json[/dim]

    Without -o the verdict and the tables are printed.
    """
    if schema:
        allow_only_options(context, ["schema"], "--schema")
        console.write_data((packaged("ragauge.reports") / "report.schema.json").read_text(encoding="utf-8"), nl=False)
        return
    if not files:
        raise BadInput("nothing is given", hint="a folder that `ragauge run` wrote, or judgments and runs")
    if form is not None and out and len(out) > 1:
        raise BadInput(
            f"--format applies to one file, got {len(out)} files",
            hint="remove --format; the ending of each file decides, e.g. `-o report.html -o report.json`",
        )
    check_output_libraries(out or [], charts)
    targets = [] if out is None else [one for one in out if one != "-"]  # without a file, it is printed anyway
    if out and len(targets) < len(out) and form is None:
        raise BadInput("no format given for standard output", hint="add `--format json`, `--format csv` or another one")
    if len(files) == 1 and (kept := store_benchmarks_results_folder.find_benchmark_file(files[0])) is not None:
        allow_only_options(context, (*STORED_RESULT_OPTIONS, "convention"), "a benchmark that `bench` wrote")
        _report_benchmark(kept, targets, form, charts, convention)
        return
    if all(registry.is_result_file(one) for one in files):
        allow_only_options(context, STORED_RESULT_OPTIONS, f"results of {', '.join(REPORT_BUILDERS)}")
        folder = Path(files[0]).parent if len(files) == 1 and form == "tokenization" else None
        try:
            _report_stored_results(files, targets, form, charts)
            return
        except BadInput:
            if folder is None or not (folder / "judgments.parquet").exists():
                raise
            files = [str(folder)]  # the runs of the study can be scored again under the convention of the layout
    parts = expand_judged_folder(files[0]) if len(files) == 1 else files
    if len(parts) == 1 and judged_folders.is_judged_folder(parts[0]):
        allow_only_options(context, STORED_RESULT_OPTIONS, "a folder that `judge` wrote")
        _report_judged(parts[0], targets, form, charts)
        return
    options: dict[str, Any] = {
        "baseline": baseline, "measures": measure, "by": by or (), "dataset": dataset, "title": title,
        "beside": beside or (),
        "audited": audit, "confidence": confidence, "test": test, "correction": correction, "family": family,
        "common_queries": common_queries, "count_missing": count_missing, "split": split,
        "lower_is_better": lower_is_better, "higher_is_better": higher_is_better,
    }  # fmt: skip
    if convention is not None or settings or rel is not None:
        options["convention"] = parse_convention_options(convention or "default", settings or [], rel, None)
    if measure is None:
        del options["measures"]
    with show_status() as watch:
        found = make_report(files, targets, form=form, charts=charts, watch=watch, **options)
    if form is not None and not targets:
        console.write_data(OUTPUT_FORMATS[format_for_path("", form, OUTPUT_FORMATS)].write(found), nl=False)
    if targets or form is not None or charts is not None:
        console.print_notes([*_overview_notes(found), *_describe_written_files(targets, charts)])
    else:
        print_overview(found)


def print_overview(found: Overview) -> None:
    """Print the summary, the tables and notes on them."""
    from rich.text import Text

    shown, left = render_systems_tables(found, console.stdout_console().width)
    console.print_tables(
        Text(one_line(summarise_overview(found))), "", *[part for table in shown for part in (table, "")][:-1]
    )
    missing = [f"not shown, for want of room: {', '.join(left)}; --format markdown has them"] if left else []
    console.print_notes(
        [
            *describe_systems_tables(found),
            *missing,
            *_overview_notes(found),
            "next: the same command with -o report.html",
        ]
    )


def _overview_notes(found: Overview) -> list[str]:
    ties = describe_ties(entry.scores for entry in found.entries.values())
    return [*console.merge_notes(found.notes, found.entries), *ties]


def _report_benchmark(
    file: str, targets: list[str], form: str | None, charts: str | None, convention: str | None
) -> None:
    """Write or print a stored benchmark."""
    found = store_benchmarks_results_folder.read_benchmark(file)
    _check_not_source({Path(file).resolve()}, targets)
    benchmark_files.write_benchmark(found, targets, form, charts, convention=convention)
    kinds = benchmark_files.select_formats(convention, form)
    if form is not None and not targets:
        console.write_data(kinds[format_for_path("", form, kinds)].write(found), nl=False)
    elif not targets and charts is None:
        pieces, left = store_benchmarks_report.render_benchmark_tables(found, console.stdout_console().width)
        legends = store_benchmarks_report.list_legends(found, console.stdout_console().width)
        _print_stored_tables(
            pieces,
            left,
            [*legends, *store_benchmarks_report.list_benchmark_notes(found)],
            store_benchmarks_report.describe_failures(found),
        )
    console.print_notes(
        [*benchmark_files.describe_convention(found, form, convention), *_describe_written_files(targets, charts)]
    )


def _report_judged(folder: str, targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print stored verdicts."""
    found = results_folder.read_judged_folder(folder)
    _check_not_source({(Path(folder) / name).resolve() for name in results_folder.RESULT_FILES}, targets)
    results_folder.write_judged_files(found, targets, form, charts)
    if form is not None and not targets:
        console.write_data(
            results_folder.JUDGED_FORMATS[format_for_path("", form, results_folder.JUDGED_FORMATS)].write(found),
            nl=False,
        )
    elif not targets and charts is None:
        pieces, left = report_formats.render_judged_terminal(found, console.stdout_console().width)
        _print_stored_tables(pieces, left, report_formats.judged_notes(found))
    console.print_notes(_describe_written_files(targets, charts))


def _report_stored_results(files: list[str], targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print other stored results; several are combined in one report."""
    found = [told for one in files for told in registry.read_results(one)]
    _check_not_source({Path(one).resolve() for one in files}, targets)
    registry.write_results(found, targets, form, charts)
    if form is not None and not targets:
        console.write_data(
            registry.RESULT_FORMATS[format_for_path("", form, registry.RESULT_FORMATS)].write(found), nl=False
        )
    elif not targets and charts is None:
        for one in build_joint_reports(found) or map(build_report, found):
            pieces, left = output_report.render_terminal(one, console.stdout_console().width)
            _print_stored_tables(console.fold_sentences(pieces) if one.kind == "embedders" else pieces, left, one.notes)
    console.print_notes(_describe_written_files(targets, charts))


def _check_not_source(read: set[Path], targets: list[str]) -> None:
    for one in targets:
        if Path(one).resolve() in read:
            raise BadInput("this file is read", file=one, hint="give the output another name")


def _print_stored_tables(
    pieces: Sequence[Any], left: Sequence[str], notes: Sequence[str], last: Sequence[str] = ()
) -> None:
    """Print tables, notes, and the columns that do not fit."""
    console.print_tables(*pieces)
    missing = [f"not shown, for want of room: {', '.join(left)}; --format markdown has them"] if left else []
    console.print_notes([*notes, *missing, *last])


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
