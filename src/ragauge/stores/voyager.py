"""Voyager: Spotify's HNSW graph, in full precision or eight bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import AtLeast, OneOf, check_int
from ragauge.stores.bookkeeping import Matrix, Positions, empty_positions, largest_supported_k
from ragauge.stores.search_results import COMPLEMENT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import StoreSettings, search_option
from ragauge.stores.vector_store import LibraryStore

VOYAGER_SPACES = {"cosine": "Cosine", "l2": "Euclidean", "ip": "InnerProduct"}
STORAGE_TYPES = {"float32": "Float32", "float8": "Float8", "e4m3": "E4M3"}
MAX_ABS_VALUE_BY_DTYPE = {"float32": np.inf, "float8": 1.0, "e4m3": 448.0}
"""Largest absolute value per precision; for cosine, values never exceed 1."""


@dataclass(frozen=True)
class VoyagerSettings(StoreSettings):
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 200
    ef_search: Annotated[int, AtLeast(1)] = search_option(64)
    dtype: Annotated[str, OneOf(STORAGE_TYPES)] = "float32"


class VoyagerStore(LibraryStore):
    """Voyager graph: `m` links per node, `ef_construction`, `ef_search`.

    `dtype` is the stored precision: float32, float8 (fixed point between -1 and 1) or e4m3 (floating point up to
    448). Deleted vectors stay in the graph but are not returned.
    """

    name = "voyager"
    capabilities = frozenset(("insert", "update", "delete", "save", "share"))
    unsupported: Mapping[str, str] = {"filter": "it cannot search a subset"}
    conversions = COMPLEMENT_DISTANCES
    index_file = "index.voy"
    _settings: VoyagerSettings

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: VoyagerSettings = VoyagerSettings(),
        threads: int = 1,
    ) -> None:
        try:
            import voyager
        except ImportError as error:
            raise MissingExtra("the Voyager store", "voyager") from error
        self._library: Any = voyager
        self._threads = check_int("threads", threads, 0) or -1
        super().__init__(metric, path, settings)
        self._apply_search_options()
        self._largest = np.inf if metric == "cosine" else MAX_ABS_VALUE_BY_DTYPE[settings.dtype]
        if self._saved:
            self._index = voyager.Index.load(self._saved_file())
            if self._index.num_elements != self._bookkeeping.position_count:
                raise BadInput(f"{path} is corrupt or incomplete: the index and its ids differ in number")

    def _describe_engine(self) -> dict[str, Any]:
        return {"version": version("voyager"), **super()._describe_engine(), "threads": max(self._threads, 0)}

    def _apply_search_options(self) -> None:
        self._ef_search = self._settings.ef_search

    def _create_index(self, parts: Sequence[Matrix]) -> Any:  # noqa: ARG002 - nothing to train
        return self._library.Index(
            getattr(self._library.Space, VOYAGER_SPACES[self._bookkeeping.metric]),
            num_dimensions=self._bookkeeping.dimension,
            M=self._settings.m,
            ef_construction=self._settings.ef_construction,
            max_elements=self._bookkeeping.position_count,
            storage_data_type=getattr(self._library.StorageDataType, STORAGE_TYPES[self._settings.dtype]),
        )

    def _insert(self, positions: range, matrix: Matrix) -> None:
        self._index.add_items(matrix, list(positions), self._threads)

    def _search(self, queries: Matrix, k: int, selection: None) -> RawNeighbours:  # noqa: ARG002 - no filters
        if self._largest < np.inf:
            self._prepare(queries)
        try:
            # Voyager rejects a `query_ef` below the number of requested neighbours.
            labels, values = self._index.query(queries, k, self._threads, max(self._ef_search, k))
        except self._library.RecallError:
            return self._search_per_query(queries, k)
        return labels.view(np.int64), values

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        self._index.add_items(self._prepare(matrix), positions.tolist(), self._threads)

    def _remove(self, positions: Positions) -> None:
        for position in positions.tolist():
            self._index.mark_deleted(position)

    def _write_index(self, file: str) -> None:
        self._index.save(file)

    def _prepare(self, matrix: Matrix) -> Matrix:
        """Return the vectors; raise BadInput if the precision cannot hold their values."""
        if self._largest < np.inf and matrix.size and (largest := float(np.abs(matrix).max())) > self._largest:
            raise BadInput(
                f"{self._settings.dtype} holds numbers from -{self._largest:g} to {self._largest:g}, got {largest:g}",
                hint="use dtype=float32, or the metric cosine",
            )
        return matrix

    def _search_per_query(self, queries: Matrix, width: int) -> RawNeighbours:
        """Search query by query for as many neighbours as Voyager can return.

        Voyager raises an error instead of returning fewer, which happens in a disconnected graph.
        """
        positions, values = empty_positions(len(queries), width)
        for row, query in enumerate(queries):
            search = partial(self._index.query, query, num_threads=1, query_ef=max(self._ef_search, width))
            size, answer = largest_supported_k(search, width, self._library.RecallError)
            if size:
                positions[row, :size], values[row, :size] = answer
        return positions, values
