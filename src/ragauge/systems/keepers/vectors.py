"""A store that keeps vectors and no texts, where keepers are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ragauge import plugins
from ragauge.records import Document, Hit
from ragauge.systems.keepers.columns import matrix, query


class Vectors:
    """A store of vectors (`vectors(store=faiss)`, and its options): ids and vectors are kept, texts are not.

    A document comes back with its id alone, and `keeps` says that there is nothing else. These libraries know vectors
    by position; the ids are ragauge's own, in a file beside the index that `commit` writes.
    """

    keeps: frozenset[str] = frozenset()
    searches = "vectors"

    def __init__(self, *, path: str | None = None, dimension: int, store: str = "faiss", **options: Any) -> None:
        self._dimension = dimension
        self._path = path
        self._store: Any = plugins.find("stores", store)(metric="cosine", path=path, **options)

    def put(self, documents: Sequence[Document], vectors: Any) -> None:
        """Take the vectors of documents in; an id that is there gets another vector."""
        rows = matrix(documents, vectors, self._dimension)
        known = set(self.ids())
        old = [place for place, one in enumerate(documents) if one.id in known]
        new = [place for place, one in enumerate(documents) if one.id not in known]
        if old:
            self._store.update([documents[place].id for place in old], rows[old])
        if new:
            self._store.add([documents[place].id for place in new], rows[new])

    def commit(self) -> None:
        """Write the whole store into its folder, if it has one."""
        if self._path is not None:
            self._store.save()

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """An empty document where there is a vector, None where there is none."""
        known = set(self.ids())
        return [Document(name, "") if name in known else None for name in ids]

    def ids(self) -> list[str]:
        """The ids of everything that is kept."""
        return list(self._store._intake.ids)

    def search(self, text: str, vector: Any, k: int) -> list[Hit]:  # noqa: ARG002 - the contract's
        """The `k` nearest that the store finds."""
        names, distances = self._store.search(query(vector, self._dimension)[None], k)
        found = zip(names[0].tolist(), distances[0].tolist(), strict=True)
        return [Hit(name, 1 - distance) for name, distance in found if name is not None]

    def describe(self) -> dict[str, Any]:
        """What the store says of itself."""
        return {"keeper": "vectors", **self._store.describe()}

    def close(self) -> None:
        """Let go of everything."""
        self._store.close()
