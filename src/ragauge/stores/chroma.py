"""Chroma: collections in a folder, with an HNSW graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast
from ragauge.stores.bookkeeping import Matrix, empty_positions
from ragauge.stores.document_stores import EngineDocumentStore
from ragauge.stores.engines import ClosedEngine, DocumentRow, Engine, EngineFolder
from ragauge.stores.filter_conditions import FILTER_OPERATORS, ONE_OF, FilterCondition
from ragauge.stores.search_results import COMPLEMENT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import GRAPH_SEARCH_WIDTHS, StoreSettings, search_width
from ragauge.stores.vector_store import DatabaseStore

DATABASE_FOLDER = "chroma"
CHROMA_OPERATORS = {operator: name for name, operator in FILTER_OPERATORS.items()}
"""Chroma's names of the filter operators."""


@dataclass(frozen=True)
class ChromaSettings(StoreSettings):
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 100
    ef_search: Annotated[int, AtLeast(1)] = search_width(100)


class ChromaEngine(Engine):
    """Chroma collection.

    The text of a document is the document in Chroma; title and metadata (as JSON) are its metadata. Each upsert is a
    transaction of Chroma, so `commit` has nothing to do.
    """

    name = "chroma"
    conversions = COMPLEMENT_DISTANCES
    settings: ChromaSettings
    _client: Any
    _collection: Any

    def __init__(self, settings: ChromaSettings) -> None:
        (self._library,) = import_libraries("chroma", "chromadb")
        self.settings = settings
        self._loaded = False
        """Whether Chroma has indexed the added vectors, or read the saved ones."""

    def open(self, folder: EngineFolder, *, fresh: bool) -> None:
        self._folder = str(folder.prepare_path(DATABASE_FOLDER, fresh=fresh))
        self._open_collection()
        self._max_batch_rows = int(self._client.get_max_batch_size())
        if self.layout.table == "vectors" and not fresh:
            self._apply_ef_search()

    def create(self) -> None:
        """Do nothing: `open` creates the collection."""

    def insert(self, positions: range, matrix: Matrix, rows: Sequence[Mapping[str, Any]] | None) -> None:
        # Chroma rejects an empty mapping.
        metadata = None if rows is None else [dict(row) or None for row in rows]
        keys = [str(position) for position in positions]
        for start in range(0, len(matrix), self._max_batch_rows):
            part = slice(start, start + self._max_batch_rows)
            batch_metadata = None if metadata is None else metadata[part]
            self._collection.add(ids=keys[part], embeddings=matrix[part], metadatas=batch_metadata)

    def replace(self, positions: list[int], matrix: Matrix) -> None:
        self._collection.update(ids=[str(position) for position in positions], embeddings=matrix)

    def delete(self, positions: list[int]) -> None:
        self._collection.delete(ids=[str(position) for position in positions])

    def build(self) -> None:
        """Let Chroma index the added vectors, which it does in its first search."""
        if not self._loaded:
            query = np.ones((1, self.layout.dimension or 1), dtype=np.float32)
            self._collection.query(query_embeddings=query, n_results=1, include=[])
            self._loaded = True

    def search(self, queries: Matrix, k: int, conditions: Sequence[FilterCondition] | None) -> RawNeighbours:
        terms = [
            {field: {CHROMA_OPERATORS[operator]: list(value) if operator == ONE_OF else value}}
            for field, operator, value in conditions or ()
        ]
        where = None if not terms else terms[0] if len(terms) == 1 else {"$and": terms}
        positions, values = empty_positions(len(queries), k)
        result = self._collection.query(query_embeddings=queries, n_results=k, where=where, include=["distances"])
        for row, (keys, distances) in enumerate(zip(result["ids"], result["distances"], strict=True)):
            positions[row, : len(keys)] = [int(key) for key in keys]
            values[row, : len(keys)] = distances
        return positions, values

    def tune(self, settings: StoreSettings) -> None:
        """Use other search options; the next search reads the graph again."""
        is_changed = settings != self.settings
        super().tune(settings)
        if is_changed:
            self._apply_ef_search()

    def upsert(self, rows: Sequence[DocumentRow], matrix: Matrix) -> None:
        for start in range(0, len(rows), self._max_batch_rows):
            part = rows[start : start + self._max_batch_rows]
            self._collection.upsert(
                ids=[row.id for row in part],
                embeddings=matrix[start : start + self._max_batch_rows],
                documents=[row.text for row in part],
                metadatas=[{"title": row.title, "metadata": row.metadata} for row in part],
            )

    def fetch(self, ids: Sequence[str]) -> list[DocumentRow]:
        result = self._collection.get(ids=list(dict.fromkeys(ids)), include=["documents", "metadatas"])
        columns = zip(result["ids"], result["documents"], result["metadatas"], strict=True)
        return [DocumentRow(key, text, values["title"], values["metadata"]) for key, text, values in columns]

    def ids(self) -> list[str]:
        return list(self._collection.get(include=[])["ids"])

    def search_documents(self, text: str, vector: Matrix, k: int) -> list[Hit]:  # noqa: ARG002 - vectors only
        result = self._collection.query(query_embeddings=vector[None], n_results=k, include=["documents", "distances"])
        columns = zip(result["ids"][0], result["distances"][0], result["documents"][0], strict=True)
        return [Hit(key, 1 - distance, text) for key, distance, text in columns]

    def describe(self) -> dict[str, Any]:
        return {
            "version": self._library.__version__,
            "index": "hnsw",
            **self.settings.build_options,
            **self.settings.search_values,
        }

    def close(self) -> None:
        if not isinstance(self._client, ClosedEngine):
            self._client.close()
        self._client = self._collection = ClosedEngine()

    def _open_collection(self) -> None:
        from chromadb.config import Settings

        # Chroma ignores the configuration if the collection exists.
        graph = {
            "space": self.layout.metric,
            "ef_construction": self.settings.ef_construction,
            "max_neighbors": self.settings.m,
            "ef_search": self.settings.ef_search,
        }
        self._client = self._library.PersistentClient(path=self._folder, settings=Settings(anonymized_telemetry=False))
        self._collection = self._client.get_or_create_collection(
            self.layout.table, embedding_function=None, configuration={"hnsw": graph}
        )

    def _apply_ef_search(self) -> None:
        with warnings.catch_warnings():
            # Chroma treats a collection without an embedding function of its own as a legacy one.
            warnings.simplefilter("ignore", DeprecationWarning)
            if self._collection.configuration["hnsw"]["ef_search"] == self.settings.ef_search:
                return
            self._collection.modify(configuration={"hnsw": {"ef_search": self.settings.ef_search}})
            self._client.close()
            self._open_collection()
        self._loaded = False


class ChromaStore(DatabaseStore):
    """Chroma HNSW graph: `m` links per node, `ef_construction`, `ef_search`.

    Chroma reads `ef_search` only when it opens a collection, so `tune` closes and reopens the folder. Chroma uses
    all CPU threads; their number cannot be set.
    """

    extra = "chroma"
    library_modules = ("chromadb",)
    option_grids = ({"m": 16, "ef_construction": 100, "ef_search": GRAPH_SEARCH_WIDTHS},)

    def __init__(
        self, *, metric: str = "cosine", path: str | None = None, settings: ChromaSettings = ChromaSettings()
    ) -> None:
        super().__init__(ChromaEngine(settings), metric, path)
        self._ready = False

    def _apply_search_options(self) -> None:
        super()._apply_search_options()
        self._ready = False


def open_chroma_documents(*, path: str | None = None, dimension: int, ef_search: int = 100) -> EngineDocumentStore:
    """Open documents in Chroma.

    The graph has Chroma's defaults except for the distance and `ef_search`.
    """
    return EngineDocumentStore(ChromaEngine(ChromaSettings(ef_search=ef_search)), path, dimension)
