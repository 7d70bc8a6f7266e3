"""Rerank by vectors: by similarity to the query, or by maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragauge.errors import BadInput
from ragauge.records import Document, Hit
from ragauge.seams import Embedder, Vectors
from ragauge.systems.embedders.directions import unit


class Remembered:
    """Vectors of documents, embedded at build time; hits from elsewhere are embedded per query."""

    def __init__(self, embedder: Embedder, documents: Sequence[Document]) -> None:
        self._embedder = embedder
        self._rows = {document.id: row for row, document in enumerate(documents)}
        self._vectors = unit(embedder.embed([document.whole for document in documents])) if documents else None

    def of(self, hits: Sequence[Hit]) -> Vectors:
        """Return the vectors of hits, one row per hit."""
        if self._vectors is None or any(hit.id not in self._rows for hit in hits):
            return unit(self._embedder.embed([hit.text for hit in hits]))
        return np.asarray(self._vectors[[self._rows[hit.id] for hit in hits]])


class ByEmbedding:
    """Reranker that sorts hits by cosine to the query, e.g. with a stronger embedder."""

    def __init__(
        self, embedder: Embedder, documents: Sequence[Document] = (), *, document_embedder: Embedder | None = None
    ) -> None:
        self._embedder = embedder
        self._known = Remembered(document_embedder or embedder, documents)

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits in order of cosine; ties keep their order."""
        if not hits:
            return []
        near = self._known.of(hits) @ unit(self._embedder.embed([query]))[0]
        order = np.argsort(-near, kind="stable")
        return [hits[i]._replace(score=float(near[i])) for i in order.tolist()]


class MMR:
    """Reranker by maximal marginal relevance (Carbonell and Goldstein, 1998).

    Each step selects the hit with the highest `weight * cos(query, hit) - (1 - weight) * max cos(hit, chosen)`. The
    score of a hit is 1 / rank, because marginal values may increase in later steps.
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
        """Return the hits in the order in which they were selected."""
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
