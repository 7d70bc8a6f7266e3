"""Measures of vector stores: positions and raw nanoseconds to quality, latency, load, updates and filters.

Distances are always recomputed from the vectors in double precision; the distances that a store reports are only
checked against them. Positions are rows of the base; -1 is a missing result, -2 an id that was never added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.observation import (
    MAX_DISPLACED_SHARE,
    MAX_STOLEN_SHARE,
    MIN_STOLEN_TICKS,
    RawArrays,
    _displaced_share,
)
from ragauge.core.errors import MissingEvidence
from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Latency
from ragauge.measures.binary import within_epsilon
from ragauge.store_benchmarks.neighbour_measures import are_similarities, compute_ranking_measures
from ragauge.store_benchmarks.results import (
    RECALL_MEASURE,
    ExactNeighbours,
    FilteredSearch,
    LoadResult,
    Matrix,
    MixedWorkload,
    OperationLatency,
    VectorSet,
)

Mask = NDArray[np.bool_]

TIE_TOLERANCE = 1e-6
"""Relative tolerance within which a result counts as near as the k-th exact neighbour (RECALL_MEASURE)."""
ANN_BENCHMARKS_TOLERANCE = 0.001
"""Relative tolerance of ANN-benchmarks (`recall(of=eps)`); if distances differ little, it accepts wrong results."""
PAIRS_PER_BATCH = 4_096
COMPARISONS_PER_BATCH = 1 << 18
DISTANCE_TOLERANCE = 0.01
"""Maximum relative error of a reported distance; 16-bit floats stay below it."""
ORDER_TOLERANCE = 1e-5
"""Maximum disorder of two reported distances relative to the mean distance, as from single precision."""
FLOAT32_TOLERANCE = 1e-6
"""Maximum error of single precision relative to the terms of a distance."""
MAX_SEND_DELAY_NS = 1_000_000


def compute_distances(base: Matrix, queries: Matrix, positions: Ints, metric: str) -> Floats:
    """Compute the distance of each query to each of its positions in double precision.

    The distance is infinite if there is no vector.

    >>> base = np.array([[0, 0], [3, 4]], np.float32)
    >>> compute_distances(base, base[:1], np.array([[1, 0, -1]]), "l2").tolist()
    [[5.0, 0.0, inf]]
    """
    distances = np.full(positions.shape, np.inf)
    rows, columns = np.nonzero(positions >= 0)
    for start in range(0, len(rows), PAIRS_PER_BATCH):
        batch = slice(start, start + PAIRS_PER_BATCH)
        query_vectors = queries[rows[batch]].astype(np.float64)
        base_vectors = base[positions[rows[batch], columns[batch]]].astype(np.float64)
        if metric == "l2":
            query_vectors -= base_vectors
            batch_distances = np.sqrt(_row_products(query_vectors, query_vectors))
        else:
            batch_distances = -_row_products(query_vectors, base_vectors)
        if metric == "cosine":
            sizes = np.sqrt(_row_products(query_vectors, query_vectors)) * np.sqrt(
                _row_products(base_vectors, base_vectors)
            )
            batch_distances = np.clip(
                1 + np.divide(batch_distances, sizes, out=np.zeros(len(batch_distances)), where=sizes > 0), 0, 2
            )
        distances[rows[batch], columns[batch]] = batch_distances
    return distances


def compute_quality(truth: ExactNeighbours, positions: Ints, data: VectorSet, k: int) -> dict[str, float]:
    """Compute mean scores over all queries, by canonical name.

    `recall(of=eps,eps=1e-06)@k` counts results that are no farther than the k-th exact neighbour within a millionth, so
    that ties count. `recall(of=eps)@k` is the definition of ANN-benchmarks, with a tolerance of a thousandth.
    `recall(of=k)@k` is the share of the k exact neighbours that were found. In `recall@k`, `precision@k`,
    `precision(of=retrieved)@k`, `mrr@k`, nDCG, MAP, hit rate and F1 all exact neighbours are relevant, as in RAGdbEval:
    with 100 of them a perfect recall@10 is 0.10. A vector that is returned more than once counts once.
    """
    true = _exact_neighbour_rows(truth, k, len(data.base))
    unique_positions = np.where(_first_occurrences(positions[:, :k]), positions[:, :k], -1)
    relevant, nearest = _mark_neighbours(unique_positions, true), _mark_neighbours(unique_positions, true[:, :k])
    good = relevant.sum(axis=1)
    total = (true >= 0).sum(axis=1)
    first = np.where(relevant.any(axis=1), 1 / (1 + relevant.argmax(axis=1)), 0.0)
    bounds = _kth_distances(true, data, k)
    distances = compute_distances(data.base, data.queries[: len(unique_positions)], unique_positions, data.metric)
    columns = {
        f"{RECALL_MEASURE}@{k}": _count_within(distances, bounds, k) / k,
        f"recall(of=eps)@{k}": _count_within(distances, bounds, k, ANN_BENCHMARKS_TOLERANCE) / k,
        f"recall(of=k)@{k}": nearest.sum(axis=1) / k,
        f"recall@{k}": np.divide(good, total, out=np.zeros(len(good)), where=total > 0),
        f"precision@{k}": good / k,
        f"precision(of=retrieved)@{k}": good / np.maximum((positions[:, :k] != -1).sum(axis=1), 1),
        f"mrr@{k}": first,
        **compute_ranking_measures(relevant, total, (positions[:, :k] != -1).sum(axis=1), k),
    }
    return {name: float(values.mean()) if len(values) else math.nan for name, values in columns.items()}


def distance_errors(positions: Ints, claimed: NDArray[Any], data: VectorSet) -> list[str]:
    """Describe errors in results and reported distances, one sentence per kind.

    The list is empty if there are none. Recall is not considered.
    """
    rows = len(positions)
    is_result = positions >= 0
    errors = []
    if unknown := int((positions < -1).sum()):
        errors.append(f"{unknown} results are ids that were never added")
    twice = int((is_result & ~_first_occurrences(positions)).any(axis=1).sum())
    if twice:
        errors.append(f"{twice} of {rows} queries returned a vector more than once")
    true = compute_distances(data.base, data.queries[:rows], positions, data.metric)
    claims = np.asarray(claimed, np.float64)[:, : positions.shape[1]]
    # Relative errors are meaningless near 0: cosines in single precision are off by about 1e-7 at any distance.
    scale = np.abs(true[is_result]).mean() if is_result.any() else 0.0
    rounding = _float32_errors(data.base, data.queries[:rows], positions, true, data.metric)
    if unsaid := int((is_result & np.isnan(claims)).sum()):
        errors.append(f"{unsaid / int(is_result.sum()):.0%} of the results have no distance")
    with np.errstate(invalid="ignore"):
        is_wrong = is_result & (
            np.abs(claims - true) > np.maximum(DISTANCE_TOLERANCE * np.maximum(np.abs(true), scale), rounding)
        )
        rises = np.diff(np.where(positions == -1, np.inf, claims), axis=1)
        fallen = rises < -np.maximum(ORDER_TOLERANCE * scale, rounding[:, 1:])
    if are_similarities(claims, true, is_result & np.isfinite(claims)):
        errors.append(
            "the distances from `search` decrease as the true distances increase; did you return similarities? "
            "Return distances, nearest first"
        )
        return errors
    if wrong := int(is_wrong.sum()):
        median_claim, median_true = float(np.median(claims[is_wrong])), float(np.median(true[is_wrong]))
        much = abs(median_true) > float(np.median(rounding[is_wrong]))
        typical = f"{median_claim:.3g} instead of 0"
        if much:
            ratio = median_claim / median_true
            with np.errstate(divide="ignore"):
                error = float(np.median(np.abs(claims[is_wrong] / true[is_wrong] - 1)))
            typical = f"off by {100 * error:.2g}%" if abs(ratio - 1) < 0.1 else f"{ratio:.3g} times the true ones"
        if np.allclose(claims[is_wrong], true[is_wrong] ** 2, rtol=DISTANCE_TOLERANCE):
            typical = "their squares"
        errors.append(f"{wrong / int(is_result.sum()):.0%} of the reported distances are wrong (typically {typical})")
    if disorder := int(fallen.any(axis=1).sum()):
        errors.append(f"{disorder} of {rows} results are not in the order of the reported distances")
    return errors


def summarise_search_latency(nanoseconds: NDArray[Any]) -> Latency:
    """Summarise raw times of all repeats together; percentiles are never averaged."""
    return Latency.of(np.asarray(nanoseconds, np.float64).ravel() / 1e6)


def qps_spread(nanoseconds: NDArray[Any]) -> float:
    """Return the range of QPS over the repeats as a share of the median.

    NaN for a single repeat.

    >>> qps_spread(np.array([[1e6, 1e6], [2e6, 2e6]]))
    0.6666666666666666
    """
    if len(nanoseconds) < 2:
        return math.nan
    rates = 1e9 / np.asarray(nanoseconds, np.float64).mean(axis=1)
    return float((rates.max() - rates.min()) / np.median(rates))


def summarise_load(raw: RawArrays, note: str = "") -> LoadResult:
    """Summarise a load test.

    A dropped query counts with its waiting time until the end of the test.
    """
    due, began, ended = (np.asarray(raw[name], np.int64) for name in ("due_ns", "began_ns", "ended_ns"))
    sent = began >= 0
    rate = float(raw["rate"])
    until = max(int(raw["stopped_ns"]), int(ended.max(initial=0)))
    wall = float(ended.max() - began[sent].min()) / 1e9 if sent.any() else math.nan
    if not math.isnan(rate):
        # The last scheduled query is due one interval before the end, so this idle time is part of the test.
        wall = max(len(due) / rate, float(ended.max(initial=0)) / 1e9)
    waited = np.where(sent, ended - due, until - due)
    late = np.where(sent, began, until) - due > MAX_SEND_DELAY_NS
    notes = [note] if note else ["each client had a copy of the store"] if int(raw["copies"]) else []
    if given_up := int((~sent).sum()):
        notes.append(f"{given_up} of {len(sent)} queries were dropped before they could be sent")
    if empty := int(raw["empty"]):
        notes.append(f"{empty} results were empty")
    seconds, cpu, switches, _, stolen, ticks = np.asarray(raw["readings"], np.float64).reshape(-1, 6).sum(axis=0)
    asleep = int(raw["server"]) or not math.isnan(rate) or int(raw["clients"]) > int(raw["cores"])
    doubts = []
    if not asleep and (displaced := _displaced_share(seconds, cpu, switches)) > MAX_DISPLACED_SHARE:
        doubts.append(f"other processes had the CPU for {displaced:.0%} of the time")
    if ticks > 0 and stolen >= MIN_STOLEN_TICKS and stolen / ticks > MAX_STOLEN_SHARE:
        doubts.append(f"the host took {stolen / ticks:.0%} of the CPU time")
    return LoadResult(
        int(raw["clients"]),
        None if math.isnan(rate) else rate,
        int(sent.sum()) / wall if wall > 0 else math.nan,
        summarise_search_latency(waited),
        summarise_search_latency((ended - began)[sent]),
        float(late.mean()) if len(late) else 0.0,
        "; ".join(notes),
        doubts=doubts,
    )


def summarise_updates(operation: str, raw: RawArrays) -> OperationLatency:
    """Summarise operations on one vector at a time."""
    outcomes = np.asarray(raw["seen"], np.float64)
    outcomes = outcomes[~np.isnan(outcomes)]
    visible = float(outcomes.mean()) if len(outcomes) else math.nan
    return OperationLatency(
        operation, summarise_search_latency(raw["ns"]), summarise_search_latency(raw["search_ns"]), visible
    )


def summarise_filtered_search(raw: RawArrays, mask: Mask, data: VectorSet, k: int, neighbours: Ints) -> FilteredSearch:
    """Summarise searches with a filter.

    `neighbours` are the exact neighbours among the matching rows, nearest first. If fewer than k rows match, all of
    them are expected.
    """
    positions, times = np.asarray(raw["positions"], np.int64)[:, :k], raw["nanoseconds"]
    matching = int(mask.sum())
    n_expected = min(k, matching)
    is_result = positions >= 0
    good = is_result & mask[np.where(is_result, positions, 0)]
    correct_positions = np.where(good & _first_occurrences(positions), positions, -1)
    distances = compute_distances(data.base, data.queries[: len(correct_positions)], correct_positions, data.metric)
    n_within = _count_within(distances, _kth_distances(neighbours, data, n_expected), n_expected)
    return FilteredSearch(
        selectivity=matching / len(mask),
        matching=matching,
        returned=float(((correct_positions >= 0).sum(axis=1) / n_expected).mean())
        if len(correct_positions)
        else math.nan,
        recall=float((n_within / n_expected).mean()) if len(correct_positions) else math.nan,
        wrong=int((positions != -1).sum() - good.sum()),
        latency=summarise_search_latency(times),
        repeats=len(times),
        qps_spread=qps_spread(times),
    )


def summarise_mixed_workload(raw: RawArrays, truth: ExactNeighbours, data: VectorSet, k: int) -> MixedWorkload:
    """Summarise searches during inserts.

    A result counts if it is as near as the k-th exact neighbour among the base and the vectors inserted when the search
    began. A vector inserted during the search counts too if it is that near. One whose insert had not begun does not
    count.
    """
    query, positions = np.asarray(raw["query"], np.int64), np.asarray(raw["positions"], np.int64)[:, :k]
    before, after = np.asarray(raw["before"], np.int64), np.asarray(raw["after"], np.int64)
    fresh = np.asarray(raw["newcomers"], np.float32)
    n = len(data.base)
    everything = np.concatenate([data.base, fresh])
    near_base = compute_distances(data.base, data.queries, _exact_neighbour_rows(truth, k, n)[:, :k], data.metric)
    # There are few new vectors, so all of their distances are computed once per query.
    distinct_queries, query_indices = np.unique(query, return_inverse=True)
    fresh_rows = np.broadcast_to(np.arange(len(fresh)), (len(distinct_queries), len(fresh)))
    near_fresh = compute_distances(fresh, data.queries[distinct_queries], fresh_rows, data.metric)
    bounds = np.empty(len(query))
    for index, row in enumerate(query.tolist()):
        present_distances = np.concatenate([near_base[row], near_fresh[query_indices[index], : before[index]]])
        bounds[index] = (
            np.partition(present_distances, k - 1)[k - 1] if len(present_distances) >= k else present_distances.max()
        )
    is_inserted = positions < n + after[:, None]
    valid_positions = np.where(is_inserted & _first_occurrences(positions), positions, -1)
    distances = compute_distances(everything, data.queries[query], valid_positions, data.metric)
    n_within = _count_within(distances, bounds, k)
    seconds = float(raw["insert_seconds"])
    inserted = int(raw["inserted"])
    return MixedWorkload(
        inserted=inserted,
        inserts_per_second=inserted / seconds if seconds > 0 else math.nan,
        together=bool(raw["together"]),
        recall=float((n_within / k).mean()) if len(n_within) else math.nan,
        latency=summarise_search_latency(raw["ended_ns"] - raw["due_ns"]),
        alone=summarise_search_latency(raw["alone_ended_ns"] - raw["alone_due_ns"]),
    )


def _exact_neighbour_rows(truth: ExactNeighbours, k: int, n: int) -> Ints:
    """Return the exact neighbours; raise MissingEvidence if there are fewer than k."""
    if truth.neighbours.shape[1] < min(k, n):
        raise MissingEvidence(
            f"{k} neighbours requested, but only {truth.neighbours.shape[1]} exact neighbours per query are known",
            hint="use a smaller k, or compute the exact neighbours",
        )
    return np.asarray(truth.neighbours, np.int64)


def _kth_distances(true: Ints, data: VectorSet, k: int) -> Floats:
    """Return the distance of the k-th exact neighbour of each query.

    If there are fewer, it is the distance of the last; -inf if there is none.
    """
    last = np.maximum((true[:, :k] >= 0).sum(axis=1) - 1, 0)
    distances = compute_distances(
        data.base, data.queries[: len(true)], np.take_along_axis(true, last[:, None], axis=1), data.metric
    )
    return np.asarray(np.where(np.isfinite(distances[:, 0]), distances[:, 0], -np.inf))


def _count_within(distances: Floats, bounds: Floats, k: int, eps: float = TIE_TOLERANCE) -> Ints:
    """Count the distances per row that are within the bound, at most k."""
    return np.asarray(np.minimum((distances <= within_epsilon(bounds, eps)[:, None]).sum(axis=1), k))


def _float32_errors(base: Matrix, queries: Matrix, positions: Ints, true: Floats, metric: str) -> Floats:
    """Return the maximum error of correct distances in single precision.

    It is proportional to the terms of the sum: 1 for cosines, the product of both lengths for inner products, their sum
    for Euclidean distances. The latter may be the root of a small difference of large squares, so their error is much
    larger near 0. The error is 0 if there is no vector.
    """
    is_result = positions >= 0
    if metric == "cosine":
        return np.where(is_result, FLOAT32_TOLERANCE, 0.0)
    rows, columns = np.nonzero(is_result)
    query_lengths, base_lengths = _vector_lengths(queries)[rows], np.empty(len(rows))
    for start in range(0, len(rows), PAIRS_PER_BATCH):
        batch = slice(start, start + PAIRS_PER_BATCH)
        base_lengths[batch] = _vector_lengths(base[positions[rows[batch], columns[batch]]])
    tolerances = np.zeros(positions.shape)
    if metric == "ip":
        tolerances[is_result] = FLOAT32_TOLERANCE * query_lengths * base_lengths
    else:
        size = query_lengths + base_lengths
        errors = np.maximum(true[is_result], math.sqrt(FLOAT32_TOLERANCE) * size)
        tolerances[is_result] = (
            FLOAT32_TOLERANCE * size * np.divide(size, errors, out=np.zeros(len(size)), where=errors > 0)
        )
    return tolerances


def _vector_lengths(vectors: Matrix) -> Floats:
    wide = vectors.astype(np.float64)
    return np.sqrt(_row_products(wide, wide))


def _first_occurrences(positions: Ints) -> Mask:
    """Mark the first occurrence of each position in its row.

    >>> _first_occurrences(np.array([[4, 7, 4]])).tolist()
    [[True, True, False]]
    """
    order = np.argsort(positions, axis=1, kind="stable")
    ranked = np.take_along_axis(positions, order, axis=1)
    is_repeat = np.zeros(positions.shape, np.bool_)
    is_repeat[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    first = np.empty(positions.shape, np.bool_)
    np.put_along_axis(first, order, ~is_repeat, axis=1)
    return first


def _mark_neighbours(positions: Ints, true: Ints) -> Mask:
    """Mark the positions that are among the exact neighbours of their row."""
    neighbours = np.zeros(positions.shape, np.bool_)
    rows = max(1, COMPARISONS_PER_BATCH // max(1, positions.shape[1] * true.shape[1]))
    for start in range(0, len(positions), rows):
        batch = slice(start, start + rows)
        neighbours[batch] = (positions[batch, :, None] == true[batch, None, :]).any(axis=2)
    return np.asarray(neighbours & (positions >= 0))


def _row_products(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", left, right), dtype=np.float64)
