"""Exact neighbours on an executor: the rows in shards, or the queries in parts where they are more; put together here.

Each row goes to one worker, once. A shard gives its own nearest of every query, by distances that are the same whatever
rows stand beside it, so that the nearest of all are among them, in the order that they would have in one piece.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragauge.benches.ways import Found, find, joined
from ragauge.executors import lanes, spread
from ragauge.sweeps import Matrix

READ_AT_MOST, SENT_AT_MOST = 256 << 20, 64 << 20
"""Bytes of a shard that a worker reads for itself, and of one that travels."""
ROWS_AT_LEAST = 4096
"""Of a shard: fewer are not worth the way."""
QUERIES_AT_LEAST = 64
EACH = 2
"""Shards for each lane, where there are rows enough: who is quick gets more of them."""
AHEAD = 2
MARKED = 64
"""Rows of a shard by which a worker knows that its file is this one."""


@dataclass(frozen=True, eq=False)
class Shard:
    """Some rows, as they are."""

    start: int
    """The place of the first of them."""
    rows: Matrix

    def read(self) -> Matrix | None:
        """The rows."""
        return self.rows


@dataclass(frozen=True)
class Stored:
    """Some rows by where they are in a file: all that travels, where a worker has the same file."""

    start: int
    path: str
    size: int
    dtype: str
    offset: int
    """The byte at which the first of these rows begins."""
    shape: tuple[int, int]
    mark: int
    """A checksum of MARKED of these rows."""

    def read(self) -> Matrix | None:
        """The rows; None where there is no such file, or another one."""
        try:
            if Path(self.path).stat().st_size != self.size:
                return None
            rows: Matrix = np.memmap(self.path, self.dtype, "r", self.offset, self.shape)
        except (OSError, ValueError):
            return None
        return rows if _mark(rows) == self.mark else None


@dataclass(frozen=True, eq=False)
class AmongRows:
    """All queries, to be held against a shard."""

    queries: NDArray[np.float32]
    k: int
    metric: str
    way: str

    def __call__(self, shard: Shard | Stored) -> Found | None:
        """The nearest of its rows; None where it cannot be read here."""
        rows = shard.read()
        if rows is None:
            return None
        found = find(np.ascontiguousarray(rows, np.float32), self.queries, self.k, self.metric, self.way)
        return found._replace(neighbours=found.neighbours + shard.start)


@dataclass(frozen=True, eq=False)
class ForQueries:
    """All rows, to be held against some queries."""

    base: NDArray[np.float32]
    k: int
    metric: str
    way: str

    def __call__(self, queries: NDArray[np.float32]) -> Found:
        """The nearest of all rows."""
        return find(self.base, queries, self.k, self.metric, self.way)


def find_on(
    executor: Executor,
    base: Matrix,
    queries: NDArray[np.float32],
    k: int,
    metric: str,
    way: str,
    progress: Callable[[float], None],
) -> Found:
    """The same as `find`, to the last bit, by the workers of an executor."""
    if queries.nbytes > base.nbytes:
        work = ForQueries(np.ascontiguousarray(base, np.float32), k, metric, way)
        return _by_queries(executor, work, queries, progress)
    return _by_rows(executor, AmongRows(queries, k, metric, way), base, progress)


def _by_queries(
    executor: Executor, work: ForQueries, queries: NDArray[np.float32], progress: Callable[[float], None]
) -> Found:
    step = _step(executor, queries, QUERIES_AT_LEAST, SENT_AT_MOST)
    parts = (queries[start : start + step] for start in range(0, len(queries), step))
    found, done = [], 0
    for one in spread(executor, work, parts, heavy=True, ahead=AHEAD):
        found.append(one)
        done += len(one.neighbours)
        progress(done / len(queries))
    near, far = (np.concatenate([one[which] for one in found]) for which in (0, 1))
    return Found(near, far, joined([one.by for one in found]), next((one.note for one in found if one.note), ""))


def _by_rows(executor: Executor, work: AmongRows, base: Matrix, progress: Callable[[float], None]) -> Found:
    found = _shards(executor, work, base, progress)
    return reduce(lambda best, one: best.among(one, work.k), found)


def _shards(executor: Executor, work: AmongRows, base: Matrix, progress: Callable[[float], None]) -> Iterator[Found]:
    """The nearest of each shard: of those that workers can read for themselves, then of those that are sent."""
    left, done = [(0, len(base))], 0
    for describe, most in ((_file_of(base), READ_AT_MOST), (Shard, SENT_AT_MOST)):
        if describe is None or not left:
            continue
        step = _step(executor, base, ROWS_AT_LEAST, most)
        cut = [(at, min(at + step, stop)) for start, stop in left for at in range(start, stop, step)]
        shards = (describe(start, base[start:stop]) for start, stop in cut)
        results = spread(executor, work, shards, heavy=describe is Shard, ahead=AHEAD)
        left = []
        for (start, stop), found in zip(cut, results, strict=True):
            if found is None:
                left.append((start, stop))
                continue
            yield found
            done += stop - start
            progress(done / len(base))


def _step(executor: Executor, matrix: Matrix, least: int, most: int) -> int:
    """How many rows go together: enough parts for everybody, but neither too small nor of too many bytes."""
    even = -(-len(matrix) // (EACH * lanes(executor)))
    return min(max(least, even), max(1, most // max(1, matrix.nbytes // len(matrix))))


def _mark(rows: Matrix) -> int:
    return zlib.crc32(np.ascontiguousarray(rows[:: max(1, len(rows) // MARKED)]).data)


def _file_of(base: Matrix) -> Callable[[int, Matrix], Stored] | None:
    """What describes rows of a matrix that is mapped from a file which nobody can change by it; None for others."""
    root = None
    at: object = base
    while isinstance(at, np.ndarray):
        root, at = (at if isinstance(at, np.memmap) else root), at.base
    if root is None or root.filename is None or root.mode != "r" or not base.flags.c_contiguous:
        return None
    path, first = os.fspath(root.filename), root.ctypes.data - root.offset
    size = Path(path).stat().st_size if Path(path).exists() else -1

    def describe(start: int, rows: Matrix) -> Stored:
        where = rows.ctypes.data - first
        return Stored(start, path, size, rows.dtype.str, where, (len(rows), rows.shape[1]), _mark(rows))

    return describe
