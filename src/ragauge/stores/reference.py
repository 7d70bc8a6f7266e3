"""Reference stores: exact search by brute force, and a store that does nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.protocols import STORE_CAPABILITIES
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import Mask, Matrix, Positions, StoreBookkeeping
from ragauge.stores.nearest_neighbours import find_nearest, row_norms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ragauge.core.protocols import Neighbours


VECTORS_FILE = "vectors.npy"
MAX_DELETED_ROWS_SKIPPED = 32
"""Maximum number of deleted rows that a search skips; with more, the rows are compacted."""


class _VectorRows(NamedTuple):
    """Vectors, their lengths, and their positions in ascending order."""

    vectors: Matrix
    sizes: Matrix
    places: Positions

    def some(self, which: slice | Mask) -> _VectorRows:
        return _VectorRows(self.vectors[which], self.sizes[which], self.places[which])

    def put(self, start: int, more: _VectorRows) -> None:
        where = slice(start, start + len(more.places))
        self.vectors[where], self.sizes[where], self.places[where] = more


class _SearchSnapshot(NamedTuple):
    """Data that one search uses: the rows, and which of them were deleted."""

    rows: _VectorRows
    gone: Positions


class ExactStore:
    """Exact search in double precision; equal distances are ordered by insertion.

    >>> store = ExactStore(metric="l2")
    >>> store.add(["a", "b", "c"], [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    >>> ids, distances = store.search([[0.0, 0.0]], k=4)
    >>> ids.tolist(), distances.tolist()
    ([['a', 'c', 'b', None]], [[0.0, 0.0, 5.0, inf]])
    """

    abilities = frozenset(STORE_CAPABILITIES)

    def __init__(self, *, metric: str = "cosine", path: str | None = None) -> None:
        self._intake = StoreBookkeeping(metric)
        self._path = path
        self._room = _allocate_rows(0, 0)
        self._held = _SearchSnapshot(self._room, _no_positions())
        self._last: tuple[Mask, Positions, Positions] | None = None
        if path is not None and self._intake.read(path):
            self._load_vectors(Path(path) / VECTORS_FILE)

    def __len__(self) -> int:
        return len(self._intake)

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "exact",
            "version": np.__version__,
            "metric": self._intake.metric,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add vectors under their ids, with metadata that searches can filter by."""
        matrix = self._intake.documents(ids, vectors, metadata)
        first = self._intake.places
        self._intake.remember(ids, matrix, metadata)
        if len(matrix):
            self._append_rows(matrix, np.arange(first, first + len(matrix)))

    def build(self) -> None:
        """Do nothing: there is no index."""

    def tune(self) -> None:
        """Do nothing: there are no search options."""

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the `k` nearest vectors of each query, nearest first.

        `where` restricts them to vectors whose metadata match the filter.
        """
        queries = self._intake.queries(vectors, k)
        rows, gone = self._held
        if not len(rows.places) or not len(queries):
            return self._intake.empty(len(queries), k)
        with stage("retrieve"):
            allowed = None if where is None else self._allowed_rows(where, rows.places)
            # A filter excludes deleted rows. Without one, up to that many more neighbours are needed.
            more = len(gone) if where is None else 0
            found, distances = find_nearest(
                rows.vectors, queries, k + more, self._intake.metric, allowed=allowed, sizes=rows.sizes
            )
            if more:
                kept = np.argsort(np.isin(found, gone), axis=1, kind="stable")[:, : min(k, len(rows.places) - more)]
                found, distances = np.take_along_axis(found, kept, 1), np.take_along_axis(distances, kept, 1)
        return self._intake.answer(rows.places[found], distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Replace the vectors of existing ids."""
        places, matrix = self._intake.replacements(ids, vectors)
        rows = self._held.rows
        which = np.searchsorted(rows.places, places)
        rows.vectors[which], rows.sizes[which] = matrix, row_norms(matrix)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        places = self._intake.positions(ids)
        self._intake.forget(ids)
        rows, gone = self._held
        self._held = _SearchSnapshot(rows, np.union1d(gone, np.searchsorted(rows.places, places)))
        if len(self._held.gone) > MAX_DELETED_ROWS_SKIPPED:
            self._compact_rows()

    def save(self) -> None:
        """Save the store in `path`, so that another process can open it."""
        if self._path is None:
            raise BadInput("the store has no folder to be kept in", hint="give it a path")
        self._compact_rows()
        with replace_file(Path(self._path) / VECTORS_FILE) as part, part.open("wb") as file:
            np.save(file, self._held.rows.vectors, allow_pickle=False)
        self._intake.write(self._path)

    def close(self) -> None:
        """Release the vectors."""
        self._room = _allocate_rows(0, 0)
        self._held = _SearchSnapshot(self._room, _no_positions())

    def _append_rows(self, matrix: Matrix, places: Positions) -> None:
        rows, gone = self._held
        count, end = len(rows.places), len(rows.places) + len(matrix)
        if end > len(self._room.places) or not count:
            # Allocate twice the rows; unused pages cost no memory until they are written.
            self._room = _allocate_rows(max(2 * count, end), matrix.shape[1])
            if count:
                self._room.put(0, rows)
        self._room.put(count, _VectorRows(matrix, row_norms(matrix).astype(np.float32), places))
        # Assigned in one step, so that a search in another thread sees all new rows or none.
        self._held = _SearchSnapshot(self._room.some(slice(end)), gone)

    def _compact_rows(self) -> None:
        """Remove deleted rows; a concurrent search keeps using the old arrays."""
        rows, gone = self._held
        if len(gone):
            kept = np.ones(len(rows.places), np.bool_)
            kept[gone] = False
            self._room = rows.some(kept)
            self._held = _SearchSnapshot(self._room, _no_positions())

    def _allowed_rows(self, where: Mapping[str, Any], places: Positions) -> Positions:
        """Return the rows that match a filter; cached for the next search."""
        mask = self._intake.allowed(where)
        if self._last is None or self._last[0] is not mask or self._last[1] is not places:
            inside = places[: np.searchsorted(places, len(mask))]
            self._last = mask, places, np.flatnonzero(mask[inside])
        return self._last[2]

    def _load_vectors(self, file: Path) -> None:
        try:
            matrix = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadInput(f"the vectors of the store cannot be read ({error})", file=str(file)) from error
        places = np.flatnonzero(self._intake.living)
        if matrix.ndim != 2 or matrix.dtype != np.float32 or len(matrix) != len(places):
            raise BadInput(f"there are no {len(places)} vectors for the {len(places)} ids of the store", file=str(file))
        if len(matrix):
            self._append_rows(matrix, places)


def _allocate_rows(rows: int, dimension: int) -> _VectorRows:
    return _VectorRows(np.empty((rows, dimension), np.float32), np.empty(rows, np.float32), np.empty(rows, np.int64))


def _no_positions() -> Positions:
    return np.empty(0, np.int64)


class NullStore:
    """Store that discards vectors and answers every query with the first ids.

    It measures the overhead of the benchmark itself. It can simulate a slow engine: each search uses `work_ms` of
    CPU time, and every `every`-th search also sleeps for `stall_ms`, like an engine that merges segments.

    >>> store = NullStore(metric="l2")
    >>> store.add(["a", "b"], [[0.0, 0.0], [3.0, 4.0]])
    >>> store.search([[3.0, 4.0]], 3)[0].tolist()
    [['a', 'b', None]]
    """

    abilities = frozenset(STORE_CAPABILITIES)

    def __init__(
        self,
        *,
        metric: str = "l2",
        path: str | None = None,
        work_ms: float = 0.0,
        stall_ms: float = 0.0,
        every: int = 100,
    ) -> None:
        self._intake = StoreBookkeeping(metric)
        self._path = path
        self._searches = 0
        self.tune(work_ms=work_ms, stall_ms=stall_ms, every=every)
        if path is not None:
            self._intake.read(path)

    def __len__(self) -> int:
        return len(self._intake)

    def describe(self) -> dict[str, Any]:
        """Return the engine, its version and its parameters for the manifest."""
        return {
            "store": "null",
            "metric": self._intake.metric,
            "work_ms": self._work / 1e6,
            "stall_ms": self._stall * 1e3,
            "every": self._every,
            "size": len(self),
            "dimension": self._intake.dimension,
        }

    def add(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Register ids and metadata; discard the vectors."""
        self._intake.remember(ids, self._intake.documents(ids, vectors, metadata), metadata)

    def build(self) -> None:
        """Do nothing: there is no index."""

    def tune(self, *, work_ms: float = 0.0, stall_ms: float = 0.0, every: int = 100) -> None:
        """Set the simulated latency of later searches."""
        if work_ms < 0 or stall_ms < 0:
            raise BadInput("work_ms and stall_ms are milliseconds, 0 or more")
        self._work, self._stall, self._every = int(work_ms * 1e6), stall_ms / 1e3, check_int("every", every)

    def search(self, vectors: Any, k: int, where: Mapping[str, Any] | None = None) -> Neighbours:
        """Return the first `k` ids that match the filter, regardless of the query."""
        queries = self._intake.queries(vectors, k)
        with stage("retrieve"):
            self._simulate_latency()
            first = self._first_positions(k, where)
            positions = np.broadcast_to(first, (len(queries), len(first)))
            distances = np.zeros(positions.shape, dtype=np.float32)
        return self._intake.answer(positions, distances, k)

    def update(self, ids: Sequence[str], vectors: Any) -> None:
        """Check the new vectors and discard them."""
        self._intake.replacements(ids, vectors)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete existing ids."""
        self._intake.forget(ids)

    def save(self) -> None:
        """Save the ids in `path`, if there is one."""
        if self._path is not None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
            self._intake.write(self._path)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _first_positions(self, k: int, where: Mapping[str, Any] | None) -> NDArray[np.int64]:
        if where is None and len(self._intake) == self._intake.places:
            return np.arange(min(k, len(self)))
        return np.flatnonzero(self._intake.living if where is None else self._intake.allowed(where))[:k]

    def _simulate_latency(self) -> None:
        self._searches += 1
        if self._work:
            until = time.perf_counter_ns() + self._work
            while time.perf_counter_ns() < until:
                pass
        if self._stall and self._searches % self._every == 0:
            time.sleep(self._stall)
