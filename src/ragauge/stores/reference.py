"""Reference stores: exact search by brute force, and a store that does nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.protocols import STORE_CAPABILITIES
from ragauge.core.settings import AtLeast
from ragauge.core.stages import stage
from ragauge.files.workspace import replace_file
from ragauge.stores.bookkeeping import Mask, Matrix, Positions, StoreBookkeeping, claim_files, require_folder
from ragauge.stores.nearest_neighbours import find_nearest, row_norms
from ragauge.stores.search_results import RawNeighbours
from ragauge.stores.store_settings import StoreSettings, search_option
from ragauge.stores.vector_store import VectorStore

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
    positions: Positions

    def select(self, selection: slice | Mask) -> _VectorRows:
        return _VectorRows(self.vectors[selection], self.sizes[selection], self.positions[selection])

    def put(self, start: int, new_rows: _VectorRows) -> None:
        rows = slice(start, start + len(new_rows.positions))
        self.vectors[rows], self.sizes[rows], self.positions[rows] = new_rows


class _SearchSnapshot(NamedTuple):
    """Data that one search uses: the rows, and which of them were deleted."""

    rows: _VectorRows
    deleted: Positions


class ExactStore(VectorStore):
    """Exact search in double precision; equal distances are ordered by insertion.

    >>> store = ExactStore(metric="l2")
    >>> store.add(["a", "b", "c"], [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    >>> ids, distances = store.search([[0.0, 0.0]], k=4)
    >>> ids.tolist(), distances.tolist()
    ([['a', 'c', 'b', None]], [[0.0, 0.0, 5.0, inf]])
    """

    name = "exact"
    capabilities = frozenset(STORE_CAPABILITIES)

    def __init__(self, *, metric: str = "cosine", path: str | None = None) -> None:
        super().__init__(metric, path, StoreSettings())
        self._buffer = _allocate_rows(0, 0)
        self._snapshot = _SearchSnapshot(self._buffer, _no_positions())
        self._last_selection: tuple[Mask, Positions, Positions] | None = None
        if self._saved:
            self._load_vectors(require_folder(self.name, path) / VECTORS_FILE)

    def _add(
        self,
        ids: Sequence[str],  # noqa: ARG002 - used by databases
        positions: range,
        matrix: Matrix,
        metadata: Sequence[Mapping[str, Any]] | None,  # noqa: ARG002 - used by databases
    ) -> None:
        self._append_rows(matrix, np.arange(positions.start, positions.stop))

    def _append_rows(self, matrix: Matrix, positions: Positions) -> None:
        rows, deleted = self._snapshot
        count, end = len(rows.positions), len(rows.positions) + len(matrix)
        if end > len(self._buffer.positions) or not count:
            # Allocate twice the rows; unused pages cost no memory until they are written.
            self._buffer = _allocate_rows(max(2 * count, end), matrix.shape[1])
            if count:
                self._buffer.put(0, rows)
        self._buffer.put(count, _VectorRows(matrix, row_norms(matrix).astype(np.float32), positions))
        # Assigned in one step, so that a search in another thread sees all new rows or none.
        self._snapshot = _SearchSnapshot(self._buffer.select(slice(end)), deleted)

    def _compact_rows(self) -> None:
        """Remove deleted rows; a concurrent search keeps using the old arrays."""
        rows, deleted = self._snapshot
        if len(deleted):
            is_kept = np.ones(len(rows.positions), np.bool_)
            is_kept[deleted] = False
            self._buffer = rows.select(is_kept)
            self._snapshot = _SearchSnapshot(self._buffer, _no_positions())

    def _load_vectors(self, file: Path) -> None:
        try:
            matrix = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadInput(f"the vectors of the store cannot be read ({error})", file=str(file)) from error
        positions = np.flatnonzero(self._bookkeeping.live_positions)
        if matrix.ndim != 2 or matrix.dtype != np.float32 or len(matrix) != len(positions):
            raise BadInput(f"the number of vectors differs from the {len(positions)} ids of the store", file=str(file))
        if len(matrix):
            self._append_rows(matrix, positions)

    def _describe_engine(self) -> dict[str, Any]:
        return {"version": np.__version__}

    def _search(self, queries: Matrix, k: int, selection: Mask | None) -> RawNeighbours:
        rows, deleted = self._snapshot
        allowed = None if selection is None else self._allowed_rows(selection, rows.positions)
        # A filter excludes deleted rows. Without one, up to that many more neighbours are needed.
        more = len(deleted) if selection is None else 0
        indices, distances = find_nearest(
            rows.vectors, queries, k + more, self._bookkeeping.metric, allowed=allowed, sizes=rows.sizes
        )
        if more:
            order = np.argsort(np.isin(indices, deleted), axis=1, kind="stable")[
                :, : min(k, len(rows.positions) - more)
            ]
            indices, distances = np.take_along_axis(indices, order, 1), np.take_along_axis(distances, order, 1)
        return rows.positions[indices], distances

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        rows = self._snapshot.rows
        indices = np.searchsorted(rows.positions, positions)
        rows.vectors[indices], rows.sizes[indices] = matrix, row_norms(matrix)

    def _remove(self, positions: Positions) -> None:
        rows, deleted = self._snapshot
        self._snapshot = _SearchSnapshot(rows, np.union1d(deleted, np.searchsorted(rows.positions, positions)))
        if len(self._snapshot.deleted) > MAX_DELETED_ROWS_SKIPPED:
            self._compact_rows()

    def _flush(self, folder: Path) -> dict[str, Any]:
        self._compact_rows()
        claim_files(folder, VECTORS_FILE)
        with replace_file(folder / VECTORS_FILE) as part, part.open("wb") as file:
            np.save(file, self._snapshot.rows.vectors, allow_pickle=False)
        return {}

    def _close(self) -> None:
        self._buffer = _allocate_rows(0, 0)
        self._snapshot = _SearchSnapshot(self._buffer, _no_positions())
        self._bookkeeping = StoreBookkeeping(self._bookkeeping.metric)

    def _allowed_rows(self, mask: Mask, positions: Positions) -> Positions:
        """Return the rows that match a filter; cached for the next search."""
        if (
            self._last_selection is None
            or self._last_selection[0] is not mask
            or self._last_selection[1] is not positions
        ):
            inside = positions[: np.searchsorted(positions, len(mask))]
            self._last_selection = mask, positions, np.flatnonzero(mask[inside])
        return self._last_selection[2]


def _allocate_rows(rows: int, dimension: int) -> _VectorRows:
    return _VectorRows(np.empty((rows, dimension), np.float32), np.empty(rows, np.float32), np.empty(rows, np.int64))


def _no_positions() -> Positions:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class NullSettings(StoreSettings):
    """Simulated latency of the null store."""

    work_ms: Annotated[float, AtLeast(0)] = search_option(0.0)
    stall_ms: Annotated[float, AtLeast(0)] = search_option(0.0)
    every: Annotated[int, AtLeast(1)] = search_option(100)


class NullStore(VectorStore):
    """Store that discards vectors and answers every query with the first ids.

    It measures the overhead of the benchmark itself. It can simulate a slow engine: each search uses `work_ms` of
    CPU time, and every `every`-th search also sleeps for `stall_ms`, like an engine that merges segments.

    >>> store = NullStore(metric="l2")
    >>> store.add(["a", "b"], [[0.0, 0.0], [3.0, 4.0]])
    >>> store.search([[3.0, 4.0]], 3)[0].tolist()
    [['a', 'b', None]]
    """

    name = "null"
    capabilities = frozenset(STORE_CAPABILITIES)

    _settings: NullSettings

    def __init__(self, *, metric: str = "l2", path: str | None = None, settings: NullSettings = NullSettings()) -> None:
        super().__init__(metric, path, settings)
        self._searches = 0
        self._apply_search_options()

    def _apply_search_options(self) -> None:
        self._work, self._stall = int(self._settings.work_ms * 1e6), self._settings.stall_ms / 1e3
        self._every = self._settings.every

    def save(self) -> None:
        """Save the ids in `path`, if there is one."""
        if self._path is not None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
            super().save()

    def _add(
        self,
        ids: Sequence[str],
        positions: range,
        matrix: Matrix,
        metadata: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        """Discard the vectors."""

    def _replace(self, positions: Positions, matrix: Matrix) -> None:
        """Discard the vectors."""

    def _remove(self, positions: Positions) -> None:
        """Do nothing: there are no vectors."""

    def _search(self, queries: Matrix, k: int, selection: Mask | None) -> RawNeighbours:
        self._simulate_latency()
        first = self._first_positions(k, selection)
        positions = np.broadcast_to(first, (len(queries), len(first)))
        return positions, np.zeros(positions.shape, dtype=np.float32)

    def _search_nothing(self, n_queries: int, k: int) -> Neighbours:
        # The simulated latency does not depend on what the store contains.
        with stage("retrieve"):
            self._simulate_latency()
        return super()._search_nothing(n_queries, k)

    def _first_positions(self, k: int, selection: Mask | None) -> NDArray[np.int64]:
        if selection is None and len(self._bookkeeping.position_by_id) == self._bookkeeping.position_count:
            return np.arange(k)
        return np.flatnonzero(self._bookkeeping.live_positions if selection is None else selection)[:k]

    def _simulate_latency(self) -> None:
        self._searches += 1
        if self._work:
            until = time.perf_counter_ns() + self._work
            while time.perf_counter_ns() < until:
                pass
        if self._stall and self._searches % self._every == 0:
            time.sleep(self._stall)
