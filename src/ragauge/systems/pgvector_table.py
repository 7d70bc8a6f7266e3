"""Table of `PgVectorDB`: its connection pool, and operations on the whole table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragauge.errors import BadInput, MissingExtra
from ragauge.records import Document
from ragauge.stages import stage
from ragauge.systems.pgvector_sql import Statements
from ragauge.systems.stores import postgres
from ragauge.systems.stores.intake import one_of, whole

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from ragauge.seams import Vectors


class Table:
    """Table that the first `load` creates and `close` drops, unless it is to be kept.

    A pool belongs to the event loop in which it was opened. In another loop it would wait forever, so that is refused.
    """

    def __init__(self, statements: Statements, *, keep: bool) -> None:
        self.statements = statements
        self._keep = keep
        self._dsn = ""
        self._versions: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: AsyncConnectionPool[Any] | None = None
        self._made = False
        self._connections = 1
        self._reconnecting = asyncio.Lock()
        self._recovery = postgres.Recovery()

    def describe(self) -> dict[str, Any]:
        """Return server, table and index for the manifest."""
        return {
            **self._versions,
            "server": postgres.shown(self._dsn),
            "table": self.statements.table,
            **self.statements.index.describe(),
            "language": self.statements.language,
            "rank": self.statements.rank,
            **self._recovery.describe(),
        }

    async def open(self, dsn: str | None, connections: int) -> None:
        """Find a server and connect to it."""
        self._connections = whole("connections", connections)
        self._dsn, self._versions = await asyncio.to_thread(_ready, dsn, self.statements.language)
        # Messages of the pool are in our errors; without a handler Python would also write them to standard error.
        logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
        self._loop = asyncio.get_running_loop()
        self._pool = self._new_pool()
        with postgres.speaking(self._dsn):
            await self._pool.open(wait=True)

    def check(self) -> AsyncConnectionPool[Any]:
        """Return the pool; raise BadInput if it is closed or of another event loop."""
        if self._pool is None:
            raise BadInput("the database is closed")
        if asyncio.get_running_loop() is not self._loop:
            raise BadInput("the database was made in another event loop", hint="make it where it is used")
        return self._pool

    async def load(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Copy documents into the table, all or none.

        The indexes of a new table are created afterwards, which is faster.
        """
        with postgres.speaking(self._dsn):
            async with self.check().connection() as connection:
                async with connection.transaction():
                    if not self._made:
                        await self._make(connection, vectors.shape[1])
                    await self._copy(connection, documents, vectors)
                    for statement in () if self._made else self.statements.indexes():
                        await connection.execute(statement)
                self._made = True
                await connection.execute(self.statements.plain("ANALYZE {table}"))

    async def rows(self, statement: Any, given: Mapping[str, Any], local: Sequence[tuple[str, str]] = ()) -> list[Any]:
        """Run a statement with its own settings and return its rows.

        BackendRestarted is raised if the server died and was restarted.
        """
        import psycopg

        pool = self.check()
        self._recovery.check()
        with stage("retrieve"), postgres.speaking(self._dsn):
            try:
                async with pool.connection() as connection:
                    if not local:
                        return list(await (await connection.execute(statement, given)).fetchall())
                    async with connection.transaction():
                        await connection.execute(*postgres.configured(local, local=True))
                        return list(await (await connection.execute(statement, given)).fetchall())
            except psycopg.OperationalError as error:
                if not postgres.is_lost(error):
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
                await self._drop(pool)
        finally:
            await pool.close()

    async def _drop(self, pool: AsyncConnectionPool[Any]) -> None:
        import psycopg

        statement = self.statements.plain("DROP TABLE IF EXISTS {table}")
        with postgres.speaking(self._dsn):
            try:
                async with pool.connection() as connection:
                    await connection.execute(statement)
            except psycopg.OperationalError as error:
                if not postgres.is_lost(error):
                    raise
                self._dsn = await asyncio.to_thread(self._recovery.recover, self._dsn)
                await asyncio.to_thread(_execute, self._dsn, statement)

    async def _reconnect(self, pool: AsyncConnectionPool[Any]) -> None:
        """Replace a pool whose server died, once for all queries that noticed it."""
        async with self._reconnecting:
            if self._pool is not pool:
                return
            await pool.close()  # First: it would keep trying to connect, and wait 30 s for each query.
            self._dsn = await asyncio.to_thread(self._recovery.recover, self._dsn)
            fresh = self._new_pool()
            await fresh.open(wait=True)
            self._pool = fresh

    def _new_pool(self) -> AsyncConnectionPool[Any]:
        from psycopg_pool import AsyncConnectionPool

        return AsyncConnectionPool(
            postgres.conninfo(self._dsn),
            kwargs={"autocommit": True},
            min_size=1,
            max_size=self._connections,
            configure=self._configured,
            open=False,
            name="ragauge",
        )

    async def _configured(self, connection: AsyncConnection[Any]) -> None:
        from pgvector.psycopg import register_vector_async

        await register_vector_async(connection)
        await connection.execute(*postgres.configured([*postgres.SESSION, *self.statements.index.settings()]))

    async def _make(self, connection: AsyncConnection[Any], dimension: int) -> None:
        from psycopg import errors

        try:
            for statement in self.statements.creation(dimension, keep=self._keep):
                await connection.execute(statement)
        except errors.DuplicateTable:
            hint = "name another, or none for a new one"
            raise BadInput(f"the server has a table {self.statements.table!r} already", hint=hint) from None

    async def _copy(self, connection: AsyncConnection[Any], documents: Sequence[Document], vectors: Vectors) -> None:
        from pgvector import HalfVector, Vector

        kept = HalfVector if self.statements.index.half else Vector
        statement = self.statements.plain(
            "COPY {table} (id, title, text, metadata, embedding) FROM STDIN (FORMAT BINARY)"
        )
        async with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["text", "text", "text", "jsonb", self.statements.index.type])
            for document, vector in zip(documents, vectors, strict=True):
                about = postgres.json_of(document.metadata, f"the metadata of {document.id!r}")
                embedding = kept(vector) if vector.any() else None
                await copy.write_row((document.id, document.title, document.text, about, embedding))


def _execute(dsn: str, statement: Any) -> None:
    """Run one statement on a connection of its own."""
    with postgres.connect(dsn) as connection:
        connection.execute(statement)


def _ready(dsn: str | None, language: str) -> tuple[str, dict[str, str]]:
    """Find a server with extension and language; return its DSN and versions.

    Checked here, because a pool would retry instead of raising an error.
    """
    found = postgres.server(dsn)
    try:
        import psycopg_pool  # noqa: F401
    except ImportError as error:
        raise MissingExtra("PgVectorDB", "pgvector") from error
    with postgres.connect(found) as connection, postgres.speaking(found):
        known = [name for (name,) in connection.execute("SELECT cfgname FROM pg_ts_config ORDER BY 1").fetchall()]
        one_of("text search language", language, known)
        return found, postgres.versions(connection)
