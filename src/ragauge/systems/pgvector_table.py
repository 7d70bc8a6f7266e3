"""Table of `PgVectorDB`: SQL, connection pool, operations on the whole table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import OneOf, check_choice, check_int, check_settings
from ragauge.core.stages import stage
from ragauge.stores import postgres
from ragauge.stores.pgvector_index import VectorIndex
from ragauge.stores.postgres_server import TEMPORARY_TABLE_COMMENT

if TYPE_CHECKING:
    from psycopg import AsyncConnection, sql
    from psycopg_pool import AsyncConnectionPool

    from ragauge.core.protocols import Vectors


RANK_FUNCTIONS = ("ts_rank_cd", "ts_rank")
"""Rank functions, divided by 1 + the logarithm of the document length (normalisation 1) against a bias to long ones.

`ts_rank_cd` (cover density) adds up occurrences. `ts_rank` gives less for each repetition, and so more to documents
with different words of the query. For words joined by OR that is better and several times as fast: nDCG@10 of `ts_rank`
and `ts_rank_cd` is 0.60 and 0.40 on SciFact, 0.34 and 0.30 on Cranfield, 0.33 and 0.28 on CACM, 0.36 and 0.26 on
Vaswani.
"""
SESSION_SETTINGS = (
    # Plan each statement for its parameters: a generic plan does not know how many rows are wanted.
    ("plan_cache_mode", "force_custom_plan"),
    # Compiling a plan takes longer than one vector search.
    ("jit", "off"),
)
FUSION_METHODS = ("minmax", "rrf")

# A lexeme is quoted by the rules of tsquery, which differ from those of SQL strings: ' and \ are doubled.
QUERY_WORDS_SQL = r"""(
  SELECT string_agg('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery
  FROM unnest(to_tsvector({language}, %(query)s)))"""

SEMANTIC_SQL = """WITH near AS MATERIALIZED (
  SELECT id, embedding <=> %(vector)s::{type} AS distance, text, metadata FROM {table}
  WHERE embedding IS NOT NULL {filter} ORDER BY distance LIMIT %(k)s
) SELECT id, 1 - distance, text, metadata FROM near ORDER BY distance + 0, id COLLATE "C" """

KEYWORD_SQL = """SELECT id, {rank}({weights}, fts, words, 1)::float8 AS score, text, metadata
FROM {table}, (SELECT {words} AS words) AS asked
WHERE fts @@ words {filter} ORDER BY score DESC, id COLLATE "C" LIMIT %(k)s"""

HYBRID_SQL = """WITH asked AS MATERIALIZED (SELECT {words} AS words),
semantic AS MATERIALIZED (
  SELECT id, 1 - (embedding <=> %(vector)s::{type}) AS score FROM {table}
  WHERE embedding IS NOT NULL {filter} ORDER BY embedding <=> %(vector)s::{type} LIMIT %(near)s
), keyword AS MATERIALIZED (
  SELECT id, {rank}({weights}, fts, words, 1)::float8 AS score FROM {table}, asked
  WHERE fts @@ words {filter} ORDER BY score DESC, id COLLATE "C" LIMIT %(depth)s
), fused AS (
  SELECT id, %(semantic)s::float8 * coalesce(s.part, 0) + %(keyword)s::float8 * coalesce(k.part, 0) AS score
  FROM (SELECT id, {part} AS part FROM semantic) AS s FULL JOIN (SELECT id, {part} AS part FROM keyword) AS k USING (id)
  ORDER BY score DESC, id COLLATE "C" LIMIT %(k)s
) SELECT id, score, text, metadata FROM fused JOIN {table} USING (id) ORDER BY score DESC, id COLLATE "C" """

FUSION_SCORE_SQL = {
    # If all scores are equal, or there is only one, a hit gets the full score.
    "minmax": """CASE WHEN max(score) OVER () > min(score) OVER ()
      THEN (score - min(score) OVER ()) / (max(score) OVER () - min(score) OVER ()) ELSE 1 END""",
    "rrf": """1.0::float8 / (60 + row_number() OVER (ORDER BY score DESC, id COLLATE "C"))""",
}


@dataclass(frozen=True)
class PgStatements:
    """SQL statements for one table."""

    table: str
    index: VectorIndex
    language: str
    rank: Annotated[str, OneOf(RANK_FUNCTIONS)]

    def __post_init__(self) -> None:
        check_settings(self)

    def creation(self, dimension: int, *, keep: bool) -> list[sql.Composed]:
        """Return the statements that create the table.

        Titles have twice the weight of texts.
        """
        from psycopg import sql

        statements = [
            self._compose_sql(
                """CREATE TABLE {table} (id text PRIMARY KEY, title text NOT NULL, text text NOT NULL,
                metadata jsonb NOT NULL, embedding {type}({dimension}), fts tsvector GENERATED ALWAYS AS (
                setweight(to_tsvector({language}, title), 'A') || setweight(to_tsvector({language}, text), 'D')
                ) STORED)""",
                dimension=sql.Literal(dimension),
            )
        ]
        if not keep:
            statements.append(
                self._compose_sql("COMMENT ON TABLE {table} IS {comment}", comment=sql.Literal(TEMPORARY_TABLE_COMMENT))
            )
        return statements

    def indexes(self) -> list[sql.Composed]:
        """Return the statements that create the indexes.

        They run after loading, because that is faster and an IVFFlat index is trained on the rows.
        """
        vectors = self.index.creation(self.table)
        return [self._compose_sql("CREATE INDEX ON {table} USING gin (fts)"), *([vectors] if vectors else [])]

    def plain(self, text: str) -> sql.Composed:
        """Return a statement whose only placeholder is the table."""
        return self._compose_sql(text)

    def semantic(self, *, filtered: bool, explained: bool = False) -> sql.Composed:
        """Return the statement for the nearest vectors, sorted twice.

        Index scans return rows only approximately in order: those of a halfvec index, whose distances are less precise,
        and iterative IVFFlat scans. Without the `+ 0`, PostgreSQL 17 and newer would skip the second sort.
        """
        return self._compose_sql(("EXPLAIN (FORMAT JSON) " if explained else "") + SEMANTIC_SQL, filtered)

    def keyword(self, *, filtered: bool) -> sql.Composed:
        """Return the statement for documents with any of the words, by rank."""
        return self._compose_sql(KEYWORD_SQL, filtered)

    def hybrid(self, fusion: str, *, filtered: bool, explained: bool = False) -> sql.Composed:
        """Return the statement that adds the weighted scores of both searches.

        A document that is missing in one of them gets 0 for it.
        """
        from psycopg import sql

        text = ("EXPLAIN (FORMAT JSON) " if explained else "") + HYBRID_SQL
        return self._compose_sql(
            text, filtered, part=sql.SQL(FUSION_SCORE_SQL[check_choice("fusion", fusion, FUSION_METHODS)])
        )

    def _compose_sql(self, text: str, filtered: bool = False, **more: sql.Composable) -> sql.Composed:
        from psycopg import sql

        language = sql.SQL("{}::regconfig").format(sql.Literal(self.language))
        return sql.SQL(text).format(
            table=sql.Identifier(self.table),
            type=sql.Identifier(self.index.type),
            rank=sql.Identifier(self.rank),
            weights=sql.SQL("'{{0.5, 0.5, 0.5, 1}}'::float4[]").format(),
            language=language,
            words=sql.SQL(QUERY_WORDS_SQL).format(language=language),
            filter=sql.SQL("AND metadata @> %(where)s" if filtered else ""),
            **more,
        )


class PgTable:
    """Table that the first `load` creates and `close` drops, unless it is to be kept.

    A pool belongs to the event loop in which it was opened. In another loop it would wait forever, so that is refused.
    """

    def __init__(self, statements: PgStatements, *, keep: bool) -> None:
        self.statements = statements
        self._keep = keep
        self._dsn = ""
        self._versions: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: AsyncConnectionPool[Any] | None = None
        self._made = False
        self._connections = 1
        self._configured: WeakKeyDictionary[AsyncConnection[Any], VectorIndex] = WeakKeyDictionary()
        """Index whose search options a connection has."""
        self._reconnecting = asyncio.Lock()
        self._recovery = postgres.ServerRecovery()

    def describe(self) -> dict[str, Any]:
        """Return server, table and index for the manifest."""
        return {
            **self._versions,
            "server": postgres.redact_dsn(self._dsn),
            "table": self.statements.table,
            **self.statements.index.describe(),
            "language": self.statements.language,
            "rank": self.statements.rank,
            **self._recovery.describe(),
        }

    async def open(self, dsn: str | None, connections: int) -> None:
        """Find a server and connect to it."""
        self._connections = check_int("connections", connections)
        self._dsn, self._versions = await asyncio.to_thread(_find_server, dsn, self.statements.language)
        # Messages of the pool are in our errors; without a handler Python would also write them to standard error.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        self._loop = asyncio.get_running_loop()
        self._pool = self._create_pool()
        with postgres.postgres_errors(self._dsn):
            await self._pool.open(wait=True)

    def check(self) -> AsyncConnectionPool[Any]:
        """Return the pool; raise BadInput if it is closed or of another event loop."""
        if self._pool is None:
            raise BadInput("the database is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise BadInput(
                "the database was opened in another event loop", hint="open it in the event loop that uses it"
            )
        return self._pool

    async def load(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Copy documents into the table, all or none.

        The indexes of a new table are created afterwards, which is faster.
        """
        with postgres.postgres_errors(self._dsn):
            async with self.check().connection() as connection:
                async with connection.transaction():
                    if not self._made:
                        await self._create_table(connection, vectors.shape[1])
                    await self._copy_documents(connection, documents, vectors)
                    for statement in () if self._made else self.statements.indexes():
                        await connection.execute(statement)
                self._made = True
                await connection.execute(self.statements.plain("ANALYZE {table}"))

    async def rows(
        self, statement: Any, parameters: Mapping[str, Any], local: Sequence[tuple[str, str]] = ()
    ) -> list[Any]:
        """Run a statement with its own settings and return its rows.

        BackendRestarted is raised if the server died and was restarted.
        """
        import psycopg

        pool = self.check()
        self._recovery.check()
        with stage("retrieve"), postgres.postgres_errors(self._dsn):
            try:
                async with pool.connection() as connection:
                    if self._configured.get(connection) is not self.statements.index:  # it was tuned
                        await self._apply_index_settings(connection)
                    if not local:
                        return list(await (await connection.execute(statement, parameters)).fetchall())
                    async with connection.transaction():
                        await connection.execute(*postgres.build_settings_statement(local, local=True))
                        return list(await (await connection.execute(statement, parameters)).fetchall())
            except psycopg.OperationalError as error:
                if not postgres.is_connection_lost(error):
                    raise
                await self._reconnect(pool)
                raise postgres.restart_error(self._dsn) from None

    async def close(self) -> None:
        """Drop the table unless it is to be kept, and close the connections."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            if self._made and not self._keep:
                await self._drop_table(pool)
        finally:
            await pool.close()

    async def _drop_table(self, pool: AsyncConnectionPool[Any]) -> None:
        import psycopg

        statement = self.statements.plain("DROP TABLE IF EXISTS {table}")
        with postgres.postgres_errors(self._dsn):
            try:
                async with pool.connection() as connection:
                    await connection.execute(statement)
            except psycopg.OperationalError as error:
                if not postgres.is_connection_lost(error):
                    raise
                self._dsn = await asyncio.to_thread(self._recovery.recover, self._dsn)
                await asyncio.to_thread(_execute_statement, self._dsn, statement)

    async def _reconnect(self, pool: AsyncConnectionPool[Any]) -> None:
        """Replace a pool whose server died, once for all queries that noticed it."""
        async with self._reconnecting:
            if self._pool is not pool:
                return
            await pool.close()  # First: it would keep trying to connect, and wait 30 s for each query.
            self._dsn = await asyncio.to_thread(self._recovery.recover, self._dsn)
            fresh = self._create_pool()
            await fresh.open(wait=True)
            self._pool = fresh

    def _create_pool(self) -> AsyncConnectionPool[Any]:
        from psycopg_pool import AsyncConnectionPool

        return AsyncConnectionPool(
            postgres.build_conninfo(self._dsn),
            kwargs={"autocommit": True},
            min_size=1,
            max_size=self._connections,
            configure=self._configure_connection,
            open=False,
            name="ragauge",
        )

    async def _configure_connection(self, connection: AsyncConnection[Any]) -> None:
        from pgvector.psycopg import register_vector_async

        await register_vector_async(connection)
        await connection.execute(*postgres.build_settings_statement(SESSION_SETTINGS))
        await self._apply_index_settings(connection)

    async def _apply_index_settings(self, connection: AsyncConnection[Any]) -> None:
        index = self.statements.index
        settings = [("enable_seqscan", "on"), *index.settings()]
        await connection.execute(*postgres.build_settings_statement(settings))
        self._configured[connection] = index

    async def _create_table(self, connection: AsyncConnection[Any], dimension: int) -> None:
        from psycopg import errors

        try:
            for statement in self.statements.creation(dimension, keep=self._keep):
                await connection.execute(statement)
        except errors.DuplicateTable:
            hint = "name another, or none for a new one"
            raise BadInput(f"the server has a table {self.statements.table!r} already", hint=hint) from None

    async def _copy_documents(
        self, connection: AsyncConnection[Any], documents: Sequence[Document], vectors: Vectors
    ) -> None:
        from pgvector import HalfVector, Vector

        vector_type = HalfVector if self.statements.index.half else Vector
        statement = self.statements.plain(
            "COPY {table} (id, title, text, metadata, embedding) FROM STDIN (FORMAT BINARY)"
        )
        async with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["text", "text", "text", "jsonb", self.statements.index.type])
            for document, vector in zip(documents, vectors, strict=True):
                about = postgres.to_jsonb(document.metadata, f"the metadata of {document.id!r}")
                embedding = vector_type(vector) if vector.any() else None
                await copy.write_row((document.id, document.title, document.text, about, embedding))


def _execute_statement(dsn: str, statement: Any) -> None:
    """Run one statement on a connection of its own."""
    with postgres.connect(dsn) as connection:
        connection.execute(statement)


def _find_server(dsn: str | None, language: str) -> tuple[str, dict[str, str]]:
    """Find a server with extension and language; return its DSN and versions.

    Checked here, because a pool would retry instead of raising an error.
    """
    server_dsn = postgres.resolve_dsn(dsn)
    try:
        import psycopg_pool  # noqa: F401
    except ImportError as error:
        raise MissingExtra("PgVectorDB", "pgvector") from error
    with postgres.connect(server_dsn) as connection, postgres.postgres_errors(server_dsn):
        languages = [name for (name,) in connection.execute("SELECT cfgname FROM pg_ts_config ORDER BY 1").fetchall()]
        check_choice("text search language", language, languages)
        return server_dsn, postgres.read_versions(connection)
