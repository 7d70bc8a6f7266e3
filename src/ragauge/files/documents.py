"""Documents of a corpus: files of rows, text files and folders.

What cannot be read is refused, and entries without an id or with a duplicate one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING, Document
from ragauge.core.errors import BadInput
from ragauge.core.ids import format_id
from ragauge.files.document_rows import (
    DOCUMENT_FIELDS,
    METADATA_FIELD,
    ROW_FORMATS,
    FieldNames,
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


class LoadedCorpus(NamedTuple):
    """Documents of a corpus in their order."""

    name: str
    documents: list[Document]


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


def read_corpus(path: str | Path) -> LoadedCorpus:
    """Read the documents of a file of rows, of a text file, of a BEIR folder, or of a folder of text files.

    `-` is standard input. Raise BadInput if a folder has no documents.
    """
    source, folder = InputFile(str(path)), Path(path)
    if source.path == "-" or not folder.is_dir():
        name = source.label if source.path == "-" else folder.name
        is_text = is_text_file(source)
        return LoadedCorpus(name, _read_text_files([folder], folder.parent) if is_text else _read_rows(source.path))
    name, folder = folder.resolve().name, find_texts_folder(folder)
    files = find_corpus_files(folder)._replace(name=name)
    documents = _read_text_files(files.files, folder) if files.is_text else _read_rows(files.files[0])
    return LoadedCorpus(files.name, documents)


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


def _read_rows(path: str | Path) -> list[Document]:
    rows = open_rows(path, DOCUMENT_FIELDS)
    documents: list[Document] = []
    ids: set[str] = set()
    for number, row in rows.rows():
        location = rows.location(number)
        document = _to_document(row, location)
        check_row_id(document.id, ids, location, DOCUMENT_FIELDS)
        documents.append(document)
    return documents


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


def _to_document(row: Mapping[str, Any], location: RowLocation) -> Document:
    """Convert a row to a document. Raise BadInput if its text cannot be read."""
    text_fields = [key for key in DOCUMENT_FIELDS.texts if row.get(key) is not None]
    key = next((key for key in text_fields if not isinstance(row[key], list | tuple | dict)), None)
    if text_fields and key is None:
        raise location.error(f"`{text_fields[0]}` must be a text, got {describe_json_type(row[text_fields[0]])}")
    title = row.get(TITLE_FIELD)
    return Document(
        find_row_id(row, DOCUMENT_FIELDS),
        "" if key is None else str(row[key]),
        str(title) if isinstance(title, str | int | float) else "",
        _row_metadata(row),
    )


def _row_metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `metadata` field.

    A value that is not a mapping is stored under the key `metadata`.
    """
    metadata = row.get(METADATA_FIELD) or EMPTY_MAPPING
    return metadata if isinstance(metadata, Mapping) else {METADATA_FIELD: metadata}


def _read_text_files(files: Sequence[Path], root: Path) -> list[Document]:
    """Read text files; the id of a document is its path relative to `root`."""
    documents: list[Document] = []
    for file in files:
        name = file.relative_to(root).as_posix()
        text = decode_text(_read_bytes(file), RowLocation(name, label=str(file)))
        documents.append(Document(name, text.replace("\r\n", "\n").replace("\r", "\n")))
    return documents


def _read_bytes(file: Path) -> bytes:
    """Read a text file. A byte order mark stays part of the text, as in most readers."""
    if file.suffix in PACKED_ENDINGS[1:]:
        with InputFile(str(file)).open() as stream:
            return stream.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})", file=str(file)) from None
