"""USearch: an HNSW graph in memory, in full or in lower precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.errors import MissingExtra
from ragauge.stages import stage
from ragauge.systems.stores.intake import Intake, one_of, whole

if TYPE_CHECKING:
    from ragauge.seams import Neighbours

NAMES = {"cosine": "cos", "l2": "l2sq", "ip": "ip"}


class Usearch:
    """A USearch index: `m` links, `ef_construction` when building, `ef_search` when searching.

    `dtype` is what vectors are kept in: f32, f16, bf16 or i8 (i8 only for cosine, whose values lie between -1 and 1).
    `exact=True` compares everything instead of walking the graph.
    """

    def __init__(
        self,
        *,
        metric: str = "cosine",
        m: int = 16,
        ef_construction: int = 128,
        ef_search: int = 64,
        dtype: str = "f32",
        exact: bool = False,
        threads: int = 0,
    ) -> None:
        try:
            import usearch
            import usearch.index
        except ImportError as error:
            raise MissingExtra("the Usearch store", "usearch") from error
        self._library: Any = usearch
        self._intake = Intake(metric)
        self._m = whole("m", m, 2)
        self._ef = whole("ef_construction", ef_construction), whole("ef_search", ef_search)
        self._dtype = one_of(
            "precision", dtype, ("f32", "f16", "bf16", "i8") if metric == "cosine" else ("f32", "f16", "bf16")
        )
        self._exact = exact
        self._threads = whole("threads", threads, 0)
        self._index: Any = None

    def __len__(self) -> int:
        return len(self._intake)

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this store."""
        return {
            "store": "usearch",
            "version": getattr(self._library, "__version__", None),
            "metric": self._intake.metric,
            "m": self._m,
            "ef_construction": self._ef[0],
            "ef_search": self._ef[1],
            "dtype": self._dtype,
            "exact": self._exact,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any) -> None:
        """Take vectors in, each under its id."""
        matrix = self._intake.documents(ids, vectors)
        if not len(matrix):
            return
        if self._index is None:
            self._index = self._library.index.Index(
                ndim=matrix.shape[1],
                metric=NAMES[self._intake.metric],
                dtype=self._dtype,
                connectivity=self._m,
                expansion_add=self._ef[0],
                expansion_search=self._ef[1],
            )
        keys = np.arange(len(self), len(self) + len(matrix), dtype=np.uint64)
        self._index.add(keys, matrix, threads=self._threads)
        self._intake.remember(ids, matrix)

    def search(self, vectors: Any, k: int) -> Neighbours:
        """The `k` nearest of each row, nearest first."""
        queries = self._intake.queries(vectors, k)
        if self._index is None or not len(queries):
            return self._intake.empty(len(queries), k)
        width = min(k, len(self))
        positions = np.full((len(queries), width), -1, dtype=np.int64)
        distances = np.full((len(queries), width), np.inf, dtype=np.float64)
        with stage("retrieve"):
            found = self._index.search(queries, width, threads=self._threads, exact=self._exact)
        # One query comes back as its matches, several as a batch of them.
        for row, matches in enumerate([found] if len(queries) == 1 else found):
            positions[row, : len(matches)] = matches.keys.astype(np.int64)
            distances[row, : len(matches)] = matches.distances
        if self._intake.metric == "l2":
            distances = np.sqrt(np.maximum(distances, 0))
        elif self._intake.metric == "ip":
            distances -= 1  # USearch gives 1 - the inner product
        else:
            distances = np.maximum(distances, 0)
        return self._intake.answer(positions, distances, k)
