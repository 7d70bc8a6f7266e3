"""Datasets in folders: BEIR layout, or other files of texts with TREC judgments; by path or name in RAGAUGE_DATA."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset
from ragauge.datasets.queries import tags_from_judgments
from ragauge.files.document_rows import QUERY_FIELDS, ROW_FORMATS, open_rows
from ragauge.files.documents import TEXTS_FOLDER, check_row_id, find_row_id, find_rows_files, read_corpus
from ragauge.files.readers import find_targets_file, read_judgments, read_targets

QUERY_FILE_ENDINGS = tuple(ending for ending in ROW_FORMATS if ending != ".parquet")
"""Endings of a queries file in a dataset folder. `queries.parquet` is in the folders that `run` writes."""
REFERENCE_ANSWER_FIELDS = ("reference", "reference_answer", "answer", "ground_truth")
"""Field names of a reference answer in a row of the queries file."""


def find_dataset_folder(folder: Path) -> Path | None:
    """Return the folder or its `beir` subfolder, whichever holds a corpus and queries.

    None if neither does.
    """
    for candidate in (folder, folder / "beir"):
        if has_corpus(candidate) and find_queries_file(candidate):
            return candidate
    return None


def has_corpus(folder: Path) -> bool:
    """Return whether a dataset folder has a corpus: a file of rows, or text files in `corpus/`."""
    return bool(find_rows_files(folder, "corpus")) or (folder / TEXTS_FOLDER).is_dir()


def dataset_name(folder: Path) -> str:
    """Return the name of a dataset folder; `RAGAUGE_DATA/NAME/beir` is the dataset NAME."""
    resolved = folder.resolve()
    home = os.environ.get("RAGAUGE_DATA")
    is_subfolder = bool(home) and resolved.name == "beir" and resolved.parent.parent == Path(str(home)).resolve()
    return resolved.parent.name if is_subfolder else resolved.name


def load_folder(folder: Path, *, split: str | None = None) -> Dataset:
    """Load a dataset folder; the corpus may be absent.

    Queries without judgments in this split are left out. Raises `BadInput` if no judged query is left.
    """
    dataset_folder = find_dataset_folder(folder) or next(
        (candidate for candidate in (folder, folder / "beir") if find_queries_file(candidate)), None
    )
    if dataset_folder is None:
        is_text = any(any(folder.glob(pattern)) for pattern in ("*.md", "*.txt", "*.rst"))
        raise BadInput(
            "not a dataset; expected corpus.jsonl, queries.jsonl and qrels/ as in BEIR",
            file=str(folder),
            hint="a folder of texts has no queries: build a Dataset in Python, see docs/tutorial_folder.md"
            if is_text
            else "corpus.jsonl may be absent for systems that bring their own index",
        )
    documents = read_documents(dataset_folder) if has_corpus(dataset_folder) else []
    plain = dataset_folder / "qrels.txt"
    judgments = read_judgments(plain if plain.exists() else dataset_folder, split=split)
    targets = find_targets_file(dataset_folder)
    grades = judgments.nested
    all_queries = read_queries(dataset_folder)
    queries = {name: all_queries[name] for name in all_queries if name in grades}
    if not queries:
        raise BadInput("no query has judgments", file=str(dataset_folder))
    return Dataset(
        name=dataset_name(folder),
        documents=documents,
        queries=queries,
        judgments=judgments,
        answers={name: text for name, text in read_answers(dataset_folder).items() if name in queries},
        tags={name: tags_from_judgments(grades[name]) for name in queries},
        about=str(folder),
        targets=None if targets is None else read_targets(targets),
    )


def read_documents(path: Path) -> list[Document]:
    """Read documents from a file or a folder, in any format of `read_corpus`."""
    return read_corpus(path).documents


def read_queries(path: Path) -> dict[str, str]:
    """Read query texts by id from a file or a dataset folder."""
    return {name: str(row.get("text") or row.get("query") or "") for name, row in _read_query_rows(path)}


def read_answers(path: Path) -> dict[str, str]:
    """Read the reference answers in the queries file, by query id.

    Queries without one are left out.
    """
    answers = (
        (name, next((row[key] for key in REFERENCE_ANSWER_FIELDS if row.get(key)), None))
        for name, row in _read_query_rows(path)
    )
    return {name: text for name, text in answers if isinstance(text, str)}


def find_queries_file(folder: Path) -> Path | None:
    """Return the queries file of a dataset folder; None if there is none."""
    return next(iter(find_rows_files(folder, "queries", QUERY_FILE_ENDINGS)), None)


def _read_query_rows(source: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    path = find_queries_file(find_dataset_folder(source) or source) if source.is_dir() else source
    if path is None:
        raise BadInput("no queries.jsonl found", file=str(source))
    rows = open_rows(path, QUERY_FIELDS)
    seen_ids: set[str] = set()
    for number, row in rows.rows():
        name = find_row_id(row, QUERY_FIELDS)
        check_row_id(name, seen_ids, rows.location(number), QUERY_FIELDS)
        yield name, row


def data_folder() -> Path | None:
    """Return the folder given by RAGAUGE_DATA.

    None if unset. Raises `BadInput` if it does not exist.
    """
    folder = os.environ.get("RAGAUGE_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise BadInput("no such folder", file=folder, hint="set RAGAUGE_DATA to a folder of BEIR folders")
    return Path(folder)


def is_builtin_name(name: str) -> bool:
    """Return whether a name stands for a dataset that does not come from a folder."""
    return name == "pydocs" or name.startswith(("synthetic:", "stix:"))


def find_named_folder(name: str) -> Path | None:
    """Find a dataset folder in RAGAUGE_DATA by its name; None if there is none."""
    if name in ("", ".", "..") or Path(name).name != name or is_builtin_name(name):
        return None
    folder = data_folder()
    return folder / name if folder is not None and (folder / name).is_dir() else None


def list_json_files(folder: Path) -> list[Path]:
    """List the JSON files of a folder, which may be STIX bundles."""
    return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))


def find_bundle(name: str) -> str:
    """Find the path of a STIX bundle by path or name.

    The name is a file, a folder, or the name of a folder in RAGAUGE_DATA. A name that is not a folder is returned
    unchanged. Raises `BadInput` unless the folder has exactly one JSON file.
    """
    folder = Path(name) if Path(name).exists() else find_named_folder(name)
    if folder is None or not folder.is_dir():
        return name
    files = list_json_files(folder)
    if len(files) == 1:
        return str(files[0])
    several = f"{len(files)} JSON files, and a bundle is one" if files else "no JSON file"
    raise BadInput(f"the folder has {several}", file=str(folder), hint="stix:FILE names a bundle by its path")
