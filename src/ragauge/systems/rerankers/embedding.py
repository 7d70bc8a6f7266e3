"""Rerankers that look at vectors: by likeness to the query, and by maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragauge.errors import BadInput
from ragauge.records import Document, Hit
from ragauge.seams import Embedder, Vectors
from ragauge.systems.embedders.directions import unit


class Remembered:
    """Vectors of documents, embedded when the system is built; texts from elsewhere are embedded as they come."""

    def __init__(self, embedder: Embedder, documents: Sequence[Document]) -> None:
        self._embedder = embedder
        self._rows = {document.id: row for row, document in enumerate(documents)}
        self._vectors = unit(embedder.embed([document.whole for document in documents])) if documents else None

    def of(self, hits: Sequence[Hit]) -> Vectors:
        """A row for each hit."""
        if self._vectors is None or any(hit.id not in self._rows for hit in hits):
            return unit(self._embedder.embed([hit.text for hit in hits]))
        return np.asarray(self._vectors[[self._rows[hit.id] for hit in hits]])


class ByEmbedding:
    """A stronger embedder than the one that found them: hits in the order of their cosine to the query."""

    def __init__(
        self, embedder: Embedder, documents: Sequence[Document] = (), *, document_embedder: Embedder | None = None
    ) -> None:
        self._embedder = embedder
        self._known = Remembered(document_embedder or embedder, documents)

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits; of equal cosines the one that came first."""
        if not hits:
            return []
        near = self._known.of(hits) @ unit(self._embedder.embed([query]))[0]
        order = np.argsort(-near, kind="stable")
        return [hits[i]._replace(score=float(near[i])) for i in order.tolist()]


class MMR:
    """Maximal marginal relevance (Carbonell and Goldstein, 1998): like the query, unlike what is already chosen.

    Each step takes the hit with the highest `weight * cos(query, hit) - (1 - weight) * max cos(hit, chosen)`. Scores
    are the places it gave, since the marginal values of later steps may rise.
    """

    def __init__(
        self,
        embedder: Embedder,
        documents: Sequence[Document] = (),
        *,
        weight: float = 0.5,
        document_embedder: Embedder | None = None,
    ) -> None:
        if not 0 <= weight <= 1:
            raise BadInput(f"the weight of mmr is {weight:g}, not between 0 and 1")
        self._embedder = embedder
        self._known = Remembered(document_embedder or embedder, documents)
        self._weight = weight

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits in the order in which they were chosen."""
        if not hits:
            return []
        vectors = self._known.of(hits)
        worth = vectors @ unit(self._embedder.embed([query]))[0]
        closest = np.zeros(len(hits), np.float32)
        chosen: list[int] = []
        left = np.ones(len(hits), bool)
        while len(chosen) < len(hits):
            marginal = self._weight * worth - (1 - self._weight) * closest
            marginal[~left] = -np.inf
            take = int(np.argmax(marginal))
            likeness = vectors @ vectors[take]
            closest = likeness if not chosen else np.maximum(closest, likeness)
            left[take] = False
            chosen.append(take)
        return [hits[i]._replace(score=1.0 / place) for place, i in enumerate(chosen, 1)]
