"""sqlite-vec: virtual tables of SQLite, searched by brute force."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ragauge.core.documents import Hit
from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast
from ragauge.stores import metadata_columns
from ragauge.stores.bookkeeping import Matrix, empty_positions, unsupported_error
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import DocumentRow, Engine, EngineFolder
from ragauge.stores.filter_conditions import ONE_OF, FilterCondition, condition_values, conditions_to_sql
from ragauge.stores.metadata_columns import MetadataColumn
from ragauge.stores.search_results import RawNeighbours
from ragauge.stores.store_settings import StoreSettings
from ragauge.stores.vector_store import DatabaseStore

MAX_K = 4096
"""Largest k that vec0 supports."""
COLUMN_TYPES = {
    metadata_columns.BOOL_KIND: "INTEGER",
    metadata_columns.INT_KIND: "INTEGER",
    metadata_columns.FLOAT_KIND: "FLOAT",
    metadata_columns.TEXT_KIND: "TEXT",
}
MISSING_VALUES = {
    metadata_columns.BOOL_KIND: -1,
    metadata_columns.INT_KIND: -(2**63),
    metadata_columns.FLOAT_KIND: -1.7e308,
    metadata_columns.TEXT_KIND: "\x1aragauge: nothing",
}
"""Values that stand for a missing one: metadata columns of vec0 have no NULL."""


@dataclass(frozen=True)
class SqliteVecSettings(StoreSettings):
    chunk: Annotated[int, AtLeast(8)] = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunk % 8:
            raise BadInput(f"chunk must be a multiple of 8, got {self.chunk}")


class SqliteVecEngine(Engine):
    """vec0 table in a file of SQLite.

    Text, title and metadata of a document are auxiliary columns. vec0 has no upsert, so an existing row is deleted
    first. SQLite's journal and fsync settings are the defaults for documents, and all upserts before `commit` are one
    transaction. For vectors, readers and one writer can work at once (WAL).
    """

    name = "sqlite-vec"

    settings: SqliteVecSettings

    def __init__(self, settings: SqliteVecSettings) -> None:
        self._apsw, sqlite_vec = import_libraries("sqlite-vec", "apsw", "sqlite_vec")
        self._extension = sqlite_vec.loadable_path()
        self.settings = settings
        self._local = threading.local()
        self._opened: list[Any] = []

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        self._file = str(folder.prepare_path(f"{self.layout.table}.sqlite", fresh=fresh))
        self._connection = self._connect() if self.layout.table == "documents" else self._thread_connection
        (self._versions,) = self._connection.execute("SELECT vec_version(), sqlite_version()").fetchall()

    def create(self) -> None:
        if self.layout.table == "documents":
            self._connection.execute(
                f"CREATE VIRTUAL TABLE IF NOT EXISTS documents USING vec0(id TEXT PRIMARY KEY, "
                f"embedding FLOAT[{self.layout.dimension:d}] distance_metric=cosine, +title TEXT, +text TEXT, "
                f"+metadata TEXT)"
            )
        else:
            self._create_vector_table(self._vector_table, list(self.layout.columns))

    def add_columns(self, columns: Sequence[MetadataColumn]) -> None:
        """Copy all rows to a new table: the columns of a vec0 table cannot be changed."""
        old_columns, old_table, connection = list(self.layout.columns), self._vector_table, self._thread_connection
        old_names = [column.name for column in old_columns]
        new_table = f"vectors{len(old_columns) + len(columns)}"
        into = ", ".join(["id", "embedding", *old_names, *(column.name for column in columns)])
        values = ", ".join(["id", "embedding", *old_names, *("?" * len(columns))])
        with connection:
            self._create_vector_table(new_table, [*old_columns, *columns])
            connection.execute(
                f"INSERT INTO {new_table} ({into}) SELECT {values} FROM {old_table}",  # noqa: S608 - own names
                [MISSING_VALUES[column.kind] for column in columns],
            )
            connection.execute(f"DROP TABLE {old_table}")

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        columns = list(self.layout.columns)
        records = []
        for number, (position, vector) in enumerate(zip(positions, matrix, strict=True)):
            row = rows[number] if rows else {}
            values = [row.get(column.name, MISSING_VALUES[column.kind]) for column in columns]
            records.append((position, vector.tobytes(), *values))
        marks = ", ".join("?" * (2 + len(columns)))
        names = "".join(f", {column.name}" for column in columns)
        statement = f"INSERT INTO {self._vector_table} (id, embedding{names}) VALUES ({marks})"  # noqa: S608 - own names
        with self._thread_connection as connection:
            connection.executemany(statement, records)

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        records = [(vector.tobytes(), position) for vector, position in zip(matrix, positions, strict=True)]
        with self._thread_connection as connection:
            connection.executemany(f"UPDATE {self._vector_table} SET embedding = ? WHERE id = ?", records)  # noqa: S608

    def delete(self, positions: list[int]) -> None:
        records = [(position,) for position in positions]
        with self._thread_connection as connection:
            connection.executemany(f"DELETE FROM {self._vector_table} WHERE id = ?", records)  # noqa: S608

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        if k > MAX_K:
            raise unsupported_error(self.name, f"return {k} neighbours", f"vec0 returns up to {MAX_K}")
        statement = f"SELECT id, distance FROM {self._vector_table} WHERE embedding MATCH ? AND k = ?"  # noqa: S608
        values: list[Any] = []
        if conditions:
            if any(condition.operator == ONE_OF and isinstance(condition.value[0], float) for condition in conditions):
                raise unsupported_error(
                    self.name, "filter by several fractions", "vec0 supports sets of whole numbers and texts only"
                )
            statement += f" AND {conditions_to_sql(conditions, lambda _: '?')}"
            values = condition_values(conditions)
        positions, distances = empty_positions(len(queries), k)
        connection = self._thread_connection
        for row, query in enumerate(queries):
            rows = connection.execute(statement, (query.tobytes(), k, *values)).fetchall()
            if rows:
                positions[row, : len(rows)], distances[row, : len(rows)] = zip(*rows, strict=True)
        return positions, distances

    def flush(self) -> dict[str, Any]:
        """Move the journal to the file."""
        self._thread_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return {}

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        """Insert or replace documents in the open transaction."""
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")
        for row, vector in zip(rows, matrix, strict=True):
            self._connection.execute("DELETE FROM documents WHERE id = ?", (row.id,))
            self._connection.execute(
                "INSERT INTO documents (id, text, title, metadata, embedding) VALUES (?, ?, ?, ?, ?)",
                (*row, vector.tobytes()),
            )

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        statement = "SELECT id, text, title, metadata FROM documents WHERE id = ?"
        return [DocumentRow(*row) for key in ids for row in self._connection.execute(statement, (key,)).fetchall()]

    def ids(self) -> list[str]:
        return [key for (key,) in self._connection.execute("SELECT id FROM documents")]

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        statement = "SELECT id, distance, text FROM documents WHERE embedding MATCH ? AND k = ? ORDER BY distance"
        rows = self._connection.execute(statement, (vector.tobytes(), k)).fetchall()
        return [Hit(key, 1 - distance, text) for key, distance, text in rows]

    def describe(self) -> dict[str, Any]:
        return {
            "version": self._versions[0],
            "sqlite": self._versions[1],
            "index": "none",
            **self.settings.build_options,
        }

    def close(self) -> None:
        """Close all connections; an open transaction is rolled back."""
        for connection in self._opened:
            connection.close()

    @property
    def _vector_table(self) -> str:
        """Name of the table; a table with more columns is created under a new name."""
        return f"vectors{len(self.layout.columns)}"

    @property
    def _thread_connection(self) -> Any:
        """Connection of this thread.

        SQLite allows many readers and one writer, but not on one connection.
        """
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
            connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL").fetchall()
        return connection

    def _connect(self) -> Any:
        connection = self._apsw.Connection(self._file)
        self._opened.append(connection)
        connection.enable_load_extension(True)
        connection.load_extension(self._extension)
        connection.enable_load_extension(False)
        connection.set_busy_timeout(10_000)
        return connection

    def _create_vector_table(self, table: str, columns: Sequence[MetadataColumn]) -> None:
        types = "".join(f", {column.name} {COLUMN_TYPES[column.kind]}" for column in columns)
        self._thread_connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING vec0(id INTEGER PRIMARY KEY, "
            f"embedding FLOAT[{self.layout.dimension:d}] distance_metric={self.layout.metric}{types}, "
            f"chunk_size={self.settings.chunk:d})"
        )


class SqliteVecStore(DatabaseStore):
    """vec0 table of sqlite-vec without index: search is exact.

    Vectors are stored in chunks of `chunk` vectors.

    It has no inner product. SQLite comes from APSW, because the sqlite3 module of many Python builds cannot load
    extensions.
    """

    extra = "sqlite-vec"
    library_modules = ("apsw", "sqlite_vec")

    def __init__(
        self, *, metric: str = "cosine", path: str | None = None, settings: SqliteVecSettings = SqliteVecSettings()
    ) -> None:
        if metric == "ip":
            raise BadInput("sqlite-vec cannot rank by inner product: a vec0 table supports l2, l1 and cosine")
        super().__init__(SqliteVecEngine(settings), metric, path)


def open_sqlite_vec_documents(*, path: str | None = None, dimension: int) -> EngineDocumentStore:
    """Open documents in a vec0 table with the id as primary key."""
    return EngineDocumentStore(SqliteVecEngine(SqliteVecSettings()), path, dimension)
