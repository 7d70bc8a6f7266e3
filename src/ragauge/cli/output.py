"""Output of results: print them as tables or data, and write files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragauge.cli import console
from ragauge.cli.option_checks import check_outputs
from ragauge.cli.progress import status
from ragauge.core.errors import BadInput
from ragauge.files.workspace import refuse_unwritable
from ragauge.output.formats import kind_of
from ragauge.reports.registry import Told

Show = Callable[[], Sequence[str]]
"""Function that prints tables, and returns the titles of the columns that do not fit."""


def writable(
    files: Sequence[str], *, as_json: bool, as_csv: bool, form: str | None = None, noun: type[Told] | None = None
) -> None:
    """Check that the requested outputs can be written, before any work.

    `noun` is the type of the result.
    """
    from ragauge.reports.registry import KINDS, refuse_form

    console.only_one({"--json": as_json, "--csv": as_csv, "--as": form is not None and not files})
    if form is not None and len(files) > 1:
        raise BadInput("--as goes with one file", hint="`ragauge report` makes other files of a .json afterwards")
    check_outputs(files, None)
    for file in files or ([""] if form is not None else []):
        kind = kind_of(file, form, KINDS)
        if noun is not None:
            refuse_form(kind, noun)
        if file:
            refuse_unwritable(file)


def talk_unread(*corpora: str | None) -> None:
    """Print notes on files of folders that were not read as documents."""
    from ragauge.runs.inputs import describe_unread

    console.talk(note for corpus in corpora for note in describe_unread(corpus))


def tell(
    told: Sequence[Told],
    files: Sequence[str],
    *,
    as_json: bool,
    as_csv: bool,
    show: Show | None = None,
    form: str | None = None,
    folded: bool = False,
) -> None:
    """Print a result as data or tables, print notes, and write files.

    `show` prints the tables if a command has its own layout. With a form and no file, that form is printed. `folded`
    wraps long sentences in a pipe.
    """
    from ragauge.output import report
    from ragauge.reports import registry
    from ragauge.reports.registry import accounts_of

    one = accounts_of(told)[0]
    left: Sequence[str] = []
    if as_json:
        console.write_data(registry.as_json(told), nl=False)
    elif as_csv:
        console.write_data(registry.as_csv(told), nl=False)
    elif form is not None and not files:
        console.write_data(registry.KINDS[form].write(told), nl=False)
    elif show is not None:
        left = show()
    else:
        pieces, left = report.tables(one, console.data().width)
        console.show(*(console.folded(pieces[:-1]) if folded else pieces[:-1]))
    with status(after=0.5) as watch:
        watch("writing")
        registry.write(told, files, form)
    missing = [f"not shown, for want of room: {', '.join(left)}; -o report.html has everything"] if left else []
    console.talk([*one.notes, *missing, *(f"wrote {file}" for file in files)])
