"""USearch: an HNSW graph in memory, in full or reduced precision."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.settings import check_choice, check_int
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import Matrix, StoreBookkeeping, require_folder, unsupported_error

if TYPE_CHECKING:
    from ragauge.core.protocols import Neighbours


INDEX_FILE = "index.usearch"
USEARCH_METRICS = {"cosine": "cos", "l2": "l2sq", "ip": "ip"}


class UsearchStore:
    """USearch graph: `m` links per node, `ef_construction`, `ef_search`.

    `dtype` is the stored precision: f32, f16, bf16 or i8 (i8 only for cosine, whose values are between -1 and 1).
    `exact=True` searches by brute force. With `view=True` the saved file is memory-mapped instead of loaded, and the
    store is read-only. USearch can filter a search, but not from Python.
    """

    def __init__(  # noqa: PLR0913 - the parameters of USearch, by the names that all graphs have here
        self,
        *,
        metric: str = "cosine",
        path: str | None = None,
        m: int = 16,
        ef_construction: int = 128,
        ef_search: int = 64,
        dtype: str = "f32",
        exact: bool = False,
        view: bool = False,
        threads: int = 1,
    ) -> None:
        try:
            import usearch
            import usearch.index
        except ImportError as error:
            raise MissingExtra("the Usearch store", "usearch") from error
        self._library: Any = usearch
        self._intake = StoreBookkeeping(metric)
        self._m = check_int("m", m, 2)
        self._ef = check_int("ef_construction", ef_construction), check_int("ef_search", ef_search)
        self._dtype = check_choice(
            "precision", dtype, ("f32", "f16", "bf16", "i8") if metric == "cosine" else ("f32", "f16", "bf16")
        )
        self._exact = bool(exact)
        self._threads = check_int("threads", threads, 0)
        self._index: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []
        self._path = path
        self._viewed = False
        if path is not None and self._intake.read(path, **self._build_time_options()):
            self._index = self._create_index()
            file = str(require_folder("usearch", path) / INDEX_FILE)
            self._viewed = bool(view)
            if self._viewed:
                self._index.view(file)
            else:
                self._index.load(file)
            self._index.expansion_search = self._ef[1]
            if len(self._index) != len(self):
                raise BadInput(f"{path} was not kept whole: the index and its ids differ in number")

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Capabilities of this store: all but filter and concurrent.

        A viewed file is read-only.
        """
        return frozenset(("save", "share") if self._viewed else ("insert", "update", "delete", "save", "share"))

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "usearch",
            "version": getattr(self._library, "__version__", None),
            "metric": self._intake.metric,
            **self._build_time_options(),
            "ef_search": self._ef[1],
            "exact": self._exact,
            "threads": self._threads,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids.

        Until an index exists they are only collected; `build` or the first search indexes them.
        """
        self._check_changeable("add")
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
                self._index = self._create_index()
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
                self._index.expansion_search = ef_search

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        Raises BadInput if `where` is given: filters are not supported.
        """
        queries = self._intake.queries(vectors, k)
        if where:
            raise unsupported_error("usearch", "filter", "its Python library searches all that there is")
        if self._waiting:
            self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        width = min(k, len(self))
        with stage("retrieve"):
            found = self._index.search(queries, width, threads=self._threads, exact=self._exact)
        # One query returns its matches, several return a batch of them.
        if len(queries) == 1:
            positions, distances = found.keys[None].view(np.int64), found.distances[None]
        else:
            positions, distances = found.keys.astype(np.int64), found.distances
            # Entries beyond the matches found are uninitialised memory.
            missing = np.arange(positions.shape[1]) >= np.asarray(found.counts)[:, None]
            positions[missing] = -1
        if self._intake.metric == "l2":
            distances = np.sqrt(np.maximum(distances, 0))
        elif self._intake.metric == "ip":
            distances = distances - 1  # USearch returns 1 - the inner product
        else:
            distances = np.maximum(distances, 0)
        return self._intake.answer(positions, distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        self._check_changeable("update")
        positions, matrix = self._intake.replacements(ids, vectors)
        self.build()
        if len(ids):
            keys = positions.astype(np.uint64)
            self._index.remove(keys, threads=self._threads)
            self._index.add(keys, matrix, threads=self._threads)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        self._check_changeable("delete")
        positions = self._intake.positions(ids)
        self.build()
        if len(ids):
            self._index.remove(positions.astype(np.uint64), threads=self._threads)
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        folder = require_folder("usearch", self._path)
        self.build()
        if self._index is not None and not self._viewed:
            with replace_file(folder / INDEX_FILE) as file:
                self._index.save(str(file))
            self._intake.write(folder, **self._build_time_options())

    def close(self) -> None:
        """Release the index and forget the ids."""
        if self._index is not None:
            self._index.reset()
        self._index = None
        self._waiting = []
        self._intake = StoreBookkeeping(self._intake.metric)

    def _build_time_options(self) -> dict[str, Any]:
        return {"m": self._m, "ef_construction": self._ef[0], "dtype": self._dtype}

    def _create_index(self) -> Any:
        return self._library.index.Index(
            ndim=self._intake.dimension,
            metric=USEARCH_METRICS[self._intake.metric],
            dtype=self._dtype,
            connectivity=self._m,
            expansion_add=self._ef[0],
            expansion_search=self._ef[1],
        )

    def _insert_vectors(self, matrix: Matrix, place: int) -> None:
        keys = np.arange(place, place + len(matrix), dtype=np.uint64)
        self._index.add(keys, matrix, threads=self._threads)

    def _check_changeable(self, what: str) -> None:
        if self._viewed:
            raise unsupported_error("usearch", what, "it only looks at a file that was kept")
