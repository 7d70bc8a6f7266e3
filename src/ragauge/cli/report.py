"""`ragauge report RUN… -o report.html`: write a report with all tables and charts, in several formats."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as packaged
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.evaluate import rules_of
from ragauge.cli.option_checks import allow_only, check_outputs
from ragauge.cli.options import HigherIsBetter, LowerIsBetter, Rel
from ragauge.cli.progress import status
from ragauge.cli.tie_notes import describe_ties
from ragauge.comparison.results import Overview
from ragauge.comparison.scored_files import judged_parts
from ragauge.core.errors import BadInput
from ragauge.core.text import one_line
from ragauge.files import judged_folders
from ragauge.judging import report_formats, results_folder
from ragauge.output import report as output_report
from ragauge.output.formats import kind_of
from ragauge.reports import KINDS, benchmark_files, registry
from ragauge.reports import report as make_report
from ragauge.reports.registry import FORMS, account, joint
from ragauge.reports.summary import verdict
from ragauge.reports.systems_tables import about, tables
from ragauge.store_benchmarks import report as store_benchmarks_report
from ragauge.store_benchmarks import results_folder as store_benchmarks_results_folder

STORED = ("out", "form", "charts")
"""Options that apply to a stored result, which is written or printed without new computations."""


def report(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...",
            help="Folders that `run` wrote, or one that `bench` or `judge` wrote; JSON of "
            f"{', '.join(FORMS)}; or judgments, then runs, as in evaluate; or tables of scores; or results in the "
            "layout of another system.",
        ),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help=".html, .json, .csv, .md or .tex; again for more."),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--as", metavar="FORM", help=f"What is written: {', '.join(KINDS)}.")
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
    dataset: Annotated[str | None, typer.Option(help="Where the texts are, if not where the runs were made.")] = None,
    title: Annotated[str | None, typer.Option(help="What stands above it.")] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE.json",
            help=f"What one of {', '.join(FORMS)} wrote, as sections of the page; again for more.",
        ),
    ] = None,
    no_audit: Annotated[bool, typer.Option("--no-audit", help="Do not look for what is suspicious.")] = False,
    confidence: Annotated[float, typer.Option(help="Of every interval; the tests' level is the rest.")] = 0.95,
    test: Annotated[str, typer.Option(help="As in compare.")] = "t",
    correction: Annotated[str, typer.Option(help="As in compare.")] = "holm",
    family: Annotated[str, typer.Option(help="As in compare.")] = "measure",
    overlap: Annotated[bool, typer.Option("--overlap", help="Compare on the queries that all have.")] = False,
    count_missing: Annotated[
        bool, typer.Option("--count-missing", help="A query that a run lacks counts 0, as in evaluate.")
    ] = False,
    convention: Annotated[str | None, typer.Option("-C", "--convention", help="As in evaluate.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="One option of the convention.")
    ] = None,
    rel: Rel = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder.")] = None,
    lower_is_better: LowerIsBetter = None,
    higher_is_better: HigherIsBetter = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON's schema, and do nothing else.")] = False,
) -> None:
    """Show what came of it: the verdict, how sure, how fast, where it fails; as a page, tables, charts.

    [dim]ragauge report runs/pydocs -o report.html --charts charts[/dim]

    [dim]ragauge report runs/pydocs -o table.tex -o report.json[/dim]

    Without -o the verdict and the tables are printed.
    """
    if schema:
        allow_only(context, ["schema"], "--schema")
        console.write_data((packaged("ragauge.reports") / "report.schema.json").read_text(encoding="utf-8"), nl=False)
        return
    if not files:
        raise BadInput("nothing is given", hint="a folder that `ragauge run` wrote, or judgments and runs")
    if form is not None and out and len(out) > 1:
        raise BadInput("--as goes with one file", hint="endings tell what several are: -o report.html -o report.json")
    check_outputs(out or [], charts)
    targets = [] if out is None else [one for one in out if one != "-"]  # without a file, it is printed anyway
    if out and len(targets) < len(out) and form is None:
        raise BadInput("what is to be written to standard output is not clear", hint="--as json, --as csv, …")
    if len(files) == 1 and (kept := store_benchmarks_results_folder.found_in(files[0])) is not None:
        allow_only(context, (*STORED, "convention"), "a benchmark that `bench` wrote")
        _sweep(kept, targets, form, charts, convention)
        return
    if all(registry.is_told(one) for one in files):
        allow_only(context, STORED, f"results of {', '.join(FORMS)}")
        folder = Path(files[0]).parent if len(files) == 1 and form == "tokenization" else None
        try:
            _told(files, targets, form, charts)
            return
        except BadInput:
            if folder is None or not (folder / "judgments.parquet").exists():
                raise
            files = [str(folder)]  # the runs of the study can be scored again under the convention of the layout
    parts = judged_parts(files[0]) if len(files) == 1 else files
    if len(parts) == 1 and judged_folders.is_judged(parts[0]):
        allow_only(context, STORED, "a folder that `judge` wrote")
        _judged(parts[0], targets, form, charts)
        return
    options: dict[str, Any] = {
        "baseline": baseline, "measures": measure, "by": by or (), "dataset": dataset, "title": title,
        "beside": beside or (),
        "audited": not no_audit, "confidence": confidence, "test": test, "correction": correction, "family": family,
        "overlap": overlap, "count_missing": count_missing, "split": split,
        "lower_is_better": lower_is_better, "higher_is_better": higher_is_better,
    }  # fmt: skip
    if convention is not None or settings or rel is not None:
        options["convention"] = rules_of(convention or "default", settings or [], rel, None)
    if measure is None:
        del options["measures"]
    with status() as watch:
        found = make_report(files, targets, form=form, charts=charts, watch=watch, **options)
    if form is not None and not targets:
        console.write_data(KINDS[kind_of("", form, KINDS)].write(found), nl=False)
    if targets or form is not None or charts is not None:
        console.talk([*_notes(found), *_wrote(targets, charts)])
    else:
        show(found)


def show(found: Overview) -> None:
    """Print the summary, the tables and notes on them."""
    from rich.text import Text

    shown, left = tables(found, console.data().width)
    console.show(Text(one_line(verdict(found))), "", *[part for table in shown for part in (table, "")][:-1])
    missing = [f"not shown, for want of room: {', '.join(left)}; --as markdown has them"] if left else []
    console.talk([*about(found), *missing, *_notes(found), "next: the same command with -o report.html"])


def _notes(found: Overview) -> list[str]:
    ties = describe_ties(entry.scores for entry in found.entries.values())
    return [*console.merge_notes(found.notes, found.entries), *ties]


def _sweep(file: str, targets: list[str], form: str | None, charts: str | None, convention: str | None) -> None:
    """Write or print a stored benchmark."""
    found = store_benchmarks_results_folder.read_sweep(file)
    _refuse_source({Path(file).resolve()}, targets)
    benchmark_files.write(found, targets, form, charts, convention=convention)
    kinds = benchmark_files.kinds_for(convention, form)
    if form is not None and not targets:
        console.write_data(kinds[kind_of("", form, kinds)].write(found), nl=False)
    elif not targets and charts is None:
        pieces, left = store_benchmarks_report.tables(found, console.data().width)
        legends = store_benchmarks_report.legends(found, console.data().width)
        _shown(pieces, left, [*legends, *store_benchmarks_report.notes(found)], store_benchmarks_report.broken(found))
    console.talk([*benchmark_files.describe_convention(found, form, convention), *_wrote(targets, charts)])


def _judged(folder: str, targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print stored verdicts."""
    found = results_folder.read_judged(folder)
    _refuse_source({(Path(folder) / name).resolve() for name in results_folder.EVIDENCE}, targets)
    results_folder.write(found, targets, form, charts)
    if form is not None and not targets:
        console.write_data(results_folder.KINDS[kind_of("", form, results_folder.KINDS)].write(found), nl=False)
    elif not targets and charts is None:
        pieces, left = report_formats.tables(found, console.data().width)
        _shown(pieces, left, report_formats.notes(found))
    console.talk(_wrote(targets, charts))


def _told(files: list[str], targets: list[str], form: str | None, charts: str | None) -> None:
    """Write or print other stored results; several are combined in one report."""
    found = [told for one in files for told in registry.read(one)]
    _refuse_source({Path(one).resolve() for one in files}, targets)
    registry.write(found, targets, form, charts)
    if form is not None and not targets:
        console.write_data(registry.KINDS[kind_of("", form, registry.KINDS)].write(found), nl=False)
    elif not targets and charts is None:
        for one in joint(found) or map(account, found):
            pieces, left = output_report.tables(one, console.data().width)
            _shown(console.folded(pieces) if one.kind == "embedders" else pieces, left, one.notes)
    console.talk(_wrote(targets, charts))


def _refuse_source(read: set[Path], targets: list[str]) -> None:
    for one in targets:
        if Path(one).resolve() in read:
            raise BadInput("this file is read", file=one, hint="give the output another name")


def _shown(pieces: Sequence[Any], left: Sequence[str], notes: Sequence[str], last: Sequence[str] = ()) -> None:
    """Print tables, notes, and the columns that do not fit."""
    console.show(*pieces)
    missing = [f"not shown, for want of room: {', '.join(left)}; --as markdown has them"] if left else []
    console.talk([*notes, *missing, *last])


def _wrote(files: list[str], charts: str | None) -> list[str]:
    lines = [f"wrote {file} ({_size(Path(file).stat().st_size)})" for file in files if file != "-"]
    return lines + ([] if charts is None else [f"wrote the charts to {charts}"])


def _size(number: int) -> str:
    """Format a file size.

    >>> _size(900), _size(5_300), _size(1_690_000)
    ('900 bytes', '5 kB', '1.7 MB')
    """
    if number < 1000:
        return f"{number} bytes"
    return f"{number / 1e3:.0f} kB" if number < 1e6 else f"{number / 1e6:.1f} MB"
