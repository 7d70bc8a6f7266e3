"""Output of data and notes, and parsing of option values shared by several commands."""

from __future__ import annotations

import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ragauge.core.errors import BadInput, InputWarning
from ragauge.core.secrets import redact
from ragauge.core.structured_text import parse_json
from ragauge.core.text import one_line, replace_control_characters
from ragauge.output.sparklines import encode_sparklines

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


ClusterAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        show_default=False,
        help="Dask cluster: tcp://HOST:8786, or local:N for N processes on this machine.",
    ),
]


MAX_NOTES = 3
"""Maximum number of notes printed under a table; files contain all of them."""
VERBOSE_OPTION = "--verbose"
_global_options: set[str] = set()
PIPE_WIDTH_CHARS = 80
"""Width of sentences if standard output is not a terminal."""


def stdout_console() -> Console:
    """Return a console on standard output.

    It has the width of the terminal; in a pipe, tables are not wrapped.
    """
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 1000, highlight=False, markup=False, emoji=False)


def print_tables(*tables: RenderableType) -> None:
    """Print tables; in a pipe, lines have no trailing blanks."""
    console = stdout_console()
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    text = encode_sparklines(captured.get(), sys.stdout.encoding)
    sys.stdout.write(text if sys.stdout.isatty() else "".join(line.rstrip() + "\n" for line in text.splitlines()))


def constrain_width(pieces: Sequence[RenderableType]) -> list[RenderableType]:
    """Constrain everything to PIPE_WIDTH_CHARS if the output is a pipe."""
    from rich.constrain import Constrain

    return list(pieces) if sys.stdout.isatty() else [Constrain(piece, PIPE_WIDTH_CHARS) for piece in pieces]


def fold_sentences(pieces: Sequence[RenderableType]) -> list[RenderableType]:
    """Constrain sentences and tables without a header to PIPE_WIDTH_CHARS in a pipe; other tables keep their width."""
    from rich.table import Table
    from rich.text import Text

    def is_text(piece: RenderableType) -> bool:
        return isinstance(piece, Text) or (isinstance(piece, Table) and not piece.show_header)

    return [constrain_width([piece])[0] if is_text(piece) else piece for piece in pieces]


def print_notes(lines: Iterable[str]) -> None:
    """Print notes on standard error, with credentials redacted."""
    for line in lines:
        text = f"note: {one_line(redact(line))}"
        if sys.stderr.isatty():  # a terminal would break lines inside words
            width = shutil.get_terminal_size().columns
            text = textwrap.fill(
                text, width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
            )
        sys.stderr.write(f"{text}\n")


def limit_notes(notes: Iterable[str]) -> list[str]:
    """Keep at most MAX_NOTES notes on a table, unless `--verbose` is given; then say how many more there are.

    >>> limit_notes(["a", "b", "c", "d", "e"])
    ['a', 'b', 'c', '2 more notes: add --verbose']
    """
    all_notes = list(notes)
    more = len(all_notes) - MAX_NOTES
    if more <= 0 or VERBOSE_OPTION in _global_options:
        return all_notes
    return [*all_notes[:MAX_NOTES], f"{more} more {'note' if more == 1 else 'notes'}: add {VERBOSE_OPTION}"]


def set_global_options(options: Iterable[str]) -> None:
    """Set the options that apply to every command, such as `--verbose`."""
    _global_options.clear()
    _global_options.update(options)


def write_data(text: str = "", *, nl: bool = True) -> None:
    """Write data to standard output.

    On a terminal, control characters are replaced, since they could change its state.
    """
    if sys.stdout.isatty():
        text = replace_control_characters(text)
    sys.stdout.write(f"{text}\n" if nl else text)


def print_warnings_as_notes() -> None:
    """Print warnings about inputs as notes instead of Python warnings."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *location: Any, **more: Any) -> None:
        if issubclass(category, InputWarning):
            print_notes([str(message)])
        else:
            usual(message, category, *location, **more)

    warnings.showwarning = show


def check_exclusive(given: Mapping[str, bool]) -> None:
    """Raise BadInput if more than one flag is set: `{"--json": True, "--csv": False}`."""
    chosen = [flag for flag, on in given.items() if on]
    if len(chosen) > 1:
        raise BadInput(f"{' and '.join(chosen)} are mutually exclusive", hint=f"use one of {', '.join(given)}")


def parse_name_values(texts: Iterable[str]) -> dict[str, Any] | None:
    """Parse `--chat-option NAME=VALUE` options; JSON values such as numbers are converted.

    None if there are none.

    >>> parse_name_values(["temperature=0", "effort=low"])
    {'temperature': 0, 'effort': 'low'}
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"--chat-option must be NAME=VALUE, got `{text}`", hint="use `--chat-option temperature=0`")
        try:
            values[name.strip()] = parse_json(value)
        except ValueError:
            values[name.strip()] = value
    return values or None


def parse_price(text: str) -> dict[str, tuple[float, ...]]:
    """Parse `--token-price IN,OUT` into prices that apply to any model."""
    try:
        parts = tuple(float(part) for part in text.split(","))
    except ValueError:
        parts = ()
    if len(parts) not in (2, 3):
        raise BadInput(
            f"--token-price must be IN,OUT in US dollars per million tokens, got `{text}`",
            hint="use `--token-price 0.15,0.6`",
        )
    return {"*": parts}
