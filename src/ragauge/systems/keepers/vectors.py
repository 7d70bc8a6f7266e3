"""Document stores: how they are opened, and what their engine adapters share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragauge import plugins
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import matrix, query


class Vectors:
    """Vector store as a document store without texts: `vectors(store=faiss)`.

    Other options are those of the vector store.

    A document is returned with its id only, and `keeps` is empty. These libraries identify vectors by position;
    ragauge writes the ids to a file next to the index on `commit`.
    """

    keeps: frozenset[str] = frozenset()
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, store: str = "faiss", **options: Any) -> None:
        self._dimension = dimension
        self._path = path
        self._store: Any = plugins.find("stores", store)(metric="cosine", path=path, **options)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Store the vectors of documents; an existing id gets the new vector."""
        rows = matrix(documents, vectors, self._dimension)
        known = set(self.ids())
        old = [place for place, one in enumerate(documents) if one.id in known]
        new = [place for place, one in enumerate(documents) if one.id not in known]
        if old:
            self._store.update([documents[place].id for place in old], rows[old])
        if new:
            self._store.add([documents[place].id for place in new], rows[new])

    def commit(self) -> None:
        """Write the whole store to its folder, if it has one."""
        if self._path is not None:
            self._store.save()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return an empty document for a known id, None for an unknown one."""
        known = set(self.ids())
        return [Document(name, "") if name in known else None for name in ids]

    def ids(self) -> list[str]:
        """Return the ids of all stored vectors."""
        return list(self._store._intake.ids)

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """Return the `k` nearest documents that the vector store finds."""
        names, distances = self._store.search(query(vector, self._dimension)[None], k)
        found = zip(names[0].tolist(), distances[0].tolist(), strict=True)
        return [Hit(name, 1 - distance) for name, distance in found if name is not None]

    def describe(self) -> dict[str, Any]:
        """Return the description of the vector store."""
        return {"keeper": "vectors", **self._store.describe()}

    def close(self) -> None:
        """Close the vector store."""
        self._store.close()
