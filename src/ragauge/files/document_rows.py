"""Rows of corpora and of query files in every supported format."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.csv_cells import allow_long_cells
from ragauge.core.errors import BadInput
from ragauge.core.structured_text import InvalidText, parse_json
from ragauge.core.text import clean_json, may_have_surrogates, warn_replaced
from ragauge.files.json_files import (
    DOCUMENT_ID_FIELDS,
    QUERY_ID_FIELDS,
    TEXT_FIELDS,
    TITLE_FIELD,
    canonical_columns,
)
from ragauge.files.parquet import scan_parquet
from ragauge.files.source import InputFile, TruncatedFile, wrap_library_errors

METADATA_FIELD = "metadata"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""
CSV_SEPARATORS = ",;\t|"
"""Supported separators of the cells of a CSV file."""
MIN_SWALLOWED_ROWS = 3
"""Minimum number of lines inside one cell that look like rows, to conclude that a quote was not closed."""
UNCLOSED_QUOTE_MESSAGE = "a quote opens here and is not closed"
UNDOUBLED_QUOTE_MESSAGE = "a quote within a cell is not doubled"

NumberedRows = Iterator[tuple[int, Mapping[str, Any]]]
"""Number of a row in its file (line, entry or row, by format), and its fields."""


class RowLocation(NamedTuple):
    """Place of an entry: its file, and its number there."""

    file: str
    """Name of the file without its folder; empty for an entry in memory."""
    number: int | None = None
    unit: str = "line"
    """Unit of the number: line, entry, row or document."""
    label: str = ""
    """Name of the file in error messages."""

    def __str__(self) -> str:
        if self.number is None:
            return self.file
        if self.unit == "line":
            return f"{self.file}:{self.number}"
        return f"{self.file}, {self.unit} {self.number:,}" if self.file else f"{self.unit} {self.number:,}"

    def error(self, message: str) -> BadInput:
        """Return the error for a flaw at this location."""
        if self.unit == "line" or self.number is None:
            return BadInput(message, file=self.label, line=self.number)
        return BadInput(f"{self.unit} {self.number:,}: {message}", file=self.label or None)


@dataclass(frozen=True)
class FieldNames:
    """Accepted names of the id and of the text; the first one present is used."""

    ids: Sequence[str] = DOCUMENT_ID_FIELDS
    texts: Sequence[str] = TEXT_FIELDS

    @property
    def all(self) -> Sequence[str]:
        """Accepted names of all fields."""
        return (*self.ids, *self.texts, TITLE_FIELD)


DOCUMENT_FIELDS = FieldNames()
QUERY_FIELDS = FieldNames(QUERY_ID_FIELDS, ("text", "query"))


@dataclass(frozen=True)
class RowFile:
    """A file of rows: how it is read."""

    source: InputFile
    form: str
    """Format: jsonl, json, tsv, csv or parquet; empty for a file without rows."""
    names: FieldNames

    @cached_property
    def unit(self) -> str:
        """Unit of the row numbers."""
        return {"json": "entry", "parquet": "row"}.get(self.form, "line")

    @cached_property
    def name(self) -> str:
        """Name of the file without its folder."""
        return self.source.label if self.source.path == "-" else Path(self.source.path).name

    def location(self, number: int) -> RowLocation:
        return RowLocation(self.name, number, self.unit, self.source.label)

    def line(self, number: int | None = None) -> RowLocation:
        """Return the location of a line, which is not a row in every format; without a number, that of the file."""
        return RowLocation(self.name, number, label=self.source.label)

    def rows(self) -> NumberedRows:
        """Yield the rows with their numbers."""
        return _ROW_READERS[self.form](self) if self.form else iter(())


def open_rows(path: Path | str, names: FieldNames) -> RowFile:
    """Open a file of rows. The ending decides on the format; without a known one, the first line does."""
    rows = RowFile(InputFile(str(path)), "", names)
    form = ROW_FORMATS.get(rows.source.ending)
    if form is None:
        try:
            form = _detect_row_format(rows.source.head())
        except TruncatedFile as error:
            raise rows.line().error(_describe_truncation(error, rows.source)) from None
    if form is None:
        raise BadInput("not a corpus", file=rows.source.label, hint=CORPUS_HINT)
    return replace(rows, form=form)


CORPUS_HINT = "JSONL, TSV, CSV, JSON or Parquet with ids and texts, a BEIR folder, a folder of texts, or a dataset"


def _detect_row_format(head: Sequence[str]) -> str | None:
    """Return the format of rows by their first lines, empty if there are none; None if the lines are not rows."""
    if not head:
        return ""
    first = head[0].lstrip()
    return "jsonl" if first.startswith("{") else "json" if first.startswith("[") else "tsv" if "\t" in first else None


def _read_lines(rows: RowFile) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers."""
    number = 0
    try:
        with rows.source.open() as file:
            for line in file:
                number += 1
                yield number, decode_text(line.rstrip(b"\r\n"), rows.line(number), is_start=number == 1)
    except TruncatedFile as error:
        raise rows.line(number + 1).error(_describe_truncation(error, rows.source)) from None


def decode_text(data: bytes, location: RowLocation, *, is_start: bool = True) -> str:
    """Decode a text. Raise BadInput for UTF-16, and for bytes that are not UTF-8.

    `is_start` says whether it is the start of a file.
    """
    if is_start and data[:2] in UTF16_MARKS:
        raise location.error("not UTF-8 text: the file is in UTF-16, not in UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        invalid_byte = data[error.start : error.start + 1]
        excerpt = data[max(0, error.start - 12) : error.start + 12]
        message = f"not UTF-8 text: byte 0x{invalid_byte.hex()} in `{excerpt.decode('cp1252', 'replace')}`"
        raise location.error(message) from None


def _describe_truncation(error: BadInput, source: InputFile) -> str:
    return f"the file {error.message.removeprefix(f'{source.label}: ')}"


def _describe_invalid_json(error: InvalidText) -> str:
    location = "" if error.column is None else f" at column {error.column}"
    return f"the JSON is invalid{location} ({error.reason.removesuffix(' at')})"


def _rows_from_jsonl(rows: RowFile) -> NumberedRows:
    replaced = 0
    for number, line in _read_lines(rows):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except InvalidText as error:
            raise rows.location(number).error(_describe_invalid_json(error)) from None
        if "\\u" in line and may_have_surrogates(line.encode()):
            row, count = clean_json(row, file=rows.source.label, line=number)
            replaced += count
        if not isinstance(row, dict):
            raise rows.location(number).error("expected an object")
        yield number, row
    warn_replaced(replaced, rows.source.label)


def _rows_from_json(rows: RowFile) -> NumberedRows:
    """Read a list of objects, `{"documents": […]}`, or texts or objects by id."""
    text = "\n".join(line for _, line in _read_lines(rows))
    try:
        parsed = parse_json(text)
    except InvalidText as error:
        raise rows.line(error.line).error(_describe_invalid_json(error)) from None
    if "\\u" in text and may_have_surrogates(data := text.encode()):
        parsed, replaced = clean_json(parsed, file=rows.source.label, data=data)
        warn_replaced(replaced, rows.source.label)
    if isinstance(parsed, dict):
        inner = next(
            (parsed[key] for key in ("documents", "docs", "corpus") if isinstance(parsed.get(key), list)), None
        )
        parsed = [_add_id(name, value, rows.names) for name, value in parsed.items()] if inner is None else inner
    for number, row in enumerate(parsed if isinstance(parsed, list) else [parsed], 1):
        if not isinstance(row, dict):
            raise rows.location(number).error("expected an object")
        yield number, row


def _add_id(name: str, value: Any, names: FieldNames) -> Any:
    """Add the id, which is the key of a text or of an object."""
    if isinstance(value, str):
        return _to_fields(name, value, names)
    return {names.ids[0]: name, **value} if isinstance(value, dict) else value


def _to_fields(id: str, text: str, names: FieldNames) -> dict[str, str]:
    return {names.ids[0]: id, names.texts[0]: text}


def _rows_from_tsv(rows: RowFile) -> NumberedRows:
    """Read a TSV file with a header, or lines of an id, a tab and a text."""
    header: list[str] = []
    for number, line in _read_lines(rows):
        cells = line.rstrip("\r").split("\t")
        if number == 1 and _is_row_header(cells, rows.names):
            header = canonical_columns(cells, rows.names.all)
        elif header:
            if line.strip():
                yield from _match_row_to_header(rows, number, header, cells)
        elif len(cells) > 1:
            yield number, _to_fields(cells[0], "\t".join(cells[1:]), rows.names)
        elif line.strip():
            raise rows.location(number).error("expected an id, a tab and a text")


def _rows_from_csv(rows: RowFile) -> NumberedRows:
    """Read a CSV file with a header, or rows of an id and a text."""
    allow_long_cells()
    lines = _read_lines(rows)
    first = next(lines, None)
    if first is None:
        return
    mark = next((mark for mark in CSV_SEPARATORS if _is_row_header(first[1].split(mark), rows.names)), ",")
    header: list[str] = []
    has_header = False
    for number, cells in _parse_csv_records(rows, chain([first], lines), mark):
        if not header:
            has_header = _is_row_header(cells, rows.names) or len(cells) != 2
            header = (
                canonical_columns(cells, rows.names.all) if has_header else [rows.names.ids[0], rows.names.texts[0]]
            )
            if has_header:
                continue
        if any(cell.strip() for cell in cells):
            yield from _match_row_to_header(rows, number, header, cells, "header" if has_header else "first line")


def _parse_csv_records(rows: RowFile, lines: Iterator[tuple[int, str]], mark: str) -> Iterator[tuple[int, list[str]]]:
    """Parse rows with the line each starts on."""
    record_lines: list[tuple[int, str]] = []

    def feed_lines() -> Iterator[str]:
        for numbered in lines:
            record_lines.append(numbered)
            yield f"{numbered[1]}\n"

    reader, width = csv.reader(feed_lines(), strict=True, delimiter=mark), 0
    while True:
        record_lines.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if len(record_lines) > 1 or "end of data" in str(error):
                message = UNCLOSED_QUOTE_MESSAGE
            else:
                is_quote = "expected after" in str(error)
                message = UNDOUBLED_QUOTE_MESSAGE if is_quote else f"the table is invalid ({error})"
            raise rows.location(record_lines[0][0]).error(message) from None
        if cells is None:
            return
        width = width or len(cells)
        if _has_swallowed_rows(record_lines[1:], width, mark):
            raise rows.location(record_lines[0][0]).error(UNCLOSED_QUOTE_MESSAGE)
        yield record_lines[0][0], cells


def _has_swallowed_rows(inner: Sequence[tuple[int, str]], width: int, mark: str) -> bool:
    """Return whether all lines inside a cell look like rows: a quote was not closed."""
    rows = [line.split(mark) for _, line in inner]
    return len(rows) >= MIN_SWALLOWED_ROWS and all(len(row) == width > 1 and len(row[0].split()) == 1 for row in rows)


def _match_row_to_header(
    rows: RowFile, number: int, header: Sequence[str], cells: Sequence[str], first: str = "header"
) -> NumberedRows:
    """Yield a row by column names.

    Raise BadInput for a value without a column name, and for a row that ends before its text.
    """
    row = dict(zip(header, cells, strict=False))
    texts = {*rows.names.texts, TITLE_FIELD} & {*header}
    if any(cell.strip() for cell in cells[len(header) :]) or (texts and not texts & {*row}):
        cell_count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        raise rows.location(number).error(f"{cell_count}, the {first} has {len(header)}")
    yield number, row


def _is_row_header(cells: Sequence[str], names: FieldNames) -> bool:
    cell_names = {cell.strip().strip('"').casefold() for cell in cells}
    ids, texts = ({name.casefold() for name in aliases} for aliases in (names.ids, (*names.texts, TITLE_FIELD)))
    return bool(cell_names & ids) and bool(cell_names & texts)


def _rows_from_parquet(rows: RowFile) -> NumberedRows:
    with wrap_library_errors(rows.source.label):
        file = scan_parquet(rows.source.path, rows.source.label)
        columns = list(file.collect_schema())
        known_names = (*rows.names.all, METADATA_FIELD)
        canonical = dict(zip(columns, canonical_columns(columns, known_names), strict=True))
        selected = {column: name for column, name in canonical.items() if name in known_names}
        table = file.select(list(selected)).rename(selected).collect() if selected else file.collect()
    yield from enumerate(table.iter_rows(named=True), 1)


ROW_FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tsv": "tsv",
    ".csv": "csv",
    ".parquet": "parquet",
    ".json": "json",
}
"""Format of rows by the ending of their file."""
_ROW_READERS: Mapping[str, Callable[[RowFile], NumberedRows]] = {
    "jsonl": _rows_from_jsonl,
    "json": _rows_from_json,
    "tsv": _rows_from_tsv,
    "csv": _rows_from_csv,
    "parquet": _rows_from_parquet,
}
