"""Find and load the documents and query texts that belong to judgments and runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragauge.datasets import folders
from ragauge.datasets.loading import load
from ragauge.errors import BadInput, RagaugeError
from ragauge.records import Dataset, Document, to_documents
from ragauge.runs.manifest import documents_hash


@dataclass(frozen=True)
class Texts:
    """Documents, query texts and reference answers, as far as they are available."""

    documents: Sequence[Document] | None = None
    queries: Mapping[str, str] | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    """Reference answers by query id; empty if the dataset has none."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Reason why a field (`documents`, `queries`) is None, by field name; empty if unknown."""


def texts_of(qrels: Any, documents: Any, queries: Any, split: str | None = None) -> Texts:
    """Load documents and queries, by default those of the dataset with the judgments."""
    known = _collection(qrels, split) if documents is None or queries is None else None
    if isinstance(documents, str | Path):
        documents = _collection(documents, split) or folders.read_documents(Path(documents))
    if isinstance(documents, Dataset):
        queries = documents.queries if queries is None else queries
        documents = documents.documents
    if isinstance(queries, str | Path):
        queries = folders.read_queries(Path(queries))
    if known is not None:
        documents = known.documents if documents is None else documents
        queries = known.queries if queries is None else queries
    return Texts(None if documents is None else list(documents), queries)


def _collection(thing: Any, split: str | None) -> Dataset | None:
    """Return a dataset from an object, folder or name; None if it is not one."""
    if isinstance(thing, Dataset):
        return thing
    if not isinstance(thing, str | Path) or str(thing) == "-":
        return None
    path = Path(thing)
    if path.is_dir() and folders.find(path) is None:
        return None
    if path.is_file() or (not path.exists() and path.suffix):
        return None
    try:
        return load(thing, split=split)
    except RagaugeError:
        return None


def texts_of_runs(manifests: Sequence[Mapping[str, Any]], texts: Texts, name: str = "") -> Texts:
    """Load the texts of the dataset that run folders were made on.

    The dataset is searched at the path stored in the manifests, then by name. Its documents are used only if their hash
    matches the stored one; otherwise `absent` says why there are none.
    """
    made_on = [one.get("dataset") or {} for one in manifests]
    if made_on and all(one.get("documents") == 0 for one in made_on):
        return _texts_without_corpus([one.get("origin") for one in manifests], texts)
    wanted = {one.get("documents_hash") for one in made_on} - {None}
    places = [str(one.get("origin") or "") for one in manifests]
    names = [name, *(str(one.get("name") or "") for one in made_on)]
    why = ""
    for place in dict.fromkeys(filter(None, [*places, *names])):
        try:
            found = _read(place)
        except RagaugeError as error:
            why = why or (
                f"{place} is no longer there: --dataset says where it is"
                if Path(place).is_absolute() and not Path(place).exists()
                else f"the dataset {place} cannot be loaded ({error.message}): --dataset says where it is"
            )
            continue
        if found.documents is not None and not wanted - {documents_hash(found.documents)}:
            return replace(found, queries=texts.queries or found.queries)
        why = f"the documents of {place} are not those that the runs were made on"
    return Texts(None, texts.queries, absent={"documents": why, "queries": why} if why else {})


def _texts_without_corpus(origins: Sequence[Any], texts: Texts) -> Texts:
    """Load queries and reference answers of a dataset without a corpus, if it exists."""
    for origin in origins:
        if isinstance(origin, str) and Path(origin).is_absolute() and Path(origin).exists():
            with contextlib.suppress(RagaugeError):
                found = load(origin)
                return Texts(None, texts.queries or found.queries, found.answers)
    return Texts(None, texts.queries)


def _read(place: str) -> Texts:
    """Load the texts of a dataset by its absolute path or its name."""
    if Path(place).is_absolute():
        folder = Path(place)
        return Texts(folders.read_documents(folder), folders.read_queries(folder), folders.read_answers(folder))
    found = load(place)
    return Texts(found.documents, found.queries, found.answers)


PAGES = (".txt", ".md")
"""Suffixes of files that are one document each."""


def documents_of(what: Any) -> list[Document]:
    """Load documents from a list, dataset, name, folder, corpus file or text files.

    A `.txt` or `.md` file is one document. A folder of such files has one document per file, with the relative path of
    the file as its id.
    """
    if isinstance(what, Dataset):
        return list(what.documents)
    if not isinstance(what, str | Path):
        return list(to_documents(what))
    path = Path(what)
    if path.is_file() and path.suffix in PAGES:
        return [_page(path, path.name)]
    if path.is_file() or (not path.exists() and path.suffix and ":" not in str(what)):
        return folders.read_documents(path)
    if path.is_dir() and folders.find(path) is None:
        pages = _pages(path)
        if pages:
            return [_page(one, one.relative_to(path).as_posix()) for one in pages]
        return folders.read_documents(path)
    return list(load(what).documents)


def _pages(folder: Path) -> list[Path]:
    """List the text files of a folder; none if it has a corpus file."""
    if any(folder.glob("corpus.*")):
        return []
    return sorted(one for one in folder.rglob("*") if one.suffix in PAGES and one.is_file())


def describe_unread(what: Any) -> list[str]:
    """Return a note that names the files of a folder that are not documents."""
    path = Path(what) if isinstance(what, str | Path) else None
    if path is None or not path.is_dir() or folders.find(path) is not None or not (pages := _pages(path)):
        return []
    every = (one for one in sorted(path.rglob("*")) if one.is_file() and one not in set(pages))
    names = [one.relative_to(path).as_posix() for one in every]
    names = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    if not names:
        return []
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    files = "1 file was" if len(names) == 1 else f"{len(names):,} files were"
    return [f"{what}: {files} not read ({shown}); only {' and '.join(PAGES)} files are documents"]


def _page(path: Path, name: str) -> Document:
    try:
        return Document(name, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"this is no UTF-8 text: {error.reason} at byte {error.start}", file=str(path)) from error
    except OSError as error:
        raise BadInput(f"it cannot be read: {error.strerror}", file=str(path)) from error
