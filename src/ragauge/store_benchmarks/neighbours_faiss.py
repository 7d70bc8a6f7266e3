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
from ragauge.stores.nearest_neighbours import FLOAT32_EPSILON, MAX_SAFE_NORM, find_nearest, pair_distances, row_norms

Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]
NeighbourArrays = tuple[Int64Array, Float64Array]

CENTRE_SAMPLE_ROWS = 4096
DOUBLE_ERROR_BOUND = 1e-12
"""Upper bound of the relative rounding error of a distance in double precision."""


class NeighbourCandidates(NamedTuple):
    """Pairs of queries and rows that may be neighbours, sorted by query."""

    rows: Int64Array
    positions: Int64Array
    min_other_distance: Float64Array
    """Minimum distance of all other rows, one per query, in the metric of the search."""


def search_with_faiss(base: Float32Array, queries: Float32Array, k: int, metric: str) -> NeighbourArrays:
    """Return the `k` nearest rows of each query and their distances."""
    try:
        import faiss
    except ImportError:
        raise MissingExtra("exact neighbours by faiss", "faiss") from None
    double_queries, k = np.asarray(queries, np.float64), min(k, len(base))
    n_candidates = min(len(base), k + max(32, k // 4))
    centred_base, centred_queries, shift = _centre_vectors(base, double_queries, metric)
    index = faiss.IndexFlat(base.shape[1], faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)
    index.add(centred_base)
    values, positions = index.search(centred_queries, n_candidates)
    max_norm, query_norms = float(row_norms(centred_base).max()), row_norms(centred_queries)
    rounding = (base.shape[1] + 16) * FLOAT32_EPSILON
    worst = values[:, -1].astype(np.float64)
    if metric == "l2":
        excluded_bounds = np.sqrt(np.maximum(worst - rounding * (query_norms + max_norm) ** 2, 0))
    else:
        extra = 1.0 if metric == "cosine" else 0.0
        excluded_bounds = (
            shift
            - worst
            - rounding * query_norms * (max_norm + extra)
            - DOUBLE_ERROR_BOUND * (np.abs(shift) + np.abs(worst))
        )
    # Squares of very large or small lengths overflow or underflow in single precision, and faiss returns nothing for
    # NaN.
    is_reliable = np.isfinite(worst) & (positions.min(axis=1) >= 0) & (1 / MAX_SAFE_NORM < max_norm < MAX_SAFE_NORM)
    excluded_bounds = np.where(
        is_reliable & (query_norms < MAX_SAFE_NORM), np.inf if n_candidates == len(base) else excluded_bounds, -np.inf
    )
    rows = np.repeat(np.arange(len(double_queries)), n_candidates)
    return exact_from_candidates(
        base,
        double_queries,
        k,
        metric,
        NeighbourCandidates(rows, np.maximum(positions.ravel(), 0).astype(np.int64), excluded_bounds),
    )


def _centre_vectors(
    base: Float32Array, queries: Float64Array, metric: str
) -> tuple[Float32Array, Float32Array, Float64Array]:
    """Centre rows and queries on the mean of the rows to keep rounding errors small.

    The last array, minus a product of centred vectors, gives the distance for `cosine` and `ip`; one value per
    query.
    """
    stride = max(1, len(base) // CENTRE_SAMPLE_ROWS)
    if metric == "cosine":
        rows = np.asarray(base / _replace_zeros(row_norms(base)).astype(np.float32)[:, None], np.float32)
        prepared_queries = queries / _replace_zeros(row_norms(queries))[:, None]
    else:
        rows, prepared_queries = base, queries
    centre = rows[::stride].mean(axis=0, dtype=np.float64).astype(np.float32)
    shift = (1.0 if metric == "cosine" else 0.0) - prepared_queries @ centre.astype(np.float64)
    if metric == "l2":
        prepared_queries = prepared_queries - centre
    return np.ascontiguousarray(rows - centre), prepared_queries.astype(np.float32), shift


def _replace_zeros(sizes: Float64Array) -> Float64Array:
    return np.where(sizes > 0, sizes, 1)


def exact_from_candidates(
    base: Float32Array, queries: Float64Array, k: int, metric: str, candidates: NeighbourCandidates
) -> NeighbourArrays:
    """Return the nearest candidates, or search all rows where those are not certain.

    They are not certain if an excluded row may be as near as the k-th candidate.
    """
    order = np.lexsort((candidates.positions, candidates.rows))
    rows, positions = candidates.rows[order], candidates.positions[order]
    distances = pair_distances(base, queries, rows, positions, metric)
    order = np.lexsort((distances, rows))
    starts, ends = (np.searchsorted(rows, np.arange(len(queries)), side) for side in ("left", "right"))
    is_enough = ends - starts >= k
    best = order[starts[is_enough, None] + np.arange(k)]
    nearest_rows, nearest_distances = np.zeros((len(queries), k), np.int64), np.full((len(queries), k), np.inf)
    nearest_rows[is_enough], nearest_distances[is_enough] = positions[best], distances[best]
    # A tie is not enough: the row with the smaller index wins a tie, and it may have been excluded.
    unsure = np.flatnonzero(~(nearest_distances[:, -1] < candidates.min_other_distance))
    if len(unsure):
        nearest_rows[unsure], nearest_distances[unsure] = find_nearest(base, queries[unsure], k, metric)
    return nearest_rows, nearest_distances
