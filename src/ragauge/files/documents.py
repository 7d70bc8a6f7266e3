"""Documents of a corpus for checks: what cannot be read is recorded as a flaw and skipped instead of raised."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.structured_text import InvalidText, parse_json
from ragauge.files.json_files import DOCUMENT_ID_FIELDS, TEXT_FIELDS, TITLE_FIELD, canonical_columns, describe_json_type
from ragauge.files.parquet import scan_parquet
from ragauge.files.source import InputFile, TruncatedFile, wrap_library_errors

TEXT_ENDINGS = (".txt", ".md", ".markdown", ".rst")
"""Endings of files that are one document each."""
UTF16_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""Byte order marks of UTF-16."""
SEPARATOR_NAMES = {",": "commas", ";": "`;`", "\t": "tabs", "|": "`|`"}
"""Supported separators of cells, and their names in messages. The file ending does not matter."""
MIN_SWALLOWED_ROWS = 3
"""Minimum number of lines inside one cell that look like rows, to conclude that a quote was not closed."""
UNCLOSED_QUOTE_MESSAGE = "a quote opens here and is not closed"
UNDOUBLED_QUOTE_MESSAGE = "a quote within a cell is not doubled"

LocatedRows = Iterator[tuple[str, Mapping[str, Any]]]
"""Location of a document, and its fields."""


class CorpusFlaw(NamedTuple):
    """A part of a corpus that could not be read as it is."""

    kind: str
    """`unreadable`: the document is lost. `bytes`: characters were lost. `encoding`: the file is UTF-16 and was read.
    `fields`: no known field has a text. `separator`: the file was read, but other tools may fail. `unread`: the file
    has an unsupported type.
    """
    where: str
    said: str


@dataclass(frozen=True)
class FieldNames:
    """User-defined names of the id and text fields; None for the known names."""

    id: str | None = None
    text: str | None = None

    @property
    def ids(self) -> Sequence[str]:
        """Accepted names of the id."""
        return DOCUMENT_ID_FIELDS if self.id is None else (self.id,)

    @property
    def texts(self) -> Sequence[str]:
        """Accepted names of the text."""
        return TEXT_FIELDS if self.text is None else (self.text,)

    @property
    def all(self) -> Sequence[str]:
        """Accepted names of all fields."""
        return (*self.ids, *self.texts, TITLE_FIELD)


@dataclass(eq=False)
class LoadedCorpus:
    """Documents of a corpus in their order, and the flaws found while reading."""

    name: str
    ids: list[str | None] = field(default_factory=list)
    """None if a document has no id."""
    texts: list[str] = field(default_factory=list)
    """Title and text, as passed to embedders."""
    places: list[str] = field(default_factory=list)
    """File and line of each document, or its number."""
    flaws: list[CorpusFlaw] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.texts)

    def called(self, place: int) -> str:
        """Describe a document in messages by its id and location."""
        name = self.ids[place]
        where = self.places[place]
        return where if name in (None, where) else f"{name} ({where})"


def read_corpus_files(
    name: str, sources: Sequence[Path | str], names: FieldNames, *, root: Path | None = None
) -> LoadedCorpus:
    """Read the documents of files.

    With `root`, each file is one text document whose id is its path relative to `root`.
    """
    reading = LoadedCorpus(name)
    for source in sources:
        if root is not None:
            _add_text_file(Path(source), root, reading)
        else:
            for where, row in _read_document_rows(InputFile(str(source)), names, reading.flaws):
                _add_document(where, row, names, reading)
    return reading


def documents_from_memory(name: str, things: Sequence[Any], names: FieldNames) -> LoadedCorpus:
    """Read documents, mappings or texts in memory.

    Their location is their number, from 1.
    """
    reading = LoadedCorpus(name)
    for number, thing in enumerate(things, 1):
        where = f"document {number:,}"
        if isinstance(thing, Document):
            reading.ids.append(thing.id or None)
            reading.texts.append(thing.whole)
            reading.places.append(where)
        elif isinstance(thing, Mapping):
            _add_document(where, thing, names, reading)
        elif isinstance(thing, str):
            reading.ids.append(str(number))
            reading.texts.append(thing)
            reading.places.append(where)
        else:
            reading.flaws.append(CorpusFlaw("unreadable", where, f"a {type(thing).__name__} is no document"))
    return reading


def _add_document(where: str, row: Mapping[str, Any], names: FieldNames, reading: LoadedCorpus) -> None:
    key = next((one for one in names.texts if row.get(one) is not None), None)
    if key is None and not any(one in row for one in (*names.texts, TITLE_FIELD)):
        told = ", ".join(map(str, list(row)[:6])) or "none"
        reading.flaws.append(CorpusFlaw("fields", where, f"no text among the fields ({told})"))
    text = "" if key is None else row[key]
    if isinstance(text, list | tuple | dict):
        reading.flaws.append(CorpusFlaw("unreadable", where, f"`{key}` is {describe_json_type(text)}, not a text"))
        return
    title = row.get(TITLE_FIELD)
    name = next((row[one] for one in names.ids if row.get(one) is not None), None)
    reading.ids.append(str(name) if name is not None and str(name).strip() else None)
    reading.texts.append(Document("", str(text), str(title) if isinstance(title, str | int | float) else "").whole)
    reading.places.append(where)


def _read_document_rows(source: InputFile, names: FieldNames, flaws: list[CorpusFlaw]) -> LocatedRows:
    if source.ending == ".parquet":
        return _rows_from_parquet(source, names)
    form = source.ending.removeprefix(".")
    if form not in _ROW_READERS:
        try:
            head = (source.head() or [""])[0].lstrip()
        except TruncatedFile as error:
            flaws.append(CorpusFlaw("unreadable", _file_name(source), _describe_truncation(error, source)))
            return iter(())
        if not head:
            return iter(())
        form = "jsonl" if head.startswith("{") else "json" if head.startswith("[") else "tsv" if "\t" in head else ""
        if not form:
            hint = "JSONL, TSV, CSV or Parquet with ids and texts, a BEIR folder, a folder of texts, or a dataset"
            raise BadInput("this is no corpus", file=source.label, hint=hint)
    return _ROW_READERS[form](source, names, flaws)


def _file_name(source: InputFile) -> str:
    """Return the name of a file without its folder."""
    return source.label if source.path == "-" else Path(source.path).name


def _read_lines(source: InputFile, flaws: list[CorpusFlaw]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers.

    Invalid UTF-8 is removed and recorded.
    """
    number = 0
    try:
        with source.open() as file:
            for line in file:
                if not number and line[:2] in UTF16_MARKS:
                    flaws.append(CorpusFlaw("encoding", _file_name(source), "the file is in UTF-16, not in UTF-8"))
                    text = (line + file.read()).decode(UTF16_MARKS[line[:2]], "replace").removeprefix("\ufeff")
                    yield from enumerate(text.split("\n"), 1)
                    return
                number += 1
                yield number, _decode_utf8(line.rstrip(b"\r\n"), f"{_file_name(source)}:{number}", flaws)
    except TruncatedFile as error:  # truncated archive: the lines before are valid
        flaws.append(
            CorpusFlaw("unreadable", f"{_file_name(source)}:{number + 1}", _describe_truncation(error, source))
        )


def _describe_truncation(error: BadInput, source: InputFile) -> str:
    return f"the file {error.message.removeprefix(f'{source.label}: ')}"


def _decode_utf8(data: bytes, where: str, flaws: list[CorpusFlaw]) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = data[error.start : error.start + 1]
        around = data[max(0, error.start - 12) : error.start + 12]
        flaws.append(CorpusFlaw("bytes", where, f"byte 0x{bad.hex()} in `{around.decode('cp1252', 'replace')}`"))
        return data.decode("utf-8", "replace").replace("\ufffd", "")  # already recorded as a flaw


def _describe_invalid_json(error: InvalidText) -> str:
    place = "" if error.column is None else f" at column {error.column}"
    return f"the JSON is broken{place} ({error.reason.removesuffix(' at')})"


def _rows_from_jsonl(source: InputFile, _names: FieldNames, flaws: list[CorpusFlaw]) -> LocatedRows:
    for number, line in _read_lines(source, flaws):
        if not line.strip():
            continue
        where = f"{_file_name(source)}:{number}"
        try:
            row = parse_json(line)
        except InvalidText as error:
            flaws.append(CorpusFlaw("unreadable", where, _describe_invalid_json(error)))
            continue
        if isinstance(row, dict):
            yield where, row
        else:
            flaws.append(CorpusFlaw("unreadable", where, "expected an object"))


def _rows_from_json(source: InputFile, names: FieldNames, flaws: list[CorpusFlaw]) -> LocatedRows:
    """Read a list of objects, `{"documents": […]}`, or texts or objects by id."""
    try:
        thing = parse_json("\n".join(line for _, line in _read_lines(source, flaws)))
    except InvalidText as error:
        where = f"{_file_name(source)}:{error.line}" if error.line else _file_name(source)
        flaws.append(CorpusFlaw("unreadable", where, _describe_invalid_json(error)))
        return
    if isinstance(thing, dict):
        inner = next((thing[key] for key in ("documents", "docs", "corpus") if isinstance(thing.get(key), list)), None)
        key = names.ids[0]
        by_id = (
            _to_fields(name, one, names) if isinstance(one, str) else _add_id(one, key, name)
            for name, one in thing.items()
        )
        thing = list(by_id) if inner is None else inner
    for number, row in enumerate(thing if isinstance(thing, list) else [thing], 1):
        where = f"{_file_name(source)}, entry {number:,}"
        if isinstance(row, dict):
            yield where, row
        else:
            flaws.append(CorpusFlaw("unreadable", where, "expected an object"))


def _rows_from_tsv(source: InputFile, names: FieldNames, flaws: list[CorpusFlaw]) -> LocatedRows:
    """Read a TSV file with a header, or lines of an id, a tab and a text."""
    header: list[str] = []
    for number, line in _read_lines(source, flaws):
        cells = line.rstrip("\r").split("\t")
        where = f"{_file_name(source)}:{number}"
        if number == 1 and _is_corpus_header(cells, names):
            header = canonical_columns(cells, names.all)
        elif header:
            if line.strip():
                yield from _match_row_to_header(where, header, cells, names, flaws)
        elif len(cells) > 1:
            yield where, _to_fields(cells[0], "\t".join(cells[1:]), names)
        elif line.strip():
            flaws.append(CorpusFlaw("unreadable", where, "expected an id, a tab and a text"))


def _rows_from_csv(source: InputFile, names: FieldNames, flaws: list[CorpusFlaw]) -> LocatedRows:
    """Read a CSV file with a header, or rows of an id and a text."""
    usual = csv.field_size_limit(1 << 30)  # cells with documents exceed the default limit
    try:
        lines = _read_lines(source, flaws)
        first = next(lines, None)
        if first is None:
            return
        mark = next((one for one in SEPARATOR_NAMES if _is_corpus_header(first[1].split(one), names)), ",")
        if mark != ",":
            said = f"the cells are separated by {SEPARATOR_NAMES[mark]}, not by commas"
            flaws.append(CorpusFlaw("separator", f"{_file_name(source)}:1", said))
        header: list[str] = []
        named = False
        for number, cells in _parse_csv_records(chain([first], lines), mark, _file_name(source), flaws):
            if not header:
                named = _is_corpus_header(cells, names) or len(cells) != 2
                header = canonical_columns(cells, names.all) if named else [names.ids[0], names.texts[0]]
                if named:
                    continue
            if any(cell.strip() for cell in cells):
                kind = "header" if named else "first line"
                yield from _match_row_to_header(f"{_file_name(source)}:{number}", header, cells, names, flaws, kind)
    finally:
        csv.field_size_limit(usual)


def _parse_csv_records(
    lines: Iterator[tuple[int, str]], mark: str, label: str, flaws: list[CorpusFlaw]
) -> Iterator[tuple[int, list[str]]]:
    """Parse rows with the line each starts on.

    After a broken row, parsing continues with the next line.
    """
    waiting: deque[tuple[int, str]] = deque()
    taken: list[tuple[int, str]] = []

    def fed() -> Iterator[str]:
        while (one := waiting.popleft() if waiting else next(lines, None)) is not None:
            taken.append(one)
            yield f"{one[1]}\n"

    reader, width = csv.reader(fed(), strict=True, delimiter=mark), 0
    while True:
        taken.clear()
        try:
            cells = next(reader, None)
            if cells is None:
                return
            width = width or len(cells)
            if not _has_swallowed_rows(taken[1:], width, mark):
                yield taken[0][0], cells
                continue
            said = UNCLOSED_QUOTE_MESSAGE
        except csv.Error as error:
            said = UNCLOSED_QUOTE_MESSAGE if len(taken) > 1 or "end of data" in str(error) else UNDOUBLED_QUOTE_MESSAGE
            said = (
                said
                if "expected after" in str(error) or said == UNCLOSED_QUOTE_MESSAGE
                else f"the table is broken ({error})"
            )
        flaws.append(CorpusFlaw("unreadable", f"{label}:{taken[0][0]}", said))
        waiting.extendleft(reversed(taken[1:]))
        reader = csv.reader(fed(), strict=True, delimiter=mark)


def _has_swallowed_rows(inner: Sequence[tuple[int, str]], width: int, mark: str) -> bool:
    """Return whether all lines inside a cell look like rows: a quote was not closed."""
    rows = [line.split(mark) for _, line in inner]
    return len(rows) >= MIN_SWALLOWED_ROWS and all(len(one) == width > 1 and len(one[0].split()) == 1 for one in rows)


def _match_row_to_header(
    where: str,
    header: Sequence[str],
    cells: Sequence[str],
    names: FieldNames,
    flaws: list[CorpusFlaw],
    first: str = "header",
) -> LocatedRows:
    """Yield a row by column names, or record a flaw.

    A flaw is a value without a column name, or a row that ends before its text.
    """
    row = dict(zip(header, cells, strict=False))
    texts = {*names.texts, TITLE_FIELD} & {*header}
    if any(cell.strip() for cell in cells[len(header) :]) or (texts and not texts & {*row}):
        many = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        flaws.append(CorpusFlaw("unreadable", where, f"{many}, the {first} has {len(header)}"))
    else:
        yield where, row


def _to_fields(id: str, text: str, names: FieldNames) -> dict[str, str]:
    return {names.ids[0]: id, names.texts[0]: text}


def _add_id(thing: Any, key: str, name: str) -> Any:
    """Add an id that is outside of its object."""
    return {key: name, **thing} if isinstance(thing, dict) else thing


def _is_corpus_header(cells: Sequence[str], names: FieldNames) -> bool:
    known = {cell.strip().strip('"').casefold() for cell in cells}
    ids, texts = ({one.casefold() for one in some} for some in (names.ids, (*names.texts, TITLE_FIELD)))
    return bool(known & ids) and bool(known & texts)


def _rows_from_parquet(source: InputFile, names: FieldNames) -> LocatedRows:
    with wrap_library_errors(source.label):
        file = scan_parquet(source.path, source.label)
        columns = list(file.collect_schema())
        called = dict(zip(columns, canonical_columns(columns, names.all), strict=True))
        wanted = {one: name for one, name in called.items() if name in names.all}
        table = file.select(list(wanted)).rename(wanted).collect() if wanted else file.collect()
    for number, row in enumerate(table.iter_rows(named=True), 1):
        yield f"{_file_name(source)}, row {number:,}", row


def _add_text_file(path: Path, root: Path, reading: LoadedCorpus) -> None:
    name = path.relative_to(root).as_posix()
    try:
        data = path.read_bytes()
    except OSError as error:
        reading.flaws.append(CorpusFlaw("unreadable", name, f"cannot be read ({error.strerror})"))
        return
    reading.ids.append(name)
    reading.places.append(name)
    if data[:2] in UTF16_MARKS:
        reading.flaws.append(CorpusFlaw("encoding", name, "the file is in UTF-16, not in UTF-8"))
        reading.texts.append(data.decode(UTF16_MARKS[data[:2]], "replace").removeprefix("\ufeff"))
    else:
        reading.texts.append(_decode_utf8(data, name, reading.flaws))


_ROW_READERS: Mapping[str, Callable[[InputFile, FieldNames, list[CorpusFlaw]], LocatedRows]] = {
    "jsonl": _rows_from_jsonl,
    "ndjson": _rows_from_jsonl,
    "json": _rows_from_json,
    "tsv": _rows_from_tsv,
    "csv": _rows_from_csv,
}
