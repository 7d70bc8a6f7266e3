"""Documents in Qdrant's in-process engine (qdrant-edge)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import MissingExtra
from ragauge.stores.document_stores import (
    ALL_FIELDS,
    VerbatimEngineErrors,
    document_from_columns,
    metadata_to_json,
    to_document_matrix,
    to_query_vector,
)
from ragauge.stores.engines import ClosedEngine, EngineFolder

SHARD_FOLDER = "qdrant"
UUID_NAMESPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
IDS_PER_PAGE = 1000


class QdrantDocumentStore:
    """Qdrant shard (qdrant-edge).

    Id, text, title and metadata (as JSON) are the payload of a point. Qdrant identifies points by integers or UUIDs:
    the key is a version 5 UUID of the id, as Qdrant's documentation recommends. Qdrant normalises vectors for its
    cosine distance. `commit` calls Qdrant's `flush`. `exact` searches by brute force instead of the graph.
    """

    keeps = ALL_FIELDS
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, exact: bool = False) -> None:
        try:
            import qdrant_edge
        except ImportError as error:
            raise MissingExtra("the Qdrant keeper", "qdrant") from error
        self._edge: Any = qdrant_edge
        self._dimension, self._exact = dimension, exact
        self._speaking = VerbatimEngineErrors("qdrant")
        self._home = EngineFolder("qdrant", path)
        folder = self._home.place(SHARD_FOLDER, fresh=False)
        with self._speaking:
            if folder.exists():
                self._shard: Any = qdrant_edge.EdgeShard.load(str(folder))
            else:
                folder.mkdir(parents=True)
                kind = qdrant_edge.EdgeVectorParams(size=dimension, distance=qdrant_edge.Distance.Cosine)
                self._shard = qdrant_edge.EdgeShard.create(str(folder), qdrant_edge.EdgeConfig(vectors=kind))

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store documents; a document with an existing id is replaced."""
        rows = to_document_matrix(documents, vectors, self._dimension)
        with self._speaking:
            points = [
                self._edge.Point(
                    _uuid_for_id(one.id),
                    row.tolist(),
                    {"id": one.id, "title": one.title, "text": one.text, "metadata": metadata_to_json(one.metadata)},
                )
                for one, row in zip(documents, rows, strict=True)
            ]
            self._shard.update(self._edge.UpdateOperation.upsert_points(points))

    def commit(self) -> None:
        """Flush the shard."""
        with self._speaking:
            self._shard.flush()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, in this order; None for an unknown id."""
        with self._speaking:
            found = self._shard.retrieve([_uuid_for_id(name) for name in ids], True, False) if len(ids) else []
        payloads = [one.payload for one in found]
        there = {
            row["id"]: document_from_columns(row["id"], row["text"], row["title"], row["metadata"]) for row in payloads
        }
        return [there.get(name) for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored documents."""
        names: list[str] = []
        after: Any = None
        with self._speaking:
            while True:
                asked = self._edge.ScrollRequest(
                    offset=after, limit=IDS_PER_PAGE, with_payload=["id"], with_vector=False
                )
                found, after = self._shard.scroll(asked)
                names += [str(one.payload["id"]) for one in found]
                if after is None:
                    return names

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that Qdrant finds."""
        edge = self._edge
        with self._speaking:
            request = edge.SearchRequest(
                query=edge.Query.Nearest(to_query_vector(vector, self._dimension)),
                limit=k,
                params=edge.SearchParams(exact=self._exact),
                with_payload=["id", "text"],
            )
            found = self._shard.search(request)
        return [Hit(one.payload["id"], one.score, one.payload["text"]) for one in found]

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        about = {"engine": "qdrant-edge", "version": version("qdrant-edge-py"), "exact": self._exact}
        return {"keeper": "qdrant", **about, "dimension": self._dimension}

    def close(self) -> None:
        """Close the shard; a temporary folder is removed."""
        if not isinstance(self._shard, ClosedEngine):
            with self._speaking:
                self._shard.close()
        self._shard = ClosedEngine()
        self._home.close()


def _uuid_for_id(name: str) -> uuid.UUID:
    return uuid.uuid5(UUID_NAMESPACE, name)
