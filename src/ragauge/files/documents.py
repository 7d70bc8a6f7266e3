"""Documents of a corpus: files of rows, text files and folders, read strictly or leniently.

Lenient reading records what cannot be read as a flaw and skips it. Strict reading refuses it, and entries without an
id or with a duplicate one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING, Document, to_documents
from ragauge.core.errors import BadInput
from ragauge.core.ids import format_id
from ragauge.files.document_rows import (
    DOCUMENT_FIELDS,
    METADATA_FIELD,
    ROW_FORMATS,
    CorpusFlaw,
    FieldNames,
    FlawLog,
    RowLocation,
    decode_text,
    open_rows,
)
from ragauge.files.json_files import TITLE_FIELD, describe_json_type
from ragauge.files.source import InputFile

TEXT_ENDINGS = (".txt", ".md", ".markdown", ".rst")
"""Endings of files that are one document each."""
PACKED_ENDINGS = ("", ".gz", ".zst")
ROWS_IN_TEXT_PATTERN = re.compile(r"\{|\[\s*(\{|$)|\S+\t\S")
"""Start of each of the first lines of a `.txt` file that has rows: JSON, or an id, a tab and a text."""


@dataclass(eq=False)
class LoadedCorpus:
    """Documents of a corpus in their order, and the flaws found while reading."""

    name: str
    documents: list[Document] = field(default_factory=list)
    """The id is empty if a document has none."""
    locations: list[str] = field(default_factory=list)
    """File and line of each document, or its number; empty after strict reading."""
    flaws: list[CorpusFlaw] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.documents)

    @cached_property
    def ids(self) -> list[str | None]:
        """Ids of the documents; None if a document has no id."""
        return [document.id or None for document in self.documents]

    @cached_property
    def texts(self) -> list[str]:
        """Title and text, as passed to embedders."""
        return [document.whole for document in self.documents]

    def called(self, position: int) -> str:
        """Describe a document in messages by its id and location."""
        name = self.ids[position]
        location = self.locations[position]
        return location if name in (None, location) else f"{name} ({location})"


TEXTS_FOLDER = "corpus"
"""Name of the folder with the text files of a BEIR folder."""


class CorpusFiles(NamedTuple):
    """Files of a folder that have its documents."""

    name: str
    files: Sequence[Path]
    """One file of rows, or text files."""
    unread: Sequence[Path]
    """Other files of the folder, which are not documents."""
    is_text: bool


def read_corpus(path: str | Path, names: FieldNames = DOCUMENT_FIELDS, *, lenient: bool = False) -> LoadedCorpus:
    """Read the documents of a file of rows, of a text file, of a BEIR folder, or of a folder of text files.

    `-` is standard input. Raise BadInput if a folder has no documents.
    """
    log = FlawLog(lenient)
    source, folder = InputFile(str(path)), Path(path)
    if source.path == "-" or not folder.is_dir():
        name = source.label if source.path == "-" else folder.name
        if is_text_file(source):
            return _read_text_files(CorpusFiles(name, [folder], [], is_text=True), folder.parent, log)
        return _read_rows(name, source.path, names, log)
    name, folder = folder.resolve().name, find_texts_folder(folder)
    files = find_corpus_files(folder)._replace(name=name)
    root = folder if files.is_text else files.files[0].parent
    corpus = _read_text_files(files, root, log) if files.is_text else _read_rows(files.name, files.files[0], names, log)
    corpus.flaws.extend(
        CorpusFlaw("unread", file.relative_to(root).as_posix(), file.suffix.lower()) for file in files.unread
    )
    return corpus


def is_text_file(source: InputFile) -> bool:
    """Return whether a file is one document. A `.txt` file whose lines are rows is not."""
    if source.ending not in TEXT_ENDINGS:
        return False
    if source.ending != ".txt" or not Path(source.path).exists():
        return True
    head = source.head()
    return not head or not all(ROWS_IN_TEXT_PATTERN.match(line) for line in head)


def find_rows_files(folder: Path, stem: str, endings: Iterable[str] = tuple(ROW_FORMATS)) -> list[Path]:
    """List the files of rows with a name in a folder: `corpus.jsonl`, `corpus.tsv.gz` and others."""
    names = (f"{stem}{ending}{packed}" for ending in endings for packed in PACKED_ENDINGS)
    return [folder / name for name in names if (folder / name).is_file()]


def find_texts_folder(folder: Path) -> Path:
    """Return the folder `corpus/` of a BEIR folder whose documents are text files, else the folder itself."""
    for home in (folder, folder / "beir"):
        has_texts = (home / TEXTS_FOLDER).is_dir() and not find_rows_files(home, "corpus")
        if has_texts and find_rows_files(home, "queries"):
            return home / TEXTS_FOLDER
    return folder


def find_corpus_files(folder: Path) -> CorpusFiles:
    """Find the documents of a folder: `corpus.jsonl` or another file of rows, as in BEIR; else all text files.

    Hidden files are left out.
    """
    resolved = folder.resolve()
    for home in (folder, folder / "beir"):
        if files := find_rows_files(home, "corpus"):
            return CorpusFiles(resolved.name, files[:1], files[1:], is_text=False)
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    texts = [file for file in files if InputFile(str(file)).ending in TEXT_ENDINGS]
    if not texts:
        hint = f"corpus.jsonl of a BEIR folder, or texts ({', '.join(TEXT_ENDINGS)})"
        raise BadInput("no documents found", file=str(folder), hint=hint)
    text_files = set(texts)
    return CorpusFiles(resolved.name, texts, [file for file in files if file not in text_files], is_text=True)


def _read_rows(name: str, path: str | Path, names: FieldNames, log: FlawLog) -> LoadedCorpus:
    corpus = LoadedCorpus(name, flaws=log.flaws)
    rows = open_rows(path, names, log)
    ids: set[str] = set()
    for number, row in rows.rows():
        location = rows.location(number)
        document = _to_document(row, location, names, log)
        if document is None:
            continue
        if log.lenient:
            corpus.locations.append(str(location))
        else:
            check_row_id(document.id, ids, location, names)
        corpus.documents.append(document)
    return corpus


def check_row_id(name: str, ids: set[str], location: RowLocation, names: FieldNames) -> None:
    """Add an id to those seen. Raise BadInput if it is empty or a duplicate."""
    if not name:
        raise location.error(f"expected an id ({', '.join(names.ids)})")
    if name in ids:
        raise location.error(f"the id `{name}` appears more than once")
    ids.add(name)


def find_row_id(row: Mapping[str, Any], names: FieldNames) -> str:
    """Return the id of a row; empty if it has none."""
    return format_id(next((row[key] for key in names.ids if row.get(key) is not None), None))


def _to_document(row: Mapping[str, Any], location: RowLocation, names: FieldNames, log: FlawLog) -> Document | None:
    """Convert a row to a document; None if its text cannot be read."""
    text_fields = [key for key in names.texts if row.get(key) is not None]
    key = next((key for key in text_fields if not isinstance(row[key], list | tuple | dict)), None)
    if text_fields and key is None:
        log.add(
            "unreadable", location, f"`{text_fields[0]}` must be a text, got {describe_json_type(row[text_fields[0]])}"
        )
        return None
    if key is None and not any(name in row for name in (*names.texts, TITLE_FIELD)):
        fields = ", ".join(map(str, list(row)[:6])) or "none"
        log.add("fields", location, f"no text among the fields ({fields})")
    title = row.get(TITLE_FIELD)
    return Document(
        find_row_id(row, names),
        "" if key is None else str(row[key]),
        str(title) if isinstance(title, str | int | float) else "",
        EMPTY_MAPPING if log.lenient else _row_metadata(row),
    )


def _row_metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `metadata` field.

    A value that is not a mapping is stored under the key `metadata`.
    """
    metadata = row.get(METADATA_FIELD) or EMPTY_MAPPING
    return metadata if isinstance(metadata, Mapping) else {METADATA_FIELD: metadata}


def _read_text_files(source: CorpusFiles, root: Path, log: FlawLog) -> LoadedCorpus:
    """Read text files; the id of a document is its path relative to `root`."""
    corpus = LoadedCorpus(source.name, flaws=log.flaws)
    for file in source.files:
        name = file.relative_to(root).as_posix()
        try:
            data = _read_bytes(file)
        except BadInput as error:
            if not log.lenient:
                raise
            message = error.message.removeprefix(f"{file}: ")
            corpus.flaws.append(CorpusFlaw("unreadable", name, message))
            continue
        text = decode_text(data, RowLocation(name, label=str(file)), log)
        corpus.documents.append(Document(name, text.replace("\r\n", "\n").replace("\r", "\n")))
        if log.lenient:
            corpus.locations.append(name)
    return corpus


def _read_bytes(file: Path) -> bytes:
    """Read a text file. A byte order mark stays part of the text, as in most readers; `lint` reports it."""
    if file.suffix in PACKED_ENDINGS[1:]:
        with InputFile(str(file)).open() as stream:
            return stream.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(file)) from None


def documents_from_memory(
    name: str, documents: Any, names: FieldNames = DOCUMENT_FIELDS, *, lenient: bool = False
) -> LoadedCorpus:
    """Read documents, mappings, `(id, text)` pairs or `{id: text}` in memory; leniently also texts.

    Their location is their number, from 1.
    """
    if not lenient:
        return LoadedCorpus(name, list(to_documents(documents)))
    corpus, log = LoadedCorpus(name), FlawLog()
    for number, item in enumerate(documents.items() if isinstance(documents, Mapping) else documents, 1):
        location = RowLocation("", number, "document")
        document: Document | None = None
        if isinstance(item, Document):
            document = item
        elif isinstance(item, Mapping):
            document = _to_document(item, location, names, log)
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], str):
            document = Document(str(item[0]), item[1])
        elif isinstance(item, str):
            document = Document(str(number), item)
        else:
            log.add("unreadable", location, f"a {type(item).__name__} is not a document")
        if document is not None:
            corpus.documents.append(document)
            corpus.locations.append(str(location))
    corpus.flaws.extend(log.flaws)
    return corpus
