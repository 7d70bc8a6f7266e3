"""DuckDB: a table in a file, with an HNSW index of its extension vss or none."""

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
    """A table of DuckDB whose primary key is the id.

    `index` is `none` (all vectors are compared) or `hnsw`, which vss keeps on disk only where that is switched on as
    an experiment. What is put in is one transaction until `commit`.
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
            # Attached, and not opened: what a killed process left of an index can be read only once vss is there.
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
        """Take documents in; an id that is there is replaced."""
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
        """End the transaction."""
        with self._speaking:
            if self._pending:
                self._pending = False
                self._connection.execute("COMMIT")

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """The documents as they are kept, in this order; None where there is none."""
        statement = "SELECT id, text, title, metadata FROM documents WHERE list_contains(?, id)"
        with self._speaking:
            found = self._connection.execute(statement, [list(ids)]).fetchall() if len(ids) else []
        there = {row[0]: document(*row) for row in found}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """The ids of everything that is kept."""
        with self._speaking:
            return [name for (name,) in self._connection.execute("SELECT id FROM documents").fetchall()]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """The `k` of the highest cosines."""
        distance = f"array_cosine_distance(embedding, $1::FLOAT[{self._dimension:d}])"
        statement = f"SELECT id, {distance}, text FROM documents ORDER BY {distance} LIMIT $2"  # noqa: S608 - own names
        with self._speaking:
            asked = query(vector, self._dimension).tolist()
            found = self._connection.execute(statement, [asked, k]).fetchall()
        return [Hit(name, 1 - distance, text) for name, distance, text in found]

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this keeper."""
        return {"keeper": "duckdb", "version": self._version, "index": self._index, "dimension": self._dimension}

    def close(self) -> None:
        """Let go of the file; what was not committed is rolled back."""
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
