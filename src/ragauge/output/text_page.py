"""Tables and sections of pages with texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from ragauge.output.numbers import pluralise
from ragauge.output.report import Chart, Charts, Paragraph, Report
from ragauge.output.tables import Table, format_cell, sort_key


class TextPageCell(NamedTuple):
    """Table cell with a text, a small text below it, and its marks."""

    text: str
    below: str = ""
    best: bool = False
    stars: str = ""
    about: str = ""
    order: float | None = None
    """Sort key, if it is not the text."""
    link: str = ""
    """Target of the link on the text."""


@dataclass(frozen=True)
class TextPageTable:
    """Table of a page."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | TextPageCell]]
    title: str = ""
    numbers: bool = True
    sortable: bool = False
    legend: str = ""
    folded: bool = False
    """Whether the table is initially collapsed."""


class TextPageSection(NamedTuple):
    """Section of a page with charts and tables."""

    id: str
    title: str
    short: str
    charts: Mapping[str, Chart] = MappingProxyType({})
    grids: Sequence[TextPageTable] = ()
    text: str = ""
    layout: str = ""


def page_sections(report: Report, *, headed: bool) -> Iterator[TextPageSection]:
    """Yield the sections of a report.

    With `headed`, for a page of several reports, titles are prefixed and the first section has the summary.
    """
    first = True
    for section in report.select_sections("html"):
        charts = {
            f"{report.kind}-{name}": chart
            for block in section.blocks
            if isinstance(block, Charts)
            for name, chart in block.draw().items()
        }
        sheets = [_page_table(block, section.title) for block in section.blocks if isinstance(block, Table)]
        text = " ".join(block.text for block in section.blocks if isinstance(block, Paragraph))
        if not (charts or sheets or text):
            continue
        if headed and first:
            text = " ".join(filter(None, [report.summary, *report.details, text]))
        first = False
        title = f"{report.title}: {section.title}" if headed else section.title
        yield TextPageSection(f"{report.kind}-{section.id}", title, section.short, charts, sheets, text)


def _page_table(table: Table, title: str) -> TextPageTable:
    called = "" if table.title == title else table.title
    if table.collapsed and not called:
        called = f"Show {pluralise(len(table.rows), 'row')}"
    rows = [
        [
            TextPageCell(format_cell(cell, column), best=cell.best, order=sort_key(cell), link=cell.link)
            for cell, column in zip(row, table.columns, strict=True)
        ]
        for row in table.cells()
    ]
    return TextPageTable(
        [column.title for column in table.columns],
        rows,
        called,
        numbers=table.has_numbers,
        sortable=len(rows) > 1,
        folded=table.collapsed,
    )
