"""Documents in a PostgreSQL table, on a given server or the embedded one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ragauge.core.documents import Hit
from ragauge.core.hashes import hash_bytes
from ragauge.stores import postgres
from ragauge.stores.bookkeeping import Matrix
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import DocumentEngine, DocumentRow, EngineFolder
from ragauge.stores.pgvector_engine import PostgresTable
from ragauge.stores.pgvector_index import VectorIndex
from ragauge.stores.postgres_server import FOLDER_TABLE_COMMENT_PREFIX

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresDocumentTable(PostgresTable, DocumentEngine):
    """Table of documents, named after the folder.

    Metadata have the type json, which keeps them unchanged. All upserts before `commit` are one transaction. The table
    is dropped when the folder no longer exists and the embedded server has no other user. The table of a temporary
    folder is dropped on `close`.
    """

    name = "pgvector"
    _connection: Connection[Any]

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:  # noqa: ARG002 - documents are never fresh
        path = str(folder.folder.resolve())
        self.table = f"ragauge_kept_{hash_bytes(os.fsencode(path), size_bytes=8)}"
        self._comment = FOLDER_TABLE_COMMENT_PREFIX + path
        self._is_temporary = folder.is_temporary
        self._pending = False
        postgres.register_dsn_secrets(self._dsn)
        self._connection = self._open_connection()

    def create(self) -> None:
        """Create the table and its index in one transaction, so that a killed process leaves no partial table."""
        dimension = self.layout.dimension or 0
        with self._connection.transaction():
            if not self._table_exists(self._connection):
                columns = "title text NOT NULL, text text NOT NULL, metadata json NOT NULL"
                self._create_table(self._connection, columns, dimension, self._comment)
                self.index = self.index.for_rows(0)
                self._create_index(self._connection, dimension)

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        """Insert or replace documents in the open transaction."""
        from pgvector import Vector

        statement = self._compose(
            "INSERT INTO {} (id, text, title, metadata, embedding) VALUES (%s, %s, %s, %s, %s) ON CONFLICT (id) DO "
            "UPDATE SET (text, title, metadata, embedding) = "
            "(EXCLUDED.text, EXCLUDED.title, EXCLUDED.metadata, EXCLUDED.embedding)"
        )
        if not self._pending:
            self._connection.execute("BEGIN")
            self._pending = True
        # A savepoint keeps earlier documents of the transaction if this upsert is rejected.
        with self._connection.transaction(), self._connection.cursor() as cursor:
            pairs = zip(rows, matrix, strict=True)
            cursor.executemany(
                statement, [(*row._replace(metadata=row.metadata or "{}"), Vector(vector)) for row, vector in pairs]
            )

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        if self._pending:
            self._pending = False
            self._connection.execute("COMMIT")

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        statement = "SELECT id, text, title, metadata FROM {} WHERE id = ANY(%s)"
        return [DocumentRow(*row) for row in self._fetch_rows(statement, [list(ids)])]

    def ids(self) -> list[str]:
        return [key for (key,) in self._fetch_rows("SELECT id FROM {}")]

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        """Return the documents that the index finds; all are compared without one."""
        from pgvector import Vector

        query = Vector(vector)
        statement = "SELECT id, 1 - (embedding <=> %s), text FROM {} ORDER BY embedding <=> %s LIMIT %s"
        return [Hit(*row) for row in self._fetch_rows(statement, [query, query, k])]

    def describe(self) -> dict[str, Any]:
        """Return versions and the index."""
        return {**postgres.read_versions(self._connection), "index": self.index.kind}

    def close(self) -> None:
        """Close the connection; uncommitted changes are rolled back."""
        if not self._connection.closed:
            if self._is_temporary:
                self._connection.rollback()
                self._connection.execute(self._compose("DROP TABLE {}"))
            self._connection.close()

    def _fetch_rows(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._connection.execute(self._compose(text), values).fetchall()


def open_pgvector_documents(
    *, path: str | None = None, dimension: int, index: str = "none", dsn: str | None = None
) -> EngineDocumentStore:
    """Open documents in a PostgreSQL table, on a given server or the embedded one.

    `index` is `none`, `hnsw` or `ivfflat`.
    """
    vector_index = VectorIndex(kind=index)
    vector_index.check(dimension)
    return EngineDocumentStore(PostgresDocumentTable(vector_index, dsn), path, dimension)
