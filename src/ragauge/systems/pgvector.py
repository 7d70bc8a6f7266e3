"""Search documents in PostgreSQL with pgvector: semantic, keyword and hybrid search."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np

from ragauge.core import plugins
from ragauge.core.documents import Document, Documents, Hit, to_documents
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import DocumentEmbedder, Part
from ragauge.core.protocols import Embedder
from ragauge.core.settings import check_choice, check_int, check_keywords
from ragauge.core.stages import stage
from ragauge.stores import postgres
from ragauge.stores.bookkeeping import StoreBookkeeping
from ragauge.stores.pgvector_index import EXACT_SCAN_SETTINGS, VectorIndex, uses_vector_index
from ragauge.systems.pgvector_table import PgStatements, PgTable

EMBEDDING_BATCH_SIZE = 1024
MetadataFilter = Mapping[str, Any] | None
"""Values that a document's metadata must contain: `{"module": "json"}`; None for no filter."""


class PgVectorOptions(TypedDict, total=False):
    """Options of the table and of pgvector's indexes."""

    dsn: str | None
    """Server; by default the one of RAGAUGE_DSN, or an embedded one."""
    table: str | None
    keep: bool
    """Whether the table stays after `close`; False by default."""
    connections: int
    """Maximum number of connections; 8 by default."""
    language: str
    """Text search configuration; english by default."""
    rank: str
    """Ranking function of the keyword search; ts_rank by default."""
    index: str
    """`hnsw` (default), `ivfflat` or `none`; the options below are those of `VectorIndex`."""
    m: int
    ef_construction: int
    ef_search: int
    lists: int | None
    probes: int | None
    half: bool
    force: bool


INDEX_OPTIONS = {
    "index": "kind",
    **{name: name for name in ("m", "ef_construction", "ef_search", "lists", "probes", "half", "force")},
}
"""Fields of `VectorIndex` by option."""


class HybridOptions(TypedDict, total=False):
    """Options of `PgVectorDB.hybrid_search`."""

    weights: Sequence[float]
    depth: int | None
    fusion: str


class SearchOptions(HybridOptions, total=False):
    """Options of a retriever; the semantic and the keyword search have `where` only."""

    where: MetadataFilter


class PgVectorDB:
    """Table of documents with vectors and words; create it with `await PgVectorDB.create(...)`.

    The metric is cosine. A database belongs to the event loop in which it was created. Closing drops the table unless
    `keep=True`.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        raise BadInput(
            "PgVectorDB embeds and loads documents when it is opened, which a constructor cannot await",
            hint='db = await PgVectorDB.create(documents, "wordllama", table="name")',
        )

    def _set_up(self, table: PgTable, embedder: Embedder, document_embedder: Embedder) -> None:
        self._table = table
        self._embedder = embedder
        self._document_embedder = document_embedder
        # Texts without any known word have a zero vector. They are stored without a vector and found by words only.
        self._bookkeeping = StoreBookkeeping("ip")
        self._adding = asyncio.Lock()

    @classmethod
    async def create(
        cls,
        documents: Documents,
        embedder: Embedder | str,
        *,
        document_embedder: Embedder | None = None,
        **options: Unpack[PgVectorOptions],
    ) -> PgVectorDB:
        """Embed the documents, load them into a new table, and index it.

        `embedder` is an embedder or its name. `document_embedder` may be cached or use another prompt; queries always
        use `embedder`. `PgVectorOptions` are the options of the table and of pgvector's indexes.
        """
        check_keywords("PgVectorDB.create", options, PgVectorOptions)
        documents = to_documents(documents)
        if not documents:
            raise BadInput("no documents to add to the database")
        query_embedder: Embedder = (
            plugins.load_plugin("embedders", embedder)() if isinstance(embedder, str) else embedder
        )
        index_options: dict[str, Any] = {
            INDEX_OPTIONS[name]: value for name, value in options.items() if name in INDEX_OPTIONS
        }
        statements = PgStatements(
            postgres.choose_table_name(options.get("table")),
            VectorIndex(**index_options).for_rows(len(documents)),
            options.get("language", "english"),
            options.get("rank", "ts_rank"),
        )
        table = PgTable(statements, keep=options.get("keep", False))
        db = cls.__new__(cls)
        db._set_up(table, query_embedder, document_embedder or query_embedder)
        try:
            await db._table.open(options.get("dsn"), options.get("connections", 8))
            await db.add(documents)
        except BaseException:
            await db.close()
            raise
        return db

    async def __aenter__(self) -> PgVectorDB:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __len__(self) -> int:
        return len(self._bookkeeping)

    def __contains__(self, id: object) -> bool:
        return id in self._bookkeeping

    def describe(self) -> dict[str, Any]:
        """Return the parameters of this system for the manifest."""
        return {
            "system": "pgvector",
            **self._table.describe(),
            "embedder": self._embedder.name,
            "size": len(self),
            "dimension": self._bookkeeping.dimension,
        }

    @property
    def table(self) -> str:
        """Name of the table."""
        return self._statements.table

    @property
    def _statements(self) -> PgStatements:
        return self._table.statements

    @property
    def _index(self) -> VectorIndex:
        return self._table.statements.index

    async def add(self, documents: Documents) -> None:
        """Add documents: all of them or, if one is refused, none."""
        documents = to_documents(documents)
        if not documents:
            return
        ids = [document.id for document in documents]
        embedded = await self._embed_documents([document.whole for document in documents])
        async with self._adding:
            vectors = self._bookkeeping.prepare_insertion(ids, embedded)
            self._index.check(vectors.shape[1])
            await self._table.load(documents, vectors)
            self._bookkeeping.register_ids(ids, vectors)

    def tune(self, *, ef_search: int | None = None, probes: int | None = None, force: bool | None = None) -> None:
        """Change search options of the index, which is not built again; None leaves an option as it is.

        `ef_search` is of an HNSW index, `probes` of an IVFFlat index. They hold for the next search.
        """
        given: dict[str, Any] = {"ef_search": ef_search, "probes": probes, "force": force}
        options = {name: value for name, value in given.items() if value is not None}
        for name, kind in (("ef_search", "hnsw"), ("probes", "ivfflat")):
            if name in options and self._index.kind != kind:
                raise BadInput(f"{name} needs an index of the kind {kind}, got {self._index.kind}")
        self._table.statements = replace(self._statements, index=replace(self._index, **options))

    async def semantic_search(self, query: str, k: int = 5, where: MetadataFilter = None) -> list[Hit]:
        """Return the documents with vectors nearest to the query; the score is the cosine."""
        check_int("k", k)
        vector = await self._embed_query(query)
        if vector is None:
            return []
        parameters = {"vector": vector, "k": k, **_filter_parameters(where)}
        statement = self._statements.semantic(filtered=bool(where))
        rows = await self._table.rows(statement, parameters, self._index.search_settings(k, filtered=bool(where)))
        if where and len(rows) < k and self._index.kind != "none":
            # An iterative index scan has a limit. With a selective filter, an exact scan finds the remaining documents.
            rows = await self._table.rows(statement, parameters, EXACT_SCAN_SETTINGS)
        return _rows_to_hits(rows)

    async def keyword_search(self, query: str, k: int = 5, where: MetadataFilter = None) -> list[Hit]:
        """Return documents with any word of the query, ranked by PostgreSQL.

        A query that contains only stop words returns none.
        """
        parameters = {"query": _clean_query(query), "k": check_int("k", k), **_filter_parameters(where)}
        return _rows_to_hits(await self._table.rows(self._statements.keyword(filtered=bool(where)), parameters))

    async def hybrid_search(
        self,
        query: str,
        k: int = 5,
        weights: Sequence[float] = (0.7, 0.3),
        where: MetadataFilter = None,
        *,
        depth: int | None = None,
        fusion: str = "minmax",
    ) -> list[Hit]:
        """Run semantic and keyword search in one statement and add their weighted scores.

        Each search contributes `depth` candidates, by default ten times `k` and at least 100. The first weight is that
        of the semantic search; a search with weight 0 contributes no document. `minmax` adds scores scaled to 0 to 1,
        `rrf` adds 1 / (60 + rank).
        """
        return _rows_to_hits(await self._hybrid_rows(query, k, weights, where, depth=depth, fusion=fusion))

    async def _hybrid_rows(
        self,
        query: str,
        k: int,
        weights: Sequence[float] = (0.7, 0.3),
        where: MetadataFilter = None,
        *,
        depth: int | None = None,
        fusion: str = "minmax",
        explained: bool = False,
    ) -> list[Any]:
        semantic, keyword = _check_weights(weights)
        deep = max(100, 10 * check_int("k", k)) if depth is None else check_int("depth", depth, k)
        statement = self._statements.hybrid(fusion, filtered=bool(where), explained=explained)
        vector = await self._embed_query(query) if semantic else None
        parameters = {
            "query": _clean_query(query),
            "vector": vector,
            "near": 0 if vector is None else deep,
            "depth": deep if keyword else 0,
            "semantic": semantic,
            "keyword": keyword,
            "k": k,
            **_filter_parameters(where),
        }
        return await self._table.rows(statement, parameters, self._index.search_settings(deep, filtered=bool(where)))

    def retriever(self, search: str = "semantic", **options: Unpack[SearchOptions]) -> PgVectorRetriever:
        """Return one of the three searches with its options as a retriever."""
        return PgVectorRetriever(self, search, options)

    async def explain(
        self,
        query: str,
        k: int = 5,
        where: MetadataFilter = None,
        *,
        search: str = "semantic",
        **options: Unpack[HybridOptions],
    ) -> Any:
        """Return PostgreSQL's plan of a semantic or hybrid search, as JSON."""
        if check_choice("search", search, ("semantic", "hybrid")) == "hybrid":
            rows = await self._hybrid_rows(query, k, where=where, explained=True, **options)
            return rows[0][0][0]
        vector = await self._embed_query(query)
        if vector is None:
            raise BadInput("the query has no vector, so there is no plan")
        parameters = {"vector": vector, "k": check_int("k", k), **_filter_parameters(where)}
        statement = self._statements.semantic(filtered=bool(where), explained=True)
        rows = await self._table.rows(statement, parameters, self._index.search_settings(k, filtered=bool(where)))
        return rows[0][0][0]

    async def index_used(
        self,
        query: str,
        k: int = 5,
        where: MetadataFilter = None,
        *,
        search: str = "semantic",
        **options: Unpack[HybridOptions],
    ) -> bool:
        """Return whether a search uses the vector index, which is the planner's decision."""
        return uses_vector_index(await self.explain(query, k, where, search=search, **options))

    async def close(self) -> None:
        """Drop the table unless `keep` is set, and close the connections."""
        await self._table.close()

    async def _embed_documents(self, texts: list[str]) -> Any:
        """Embed texts in batches in a thread.

        The event loop is not blocked, and loading can be cancelled.
        """
        blocks = []
        for start in range(0, len(texts), EMBEDDING_BATCH_SIZE):
            batch = texts[start : start + EMBEDDING_BATCH_SIZE]
            blocks.append(await asyncio.to_thread(self._document_embedder.embed, batch))
        return np.concatenate(blocks)

    async def _embed_query(self, query: str) -> Any:
        """Embed a query; None if its vector is all zeros, which has no neighbours."""
        self._table.check()
        with stage("embed"):
            # The thread gets a copy of the context, so that stages of the embedder are nested in this one.
            embedded = await asyncio.to_thread(self._embedder.embed, [query])
        (vector,) = self._bookkeeping.prepare_queries(embedded, 1)
        return vector if vector.any() else None


pgVectorDB = PgVectorDB  # noqa: N816 - the spelling of the package pgvectordb


class PgVectorRetriever:
    """Retriever with one search of a database; closing it closes a database opened for it."""

    def __init__(self, db: PgVectorDB, search: str, options: Mapping[str, Any], *, owner: bool = False) -> None:
        self.db = db
        self._owner = owner
        self._method = getattr(db, f"{check_choice('search', search, ('semantic', 'keyword', 'hybrid'))}_search")
        self._search = search
        self._options = dict(options)
        try:
            inspect.signature(self._method).bind("", 1, **self._options)
        except TypeError as error:
            raise BadInput(f"{search} search: {error}") from None

    async def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k` documents, best first."""
        hits: list[Hit] = await self._method(query, k, **self._options)
        return hits

    async def evidence(self, query: str, k: int) -> dict[str, Any]:
        """Return the database's parameters, the query plan, and whether the index is used."""
        about = self.db.describe()
        if self._search == "keyword":
            return about
        try:
            plan = await self.db.explain(query, k, search=self._search, **self._options)
        except BadInput:  # A query without any known word has no vector.
            return about
        used = {} if about.get("index") == "none" else {"index_used": uses_vector_index(plan)}
        return {**about, **used, "plan": plan}

    async def close(self) -> None:
        """Close the database, if it was opened for this retriever."""
        if self._owner:
            await self.db.close()


@dataclass(frozen=True)
class PgFusion:
    """How the hybrid search fuses; None: the default of `PgVectorDB.hybrid_search`."""

    weights: Sequence[float] | None = None
    depth: int | None = None
    fusion: str | None = None


async def open_pgvector_retriever(
    documents: Sequence[Document],
    embedder: Annotated[Embedder, Part("wordllama")],
    *,
    document_embedder: Annotated[Embedder | None, DocumentEmbedder("embedder")] = None,
    search: str = "semantic",
    where: MetadataFilter = None,
    fused: PgFusion = PgFusion(),
    **database: Unpack[PgVectorOptions],
) -> PgVectorRetriever:
    """Open a retriever with its own database.

    Further options go to `PgVectorDB.create`.
    """
    search_options = {"where": where, **asdict(fused)}
    options = {name: value for name, value in search_options.items() if value is not None}
    try:
        check_keywords("PgVectorDB.create", database, PgVectorOptions)
    except TypeError as error:
        raise BadInput(f"pgvector: {error}") from None
    db = await PgVectorDB.create(documents, embedder, document_embedder=document_embedder, **database)
    try:
        return PgVectorRetriever(db, search, options, owner=True)
    except BaseException:
        await db.close()
        raise


def _filter_parameters(where: MetadataFilter) -> dict[str, Any]:
    return {"where": postgres.to_jsonb(where, "the filter")} if where else {}


def _clean_query(query: str) -> str:
    """Remove NUL and unpaired surrogates, which PostgreSQL cannot read."""
    return query.replace("\x00", " ").encode("utf-8", "replace").decode("utf-8")


def _check_weights(weights: Any) -> tuple[float, float]:
    try:
        numbers = [] if isinstance(weights, str) else [float(weight) for weight in weights]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2 or not all(math.isfinite(n) and n >= 0 for n in numbers) or not any(numbers):
        raise BadInput(
            f"weights must be two numbers of at least 0 and not both 0, got {weights!r:.80}",
            hint="weights=(0.7, 0.3), that of the semantic search first",
        )
    return numbers[0], numbers[1]


def _rows_to_hits(rows: Sequence[Any]) -> list[Hit]:
    return [Hit(name, float(score), text, metadata) for name, score, text, metadata in rows]
