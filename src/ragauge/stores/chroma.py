"""Chroma: collections in a folder, with an HNSW graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import MissingExtra
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.stores.bookkeeping import StoreBookkeeping, require_folder
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import ClosedEngine, EngineErrors, EngineFolder, MetadataColumns
from ragauge.stores.filter_conditions import FILTER_OPERATORS, ONE_OF

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


DOCUMENT_FOLDER = "chroma"
DOCUMENT_COLLECTION = "documents"


class ChromaDocumentStore:
    """Chroma collection of documents.

    The text is the document in Chroma; title and metadata (as JSON) are its metadata. The graph has Chroma's
    defaults except for the distance and `ef_search`. Each upsert is a transaction of Chroma, so `commit` has nothing
    to do.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, ef_search: int = 100) -> None:
        try:
            import chromadb
            from chromadb.config import Settings
        except ImportError as error:
            raise MissingExtra("the Chroma keeper", "chroma") from error
        self._library: Any = chromadb
        self._dimension = dimension
        self._ef_search = ef_search
        self._speaking = VerbatimEngineErrors("chroma")
        self._home = EngineFolder("chroma", path)
        with self._speaking:
            self._client: Any = chromadb.PersistentClient(
                path=str(self._home.place(DOCUMENT_FOLDER, fresh=False)), settings=Settings(anonymized_telemetry=False)
            )
            graph: Any = {"hnsw": {"space": "cosine", "ef_search": ef_search}}
            self._collection: Any = self._client.get_or_create_collection(
                DOCUMENT_COLLECTION, embedding_function=None, configuration=graph
            )
            self._most = int(self._client.get_max_batch_size())

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = to_document_matrix(documents, vectors, self._dimension)
        with self._speaking:
            for start in range(0, len(documents), self._most):
                some = documents[start : start + self._most]
                self._collection.upsert(
                    ids=[one.id for one in some],
                    embeddings=rows[start : start + self._most],
                    documents=[one.text for one in some],
                    metadatas=[{"title": one.title, "metadata": metadata_to_json(one.metadata)} for one in some],
                )

    def commit(self) -> None:
        """Do nothing: each put is already committed."""

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        if not len(ids):
            return []  # Chroma would return all documents
        with self._speaking:
            found = self._collection.get(ids=list(dict.fromkeys(ids)), include=["documents", "metadatas"])
        columns = zip(found["ids"], found["documents"], found["metadatas"], strict=True)
        there = {
            name: document_from_columns(name, text, about["title"], about["metadata"]) for name, text, about in columns
        }
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            return list(self._collection.get(include=[])["ids"])

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that Chroma's graph finds."""
        with self._speaking:
            asked = to_query_vector(vector, self._dimension)[None]
            found = self._collection.query(query_embeddings=asked, n_results=k, include=["documents", "distances"])
        columns = zip(found["ids"][0], found["distances"][0], found["documents"][0], strict=True)
        return [Hit(name, 1 - distance, text) for name, distance, text in columns]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = {"version": self._library.__version__, "index": "hnsw", "ef_search": self._ef_search}
        return {"keeper": "chroma", **about, "dimension": self._dimension}

    def close(self) -> None:
        """Close the engine; a temporary folder is removed."""
        if not isinstance(self._client, ClosedEngine):
            with self._speaking:
                self._client.close()
        self._client = self._collection = ClosedEngine()
        self._home.close()


VECTOR_FOLDER = "chroma"
VECTOR_COLLECTION = "vectors"

CHROMA_OPERATORS = {operator: name for name, operator in FILTER_OPERATORS.items()}
"""Chroma's names of the filter operators."""


class ChromaStore:
    """Chroma HNSW graph: `m` links per node, `ef_construction`, `ef_search`.

    Chroma reads `ef_search` only when it opens a collection, so `tune` closes and reopens the folder. Chroma uses
    all CPU threads; their number cannot be set.
    """

    _client: Any
    _collection: Any

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        m: int = 16,
        ef_construction: int = 100,
        ef_search: int = 100,
    ) -> None:
        try:
            import chromadb
        except ImportError as error:
            raise MissingExtra("the Chroma store", "chroma") from error
        self._library: Any = chromadb
        self._intake = StoreBookkeeping(metric)
        self._columns = MetadataColumns()
        self._m = check_int("m", m, 2)
        self._ef = check_int("ef_construction", ef_construction), check_int("ef_search", ef_search)
        self._path = path
        self._speaking = EngineErrors("chroma")
        self._ready = False
        self._home = EngineFolder("chroma", path)
        there = path is not None and self._intake.read(path, **self._build_time_options())
        self._columns.read(self._intake.built.get("columns", {}))
        self._folder = str(self._home.place(VECTOR_FOLDER, fresh=not there))
        with self._speaking:
            self._open_collection()
            self._most = int(self._client.get_max_batch_size())
            if there:
                self._apply_ef_search()

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all.

        Processes that share a folder do not see what others added after they opened it.
        """
        return frozenset(("insert", "update", "delete", "filter", "save", "share", "concurrent"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "chroma",
            "version": self._library.__version__,
            "metric": self._intake.metric,
            **self._build_time_options(),
            "ef_search": self._ef[1],
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        if not len(matrix):
            return
        self._columns.learn(self._columns.new(ids, metadata))
        # Chroma rejects an empty mapping.
        about = None if metadata is None else [self._columns.named(one) or None for one in metadata]
        names = [str(place) for place in range(self._intake.places, self._intake.places + len(ids))]
        with self._speaking:
            for start in range(0, len(matrix), self._most):
                part = slice(start, start + self._most)
                some = None if about is None else about[part]
                self._collection.add(ids=names[part], embeddings=matrix[part], metadatas=some)
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Make Chroma index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        if not self._ready and len(self):
            with self._speaking:
                anything = np.ones((1, self._intake.dimension or 1), dtype=np.float32)
                self._collection.query(query_embeddings=anything, n_results=1, include=[])
        self._ready = True

    def tune(self, *, ef_search: int | None = None) -> None:
        """Set search options."""
        if ef_search is not None and check_int("ef_search", ef_search) != self._ef[1]:
            self._ef = self._ef[0], ef_search
            with self._speaking:
                self._apply_ef_search()

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        if not self._ready:
            self.build()
        wanted = self._columns.wanted(where) if where else []
        if not len(self) or not len(queries) or wanted is None:
            return self._intake.empty(len(queries), k)
        terms = [
            {field: {CHROMA_OPERATORS[operator]: list(value) if operator == ONE_OF else value}}
            for field, operator, value in wanted
        ]
        condition = None if not terms else terms[0] if len(terms) == 1 else {"$and": terms}
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        values = np.full((len(queries), k), np.inf, dtype=np.float32)
        with self._speaking, stage("retrieve"):
            found = self._collection.query(
                query_embeddings=queries, n_results=min(k, len(self)), where=condition, include=["distances"]
            )
            for row, (names, distances) in enumerate(zip(found["ids"], found["distances"], strict=True)):
                positions[row, : len(names)] = [int(name) for name in names]
                values[row, : len(names)] = distances
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = values - 1  # Chroma returns 1 - the inner product
        else:
            values = np.maximum(values, 0)
        return self._intake.answer(positions, values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        if len(ids):
            with self._speaking:
                self._collection.update(ids=[str(place) for place in positions.tolist()], embeddings=matrix)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        if len(ids):
            with self._speaking:
                self._collection.delete(ids=[str(place) for place in positions.tolist()])
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the ids in `path`; Chroma has already stored the rest there."""
        folder = require_folder("chroma", self._path)
        if len(self):
            self.build()
            self._intake.write(folder, **self._build_time_options(), columns=self._columns.kept())

    def close(self) -> None:
        """Close the engine; a temporary folder is removed."""
        if not isinstance(self._client, ClosedEngine):
            with self._speaking:
                self._client.close()
        self._client = self._collection = ClosedEngine()
        self._home.close()

    def _build_time_options(self) -> dict[str, Any]:
        return {"m": self._m, "ef_construction": self._ef[0]}

    def _open_collection(self) -> None:
        from chromadb.config import Settings

        # Chroma ignores the configuration if the collection exists.
        graph = {"space": self._intake.metric, "ef_construction": self._ef[0], "max_neighbors": self._m}
        self._client = self._library.PersistentClient(path=self._folder, settings=Settings(anonymized_telemetry=False))
        self._collection = self._client.get_or_create_collection(
            VECTOR_COLLECTION, embedding_function=None, configuration={"hnsw": {**graph, "ef_search": self._ef[1]}}
        )

    def _apply_ef_search(self) -> None:
        with warnings.catch_warnings():
            # Chroma treats a collection without an embedding function of its own as a legacy one.
            warnings.simplefilter("ignore", DeprecationWarning)
            if self._collection.configuration["hnsw"]["ef_search"] == self._ef[1]:
                return
            self._collection.modify(configuration={"hnsw": {"ef_search": self._ef[1]}})
            self._client.close()
            self._open_collection()
        self._ready = False
