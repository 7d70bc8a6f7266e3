"""Render tables as CSV: exact numbers, quotes where needed, and no cell that a spreadsheet would run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragauge.core.csv_cells import neutralise_cell
from ragauge.core.summaries import Estimate
from ragauge.output.numbers import format_exact
from ragauge.output.tables import Cell, Table, Value


def render_csv_rows(header: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
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


def render_csv(table: Table) -> str:
    """Render a table as CSV with the keys of its columns; undefined values are empty.

    >>> from ragauge.output.tables import Column
    >>> columns = [Column("system", "name"), Column("nDCG@10", "score", key="ndcg@10")]
    >>> render_csv(Table("systems", columns, [["bm25", 0.123456], ["dense", None]])).splitlines()
    ['system,ndcg@10', 'bm25,0.123456', 'dense,']
    """
    values = ((cell.value if isinstance(cell, Cell) else cell for cell in row) for row in table.rows)
    return render_csv_rows(csv_header(table), (map(_csv_text, row) for row in values))


def csv_header(table: Table) -> list[str]:
    """Return the keys of the columns of a table."""
    return [column.key or column.title for column in table.columns]


def _csv_text(value: Value) -> str:
    if isinstance(value, str | None):
        return value or ""
    if isinstance(value, Estimate):
        return format_exact(value.value)
    return str(value).lower() if isinstance(value, bool | int) else format_exact(value)
