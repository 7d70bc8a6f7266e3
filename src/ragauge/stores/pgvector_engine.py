"""Table of PostgreSQL with pgvector, and the table of a vector store."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ragauge.core.errors import BadInput
from ragauge.stores import postgres
from ragauge.stores.bookkeeping import Matrix
from ragauge.stores.pgvector_index import EXACT_SCAN_SETTINGS, VectorIndex
from ragauge.stores.postgres_server import FOLDER_TABLE_COMMENT_PREFIX, TEMPORARY_TABLE_COMMENT

if TYPE_CHECKING:
    from psycopg import Connection, sql


class PostgresTable:
    """Table of PostgreSQL with an id as primary key and an indexed column of vectors."""

    def __init__(self, index: VectorIndex, dsn: str | None, *, table: str = "", threads: int = 0) -> None:
        self.index = index
        self.table = table
        self._dsn = postgres.resolve_dsn(dsn)
        self._threads = threads

    def _open_connection(self) -> Connection[Any]:
        return postgres.connect(self._dsn, [*self.index.settings(), *postgres.thread_settings(self._threads)])

    def _compose(self, text: str, *parts: sql.Composable) -> sql.Composed:
        """Return a statement with the name of the table, and further parts, in the places of `{}`."""
        from psycopg import sql

        return sql.SQL(text).format(sql.Identifier(self.table), *parts)

    def _table_exists(self, connection: Connection[Any]) -> bool:
        row = connection.execute("SELECT to_regclass(quote_ident(%s)) IS NOT NULL", [self.table]).fetchone()
        return row is not None and bool(row[0])

    def _create_table(self, connection: Connection[Any], columns: str, dimension: int, comment: str) -> None:
        """Create the table with the given columns, a column of vectors, and a comment that tells its owner."""
        from psycopg import sql

        vector_type = sql.Identifier(self.index.type)
        statement = "CREATE TABLE {} (id text PRIMARY KEY, embedding {}({}) NOT NULL, " + columns + ")"
        connection.execute(self._compose(statement, vector_type, sql.Literal(dimension)))
        if comment:
            self._set_comment(connection, comment)

    def _set_comment(self, connection: Connection[Any], comment: str) -> None:
        from psycopg import sql

        connection.execute(self._compose("COMMENT ON TABLE {} IS {}", sql.Literal(comment)))

    def _create_index(self, connection: Connection[Any], dimension: int) -> bool:
        """Create the index; return whether there is one."""
        statement = self.index.creation(self.table, dimension)
        if statement is not None:
            connection.execute(statement)
        return statement is not None


class PostgresVectorTable(PostgresTable):
    """Table of vectors with metadata.

    Searches have a connection of their own: a connection runs one statement at a time, and writes must not block
    searches.
    """

    def __init__(self, index: VectorIndex, rerank: int, dsn: str | None, *, table: str, threads: int) -> None:
        super().__init__(index, dsn, table=table, threads=threads)
        self.rerank = rerank
        self.has_outdated_rows = False
        """Whether the index may contain rows that are no longer in the table."""
        self.is_kept = False
        """Whether `close` keeps the table."""
        self._dimension = 0
        self._fallbacks = 0
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._connection = self._open_connection()
        self._writer = self._open_connection()
        self._versions = postgres.read_versions(self._connection)
        self._statements: dict[tuple[int, int, str], str] = {}
        self._last_statement: str | None = None
        """Statement of the last search."""
        self._configured_for: tuple[int, bool] | None = None
        """The `k` for which the connection for searches has its settings, and whether it is for a filter."""
        self._writer_lost = False
        self._recovery = postgres.ServerRecovery()
        self.exists = self._indexed = self._analysed = False
        """Whether the table is on the server, has its index, and was analysed since the last insert."""

    def open_saved(self, dimension: int, chosen_lists: int | None, n_rows: int) -> None:
        """Check that a saved table exists, and choose the options that depend on its size."""
        self._dimension = dimension
        self.index = replace(self.index, lists=self.index.lists or chosen_lists).for_rows(n_rows)
        with postgres.postgres_errors(self._dsn):
            exists = self._table_exists(self._connection)
        if not exists:
            self.close()
            raise BadInput(
                f"the server has no table {self.table!r}, in which the vectors of this store were saved",
                hint="pass the server of the saved table: dsn=…",
            )
        self.is_kept = self.has_outdated_rows = True
        self.exists = self._indexed = self._analysed = True

    def insert(self, ids: Sequence[str], matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        """Insert vectors by binary COPY; the first ones create the table."""
        self.index.check(matrix.shape[1])
        with self._lock_writer(), self._writer.transaction():
            if not self.exists:
                self._create_vector_table(matrix.shape[1])
            self._copy_rows(ids, matrix, metadata)
        self.exists, self._analysed = True, False
        self._dimension = matrix.shape[1]

    def replace(self, ids: Sequence[str], matrix: Matrix) -> None:
        from psycopg import sql

        statement = self._compose("UPDATE {} SET embedding = %s::{} WHERE id = %s", sql.Identifier(self.index.type))
        with self._lock_writer(), self._writer.transaction():
            for key, vector in zip(ids, matrix, strict=True):
                self._writer.execute(statement, [vector, key])
        self.has_outdated_rows = True

    def delete(self, ids: Sequence[str]) -> None:
        with self._lock_writer():
            self._writer.execute(self._compose("DELETE FROM {} WHERE id = ANY(%s)"), [list(ids)])
        self.has_outdated_rows = True

    def build(self, n_rows: int) -> None:
        """Build the index, if any, and update the statistics of the planner."""
        with self._lock_writer():
            if self._analysed or not self.exists:
                return
            if not self._indexed:
                self.index = self.index.for_rows(n_rows)
                self._create_index(self._writer, self._dimension)
                self._configured_for = None
            self._writer.execute(self._compose("ANALYZE {}"))
            self._indexed = self._analysed = True

    def tune(self, index: VectorIndex, rerank: int) -> None:
        """Use the search options of an index; a chosen number of probes stays if none is given."""
        probes = index.probes or self.index.probes
        with self._lock:
            self.index = replace(self.index, ef_search=index.ef_search, probes=probes, force=index.force)
            self.rerank = rerank
            self._configured_for = None

    def search(
        self, queries: Matrix, k: int, size: int, where: Mapping[str, Any] | None
    ) -> list[list[tuple[str, float]]]:
        """Return pairs of id and distance of each query, nearest first; `size` is the number of rows.

        Even an iterative scan ends. A strict filter, or a graph full of deleted rows that the server has not cleaned up
        yet, can leave too few rows; then all rows are compared.

        If the server dies, BackendRestarted is raised once it accepts connections again: the query can be repeated.
        """
        with self._lock:
            # Without an error this is faster than a context manager.
            try:
                statement, values = self._prepare_search(k, where)
                self._last_statement = statement
                return [self._search_one(query, k, size, where, statement, values) for query in queries]
            except Exception as error:
                self._raise_search_error(error)

    def explain(self, query: Any, k: int, where: Mapping[str, Any] | None) -> Any:
        """Return the plan of a search as PostgreSQL's JSON."""
        with self._lock, postgres.postgres_errors(self._dsn):
            statement, values = self._prepare_search(k, where)
            explained = f"EXPLAIN (FORMAT JSON) {statement}"
            plan = self._connection.execute(explained, self._to_parameters(query, values)).fetchone()
        return plan and plan[0][0]

    def keep(self, folder: Path) -> None:
        """Keep the table when it is closed, as long as the folder exists."""
        with self._lock_writer():
            if not self.is_kept:
                self._set_comment(self._writer, f"{FOLDER_TABLE_COMMENT_PREFIX}{folder.absolute()}")
        self.is_kept = True

    def drop(self) -> None:
        """Drop the table, if this store created or opened it."""
        if not self._connection.closed:
            with self._lock, self._lock_writer():
                self._drop_table()

    def close(self) -> None:
        """Drop the table unless it is kept, and close the connections."""
        if self._connection.closed:
            return
        with self._lock, self._lock_writer():
            try:
                if not self.is_kept:
                    self._drop_table()
            finally:
                self._connection.close()
                self._writer.close()

    def server_pids(self) -> list[int]:
        """Return the process ids of a server on this machine; empty for a remote server."""
        return postgres.find_server_pids(self._dsn, self._connection)

    def disk_bytes(self) -> int | None:
        """Return the size of the table and its indexes; None before the first insert."""
        from psycopg import sql

        if not self.exists:
            return None
        named = sql.Literal(sql.Identifier(self.table).as_string(self._writer))
        statement = sql.SQL("SELECT pg_total_relation_size({}::regclass)").format(named)
        with self._lock_writer():
            row = self._writer.execute(statement).fetchone()
        return None if row is None else int(row[0])

    def describe(self) -> dict[str, Any]:
        """Return versions, server and parameters."""
        about: dict[str, Any] = {
            "version": self._versions.get("pgvector"),
            **self._versions,
            "server": postgres.redact_dsn(self._dsn),
            "table": self.table,
            **self.index.describe(),
        }
        if self._last_statement is not None:
            about["statement"] = self._last_statement
        if self.index.binary:
            about["rerank"] = self.rerank
        if self.index.kind != "none":
            about["exact_fallbacks"] = self._fallbacks
        return {**about, **self._recovery.describe(), "threads": self._threads}

    @contextmanager
    def _lock_writer(self) -> Iterator[None]:
        """Lock the writing connection, and raise its errors as errors of ragauge.

        The connection is reopened first if the server was restarted.
        """
        with self._writing, postgres.postgres_errors(self._dsn):
            if self._writer_lost:
                self._writer.close()
                self._writer = self._open_connection()
                self._writer_lost = False
            yield

    def _create_vector_table(self, dimension: int) -> None:
        from psycopg import errors

        comment = "" if self.is_kept else TEMPORARY_TABLE_COMMENT
        try:
            self._create_table(self._writer, "metadata jsonb NOT NULL", dimension, comment)
        except errors.DuplicateTable:
            raise BadInput(
                f"the server has a table {self.table!r} already", hint="name another, or none for a new one"
            ) from None

    def _drop_table(self) -> None:
        if self.exists:
            self._writer.execute(self._compose("DROP TABLE IF EXISTS {}"))
            self.exists = False

    def _copy_rows(self, ids: Sequence[str], matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        from pgvector import HalfVector, Vector

        to_vector = HalfVector if self.index.half else Vector
        empty = postgres.to_jsonb({}, "")
        statement = self._compose("COPY {} (id, embedding, metadata) FROM STDIN (FORMAT BINARY)")
        with self._writer.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["text", self.index.type, "jsonb"])
            for row, (key, vector) in enumerate(zip(ids, matrix, strict=True)):
                values = empty
                if metadata is not None:
                    numbers = {name: postgres.to_exact_number(value) for name, value in metadata[row].items()}
                    values = postgres.to_jsonb(numbers, f"the metadata of {key!r}")
                copy.write_row((key, to_vector(vector), values))

    def _prepare_search(self, k: int, where: Mapping[str, Any] | None) -> tuple[str, list[Any]]:
        """Return the statement of a search and the values of its filter, and set what the session needs for it.

        The session keeps the settings, as that of a user does, so that further searches are one statement each.
        """
        if (needed := (k, bool(where))) != self._configured_for:
            self._configured_for = None
            candidates = k * self.rerank if self.index.binary else k
            settings = {
                "enable_seqscan": "off" if self.index.force else "on",
                **({} if self.index.kind == "none" else {f"{self.index.kind}.iterative_scan": "off"}),
                **dict(self.index.settings()),
                **dict(self.index.search_settings(candidates, filtered=bool(where))),
            }
            self._connection.execute(*postgres.build_settings_statement(list(settings.items())))
            self._configured_for = needed
        condition, values = postgres.filter_to_sql(where) if where else ("", [])
        return self._search_statement(k, condition), values

    def _search_one(
        self,
        query: Any,
        k: int,
        size: int,
        where: Mapping[str, Any] | None,
        statement: str,
        values: list[Any],
    ) -> list[tuple[str, float]]:
        parameters = self._to_parameters(query, values)
        rows = self._connection.execute(statement, parameters).fetchall()
        short = (where and len(rows) < k) or (self.has_outdated_rows and len(rows) < min(k, size))
        if short and self.index.kind != "none":
            self._fallbacks += 1
            with self._connection.transaction():
                self._connection.execute(*postgres.build_settings_statement(EXACT_SCAN_SETTINGS, local=True))
                rows = self._connection.execute(statement, parameters).fetchall()
        # Scans of a halfvec index and iterative IVFFlat scans return rows only approximately in order.
        rows.sort(key=itemgetter(1))
        return rows

    def _to_parameters(self, query: Any, values: list[Any]) -> list[Any]:
        """Return the values of a statement in the order of its placeholders."""
        if self.index.half:
            from pgvector import HalfVector

            query = HalfVector(query)
        return [query, *values, query] if self.index.binary else [query, *values]

    def _search_statement(self, k: int, condition: str) -> str:
        """Return the statement of a search; cached, since composing it takes longer than a small search."""
        key = (k, self.rerank, condition)
        if key not in self._statements:
            composed = self.index.search(self.table, self._dimension, k, k * self.rerank, filtered=condition)
            self._statements[key] = composed.as_string(self._connection)
        return self._statements[key]

    def _raise_search_error(self, error: Exception) -> NoReturn:
        """Raise an error of a search as an error of ragauge; reconnect first if the server died."""
        with postgres.postgres_errors(self._dsn):
            if not postgres.is_connection_lost(error):
                raise error
            self._dsn = self._recovery.recover(self._dsn)
            self._connection.close()
            self._connection = self._open_connection()
            self._configured_for = None
            self._writer_lost = True
            raise postgres.restart_error(self._dsn) from None
