"""Measures of vector stores: positions and raw nanoseconds to quality, latency, load, updates and filters.

Distances are always recomputed from the vectors in double precision; the distances that a store reports are only
checked against them. Positions are rows of the base; -1 is a missing result, -2 an id that was never added.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.observation import DISPLACED, STOLEN, STOLEN_TICKS, Raw, _displaced
from ragauge.core.errors import MissingEvidence
from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Latency
from ragauge.measures.binary import at_most
from ragauge.measures.latency import latency
from ragauge.store_benchmarks.neighbour_measures import are_similarities, ranking_columns
from ragauge.store_benchmarks.results import RECALL, Change, Filtered, Load, Matrix, Mixed, Truth, VectorSet

Mask = NDArray[np.bool_]

TIES = 1e-6
"""Relative tolerance within which a result counts as near as the k-th exact neighbour (RECALL_MEASURE)."""
EPS = 0.001
"""Relative tolerance of ANN-benchmarks (`recall(of=eps)`); if distances differ little, it accepts wrong results."""
PAIRS_AT_ONCE = 4_096
COMPARED_AT_ONCE = 1 << 18
CLAIM = 0.01
"""Maximum relative error of a reported distance; 16-bit floats stay below it."""
ROUNDING = 1e-5
"""Maximum disorder of two reported distances relative to the mean distance, as from single precision."""
SINGLE = 1e-6
"""Maximum error of single precision relative to the terms of a distance."""
LATE_NS = 1_000_000


def distances(base: Matrix, queries: Matrix, positions: Ints, metric: str) -> Floats:
    """Compute the distance of each query to each of its positions in double precision.

    The distance is infinite if there is no vector.

    >>> base = np.array([[0, 0], [3, 4]], np.float32)
    >>> distances(base, base[:1], np.array([[1, 0, -1]]), "l2").tolist()
    [[5.0, 0.0, inf]]
    """
    found = np.full(positions.shape, np.inf)
    rows, columns = np.nonzero(positions >= 0)
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        mine = slice(start, start + PAIRS_AT_ONCE)
        ours = queries[rows[mine]].astype(np.float64)
        theirs = base[positions[rows[mine], columns[mine]]].astype(np.float64)
        if metric == "l2":
            ours -= theirs
            far = np.sqrt(_products(ours, ours))
        else:
            far = -_products(ours, theirs)
        if metric == "cosine":
            sizes = np.sqrt(_products(ours, ours)) * np.sqrt(_products(theirs, theirs))
            far = np.clip(1 + np.divide(far, sizes, out=np.zeros(len(far)), where=sizes > 0), 0, 2)
        found[rows[mine], columns[mine]] = far
    return found


def quality(truth: Truth, positions: Ints, data: VectorSet, k: int) -> dict[str, float]:
    """Compute mean scores over all queries, by canonical name.

    `recall(of=eps,eps=1e-06)@k` counts results that are no farther than the k-th exact neighbour within a millionth, so
    that ties count. `recall(of=eps)@k` is the definition of ANN-benchmarks, with a tolerance of a thousandth.
    `recall(of=k)@k` is the share of the k exact neighbours that were found. In `recall@k`, `precision@k`,
    `precision(of=retrieved)@k`, `mrr@k`, nDCG, MAP, hit rate and F1 all exact neighbours are relevant, as in RAGdbEval:
    with 100 of them a perfect recall@10 is 0.10. A vector that is returned more than once counts once.
    """
    true = _true(truth, k, len(data.base))
    mine = np.where(_once(positions[:, :k]), positions[:, :k], -1)
    relevant, nearest = _among(mine, true), _among(mine, true[:, :k])
    good = relevant.sum(axis=1)
    total = (true >= 0).sum(axis=1)
    first = np.where(relevant.any(axis=1), 1 / (1 + relevant.argmax(axis=1)), 0.0)
    bar = _kth(true, data, k)
    far = distances(data.base, data.queries[: len(mine)], mine, data.metric)
    columns = {
        f"{RECALL}@{k}": _near(far, bar, k) / k,
        f"recall(of=eps)@{k}": _near(far, bar, k, EPS) / k,
        f"recall(of=k)@{k}": nearest.sum(axis=1) / k,
        f"recall@{k}": np.divide(good, total, out=np.zeros(len(good)), where=total > 0),
        f"precision@{k}": good / k,
        f"precision(of=retrieved)@{k}": good / np.maximum((positions[:, :k] != -1).sum(axis=1), 1),
        f"mrr@{k}": first,
        **ranking_columns(relevant, total, (positions[:, :k] != -1).sum(axis=1), k),
    }
    return {name: float(values.mean()) if len(values) else math.nan for name, values in columns.items()}


def lies(positions: Ints, claimed: NDArray[Any], data: VectorSet) -> list[str]:
    """Describe errors in results and reported distances, one sentence per kind.

    The list is empty if there are none. Recall is not considered.
    """
    rows = len(positions)
    there = positions >= 0
    found = []
    if unknown := int((positions < -1).sum()):
        found.append(f"{unknown} answers are ids that were never added")
    twice = int((there & ~_once(positions)).any(axis=1).sum())
    if twice:
        found.append(f"{twice} of {rows} queries got the same vector twice")
    true = distances(data.base, data.queries[:rows], positions, data.metric)
    claims = np.asarray(claimed, np.float64)[:, : positions.shape[1]]
    # Relative errors are meaningless near 0: cosines in single precision are off by about 1e-7 at any distance.
    scale = np.abs(true[there]).mean() if there.any() else 0.0
    least = _rounding(data.base, data.queries[:rows], positions, true, data.metric)
    if unsaid := int((there & np.isnan(claims)).sum()):
        found.append(f"{unsaid / int(there.sum()):.0%} of the answers come without a distance")
    with np.errstate(invalid="ignore"):
        off = there & (np.abs(claims - true) > np.maximum(CLAIM * np.maximum(np.abs(true), scale), least))
        rises = np.diff(np.where(positions == -1, np.inf, claims), axis=1)
        fallen = rises < -np.maximum(ROUNDING * scale, least[:, 1:])
    if are_similarities(claims, true, there & np.isfinite(claims)):
        found.append(
            "the distances from `search` fall as the true distances rise; did you return similarities? "
            "Return distances, nearest first"
        )
        return found
    if wrong := int(off.sum()):
        said, middle = float(np.median(claims[off])), float(np.median(true[off]))
        much = abs(middle) > float(np.median(least[off]))
        typical = f"{said / middle:.3g} times" if much else f"{said:.3g} where 0 is true"
        if np.allclose(claims[off], true[off] ** 2, rtol=CLAIM):
            typical = "their squares"
        found.append(
            f"{wrong / int(there.sum()):.0%} of the distances that it claims are not the true ones "
            f"(typically {typical})"
        )
    if disorder := int(fallen.any(axis=1).sum()):
        found.append(f"{disorder} of {rows} answers are not in the order of the distances that it claims")
    return found


def latency_of(nanoseconds: NDArray[Any]) -> Latency:
    """Summarise raw times of all repeats together; percentiles are never averaged."""
    return latency(np.asarray(nanoseconds, np.float64).ravel() / 1e6)


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


def load(raw: Raw, note: str = "") -> Load:
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
    late = np.where(sent, began, until) - due > LATE_NS
    notes = [note] if note else ["each client had a copy of the store"] if int(raw["copies"]) else []
    if given_up := int((~sent).sum()):
        notes.append(f"{given_up} of {len(sent)} queries were given up before they could be sent")
    if empty := int(raw["empty"]):
        notes.append(f"{empty} answers were empty")
    seconds, cpu, switches, _, stolen, ticks = np.asarray(raw["readings"], np.float64).reshape(-1, 6).sum(axis=0)
    asleep = int(raw["server"]) or not math.isnan(rate) or int(raw["clients"]) > int(raw["cores"])
    doubts = []
    if not asleep and (displaced := _displaced(seconds, cpu, switches)) > DISPLACED:
        doubts.append(f"other processes had the CPU for {displaced:.0%} of the time")
    if ticks > 0 and stolen >= STOLEN_TICKS and stolen / ticks > STOLEN:
        doubts.append(f"the host took {stolen / ticks:.0%} of the CPU time")
    return Load(
        int(raw["clients"]),
        None if math.isnan(rate) else rate,
        int(sent.sum()) / wall if wall > 0 else math.nan,
        latency_of(waited),
        latency_of((ended - began)[sent]),
        float(late.mean()) if len(late) else 0.0,
        "; ".join(notes),
        doubts=doubts,
    )


def change(operation: str, raw: Raw) -> Change:
    """Summarise operations on one vector at a time."""
    seen = np.asarray(raw["seen"], np.float64)
    seen = seen[~np.isnan(seen)]
    visible = float(seen.mean()) if len(seen) else math.nan
    return Change(operation, latency_of(raw["ns"]), latency_of(raw["search_ns"]), visible)


def filtered(raw: Raw, mask: Mask, data: VectorSet, k: int, neighbours: Ints) -> Filtered:
    """Summarise searches with a filter.

    `neighbours` are the exact neighbours among the matching rows, nearest first. If fewer than k rows match, all of
    them are expected.
    """
    positions, times = np.asarray(raw["positions"], np.int64)[:, :k], raw["nanoseconds"]
    matching = int(mask.sum())
    wanted = min(k, matching)
    there = positions >= 0
    good = there & mask[np.where(there, positions, 0)]
    mine = np.where(good & _once(positions), positions, -1)
    far = distances(data.base, data.queries[: len(mine)], mine, data.metric)
    near = _near(far, _kth(neighbours, data, wanted), wanted)
    return Filtered(
        selectivity=matching / len(mask),
        matching=matching,
        returned=float(((mine >= 0).sum(axis=1) / wanted).mean()) if len(mine) else math.nan,
        recall=float((near / wanted).mean()) if len(mine) else math.nan,
        wrong=int((positions != -1).sum() - good.sum()),
        latency=latency_of(times),
        repeats=len(times),
        qps_spread=qps_spread(times),
    )


def mixed(raw: Raw, truth: Truth, data: VectorSet, k: int) -> Mixed:
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
    near_base = distances(data.base, data.queries, _true(truth, k, n)[:, :k], data.metric)
    # There are few new vectors, so all of their distances are computed once per query.
    asked, of = np.unique(query, return_inverse=True)
    each = np.broadcast_to(np.arange(len(fresh)), (len(asked), len(fresh)))
    near_fresh = distances(fresh, data.queries[asked], each, data.metric)
    bar = np.empty(len(query))
    for place, row in enumerate(query.tolist()):
        here = np.concatenate([near_base[row], near_fresh[of[place], : before[place]]])
        bar[place] = np.partition(here, k - 1)[k - 1] if len(here) >= k else here.max()
    known = positions < n + after[:, None]
    mine = np.where(known & _once(positions), positions, -1)
    far = distances(everything, data.queries[query], mine, data.metric)
    near = _near(far, bar, k)
    seconds = float(raw["insert_seconds"])
    inserted = int(raw["inserted"])
    return Mixed(
        inserted=inserted,
        inserts_per_second=inserted / seconds if seconds > 0 else math.nan,
        together=bool(raw["together"]),
        recall=float((near / k).mean()) if len(near) else math.nan,
        latency=latency_of(raw["ended_ns"] - raw["due_ns"]),
        alone=latency_of(raw["alone_ended_ns"] - raw["alone_due_ns"]),
    )


def _true(truth: Truth, k: int, n: int) -> Ints:
    """Return the exact neighbours; raise MissingEvidence if there are fewer than k."""
    if truth.neighbours.shape[1] < min(k, n):
        raise MissingEvidence(
            f"there are {truth.neighbours.shape[1]} true neighbours for each query, and {k} are asked for",
            hint="take a smaller k, or have the exact neighbours computed",
        )
    return np.asarray(truth.neighbours, np.int64)


def _kth(true: Ints, data: VectorSet, k: int) -> Floats:
    """Return the distance of the k-th exact neighbour of each query.

    If there are fewer, it is the distance of the last; -inf if there is none.
    """
    last = np.maximum((true[:, :k] >= 0).sum(axis=1) - 1, 0)
    far = distances(data.base, data.queries[: len(true)], np.take_along_axis(true, last[:, None], axis=1), data.metric)
    return np.asarray(np.where(np.isfinite(far[:, 0]), far[:, 0], -np.inf))


def _near(far: Floats, bar: Floats, k: int, eps: float = TIES) -> Ints:
    """Count the distances per row that are within the bound, at most k."""
    return np.asarray(np.minimum((far <= at_most(bar, eps)[:, None]).sum(axis=1), k))


def _rounding(base: Matrix, queries: Matrix, positions: Ints, true: Floats, metric: str) -> Floats:
    """Return the maximum error of correct distances in single precision.

    It is proportional to the terms of the sum: 1 for cosines, the product of both lengths for inner products, their sum
    for Euclidean distances. The latter may be the root of a small difference of large squares, so their error is much
    larger near 0. The error is 0 if there is no vector.
    """
    there = positions >= 0
    if metric == "cosine":
        return np.where(there, SINGLE, 0.0)
    rows, columns = np.nonzero(there)
    ours, theirs = _lengths(queries)[rows], np.empty(len(rows))
    for start in range(0, len(rows), PAIRS_AT_ONCE):
        mine = slice(start, start + PAIRS_AT_ONCE)
        theirs[mine] = _lengths(base[positions[rows[mine], columns[mine]]])
    off = np.zeros(positions.shape)
    if metric == "ip":
        off[there] = SINGLE * ours * theirs
    else:
        size = ours + theirs
        least = np.maximum(true[there], math.sqrt(SINGLE) * size)
        off[there] = SINGLE * size * np.divide(size, least, out=np.zeros(len(size)), where=least > 0)
    return off


def _lengths(vectors: Matrix) -> Floats:
    wide = vectors.astype(np.float64)
    return np.sqrt(_products(wide, wide))


def _once(positions: Ints) -> Mask:
    """Mark the first occurrence of each position in its row.

    >>> _once(np.array([[4, 7, 4]])).tolist()
    [[True, True, False]]
    """
    order = np.argsort(positions, axis=1, kind="stable")
    ranked = np.take_along_axis(positions, order, axis=1)
    again = np.zeros(positions.shape, np.bool_)
    again[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    first = np.empty(positions.shape, np.bool_)
    np.put_along_axis(first, order, ~again, axis=1)
    return first


def _among(positions: Ints, true: Ints) -> Mask:
    """Mark the positions that are among the exact neighbours of their row."""
    found = np.zeros(positions.shape, np.bool_)
    rows = max(1, COMPARED_AT_ONCE // max(1, positions.shape[1] * true.shape[1]))
    for start in range(0, len(positions), rows):
        mine = slice(start, start + rows)
        found[mine] = (positions[mine, :, None] == true[mine, None, :]).any(axis=2)
    return np.asarray(found & (positions >= 0))


def _products(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", left, right), dtype=np.float64)
