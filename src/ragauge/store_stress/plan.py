"""Settings, worker tasks and data files of a stress test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np

from ragauge.core.documents import Document
from ragauge.core.protocols import Vectors
from ragauge.core.settings import Above, AtLeast, AtMost, OneOf, check_settings
from ragauge.core.structured_text import parse_json
from ragauge.files.workspace import atomic_write

INGESTION_MODES = ("one by one", "in batches")
"""How documents are ingested."""


@dataclass(frozen=True)
class StressSettings:
    modes: Sequence[Annotated[str, OneOf(INGESTION_MODES)]] = INGESTION_MODES
    batch: Annotated[int, AtLeast(1), AtMost(10_000_000)] = 100
    """Documents per put in the mode `in batches`."""
    commit_every: Annotated[int, AtLeast(1)] | None = None
    """Number of documents between commits; None commits once, at the end.

    Before a kill, the store commits earlier in any case.
    """
    k: Annotated[int, AtLeast(1), AtMost(10_000_000)] = 10
    queries: Annotated[int, AtLeast(0), AtMost(10_000_000)] = 500
    """Maximum number of queries."""
    kills: Annotated[int, AtLeast(0), AtMost(1000)] = 3
    """Number of kills per ingestion mode."""
    kill_at: Sequence[Annotated[int, AtLeast(0)]] | None = None
    """Document numbers to kill at; None chooses them at random, spread over the documents."""
    timeout: Annotated[float, Above(0)] = 120.0
    """Time limit for one call of the store, in seconds."""
    seed: int = 0
    bisect: bool = True
    """Whether to search for the shortest failing prefix."""

    def __post_init__(self) -> None:
        check_settings(self)

    def size(self, mode: str) -> int:
        """Return the number of documents per put in an ingestion mode."""
        return 1 if mode == INGESTION_MODES[0] else self.batch


class StressOptions(TypedDict, total=False):
    """Keywords of `ragauge.stress`: the fields of `StressSettings`."""

    modes: Sequence[str]
    batch: int
    commit_every: int | None
    k: int
    queries: int
    kills: int
    kill_at: Sequence[int] | None
    timeout: float
    seed: int
    bisect: bool


@dataclass(frozen=True)
class StressWorkerTask:
    """Task of one worker process: open a store, run some steps, close it."""

    store: str
    folder: str
    """Folder of the store."""
    data: str
    """Folder with documents, queries and vectors."""
    steps: Sequence[str]
    """Steps to run, in this order: some of `put`, `read`, `search`, `replace`."""
    start: int
    stop: int
    """Range of documents to put."""
    n_required: int
    """Number of documents that must be present when reading."""
    n_allowed: int
    """Number of documents that may be present when reading."""
    batch: int
    commit_every: int | None
    k: int
    seed: int
    wait_for_kill: bool = False
    """Whether to wait for the kill at the end instead of committing and closing."""


def write_stress_data(
    folder: Path, documents: Sequence[Document], vectors: Vectors, queries: Mapping[str, str], query_vectors: Vectors
) -> None:
    """Write documents, queries and vectors to a folder that all workers read."""
    folder.mkdir(parents=True, exist_ok=True)
    write_documents(folder / "documents.jsonl", documents)
    (folder / "queries.json").write_text(json.dumps(dict(queries)), encoding="utf-8")
    np.save(folder / "vectors.npy", vectors, allow_pickle=False)
    np.save(folder / "query_vectors.npy", query_vectors, allow_pickle=False)


def write_documents(path: Path, documents: Sequence[Document]) -> None:
    """Write documents as BEIR JSON lines, with non-ASCII characters escaped.

    Escaping keeps every character, including lone surrogates.
    """
    with atomic_write(path) as out:
        for document in documents:
            row = {
                "_id": document.id,
                "title": document.title,
                "text": document.text,
                "metadata": dict(document.metadata),
            }
            out.write(json.dumps(row, default=str).encode("ascii") + b"\n")


def read_documents(folder: Path) -> list[Document]:
    """Read the documents that `write_stress_data` wrote."""
    with (folder / "documents.jsonl").open(encoding="ascii") as lines:
        rows = map(json.loads, lines)
        return [Document(row["_id"], row["text"], row["title"], row["metadata"]) for row in rows]


def read_queries(folder: Path) -> dict[str, str]:
    """Read the queries that `write_stress_data` wrote."""
    queries: dict[str, str] = parse_json((folder / "queries.json").read_text(encoding="utf-8"))
    return queries


def read_vectors(folder: Path, name: str) -> Vectors:
    """Read vectors: `vectors` of the documents or `query_vectors` of the queries."""
    vectors: Vectors = np.load(folder / f"{name}.npy", allow_pickle=False)
    return vectors


def to_json_safe(value: Any) -> Any:
    """Convert a value to JSON types; other types become text."""
    return json.loads(json.dumps(value, default=str))
