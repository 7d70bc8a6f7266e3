"""Voyager: Spotify's HNSW graph, in full precision or in eight bits."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from ragauge.errors import BadInput, MissingExtra
from ragauge.stages import stage
from ragauge.systems.stores.intake import Intake, Matrix, Places, cannot, folder_of, most, one_of, whole
from ragauge.temporary_files import replace_file

if TYPE_CHECKING:
    from ragauge.seams import Neighbours

FILE = "index.voy"
SPACES = {"cosine": "Cosine", "l2": "Euclidean", "ip": "InnerProduct"}
TYPES = {"float32": "Float32", "float8": "Float8", "e4m3": "E4M3"}
LARGEST = {"float32": np.inf, "float8": 1.0, "e4m3": 448.0}
"""What a number may be in each precision; for cosine all are 1 at most."""


class Voyager:
    """A Voyager index: `m` links, `ef_construction` when building, `ef_search` when searching.

    `dtype` is what vectors are kept in: float32, float8 (fixed point between -1 and 1) or e4m3 (floating point up to
    448). Deleted vectors stay in the graph and are passed by.
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
        self._intake = Intake(metric)
        self._m = whole("m", m, 2)
        self._ef = whole("ef_construction", ef_construction), whole("ef_search", ef_search)
        self._dtype = one_of("precision", dtype, TYPES)
        self._largest = np.inf if metric == "cosine" else LARGEST[dtype]
        self._threads = whole("threads", threads, 0) or -1
        self._index: Any = None
        self._lock = threading.Lock()
        self._waiting: list[Matrix] = []
        self._path = path
        if path is not None and self._intake.read(path, **self._built()):
            self._index = voyager.Index.load(str(folder_of("voyager", path) / FILE))
            if self._index.num_elements != self._intake.places:
                raise BadInput(f"{path} was not kept whole: the index and its ids differ in number")

    def __len__(self) -> int:
        return len(self._intake)

    @property
    def abilities(self) -> frozenset[str]:
        """Everything but filters."""
        return frozenset(("insert", "update", "delete", "save", "share"))

    def describe(self) -> dict[str, Any]:
        """What a manifest should say about this store."""
        return {
            "store": "voyager",
            "version": version("voyager"),
            "metric": self._intake.metric,
            **self._built(),
            "ef_search": self._ef[1],
            "threads": max(self._threads, 0),
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Take vectors in, each under its id; until the first search they only wait to be indexed."""
        matrix = self._fitting(self._intake.documents(ids, vectors, metadata))
        if len(matrix):
            if self._index is None:
                self._waiting.append(matrix.copy())
            else:
                self._insert(matrix, range(self._intake.places, self._intake.places + len(matrix)))
        self._intake.remember(ids, matrix, metadata)

    def build(self) -> None:
        """Index what was added; the first search does it otherwise, and would be timed with it."""
        with self._lock:
            if not self._waiting:
                return
            if self._index is None:
                self._index = self._library.Index(
                    getattr(self._library.Space, SPACES[self._intake.metric]),
                    num_dimensions=self._intake.dimension,
                    M=self._m,
                    ef_construction=self._ef[0],
                    max_elements=self._intake.places,
                    storage_data_type=getattr(self._library.StorageDataType, TYPES[self._dtype]),
                )
            place = self._intake.places - sum(len(part) for part in self._waiting)
            while self._waiting:
                part = self._waiting.pop(0)
                self._insert(part, range(place, place + len(part)))
                place += len(part)

    def tune(self, *, ef_search: int | None = None) -> None:
        """Set options of the searches to come."""
        if ef_search is not None:
            self._ef = self._ef[0], whole("ef_search", ef_search)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """The `k` nearest of each row, nearest first."""
        queries = self._intake.queries(vectors, k)
        if where:
            raise cannot("voyager", "filter", "it searches all that there is")
        if self._waiting:
            self.build()
        if not len(self) or not len(queries):
            return self._intake.empty(len(queries), k)
        if self._largest < np.inf:
            self._fitting(queries)
        width = min(k, len(self))
        with stage("retrieve"):
            try:
                # Voyager refuses to look at fewer than it is to give.
                found, values = self._index.query(queries, width, self._threads, max(self._ef[1], width))
            except self._library.RecallError:
                found, values = self._fewer(queries, width)
        if self._intake.metric == "l2":
            values = np.sqrt(np.maximum(values, 0))
        elif self._intake.metric == "ip":
            values = values - 1  # Voyager gives 1 - the inner product
        else:
            values = np.maximum(values, 0)
        return self._intake.answer(found.view(np.int64), values, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Give ids that are there other vectors."""
        positions, matrix = self._intake.replacements(ids, vectors)
        self._fitting(matrix)
        self.build()
        if len(ids):
            self._insert(matrix, positions.tolist())

    def delete(self, ids: Sequence[str]) -> None:
        """Forget ids that are there."""
        positions = self._intake.positions(ids)
        self.build()
        for place in positions.tolist():
            self._index.mark_deleted(place)
        self._intake.forget(ids)

    def save(self) -> None:
        """Keep everything in `path`."""
        folder = folder_of("voyager", self._path)
        self.build()
        if self._index is not None:
            with replace_file(folder / FILE) as file:
                self._index.save(str(file))
            self._intake.write(folder, **self._built())

    def close(self) -> None:
        """Let go of the index."""
        self._index = None
        self._waiting = []
        self._intake = Intake(self._intake.metric)

    def _built(self) -> dict[str, Any]:
        return {"m": self._m, "ef_construction": self._ef[0], "dtype": self._dtype}

    def _fitting(self, matrix: Matrix) -> Matrix:
        """The vectors, if their numbers can be kept in this precision."""
        if self._largest < np.inf and matrix.size and (most := float(np.abs(matrix).max())) > self._largest:
            raise BadInput(
                f"{self._dtype} holds numbers from -{self._largest:g} to {self._largest:g}, not {most:g}",
                hint="take dtype=float32, or the metric cosine",
            )
        return matrix

    def _insert(self, matrix: Matrix, places: Sequence[int]) -> None:
        self._index.add_items(matrix, list(places), self._threads)

    def _fewer(self, queries: Matrix, width: int) -> tuple[Places, Matrix]:
        """What there is for each query: where a graph has come apart, Voyager refuses instead of giving fewer."""
        positions = np.full((len(queries), width), -1, dtype=np.int64)
        values = np.full((len(queries), width), np.inf, dtype=np.float32)
        for row, query in enumerate(queries):
            ask = partial(self._index.query, query, num_threads=1, query_ef=max(self._ef[1], width))
            size, found = most(ask, width, self._library.RecallError)
            if size:
                positions[row, :size], values[row, :size] = found
        return positions, values
