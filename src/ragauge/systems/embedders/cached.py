"""Vectors that were computed once: on disk, keyed by model and text."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from ragauge.errors import BadInput
from ragauge.seams import Embedder, Vectors

MANY = 500
"""Keys asked for at once; SQLite takes 999 parameters everywhere."""


class Cached:
    """An embedder in front of which stands a file; equal texts are embedded once, also within one call.

    Dense systems put it before the documents only: a cached query would be timed as if embedding cost nothing.
    """

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self.name = embedder.name
        slug = hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()
        self._path = folder / f"{slug}.sqlite"
        self._lock = threading.Lock()
        self.hits = self.misses = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as file, file:
                file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        except (OSError, sqlite3.DatabaseError) as error:
            raise BadInput(
                f"vectors cannot be kept here: {error}",
                file=str(self._path),
                hint="delete the file, or set RAGAUGE_CACHE to another folder",
            ) from error

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=60)
        file.execute("PRAGMA journal_mode=WAL")
        return file

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        keys = [self._key(text) for text in texts]
        with self._lock, closing(self._open()) as file:
            found = self._look_up(file, list(dict.fromkeys(keys)))
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
            self.hits += len(texts) - len(missing)
            self.misses += len(missing)
            if missing:
                made = np.ascontiguousarray(self._embedder.embed(list(missing.values())), np.float32)
                if len(made) != len(missing):
                    raise BadInput(f"the embedder `{self.name}` gave {len(made)} vectors for {len(missing)} texts")
                rows = dict(zip(missing, (row.tobytes() for row in made), strict=True))
                with file:
                    file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows.items())
                found.update(rows)
        if not keys:
            return self._embedder.embed([])
        if len({len(row) for row in found.values()}) > 1:
            # Laid side by side they would pass for vectors of a third length.
            raise BadInput(
                f"two embedders of different dimensions are called `{self.name}`", hint=f"delete {self._path}"
            )
        return np.frombuffer(b"".join(found[key] for key in keys), np.float32).reshape(len(keys), -1).copy()

    def _key(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self.name}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

    @staticmethod
    def _look_up(file: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for start in range(0, len(keys), MANY):
            part = keys[start : start + MANY]
            marks = ",".join("?" * len(part))
            # Only question marks are put into the statement.
            found.update(file.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part))  # noqa: S608
        return found
