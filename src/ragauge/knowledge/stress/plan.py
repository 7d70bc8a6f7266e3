"""What a stress test does, and the documents and queries that it does it with, as files that any process can read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import BadInput, check_count
from ragauge.records import Document
from ragauge.seams import Vectors
from ragauge.structured_text import parse_json

WAYS = ("one by one", "in batches")
"""How documents can be put in."""


@dataclass(frozen=True)
class Plan:
    """How a store is put under stress."""

    ways: Sequence[str] = WAYS
    batch: int = 100
    """Documents at a time, `in batches`."""
    commit_every: int | None = None
    """Commit after so many documents; None is once, at the end. Where it is killed, it commits before that anyway."""
    k: int = 10
    queries: int = 500
    """At most so many are asked."""
    kills: int = 3
    """How often its process is killed while documents come in."""
    kill_at: Sequence[int] | None = None
    """Or at which documents; otherwise at points that divide them, moved by chance."""
    timeout: float = 120.0
    """Seconds that a single call of the store may take."""
    seed: int = 0
    bisect: bool = True
    """Whether the shortest prefix that breaks it is looked for."""

    def __post_init__(self) -> None:
        ranges = {"batch": (1, 10**7), "k": (1, 10**7), "queries": (0, 10**7), "kills": (0, 1000)}
        for name, (low, high) in {**ranges, "commit_every": (1, 10**9)}.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), low, high)
        early = [at for at in self.kill_at or () if at < 0]
        if early:
            raise BadInput(f"kill_at is {early[0]}, and 0 is the least that makes sense")
        if not self.timeout > 0:
            raise BadInput(f"with a timeout of {self.timeout:g} seconds nothing can be done")
        for way in self.ways:
            if way not in WAYS:
                raise BadInput(f"there is no way `{way}`", hint=f"the ways are `{'` and `'.join(WAYS)}`")

    def size(self, way: str) -> int:
        """How many documents are put in at a time."""
        return 1 if way == WAYS[0] else self.batch


@dataclass(frozen=True)
class Order:
    """What one process is told to do with a store: open it, take some steps, close it."""

    store: str
    path: Sequence[str]
    """Where modules of the user's own are looked for."""
    place: str
    """The folder that the store lives in."""
    data: str
    """The folder of documents, queries and vectors."""
    results: str
    """The folder that results go to, a file for each step."""
    steps: Sequence[str]
    """Some of `put`, `read`, `search`, `replace`, to be taken in the order in which they stand here."""
    start: int
    stop: int
    """Put documents from one to the other."""
    promised: int
    """Read: so many documents must be there,"""
    possible: int
    """and so many may be."""
    batch: int
    commit_every: int | None
    k: int
    seed: int
    hold: bool = False
    """Whether it waits at the end to be killed, instead of committing and closing."""

    def text(self) -> str:
        """As it is sent."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Order:
        """As it was sent."""
        return cls(**json.loads(text))

    def result(self, step: str) -> Path:
        """The file that the result of a step goes to."""
        return Path(self.results) / f"{step}.json"


def write_data(
    folder: Path, documents: Sequence[Document], vectors: Vectors, queries: Mapping[str, str], asked: Vectors
) -> None:
    """Lay down what all processes need."""
    folder.mkdir(parents=True, exist_ok=True)
    write_documents(folder / "documents.jsonl", documents)
    (folder / "queries.json").write_text(json.dumps(dict(queries)), encoding="utf-8")
    np.save(folder / "vectors.npy", vectors, allow_pickle=False)
    np.save(folder / "asked.npy", asked, allow_pickle=False)


def write_documents(path: Path, documents: Sequence[Document]) -> None:
    """Documents as lines of JSON, as BEIR has them; every character that is not ASCII escaped, so that none is lost."""
    with path.open("w", encoding="ascii") as out:
        for one in documents:
            row = {"_id": one.id, "title": one.title, "text": one.text, "metadata": dict(one.metadata)}
            out.write(json.dumps(row, default=str) + "\n")


def read_documents(folder: Path) -> list[Document]:
    """The documents that were laid down."""
    with (folder / "documents.jsonl").open(encoding="ascii") as lines:
        rows = map(json.loads, lines)
        return [Document(row["_id"], row["text"], row["title"], row["metadata"]) for row in rows]


def read_queries(folder: Path) -> dict[str, str]:
    """The queries that were laid down."""
    found: dict[str, str] = parse_json((folder / "queries.json").read_text(encoding="utf-8"))
    return found


def read_vectors(folder: Path, name: str) -> Vectors:
    """`vectors` of the documents, or `asked` of the queries."""
    found: Vectors = np.load(folder / f"{name}.npy", allow_pickle=False)
    return found


def plain(thing: Any) -> Any:
    """What an engine says of itself, as JSON can hold it."""
    return json.loads(json.dumps(thing, default=str))
