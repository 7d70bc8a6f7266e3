"""USearch: an HNSW graph in memory, in full or reduced precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_libraries
from ragauge.core.settings import AtLeast, check_int
from ragauge.stores.bookkeeping import Matrix, Positions
from ragauge.stores.search_results import COMPLEMENT_DISTANCES, RawNeighbours
from ragauge.stores.store_settings import GRAPH_SEARCH_WIDTHS, StoreSettings, search_width
from ragauge.stores.vector_store import LibraryStore

USEARCH_METRICS = {"cosine": "cos", "l2": "l2sq", "ip": "ip"}


@dataclass(frozen=True)
class UsearchSettings(StoreSettings):
    m: Annotated[int, AtLeast(2)] = 16
    ef_construction: Annotated[int, AtLeast(1)] = 128
    ef_search: Annotated[int, AtLeast(1)] = search_width(64)
    dtype: Literal["f32", "f16", "bf16", "i8"] = "f32"


class UsearchStore(LibraryStore):
    """USearch graph: `m` links per node, `ef_construction`, `ef_search`.

    `dtype` is the stored precision: f32, f16, bf16 or i8 (i8 only for cosine, whose values are between -1 and 1).
    `exact=True` searches by brute force. With `view=True` the saved file is memory-mapped instead of loaded, and the
    store is read-only. USearch can filter a search, but not from Python.
    """

    name = "usearch"
    capabilities = frozenset(("insert", "update", "delete", "save", "share"))
    unsupported: Mapping[str, str] = {"filter": "its Python library cannot search a subset"}
    conversions = COMPLEMENT_DISTANCES
    extra = "usearch"
    library_modules = ("usearch",)
    option_grids = ({"m": [16, 32], "ef_construction": 100, "ef_search": GRAPH_SEARCH_WIDTHS},)
    index_file = "index.usearch"
    _settings: UsearchSettings

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        settings: UsearchSettings = UsearchSettings(),
        exact: bool = False,
        view: bool = False,
        threads: int = 1,
    ) -> None:
        self._library, _ = import_libraries("usearch", "usearch", "usearch.index")
        if settings.dtype == "i8" and metric != "cosine":
            raise BadInput(f"dtype=i8 holds numbers from -1 to 1, so the metric must be cosine, got {metric}")
        self._exact = bool(exact)
        self._threads = check_int("threads", threads, 0)
        super().__init__(metric, path, settings)
        self._viewed = self._saved and bool(view)
        if self._saved:
            self._index = self._create_index(())
            if self._viewed:
                reason = "it is a read-only view of a saved file"
                self.unsupported = {**self.unsupported, **dict.fromkeys(("insert", "update", "delete"), reason)}
                self._index.view(self._saved_file())
            else:
                self._index.load(self._saved_file())
            self._apply_search_options()
            if len(self._index) != len(self):
                raise BadInput(f"{path} is corrupt or incomplete: the index and its ids differ in number")

    def _describe_engine(self) -> dict[str, Any]:
        return {
            "version": getattr(self._library, "__version__", None),
            **super()._describe_engine(),
            "exact": self._exact,
            "threads": self._threads,
        }

    def _apply_search_options(self) -> None:
        if self._index is not None:
            self._index.expansion_search = self._settings.ef_search

    def save(self) -> None:
        """Save the store in `path`, unless it is a view of the saved file."""
        if not self._viewed:
            super().save()

    def _create_index(self, parts: Sequence[Matrix]) -> Any:  # noqa: ARG002 - nothing to train
        return self._library.index.Index(
            ndim=self._bookkeeping.dimension,
            metric=USEARCH_METRICS[self._bookkeeping.metric],
            dtype=self._settings.dtype,
            connectivity=self._settings.m,
            expansion_add=self._settings.ef_construction,
            expansion_search=self._settings.ef_search,
        )

    def _insert(self, positions: range, matrix: Matrix) -> None:
        keys = np.arange(positions.start, positions.stop, dtype=np.uint64)
        self._index.add(keys, matrix, threads=self._threads)

    def _search(self, queries: Matrix, k: int, selection: None) -> RawNeighbours:  # noqa: ARG002 - no filters
        matches = self._index.search(queries, k, threads=self._threads, exact=self._exact)
        # One query returns its matches, several return a batch of them.
        if len(queries) == 1:
            return matches.keys[None].view(np.int64), matches.distances[None]
        positions = matches.keys.astype(np.int64)
        # Entries beyond the matches found are uninitialised memory.
        positions[np.arange(positions.shape[1]) >= np.asarray(matches.counts)[:, None]] = -1
        return positions, matches.distances

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        keys = positions.astype(np.uint64)
        self._index.remove(keys, threads=self._threads)
        self._index.add(keys, matrix, threads=self._threads)

    def _remove(self, positions: Positions) -> None:
        self._index.remove(positions.astype(np.uint64), threads=self._threads)

    def _write_index(self, file: str) -> None:
        self._index.save(file)

    def _close(self) -> None:
        if self._index is not None:
            self._index.reset()
        super()._close()
