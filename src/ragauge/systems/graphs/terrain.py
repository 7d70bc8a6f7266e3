"""What every walker sees, and nothing else: texts, vectors, links and metadata. No label comes here."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.graphs import Graph, Links
from ragauge.records import Document, Floats, Hit, Ints
from ragauge.seams import Embedder, Linker, Vectors
from ragauge.stages import stage
from ragauge.systems.embedders.directions import unit


class Terrain:
    """Documents with their unit vectors and the graph over them; several walkers can share one.

    `document_embedder` may be one that remembers; queries always go to `embedder` itself. A text whose vector is all
    zeros has no direction: its likeness to everything is 0.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Embedder,
        linkers: Sequence[Linker],
        *,
        document_embedder: Embedder | None = None,
    ) -> None:
        self.documents = documents
        self.embedder = embedder
        self.rows = {document.id: row for row, document in enumerate(documents)}
        if len(self.rows) < len(documents):
            twice = next(one.id for row, one in enumerate(documents) if self.rows[one.id] != row)
            raise BadInput(f"two documents have the id `{twice}`, and a node needs one of its own")
        self.vectors: Vectors = unit(_embedded(documents, document_embedder or embedder))
        links: dict[str, Links] = {}
        for linker in linkers:
            if linker.name in links:
                raise BadInput(f"the graph has `{linker.name}` twice")
            links[linker.name] = linker.link(documents, self.vectors)
        self.graph = Graph.of(list(self.rows), links)

    def likeness(self, query: str) -> Floats:
        """The cosine of the query to every document; all zeros if the query has no direction."""
        if not self.documents:
            return np.zeros(0)
        with stage("embed"):
            given = self.embedder.embed([query])
        if not np.isfinite(given).all():
            raise BadInput(f"the embedder `{self.embedder.name}` gave a vector that is no numbers for the query")
        with stage("retrieve"):
            return np.asarray(self.vectors @ unit(given)[0], np.float64)

    def numbers(self, field: str) -> Floats:
        """A number of the metadata of every document, brought to 0 (the least, or none) up to 1 (the most)."""
        raw = [_number(document.metadata.get(field)) for document in self.documents]
        known = [value for value in raw if not math.isnan(value)]
        if not known:
            held = next((one for document in self.documents if (one := document.metadata.get(field)) is not None), None)
            what = "" if held is None else f": {held!r} is none"
            raise BadInput(f"no document has a number called `{field}` in its metadata{what}")
        low, high = min(known), max(known)
        scaled = (np.nan_to_num(np.array(raw), nan=low) - low) / ((high - low) or 1.0)
        return np.asarray(scaled, np.float64)

    def best(self, scores: Floats, likeness: Floats, k: int) -> list[Hit]:
        """The `k` documents with the highest scores; of equal ones those most like the query, then the first."""
        k = min(max(k, 0), len(scores))
        if k == 0:
            return []
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        some = np.flatnonzero(scores >= least)
        rows = some[np.lexsort((-likeness[some], -scores[some]))][:k]
        return self.hits(rows, scores[rows])

    def hits(self, rows: Ints, scores: Floats) -> list[Hit]:
        """Documents by their numbers, as they are given, with these scores."""
        found = (self.documents[row] for row in rows.tolist())
        return [Hit(one.id, score, one.text, one.metadata) for one, score in zip(found, scores.tolist(), strict=True)]

    def about(self) -> dict[str, Any]:
        """What walkers on it share, for manifests."""
        return {"embedder": self.embedder.name, "graph": self.graph.about()}


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) <= sys.float_info.max else math.nan


def _embedded(documents: Sequence[Document], embedder: Embedder) -> Vectors:
    """A vector for each document, all of them numbers."""
    if not documents:
        return np.zeros((0, 1), np.float32)
    vectors = np.asarray(embedder.embed([document.whole for document in documents]), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(documents):
        raise BadInput(f"the embedder `{embedder.name}` gave {len(vectors)} vectors for {len(documents)} texts")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        name = documents[int(wrong[0])].id
        raise BadInput(f"the embedder `{embedder.name}` gave a vector that is no numbers for the document `{name}`")
    return vectors
