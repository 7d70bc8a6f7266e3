"""sqlite-vec: one virtual table of SQLite with ids, vectors and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.systems.stores.engines import Home

FILE = "documents.sqlite"


class SqliteVec:
    """vec0 table with the id as primary key.

    Text, title and metadata are auxiliary columns. vec0 has no upsert, so an existing row is deleted first. SQLite's
    journal and fsync settings are the defaults. Everything put in before `commit` is one transaction.
    """

    keeps = EVERYTHING
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int) -> None:
        try:
            import apsw
            import sqlite_vec
        except ImportError as error:
            raise MissingExtra("the sqlite-vec keeper", "sqlite-vec") from error
        self._dimension = dimension
        self._speaking = Verbatim("sqlite-vec")
        self._home = Home("sqlite-vec", path)
        with self._speaking:
            self._connection: Any = apsw.Connection(str(self._home.place(FILE, fresh=False)))
            self._connection.enable_load_extension(True)
            self._connection.load_extension(sqlite_vec.loadable_path())
            self._connection.enable_load_extension(False)
            self._connection.set_busy_timeout(10_000)
            self._connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS documents USING vec0(id TEXT PRIMARY KEY, "
                f"embedding FLOAT[{dimension:d}] distance_metric=cosine, +title TEXT, +text TEXT, +metadata TEXT)"
            )
            (self._versions,) = self._connection.execute("SELECT vec_version(), sqlite_version()").fetchall()

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = matrix(documents, vectors, self._dimension)
        with self._speaking:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN")
            for one, row in zip(documents, rows, strict=True):
                self._connection.execute("DELETE FROM documents WHERE id = ?", (one.id,))
                self._connection.execute(
                    "INSERT INTO documents (id, embedding, title, text, metadata) VALUES (?, ?, ?, ?, ?)",
                    (one.id, row.tobytes(), one.title, one.text, written(one.metadata)),
                )

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        with self._speaking:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        statement, found = "SELECT text, title, metadata FROM documents WHERE id = ?", []
        with self._speaking:
            for name in ids:
                rows = self._connection.execute(statement, (name,)).fetchall()
                found.append(document(name, *rows[0]) if rows else None)
        return found

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            return [name for (name,) in self._connection.execute("SELECT id FROM documents")]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity, by brute force."""
        statement = "SELECT id, distance, text FROM documents WHERE embedding MATCH ? AND k = ? ORDER BY distance"
        with self._speaking:
            found = self._connection.execute(statement, (query(vector, self._dimension).tobytes(), k)).fetchall()
        return [Hit(name, 1 - distance, text) for name, distance, text in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = {"version": self._versions[0], "sqlite": self._versions[1]}
        return {"keeper": "sqlite-vec", **about, "index": "none", "dimension": self._dimension}

    def close(self) -> None:
        """Close the file; uncommitted changes are rolled back."""
        with self._speaking:
            self._connection.close()
        self._home.close()
