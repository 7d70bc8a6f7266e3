"""FAISS: flat, HNSW and IVF indexes in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.errors import BadInput, MissingExtra
from ragauge.stages import stage
from ragauge.systems.stores.intake import Intake, Matrix, one_of, unit, whole

if TYPE_CHECKING:
    from ragauge.seams import Neighbours

PER_CENTROID = 39
"""Below so many training vectors for each cell FAISS warns that its cells are poor."""


class Faiss:
    """A FAISS index over 32-bit floats.

    `flat` compares everything; `hnsw` walks a graph (`m` links, `ef_construction` when building, `ef_search` when
    searching); `ivf` looks into `nprobe` of `nlist` cells, learnt from what was added before the first search. Without
    a number of cells the square root of the size is taken, with fewer where cells would get too little to learn from.
    Cosine is an inner product of vectors brought to length 1.

    A graph that several threads build differs a little from one building to the next: FAISS gives no fixed order.
    """

    def __init__(
        self,
        *,
        kind: str = "flat",
        metric: str = "cosine",
        m: int = 16,
        ef_construction: int = 64,
        ef_search: int = 40,
        nlist: int | None = None,
        nprobe: int = 8,
    ) -> None:
        try:
            import faiss
        except ImportError as error:
            raise MissingExtra("the Faiss store", "faiss") from error
        self._faiss: Any = faiss
        self._intake = Intake(metric)
        self.kind = one_of("FAISS index", kind, ("flat", "hnsw", "ivf"))
        self._m = whole("m", m, 2)
        self._ef = whole("ef_construction", ef_construction), whole("ef_search", ef_search)
        self._nlist = None if nlist is None else whole("nlist", nlist)
        self._nprobe = whole("nprobe", nprobe)
        self._index: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []

    def __len__(self) -> int:
        return len(self._intake)

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this store."""
        options: dict[str, Any] = {}
        if self.kind == "hnsw":
            options = {"m": self._m, "ef_construction": self._ef[0], "ef_search": self._ef[1]}
        if self.kind == "ivf":
            options = {"nlist": self._nlist if self._index is None else self._index.nlist, "nprobe": self._nprobe}
        return {
            "store": "faiss",
            "version": self._faiss.__version__,
            "kind": self.kind,
            "metric": self._intake.metric,
            **options,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any) -> None:
        """Take vectors in, each under its id; they are indexed at the next search."""
        matrix = self._intake.documents(ids, vectors)
        if len(matrix):
            self._waiting.append(unit(matrix) if self._intake.metric == "cosine" else matrix.copy())
        self._intake.remember(ids, matrix)

    def build(self) -> None:
        """Index what was added; the first search does it otherwise, and would be timed with it."""
        with self._lock:
            if not self._waiting:
                return
            matrix = np.concatenate(self._waiting)
            if self._index is None:
                self._index = self._made(matrix)
            self._index.add(matrix)
            self._waiting = []

    def search(self, vectors: Any, k: int) -> Neighbours:
        """The `k` nearest of each row, nearest first."""
        queries = self._intake.queries(vectors, k)
        self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        with stage("retrieve"):
            asked = unit(queries) if self._intake.metric == "cosine" else queries
            values, positions = self._index.search(asked, min(k, len(self)))
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = -values
        else:
            values = np.clip(1 - values, 0, 2)
        return self._intake.answer(positions, values, k)

    def _made(self, matrix: Matrix) -> Any:
        size, dimension = matrix.shape
        near = self._faiss.METRIC_L2 if self._intake.metric == "l2" else self._faiss.METRIC_INNER_PRODUCT
        if self.kind == "flat":
            return self._faiss.IndexFlat(dimension, near)
        if self.kind == "hnsw":
            index = self._faiss.IndexHNSWFlat(dimension, self._m, near)
            index.hnsw.efConstruction, index.hnsw.efSearch = self._ef
            return index
        cells = self._nlist or max(1, min(round(size**0.5), size // PER_CENTROID))
        if cells > size:
            raise BadInput(f"nlist is {cells}, more than the {size} vectors to learn from", hint="take a smaller nlist")
        index = self._faiss.IndexIVFFlat(self._faiss.IndexFlat(dimension, near), dimension, cells, near)
        index.cp.min_points_per_centroid = 1  # else FAISS warns on standard error of what was asked for on purpose
        index.nprobe = self._nprobe
        index.train(matrix)
        return index
