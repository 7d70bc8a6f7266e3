"""HTML pages of one or several reports, their sections, and the Vega script that pages embed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ragauge.reports.accounts import Account, apart, shared, titles, told_facts
from ragauge.reports.charts import Drawing
from ragauge.reports.page import Section, document
from ragauge.reports.page.sections import Cell, Sheet
from ragauge.reports.tables import Rows, counted


def page(accounts: Sequence[Account], vega: str | None = None) -> str:
    """Render reports as one HTML page.

    `vega` is the result of `vega_script`, if available.
    """
    accounts = apart(accounts)
    one = accounts[0]
    alone = len(accounts) == 1
    middle = [section for account in accounts for section in sections(account, headed=not alone)]
    again = Section(f"{one.kind}-again", "Circumstances", "Circumstances")
    # One navigation entry per report, or the bar would be wider than the page.
    entries = middle if alone else _entries(accounts)
    return document(
        "account.html",
        {
            "title": one.title if alone else "Knowledge base",
            "kind": one.kind if alone else "report",
            "made": max((account.made for account in accounts), default=""),
            "sections": [*entries, again],
            "about": one.about if alone else [account.title for account in accounts],
            "headline": one.headline if alone else "",
            "more": one.more if alone else [account.headline for account in accounts],
            "chart_sections": middle,
            "again": again.id,
            "circumstances": [
                Sheet(["", ""], told_facts(facts), title, numbers=False) for title, facts in shared(accounts) if facts
            ],
            "notes": list(dict.fromkeys(note for account in accounts for note in account.notes)),
        },
        charts(accounts),
        vega=vega,
    )


def sections(account: Account, *, headed: bool) -> Iterator[Section]:
    """Yield the sections of a report.

    With `headed`, for a page of several reports, titles are prefixed and the first section has the summary.
    """
    parts = [part for part in account.parts if part.rows or part.text or part.charts]
    for place, part in enumerate(parts):
        text = part.text
        if headed and not place:
            text = " ".join(filter(None, [account.headline, *account.more, text]))
        sheets = [_sheet(rows, part.title, long=part.long) for rows in part.rows]
        title = f"{account.title}: {part.title}" if headed else part.title
        mine = {f"{account.kind}-{name}": one for name, one in part.charts.items()}
        yield Section(f"{account.kind}-{part.id}", title, part.short, mine, sheets, text)


def _entries(accounts: Sequence[Account]) -> list[Section]:
    """Return the first section of each report, titled for the navigation."""
    firsts = (next(sections(account, headed=True), None) for account in accounts)
    named = zip(firsts, titles(accounts), strict=True)
    return [first._replace(short=title) for first, title in named if first is not None]


def charts(accounts: Sequence[Account]) -> dict[str, Drawing]:
    """Collect the charts of all reports by their name on the page."""
    return {
        f"{account.kind}-{name}": one
        for account in accounts
        for part in account.parts
        for name, one in part.charts.items()
    }


def _sheet(rows: Rows, title: str, *, long: bool) -> Sheet:
    called = "" if rows.title == title else rows.title
    if long and not called:
        called = f"Show {counted(len(rows.rows), 'row')}"
    cells: Sequence[Sequence[str | Cell]] = _ordered(rows) if rows.numbers else rows.rows
    if rows.links:
        named = zip(cells, rows.rows, rows.links, strict=True)
        cells = [[Cell(texts[0], link=link), *row[1:]] for row, texts, link in named]
    return Sheet(rows.header, cells, called, numbers=rows.numbers, sortable=len(rows.rows) > 1, folded=long)


NUMBER = re.compile(r"[•<>]?([+-]?[\d,]*\.?\d+)([kMG%]?)(?: .*)?")
LARGE = {"k": 1e3, "M": 1e6, "G": 1e9}


def _ordered(rows: Rows) -> list[list[str | Cell]]:
    """Add sort keys to columns that have only numbers: 9 before 1,472 before 22.7M."""
    found = []
    for row in rows.rows:
        cells: list[str | Cell] = list(row)
        found.append(cells)
    for column in range(1, len(rows.header)):
        read = [NUMBER.fullmatch(row[column]) for row in rows.rows]
        if any(one is None and row[column] not in ("-", "") for one, row in zip(read, rows.rows, strict=True)):
            continue
        for cells, row, one in zip(found, rows.rows, read, strict=True):
            if one is not None:
                value = float(one[1].replace(",", "")) * LARGE.get(one[2], 1.0)
                cells[column] = Cell(row[column], best=row[column].startswith("•"), order=value)
    return found
