"""Vectors in a PostgreSQL table with pgvector."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.stores import postgres
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, require_folder
from ragauge.stores.pgvector_index import EXACT_SCAN_SETTINGS, VectorIndex, uses_vector_index
from ragauge.stores.postgres_server import FOLDER_TABLE_COMMENT_PREFIX, TEMPORARY_TABLE_COMMENT

if TYPE_CHECKING:
    from psycopg import Connection

    from ragauge.core.protocols import Neighbours


class PgVectorStore:
    """Vectors in a PostgreSQL table, with an HNSW, binary or IVFFlat index or none.

    `close()` drops the table unless `keep=True` or it was saved.

    Vectors are loaded by binary COPY. `build()` or the first search builds the index and analyses the table, so that
    build time and search time can be measured separately. The planner decides whether to use the index (it reads a
    small table faster as a whole): `index_used` reports its choice, `force=True` overrides it.

    `index` is hnsw, ivfflat, none, or binary: an HNSW graph over the signs of the values, whose best `rerank` times
    `k` candidates are compared in full precision. A `path` stores the name of the table, never the server.

    If a search returns too few rows because of a filter, or after updates and deletions, all rows are compared. Such
    a result is exact but slow, regardless of the index; `exact_fallbacks` in `describe()` counts them.
    """

    def __init__(  # noqa: PLR0913 - the parameters of pgvector's indexes, by their own names
        self,
        *,
        dsn: str | None = None,
        table: str | None = None,
        keep: bool = False,
        path: str | None = None,
        index: str = "hnsw",
        metric: str = "cosine",
        half: bool = False,
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 40,
        lists: int | None = None,
        probes: int | None = None,
        rerank: int = 4,
        force: bool = False,
        threads: int = 1,
    ) -> None:
        binary = index == "binary"
        kind = "hnsw" if binary else index
        self._index = VectorIndex(kind, metric, half, m, ef_construction, ef_search, lists, probes, force, binary)
        self._rerank = check_int("rerank", rerank)
        self._lists = lists
        """As requested by the caller; the index knows the actual number."""
        self._fallbacks = 0
        self._threads = check_int("threads", threads, 0)
        self._intake = StoreBookkeeping(metric)
        self._path = path
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self.table = postgres.choose_table_name(self._intake.built.get("table", table))
        self._keep = keep or there
        self._dsn = postgres.resolve_dsn(dsn)
        # A connection runs one statement at a time, and writes must not block searches.
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._connection = self._open_connection()
        self._writer = self._open_connection()
        self._versions = postgres.read_versions(self._connection)
        self._statements: dict[tuple[str, bool], str] = {}
        self._writer_lost = False
        self._recovery = postgres.ServerRecovery()
        self._made = self._indexed = self._fresh = there
        if there:
            self._reopen_table()
        self._worn = there
        """Whether the index may contain rows that are no longer in the table."""

    def __len__(self) -> int:
        return len(self._intake)

    def __enter__(self) -> PgVectorStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all."""
        return frozenset(("insert", "update", "delete", "filter", "save", "share", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about: dict[str, Any] = {"rerank": self._rerank} if self._index.binary else {}
        if self._index.kind != "none":
            about["exact_fallbacks"] = self._fallbacks
        about |= self._recovery.describe()
        if self._made and self._intake.dimension and len(self):
            about["index_used"] = self.index_used(np.ones(self._intake.dimension), 10)
        return {
            "store": "pgvector",
            "version": self._versions.get("pgvector"),
            **self._versions,
            "server": postgres.redact_dsn(self._dsn),
            "table": self.table,
            **self._index.describe(),
            **about,
            "threads": self._threads,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        self._index.check(matrix.shape[1])
        with self._lock_writer(), self._writer.transaction():
            if not self._made:
                self._create_table(matrix.shape[1])
            self._copy_rows(ids, matrix, metadata)
        self._made, self._fresh = True, False
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Build the index, if any, and update the statistics of the planner."""
        from psycopg import sql

        with self._lock_writer():
            if self._fresh or not self._made:
                return
            if not self._indexed:
                self._index = self._index.over(len(self))
                creation = self._index.creation(self.table, self._intake.dimension or 0)
                if creation is not None:
                    self._writer.execute(creation)
                    self._configure_session(self._connection)
            self._writer.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(self.table)))
            self._indexed = self._fresh = True

    def tune(
        self,
        *,
        ef_search: int | None = None,
        probes: int | None = None,
        rerank: int | None = None,
        force: bool | None = None,
    ) -> None:
        """Set search options."""
        changed: dict[str, Any] = {"ef_search": ef_search, "probes": probes, "force": force}
        self._index = replace(self._index, **{name: one for name, one in changed.items() if one is not None})
        self._rerank = self._rerank if rerank is None else check_int("rerank", rerank)
        with postgres.postgres_errors(self._dsn):
            self._configure_session(self._connection)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter. BackendRestarted is raised if the server
        died during the search and accepts connections again.
        """
        queries = self._intake.queries(vectors, k)
        ids, distances = self._intake.empty(len(queries), k)
        if not len(self) or not len(queries):
            return ids, distances
        if not self._indexed:
            self.build()
        with self._lock, postgres.postgres_errors(self._dsn), stage("retrieve"), self._reconnect_on_loss():
            for row, query in enumerate(queries):
                found = self._search_with_fallback(query, k, where)
                ids[row, : len(found)] = [name for name, _ in found]
                distances[row, : len(found)] = [distance for _, distance in found]
        return ids, distances

    def explain(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> Any:
        """Return the plan of a search as PostgreSQL's JSON."""
        query = self._intake.queries([vector], k)[0]
        if not len(self):
            raise BadInput("an empty store has nothing to explain")
        self.build()
        with self._lock, postgres.postgres_errors(self._dsn):
            (row,) = self._run_search(query, k, where, self._search_settings(k, where), explained=True)
        return row[0][0]

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool:
        """Return whether the plan of a search uses the vector index."""
        return uses_vector_index(self.explain(vector, k, where))

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        from psycopg import sql

        _, matrix = self._intake.replacements(ids, vectors)
        statement = sql.SQL("UPDATE {} SET embedding = %s::{} WHERE id = %s").format(
            sql.Identifier(self.table), sql.Identifier(self._index.type)
        )
        with self._lock_writer(), self._writer.transaction():
            for name, row in zip(ids, matrix, strict=True):
                self._writer.execute(statement, [row, name])
        self._worn = True

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        from psycopg import sql

        self._intake.positions(ids)
        statement = sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(sql.Identifier(self.table))
        if len(ids):
            with self._lock_writer():
                self._writer.execute(statement, [list(ids)])
        self._worn = True
        self._intake.forget(ids)

    def save(self) -> None:
        """Keep the table and save its name in `path`.

        Another process can then open it on the same server.
        """
        folder = require_folder("pgvector", self._path)
        self.build()
        if self._made:
            self._intake.write(folder, **self._build_time_options(), table=self.table, chosen_lists=self._index.lists)
            with self._lock_writer():
                if not self._keep:
                    self._set_table_comment(f"{FOLDER_TABLE_COMMENT_PREFIX}{folder.absolute()}")
            self._keep = True

    def remove(self) -> None:
        """Drop the table even if it was to be kept.

        It is the part of the store outside its folder.
        """
        if not self._connection.closed:
            with self._lock, self._lock_writer():
                self._drop_table()

    def close(self) -> None:
        """Drop the table unless it is kept, and close the connections."""
        if self._connection.closed:
            return
        with self._lock, self._lock_writer():
            try:
                if not self._keep:
                    self._drop_table()
            finally:
                self._connection.close()
                self._writer.close()

    def pids(self) -> list[int]:
        """Return the process ids of a server on this machine, main process first.

        Empty for a remote server.
        """
        return postgres.find_server_pids(self._dsn, self._connection)

    def disk_bytes(self) -> int | None:
        """Return the size of the table and its indexes on the server's disk, in bytes.

        None before the first `add`.
        """
        from psycopg import sql

        if not self._made:
            return None
        statement = sql.SQL("SELECT pg_total_relation_size({}::regclass)")
        named = sql.Literal(sql.Identifier(self.table).as_string(self._writer))
        with self._lock_writer():
            row = self._writer.execute(statement.format(named)).fetchone()
        return None if row is None else int(row[0])

    def _build_time_options(self) -> dict[str, Any]:
        sizes = {"none": (), "ivfflat": ("lists",)}.get(self._index.kind, ("m", "ef_construction"))
        # Save the requested number of lists, which the next opening requests again, not the chosen one.
        options = {name: self._lists if name == "lists" else getattr(self._index, name) for name in sizes}
        return {"index": self._index.describe()["index"], "half": self._index.half, **options}

    def _open_connection(self) -> Connection[Any]:
        return postgres.connect(self._dsn, [*self._index.settings(), *postgres.thread_settings(self._threads)])

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

    @contextmanager
    def _reconnect_on_loss(self) -> Iterator[None]:
        """Reconnect if the server dies inside the block.

        BackendRestarted is then raised: the query can be repeated.
        """
        try:
            yield
        except Exception as error:
            if not postgres.is_connection_lost(error):
                raise
            self._dsn = self._recovery.recover(self._dsn)
            self._connection.close()
            self._connection = self._open_connection()
            self._configure_session(self._connection)
            self._writer_lost = True
            raise postgres.restart_error(self._dsn) from None

    def _configure_session(self, connection: Connection[Any]) -> None:
        force = [("enable_seqscan", "off" if self._index.force else "on")]
        with self._lock:
            connection.execute(*postgres.build_settings_statement([*self._index.settings(), *force]))

    def _reopen_table(self) -> None:
        """Check that a saved table exists, and choose the options that depend on its size."""
        chosen = self._index.lists or self._intake.built.get("chosen_lists")
        self._index = replace(self._index, lists=chosen).over(len(self))
        with postgres.postgres_errors(self._dsn):
            row = self._connection.execute("SELECT to_regclass(quote_ident(%s))", [self.table]).fetchone()
            self._configure_session(self._connection)
        if row is None or row[0] is None:
            self.close()
            raise BadInput(
                f"the server has no table {self.table!r}, which {self._path} stands for",
                hint="give the server that it was made on: dsn=…",
            )

    def _drop_table(self) -> None:
        from psycopg import sql

        if self._made:
            self._writer.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(self.table)))
            self._made = False

    def _create_table(self, dimension: int) -> None:
        from psycopg import errors, sql

        name = sql.Identifier(self.table)
        columns = sql.SQL("(id text PRIMARY KEY, embedding {}({}) NOT NULL, metadata jsonb NOT NULL)")
        column = columns.format(sql.Identifier(self._index.type), sql.Literal(dimension))
        try:
            self._writer.execute(sql.SQL("CREATE TABLE {} ").format(name) + column)
        except errors.DuplicateTable:
            raise BadInput(
                f"the server has a table {self.table!r} already", hint="name another, or none for a new one"
            ) from None
        if not self._keep:
            self._set_table_comment(TEMPORARY_TABLE_COMMENT)

    def _set_table_comment(self, text: str) -> None:
        from psycopg import sql

        statement = sql.SQL("COMMENT ON TABLE {} IS {}")
        self._writer.execute(statement.format(sql.Identifier(self.table), sql.Literal(text)))

    def _copy_rows(self, ids: Sequence[str], matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        from pgvector import HalfVector, Vector
        from psycopg import sql

        kept = HalfVector if self._index.half else Vector
        nothing = postgres.to_jsonb({}, "")
        statement = sql.SQL("COPY {} (id, embedding, metadata) FROM STDIN (FORMAT BINARY)")
        with (
            self._writer.cursor() as cursor,
            cursor.copy(statement.format(sql.Identifier(self.table))) as copy,
        ):
            copy.set_types(["text", self._index.type, "jsonb"])
            for row, (name, vector) in enumerate(zip(ids, matrix, strict=True)):
                about = nothing if metadata is None else postgres.to_jsonb(metadata[row], f"the metadata of {name!r}")
                copy.write_row((name, kept(vector), about))

    def _search_settings(self, k: int, where: Any) -> list[tuple[str, str]]:
        return self._index.local(k * self._rerank if self._index.binary else k, filtered=bool(where))

    def _search_with_fallback(self, query: Any, k: int, where: Mapping[str, Any] | None) -> list[Any]:
        found = self._run_search(query, k, where, self._search_settings(k, where))
        short = (where and len(found) < k) or (self._worn and len(found) < min(k, len(self)))
        if short and self._index.kind != "none":
            # Even an iterative scan ends. A strict filter, or a graph full of deleted rows that the server has not
            # cleaned up yet, can leave too few rows; then all rows are compared.
            self._fallbacks += 1
            found = self._run_search(query, k, where, EXACT_SCAN_SETTINGS)
        return found

    def _run_search(
        self, query: Any, k: int, where: Any, local: Sequence[tuple[str, str]], *, explained: bool = False
    ) -> list[Any]:
        given = {"vector": query, "k": k, "many": k * self._rerank}
        text, values = postgres.filter_to_sql(where) if where else ("", {})
        with ExitStack() as inside:
            if local:
                inside.enter_context(self._connection.transaction())
                self._connection.execute(*postgres.build_settings_statement(local, local=True))
            return self._connection.execute(self._search_statement(text, explained), {**given, **values}).fetchall()

    def _search_statement(self, filtered: str, explained: bool) -> str:
        """Return the statement of a search; cached.

        Composing it takes longer than a small search.
        """
        if (filtered, explained) not in self._statements:
            composed = self._index.search(
                self.table, self._intake.dimension or 0, filtered=filtered, explained=explained
            )
            self._statements[filtered, explained] = composed.as_string(self._connection)
        return self._statements[filtered, explained]
