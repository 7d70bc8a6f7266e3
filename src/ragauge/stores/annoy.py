"""Annoy: a forest of random projection trees, read-only once built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import AtLeast, check_int
from ragauge.stores.bookkeeping import Matrix, empty_positions
from ragauge.stores.search_results import RawNeighbours
from ragauge.stores.store_settings import StoreSettings, search_option
from ragauge.stores.vector_store import LibraryStore

ANNOY_METRICS = {"cosine": "angular", "l2": "euclidean", "ip": "dot"}
ANNOY_DISTANCES: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "cosine": lambda values: values * values / 2,
    "ip": lambda values: -values,
}
"""For cosine, Annoy returns the Euclidean distance of unit vectors."""
FOREST_SEED = 1


@dataclass(frozen=True)
class AnnoySettings(StoreSettings):
    n_trees: Annotated[int, AtLeast(1)] = 50
    search_k: Annotated[int, AtLeast(1)] | None = search_option(None)


class AnnoyStore(LibraryStore):
    """Annoy index of `n_trees` trees.

    A search inspects `search_k` nodes, by default `n_trees` times `k`. `build` or the first search builds the trees;
    after that, vectors cannot be added, changed or removed. For the inner product, Annoy adds a dimension that makes
    all vectors equally long, and inspects ten times as many nodes.
    """

    name = "annoy"
    capabilities = frozenset(("save", "share"))
    unsupported: Mapping[str, str] = {
        "update": "its trees are built once",
        "delete": "its trees are built once",
        "filter": "it cannot search a subset",
    }
    conversions = ANNOY_DISTANCES
    index_file = "index.annoy"
    _settings: AnnoySettings

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: AnnoySettings = AnnoySettings(),
        threads: int = 1,
    ) -> None:
        try:
            import annoy
        except ImportError as error:
            raise MissingExtra("the Annoy store", "annoy") from error
        self._library: Any = annoy
        self._threads = check_int("threads", threads, 0) or -1
        super().__init__(metric, path, settings)
        self._apply_search_options()
        if self._saved:
            self._index = self._library.AnnoyIndex(self._bookkeeping.dimension, ANNOY_METRICS[metric])
            try:
                self._index.load(self._saved_file())
            except OSError as error:
                raise BadInput(f"{path} is corrupt or incomplete: {error}") from error
            if self._index.get_n_items() != len(self):
                raise BadInput(f"{path} is corrupt or incomplete: the index and its ids differ in number")
            self._freeze()

    def _describe_engine(self) -> dict[str, Any]:
        return {"version": version("annoy"), **super()._describe_engine(), "threads": max(self._threads, 0)}

    def _apply_search_options(self) -> None:
        self._search_k = -1 if self._settings.search_k is None else self._settings.search_k

    def build(self) -> None:
        """Build the trees; after that, nothing can be added."""
        with self._lock:
            if self._index is not None and not self._ready:
                self._index.build(self._settings.n_trees, self._threads)
                self._freeze()

    def _freeze(self) -> None:
        self._ready = True
        self.unsupported = {**self.unsupported, "insert": "its trees are built once, from all vectors"}

    def _create_index(self, parts: Sequence[Matrix]) -> Any:
        index = self._library.AnnoyIndex(parts[0].shape[1], ANNOY_METRICS[self._bookkeeping.metric])
        index.set_seed(FOREST_SEED)
        return index

    def _add(
        self,
        ids: Sequence[str],  # noqa: ARG002 - used by databases
        positions: range,
        matrix: Matrix,
        metadata: Sequence[Mapping[str, Any]] | None,  # noqa: ARG002 - used by databases
    ) -> None:
        if self._index is None:
            self._index = self._create_index([matrix])
        self._insert(positions, matrix)
        self._ready = False

    def _insert(self, positions: range, matrix: Matrix) -> None:
        for position, row in zip(positions, matrix.tolist(), strict=True):
            self._index.add_item(position, row)

    def _search(self, queries: Matrix, k: int, selection: None) -> RawNeighbours:  # noqa: ARG002 - no filters
        if len(queries) == 1:
            nearest, distances = self._index.get_nns_by_vector(queries[0].tolist(), k, self._search_k, True)
            return np.array([nearest], dtype=np.int64), np.array([distances], dtype=np.float64)
        positions, _ = empty_positions(len(queries), k)
        values = np.full(positions.shape, np.inf)
        for row, query in enumerate(queries):
            nearest, distances = self._index.get_nns_by_vector(query.tolist(), k, self._search_k, True)
            positions[row, : len(nearest)], values[row, : len(nearest)] = nearest, distances
        return positions, values

    def _write_index(self, file: str) -> None:
        self._index.save(file)

    def _close(self) -> None:
        if self._index is not None:
            self._index.unload()
        super()._close()
