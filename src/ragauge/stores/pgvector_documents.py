"""Documents in a PostgreSQL table, on a given server or the embedded one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ragauge.core.documents import Document, Hit
from ragauge.stores import postgres
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import EngineFolder
from ragauge.stores.pgvector_index import VectorIndex
from ragauge.stores.postgres_server import FOLDER_TABLE_COMMENT_PREFIX


class PgVectorDocumentStore:
    """PostgreSQL table with the id as primary key.

    Metadata have the type json, which keeps them unchanged. `index` is `none`, `hnsw` or `ivfflat`. Everything put
    in before `commit` is one transaction. The table is named after the folder. It is dropped when the folder no
    longer exists and the embedded server has no other user. A temporary folder and its table are removed on `close`.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, index: str = "none", dsn: str | None = None) -> None:
        self._index = VectorIndex(kind=index)
        self._index.check(dimension)
        self._dimension = dimension
        self._own = path is None
        self._home = EngineFolder("pgvector", path)
        folder = str(self._home.folder.resolve())
        name = f"ragauge_kept_{hashlib.blake2b(folder.encode('utf-8', 'surrogateescape'), digest_size=8).hexdigest()}"
        found = postgres.resolve_dsn(dsn)
        self._connection: Any = postgres.connect(found)
        self._speaking = VerbatimEngineErrors("pgvector", postgres.register_dsn_secrets(found))
        with self._speaking:
            from psycopg import sql

            self._sql: Any = sql
            self._table = sql.Identifier(name)
            self._create_table(folder, name)
        self._pending = False

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        from pgvector import Vector

        rows = to_document_matrix(documents, vectors, self._dimension)
        statement = self._table_statement(
            "INSERT INTO {} (id, title, text, metadata, embedding) VALUES (%s, %s, %s, %s, %s) ON CONFLICT (id) DO "
            "UPDATE SET (title, text, metadata, embedding) = "
            "(EXCLUDED.title, EXCLUDED.text, EXCLUDED.metadata, EXCLUDED.embedding)"
        )
        with self._speaking:
            if not self._pending:
                self._connection.execute("BEGIN")
                self._pending = True
            # A savepoint keeps earlier documents of the transaction if this put is rejected.
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.executemany(
                    statement,
                    [
                        (one.id, one.title, one.text, metadata_to_json(one.metadata) or "{}", Vector(row))
                        for one, row in zip(documents, rows, strict=True)
                    ],
                )

    def commit(self) -> None:
        """Commit the open transaction, if any."""
        with self._speaking:
            if self._pending:
                self._pending = False
                self._connection.execute("COMMIT")

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        found = self._fetch_rows("SELECT id, text, title, metadata FROM {} WHERE id = ANY(%s)", [list(ids)])
        there = {row[0]: document_from_columns(*row) for row in found}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        return [name for (name,) in self._fetch_rows("SELECT id FROM {}")]

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that the index finds.

        Without index the search is exact.
        """
        from pgvector import Vector

        asked = Vector(to_query_vector(vector, self._dimension))
        statement = "SELECT id, 1 - (embedding <=> %s), text FROM {} ORDER BY embedding <=> %s LIMIT %s"
        return [Hit(*row) for row in self._fetch_rows(statement, [asked, asked, k])]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        with self._speaking:
            about = postgres.read_versions(self._connection)
        return {"keeper": "pgvector", **about, "index": self._index.kind, "dimension": self._dimension}

    def close(self) -> None:
        """Close the connection; uncommitted changes are rolled back."""
        if self._connection.closed:
            return
        with self._speaking:
            if self._own:
                self._connection.rollback()
                self._connection.execute(self._table_statement("DROP TABLE {}"))
            self._connection.close()
        self._home.close()

    def _create_table(self, folder: str, name: str) -> None:
        """Create the table and its index in one transaction.

        A killed process thus leaves no partial table.
        """
        columns = "id text PRIMARY KEY, title text NOT NULL, text text NOT NULL, metadata json NOT NULL"
        literal = self._sql.Literal
        with self._connection.transaction():
            (there,) = self._connection.execute("SELECT to_regclass(quote_ident(%s))", [name]).fetchone()
            if there is None:
                made = self._sql.SQL("CREATE TABLE {} (" + columns + ", embedding vector({}) NOT NULL)")
                self._connection.execute(made.format(self._table, literal(self._dimension)))
                comment = self._sql.SQL("COMMENT ON TABLE {} IS {}")
                self._connection.execute(comment.format(self._table, literal(FOLDER_TABLE_COMMENT_PREFIX + folder)))
                if (creation := self._index.over(0).creation(name)) is not None:
                    self._connection.execute(creation)

    def _table_statement(self, text: str) -> Any:
        return self._sql.SQL(text).format(self._table)

    def _fetch_rows(self, text: str, given: Sequence[Any] = ()) -> list[Any]:
        with self._speaking:
            found: list[Any] = self._connection.execute(self._table_statement(text), given).fetchall()
        return found
