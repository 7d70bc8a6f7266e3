"""Documents with vectors, links and metadata: the only input of graph systems, without judgments."""

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
    """Documents with their unit vectors and their graph; several graph systems can share one.

    `document_embedder` may be cached; queries always use `embedder`. A text whose vector is all zeros has the
    similarity 0 to everything.
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
        """Compute the cosine of the query to every document; all zeros for a zero vector."""
        if not self.documents:
            return np.zeros(0)
        with stage("embed"):
            given = self.embedder.embed([query])
        if not np.isfinite(given).all():
            raise BadInput(f"the embedder `{self.embedder.name}` gave a vector that is no numbers for the query")
        with stage("retrieve"):
            return np.asarray(self.vectors @ unit(given)[0], np.float64)

    def numbers(self, field: str) -> Floats:
        """Return a numeric metadata field per document, scaled to 0 to 1; 0 if missing."""
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
        """Return the `k` best documents; ties are broken by similarity, then by position."""
        k = min(max(k, 0), len(scores))
        if k == 0:
            return []
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        some = np.flatnonzero(scores >= least)
        rows = some[np.lexsort((-likeness[some], -scores[some]))][:k]
        return self.hits(rows, scores[rows])

    def hits(self, rows: Ints, scores: Floats) -> list[Hit]:
        """Return hits for document rows, in the given order, with the given scores."""
        found = (self.documents[row] for row in rows.tolist())
        return [Hit(one.id, score, one.text, one.metadata) for one, score in zip(found, scores.tolist(), strict=True)]

    def about(self) -> dict[str, Any]:
        """Return embedder and graph for the manifest."""
        return {"embedder": self.embedder.name, "graph": self.graph.about()}


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) <= sys.float_info.max else math.nan


def _embedded(documents: Sequence[Document], embedder: Embedder) -> Vectors:
    """Embed the documents and check that all values are finite."""
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
