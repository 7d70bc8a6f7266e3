"""Corpus for graph retrieval: documents, vectors and links, and the draws of walkers.

All of them are vectorised: a step of all walkers is a few array operations.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput
from ragauge.core.graphs import Graph, LinkArrays
from ragauge.core.plugin_parameters import DocumentEmbedder, Part
from ragauge.core.protocols import Embedder, GraphBuilder, Vectors
from ragauge.core.records import Floats, Ints
from ragauge.core.stages import stage
from ragauge.core.vectors import to_unit_rows
from ragauge.systems.bm25 import find_top_k

DEFAULT_GRAPH = ("links", "knn")
"""Graph used if none is named."""


class LinkedCorpus:
    """Documents with their unit vectors and their graph; several graph systems can share one.

    `document_embedder` may be cached; queries always use `embedder`. A text whose vector is all zeros has the
    similarity 0 to everything.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Annotated[Embedder, Part("wordllama")],
        linkers: Annotated[Sequence[GraphBuilder], Part("+".join(DEFAULT_GRAPH), option="graph")],
        *,
        document_embedder: Annotated[Embedder | None, DocumentEmbedder("embedder")] = None,
    ) -> None:
        self.documents = documents
        self.embedder = embedder
        self.rows = {document.id: row for row, document in enumerate(documents)}
        if len(self.rows) < len(documents):
            duplicate_id = next(document.id for row, document in enumerate(documents) if self.rows[document.id] != row)
            raise BadInput(f"duplicate document id `{duplicate_id}`; expected one id per node")
        self.vectors: Vectors = to_unit_rows(_embed_documents(documents, document_embedder or embedder))
        links: dict[str, LinkArrays] = {}
        for linker in linkers:
            if linker.name in links:
                raise BadInput(f"the graph has `{linker.name}` twice")
            links[linker.name] = linker.link(documents, self.vectors)
        self.graph = Graph.of(list(self.rows), links)

    def similarities(self, query: str) -> Floats:
        """Compute the cosine of the query to every document; all zeros for a zero vector."""
        if not self.documents:
            return np.zeros(0)
        with stage("embed"):
            query_vectors = self.embedder.embed([query])
        if not np.isfinite(query_vectors).all():
            raise BadInput(
                f"the embedder `{self.embedder.name}` returned a vector with NaN or infinite values for the query"
            )
        with stage("retrieve"):
            return np.asarray(self.vectors @ to_unit_rows(query_vectors)[0], np.float64)

    def numbers(self, field: str) -> Floats:
        """Return a numeric metadata field per document, scaled to 0 to 1; 0 if missing."""
        raw = [_finite_number(document.metadata.get(field)) for document in self.documents]
        finite = [value for value in raw if not math.isnan(value)]
        if not finite:
            example = next(
                (
                    found_value
                    for document in self.documents
                    if (found_value := document.metadata.get(field)) is not None
                ),
                None,
            )
            example_text = "" if example is None else f", e.g. {example!r} is not a number"
            raise BadInput(f"no document has a number called `{field}` in its metadata{example_text}")
        low, high = min(finite), max(finite)
        scaled = (np.nan_to_num(np.array(raw), nan=low) - low) / ((high - low) or 1.0)
        return np.asarray(scaled, np.float64)

    def best(self, scores: Floats, similarity: Floats, k: int) -> list[Hit]:
        """Return the `k` best documents; ties are broken by similarity, then by position."""
        k = min(max(k, 0), len(scores))
        if k == 0:
            return []
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        candidates = np.flatnonzero(scores >= threshold)
        rows = candidates[np.lexsort((-similarity[candidates], -scores[candidates]))][:k]
        return self.hits(rows, scores[rows])

    def hits(self, rows: Ints, scores: Floats) -> list[Hit]:
        """Return hits for document rows, in the given order, with the given scores."""
        documents = (self.documents[row] for row in rows.tolist())
        return [
            Hit(document.id, score, document.text, document.metadata)
            for document, score in zip(documents, scores.tolist(), strict=True)
        ]

    def about(self) -> dict[str, Any]:
        """Return embedder and graph for the manifest."""
        return {"embedder": self.embedder.name, "graph": self.graph.about()}


def _finite_number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) <= sys.float_info.max else math.nan


def _embed_documents(documents: Sequence[Document], embedder: Embedder) -> Vectors:
    """Embed the documents and check that all values are finite."""
    if not documents:
        return np.zeros((0, 1), np.float32)
    vectors = np.asarray(embedder.embed([document.whole for document in documents]), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(documents):
        raise BadInput(f"the embedder `{embedder.name}` returned {len(vectors)} vectors for {len(documents)} texts")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        name = documents[int(wrong[0])].id
        raise BadInput(
            f"the embedder `{embedder.name}` returned a vector with NaN or infinite values for the document `{name}`"
        )
    return vectors


Mask = NDArray[np.bool_]

NO_POSITION = -1
"""Value for no node in a path, or no link in a move."""
SIMILARITY_TIE_WEIGHT = 1e-6
"""Weight of the similarity that is added to a score to break ties."""
MAX_PRIOR_WEIGHT = 20.0
"""Maximum weight of a prior; the highest value then has 500 million times the odds of the lowest."""


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Heaviest links of every node as tables of equal shape, one row per node."""

    ends: Ints
    """Node at the other end."""
    weights: Floats
    """Weight of the link: 1 for the heaviest of all, 0 if a node has no more links."""
    numbers: Ints
    """Number of the link; the same from both of its nodes."""
    n_links: int
    """Number of links."""

    @classmethod
    def of(cls, graph: Graph, max_links: int) -> LinkTable:
        """Build the table of a graph with at most `max_links` links per node.

        Of equally heavy links, a hash of the ids decides. Positions would not do: in a corpus that is sorted by type, a
        whole type could be missing.

        >>> from ragauge.core.graphs import LinkArrays
        >>> triangle = LinkArrays(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1.0, 4.0, 2.0]))
        >>> ways = LinkTable.of(Graph.of(["a", "b", "c"], {"side": triangle}), 2)
        >>> ways.ends.tolist(), ways.weights.tolist(), ways.numbers.tolist()
        ([[2, 1], [2, 0], [0, 1]], [[1.0, 0.25], [0.5, 0.25], [1.0, 0.5]], [[1, 0], [2, 0], [1, 2]])
        """
        n, sources = len(graph), graph.sources
        hashes = np.array([crc32(name.encode("utf-8", "surrogatepass")) for name in graph.ids], np.int64)
        order = np.lexsort((graph.ends, hashes[graph.ends], -graph.weights, sources))
        positions = np.arange(len(order)) - graph.starts[sources]  # Sources keep their order here.
        order, rows, positions = (column[positions < max_links] for column in (order, sources, positions))
        low, high = np.minimum(sources, graph.ends), np.maximum(sources, graph.ends)
        pairs, numbers = np.unique(low * n + high, return_inverse=True)
        shape = (n, max(1, int(positions.max(initial=0)) + 1))
        table = cls(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.int64), len(pairs))
        table.ends[rows, positions] = graph.ends[order]
        table.weights[rows, positions] = graph.weights[order] / graph.weights.max(initial=0.0)
        table.numbers[rows, positions] = numbers[order]
        return table

    def to_power(self, power: float) -> Floats:
        """Return the weights to a power; 0 for missing links, even if the power is 0."""
        return np.where(self.weights > 0, self.weights**power, 0.0)

    def restrict_to(self, rows: Ints) -> LinkTable:
        """Return the table of the links among some nodes, renumbered in the given order."""
        local = np.full(len(self.ends), NO_POSITION)
        local[rows] = np.arange(len(rows))
        targets = local[self.ends[rows]]
        inside = (targets >= 0) & (self.weights[rows] > 0)
        link_numbers, numbers = np.unique(self.numbers[rows][inside], return_inverse=True)
        table = LinkTable(
            np.where(inside, targets, 0),
            np.where(inside, self.weights[rows], 0.0),
            np.zeros_like(targets),
            len(link_numbers),
        )
        table.numbers[inside] = numbers
        return table


def draw_columns(weights: Floats, random_numbers: Floats) -> tuple[Ints, Mask]:
    """Draw a column per row in proportion to its values.

    Also return whether a row has any value above 0. `random_numbers` has a random number below 1 for each row.
    """
    sums = np.cumsum(weights, axis=1)
    marks = random_numbers * sums[:, -1]  # A number below 1 times a sum is below that sum, even after rounding.
    return (sums > marks[:, None]).argmax(axis=1), sums[:, -1] > 0


def draw_rows(rows: Ints, weights: Floats, random_numbers: Floats) -> Ints:
    """Draw rows in proportion to their values, one for each random number below 1."""
    sums = np.cumsum(weights)
    return np.asarray(rows[np.searchsorted(sums, random_numbers * sums[-1], side="right")], np.int64)


def unique_visits(paths: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values of each path, and the index of their path."""
    ordered = np.sort(paths, axis=1)
    new = ordered >= 0
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return ordered[new], np.nonzero(new)[0]


def scale_to_unit(values: Floats) -> Floats:
    """Scale values to 0 to 1; 0 if all are equal."""
    low, high = values.min(), values.max()
    return np.asarray((values - low) / ((high - low) or 1.0), np.float64)


def compute_preferences(corpus: LinkedCorpus, field: str, weight: float) -> Floats:
    """Compute exp(`weight` times a metadata field) per node, at most 1.

    Without a field it is 1.
    """
    return np.exp(weight * (corpus.numbers(field) - 1)) if field else np.ones(len(corpus.documents))


def visit_scores(values: Floats, similarity: Floats, preferred: Floats) -> Floats:
    """Compute scores; ties are broken by similarity to the query."""
    return np.asarray((values + SIMILARITY_TIE_WEIGHT * similarity) * preferred, np.float64)


def rank_visited(corpus: LinkedCorpus, k: int, similarity: Floats, rows: Ints, scores: Floats) -> list[Hit]:
    """Rank visited nodes by score, then all others by similarity, with lower scores."""
    order = np.argsort(-scores, kind="stable")[: max(k, 0)]
    ranked, ranked_scores = rows[order], scores[order]
    if k > len(ranked):
        other_similarity = similarity.copy()
        other_similarity[rows] = -np.inf
        other_rows = find_top_k(other_similarity, min(k, len(similarity)) - len(ranked))
        ranked = np.concatenate([ranked, other_rows])
        ranked_scores = np.concatenate([ranked_scores, scores.min() - 2 + similarity[other_rows]])
    return corpus.hits(ranked, ranked_scores)
