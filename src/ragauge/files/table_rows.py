"""Tables read row by row with line numbers, for scores, trials and tags, so that errors can name the line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragauge.core.errors import BadInput
from ragauge.core.ids import to_id
from ragauge.files.json_files import read_json_lines
from ragauge.files.source import InputFile
from ragauge.files.table_files import (
    QUERY_COLUMNS,
    TABLE_FORMATS,
    check_duplicate_columns,
    find_column,
    numbered_cells,
    read_table,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False)
class TableRows:
    """Cells of a table by column; an empty cell is None, and blank rows are left out."""

    label: str
    columns: Mapping[str, Sequence[Any]]
    row_numbers: Sequence[int]
    """Line on which each row starts, or the row number if the source has no lines."""
    has_lines: bool

    def __len__(self) -> int:
        return len(self.row_numbers)

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def line(self, i: int) -> int | None:
        """Return the line of a row; None if the source has no lines."""
        return self.row_numbers[i] if self.has_lines else None

    def id(self, column: str, i: int, noun: str) -> str:
        """Return the id in a cell; raise BadInput if it is blank."""
        row = "" if self.has_lines else f" of row {self.row_numbers[i]}"
        return to_id(self.columns[column][i], f"the {noun}{row}", self.label, self.line(i))


def read_rows(source: InputFile, form: str) -> TableRows:
    """Read the rows of a CSV, TSV, JSONL or Parquet file.

    Raise BadInput if a row has fewer cells than the header, or values beyond it.
    """
    if form == "parquet":
        return rows_from_frame(read_table(source, form), source.label)
    if form == "jsonl":
        return rows_from_mappings([], read_json_lines(source), source.label, in_lines=True)
    with source.open() as file:
        numbered = numbered_cells((line.decode() for line in file), form, source.label)
        first, names = next(numbered, (1, []))
        check_duplicate_columns(first, names, source.label)
        return rows_from_mappings(
            names, _match_cells_to_header(names, numbered, source.label), source.label, in_lines=True
        )


def rows_from_frame(frame: pl.DataFrame, label: str) -> TableRows:
    return rows_from_mappings(frame.columns, enumerate(frame.iter_rows(named=True), start=1), label, in_lines=False)


def rows_from_mappings(
    names: Iterable[str], rows: Iterable[tuple[int, Mapping[str, Any]]], label: str, *, in_lines: bool
) -> TableRows:
    """Build rows from mappings with their line or row numbers.

    Columns without a name and columns with nested values (e.g. transcripts) are left out.
    """
    columns: dict[str, list[Any]] = {name: [] for name in names}
    numbers: list[int] = []
    for number, row in rows:
        filled = {
            name: cell
            for name, cell in row.items()
            if not (cell is None or (isinstance(cell, str) and not cell.strip()))
        }
        if not filled:
            continue
        columns |= {name: [None] * len(numbers) for name in row if name not in columns}
        for name, cells in columns.items():
            cells.append(filled.get(name))
        numbers.append(number)
    check_duplicate_columns(None, list(columns), label)
    nested = {name for name, cells in columns.items() if any(isinstance(cell, dict | list) for cell in cells)}
    flat_columns = {name: cells for name, cells in columns.items() if name.strip() and name not in nested}
    return TableRows(label, flat_columns, numbers, in_lines)


def _match_cells_to_header(
    names: Sequence[str], rows: Iterable[tuple[int, list[str]]], label: str
) -> Iterator[tuple[int, dict[str, str]]]:
    for line, cells in rows:
        if len(cells) < len(names) or any(cells[len(names) :]):
            raise BadInput(f"expected {len(names)} cells as in the header, got {len(cells)}", file=label, line=line)
        yield line, dict(zip(names, cells, strict=False))


def read_tags(path: str) -> dict[str, dict[str, str]]:
    """Read tags of queries from a table.

    Every column except the query column is a tag.
    """
    source = InputFile(path)
    if source.ending not in TABLE_FORMATS:
        raise BadInput("tags are read from .csv, .tsv, .jsonl or .parquet", file=path)
    rows = read_rows(source, TABLE_FORMATS[source.ending])
    query = find_column(rows.names, QUERY_COLUMNS)
    if query is None:
        raise BadInput(f"a query column is missing; found {', '.join(rows.names)}", file=path, hint="query_id")
    tag_columns = {name: cells for name, cells in rows.columns.items() if name != query}
    return {
        rows.id(query, i, "query"): {name: str(cells[i]) for name, cells in tag_columns.items() if cells[i] is not None}
        for i in range(len(rows))
    }
