"""Datasets in folders: BEIR layout, or tab-separated texts with TREC judgments; by path or by name in RAGAUGE_DATA."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragauge.core.documents import EMPTY_MAPPING, Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset
from ragauge.datasets.queries import tags_from_judgments
from ragauge.files.json_files import DOCUMENT_ID_FIELDS, QUERY_ID_FIELDS, TEXT_FIELDS, read_json_lines
from ragauge.files.readers import read_judgments
from ragauge.files.source import InputFile

REFERENCE_ANSWER_FIELDS = ("reference", "reference_answer", "answer", "ground_truth")
"""Field names of a reference answer in a row of the queries file."""


def find_dataset_folder(folder: Path) -> Path | None:
    """Return the folder or its `beir` subfolder, whichever holds a corpus and queries.

    None if neither does.
    """
    for place in (folder, folder / "beir"):
        if _find_file(place, "corpus") and _find_file(place, "queries"):
            return place
    return None


def dataset_name(folder: Path) -> str:
    """Return the name of a dataset folder.

    A folder called `beir` takes its parent's name.
    """
    place = folder.resolve()
    return place.parent.name if place.name == "beir" else place.name


def load_folder(folder: Path, *, split: str | None = None) -> Dataset:
    """Load a dataset folder; the corpus may be absent.

    Queries without judgments in this split are left out. Raises `BadInput` if no judged query is left.
    """
    place = find_dataset_folder(folder) or next(
        (one for one in (folder, folder / "beir") if _find_file(one, "queries")), None
    )
    if place is None:
        raise BadInput(
            "not a dataset; expected corpus.jsonl, queries.jsonl and qrels/ as in BEIR",
            file=str(folder),
            hint="corpus.jsonl may be absent for systems that bring their own index",
        )
    documents = read_documents(place) if _find_file(place, "corpus") else []
    plain = place / "qrels.txt"
    judgments = read_judgments(plain if plain.exists() else place, split=split)
    grades = judgments.nested
    asked = read_queries(place)
    queries = {name: asked[name] for name in asked if name in grades}
    if not queries:
        raise BadInput("no query has judgments", file=str(place))
    return Dataset(
        name=dataset_name(folder),
        documents=documents,
        queries=queries,
        judgments=judgments,
        answers={name: text for name, text in read_answers(place).items() if name in queries},
        tags={name: tags_from_judgments(grades[name]) for name in queries},
        about=str(folder),
    )


def read_documents(path: Path) -> list[Document]:
    """Read documents from a JSONL or tab-separated file, or from a dataset folder."""
    return [
        Document(name, _document_text(row), str(row.get("title") or ""), _row_metadata(row))
        for name, row in _read_rows(path, "corpus")
    ]


def _row_metadata(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `metadata` field.

    A value that is not a mapping is stored under the key `metadata`.
    """
    held = row.get("metadata") or EMPTY_MAPPING
    return held if isinstance(held, Mapping) else {"metadata": held}


def _document_text(row: Mapping[str, Any]) -> str:
    found = (row[key] for key in TEXT_FIELDS if isinstance(row.get(key), str | int | float))
    return str(next(found, row.get("text") or ""))


def read_queries(path: Path) -> dict[str, str]:
    """Read query texts by id from a file or a dataset folder.

    The file is JSONL or tab-separated.
    """
    return {name: str(row.get("text") or row.get("query") or "") for name, row in _read_rows(path, "queries")}


def read_answers(path: Path) -> dict[str, str]:
    """Read the reference answers in the queries file, by query id.

    Queries without one are left out.
    """
    found = (
        (name, next((row[key] for key in REFERENCE_ANSWER_FIELDS if row.get(key)), None))
        for name, row in _read_rows(path, "queries")
    )
    return {name: text for name, text in found if isinstance(text, str)}


def _find_file(folder: Path, stem: str) -> Path | None:
    for ending in (".jsonl", ".tsv"):
        found = sorted(folder.glob(f"{stem}{ending}*"))
        if found:
            return found[0]
    return None


def _read_rows(place: Path, stem: str) -> Iterator[tuple[str, dict[str, Any]]]:
    path = _find_file(find_dataset_folder(place) or place, stem) if place.is_dir() else place
    if path is None:
        raise BadInput(f"no {stem}.jsonl is here", file=str(place))
    source = InputFile(str(path))
    names = DOCUMENT_ID_FIELDS if stem == "corpus" else QUERY_ID_FIELDS
    seen: set[str] = set()
    for line, row in read_json_lines(source) if source.ending == ".jsonl" else _read_tab_lines(source):
        name = next((str(row[key]) for key in names if row.get(key) is not None), None)
        if name is None:
            raise BadInput(f"expected an id ({', '.join(names)})", file=source.label, line=line)
        if name in seen:
            raise BadInput(f"the id `{name}` comes twice", file=source.label, line=line)
        seen.add(name)
        yield name, row


def _read_tab_lines(source: InputFile) -> Iterator[tuple[int, dict[str, Any]]]:
    line = 0
    for block in source.blocks():
        for text in block.decode("utf-8", "replace").splitlines():
            line += 1
            name, tab, rest = text.partition("\t")
            if not tab:
                raise BadInput("expected an id, a tab and a text", file=source.label, line=line)
            yield line, {"id": name, "text": rest}


def data_folder() -> Path | None:
    """Return the folder given by RAGAUGE_DATA.

    None if unset. Raises `BadInput` if it does not exist.
    """
    named = os.environ.get("RAGAUGE_DATA")
    if not named:
        return None
    if not Path(named).is_dir():
        raise BadInput("no such folder", file=named, hint="RAGAUGE_DATA is a folder of BEIR folders")
    return Path(named)


def find_named_folder(name: str) -> Path | None:
    """Find a dataset folder in RAGAUGE_DATA by its name; None if there is none."""
    folder = data_folder()
    if folder is None or name in ("", ".", "..") or Path(name).name != name:
        return None
    return folder / name if (folder / name).is_dir() else None


def list_json_files(folder: Path) -> list[Path]:
    """List the JSON files of a folder, which may be STIX bundles."""
    return sorted(one for one in folder.iterdir() if one.name.endswith((".json", ".json.gz")))


def find_bundle(name: str) -> str:
    """Find the path of a STIX bundle by path or name.

    The name is a file, a folder, or the name of a folder in RAGAUGE_DATA. A name that is not a folder is returned
    unchanged. Raises `BadInput` unless the folder has exactly one JSON file.
    """
    folder = Path(name) if Path(name).exists() else find_named_folder(name)
    if folder is None or not folder.is_dir():
        return name
    found = list_json_files(folder)
    if len(found) == 1:
        return str(found[0])
    several = f"{len(found)} JSON files, and a bundle is one" if found else "no JSON file"
    raise BadInput(f"the folder has {several}", file=str(folder), hint="stix:FILE names a bundle by its path")
