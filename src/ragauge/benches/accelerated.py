"""Exact neighbours where faiss does the bulk of the work.

It names more candidates than were asked for, by products in single precision. The candidates are compared in double
precision. A query's neighbours are exact if the last of them is nearer than anything that was left out could be; the
queries of which that cannot be said are searched again by `nearest`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import MissingExtra
from ragauge.systems.stores.nearest import EPSILON, MODERATE, lengths, nearest, pair_distances

Single = NDArray[np.float32]
Double = NDArray[np.float64]
Ints = NDArray[np.int64]
Found = tuple[Ints, Double]

SAMPLE = 4096
HAIR = 1e-12
"""More than what rounding in double precision does to a distance, as a share of what it is made of."""


class Candidates(NamedTuple):
    """Pairs that may be among the nearest, by query, and for each query how near the rest may be at least."""

    rows: Ints
    positions: Ints
    rest: Double
    """In the metric's own distance."""


def by_faiss(base: Single, queries: Single, k: int, metric: str) -> Found:
    """The `k` nearest rows of each query and their distances."""
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
    # Single precision holds no squares of such lengths; of what is not a number faiss says nothing at all.
    known = np.isfinite(worst) & (positions.min(axis=1) >= 0) & (1 / MODERATE < longest < MODERATE)
    rest = np.where(known & (own < MODERATE), np.inf if more == len(base) else rest, -np.inf)
    rows = np.repeat(np.arange(len(asked)), more)
    return decided(base, asked, k, metric, Candidates(rows, np.maximum(positions.ravel(), 0).astype(np.int64), rest))


def _moved(base: Single, queries: Double, metric: str) -> tuple[Single, Single, Double]:
    """Rows and queries around the centre of the rows, where rounding is small; and what that adds to a distance."""
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
    """The nearest of the candidates, where nothing else can be as near; otherwise of all rows."""
    order = np.lexsort((found.positions, found.rows))
    rows, positions = found.rows[order], found.positions[order]
    distances = pair_distances(base, queries, rows, positions, metric)
    order = np.lexsort((distances, rows))
    starts, ends = (np.searchsorted(rows, np.arange(len(queries)), side) for side in ("left", "right"))
    enough = ends - starts >= k
    best = order[starts[enough, None] + np.arange(k)]
    near, far = np.zeros((len(queries), k), np.int64), np.full((len(queries), k), np.inf)
    near[enough], far[enough] = positions[best], distances[best]
    # Equally near is not enough: of two such rows the first counts, and it may have been left out.
    unsure = np.flatnonzero(~(far[:, -1] < found.rest))
    if len(unsure):
        near[unsure], far[unsure] = nearest(base, queries[unsure], k, metric)
    return near, far
