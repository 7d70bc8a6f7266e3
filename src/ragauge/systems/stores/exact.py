"""Exact search by brute force: the truth that approximate stores are measured against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragauge.stages import stage
from ragauge.systems.stores.intake import Intake, Matrix

if TYPE_CHECKING:
    from ragauge.seams import Neighbours

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

QUERIES_AT_ONCE = 128
VECTORS_AT_ONCE = 16_384
"""Together 8 MB of scores at a time, whatever the size of the store."""
LARGE = 1e15
"""Lengths whose squares single precision still holds."""


class Exact:
    """Compares every query with every vector, in double precision; equal distances stand in order of arrival.

    A matrix product in single precision finds all that could be among the nearest, with a margin for its rounding. Only
    those are then compared in double precision, row by row, because a product may round two equal vectors differently,
    and squares that cancel out would put a vector at a distance from itself.

    >>> store = Exact(metric="l2")
    >>> store.add(["a", "b", "c"], [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    >>> ids, distances = store.search([[0.0, 0.0]], k=4)
    >>> ids.tolist(), distances.tolist()
    ([['a', 'c', 'b', None]], [[0.0, 0.0, 5.0, inf]])
    """

    def __init__(self, *, metric: str = "cosine") -> None:
        self._intake = Intake(metric)
        self._parts: list[Matrix] = []
        self._sizes: Floats = np.empty(0)

    def __len__(self) -> int:
        return len(self._intake)

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this store."""
        return {"store": "exact", "metric": self._intake.metric, "size": len(self), "dimension": self._intake.dimension}

    def add(self, ids: Sequence[str], vectors: Any) -> None:
        """Take vectors in, each under its id."""
        matrix = self._intake.documents(ids, vectors)
        if len(matrix):
            # A copy: whoever gave the array may go on writing into it.
            self._parts.append(matrix.copy())
        self._intake.remember(ids, matrix)

    def search(self, vectors: Any, k: int) -> Neighbours:
        """The `k` nearest of each row, nearest first."""
        queries = self._intake.queries(vectors, k)
        ids, distances = self._intake.empty(len(queries), k)
        if not len(self) or not len(queries):
            return ids, distances
        with stage("retrieve"):
            if len(self._sizes) < len(self):
                self._parts = [np.concatenate(self._parts)]
                self._sizes = np.sqrt(np.einsum("ij,ij->i", self._parts[0], self._parts[0], dtype=np.float64))
            for start in range(0, len(queries), QUERIES_AT_ONCE):
                rows = slice(start, start + QUERIES_AT_ONCE)
                found, far = self._nearest(queries[rows].astype(np.float64), min(k, len(self)))
                ids[rows], distances[rows] = self._intake.answer(found, far, k)
        return ids, distances

    def _nearest(self, queries: Floats, k: int) -> tuple[Ints, Floats]:
        """Positions and distances of the `k` nearest of a few queries."""
        rows, positions = self._candidates(queries, k)
        distances = self._distances(queries, rows, positions)
        order = np.lexsort((positions, distances, rows))
        starts = np.searchsorted(rows[order], np.arange(len(queries)))
        best = order[starts[:, None] + np.arange(k)]
        return positions[best], distances[best]

    def _candidates(self, queries: Floats, k: int) -> tuple[Ints, Ints]:
        """Pairs of a query and a position, among them all of the `k` nearest and whatever is tied with them."""
        bound = np.full(len(queries), np.inf)
        kept: list[tuple[Ints, Ints, Floats]] = []
        slack = np.zeros(len(queries))
        for offset, block in self._blocks():
            scores, rounding = self._scores(queries, block, self._sizes[offset : offset + len(block)])
            slack = np.maximum(slack, rounding)
            if len(block) >= k:
                # The k-th best of any block is no better than the k-th best of all.
                bound = np.minimum(bound, np.partition(scores, k - 1, axis=1)[:, k - 1])
            rows, columns = np.nonzero(scores <= (bound + 2 * slack)[:, None])
            kept.append((rows, columns + offset, scores[rows, columns]))
        rows, positions, values = (np.concatenate(part) for part in zip(*kept, strict=True))
        near = values <= (bound + 2 * slack)[rows]
        return rows[near], positions[near]

    def _blocks(self) -> Iterator[tuple[int, Matrix]]:
        (matrix,) = self._parts
        for offset in range(0, len(matrix), VECTORS_AT_ONCE):
            yield offset, matrix[offset : offset + VECTORS_AT_ONCE]

    def _scores(self, queries: Floats, block: Matrix, sizes: Floats) -> tuple[Floats, Floats]:
        """Something that orders a block as the distance does, and by how much rounding may have moved it."""
        lengths = np.linalg.norm(queries, axis=1)
        # Single precision overflows where products of such lengths do; then the slow way is the only one.
        kind: Any = np.float32 if max(lengths.max(), sizes.max()) < LARGE else np.float64
        products = -(queries.astype(kind) @ block.astype(kind, copy=False).T)
        rounding = (4 * queries.shape[1] + 16) * float(np.finfo(kind).eps)
        if self._intake.metric == "ip":
            return products, rounding * lengths * sizes.max()
        if self._intake.metric == "l2":
            products *= 2
            products += (sizes**2).astype(kind)
            # The square of the query's own length is the same for all, and left out.
            return products, rounding * (lengths + sizes.max()) ** 2
        products /= sizes.astype(kind)
        return products, rounding * lengths

    def _distances(self, queries: Floats, rows: Ints, positions: Ints) -> Floats:
        """The distances of pairs, each row summed in the same order, so that equal vectors are equally far."""
        distances = np.empty(len(rows))
        (matrix,) = self._parts
        for start in range(0, len(rows), VECTORS_AT_ONCE):
            part = slice(start, start + VECTORS_AT_ONCE)
            ours, theirs = queries[rows[part]], matrix[positions[part]].astype(np.float64)
            if self._intake.metric == "l2":
                distances[part] = np.sqrt(_products(ours - theirs, ours - theirs))
                continue
            distances[part] = -_products(ours, theirs)
            if self._intake.metric == "cosine":
                lengths = np.sqrt(_products(ours, ours) * _products(theirs, theirs))
                distances[part] = np.clip(1 + distances[part] / lengths, 0, 2)
        return distances


def _products(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", left, right), dtype=np.float64)
