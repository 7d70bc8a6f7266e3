"""pgvector: vectors in a table of PostgreSQL, with an HNSW or IVFFlat index or none."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ragauge.errors import BadInput
from ragauge.stages import stage
from ragauge.systems.stores import postgres
from ragauge.systems.stores.embedded import TEMPORARY
from ragauge.systems.stores.intake import Intake, Matrix
from ragauge.systems.stores.vector_index import EXACTLY, VectorIndex, scans_vectors

if TYPE_CHECKING:
    from psycopg import sql

    from ragauge.seams import Neighbours


NEAREST = """WITH near AS MATERIALIZED (
  SELECT id, embedding {operator} %(vector)s::{type} AS distance FROM {table} {filter} ORDER BY distance LIMIT %(k)s
) SELECT id, distance FROM near ORDER BY distance + 0"""
"""Put in order twice: scans of a halfvec index, and IVFFlat's that go on, are only nearly in order. Without the `+ 0`
PostgreSQL 17 and newer would believe that it is done already."""


class PgVector:
    """A table of its own on one connection; it is dropped by `close()` unless `keep=True`.

    Vectors are loaded by binary COPY. The index is built and the table analysed at the first search after an `add`, or
    by `build()`, so that the time of building can be told from that of searching. Whether the planner uses the index is
    its own decision (it reads a small table faster as a whole): `index_used` says what it does, `force=True` overrules
    it.
    """

    def __init__(  # noqa: PLR0913 - the parameters of pgvector's indexes, by their own names
        self,
        *,
        dsn: str | None = None,
        table: str | None = None,
        keep: bool = False,
        index: str = "hnsw",
        metric: str = "cosine",
        half: bool = False,
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 40,
        lists: int | None = None,
        probes: int | None = None,
        force: bool = False,
    ) -> None:
        self._index = VectorIndex(index, metric, half, m, ef_construction, ef_search, lists, probes, force)
        self._intake = Intake(metric)
        self.table = postgres.table_name(table)
        self._keep = keep
        self._dsn = postgres.server(dsn)
        self._connection = postgres.connect(self._dsn, self._index.settings())
        self._versions = postgres.versions(self._connection)
        # One connection does one thing at a time; settings of one search must not reach another's.
        self._lock = threading.Lock()
        self._made = self._indexed = self._fresh = False

    def __len__(self) -> int:
        return len(self._intake)

    def __enter__(self) -> PgVector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this store."""
        return {
            "store": "pgvector",
            **self._versions,
            "server": postgres.shown(self._dsn),
            "table": self.table,
            **self._index.describe(),
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Take vectors in, each under its id, and with metadata if searches are to be filtered."""
        matrix = self._intake.documents(ids, vectors)
        if metadata is not None and len(metadata) != len(ids):
            raise BadInput(f"there are {len(metadata)} metadata for {len(ids)} ids")
        if not len(matrix):
            return
        self._index.check(matrix.shape[1])
        with self._lock, postgres.speaking(self._dsn), self._connection.transaction():
            if not self._made:
                self._make(matrix.shape[1])
            self._load(ids, matrix, metadata)
        self._made, self._fresh = True, False
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Make the index, if there is to be one, and tell the planner what is in the table."""
        with self._lock, postgres.speaking(self._dsn):
            self._build()

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """The `k` nearest of each row, nearest first; of those whose metadata contain `where`."""
        queries = self._intake.queries(vectors, k)
        ids, distances = self._intake.empty(len(queries), k)
        if not len(self) or not len(queries):
            return ids, distances
        with self._lock, postgres.speaking(self._dsn):
            self._build()
            with stage("retrieve"):
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
        with self._lock, postgres.speaking(self._dsn):
            self._build()
            (row,) = self._ask(query, k, where, self._index.local(k, filtered=bool(where)), explained=True)
        return row[0][0]

    def index_used(self, vector: Any, k: int, where: Mapping[str, Any] | None = None) -> bool:
        """Whether a search walks the vector index."""
        return scans_vectors(self.explain(vector, k, where))

    def close(self) -> None:
        """Drop the table, unless it is to be kept, and hang up."""
        from psycopg import sql

        if self._connection.closed:
            return
        with self._lock, postgres.speaking(self._dsn):
            try:
                if self._made and not self._keep:
                    self._connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(self.table)))
            finally:
                self._connection.close()

    def _make(self, dimension: int) -> None:
        from psycopg import errors, sql

        name = sql.Identifier(self.table)
        columns = sql.SQL("(id text PRIMARY KEY, embedding {}({}) NOT NULL, metadata jsonb NOT NULL)")
        column = columns.format(sql.Identifier(self._index.type), sql.Literal(dimension))
        try:
            self._connection.execute(sql.SQL("CREATE TABLE {} ").format(name) + column)
        except errors.DuplicateTable:
            raise BadInput(
                f"the server has a table {self.table!r} already", hint="name another, or none for a new one"
            ) from None
        if not self._keep:
            comment = sql.SQL("COMMENT ON TABLE {} IS {}").format(name, sql.Literal(TEMPORARY))
            self._connection.execute(comment)

    def _load(self, ids: Sequence[str], matrix: Matrix, metadata: Sequence[Mapping[str, Any]] | None) -> None:
        from pgvector import HalfVector, Vector
        from psycopg import sql

        kept = HalfVector if self._index.half else Vector
        nothing = postgres.json_of({}, "")
        statement = sql.SQL("COPY {} (id, embedding, metadata) FROM STDIN (FORMAT BINARY)")
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement.format(sql.Identifier(self.table))) as copy,
        ):
            copy.set_types(["text", self._index.type, "jsonb"])
            for row, (name, vector) in enumerate(zip(ids, matrix, strict=True)):
                about = nothing if metadata is None else postgres.json_of(metadata[row], f"the metadata of {name!r}")
                copy.write_row((name, kept(vector), about))

    def _build(self) -> None:
        from psycopg import sql

        if self._fresh or not self._made:
            return
        if not self._indexed:
            self._index = self._index.over(len(self))
            creation = self._index.creation(self.table)
            if creation is not None:
                self._connection.execute(creation)
                self._connection.execute(*postgres.configured(self._index.settings()))
        self._connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(self.table)))
        self._indexed = self._fresh = True

    def _nearest(self, query: Any, k: int, where: Mapping[str, Any] | None) -> list[Any]:
        found = self._ask(query, k, where, self._index.local(k, filtered=bool(where)))
        if where and len(found) < k and self._index.kind != "none":
            # A scan that goes on has an end too; what a strict filter lets through is then found by looking at all.
            found = self._ask(query, k, where, EXACTLY)
        return found

    def _ask(
        self, query: Any, k: int, where: Any, local: Sequence[tuple[str, str]], *, explained: bool = False
    ) -> list[Any]:
        given = {"vector": query, "k": k, "where": postgres.json_of(where, "the filter") if where else None}
        with ExitStack() as inside:
            if local:
                inside.enter_context(self._connection.transaction())
                self._connection.execute(*postgres.configured(local, local=True))
            return self._connection.execute(
                self._statement(filtered=bool(where), explained=explained), given
            ).fetchall()

    def _statement(self, *, filtered: bool, explained: bool) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(("EXPLAIN (FORMAT JSON) " if explained else "") + NEAREST).format(
            operator=sql.SQL(self._index.operator),
            type=sql.Identifier(self._index.type),
            table=sql.Identifier(self.table),
            filter=sql.SQL("WHERE metadata @> %(where)s" if filtered else ""),
        )
