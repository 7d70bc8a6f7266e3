"""Exact nearest rows of a matrix by brute force.

Single precision selects candidates, double precision decides.

For each query and row, a float32 matrix product gives a lower bound of the true value; the error is limited by
rounding. Adding the margin gives an upper bound, and the k nearest rows cannot exceed the k-th smallest upper bound.
This bound tightens from block to block, so that after the first blocks few rows pass. The rows that pass are
compared in double precision, pair by pair: a matrix product may round two equal vectors differently, and with
cancelling squares a vector would have a nonzero distance to itself.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

QUERIES_PER_BLOCK = 1024
SCORES_PER_BLOCK = 1 << 22
"""Scores per block (16 MB), regardless of the size of the base."""
TERMS_PER_BLOCK = 1 << 17
"""Products in double precision summed at a time: 1 MB, which fits in the CPU cache."""
MAX_PENDING_PAIRS = 1 << 22
"""Maximum number of candidate pairs kept; more occur only if nearly all rows are equally far."""
MIN_QUERIES_FOR_BLOCKS = 8
"""Number of queries from which it pays to prepare a copy of the base for block search."""
MIN_SAMPLE_ROWS = 4096
MAX_SAFE_NORM = 1e6
"""Norms between its inverse and it have squares that single precision represents safely."""
UNDERFLOW_MARGIN = 1e-30
"""Upper bound of what single precision may lose to underflow."""
FLOAT32_EPSILON = float(np.finfo(np.float32).eps)


def find_nearest(
    base: Float32Array,
    queries: Any,
    k: int,
    metric: str,
    *,
    allowed: NDArray[Any] | None = None,
    sizes: NDArray[Any] | None = None,
    progress: ProgressCallback = no_progress,
) -> tuple[Int64Array, Float64Array]:
    """Find the `k` nearest rows of each query and their distances, nearest first.

    Equally near rows are in order of their row number. `allowed` restricts the search to some rows: a mask, or row
    numbers in ascending order. `sizes` are the norms of the rows, if already computed. `progress` receives
    the number of queries done.

    >>> rows = np.array([[0, 0], [3, 4], [0, 0], [6, 8]], np.float32)
    >>> rows_found, distances = find_nearest(rows, rows[:1], 3, "l2")
    >>> rows_found.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0.0, 0.0, 5.0]])
    >>> find_nearest(rows, rows[:1], 3, "l2", allowed=np.array([1, 3]))[0].tolist()
    [[1, 3]]
    """
    query_matrix = np.atleast_2d(np.asarray(queries, np.float64))
    allowed_rows = (
        None if allowed is None else np.flatnonzero(allowed) if allowed.dtype == bool else np.asarray(allowed)
    )
    rows = len(base) if allowed_rows is None else len(allowed_rows)
    k = min(k, rows)
    positions, distances = np.empty((len(query_matrix), k), np.int64), np.empty((len(query_matrix), k))
    if not k:
        return positions, distances
    with np.errstate(all="ignore"):
        if len(query_matrix) < MIN_QUERIES_FOR_BLOCKS:
            norms = row_norms(base) if sizes is None else sizes
            for row, query in enumerate(query_matrix):
                nearest = _nearest_to_query(base, query, k, metric, allowed_rows, norms)
                positions[row], distances[row] = (
                    nearest or _BlockSearch(base, query[None], k, metric, allowed_rows, row).run()
                )
            return positions, distances
        for start in range(0, len(query_matrix), QUERIES_PER_BLOCK):
            part = query_matrix[start : start + QUERIES_PER_BLOCK]
            nearest = _BlockSearch(base, part, k, metric, allowed_rows, start).run(progress, len(query_matrix))
            positions[start : start + len(part)], distances[start : start + len(part)] = nearest
    return positions, distances


def _nearest_to_query(
    base: Float32Array, query: Float64Array, k: int, metric: str, allowed_rows: NDArray[Any] | None, sizes: NDArray[Any]
) -> tuple[Int64Array, Float64Array] | None:
    """Find the nearest rows of one query without copying the base.

    None if norms are too large or too small for single precision.
    """
    rows, own = (base, sizes) if allowed_rows is None else (base[allowed_rows], sizes[allowed_rows])
    own = np.asarray(own, np.float32)
    norm = math.sqrt(query.dot(query))
    max_norm = max(float(own.max()), norm) if metric == "l2" else float(own.max())
    if not 1 / MAX_SAFE_NORM < max_norm < MAX_SAFE_NORM or norm == 0:
        return None
    rounding, lift = (base.shape[1] + 16) * FLOAT32_EPSILON, UNDERFLOW_MARGIN
    # `low` is a lower bound of the true values; `low + spread * own + lift` is an upper bound.
    if metric == "l2":
        low = rows @ (query * -2).astype(np.float32)
        own = own * own
        low += own * np.float32(1 - 2 * rounding)
        spread, lift = 4 * rounding, UNDERFLOW_MARGIN + 2 * rounding * norm * norm
    else:
        low = rows @ (query / -norm).astype(np.float32)
        spread = 2 * rounding
        if metric == "ip":
            low -= own * np.float32(rounding)
        else:
            low /= np.where(own > 0, own, 1)
            spread, lift = 0.0, UNDERFLOW_MARGIN + rounding
    stride = max(1, min(math.isqrt(len(low) // k), len(low) // (2 * k)))
    upper = low[::stride] + np.float32(spread) * own[::stride]
    bound = float(np.partition(upper, k - 1)[k - 1]) + 2 * lift
    candidates = np.flatnonzero(low <= np.nextafter(np.float32(bound), np.float32(np.inf)))
    if len(candidates) > 4 * k:
        candidate_bounds = low[candidates]
        upper = candidate_bounds + np.float32(spread) * own[candidates]
        bound = float(np.partition(upper, k - 1)[k - 1]) + 2 * lift
        candidates = candidates[candidate_bounds <= np.nextafter(np.float32(bound), np.float32(np.inf))]
    if len(candidates) < k:
        return None
    positions = candidates if allowed_rows is None else allowed_rows[candidates]
    distances = pair_distances(base, query[None], np.zeros_like(candidates), positions, metric)
    best = np.argsort(distances, kind="stable")[:k]
    return positions[best], distances[best]


def pair_distances(
    base: Float32Array, queries: Float64Array, rows: Int64Array, positions: Int64Array, metric: str
) -> Float64Array:
    """Compute distances of pairs in double precision.

    Products are summed in the order of the dimensions. Equal vectors get equal distances, and a GPU that sums in
    this order computes the same bits.
    """
    distances = np.empty(len(rows))
    for start in range(0, len(rows), step := max(64, TERMS_PER_BLOCK // max(1, base.shape[1]))):
        part = slice(start, start + step)
        query_rows, base_rows = queries[rows[part]], base[positions[part]].astype(np.float64)
        if metric == "l2":
            query_rows -= base_rows
            distances[part] = np.sqrt(_row_dot_products(query_rows, query_rows))
            continue
        distances[part] = -_row_dot_products(query_rows, base_rows)
        if metric == "cosine":
            lengths = np.sqrt(_row_dot_products(query_rows, query_rows)) * np.sqrt(
                _row_dot_products(base_rows, base_rows)
            )
            # A zero vector has cosine 0 to every vector.
            cosines = np.divide(distances[part], lengths, out=np.zeros(len(lengths)), where=lengths > 0)
            distances[part] = np.clip(1 + cosines, 0, 2)
    return distances


def merge_nearest(
    first: tuple[Int64Array, Float64Array], second: tuple[Int64Array, Float64Array], k: int
) -> tuple[Int64Array, Float64Array]:
    """Merge the nearest rows of two searches and return the `k` nearest of each query.

    Equally near rows are in order of their row number.

    >>> some, others = (np.array([[0, 3]]), np.array([[1.0, 2.0]])), (np.array([[1, 2]]), np.array([[1.0, 3.0]]))
    >>> [one.tolist() for one in merge_nearest(some, others, 3)]
    [[[0, 1, 3]], [[1.0, 1.0, 2.0]]]
    """
    positions, distances = (np.concatenate(pair, axis=1) for pair in zip(first, second, strict=True))
    best = np.lexsort((positions, distances), axis=1)[:, :k]
    return np.take_along_axis(positions, best, 1), np.take_along_axis(distances, best, 1)


def row_norms(matrix: NDArray[Any]) -> Float64Array:
    """Compute the norms of rows in double precision."""
    squares: Float64Array = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
    return np.sqrt(squares)


class _CandidatePairs(NamedTuple):
    """Candidate pairs of queries and rows, with bounds of their true values."""

    rows: Int64Array
    positions: Int64Array
    low: Float64Array
    high: Float64Array

    def select(self, selection: NDArray[Any]) -> _CandidatePairs:
        return _CandidatePairs(
            self.rows[selection], self.positions[selection], self.low[selection], self.high[selection]
        )


class _BlockSearch:
    """Search of some queries over all rows, block by block.

    The true value of a pair is between `low - lift` and `low + spread * own + lift`, where `low` is the product,
    `lift` and `spread` depend on the query, and `own` on the row: a long row does not loosen the bound of others.
    """

    def __init__(
        self,
        base: Float32Array,
        queries: Float64Array,
        k: int,
        metric: str,
        allowed_rows: NDArray[Any] | None,
        first: int = 0,
    ) -> None:
        self.first = first
        self.base, self.queries, self.k, self.metric, self.allowed_rows = base, queries, k, metric, allowed_rows
        self.count = len(base) if allowed_rows is None else len(allowed_rows)
        self.rounding = (base.shape[1] + 16) * FLOAT32_EPSILON
        self.own = np.empty(self.count, np.float32)
        self.lift, self.spread = np.full(len(queries), UNDERFLOW_MARGIN), np.zeros(len(queries))
        self.sample = slice(0, self.count, max(1, self.count // max(4 * k, MIN_SAMPLE_ROWS)))
        rows, norms = self._base_rows(self.sample), row_norms(queries)
        self.scale = 1.0
        if metric != "cosine":
            max_norm = max(float(row_norms(rows).max()), float(norms.max()) if metric == "l2" else 0.0)
            if max_norm and not 1 / MAX_SAFE_NORM < max_norm < MAX_SAFE_NORM:
                self.scale = 2.0 ** -math.frexp(max_norm)[1]
        # If all vectors are far from the origin in one direction, rounding errors are small only around their centre.
        self.centre = self._scale_rows(rows).mean(axis=0, dtype=np.float64).astype(np.float32)
        query_matrix = np.empty((len(queries), base.shape[1] + 1), np.float32)
        if metric == "l2":
            moved = queries * self.scale - self.centre
            query_matrix[:, :-1], query_matrix[:, -1] = -2 * moved, 1
            self.lift += 2 * self.rounding * _row_dot_products(moved, moved)
            self.spread += 4 * self.rounding
        else:
            query_matrix[:, :-1], query_matrix[:, -1] = (
                queries / -np.where(norms > 0, norms, 1)[:, None],
                -self.rounding,
            )
            self.spread += 2 * self.rounding
        self.asked = query_matrix.T

    def run(self, progress: ProgressCallback = no_progress, n_queries: int = 0) -> tuple[Int64Array, Float64Array]:
        """Return positions and distances of the nearest rows; report progress as a number of `n_queries`."""
        width = len(self.queries)
        self.bound = self._first_bound()
        collected: list[_CandidatePairs] = []
        pending, enough = 0, max(width * self.k // 2, 64)
        step = min(self.count, max(1, SCORES_PER_BLOCK // width))
        # Allocate the buffers once: allocating them in every block would cost more than the comparisons.
        scores, passed = np.empty((step, width), np.float32), np.empty((step, width), np.bool_)
        for start in range(0, self.count, step):
            block = slice(start, min(start + step, self.count))
            size = block.stop - block.start
            low = self._lower_bounds(block, scores[:size])
            limit = np.nextafter((self.bound + self.lift).astype(np.float32), np.float32(np.inf))
            passing = np.flatnonzero(np.less_equal(low, limit, out=passed[:size]))
            positions, rows = (passing, np.zeros_like(passing)) if width == 1 else np.divmod(passing, width)
            values = low.ravel()[passing].astype(np.float64)
            high = values + self.spread[rows] * self.own[block][positions] + self.lift[rows]
            collected.append(
                _CandidatePairs(rows, positions + start, values, np.where(np.isfinite(high), high, np.inf))
            )
            pending += len(passing)
            if pending > enough:
                collected, pending = [self._tighten_bounds(collected)], 0
            progress(Progress("searching", self.first + round(width * block.stop / self.count), n_queries))
        pairs = self._tighten_bounds(collected)
        # With finite values each query has k pairs; with fewer it would get pairs of the next query.
        if (has_too_few := np.bincount(pairs.rows, minlength=width) < self.k).any():
            raise BadInput(
                f"query {self.first + int(has_too_few.argmax())} has no finite distance to {self.k} vectors",
                hint="remove vectors with a NaN or an infinity",
            )
        best, distances = self._select_nearest(pairs)
        shape = (width, self.k)
        positions = pairs.positions[best].reshape(shape)
        return positions if self.allowed_rows is None else self.allowed_rows[positions], distances.reshape(shape)

    def _base_rows(self, block: slice) -> Float32Array:
        return self.base[block] if self.allowed_rows is None else self.base[self.allowed_rows[block]]

    def _scale_rows(self, rows: Float32Array) -> Float32Array:
        """Scale rows for the comparison.

        Rows get length 1 for cosine; for other metrics they are scaled if squares could overflow or underflow.
        """
        if self.metric == "cosine":
            sizes = row_norms(rows)
            return np.asarray(rows / np.where(sizes > 0, sizes, 1).astype(np.float32)[:, None], np.float32)
        return rows if self.scale == 1 else rows * np.float32(self.scale)

    def _lower_bounds(self, block: slice, out: Float32Array | None = None) -> Float32Array:
        """Compute lower bounds of the true values of a block.

        The result has one row per vector and one column per query.
        """
        rows = self._base_rows(block)
        moved = np.empty((len(rows), self.base.shape[1] + 1), np.float32)
        np.subtract(self._scale_rows(rows), self.centre, out=moved[:, :-1])
        squares = np.einsum("ij,ij->i", moved[:, :-1], moved[:, :-1])
        if self.metric == "l2":
            own, last = squares, squares * np.float32(1 - 2 * self.rounding)
        else:
            # Normalising to length 1 adds some rounding to a cosine before the centre is subtracted.
            own = np.sqrt(squares) + np.float32(8 / (len(self.centre) + 16) if self.metric == "cosine" else 0)
            last = own
        self.own[block], moved[:, -1] = own, last
        low: Float32Array = np.matmul(moved, self.asked, out=out)
        if not (finite := np.isfinite(own)).all():
            low[~finite] = -np.inf  # too long for single precision: double precision decides
        return low

    def _first_bound(self) -> Float64Array:
        """Compute an initial bound per query from a sample of rows.

        The sample is spread over the whole base, so that the bound does not depend on the order of rows.
        """
        low = self._lower_bounds(self.sample)
        if len(low) < self.k:
            return np.full(low.shape[1], np.inf)
        low += self.own[self.sample][:, None] * self.spread.astype(np.float32)
        low[~np.isfinite(low)] = np.inf
        kth = np.partition(np.ascontiguousarray(low.T), self.k - 1, axis=1)[:, self.k - 1]
        bound: Float64Array = kth.astype(np.float64) + self.lift
        return bound

    def _tighten_bounds(self, collected: list[_CandidatePairs]) -> _CandidatePairs:
        """Tighten the bounds, and keep the pairs that may still be among the nearest.

        They are sorted by query and position.
        """
        pairs = (
            _CandidatePairs(*(np.concatenate(part) for part in zip(*collected, strict=True)))
            if len(collected) > 1
            else collected[0]
        )
        width = len(self.queries)
        if width > 1:
            pairs = pairs.select(np.argsort(pairs.rows.astype(np.uint16), kind="stable"))
        ends = np.cumsum(np.bincount(pairs.rows, minlength=width))
        start = 0
        for row, end in enumerate(ends.tolist()):
            if end - start >= self.k:
                kth_bound = float(np.partition(pairs.high[start:end], self.k - 1)[self.k - 1])
                self.bound[row] = min(self.bound[row], kth_bound)
            start = end
        pairs = pairs.select(pairs.low <= (self.bound + self.lift)[pairs.rows])
        if len(pairs.rows) > max(MAX_PENDING_PAIRS, 2 * width * self.k):
            ends = np.bincount(pairs.rows, minlength=width)
            if ends.min() >= self.k:
                pairs = pairs.select(np.sort(self._select_nearest(pairs)[0]))
        return pairs

    def _select_nearest(self, pairs: _CandidatePairs) -> tuple[Int64Array, Float64Array]:
        """Return the indices and distances of the `k` nearest pairs of each query."""
        positions = pairs.positions if self.allowed_rows is None else self.allowed_rows[pairs.positions]
        distances = pair_distances(self.base, self.queries, pairs.rows, positions, self.metric)
        if len(self.queries) == 1:
            best = np.argsort(distances, kind="stable")[: self.k]
        else:
            order = np.lexsort((distances, pairs.rows))
            starts = np.searchsorted(pairs.rows, np.arange(len(self.queries)))
            best = order[starts[:, None] + np.arange(self.k)].ravel()
        return best, distances[best]


def _row_dot_products(left: Float64Array, right: Float64Array) -> Float64Array:
    """Sum the products of each pair of rows, one dimension after the other."""
    terms = np.ascontiguousarray((left * right).T)
    if len(left) == 1:
        # NumPy sums a single column in another order than several columns.
        return np.asarray(np.repeat(terms, 2, axis=1).sum(axis=0)[:1])
    return np.asarray(terms.sum(axis=0))
