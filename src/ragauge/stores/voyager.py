"""Voyager: Spotify's HNSW graph, in full precision or eight bits."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import (
    Matrix,
    Positions,
    StoreBookkeeping,
    largest_supported_k,
    require_folder,
    unsupported_error,
)

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


INDEX_FILE = "index.voy"
VOYAGER_SPACES = {"cosine": "Cosine", "l2": "Euclidean", "ip": "InnerProduct"}
STORAGE_TYPES = {"float32": "Float32", "float8": "Float8", "e4m3": "E4M3"}
MAX_ABS_VALUE_BY_DTYPE = {"float32": np.inf, "float8": 1.0, "e4m3": 448.0}
"""Largest absolute value per precision; for cosine, values never exceed 1."""


class VoyagerStore:
    """Voyager graph: `m` links per node, `ef_construction`, `ef_search`.

    `dtype` is the stored precision: float32, float8 (fixed point between -1 and 1) or e4m3 (floating point up to
    448). Deleted vectors stay in the graph but are not returned.
    """

    def __init__(
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        m: int = 16,
        ef_construction: int = 200,
        ef_search: int = 64,
        dtype: str = "float32",
        threads: int = 1,
    ) -> None:
        try:
            import voyager
        except ImportError as error:
            raise MissingExtra("the Voyager store", "voyager") from error
        self._library: Any = voyager
        self._intake = StoreBookkeeping(metric)
        self._m = check_int("m", m, 2)
        self._ef = check_int("ef_construction", ef_construction), check_int("ef_search", ef_search)
        self._dtype = check_choice("precision", dtype, STORAGE_TYPES)
        self._largest = np.inf if metric == "cosine" else MAX_ABS_VALUE_BY_DTYPE[dtype]
        self._threads = check_int("threads", threads, 0) or -1
        self._index: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []
        self._path = path
        if path is not None and self._intake.read(path, **self._build_time_options()):
            self._index = voyager.Index.load(str(require_folder("voyager", path) / INDEX_FILE))
            if self._index.num_elements != self._intake.places:
                raise BadInput(f"{path} was not kept whole: the index and its ids differ in number")

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all but filter and concurrent."""
        return frozenset(("insert", "update", "delete", "save", "share"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "voyager",
            "version": version("voyager"),
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
        matrix = self._check_value_range(self._intake.documents(ids, vectors, metadata))
        if len(matrix):
            if self._index is None:
                self._waiting.append(matrix.copy())
            else:
                self._insert_vectors(matrix, range(self._intake.places, self._intake.places + len(matrix)))
        self._intake.remember(ids, matrix, metadata)

    def build(self) -> None:
        """Index the added vectors.

        Otherwise the first search does, and its latency includes the time.
        """
        with self._lock:
            if not self._waiting:
                return
            if self._index is None:
                self._index = self._library.Index(
                    getattr(self._library.Space, VOYAGER_SPACES[self._intake.metric]),
                    num_dimensions=self._intake.dimension,
                    M=self._m,
                    ef_construction=self._ef[0],
                    max_elements=self._intake.places,
                    storage_data_type=getattr(self._library.StorageDataType, STORAGE_TYPES[self._dtype]),
                )
            place = self._intake.places - sum(len(part) for part in self._waiting)
            while self._waiting:
                part = self._waiting.pop(0)
                self._insert_vectors(part, range(place, place + len(part)))
                place += len(part)

    def tune(self, *, ef_search: int | None = None) -> None:
        """Set search options."""
        if ef_search is not None:
            self._ef = self._ef[0], check_int("ef_search", ef_search)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        Raises BadInput if `where` is given: filters are not supported.
        """
        queries = self._intake.queries(vectors, k)
        if where:
            raise unsupported_error("voyager", "filter", "it searches all that there is")
        if self._waiting:
            self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        if self._largest < np.inf:
            self._check_value_range(queries)
        width = min(k, len(self))
        with stage("retrieve"):
            try:
                # Voyager rejects a `query_ef` below the number of requested neighbours.
                found, values = self._index.query(queries, width, self._threads, max(self._ef[1], width))
            except self._library.RecallError:
                found, values = self._search_per_query(queries, width)
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = values - 1  # Voyager returns 1 - the inner product
        else:
            values = np.maximum(values, 0)
        return self._intake.answer(found.view(np.int64), values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        positions, matrix = self._intake.replacements(ids, vectors)
        self._check_value_range(matrix)
        self.build()
        if len(ids):
            self._insert_vectors(matrix, positions.tolist())

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        positions = self._intake.positions(ids)
        self.build()
        for place in positions.tolist():
            self._index.mark_deleted(place)
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("voyager", self._path)
        self.build()
        if self._index is not None:
            with replace_file(folder / INDEX_FILE) as file:
                self._index.save(str(file))
            self._intake.write(folder, **self._build_time_options())

    def close(self) -> None:
        """Release the index and forget the ids."""
        self._index = None
        self._waiting = []
        self._intake = StoreBookkeeping(self._intake.metric)

    def _build_time_options(self) -> dict[str, Any]:
        return {"m": self._m, "ef_construction": self._ef[0], "dtype": self._dtype}

    def _check_value_range(self, matrix: Matrix) -> Matrix:
        """Return the vectors; raise BadInput if the precision cannot hold their values."""
        if self._largest < np.inf and matrix.size and (most := float(np.abs(matrix).max())) > self._largest:
            raise BadInput(
                f"{self._dtype} holds numbers from -{self._largest:g} to {self._largest:g}, not {most:g}",
                hint="take dtype=float32, or the metric cosine",
            )
        return matrix

    def _insert_vectors(self, matrix: Matrix, places: Sequence[int]) -> None:
        self._index.add_items(matrix, list(places), self._threads)

    def _search_per_query(self, queries: Matrix, width: int) -> tuple[Positions, Matrix]:
        """Search query by query for as many neighbours as Voyager can return.

        Voyager raises an error instead of returning fewer, which happens in a disconnected graph.
        """
        positions = np.full((len(queries), width), -1, dtype=np.int64)
        values = np.full((len(queries), width), np.inf, dtype=np.float32)
        for row, query in enumerate(queries):
            ask = partial(self._index.query, query, num_threads=1, query_ef=max(self._ef[1], width))
            size, found = largest_supported_k(ask, width, self._library.RecallError)
            if size:
                positions[row, :size], values[row, :size] = found
        return positions, values
