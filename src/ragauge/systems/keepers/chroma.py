"""Chroma: collections in a folder, with an HNSW graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragauge.errors import MissingExtra
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import EVERYTHING, Verbatim, document, matrix, query, written
from ragauge.systems.stores.engines import Gone, Home

FOLDER = "chroma"
COLLECTION = "documents"


class Chroma:
    """Chroma collection of documents.

    The text is the document in Chroma; title and metadata (as JSON) are its metadata. The graph has Chroma's
    defaults except for the distance and `ef_search`. Each upsert is a transaction of Chroma, so `commit` has nothing
    to do.
    """

    keeps = EVERYTHING
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
        self._speaking = Verbatim("chroma")
        self._home = Home("chroma", path)
        with self._speaking:
            self._client: Any = chromadb.PersistentClient(
                path=str(self._home.place(FOLDER, fresh=False)), settings=Settings(anonymized_telemetry=False)
            )
            graph: Any = {"hnsw": {"space": "cosine", "ef_search": ef_search}}
            self._collection: Any = self._client.get_or_create_collection(
                COLLECTION, embedding_function=None, configuration=graph
            )
            self._most = int(self._client.get_max_batch_size())

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = matrix(documents, vectors, self._dimension)
        with self._speaking:
            for start in range(0, len(documents), self._most):
                some = documents[start : start + self._most]
                self._collection.upsert(
                    ids=[one.id for one in some],
                    embeddings=rows[start : start + self._most],
                    documents=[one.text for one in some],
                    metadatas=[{"title": one.title, "metadata": written(one.metadata)} for one in some],
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
        there = {name: document(name, text, about["title"], about["metadata"]) for name, text, about in columns}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        with self._speaking:
            return list(self._collection.get(include=[])["ids"])

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that Chroma's graph finds."""
        with self._speaking:
            asked = query(vector, self._dimension)[None]
            found = self._collection.query(query_embeddings=asked, n_results=k, include=["documents", "distances"])
        columns = zip(found["ids"][0], found["distances"][0], found["documents"][0], strict=True)
        return [Hit(name, 1 - distance, text) for name, distance, text in columns]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = {"version": self._library.__version__, "index": "hnsw", "ef_search": self._ef_search}
        return {"keeper": "chroma", **about, "dimension": self._dimension}

    def close(self) -> None:
        """Close the engine; a temporary folder is removed."""
        if not isinstance(self._client, Gone):
            with self._speaking:
                self._client.close()
        self._client = self._collection = Gone()
        self._home.close()
