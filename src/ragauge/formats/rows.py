"""Tables row by row, each with its place: what scores, trials and tags are read by, so that mistakes have a line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragauge.errors import BadInput
from ragauge.formats.columns import QUERY, TABLES, check_columns, find, numbered_cells, read_table
from ragauge.formats.documents import json_lines
from ragauge.formats.files import Source

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class Rows:
    """The cells of a table by column, None where there is nothing; rows with nothing in them are left out."""

    label: str
    columns: Mapping[str, Sequence[Any]]
    places: Sequence[int]
    """The line that each row begins on; of what has no lines, which row it is."""
    in_lines: bool

    def __len__(self) -> int:
        return len(self.places)

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return list(self.columns)

    def line(self, at: int) -> int | None:
        """The line of a row, where there are lines."""
        return self.places[at] if self.in_lines else None

    def id(self, column: str, at: int, what: str) -> str:
        """The id in a cell; a blank one is refused."""
        row = "" if self.in_lines else f" of row {self.places[at]}"
        return as_id(self.columns[column][at], f"the {what}{row}", self.label, self.line(at))


def as_id(value: Any, what: str, label: str | None, line: int | None = None) -> str:
    """An id as text, without blanks around it and, of a whole float, without the point; a blank one is refused.

    >>> as_id(" q1 ", "the query", None), as_id(7.0, "the query", None)
    ('q1', '7')
    """
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() else str(value)
    text = "" if value is None or isinstance(value, float) else str(value).strip()
    if not text:
        raise BadInput(f"{what} is missing", file=label, line=line)
    return text


def read_rows(source: Source, form: str) -> Rows:
    """The rows of a CSV, TSV, JSONL or Parquet file; one with more or fewer cells than the header is refused."""
    if form == "parquet":
        return rows_of(read_table(source, form), source.label)
    if form == "jsonl":
        return gathered([], json_lines(source), source.label, in_lines=True)
    with source.open() as file:
        found = numbered_cells((line.decode() for line in file), form, source.label)
        first, names = next(found, (1, []))
        check_columns(first, names, source.label)
        return gathered(names, _even(names, found, source.label), source.label, in_lines=True)


def rows_of(frame: pl.DataFrame, label: str) -> Rows:
    """The rows of a frame."""
    return gathered(frame.columns, enumerate(frame.iter_rows(named=True), start=1), label, in_lines=False)


def gathered(
    names: Iterable[str], rows: Iterable[tuple[int, Mapping[str, Any]]], label: str, *, in_lines: bool
) -> Rows:
    """Rows from mappings with their places; columns without a name, and nested ones (transcripts), are left out."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    places: list[int] = []
    for place, row in rows:
        held = {
            name: cell
            for name, cell in row.items()
            if not (cell is None or (isinstance(cell, str) and not cell.strip()))
        }
        if not held:
            continue
        columns |= {name: [None] * len(places) for name in row if name not in columns}
        for name, cells in columns.items():
            cells.append(held.get(name))
        places.append(place)
    nested = {name for name, cells in columns.items() if any(isinstance(cell, dict | list) for cell in cells)}
    plain = {name: cells for name, cells in columns.items() if name.strip() and name not in nested}
    return Rows(label, plain, places, in_lines)


def _even(
    names: Sequence[str], found: Iterable[tuple[int, list[str]]], label: str
) -> Iterator[tuple[int, dict[str, str]]]:
    for line, cells in found:
        if len(cells) < len(names) or any(cells[len(names) :]):
            raise BadInput(
                f"there are {len(cells)} cells, and the header names {len(names)} columns", file=label, line=line
            )
        yield line, dict(zip(names, cells, strict=False))


def read_tags(path: str) -> dict[str, dict[str, str]]:
    """Tags of queries from a table with a query column: every other column is one."""
    source = Source(path)
    if source.ending not in TABLES:
        raise BadInput("tags are read from .csv, .tsv, .jsonl or .parquet", file=path)
    rows = read_rows(source, TABLES[source.ending])
    query = find(rows.names, QUERY)
    if query is None:
        raise BadInput(f"a query column is missing; found {', '.join(rows.names)}", file=path, hint="query_id")
    others = {name: cells for name, cells in rows.columns.items() if name != query}
    return {
        rows.id(query, at, "query"): {name: str(cells[at]) for name, cells in others.items() if cells[at] is not None}
        for at in range(len(rows))
    }
