"""Exact neighbours that stores are measured against: computed once, cached by content, and verified."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.core.errors import BadInput
from ragauge.core.records import Floats, Ints
from ragauge.core.settings import check_choice, check_int
from ragauge.output.numbers import join_with_and
from ragauge.store_benchmarks.exact_neighbours import (
    NEIGHBOUR_BACKENDS,
    NeighbourSearchResult,
    find_neighbours,
    find_neighbours_on_executor,
)
from ragauge.store_benchmarks.results import ExactNeighbours, VectorSet
from ragauge.store_benchmarks.results_folder import read_raw_result, write_raw_result
from ragauge.store_benchmarks.vector_sets import check_finite
from ragauge.stores.bookkeeping import METRICS
from ragauge.stores.nearest_neighbours import find_nearest, pair_distances

MIN_GPU_MULTIPLICATIONS = 1e12
"""Number of multiplications from which a GPU is worth starting; NumPy takes half a minute for them."""
MAX_FULL_CHECK_MULTIPLICATIONS = 4e11
"""Maximum number of multiplications for checking the published neighbours of all queries; above it, SAMPLED_QUERIES."""
SAMPLED_QUERIES = 256
BACKEND_COMBINATIONS = frozenset(
    join_with_and(sorted(backends)) for size in (1, 2, 3) for backends in combinations(NEIGHBOUR_BACKENDS[1:], size)
)
"""Values of `ExactNeighbours.by` for computed neighbours."""
CACHE_RELATIVE_TOLERANCE = 1e-9
"""Maximum relative difference of cached distances, which another machine may have computed."""
PUBLISHED_RELATIVE_TOLERANCE = 1e-5
"""Maximum relative error of the distances of published neighbours, many of which come from single precision."""


def find_exact_neighbours(
    data: VectorSet,
    k: int,
    *,
    by: str = "auto",
    cache: Path | None = None,
    executor: Executor | None = None,
    progress: ProgressCallback = no_progress,
) -> ExactNeighbours:
    """Return the `k` exact neighbours of every query.

    `by` selects the backend: `numpy`, `faiss` or `torch`; all give the same result. `cache` is a folder in which the
    neighbours are cached by the content of the vectors. Published neighbours that came with the data are checked for
    every query, or for a sample if that would take long (see `ExactNeighbours.by`). Raises BadInput if one is wrong.
    Each worker of an `executor` gets a part of the vectors, or of the queries if they are larger; the result is
    identical, bit for bit. If `torch` finds no GPU, or the GPU fails, NumPy is used; `by` and `notes` of the result say
    so. `progress` receives the number of queries done.

    >>> base = np.array([[0, 0], [3, 4], [6, 8]], np.float32)
    >>> found = find_exact_neighbours(VectorSet("three", base, base[:1], "l2"), 2)
    >>> found.neighbours.tolist(), found.distances.tolist(), found.by
    ([[0, 1]], [[0.0, 5.0]], 'numpy')
    """
    k = min(check_int("k", k), len(data.base))
    check_choice("backend", by, NEIGHBOUR_BACKENDS)
    check_choice("metric", data.metric, METRICS)
    if not len(data.base) or not len(data.queries):
        raise BadInput(f"{data.name} has no {'queries' if len(data.base) else 'vectors'}")
    check_finite(data)
    published = data.neighbours
    if published is not None and len(published) != len(data.queries):
        raise BadInput(
            f"{data.name}: expected published neighbours of {len(data.queries)} queries, got {len(published)}"
        )
    if published is not None and published.shape[1] < k:
        published = None
    if published is not None:
        published = published[:, :k]
        _check_published_rows(data, published)
    neighbours = None if cache is None else _read_cached_neighbours(cache, data, k)
    if published is not None and neighbours is None and _count_multiplications(data) > MAX_FULL_CHECK_MULTIPLICATIONS:
        return _verify_by_sample(data, published, executor)
    if neighbours is None:
        neighbours = _compute_exact_neighbours(data, k, by, executor, progress)
        if cache is not None:
            _write_cached_neighbours(cache, data, neighbours)
    if published is None:
        return neighbours
    _check_published_distances(data, np.arange(len(published)), published, neighbours.distances)
    return replace(neighbours, by="given")


def neighbour_cache_path(cache: Path, data: VectorSet, k: int) -> Path:
    """Return the cache file of the neighbours of these vectors, named by their hash."""
    return cache / "truth" / f"{data.hash[:40]}-{data.metric}-{k}.npz"


def _count_multiplications(data: VectorSet) -> float:
    return float(data.base.size) * len(data.queries)


def _compute_exact_neighbours(
    data: VectorSet, k: int, requested_backend: str, executor: Executor | None, progress: ProgressCallback
) -> ExactNeighbours:
    backend = requested_backend
    if requested_backend == "auto":
        backend = "torch" if _count_multiplications(data) > MIN_GPU_MULTIPLICATIONS else "numpy"
    neighbours = _search_neighbours(
        data, np.ascontiguousarray(data.queries, np.float32), k, backend, executor, progress
    )
    notes = [neighbours.note] if neighbours.note else []
    return ExactNeighbours(
        neighbours.neighbours, neighbours.distances, data.metric, join_with_and(sorted(neighbours.backends)), notes
    )


def _search_neighbours(
    data: VectorSet,
    queries: NDArray[np.float32],
    k: int,
    backend: str,
    executor: Executor | None,
    progress: ProgressCallback,
) -> NeighbourSearchResult:
    if executor is None:
        base = np.ascontiguousarray(data.base, np.float32)
        neighbours = find_neighbours(base, queries, k, data.metric, backend, progress)
    else:
        neighbours = find_neighbours_on_executor(executor, data.base, queries, k, data.metric, backend, progress)
    progress(Progress("exact neighbours", len(queries), len(queries)))
    return neighbours


def _read_cached_neighbours(cache: Path, data: VectorSet, k: int) -> ExactNeighbours | None:
    """Read cached neighbours; None if there are too few per query or they are invalid."""
    path = neighbour_cache_path(cache, data, k)
    files = []
    for file in path.parent.glob(f"{path.name.rpartition('-')[0]}-*.npz"):
        ending = file.stem.rpartition("-")[2]
        if ending.isdigit() and int(ending) >= k:
            files.append((int(ending), file))
    for depth, file in sorted(files):
        # A corrupt file counts as missing and is written again.
        _, arrays = read_raw_result(file) or ({}, {})
        if not arrays.keys() >= {"neighbours", "distances", "by"}:
            continue
        neighbours, distances, backends = arrays["neighbours"], arrays["distances"], str(arrays["by"])
        shape, is_known = (len(data.queries), depth), backends in BACKEND_COMBINATIONS
        if neighbours.shape == distances.shape == shape and neighbours.dtype == np.int64 and is_known:
            nearest_rows, nearest_distances = neighbours[:, :k].copy(), distances[:, :k].copy()
            if _is_valid_cache(data, nearest_rows, nearest_distances):
                return ExactNeighbours(nearest_rows, nearest_distances, data.metric, backends)
    return None


def _is_valid_cache(data: VectorSet, neighbours: Ints, distances: Floats) -> bool:
    """Return whether cached rows are valid, unique, sorted, and have those distances.

    The content of a file may differ from what its name says.
    """
    if (
        _is_out_of_range(data, neighbours).any()
        or _has_duplicate_rows(neighbours).any()
        or not (np.diff(distances, axis=1) >= 0).all()
    ):
        return False
    computed = _neighbour_distances(data, np.arange(len(neighbours)), neighbours)
    room = CACHE_RELATIVE_TOLERANCE * np.maximum(np.abs(computed), np.abs(computed).max(axis=1, keepdims=True))
    return bool((np.abs(computed - distances) <= room).all())


def _write_cached_neighbours(cache: Path, data: VectorSet, neighbours: ExactNeighbours) -> None:
    arrays = {"neighbours": neighbours.neighbours, "distances": neighbours.distances, "by": np.array(neighbours.by)}
    with suppress(BadInput):  # without a writable cache they are computed again
        write_raw_result(neighbour_cache_path(cache, data, neighbours.neighbours.shape[1]), {}, arrays)


def _verify_by_sample(data: VectorSet, published: Ints, executor: Executor | None) -> ExactNeighbours:
    """Check a sample of published neighbours, and return all of them by distance."""
    sample = np.unique(np.linspace(0, len(published) - 1, SAMPLED_QUERIES).astype(np.int64))
    queries = np.ascontiguousarray(data.queries[sample], np.float32)
    exact = _search_neighbours(data, queries, published.shape[1], "numpy", executor, no_progress)
    _check_published_distances(data, sample, published[sample], exact.distances)
    distances = _neighbour_distances(data, np.arange(len(published)), published)
    order = np.lexsort((published, distances), axis=1)
    sorted_rows, sorted_distances = np.take_along_axis(published, order, 1), np.take_along_axis(distances, order, 1)
    label = (
        "given" if len(sample) == len(published) else f"given ({len(sample):,} of {len(published):,} queries checked)"
    )
    return ExactNeighbours(sorted_rows.astype(np.int64), sorted_distances, data.metric, label)


def _is_out_of_range(data: VectorSet, neighbours: Ints) -> NDArray[np.bool_]:
    return np.asarray((neighbours < 0) | (neighbours >= len(data.base)))


def _has_duplicate_rows(neighbours: Ints) -> NDArray[np.bool_]:
    """Return which queries have the same row more than once."""
    return np.asarray((np.diff(np.sort(neighbours, axis=1), axis=1) == 0).any(axis=1))


def _check_published_rows(data: VectorSet, published: Ints) -> None:
    """Check that published neighbours are rows of the base, without duplicates."""
    if (wrong := _is_out_of_range(data, published)).any():
        row, column = np.argwhere(wrong)[0]
        raise BadInput(
            f"{data.name}: the published neighbours of query {row} contain row {published[row, column]}, "
            f"and the base has {len(data.base):,} rows",
            hint="provide neighbours within this base, or remove them to compute them",
        )
    if (duplicate := _has_duplicate_rows(published)).any():
        raise BadInput(
            f"{data.name}: the published neighbours of query {int(duplicate.argmax())} contain a row more than once "
            f"(so do those of {int(duplicate.sum())} of {len(published)} queries)",
            hint="remove them to compute them",
        )


def _neighbour_distances(data: VectorSet, queries: Ints, neighbours: Ints) -> Floats:
    """Compute the actual distances of given neighbours."""
    pairs = pair_distances(
        data.base,
        np.asarray(data.queries, np.float64),
        np.repeat(queries, neighbours.shape[1]),
        neighbours.ravel(),
        data.metric,
    )
    return pairs.reshape(neighbours.shape)


def _check_published_distances(data: VectorSet, queries: Ints, published: Ints, exact: Floats) -> None:
    """Check that no published neighbour is farther than the exact one of its rank."""
    distances = np.sort(_neighbour_distances(data, queries, published), axis=1)
    # Rounding is relative to the terms of a distance, which may be larger than the distance itself.
    room = PUBLISHED_RELATIVE_TOLERANCE * np.maximum(np.abs(exact), np.abs(exact).max(axis=1, keepdims=True))
    wrong = np.flatnonzero((distances > exact + room).any(axis=1))
    if not len(wrong):
        return
    row = int(wrong[0])
    rank = int((distances[row] > exact[row] + room[row]).argmax())
    problem = (
        f"are not the nearest: that of rank {rank + 1} has distance {distances[row, rank]:.6g}, the exact one "
        f"{exact[row, rank]:.6g}"
    )
    fitting_metrics = [
        metric
        for metric in METRICS
        if metric != data.metric and _fits_metric(data, metric, int(queries[row]), published[row])
    ]
    hint = (
        f"they are the nearest by {fitting_metrics[0]}; use that metric"
        if fitting_metrics
        else "remove them to compute them"
    )
    affected = f"{len(wrong)} of {len(queries)} {'checked ' if len(queries) < len(data.queries) else ''}queries"
    raise BadInput(
        f"{data.name}: the published neighbours of query {queries[row]} {problem} (wrong for {affected})", hint=hint
    )


def _fits_metric(data: VectorSet, metric: str, query: int, neighbours: Ints) -> bool:
    """Return whether the neighbours of a query are the nearest by another metric."""
    nearest, _ = find_nearest(np.ascontiguousarray(data.base), data.queries[query : query + 1], len(neighbours), metric)
    return len(np.intersect1d(nearest[0], neighbours)) >= 0.99 * len(neighbours)
