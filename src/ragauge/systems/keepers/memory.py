"""Document stores: how they are opened, and what their engine adapters share."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ragauge.records import Document, Hit
from ragauge.structured_text import parse_json
from ragauge.systems.keepers.columns import EVERYTHING, document, matrix, query, written
from ragauge.systems.stores.intake import Matrix, unit

FILE = "journal.jsonl"


class Memory:
    """Reference document store: a dictionary, searched by exact cosine similarity.

    With a folder, each document is also written as a line of a journal, which `commit` flushes to disk and the next
    opening reads. An incomplete last line, left by a killed process, was not committed and is cut off.
    """

    keeps = EVERYTHING
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int) -> None:
        self._dimension = dimension
        self._documents: dict[str, Document] = {}
        self._vectors: dict[str, Matrix] = {}
        self._journal: IO[bytes] | None = None
        if path is not None:
            Path(path).mkdir(parents=True, exist_ok=True)
            self._journal = (Path(path) / FILE).open("ab+")
            self._replay(self._journal)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        for one, vector in zip(documents, matrix(documents, vectors, self._dimension), strict=True):
            self._documents[one.id], self._vectors[one.id] = one, vector.copy()
            if self._journal is not None:
                row = [one.id, one.text, one.title, written(one.metadata), base64.b64encode(vector.tobytes()).decode()]
                self._journal.write(json.dumps(row).encode() + b"\n")

    def commit(self) -> None:
        """Flush the journal to disk."""
        if self._journal is not None:
            self._journal.flush()
            os.fsync(self._journal.fileno())

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        return [self._documents.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        return list(self._documents)

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity, by brute force."""
        asked = unit(query(vector, self._dimension)[None])[0].astype(np.float64)
        if not self._vectors:
            return []
        names = list(self._vectors)
        cosines = unit(np.stack([self._vectors[name] for name in names])).astype(np.float64) @ asked
        best = np.argsort(-cosines, kind="stable")[:k]
        return [Hit(names[place], float(cosines[place]), self._documents[names[place]].text) for place in best]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {"keeper": "memory", "index": "none", "size": len(self._documents), "dimension": self._dimension}

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()

    def _replay(self, journal: IO[bytes]) -> None:
        journal.seek(0)
        whole = 0
        for line in journal:
            if not line.endswith(b"\n"):
                break
            name, text, title, about, vector = parse_json(line)
            self._documents[name] = document(name, text, title, about)
            self._vectors[name] = np.frombuffer(base64.b64decode(vector), dtype=np.float32)
            whole += len(line)
        journal.truncate(whole)
