"""Annoy: a forest of random projection trees, read-only once built."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import StoreBookkeeping, require_folder, unsupported_error

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


INDEX_FILE = "index.annoy"
ANNOY_METRICS = {"cosine": "angular", "l2": "euclidean", "ip": "dot"}
FOREST_SEED = 1


class AnnoyStore:
    """Annoy index of `n_trees` trees.

    A search inspects `search_k` nodes, by default `n_trees` times `k`. `build` or the first search builds the trees;
    after that, vectors cannot be added, changed or removed. For the inner product, Annoy adds a dimension that makes
    all vectors equally long, and inspects ten times as many nodes.
    """

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        n_trees: int = 50,
        search_k: int | None = None,
        threads: int = 1,
    ) -> None:
        try:
            import annoy
        except ImportError as error:
            raise MissingExtra("the Annoy store", "annoy") from error
        self._library: Any = annoy
        self._intake = StoreBookkeeping(metric)
        self._trees = check_int("n_trees", n_trees)
        self._search_k = -1 if search_k is None else check_int("search_k", search_k)
        self._threads = check_int("threads", threads, 0) or -1
        self._index: Any = None
        self._lock = threading.Lock()
        self._made = False
        self._path = path
        if path is not None and self._intake.read(path, n_trees=self._trees):
            self._index = self._library.AnnoyIndex(self._intake.dimension, ANNOY_METRICS[metric])
            try:
                self._index.load(str(require_folder("annoy", path) / INDEX_FILE))
            except OSError as error:
                raise BadInput(f"{path} was not kept whole: {error}") from error
            self._made = True
            if self._index.get_n_items() != len(self):
                raise BadInput(f"{path} was not kept whole: the index and its ids differ in number")

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: saving and sharing only."""
        return frozenset(("save", "share"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "annoy",
            "version": version("annoy"),
            "metric": self._intake.metric,
            "n_trees": self._trees,
            "search_k": None if self._search_k < 0 else self._search_k,
            "threads": max(self._threads, 0),
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids; raise BadInput once the trees are built."""
        if self._made:
            raise unsupported_error("annoy", "add", "its trees are made once, of all that was there")
        matrix = self._intake.documents(ids, vectors, metadata)
        if len(matrix):
            if self._index is None:
                self._index = self._library.AnnoyIndex(matrix.shape[1], ANNOY_METRICS[self._intake.metric])
                self._index.set_seed(FOREST_SEED)
            for place, row in enumerate(matrix.tolist(), start=self._intake.places):
                self._index.add_item(place, row)
        self._intake.remember(ids, matrix, metadata)

    def build(self) -> None:
        """Build the trees.

        Otherwise the first search does, and its latency includes the time.
        """
        with self._lock:
            if self._index is not None and not self._made:
                self._index.build(self._trees, self._threads)
                self._made = True

    def tune(self, *, search_k: int | None = None) -> None:
        """Set search options."""
        if search_k is not None:
            self._search_k = check_int("search_k", search_k)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        Raises BadInput if `where` is given: filters are not supported.
        """
        queries = self._intake.queries(vectors, k)
        if where:
            raise unsupported_error("annoy", "filter", "it searches all that there is")
        if not self._made:
            self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        if len(queries) == 1:
            with stage("retrieve"):
                found, far = self._index.get_nns_by_vector(queries[0].tolist(), k, self._search_k, True)
            return self._intake.answer(np.array([found], dtype=np.int64), self._convert_distances(far)[None], k)
        ids, distances = self._intake.empty(len(queries), k)
        for row, query in enumerate(queries):
            line = self.search(query[None], k)
            ids[row], distances[row] = line[0][0], line[1][0]
        return ids, distances

    def update(self, ids: Sequence[str], vectors: Any) -> None:  # noqa: ARG002
        """Raise BadInput: Annoy cannot change its trees."""
        raise unsupported_error("annoy", "update", "its trees are made once")

    def delete(self, ids: Sequence[str]) -> None:  # noqa: ARG002
        """Raise BadInput: Annoy cannot change its trees."""
        raise unsupported_error("annoy", "delete", "its trees are made once")

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("annoy", self._path)
        self.build()
        if self._index is not None:
            with replace_file(folder / INDEX_FILE) as file:
                self._index.save(str(file))
            self._intake.write(folder, n_trees=self._trees)

    def close(self) -> None:
        """Release the index and forget the ids."""
        if self._index is not None:
            self._index.unload()
        self._index, self._made = None, False
        self._intake = StoreBookkeeping(self._intake.metric)

    def _convert_distances(self, far: Sequence[float]) -> Any:
        values = np.array(far, dtype=np.float64)
        if self._intake.metric == "cosine":
            return values * values / 2  # Annoy returns the Euclidean distance of unit vectors
        return -values if self._intake.metric == "ip" else values
