"""Tables of a report: typed cells that every renderer formats in its own way, and the choice of columns that fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ragauge.core.findings import Finding, FindingTable
from ragauge.core.summaries import Estimate
from ragauge.core.text import one_line
from ragauge.output.numbers import MISSING, NUMBER_STYLES, format_interval, format_number

if TYPE_CHECKING:
    import polars as pl

Value = str | float | bool | Estimate | None
"""A number stays a number until a renderer formats it."""
TEXT_STYLES = frozenset({"text", "name"})
"""Styles that are left-aligned: texts, which are wrapped, and names, which are shortened in the middle."""
DOUBT_MARK = "?"
"""Mark of an unreliable time."""
SUPERSCRIPTS = dict(zip("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ", strict=True))
COLUMN_GAP_CHARS = 2
MIN_NAME_CHARS = 12
MAX_NAME_CHARS = 32
"""Maximum length of the texts of a first column that are not wrapped."""


class Cell(NamedTuple):
    """A value with its marks."""

    value: Value
    style: str = ""
    """Style of this cell; empty for that of its column."""
    best: bool = False
    significant: bool | None = None
    """Whether a difference is statistically significant; None if it was not tested."""
    stars: str = ""
    """Marks of significance, such as `**` or `ns`."""
    detail: str = ""
    """Further text: below the value on a page, after it elsewhere."""
    tooltip: str = ""
    link: str = ""
    mark: str = ""
    """Mark after the value, such as `DOUBT_MARK`."""
    text: str = ""
    """Text that is shown instead of the formatted value."""
    tone: Literal["", "good", "bad"] = ""
    """Whether the cell reports a success or a failure; a failure is emphasised."""
    second_best: bool = False
    letters: Sequence[str] = ()
    """Letters of the rows that this value is significantly better than; they are raised."""

    @property
    def is_strong(self) -> bool:
        """Whether the cell is emphasised."""
        return self.best or bool(self.significant) or self.tone == "bad"

    @property
    def raised_letters(self) -> str:
        """Letters as superscripts; in parentheses if there is no superscript for one.

        >>> Cell(0.5, letters=["a", "b"]).raised_letters, Cell(0.5, letters=["1", "12"]).raised_letters
        ('ᵃᵇ', ' (1 12)')
        """
        if all(letter in SUPERSCRIPTS for letter in self.letters):
            return "".join(SUPERSCRIPTS[letter] for letter in self.letters)
        return f" ({' '.join(self.letters)})"


class Column(NamedTuple):
    """A column: its title, and how its values are written and ranked."""

    title: str
    style: str = "text"
    """`text`, `name`, or one of `NUMBER_STYLES`."""
    better: Literal[-1, 0, 1] = 0
    """1 if higher values are better, -1 if lower ones are; `Table.mark_best` uses it."""
    drop_order: int = 0
    """A narrow terminal drops the column with 1 first, and never one with 0."""
    legend: str = ""
    """Explanation of the column, shown below the table on a page."""
    key: str = ""
    """Name of the column in CSV; empty for its title."""

    @property
    def is_text(self) -> bool:
        """Whether the column holds texts, not numbers."""
        return self.style in TEXT_STYLES


Row = Sequence[Value | Cell]


@dataclass(frozen=True)
class Table:
    """A table of a report."""

    id: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    group_by: int | None = None
    """Index of a column whose equal neighbours are shown once."""
    collapsed: bool = False
    """Whether it is closed at first on a page and in Markdown; terminals leave it out."""
    note: str = ""
    """Explanation of the values and their marks, below the table on a page and in Markdown, in the caption in LaTeX."""

    def cells(self) -> list[list[Cell]]:
        """Return all cells as `Cell`."""
        return [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in self.rows]

    def texts(self) -> list[list[str]]:
        """Return the text of every cell, with details and stars."""
        return [
            [format_cell(cell, column) for cell, column in zip(row, self.columns, strict=True)] for row in self.cells()
        ]

    def aligned_texts(self) -> list[list[str]]:
        """Return the text of every cell, in columns of numbers padded on both sides so that the numbers are aligned."""
        rows = self.cells()
        columns = [
            _column_texts([row[i] for row in rows], column) if rows else [] for i, column in enumerate(self.columns)
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    def mark_best(self) -> Table:
        """Mark the best values of each column that has a direction: all equal best ones, none if all are equal.

        With more than two rows, the second best ones are marked as such.
        """
        rows = self.cells()
        for i, column in enumerate(self.columns):
            if not column.better or len(rows) < 2:
                continue
            values = [column.better * _number(row[i].value) for row in rows]
            known_values = [value for value in values if not math.isnan(value)]
            if not known_values or (len(known_values) == len(values) and min(known_values) == max(known_values)):
                continue
            best, *lower_values = sorted(set(known_values), reverse=True)
            second = lower_values[0] if lower_values and len(rows) > 2 else None
            for row, value in zip(rows, values, strict=True):
                row[i] = row[i]._replace(best=value == best, second_best=value == second)
        return replace(self, rows=rows)

    @property
    def width(self) -> int:
        """Width in characters on a terminal, if nothing is wrapped."""
        return sum(self._column_widths().values()) - COLUMN_GAP_CHARS

    def _column_widths(self) -> dict[int, int]:
        """Return the width of each column with its gap."""
        texts = self.aligned_texts()
        return {
            i: max(len(column.title), *(len(row[i]) for row in texts), 0) + COLUMN_GAP_CHARS
            for i, column in enumerate(self.columns)
        }

    def fit(self, width: int) -> tuple[Table, list[str]]:
        """Drop columns until the table fits a width in characters; also return the titles of the dropped columns."""
        widths = self._column_widths()
        order = sorted((i for i in widths if self.columns[i].drop_order), key=lambda i: self.columns[i].drop_order)
        for i in order:
            if sum(widths.values()) - COLUMN_GAP_CHARS <= width:
                break
            del widths[i]
        dropped = [column.title for i, column in enumerate(self.columns) if i not in widths]
        if not dropped:
            return self, []
        indices = list(widths)
        group_by = indices.index(self.group_by) if self.group_by in widths else None
        columns, rows = [self.columns[i] for i in indices], [[row[i] for i in indices] for row in self.rows]
        return replace(self, columns=columns, rows=rows, group_by=group_by), dropped

    def transpose(self) -> Table:
        """Return the table with a row per column; the first column becomes the header."""
        names = [format_cell(row[0], self.columns[0]) for row in self.cells()]
        columns = [Column(self.columns[0].title, "name"), *(Column(name, "number") for name in names)]
        rows: list[Row] = []
        for i, column in enumerate(self.columns[1:], 1):
            cells = [row[i]._replace(style=row[i].style or column.style) for row in self.cells()]
            rows.append([column.title, *cells])
        return replace(self, columns=columns, rows=rows, group_by=None)

    def to_polars(self) -> pl.DataFrame:
        """Convert to a polars frame with the keys of the columns; numbers stay numbers, undefined ones are null.

        >>> Table("t", [Column("a"), Column("b", key="b_ms")], [["x", 1.5], [None, math.nan]]).to_polars().rows()
        [('x', 1.5), (None, None)]
        """
        import polars as pl

        columns = list(zip(*self.cells(), strict=True)) or [()] * len(self.columns)
        return pl.DataFrame(
            [
                pl.Series(column.key or column.title, *_frame_values([cell.value for cell in cells], column))
                for column, cells in zip(self.columns, columns, strict=True)
            ]
        )

    @property
    def legends(self) -> list[str]:
        """Explanations of the columns that have one."""
        return [f"{column.title}: {column.legend}" for column in self.columns if column.legend]

    @property
    def has_numbers(self) -> bool:
        """Whether any column but the first holds numbers."""
        return any(not column.is_text for column in self.columns[1:])


def _frame_values(values: Sequence[Value], column: Column) -> tuple[Sequence[Value], type[pl.DataType]]:
    """Return values and type of a column of a frame; a column of texts and numbers becomes texts."""
    import polars as pl

    plain_values = [value.value if isinstance(value, Estimate) else value for value in values]
    kinds = {type(value) for value in plain_values if value is not None}
    plain_values = [None if isinstance(value, float) and math.isnan(value) else value for value in plain_values]
    if not kinds:
        return plain_values, pl.String if column.is_text else pl.Float64
    if kinds == {bool}:
        return plain_values, pl.Boolean
    if all(issubclass(kind, int) and kind is not bool for kind in kinds):
        return plain_values, pl.Int64
    if all(issubclass(kind, int | float) and kind is not bool for kind in kinds):
        return [None if value is None else float(value) for value in plain_values], pl.Float64
    return [None if value is None else str(value) for value in plain_values], pl.String


def _number(value: Value) -> float:
    if isinstance(value, Estimate):
        return value.value
    return math.nan if value is None or isinstance(value, str) else float(value)


def format_value(value: Value, style: str) -> str:
    r"""Format the value of a cell without its marks.

    >>> format_value(0.5, "score"), format_value(None, "ms"), format_value("a\nb", "text")
    ('0.5000', '-', 'a b')
    >>> format_value(Estimate(0.5, 0.4, 0.6), "score"), format_value(True, "text")
    ('0.5000 [0.4000, 0.6000]', 'yes')
    """
    if isinstance(value, str):
        return value if value.isprintable() else one_line(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Estimate):
        interval = format_interval(value.low, value.high, style)
        return format_number(value.value, style) + ("" if interval == MISSING else f" {interval}")
    if style not in NUMBER_STYLES:
        return "" if value is None else format_number(value, "number")
    return format_number(value, style)


def _column_texts(cells: Sequence[Cell], column: Column) -> list[str]:
    """Format the cells of a column with their stars and details; numbers are right-aligned."""
    if column.is_text:
        return [format_cell(cell, column) for cell in cells]
    values = [format_cell(cell._replace(stars="", letters=()), column, with_detail=False) for cell in cells]
    letters = [cell.raised_letters for cell in cells]
    ends = [" ".join(filter(None, [cell.stars, one_line(cell.detail)])) for cell in cells]
    width, letter_width, end_width = (max(map(len, texts)) for texts in (values, letters, ends))
    aligned = [
        f"{value:>{width}}{superscript:<{letter_width}}" for value, superscript in zip(values, letters, strict=True)
    ]
    return [f"{text} {end:<{end_width}}" for text, end in zip(aligned, ends, strict=True)] if end_width else aligned


def format_cell(cell: Cell, column: Column, *, with_detail: bool = True) -> str:
    """Format a cell as one text: its value, mark, stars and detail.

    >>> format_cell(Cell(0.0123, stars="**", detail="[+0.0100, +0.0200]"), Column("change", "signed"))
    '+0.0123 ** [+0.0100, +0.0200]'
    """
    text = f"{cell.text or format_value(cell.value, cell.style or column.style)}{cell.mark}{cell.raised_letters}"
    return " ".join(filter(None, [text, cell.stars, one_line(cell.detail) if with_detail else ""]))


def sort_key(cell: Cell) -> float | None:
    """Return the number by which a page sorts a cell, or None if it is a text."""
    number = _number(cell.value)
    return number if math.isfinite(number) else None


def shorten_names(names: Sequence[str], width: int) -> list[str]:
    """Shorten names to a width, with an ellipsis in the middle.

    >>> shorten_names(["a-rather-long-name", "short"], 12)
    ['a-rat…g-name', 'short']
    """
    width = max(MIN_NAME_CHARS, width)
    return [
        name if len(name) <= width else f"{name[: (width - 1) // 2]}…{name[len(name) - width // 2 :]}" for name in names
    ]


def table_of_facts(facts: Mapping[str, str], title: str = "", table_id: str = "facts") -> Table:
    """Build a table of names and texts without a header."""
    return Table(table_id, [Column("", "name"), Column("")], list(facts.items()), title)


def table_of_finding(grid: FindingTable, title: str = "", table_id: str = "evidence") -> Table:
    """Build the table of the evidence of a finding.

    Without styles, columns of whole numbers are counts, other numbers scores, and the rest texts.
    """
    columns = [Column(name, style) for name, style in zip(grid.header, grid.styles, strict=True)] if grid.styles else []
    for i, name in enumerate(grid.header if not columns else ()):
        values = [row[i] for row in grid.rows]
        numbers = [value for value in values if not isinstance(value, str | None)]
        if numbers and i:
            columns.append(Column(name, "count" if _are_counts(numbers) else "score"))
        else:
            is_name = i == 0 and all(len(str(value)) <= MAX_NAME_CHARS for value in values)
            columns.append(Column(name, "name" if is_name else "text"))
    return Table(table_id, columns, grid.rows, title)


def table_of_findings(findings: Sequence[Finding], subject: str) -> Table:
    """Build the table with one row per finding; examples are separated by ` | `."""
    names = (subject, "check", "problem", "count", "message", "effect", "remedy", "examples")
    rows: list[Row] = [
        [
            finding.subject,
            finding.check,
            int(finding.problem),
            finding.count,
            finding.message,
            finding.effect,
            finding.remedy,
            " | ".join(finding.examples),
        ]
        for finding in findings
    ]
    return Table("findings", [Column(name) for name in names], rows)


def _are_counts(values: Sequence[Value]) -> bool:
    numbers = [value for value in map(_number, values) if not math.isnan(value)]
    return all(value.is_integer() for value in numbers) and any(value > 1 for value in numbers)
