"""A corpus as it lies there: what cannot be read is written down and passed over, never an error."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.datasets.folders import IDS
from ragauge.errors import BadInput
from ragauge.formats.files import Source
from ragauge.records import Document

TEXTS = ("text", "contents", "content", "body", "passage", "chunk", "page_content", "document", "abstract")
"""What the text of a document may be called."""
PAPERS = (".txt", ".md", ".markdown", ".rst")
"""Files of which each is a document."""
WIDE = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""What a file in UTF-16 begins with."""

Rows = Iterator[tuple[str, Mapping[str, Any]]]
"""Where a document stands, and its fields."""


class Flaw(NamedTuple):
    """Something that could not be read as it stands."""

    kind: str
    """`unreadable`: the document is lost; `bytes`: some characters are; `encoding`: it was read nevertheless;
    `fields`: it has no text under any name that is known."""
    where: str
    said: str


@dataclass(frozen=True)
class Names:
    """What fields are called, where somebody says so."""

    id: str | None = None
    text: str | None = None

    @property
    def ids(self) -> Sequence[str]:
        """Names that an id may have."""
        return IDS if self.id is None else (self.id,)

    @property
    def texts(self) -> Sequence[str]:
        """Names that a text may have."""
        return TEXTS if self.text is None else (self.text,)


@dataclass(eq=False)
class Reading:
    """The documents of a corpus in their order, and what was wrong with reading them."""

    name: str
    ids: list[str | None] = field(default_factory=list)
    """None where there is none."""
    texts: list[str] = field(default_factory=list)
    """Title and text, as embedders get them."""
    places: list[str] = field(default_factory=list)
    """File and line, or which of them it is."""
    flaws: list[Flaw] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.texts)

    def called(self, place: int) -> str:
        """A document for messages: its id and where it stands."""
        name = self.ids[place]
        where = self.places[place]
        return where if name in (None, where) else f"{name} ({where})"


def read_files(name: str, sources: Sequence[Path | str], names: Names, *, root: Path | None = None) -> Reading:
    """The documents of files, one after the other; of a folder of texts each file is one, named by its path."""
    reading = Reading(name)
    for source in sources:
        if root is not None:
            _paper(Path(source), root, reading)
        else:
            for where, row in _rows(Source(str(source)), names, reading.flaws):
                _take(where, row, names, reading)
    return reading


def read_things(name: str, things: Sequence[Any], names: Names) -> Reading:
    """Documents, mappings or bare texts; their place is their number, from 1."""
    reading = Reading(name)
    for number, thing in enumerate(things, 1):
        where = f"document {number:,}"
        if isinstance(thing, Document):
            reading.ids.append(thing.id or None)
            reading.texts.append(thing.whole)
            reading.places.append(where)
        elif isinstance(thing, Mapping):
            _take(where, thing, names, reading)
        elif isinstance(thing, str):
            reading.ids.append(str(number))
            reading.texts.append(thing)
            reading.places.append(where)
        else:
            reading.flaws.append(Flaw("unreadable", where, f"a {type(thing).__name__} is no document"))
    return reading


def _take(where: str, row: Mapping[str, Any], names: Names, reading: Reading) -> None:
    key = next((one for one in names.texts if row.get(one) is not None), None)
    if key is None and not any(one in row for one in (*names.texts, "title")):
        told = ", ".join(map(str, list(row)[:6])) or "none"
        reading.flaws.append(Flaw("fields", where, f"no text among the fields ({told})"))
    text = "" if key is None else row[key]
    if isinstance(text, list | tuple | dict):
        reading.flaws.append(Flaw("unreadable", where, f"`{key}` is {_kind(text)}, not a text"))
        return
    title = row.get("title")
    name = next((row[one] for one in names.ids if row.get(one) is not None), None)
    reading.ids.append(str(name) if name is not None and str(name).strip() else None)
    reading.texts.append(Document("", str(text), str(title) if isinstance(title, str | int | float) else "").whole)
    reading.places.append(where)


def _kind(thing: Any) -> str:
    return "an object" if isinstance(thing, dict) else "a list"


def _rows(source: Source, names: Names, flaws: list[Flaw]) -> Rows:
    if source.ending == ".parquet":
        return _parquet(source, names)
    form = source.ending.removeprefix(".")
    if form not in _FORMS:
        head = (source.head() or [""])[0].lstrip()
        form = "jsonl" if head.startswith("{") else "json" if head.startswith("[") else "tsv" if "\t" in head else ""
        if not form:
            hint = "JSONL, TSV, CSV or Parquet with ids and texts, a BEIR folder, a folder of texts, or a dataset"
            raise BadInput("this is no corpus", file=source.label, hint=hint)
    return _FORMS[form](source, names, flaws)


def _label(source: Source) -> str:
    """The file's name: which folder it is in is known."""
    return source.label if source.path == "-" else Path(source.path).name


def _lines(source: Source, flaws: list[Flaw]) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers; bytes that are no UTF-8 are replaced, and told."""
    number, opened = 0, False
    try:
        with source.open() as file:
            opened = True
            for line in file:
                if not number and line[:2] in WIDE:
                    flaws.append(Flaw("encoding", _label(source), "the file is in UTF-16, not in UTF-8"))
                    text = (line + file.read()).decode(WIDE[line[:2]], "replace").removeprefix("\ufeff")
                    yield from enumerate(text.split("\n"), 1)
                    return
                number += 1
                yield number, _decoded(line.rstrip(b"\r\n"), f"{_label(source)}:{number}", flaws)
    except BadInput as error:  # a torn archive: what came before is there
        if not opened:
            raise
        flaws.append(Flaw("unreadable", f"{_label(source)}:{number + 1}", _torn(error, source)))


def _torn(error: BadInput, source: Source) -> str:
    return f"the file {error.message.removeprefix(f'{source.label}: ')}"


def _decoded(data: bytes, where: str, flaws: list[Flaw]) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = data[error.start : error.start + 1]
        around = data[max(0, error.start - 12) : error.start + 12]
        flaws.append(Flaw("bytes", where, f"byte 0x{bad.hex()} in `{around.decode('cp1252', 'replace')}`"))
        return data.decode("utf-8", "replace").replace("\ufffd", "")  # told already, and not once more as a character


def _broken(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"the JSON is broken at column {error.colno} ({error.msg.removesuffix(' at')})"
    return f"the JSON is broken ({error})"


def _json_lines(source: Source, _names: Names, flaws: list[Flaw]) -> Rows:
    for number, line in _lines(source, flaws):
        if not line.strip():
            continue
        where = f"{_label(source)}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            flaws.append(Flaw("unreadable", where, _broken(error)))
            continue
        if isinstance(row, dict):
            yield where, row
        else:
            flaws.append(Flaw("unreadable", where, "expected an object"))


def _json(source: Source, names: Names, flaws: list[Flaw]) -> Rows:
    """A list of objects, `{"documents": […]}`, or texts or objects by id."""
    try:
        thing = json.loads("\n".join(line for _, line in _lines(source, flaws)))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        flaws.append(Flaw("unreadable", f"{_label(source)}:{line}" if line else _label(source), _broken(error)))
        return
    if isinstance(thing, dict):
        inner = next((thing[key] for key in ("documents", "docs", "corpus") if isinstance(thing.get(key), list)), None)
        key = names.ids[0]
        by_id = (
            _bare(name, one, names) if isinstance(one, str) else _with(one, key, name) for name, one in thing.items()
        )
        thing = list(by_id) if inner is None else inner
    for number, row in enumerate(thing if isinstance(thing, list) else [thing], 1):
        where = f"{_label(source)}, entry {number:,}"
        if isinstance(row, dict):
            yield where, row
        else:
            flaws.append(Flaw("unreadable", where, "expected an object"))


def _tabs(source: Source, names: Names, flaws: list[Flaw]) -> Rows:
    """An id, a tab and a text; or whatever the first line says."""
    header: list[str] = []
    for number, line in _lines(source, flaws):
        cells = line.rstrip("\r").split("\t")
        if number == 1 and _is_header(cells, names):
            header = cells
        elif header:
            yield f"{_label(source)}:{number}", dict(zip(header, cells, strict=False))
        elif len(cells) > 1:
            yield f"{_label(source)}:{number}", _bare(cells[0], "\t".join(cells[1:]), names)
        elif line.strip():
            flaws.append(Flaw("unreadable", f"{_label(source)}:{number}", "expected an id, a tab and a text"))


def _commas(source: Source, names: Names, flaws: list[Flaw]) -> Rows:
    usual = csv.field_size_limit(1 << 30)  # a document in a cell is longer than what the library expects
    try:
        lines = (f"{line}\n" for _, line in _lines(source, flaws))
        reader, header, begins = csv.reader(lines), None, 1
        for cells in reader:
            where, begins = f"{_label(source)}:{begins}", reader.line_num + 1
            if header is None:
                header = cells if _is_header(cells, names) or len(cells) != 2 else []
                if header:
                    continue
            if not any(cell.strip() for cell in cells):
                continue
            yield (
                where,
                dict(zip(header, cells, strict=False)) if header else _bare(cells[0], ",".join(cells[1:]), names),
            )
    except csv.Error as error:
        flaws.append(Flaw("unreadable", _label(source), f"the table is broken: {error}"))
    finally:
        csv.field_size_limit(usual)


def _bare(id: str, text: str, names: Names) -> dict[str, str]:
    return {names.ids[0]: id, names.texts[0]: text}


def _with(thing: Any, key: str, name: str) -> Any:
    """An object that has its id outside of it."""
    return {key: name, **thing} if isinstance(thing, dict) else thing


def _is_header(cells: Sequence[str], names: Names) -> bool:
    known = {cell.strip() for cell in cells}
    return bool(known & {*names.ids}) and bool(known & {*names.texts, "title"})


def _parquet(source: Source, names: Names) -> Rows:
    import polars as pl

    try:
        file = pl.scan_parquet(source.path, glob=False)
        wanted = [one for one in file.collect_schema() if one in (*names.ids, *names.texts, "title")]
        table = file.select(wanted).collect() if wanted else file.collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise BadInput(f"cannot be read ({str(error).partition(chr(10))[0]})", file=source.label) from None
    for number, row in enumerate(table.iter_rows(named=True), 1):
        yield f"{_label(source)}, row {number:,}", row


def _paper(path: Path, root: Path, reading: Reading) -> None:
    name = path.relative_to(root).as_posix()
    try:
        data = path.read_bytes()
    except OSError as error:
        reading.flaws.append(Flaw("unreadable", name, f"cannot be read ({error.strerror})"))
        return
    reading.ids.append(name)
    reading.places.append(name)
    if data[:2] in WIDE:
        reading.flaws.append(Flaw("encoding", name, "the file is in UTF-16, not in UTF-8"))
        reading.texts.append(data.decode(WIDE[data[:2]], "replace").removeprefix("\ufeff"))
    else:
        reading.texts.append(_decoded(data, name, reading.flaws))


_FORMS: Mapping[str, Callable[[Source, Names, list[Flaw]], Rows]] = {
    "jsonl": _json_lines,
    "ndjson": _json_lines,
    "json": _json,
    "tsv": _tabs,
    "csv": _commas,
}
