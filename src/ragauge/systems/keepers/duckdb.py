"""DuckDB: a table in a file, with an HNSW index (extension vss) or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.systems.stores.duckdb_store import extension_file
from ragauge.systems.stores.engines import Home
from ragauge.systems.stores.intake import one_of

FILE = "documents.duckdb"


class DuckDB:
    """DuckDB table with the id as primary key.

    `index` is `none` (exact search) or `hnsw`. vss keeps an HNSW index on disk only with its experimental
    persistence, which is switched on. Everything put in before `commit` is one transaction.
    """

    keeps = EVERYTHING
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "none") -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtra("the DuckDB keeper", "duckdb") from error
        self._version = duckdb.__version__
        self._dimension = dimension
        self._index = one_of("index", index, ("none", "hnsw"))
        self._pending = False
        self._speaking = Verbatim("duckdb")
        self._home = Home("duckdb", path)
        with self._speaking:
            self._connection: Any = duckdb.connect()
            if index == "hnsw":
                self._load(duckdb.__version__)
            # Attach the file instead of opening it: the index of a killed process can be read only after vss is loaded.
            self._connection.execute(f"ATTACH '{_quoted(self._home.place(FILE, fresh=False))}' AS kept; USE kept")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS documents (id VARCHAR PRIMARY KEY, title VARCHAR, text VARCHAR, "
                f"metadata VARCHAR, embedding FLOAT[{dimension:d}])"
            )
            if index == "hnsw":
                self._connection.execute(
                    "CREATE INDEX IF NOT EXISTS nearest ON documents USING HNSW (embedding) WITH (metric = 'cosine')"
                )

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = matrix(documents, vectors, self._dimension)
        with self._speaking:
            if not self._pending:
                self._connection.execute("BEGIN")
                self._pending = True
            for one, row in zip(documents, rows, strict=True):
                self._connection.execute(
                    "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)",
                    [one.id, one.title, one.text, written(one.metadata), row.tolist()],
                )

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        with self._speaking:
            if self._pending:
                self._pending = False
                self._connection.execute("COMMIT")

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        statement = "SELECT id, text, title, metadata FROM documents WHERE list_contains(?, id)"
        with self._speaking:
            found = self._connection.execute(statement, [list(ids)]).fetchall() if len(ids) else []
        there = {row[0]: document(*row) for row in found}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            return [name for (name,) in self._connection.execute("SELECT id FROM documents").fetchall()]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity that DuckDB finds."""
        distance = f"array_cosine_distance(embedding, $1::FLOAT[{self._dimension:d}])"
        statement = f"SELECT id, {distance}, text FROM documents ORDER BY {distance} LIMIT $2"  # noqa: S608 - own names
        with self._speaking:
            asked = query(vector, self._dimension).tolist()
            found = self._connection.execute(statement, [asked, k]).fetchall()
        return [Hit(name, 1 - distance, text) for name, distance, text in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {"keeper": "duckdb", "version": self._version, "index": self._index, "dimension": self._dimension}

    def close(self) -> None:
        """Close the file; uncommitted changes are rolled back."""
        with self._speaking:
            self._connection.close()
        self._home.close()

    def _load(self, version: str) -> None:
        try:
            import duckdb_extension_vss
        except ImportError as error:
            raise MissingExtra("the HNSW index of DuckDB", "duckdb") from error
        file = extension_file(Path(duckdb_extension_vss.__file__).parent, version)
        self._connection.execute(f"LOAD '{_quoted(file)}'")
        self._connection.execute("SET GLOBAL hnsw_enable_experimental_persistence = true")


def _quoted(file: Path) -> str:
    return str(file).replace("'", "''")
