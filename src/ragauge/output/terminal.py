"""Tables for terminals, and scores as a table, JSON and CSV."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from ragauge.core.csv_cells import neutralise_cell
from ragauge.core.records import Scores
from ragauge.core.text import one_line
from ragauge.output.tables import TextTable

SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKLINE_MARKS = "_.-:=+*#"
"""Marks from lowest to highest for outputs that cannot show blocks."""


def sparkline(
    values: Sequence[float | None],
    low: float | None = None,
    high: float | None = None,
    *,
    marks: str = SPARKLINE_BLOCKS,
) -> str:
    """Render values as one mark each, scaled between `low` and `high`.

    None and NaN are a blank. The default range is that of the values.

    >>> (sparkline([0, 1, 2, 3, None, 7]), sparkline([2, 2]), sparkline([0.5], 0, 1), sparkline([0, 7],
    ...  marks=ASCII_SPARKLINE_MARKS))
    ('▁▂▃▄ █', '▄▄', '▅', '_#')
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    bottom = min(known, default=0.0) if low is None else low
    top = max(known, default=0.0) if high is None else high
    return "".join(
        " " if value is None or math.isnan(value) else _choose_mark(value, bottom, top, marks) for value in values
    )


def _choose_mark(value: float, bottom: float, top: float, marks: str) -> str:
    """Choose the mark of a value, clipped to the range.

    If the range is empty, it is the middle mark.
    """
    whole = top / 2 - bottom / 2  # halves, so that the widest range does not overflow
    if not whole > 0:
        return marks[(len(marks) - 1) // 2]
    place = len(marks) * min(1.0, max(0.0, (value / 2 - bottom / 2) / whole))
    return marks[min(len(marks) - 1, int(place))]


def sparkline_characters(encoding: str | None) -> str:
    """Return the marks that an output of this encoding can show.

    >>> (sparkline_characters("utf-8") == SPARKLINE_BLOCKS, sparkline_characters("ascii"),
    ...  sparkline_characters(None) == ASCII_SPARKLINE_MARKS)
    (True, '_.-:=+*#', True)
    """
    try:
        SPARKLINE_BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SPARKLINE_MARKS
    return SPARKLINE_BLOCKS


def downsample(values: Sequence[float], width: int) -> list[float]:
    """Reduce values to at most `width` means of consecutive values.

    >>> downsample([1, 2, 3, 4, 5, 6], 3), downsample([1, 2], 3)
    ([1.5, 3.5, 5.5], [1, 2])
    """
    if len(values) <= width:
        return list(values)
    ends = [round(i * len(values) / width) for i in range(width + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(ends)]


def best_mean(values: Sequence[float], *, lower: bool) -> float:
    """Return the best of several means; NaN values are ignored.

    >>> best_mean([0.2, math.nan, 0.1], lower=True), best_mean([0.2, 0.1], lower=False)
    (0.1, 0.2)
    """
    known = [value for value in values if not math.isnan(value)]
    return math.nan if not known else min(known) if lower else max(known)


def borderless_table(headers: Sequence[str], *, numbers: bool = True) -> Table:
    """Build an empty table without borders.

    The first column is for names. With `numbers`, the others are right-aligned.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headers))
    for i, header in enumerate(headers):
        table.add_column(
            terminal_cell(header), justify="right" if i and numbers else "left", no_wrap=i == 0, overflow="fold"
        )
    return table


def format_direction(scores: Scores, measure: str) -> str:
    """Format the direction of a measure as in a column `lower_is_better`.

    Return an empty string if it is not stated.
    """
    lower = scores.is_lower_better(measure)
    return "" if lower is None else str(lower).lower()


def render_csv_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render rows as CSV with quotes if necessary.

    A cell that a spreadsheet would run as a formula gets an apostrophe.

    >>> render_csv_rows(["query", "text"], [["1", "a, b"]]).splitlines()
    ['query,text', '1,"a, b"']
    """

    def field(text: str) -> str:
        text = neutralise_cell(text)
        quoted = any(mark in text for mark in ',"\r\n')
        return '"' + text.replace('"', '""') + '"' if quoted else text

    return "".join(",".join(map(field, row)) + "\n" for row in (header, *rows))


def format_share(share: float) -> str:
    """Format a share as a percentage with three significant digits.

    100% and 0% are shown only if exact.

    >>> format_share(0.0100025), format_share(0.5), format_share(0.99999), format_share(1.0), format_share(0.00012345)
    ('1%', '50%', '>99.9%', '100%', '0.0123%')
    """
    if math.isnan(share):
        return "-"
    return ">99.9%" if 0.9995 <= share < 1 else f"{100 * share:.3g}%"


def fit_columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, goes: Sequence[int]) -> list[int]:
    """Return the columns that fit the width; those in `goes` are dropped one by one."""
    wide = {i: max(len(title), *(len(row[i]) for row in rows)) + 2 for i, title in enumerate(header)}
    for column in goes:
        if sum(wide.values()) - 2 <= width:
            break
        wide.pop(column, None)
    return list(wide)


def terminal_cell(text: str, style: str = "") -> Text:
    """Build a one-line cell of a terminal table, without control characters."""
    return Text(one_line(text) if not text.isprintable() else text, style=style)


def shorten_names(header: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int], width: int) -> list[str]:
    """Shorten the names of the first column so that the other columns fit.

    They are cut in the middle.
    """
    others = sum(max(len(header[i]), *(len(row[i]) for row in rows)) + 2 for i in kept if i)
    room = max(12, width - others)
    return [
        name if len(name) <= room else f"{name[: (room - 1) // 2]}…{name[-((room - 2) // 2) :]}"
        for name in (row[0] for row in rows)
    ]


def render_table(part: TextTable, width: int) -> tuple[Table, list[str]]:
    """Render a table for a terminal width; also return the columns that did not fit."""
    kept = fit_columns(part.header, part.rows, width, part.goes)
    table = borderless_table([part.header[i] for i in kept], numbers=part.numbers)
    names = shorten_names(part.header, part.rows, kept, width) if part.numbers else [row[0] for row in part.rows]
    if not part.numbers:
        for column in table.columns:
            column.no_wrap = False
    for name, row in zip(names, part.rows, strict=True):
        table.add_row(terminal_cell(name), *(terminal_cell(row[i]) for i in kept if i))
    return table, [name for i, name in enumerate(part.header) if i not in kept]
