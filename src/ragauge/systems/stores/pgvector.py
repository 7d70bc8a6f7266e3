"""pgvector: vectors in a table of PostgreSQL, with an HNSW, binary or IVFFlat index or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.stages import stage
from ragauge.systems.stores import postgres
from ragauge.systems.stores.embedded import KEPT_IN, TEMPORARY
from ragauge.systems.stores.intake import Intake, Matrix, folder_of, whole
from ragauge.systems.stores.vector_index import EXACTLY, VectorIndex, scans_vectors

if TYPE_CHECKING:
    from psycopg import Connection

    from ragauge.seams import Neighbours


class PgVector:
    """A table of its own; it is dropped by `close()` unless `keep=True`, or it was saved.

    Vectors are loaded by binary COPY. The index is built and the table analysed by `build()` or at the first search, so
    that the time of building can be told from that of searching. Whether the planner uses the index is its own decision
    (it reads a small table faster as a whole): `index_used` says what it does, `force=True` overrules it.

    `index` is hnsw, ivfflat, none, or binary: an HNSW graph over the signs of the numbers, of which `rerank` times as
    many candidates as wanted are compared in full. A `path` holds the name of the table, never the server's.

    Where a filtered search comes back with too few rows, all are compared: `exact_fallbacks` in what the store says of
    itself tells how often. Such an answer is exact, and slow, whatever the index is like.
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
        self._rerank = whole("rerank", rerank)
        self._lists = lists
        """As asked for; how many there are, the index knows."""
        self._fallbacks = 0
        self._threads = whole("threads", threads, 0)
        self._intake = Intake(metric)
        self._path = path
        there = path is not None and self._intake.read(path, **self._built())
        self.table = postgres.table_name(self._intake.built.get("table", table))
        self._keep = keep or there
        self._dsn = postgres.server(dsn)
        # One connection does one thing at a time, and what is being written must not hold up who searches.
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._connection = self._connected()
        self._writer = self._connected()
        self._versions = postgres.versions(self._connection)
        self._statements: dict[tuple[str, bool], str] = {}
        self._writer_lost = False
        self._recovery = postgres.Recovery()
        self._made = self._indexed = self._fresh = there
        if there:
            self._taken_up()
        self._worn = there
        """Whether there may be something in the index that is not in the table any more."""

    def __len__(self) -> int:
        return len(self._intake)

    def __enter__(self) -> PgVector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def abilities(self) -> frozenset[str]:
        """Everything."""
        return frozenset(("insert", "update", "delete", "filter", "save", "share", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this store."""
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
            "server": postgres.shown(self._dsn),
            "table": self.table,
            **self._index.describe(),
            **about,
            "threads": self._threads,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Take vectors in, each under its id, and with metadata if searches are to be filtered."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        self._index.check(matrix.shape[1])
        with self._write(), self._writer.transaction():
            if not self._made:
                self._make(matrix.shape[1])
            self._load(ids, matrix, metadata)
        self._made, self._fresh = True, False
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Make the index, if there is to be one, and tell the planner what is in the table."""
        from psycopg import sql

        with self._write():
            if self._fresh or not self._made:
                return
            if not self._indexed:
                self._index = self._index.over(len(self))
                creation = self._index.creation(self.table, self._intake.dimension or 0)
                if creation is not None:
                    self._writer.execute(creation)
                    self._configure(self._connection)
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
        """Set options of the searches to come."""
        changed: dict[str, Any] = {"ef_search": ef_search, "probes": probes, "force": force}
        self._index = replace(self._index, **{name: one for name, one in changed.items() if one is not None})
        self._rerank = self._rerank if rerank is None else whole("rerank", rerank)
        with postgres.speaking(self._dsn):
            self._configure(self._connection)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """The `k` nearest of each row, nearest first; of those whose metadata contain `where`.

        BackendRestarted is raised if the server died meanwhile and is back.
        """
        queries = self._intake.queries(vectors, k)
        ids, distances = self._intake.empty(len(queries), k)
        if not len(self) or not len(queries):
            return ids, distances
        if not self._indexed:
            self.build()
        with self._lock, postgres.speaking(self._dsn), stage("retrieve"), self._reconnecting():
            for row, query in enumerate(queries):
                found = self._nearest(query, k, where)
                ids[row, : len(found)] = [name for name, _ in found]
                distances[row, : len(found)] = [distance for _, distance in found]
        return ids, distances

    def explain(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> Any:
        """The plan of a search, as PostgreSQL's JSON."""
        query = self._intake.queries([vector], k)[0]
        if not len(self):
            raise BadInput("an empty store has nothing to explain")
        self.build()
        with self._lock, postgres.speaking(self._dsn):
            (row,) = self._ask(query, k, where, self._local(k, where), explained=True)
        return row[0][0]

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool:
        """Whether a search walks the vector index."""
        return scans_vectors(self.explain(vector, k, where))

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Give ids that are there other vectors."""
        from psycopg import sql

        _, matrix = self._intake.replacements(ids, vectors)
        statement = sql.SQL("UPDATE {} SET embedding = %s::{} WHERE id = %s").format(
            sql.Identifier(self.table), sql.Identifier(self._index.type)
        )
        with self._write(), self._writer.transaction():
            for name, row in zip(ids, matrix, strict=True):
                self._writer.execute(statement, [row, name])
        self._worn = True

    def delete(self, ids: Sequence[str]) -> None:
        """Forget ids that are there."""
        from psycopg import sql

        self._intake.positions(ids)
        statement = sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(sql.Identifier(self.table))
        if len(ids):
            with self._write():
                self._writer.execute(statement, [list(ids)])
        self._worn = True
        self._intake.forget(ids)

    def save(self) -> None:
        """Keep the table, and in `path` its name: another process finds it there, given the same server."""
        folder = folder_of("pgvector", self._path)
        self.build()
        if self._made:
            self._intake.write(folder, **self._built(), table=self.table, chosen_lists=self._index.lists)
            with self._write():
                if not self._keep:
                    self._comment(f"{KEPT_IN}{folder.absolute()}")
            self._keep = True

    def remove(self) -> None:
        """Drop the table, though it was to be kept: what there is of the store outside of its folder."""
        if not self._connection.closed:
            with self._lock, self._write():
                self._drop()

    def close(self) -> None:
        """Drop the table, unless it is to be kept, and hang up."""
        if self._connection.closed:
            return
        with self._lock, self._write():
            try:
                if not self._keep:
                    self._drop()
            finally:
                self._connection.close()
                self._writer.close()

    def pids(self) -> list[int]:
        """The processes of a server on this machine: the first one and its children; of another machine none."""
        return postgres.processes(self._dsn, self._connection)

    def disk_bytes(self) -> int | None:
        """What table and indexes take on the server's disk."""
        from psycopg import sql

        if not self._made:
            return None
        statement = sql.SQL("SELECT pg_total_relation_size({}::regclass)")
        named = sql.Literal(sql.Identifier(self.table).as_string(self._writer))
        with self._write():
            row = self._writer.execute(statement.format(named)).fetchone()
        return None if row is None else int(row[0])

    def _built(self) -> dict[str, Any]:
        sizes = {"none": (), "ivfflat": ("lists",)}.get(self._index.kind, ("m", "ef_construction"))
        # Of lists what was asked for, which whoever opens the folder asks for again; not what was made of it.
        options = {name: self._lists if name == "lists" else getattr(self._index, name) for name in sizes}
        return {"index": self._index.describe()["index"], "half": self._index.half, **options}

    def _connected(self) -> Connection[Any]:
        return postgres.connect(self._dsn, [*self._index.settings(), *postgres.thread_settings(self._threads)])

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Hold the connection for writing, which is opened again after the server was restarted."""
        with self._writing, postgres.speaking(self._dsn):
            if self._writer_lost:
                self._writer.close()
                self._writer = self._connected()
                self._writer_lost = False
            yield

    @contextmanager
    def _reconnecting(self) -> Iterator[None]:
        """Reconnect if the server dies inside; BackendRestarted says that what was asked can be asked again."""
        try:
            yield
        except Exception as error:
            if not postgres.is_lost(error):
                raise
            self._dsn = self._recovery.recover(self._dsn)
            self._connection.close()
            self._connection = self._connected()
            self._configure(self._connection)
            self._writer_lost = True
            raise postgres.restart_error(self._dsn) from None

    def _configure(self, connection: Connection[Any]) -> None:
        force = [("enable_seqscan", "off" if self._index.force else "on")]
        with self._lock:
            connection.execute(*postgres.configured([*self._index.settings(), *force]))

    def _taken_up(self) -> None:
        """See that a table that was kept is there, and choose again what depends on its size."""
        chosen = self._index.lists or self._intake.built.get("chosen_lists")
        self._index = replace(self._index, lists=chosen).over(len(self))
        with postgres.speaking(self._dsn):
            row = self._connection.execute("SELECT to_regclass(quote_ident(%s))", [self.table]).fetchone()
            self._configure(self._connection)
        if row is None or row[0] is None:
            self.close()
            raise BadInput(
                f"the server has no table {self.table!r}, which {self._path} stands for",
                hint="give the server that it was made on: dsn=…",
            )

    def _drop(self) -> None:
        from psycopg import sql

        if self._made:
            self._writer.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(self.table)))
            self._made = False

    def _make(self, dimension: int) -> None:
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
            self._comment(TEMPORARY)

    def _comment(self, text: str) -> None:
        from psycopg import sql

        statement = sql.SQL("COMMENT ON TABLE {} IS {}")
        self._writer.execute(statement.format(sql.Identifier(self.table), sql.Literal(text)))

    def _load(self, ids: Sequence[str], matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        from pgvector import HalfVector, Vector
        from psycopg import sql

        kept = HalfVector if self._index.half else Vector
        nothing = postgres.json_of({}, "")
        statement = sql.SQL("COPY {} (id, embedding, metadata) FROM STDIN (FORMAT BINARY)")
        with (
            self._writer.cursor() as cursor,
            cursor.copy(statement.format(sql.Identifier(self.table))) as copy,
        ):
            copy.set_types(["text", self._index.type, "jsonb"])
            for row, (name, vector) in enumerate(zip(ids, matrix, strict=True)):
                about = nothing if metadata is None else postgres.json_of(metadata[row], f"the metadata of {name!r}")
                copy.write_row((name, kept(vector), about))

    def _local(self, k: int, where: Any) -> list[tuple[str, str]]:
        return self._index.local(k * self._rerank if self._index.binary else k, filtered=bool(where))

    def _nearest(self, query: Any, k: int, where: Mapping[str, Any] | None) -> list[Any]:
        found = self._ask(query, k, where, self._local(k, where))
        short = (where and len(found) < k) or (self._worn and len(found) < min(k, len(self)))
        if short and self._index.kind != "none":
            # A scan that goes on has an end too; what a strict filter lets through is then found by looking at all, and
            # so is what is left where a graph is full of what was deleted, until the server has cleaned up.
            self._fallbacks += 1
            found = self._ask(query, k, where, EXACTLY)
        return found

    def _ask(
        self, query: Any, k: int, where: Any, local: Sequence[tuple[str, str]], *, explained: bool = False
    ) -> list[Any]:
        given = {"vector": query, "k": k, "many": k * self._rerank}
        text, values = postgres.filter_of(where) if where else ("", {})
        with ExitStack() as inside:
            if local:
                inside.enter_context(self._connection.transaction())
                self._connection.execute(*postgres.configured(local, local=True))
            return self._connection.execute(self._statement(text, explained), {**given, **values}).fetchall()

    def _statement(self, filtered: str, explained: bool) -> str:
        """The statement of a search, composed once: that takes longer than a small search."""
        if (filtered, explained) not in self._statements:
            composed = self._index.search(
                self.table, self._intake.dimension or 0, filtered=filtered, explained=explained
            )
            self._statements[filtered, explained] = composed.as_string(self._connection)
        return self._statements[filtered, explained]
