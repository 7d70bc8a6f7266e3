"""hnswlib: the HNSW graph by its inventors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import Mask, Matrix, Positions, StoreBookkeeping, largest_supported_k, require_folder

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


INDEX_FILE = "index.hnswlib"


class HnswlibStore:
    """hnswlib graph: `m` links per node, `ef_construction`, `ef_search`.

    A filter is a Python function that the graph calls for every visited vector, which is slow. A deleted vector
    stays in the graph as an intermediate node; with `replace_deleted` the next added vector takes its slot.
    """

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        m: int = 16,
        ef_construction: int = 200,
        ef_search: int = 64,
        replace_deleted: bool = False,
        threads: int = 1,
    ) -> None:
        try:
            import hnswlib
        except ImportError as error:
            raise MissingExtra("the hnswlib store", "hnswlib") from error
        self._library: Any = hnswlib
        self._intake = StoreBookkeeping(metric)
        self._m = check_int("m", m, 2)
        self._ef = check_int("ef_construction", ef_construction), check_int("ef_search", ef_search)
        self._replace = bool(replace_deleted)
        self._threads = check_int("threads", threads, 0) or -1
        self._index: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []
        self._filter: tuple[Mask, Any, int] | None = None
        self._path = path
        if path is not None and self._intake.read(path, **self._build_time_options()):
            # Reserve spare capacity: each vector added to a full index would copy the index.
            self._index = self._library.Index(space=metric, dim=self._intake.dimension)
            self._index.load_index(
                str(require_folder("hnswlib", path) / INDEX_FILE),
                self._padded_capacity(self._intake.places),
                self._replace,
            )
            self._index.set_ef(self._ef[1])
            if self._index.element_count < len(self):
                raise BadInput(f"{path} was not kept whole: the index and its ids differ in number")

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all but concurrent.

        hnswlib cannot add vectors during a search.
        """
        return frozenset(("insert", "update", "delete", "filter", "save", "share"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "hnswlib",
            "version": version("hnswlib"),
            "metric": self._intake.metric,
            **self._build_time_options(),
            "ef_search": self._ef[1],
            "threads": max(self._threads, 0),
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids.

        Until an index exists they are only collected; `build` or the first search indexes them.
        """
        matrix = self._intake.documents(ids, vectors, metadata)
        if len(matrix):
            if self._index is None:
                self._waiting.append(matrix.copy())
            else:
                self._insert_vectors(matrix, self._intake.places)
        self._intake.remember(ids, matrix, metadata)

    def build(self) -> None:
        """Index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        with self._lock:
            if not self._waiting:
                return
            if self._index is None:
                self._index = self._library.Index(space=self._intake.metric, dim=self._intake.dimension)
                self._index.init_index(
                    self._intake.places,
                    M=self._m,
                    ef_construction=self._ef[0],
                    allow_replace_deleted=self._replace,
                )
                self._index.set_ef(self._ef[1])
            place = self._intake.places - sum(len(part) for part in self._waiting)
            while self._waiting:
                part = self._waiting.pop(0)
                self._insert_vectors(part, place)
                place += len(part)

    def tune(self, *, ef_search: int | None = None) -> None:
        """Set search options."""
        if ef_search is not None:
            self._ef = self._ef[0], check_int("ef_search", ef_search)
            if self._index is not None:
                self._index.set_ef(ef_search)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        if self._waiting:
            self.build()
        width, keep = min(k, len(self)), None
        if where:
            keep, allowed = self._build_filter(where)
            width = min(width, allowed)
        if not width or not len(queries):
            return self._intake.empty(len(queries), k)
        with stage("retrieve"):
            try:
                # A filter calls back into Python, which deadlocks with more than one thread.
                found, values = self._index.knn_query(queries, width, 1 if keep else self._threads, keep)
            except RuntimeError:
                found, values = self._search_per_query(queries, width, keep)
        if self._intake.metric == "l2":
            values = np.sqrt(values)
        elif self._intake.metric == "ip":
            values = values - 1  # hnswlib returns 1 - the inner product
        else:
            values = np.maximum(values, 0)
        return self._intake.answer(found.view(np.int64), values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        self.build()
        if len(ids):
            self._index.add_items(matrix, positions, self._threads)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        self.build()
        for place in positions.tolist():
            self._index.mark_deleted(place)
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("hnswlib", self._path)
        self.build()
        if self._index is not None:
            with replace_file(folder / INDEX_FILE) as file:
                self._index.save_index(str(file))
            self._intake.write(folder, **self._build_time_options())

    def close(self) -> None:
        """Release the index and forget the ids."""
        self._index = self._filter = None
        self._waiting = []
        self._intake = StoreBookkeeping(self._intake.metric)

    def _build_time_options(self) -> dict[str, Any]:
        return {"m": self._m, "ef_construction": self._ef[0], "replace_deleted": self._replace}

    def _padded_capacity(self, size: int) -> int:
        return size + max(1000, size // 4)

    def _insert_vectors(self, matrix: Matrix, place: int) -> None:
        size = self._index.element_count + len(matrix)
        if size > self._index.max_elements:
            self._index.resize_index(self._padded_capacity(size))
        freed = self._replace and self._intake.places > len(self)
        self._index.add_items(matrix, np.arange(place, place + len(matrix)), self._threads, freed)

    def _build_filter(self, where: Mapping[str, Any]) -> tuple[Any, int]:
        """Return the filter function and the number of matching vectors; cached."""
        mask = self._intake.allowed(where)
        if self._filter is None or self._filter[0] is not mask:
            self._filter = mask, mask.tolist().__getitem__, int(mask.sum())
        return self._filter[1:]

    def _search_per_query(self, queries: Matrix, width: int, keep: Any) -> tuple[Positions, Matrix]:
        """Search query by query for as many neighbours as hnswlib can return.

        hnswlib raises an error instead of returning fewer, which happens in a disconnected graph.
        """
        positions = np.full((len(queries), width), -1, dtype=np.int64)
        values = np.full((len(queries), width), np.inf, dtype=np.float32)
        for row, query in enumerate(queries):
            size, found = largest_supported_k(
                partial(self._index.knn_query, query, num_threads=1, filter=keep), width, RuntimeError
            )
            if size:
                positions[row, :size], values[row, :size] = found[0][0], found[1][0]
        return positions, values
