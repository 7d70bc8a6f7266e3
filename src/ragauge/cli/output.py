"""Output of results: print them as tables or data, and write files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragauge.cli import console
from ragauge.cli.option_checks import check_output_libraries
from ragauge.cli.progress import show_status
from ragauge.core.errors import BadInput
from ragauge.files.workspace import check_writable
from ragauge.output.formats import format_for_path
from ragauge.reports.registry import ReportableResult

TablePrinter = Callable[[], Sequence[str]]
"""Function that prints tables, and returns the titles of the columns that do not fit."""


def check_outputs(
    files: Sequence[str],
    *,
    as_json: bool,
    as_csv: bool,
    form: str | None = None,
    noun: type[ReportableResult] | None = None,
) -> None:
    """Check that the requested outputs can be written, before any work.

    `noun` is the type of the result.
    """
    from ragauge.reports.registry import RESULT_FORMATS, check_format_applies

    console.check_exclusive({"--json": as_json, "--csv": as_csv, "--format": form is not None and not files})
    if form is not None and len(files) > 1:
        raise BadInput(
            f"--format applies to one file, got {len(files)} files",
            hint="write one .json file; `ragauge report` converts it to other formats",
        )
    check_output_libraries(files, None)
    for file in files or ([""] if form is not None else []):
        kind = format_for_path(file, form, RESULT_FORMATS)
        if noun is not None:
            check_format_applies(kind, noun)
        if file:
            check_writable(file)


def print_unread_notes(*corpora: str | None) -> None:
    """Print notes on files of folders that were not read as documents."""
    from ragauge.runs.inputs import describe_unread_files

    console.print_notes(note for corpus in corpora for note in describe_unread_files(corpus))


def write_result(
    told: Sequence[ReportableResult],
    files: Sequence[str],
    *,
    as_json: bool,
    as_csv: bool,
    show: TablePrinter | None = None,
    form: str | None = None,
    folded: bool = False,
) -> None:
    """Print a result as data or tables, print notes, and write files.

    `show` prints the tables if a command has its own layout. With a form and no file, that form is printed. `folded`
    wraps long sentences in a pipe.
    """
    from ragauge.output import report
    from ragauge.reports import registry
    from ragauge.reports.registry import build_reports

    one = build_reports(told)[0]
    left: Sequence[str] = []
    if as_json:
        console.write_data(registry.results_to_json(told), nl=False)
    elif as_csv:
        console.write_data(registry.results_to_csv(told), nl=False)
    elif form is not None and not files:
        console.write_data(registry.RESULT_FORMATS[form].write(told), nl=False)
    elif show is not None:
        left = show()
    else:
        pieces, left = report.render_terminal(one, console.stdout_console().width)
        console.print_tables(*(console.fold_sentences(pieces[:-1]) if folded else pieces[:-1]))
    with show_status(after=0.5) as watch:
        watch("writing")
        registry.write_results(told, files, form)
    missing = [f"not shown, for want of room: {', '.join(left)}; -o report.html has everything"] if left else []
    console.print_notes([*one.notes, *missing, *(f"wrote {file}" for file in files)])
