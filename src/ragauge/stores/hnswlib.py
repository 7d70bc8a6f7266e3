"""hnswlib: the HNSW graph by its inventors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast, check_int
from ragauge.stores.bookkeeping import Mask, Matrix, Positions, empty_positions, largest_supported_k
from ragauge.stores.search_results import COMPLEMENT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import GRAPH_SEARCH_WIDTHS, StoreSettings, search_width
from ragauge.stores.vector_store import LibraryStore


@dataclass(frozen=True)
class HnswlibSettings(StoreSettings):
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 200
    ef_search: Annotated[int, AtLeast(1)] = search_width(64)
    replace_deleted: bool = False


class HnswlibStore(LibraryStore):
    """hnswlib graph: `m` links per node, `ef_construction`, `ef_search`.

    A filter is a Python function that the graph calls for every visited vector, which is slow. A deleted vector
    stays in the graph as an intermediate node; with `replace_deleted` the next added vector takes its slot.
    """

    name = "hnswlib"
    capabilities = frozenset(("insert", "update", "delete", "filter", "save", "share"))
    conversions = COMPLEMENT_DISTANCES
    extra = "hnswlib"
    library_modules = ("hnswlib",)
    option_grids = ({"m": [16, 32], "ef_construction": 100, "ef_search": GRAPH_SEARCH_WIDTHS},)
    index_file = "index.hnswlib"
    _settings: HnswlibSettings

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: HnswlibSettings = HnswlibSettings(),
        threads: int = 1,
    ) -> None:
        (self._library,) = import_libraries("hnswlib", "hnswlib")
        self._replace_deleted = settings.replace_deleted
        self._threads = check_int("threads", threads, 0) or -1
        self._filter: tuple[Mask, Any, int] | None = None
        super().__init__(metric, path, settings)
        if self._saved:
            # Reserve spare capacity: each vector added to a full index would copy the index.
            self._index = self._library.Index(space=metric, dim=self._bookkeeping.dimension)
            self._index.load_index(
                self._saved_file(), self._padded_capacity(self._bookkeeping.position_count), self._replace_deleted
            )
            self._apply_search_options()
            if self._index.element_count < len(self):
                raise BadInput(f"{path} is corrupt or incomplete: the index and its ids differ in number")

    def _describe_engine(self) -> dict[str, Any]:
        return {"version": version("hnswlib"), **super()._describe_engine(), "threads": max(self._threads, 0)}

    def _apply_search_options(self) -> None:
        if self._index is not None:
            self._index.set_ef(self._settings.ef_search)

    def _create_index(self, parts: Sequence[Matrix]) -> Any:  # noqa: ARG002 - nothing to train
        index = self._library.Index(space=self._bookkeeping.metric, dim=self._bookkeeping.dimension)
        index.init_index(
            self._bookkeeping.position_count,
            M=self._settings.m,
            ef_construction=self._settings.ef_construction,
            allow_replace_deleted=self._replace_deleted,
        )
        index.set_ef(self._settings.ef_search)
        return index

    def _insert(self, positions: range, matrix: Matrix) -> None:
        size = self._index.element_count + len(matrix)
        if size > self._index.max_elements:
            self._index.resize_index(self._padded_capacity(size))
        freed = self._replace_deleted and self._bookkeeping.position_count > len(self)
        self._index.add_items(matrix, np.arange(positions.start, positions.stop), self._threads, freed)

    def _search(self, queries: Matrix, k: int, selection: Mask | None) -> RawNeighbours:
        keep = None
        if selection is not None:
            keep, allowed = self._build_filter(selection)
            k = min(k, allowed)
            if not k:
                return empty_positions(len(queries), 1)
        try:
            # A filter calls back into Python, which deadlocks with more than one thread.
            labels, values = self._index.knn_query(queries, k, 1 if keep else self._threads, keep)
        except RuntimeError:
            return self._search_per_query(queries, k, keep)
        return labels.view(np.int64), values

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        self._index.add_items(matrix, positions, self._threads)

    def _remove(self, positions: Positions) -> None:
        for position in positions.tolist():
            self._index.mark_deleted(position)

    def _write_index(self, file: str) -> None:
        self._index.save_index(file)

    def _build_filter(self, mask: Mask) -> tuple[Any, int]:
        """Return the filter function and the number of matching vectors; cached."""
        if self._filter is None or self._filter[0] is not mask:
            self._filter = mask, mask.tolist().__getitem__, int(mask.sum())
        return self._filter[1:]

    def _padded_capacity(self, size: int) -> int:
        return size + max(1000, size // 4)

    def _search_per_query(self, queries: Matrix, width: int, keep: Any) -> RawNeighbours:
        """Search query by query for as many neighbours as hnswlib can return.

        hnswlib raises an error instead of returning fewer, which happens in a disconnected graph.
        """
        positions, values = empty_positions(len(queries), width)
        for row, query in enumerate(queries):
            size, answer = largest_supported_k(
                partial(self._index.knn_query, query, num_threads=1, filter=keep), width, RuntimeError
            )
            if size:
                positions[row, :size], values[row, :size] = answer[0][0], answer[1][0]
        return positions, values
