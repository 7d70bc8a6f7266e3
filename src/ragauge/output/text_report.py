"""Reports with tables of text cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.table import Table as RichTable

from ragauge.core.csv_cells import restore_cell
from ragauge.core.documents import EMPTY_MAPPING
from ragauge.output.report import (
    ALL_FORMATS,
    FILES_ONLY,
    Block,
    Chart,
    ChartDrawer,
    Charts,
    Paragraph,
    Report,
    Section,
)
from ragauge.output.tables import Cell, Column, Table
from ragauge.output.terminal import borderless_table, terminal_cell


class TextTable(NamedTuple):
    """A table before it is rendered; `goes` are the columns that a narrow terminal drops, in this order."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    """Whether all columns but the first are numbers; otherwise texts are wrapped."""
    goes: Sequence[int] = ()
    links: Sequence[str] = ()
    """Link of each row's name on an HTML page; empty for none."""


def fit_columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, goes: Sequence[int]) -> list[int]:
    """Return the columns that fit the width; those in `goes` are dropped one by one."""
    wide = {i: max(len(title), *(len(row[i]) for row in rows)) + 2 for i, title in enumerate(header)}
    for column in goes:
        if sum(wide.values()) - 2 <= width:
            break
        wide.pop(column, None)
    return list(wide)


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


def render_table(part: TextTable, width: int) -> tuple[RichTable, list[str]]:
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


def draw_nothing() -> Mapping[str, Chart]:
    """Return no chart."""
    return EMPTY_MAPPING


class TextSection(NamedTuple):
    """A section of a report. Charts are rendered only in HTML pages; a table of a `long` section is collapsed there."""

    id: str
    title: str
    short: str
    """Short title for the navigation of a page; empty if the section is not in the navigation."""
    text: str = ""
    rows: Sequence[TextTable] = ()
    draw_charts: ChartDrawer = draw_nothing
    long: bool = False
    """Whether it is left out in terminals."""


@dataclass(frozen=True)
class TextReport:
    """Report of one result."""

    kind: str
    """`lint`, `gain`, …; also the prefix of the ids of its sections."""
    title: str
    about: Sequence[str]
    """Provenance in a few words each."""
    headline: str
    """Summary in one sentence."""
    parts: Sequence[TextSection] = ()
    more: Sequence[str] = ()
    """Further sentences of the summary."""
    notes: Sequence[str] = ()
    circumstances: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)

    @property
    def made(self) -> str:
        """Date of the result; empty if unknown."""
        return str(self.circumstances.get("made") or "")


def to_report(text_report: TextReport) -> Report:
    """Convert a report of texts to one of typed cells."""
    sections = []
    for part in text_report.parts:
        blocks: list[Block] = [Paragraph(part.text)] if part.text else []
        blocks += [to_table(rows, collapsed=part.long) for rows in part.rows if rows.rows]
        if part.draw_charts is not draw_nothing:
            blocks.append(Charts(part.draw_charts))
        formats = FILES_ONLY if part.long else ALL_FORMATS
        sections.append(Section(part.id, part.title, blocks, part.short, formats))
    return Report(
        text_report.kind,
        text_report.title,
        text_report.headline,
        sections,
        text_report.about,
        text_report.more,
        notes=text_report.notes,
        provenance=text_report.circumstances,
    )


NUMBER_PATTERN = re.compile(r"[•<>]?([+-]?[\d,]*\.?\d+)([kMG%]?)(?: .*)?")
UNIT_FACTORS = {"k": 1e3, "M": 1e6, "G": 1e9}


def to_table(rows: TextTable, *, collapsed: bool = False) -> Table:
    """Convert a table of texts to one of typed cells: numbers in columns that have only numbers."""
    drop_order = {column: place for place, column in enumerate(rows.goes, 1)}
    numeric = {
        i
        for i in range(1, len(rows.header))
        if rows.numbers and all(NUMBER_PATTERN.fullmatch(row[i]) or row[i] in ("-", "") for row in rows.rows)
    }
    columns = [
        Column(title, "number" if i and rows.numbers else "name" if rows.numbers else "text", 0, drop_order.get(i, 0))
        for i, title in enumerate(rows.header)
    ]
    cells: list[list[Cell]] = []
    for row in rows.rows:
        cells.append([_to_cell(text, is_number=i in numeric) for i, text in enumerate(row)])
    for row_cells, link in zip(cells, rows.links, strict=False):
        row_cells[0] = row_cells[0]._replace(link=link)
    return Table("", columns, cells, rows.title, collapsed=collapsed)


def _to_cell(text: str, *, is_number: bool) -> Cell:
    match = NUMBER_PATTERN.fullmatch(text) if is_number else None
    if match is None:
        return Cell(text)
    value = float(match[1].replace(",", "")) * UNIT_FACTORS.get(match[2], 1.0)
    return Cell(value, best=text.startswith("•"), text=text)


def table_from_csv(text: str) -> Table:
    """Convert CSV to a table."""
    header, *rows = csv.reader(io.StringIO(text))
    return Table("", [Column(name) for name in header], [[restore_cell(cell) for cell in row] for row in rows])
