"""Output of results: print them as tables or data, and write files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.cli import console
from ragauge.cli.option_checks import check_output_libraries
from ragauge.cli.progress import show_progress
from ragauge.compute.progress import Progress
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.files.serialization import to_json
from ragauge.files.workspace import atomic_write, check_writable
from ragauge.output.csv import render_csv
from ragauge.output.formats import format_for_path, unknown_ending
from ragauge.output.numbers import join_with_and
from ragauge.output.report import Report
from ragauge.output.tables import Table

STDOUT = "-"
"""Path of `-o` that means standard output."""
TABLE_ENDINGS = (".json", ".csv")
"""Endings of the files that a command with a table, but without a report, writes."""
REPORT_ENDINGS = (".html", ".md", ".tex")
"""Endings of the files with a report."""


def check_outputs(
    result_type: type[Result],
    files: Sequence[str],
    *,
    as_json: bool,
    as_csv: bool,
    format_name: str | None = None,
    charts: str | None = None,
    has_folder: bool = False,
) -> None:
    """Check that results of this type can be written as requested, before any work.

    `has_folder` says that the command also has a working folder, which is not in `files`.
    """
    from ragauge.reports.registry import find_formats

    formats = find_formats(result_type)
    written = [file for file in files if file != STDOUT]
    is_printed = format_name is not None and not written
    console.check_exclusive({"--json": as_json, "--csv": as_csv, "--format": is_printed})
    if STDOUT in files and not (as_json or as_csv or format_name is not None):
        raise BadInput("no format given for standard output", hint="add `--json`, `--csv` or `--format markdown`")
    if format_name is not None and len(written) > 1:
        raise BadInput(
            f"--format applies to one file, got {len(written)} files",
            hint="remove --format; the ending of each file is its format",
        )
    check_output_libraries(written, charts)
    if charts is not None:
        check_writable(charts, folder=True)
    if is_printed:
        format_for_path("", format_name, formats)
    endings = {".htm", *(kind.ending for kind in formats.values())}
    for file in written:
        if Path(file).is_dir() and Path(file).suffix.lower() in endings:
            raise BadInput("a folder with this name exists", file=file, hint="use the name of a file")
        if format_name is None and (is_folder_path(file) or Path(file).suffix.lower() not in endings):
            raise unknown_ending(file, (kind.ending for kind in formats.values()), folder=has_folder)
        format_for_path(file, format_name, formats)
        check_writable(file)


class OutputPaths(NamedTuple):
    """Paths of `-o`: files, whose endings are their formats, and the working folder of the command."""

    files: list[str]
    folder: str | None


def split_outputs(paths: Sequence[str] | None) -> OutputPaths:
    """Separate the working folder of a command from the files to write.

    A folder is a path without an ending, with a trailing slash, or of an existing folder. There is at most one.

    >>> split_outputs(["study", "study.html"])
    OutputPaths(files=['study.html'], folder='study')
    """
    folders = [path for path in paths or () if path != STDOUT and is_folder_path(path)]
    if len(folders) > 1:
        raise BadInput(f"-o accepts one folder, got {join_with_and(folders)}", hint="remove one of them")
    return OutputPaths([path for path in paths or () if path not in folders], next(iter(folders), None))


def is_folder_path(path: str) -> bool:
    """Return whether a path means a folder: no ending, a trailing slash, or an existing folder."""
    return path.endswith(("/", os.sep)) or not Path(path).suffix or Path(path).is_dir()


def print_unread_notes(*corpora: str | None) -> None:
    """Print notes on files of folders that were not read as documents."""
    from ragauge.runs.texts import describe_unread_files

    console.print_notes(note for corpus in corpora for note in describe_unread_files(corpus))


def write_result(
    results: Sequence[Result],
    files: Sequence[str],
    *,
    as_json: bool,
    as_csv: bool,
    format_name: str | None = None,
    charts: str | None = None,
    report: Report | None = None,
) -> None:
    """Print results as tables or data, print notes, and write files.

    `charts` is a folder for all charts. `report` is what a terminal shows, if not the first report of the results.
    With a format and no file, the format is printed.
    """
    from ragauge.reports.registry import build_reports, find_formats, write_results

    formats = find_formats(type(results[0]))
    files = [file for file in files if file != STDOUT]
    report = report or build_reports(results)[0]
    dropped: list[str] = []
    printed = "json" if as_json else "csv" if as_csv else format_name if not files else None
    if printed is not None:
        console.write_data(formats[printed].write(results), nl=False)
    else:
        dropped = print_report(report)
    with show_progress() as progress:
        progress(Progress("writing"))
        write_results(results, files, format_name, charts)
    missing = describe_omitted(dropped, "-o report.html")
    chart_notes = [f"wrote the charts to {charts}"] if charts is not None else []
    console.print_notes(
        [*console.limit_notes(report.notes), *missing, *(f"wrote {file}" for file in files), *chart_notes]
    )


def print_report(report: Report) -> list[str]:
    """Print a report; return the titles of columns that do not fit."""
    from ragauge.output.terminal import render_report

    pieces, dropped = render_report(report, console.stdout_console().width)
    console.print_tables(*console.fold_sentences(pieces))
    return dropped


def check_table_outputs(files: Sequence[str], *, as_json: bool, as_csv: bool, has_report: bool = False) -> None:
    """Check that a table can be printed and written as requested, before any work."""
    console.check_exclusive({"--json": as_json, "--csv": as_csv})
    if STDOUT in files and not (as_json or as_csv):
        raise BadInput("no format given for standard output", hint="add `--json` or `--csv`")
    for file in files:
        if file != STDOUT:
            endings = (*TABLE_ENDINGS, *REPORT_ENDINGS) if has_report else TABLE_ENDINGS
            if is_folder_path(file) or Path(file).suffix.lower() not in endings:
                raise unknown_ending(file, endings)
            check_writable(file)


def write_table_files(table: Table, files: Sequence[str], *, data: Any = None, report: Report | None = None) -> None:
    """Write a table to JSON and CSV files, and print their names; `data` is written as JSON instead of the rows.

    Files with other endings contain the report.
    """
    written = [file for file in files if file != STDOUT]
    for path in written:
        ending = Path(path).suffix.lower()
        if report is not None and ending in REPORT_ENDINGS:
            text = _render_report(report, ending)
        else:
            text = _table_json(table, data) if ending == ".json" else render_csv(table)
        with atomic_write(path) as file:
            file.write(text.encode())
    console.print_notes(f"wrote {path}" for path in written)


def _render_report(report: Report, ending: str) -> str:
    from ragauge.output.latex import render_latex
    from ragauge.output.markdown import render_markdown
    from ragauge.output.page import render_page

    if ending == ".html":
        return render_page([report])
    return (render_markdown if ending == ".md" else render_latex)([report])


def _table_json(table: Table, data: Any) -> str:
    columns = [column.key or column.title for column in table.columns]
    rows = [{name: cell.value for name, cell in zip(columns, row, strict=True)} for row in table.cells()]
    return to_json(rows if data is None else data)


def write_table(table: Table, *, as_json: bool, as_csv: bool, data: Any = None) -> None:
    """Print a table, or its rows as JSON objects or CSV.

    `data` is written as JSON instead of the rows, for a command whose JSON has more than its table.
    """
    if as_json:
        console.write_data(_table_json(table, data), nl=False)
    elif as_csv:
        console.write_data(render_csv(table), nl=False)
    else:
        dropped = print_table(table)
        console.print_notes(describe_omitted(dropped, "--json"))


def describe_omitted(columns: Sequence[str], alternative: str) -> list[str]:
    """Describe which columns of a table do not fit the terminal, and which output has them; empty if all fit."""
    return [f"columns omitted: {', '.join(columns)} (terminal too narrow); see {alternative}"] if columns else []


def print_table(table: Table) -> list[str]:
    """Print a table; return the titles of columns that do not fit."""
    from ragauge.output.terminal import render_table

    rendered, dropped = render_table(table, console.stdout_console().width)
    console.print_tables(rendered)
    return dropped
