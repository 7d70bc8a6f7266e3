"""Exact neighbours: choice of CPU, faiss or GPU, and shards on an executor.

Each row is sent to one worker, once. The distances within a shard do not depend on the other rows. So the merged
neighbours are the same, in the same order, as those of a single search.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.executors import map_ordered, worker_count
from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BackendFailed
from ragauge.core.records import Floats, Ints
from ragauge.store_benchmarks import neighbours_faiss, neighbours_gpu
from ragauge.store_benchmarks.results import Matrix
from ragauge.stores.nearest_neighbours import find_nearest, merge_nearest

NEIGHBOUR_BACKENDS = ("auto", "numpy", "faiss", "torch")


class NeighbourSearchResult(NamedTuple):
    """Nearest rows of a set of queries."""

    neighbours: Ints
    distances: Floats
    backends: frozenset[str]
    """Backends that found them; several if workers differ."""
    note: str = ""
    """Reason why another backend than the requested one was used; empty if none."""

    def among(self, other: NeighbourSearchResult, k: int) -> NeighbourSearchResult:
        """Merge with the nearest rows found among other rows, and keep the `k` nearest."""
        neighbours, distances = merge_nearest((self.neighbours, self.distances), (other.neighbours, other.distances), k)
        return NeighbourSearchResult(neighbours, distances, self.backends | other.backends, self.note or other.note)


def find_neighbours(
    base: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    metric: str,
    backend: str,
    progress: ProgressCallback = no_progress,
) -> NeighbourSearchResult:
    """Find the nearest rows of each query.

    The backend `torch` uses a GPU, and falls back to NumPy if there is none or it fails; the note then says why.
    """
    if backend == "faiss":
        return NeighbourSearchResult(
            *neighbours_faiss.search_with_faiss(base, queries, k, metric), frozenset({backend})
        )
    reason = neighbours_gpu.gpu_unavailable_reason() if backend == "torch" else ""
    if backend == "torch" and not reason:
        try:
            return NeighbourSearchResult(
                *neighbours_gpu.search_with_torch(base, queries, k, metric), frozenset({backend})
            )
        except BackendFailed as error:
            reason = f"the GPU failed ({error.message})"
    note = f"{reason}: exact neighbours on the CPU" if reason else ""
    return NeighbourSearchResult(*find_nearest(base, queries, k, metric, progress=progress), frozenset({"numpy"}), note)


MAX_READ_SHARD_BYTES, MAX_SENT_SHARD_BYTES = 256 << 20, 64 << 20
"""Maximum size of a shard that a worker reads from a file, and of one that is sent to it."""
MIN_SHARD_ROWS = 4096
"""Minimum number of rows per shard; fewer are not worth a task."""
MIN_SHARD_QUERIES = 64
SHARDS_PER_WORKER = 2
"""Number of shards per worker, if there are enough rows, so that fast workers process more of them."""
TASKS_AHEAD = 2
CHECKSUM_ROWS = 64
"""Number of rows of a shard whose checksum identifies the file."""


@dataclass(frozen=True, eq=False)
class RowShard:
    """Rows that are sent to a worker."""

    start: int
    """Index of the first row."""
    rows: Matrix

    def read(self) -> Matrix | None:
        return self.rows


@dataclass(frozen=True)
class FileShard:
    """Rows given by their location in a file, for workers that have the same file."""

    start: int
    path: str
    size: int
    dtype: str
    offset: int
    """Byte offset of the first row."""
    shape: tuple[int, int]
    checksum: int
    """Checksum of CHECKSUM_ROWS of the rows."""

    def read(self) -> Matrix | None:
        """Map the rows from the file; None if the file is missing or different."""
        try:
            if Path(self.path).stat().st_size != self.size:
                return None
            rows: Matrix = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        except (OSError, ValueError):
            return None
        return rows if _rows_checksum(rows) == self.checksum else None


@dataclass(frozen=True, eq=False)
class RowShardSearch:
    """Task that searches all queries in one shard of the rows."""

    queries: NDArray[np.float32]
    k: int
    metric: str
    backend: str

    def __call__(self, shard: RowShard | FileShard) -> NeighbourSearchResult | None:
        """Return the nearest rows of the shard; None if the worker cannot read it."""
        rows = shard.read()
        if rows is None:
            return None
        neighbours = find_neighbours(
            np.ascontiguousarray(rows, np.float32), self.queries, self.k, self.metric, self.backend
        )
        return neighbours._replace(neighbours=neighbours.neighbours + shard.start)


@dataclass(frozen=True, eq=False)
class QueryShardSearch:
    """Task that searches one shard of the queries in all rows."""

    base: NDArray[np.float32]
    k: int
    metric: str
    backend: str

    def __call__(self, queries: NDArray[np.float32]) -> NeighbourSearchResult:
        """Return the nearest rows of the given queries."""
        return find_neighbours(self.base, queries, self.k, self.metric, self.backend)


def find_neighbours_on_executor(
    executor: Executor,
    base: Matrix,
    queries: NDArray[np.float32],
    k: int,
    metric: str,
    backend: str,
    progress: ProgressCallback,
) -> NeighbourSearchResult:
    """Find the nearest rows on the workers of an executor.

    The result is identical, bit for bit, to that of `find_neighbours`.
    """
    if queries.nbytes > base.nbytes:
        work = QueryShardSearch(np.ascontiguousarray(base, np.float32), k, metric, backend)
        return _search_query_shards(executor, work, queries, progress)
    return _search_row_shards(executor, RowShardSearch(queries, k, metric, backend), base, progress)


def _search_query_shards(
    executor: Executor, work: QueryShardSearch, queries: NDArray[np.float32], progress: ProgressCallback
) -> NeighbourSearchResult:
    step = _shard_size(executor, queries, MIN_SHARD_QUERIES, MAX_SENT_SHARD_BYTES)
    parts = (queries[start : start + step] for start in range(0, len(queries), step))
    shards, done = [], 0
    for search in map_ordered(executor, work, parts, heavy=True, ahead=TASKS_AHEAD):
        shards.append(search)
        done += len(search.neighbours)
        progress(Progress("searching", done, len(queries)))
    neighbours, distances = (np.concatenate([shard[field] for shard in shards]) for field in (0, 1))
    return NeighbourSearchResult(
        neighbours,
        distances,
        frozenset().union(*(shard.backends for shard in shards)),
        next((shard.note for shard in shards if shard.note), ""),
    )


def _search_row_shards(
    executor: Executor, work: RowShardSearch, base: Matrix, progress: ProgressCallback
) -> NeighbourSearchResult:
    results = _iterate_shard_results(executor, work, base, progress)
    return reduce(lambda best, result: best.among(result, work.k), results)


def _iterate_shard_results(
    executor: Executor, work: RowShardSearch, base: Matrix, progress: ProgressCallback
) -> Iterator[NeighbourSearchResult]:
    """Yield the result of each shard.

    Shards that workers can read from a file come first, then those that are sent to them.
    """
    remaining, done = [(0, len(base))], 0
    for describe, max_bytes in ((_file_shard_factory(base), MAX_READ_SHARD_BYTES), (RowShard, MAX_SENT_SHARD_BYTES)):
        if describe is None or not remaining:
            continue
        step = _shard_size(executor, base, MIN_SHARD_ROWS, max_bytes)
        shard_ranges = [(at, min(at + step, stop)) for start, stop in remaining for at in range(start, stop, step)]
        shards = (describe(start, base[start:stop]) for start, stop in shard_ranges)
        results = map_ordered(executor, work, shards, heavy=describe is RowShard, ahead=TASKS_AHEAD)
        remaining = []
        for (start, stop), result in zip(shard_ranges, results, strict=True):
            if result is None:
                remaining.append((start, stop))
                continue
            yield result
            done += stop - start
            n_queries = len(work.queries)
            progress(Progress("searching", round(done / len(base) * n_queries), n_queries))


def _shard_size(executor: Executor, matrix: Matrix, min_rows: int, max_bytes: int) -> int:
    """Return the number of rows per shard.

    There are enough shards for all workers, within the size limits.
    """
    even = -(-len(matrix) // (SHARDS_PER_WORKER * worker_count(executor)))
    return min(max(min_rows, even), max(1, max_bytes // max(1, matrix.nbytes // len(matrix))))


def _rows_checksum(rows: Matrix) -> int:
    return zlib.crc32(np.ascontiguousarray(rows[:: max(1, len(rows) // CHECKSUM_ROWS)]).data)


def _file_shard_factory(base: Matrix) -> Callable[[int, Matrix], FileShard] | None:
    """Return a function that builds a FileShard, or None.

    None unless the matrix is contiguous and mapped read-only from a file.
    """
    root = None
    at: object = base
    while isinstance(at, np.ndarray):
        root, at = (at if isinstance(at, np.memmap) else root), at.base
    if root is None or root.filename is None or root.mode != "r" or not base.flags.c_contiguous:
        return None
    path, first = os.fspath(root.filename), root.ctypes.data - root.offset
    size = Path(path).stat().st_size if Path(path).exists() else -1

    def describe(start: int, rows: Matrix) -> FileShard:
        where = rows.ctypes.data - first
        return FileShard(start, path, size, rows.dtype.str, where, (len(rows), rows.shape[1]), _rows_checksum(rows))

    return describe
