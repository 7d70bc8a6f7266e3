"""sqlite-vec: virtual tables of SQLite, searched by brute force."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.stores import engines
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, require_folder, unsupported_error
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import EngineErrors, EngineFolder, MetadataColumn, MetadataColumns
from ragauge.stores.filter_conditions import ONE_OF, condition_values, conditions_to_sql

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


DOCUMENT_FILE = "documents.sqlite"


class SqliteVecDocumentStore:
    """vec0 table with the id as primary key.

    Text, title and metadata are auxiliary columns. vec0 has no upsert, so an existing row is deleted first. SQLite's
    journal and fsync settings are the defaults. Everything put in before `commit` is one transaction.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int) -> None:
        try:
            import apsw
            import sqlite_vec
        except ImportError as error:
            raise MissingExtra("the sqlite-vec keeper", "sqlite-vec") from error
        self._dimension = dimension
        self._speaking = VerbatimEngineErrors("sqlite-vec")
        self._home = EngineFolder("sqlite-vec", path)
        with self._speaking:
            self._connection: Any = apsw.Connection(str(self._home.place(DOCUMENT_FILE, fresh=False)))
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
        rows = to_document_matrix(documents, vectors, self._dimension)
        with self._speaking:
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN")
            for one, row in zip(documents, rows, strict=True):
                self._connection.execute("DELETE FROM documents WHERE id = ?", (one.id,))
                self._connection.execute(
                    "INSERT INTO documents (id, embedding, title, text, metadata) VALUES (?, ?, ?, ?, ?)",
                    (one.id, row.tobytes(), one.title, one.text, metadata_to_json(one.metadata)),
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
                found.append(document_from_columns(name, *rows[0]) if rows else None)
        return found

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            return [name for (name,) in self._connection.execute("SELECT id FROM documents")]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` documents with the highest cosine similarity, by brute force."""
        statement = "SELECT id, distance, text FROM documents WHERE embedding MATCH ? AND k = ? ORDER BY distance"
        with self._speaking:
            found = self._connection.execute(
                statement, (to_query_vector(vector, self._dimension).tobytes(), k)
            ).fetchall()
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


VECTOR_FILE = "vectors.sqlite"
MAX_K = 4096
"""Largest k that vec0 supports."""
COLUMN_TYPES = {
    engines.BOOL_KIND: "INTEGER",
    engines.INT_KIND: "INTEGER",
    engines.FLOAT_KIND: "FLOAT",
    engines.TEXT_KIND: "TEXT",
}
MISSING_VALUES = {
    engines.BOOL_KIND: -1,
    engines.INT_KIND: -(2**63),
    engines.FLOAT_KIND: -1.7e308,
    engines.TEXT_KIND: "\x1aragauge: nothing",
}
"""Values that stand for a missing one: metadata columns of vec0 have no NULL."""


class SqliteVecStore:
    """vec0 table of sqlite-vec without index: search is exact.

    Vectors are stored in chunks of `chunk` vectors.

    It has no inner product. SQLite comes from APSW, because the sqlite3 module of many Python builds cannot load
    extensions.
    """

    def __init__(self, *, metric: str = "cosine", path: str | None = None, chunk: int = 1024) -> None:
        try:
            import apsw
            import sqlite_vec
        except ImportError as error:
            raise MissingExtra("the sqlite-vec store", "sqlite-vec") from error
        self._intake = StoreBookkeeping(metric)
        if metric == "ip":
            raise BadInput("sqlite-vec cannot rank by inner product: a vec0 table has l2, l1 and cosine")
        self._apsw: Any = apsw
        self._extension = sqlite_vec.loadable_path()
        self._columns = MetadataColumns()
        self._chunk = check_int("chunk", chunk, 8)
        if chunk % 8:
            raise BadInput(f"chunk is {chunk}; it must be a multiple of 8")
        self._path = path
        self._speaking = EngineErrors("sqlite-vec")
        self._home = EngineFolder("sqlite-vec", path)
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self._columns.read(self._intake.built.get("columns", {}))
        self._file = str(self._home.place(VECTOR_FILE, fresh=not there))
        self._local = threading.local()
        self._opened: list[Any] = []
        with self._speaking:
            (about,) = self._thread_connection.execute("SELECT vec_version(), sqlite_version()").fetchall()
        self._versions = {"version": about[0], "sqlite": about[1]}

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all."""
        return frozenset(("insert", "update", "delete", "filter", "save", "share", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "sqlite-vec",
            **self._versions,
            "metric": self._intake.metric,
            "index": "none",
            **self._build_time_options(),
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        fresh = self._columns.new(ids, metadata)
        with self._speaking, self._thread_connection:
            if fresh or self._intake.dimension is None:
                self._create_table(matrix.shape[1], fresh)
            self._insert_vectors(matrix, metadata)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Do nothing: there is no index."""

    def tune(self) -> None:
        """Do nothing: the engine has no search options."""

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        width = min(k, len(self))
        if width > MAX_K:
            raise unsupported_error("sqlite-vec", f"give {width} neighbours", f"vec0 gives up to {MAX_K}")
        wanted = self._columns.wanted(where) if where else []
        if not width or not len(queries) or wanted is None:
            return self._intake.empty(len(queries), k)
        statement = f"SELECT id, distance FROM {self._table_name} WHERE embedding MATCH ? AND k = ?"  # noqa: S608 - own name
        if any(one.operator == ONE_OF and isinstance(one.value[0], float) for one in wanted):
            raise unsupported_error(
                "sqlite-vec", "filter by several fractions", "vec0 has sets of whole numbers and texts"
            )
        statement += f" AND {conditions_to_sql(wanted, lambda _: '?')}" if wanted else ""
        values = condition_values(wanted)
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        distances = np.full((len(queries), k), np.inf, dtype=np.float32)
        with self._speaking, stage("retrieve"):
            connection = self._thread_connection
            for row, query in enumerate(queries):
                found = connection.execute(statement, (query.tobytes(), width, *values)).fetchall()
                if found:
                    places, far = zip(*found, strict=True)
                    positions[row, : len(found)], distances[row, : len(found)] = places, far
        return self._intake.answer(positions, distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        rows = [(row.tobytes(), place) for row, place in zip(matrix, positions.tolist(), strict=True)]
        with self._speaking, self._thread_connection:
            self._thread_connection.executemany(f"UPDATE {self._table_name} SET embedding = ? WHERE id = ?", rows)  # noqa: S608

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        with self._speaking, self._thread_connection:
            places = [(place,) for place in positions.tolist()]
            self._thread_connection.executemany(f"DELETE FROM {self._table_name} WHERE id = ?", places)  # noqa: S608
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the ids in `path`; SQLite has already stored the rest there."""
        folder = require_folder("sqlite-vec", self._path)
        if self._intake.dimension is not None:
            with self._speaking:
                self._thread_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._intake.write(folder, **self._build_time_options(), columns=self._columns.kept())

    def close(self) -> None:
        """Close the file; a temporary folder is removed."""
        with self._speaking:
            for connection in self._opened:
                connection.close()
        self._home.close()

    def _build_time_options(self) -> dict[str, Any]:
        return {"chunk": self._chunk}

    @property
    def _thread_connection(self) -> Any:
        """Connection of this thread.

        SQLite allows many readers and one writer, but not on one connection.
        """
        found = getattr(self._local, "connection", None)
        if found is None:
            found = self._apsw.Connection(self._file)
            found.enable_load_extension(True)
            found.load_extension(self._extension)
            found.enable_load_extension(False)
            found.set_busy_timeout(10_000)
            found.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL").fetchall()
            self._local.connection = found
            self._opened.append(found)
        return found

    @property
    def _table_name(self) -> str:
        """Name of the table; a table with more columns is created under a new name."""
        return f"vectors{len(self._columns)}"

    def _create_table(self, dimension: int, fresh: Mapping[str, MetadataColumn]) -> None:
        """Create the table and copy the existing rows: columns of vec0 cannot be changed."""
        before, names = self._table_name, [column.name for column in self._columns]
        self._columns.learn(fresh)
        more = "".join(f", {column.name} {COLUMN_TYPES[column.kind]}" for column in self._columns)
        metric = {"l2": "l2", "cosine": "cosine"}[self._intake.metric]
        self._thread_connection.execute(
            f"CREATE VIRTUAL TABLE {self._table_name} USING vec0(id INTEGER PRIMARY KEY, "
            f"embedding FLOAT[{dimension:d}] distance_metric={metric}{more}, chunk_size={self._chunk:d})"
        )
        if self._intake.dimension is not None:
            into = ", ".join(["id", "embedding", *names, *(column.name for column in fresh.values())])
            values = ", ".join(["id", "embedding", *names, *("?" * len(fresh))])
            copy = f"INSERT INTO {self._table_name} ({into}) SELECT {values} FROM {before}"  # noqa: S608 - own names
            self._thread_connection.execute(copy, [MISSING_VALUES[column.kind] for column in fresh.values()])
            self._thread_connection.execute(f"DROP TABLE {before}")

    def _insert_vectors(self, matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        kinds = [column.kind for column in self._columns]
        rows = []
        for number, vector in enumerate(matrix):
            about = self._columns.row(metadata[number] if metadata else {})
            values = [MISSING_VALUES[kind] if one is None else one for one, kind in zip(about, kinds, strict=True)]
            rows.append((self._intake.places + number, vector.tobytes(), *values))
        marks = ", ".join("?" * (2 + len(kinds)))
        names = "".join(f", {column.name}" for column in self._columns)
        self._thread_connection.executemany(
            f"INSERT INTO {self._table_name} (id, embedding{names}) VALUES ({marks})",  # noqa: S608 - own names
            rows,
        )
