"""Chroma: a collection in a folder."""

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
    """A Chroma collection: the text is its document, title and metadata (as JSON) are its metadata.

    The graph is at Chroma's defaults, but for the distance and `ef_search`. Every upsert is a transaction of Chroma's
    own, so that there is nothing to commit.
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
        """Take documents in; an id that is there is replaced."""
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
        """Nothing: what was put in is committed."""

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """The documents as they are kept, in this order; None where there is none."""
        if not len(ids):
            return []  # Chroma would take it for all of them
        with self._speaking:
            found = self._collection.get(ids=list(dict.fromkeys(ids)), include=["documents", "metadatas"])
        columns = zip(found["ids"], found["documents"], found["metadatas"], strict=True)
        there = {name: document(name, text, about["title"], about["metadata"]) for name, text, about in columns}
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """The ids of everything that is kept."""
        with self._speaking:
            return list(self._collection.get(include=[])["ids"])

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """The `k` nearest that Chroma's graph finds."""
        with self._speaking:
            asked = query(vector, self._dimension)[None]
            found = self._collection.query(query_embeddings=asked, n_results=k, include=["documents", "distances"])
        columns = zip(found["ids"][0], found["distances"][0], found["documents"][0], strict=True)
        return [Hit(name, 1 - distance, text) for name, distance, text in columns]

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this keeper."""
        about = {"version": self._library.__version__, "index": "hnsw", "ef_search": self._ef_search}
        return {"keeper": "chroma", **about, "dimension": self._dimension}

    def close(self) -> None:
        """Let go of the folder."""
        if not isinstance(self._client, Gone):
            with self._speaking:
                self._client.close()
        self._client = self._collection = Gone()
        self._home.close()
