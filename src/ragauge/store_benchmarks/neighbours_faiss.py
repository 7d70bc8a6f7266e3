"""Exact neighbours with faiss.

faiss returns more candidates than requested, by products in single precision. The candidates are compared in double
precision. The neighbours of a query are exact if the last of them is nearer than any excluded row can be. All other
queries are searched again by `find_nearest`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.core.errors import MissingExtra
from ragauge.stores.nearest_neighbours import EPSILON, MODERATE, lengths, nearest, pair_distances

Single = NDArray[np.float32]
Double = NDArray[np.float64]
Ints = NDArray[np.int64]
Found = tuple[Ints, Double]

SAMPLE = 4096
HAIR = 1e-12
"""Upper bound of the relative rounding error of a distance in double precision."""


class Candidates(NamedTuple):
    """Pairs of queries and rows that may be neighbours, sorted by query."""

    rows: Ints
    positions: Ints
    rest: Double
    """Minimum distance of all other rows, one per query, in the metric of the search."""


def by_faiss(base: Single, queries: Single, k: int, metric: str) -> Found:
    """Return the `k` nearest rows of each query and their distances."""
    try:
        import faiss
    except ImportError:
        raise MissingExtra("exact neighbours by faiss", "faiss") from None
    asked, k = np.asarray(queries, np.float64), min(k, len(base))
    more = min(len(base), k + max(32, k // 4))
    moved, ours, shift = _moved(base, asked, metric)
    index = faiss.IndexFlat(base.shape[1], faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
    index.add(moved)
    values, positions = index.search(ours, more)
    longest, own = float(lengths(moved).max()), lengths(ours)
    rounding = (base.shape[1] + 16) * EPSILON
    worst = values[:, -1].astype(np.float64)
    if metric == "l2":
        rest = np.sqrt(np.maximum(worst - rounding * (own + longest) ** 2, 0))
    else:
        extra = 1.0 if metric == "cosine" else 0.0
        rest = shift - worst - rounding * own * (longest + extra) - HAIR * (np.abs(shift) + np.abs(worst))
    # Squares of very large or small lengths overflow or underflow in single precision, and faiss returns nothing for
    # NaN.
    known = np.isfinite(worst) & (positions.min(axis=1) >= 0) & (1 / MODERATE < longest < MODERATE)
    rest = np.where(known & (own < MODERATE), np.inf if more == len(base) else rest, -np.inf)
    rows = np.repeat(np.arange(len(asked)), more)
    return decided(base, asked, k, metric, Candidates(rows, np.maximum(positions.ravel(), 0).astype(np.int64), rest))


def _moved(base: Single, queries: Double, metric: str) -> tuple[Single, Single, Double]:
    """Centre rows and queries on the mean of the rows to keep rounding errors small.

    The last array, minus a product of centred vectors, gives the distance for `cosine` and `ip`; one value per
    query.
    """
    stride = max(1, len(base) // SAMPLE)
    if metric == "cosine":
        rows = np.asarray(base / _positive(lengths(base)).astype(np.float32)[:, None], np.float32)
        ours = queries / _positive(lengths(queries))[:, None]
    else:
        rows, ours = base, queries
    centre = rows[::stride].mean(axis=0, dtype=np.float64).astype(np.float32)
    shift = (1.0 if metric == "cosine" else 0.0) - ours @ centre.astype(np.float64)
    if metric == "l2":
        ours = ours - centre
    return np.ascontiguousarray(rows - centre), ours.astype(np.float32), shift


def _positive(sizes: Double) -> Double:
    return np.where(sizes > 0, sizes, 1)


def decided(base: Single, queries: Double, k: int, metric: str, found: Candidates) -> Found:
    """Return the nearest candidates, or search all rows where those are not certain.

    They are not certain if an excluded row may be as near as the k-th candidate.
    """
    order = np.lexsort((found.positions, found.rows))
    rows, positions = found.rows[order], found.positions[order]
    distances = pair_distances(base, queries, rows, positions, metric)
    order = np.lexsort((distances, rows))
    starts, ends = (np.searchsorted(rows, np.arange(len(queries)), side) for side in ("left", "right"))
    enough = ends - starts >= k
    best = order[starts[enough, None] + np.arange(k)]
    near, far = np.zeros((len(queries), k), np.int64), np.full((len(queries), k), np.inf)
    near[enough], far[enough] = positions[best], distances[best]
    # A tie is not enough: the row with the smaller index wins a tie, and it may have been excluded.
    unsure = np.flatnonzero(~(far[:, -1] < found.rest))
    if len(unsure):
        near[unsure], far[unsure] = nearest(base, queries[unsure], k, metric)
    return near, far
