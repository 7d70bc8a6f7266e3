"""Timed searches of one client, and rounds over all search options of a store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.observation import MAX_QPS_ERROR, qps_error
from ragauge.compute.progress import Progress, ProgressCallback, no_progress
from ragauge.compute.resources import now, take_snapshot, without_gc
from ragauge.core.errors import BackendRestarted, BadInput
from ragauge.core.protocols import FullStore
from ragauge.core.records import Ints
from ragauge.store_benchmarks.results import Matrix
from ragauge.stores.search_results import check_neighbours

Mask = NDArray[np.bool_]
MATCHING_VALUE, OTHER_VALUE = "in", "out"
"""Metadata values of matching and other rows; every engine can compare strings."""


def nested_filters(n: int, selectivities: Sequence[float], seed: int = 0) -> dict[str, Mask]:
    """Select random rows per selectivity, each selection a subset of the larger ones.

    The keys are the names of metadata fields, the values which of `n` rows match.

    >>> {name: int(mask.sum()) for name, mask in nested_filters(1000, [0.5, 0.01]).items()}
    {'rung_0': 500, 'rung_1': 10}
    """
    order = np.random.default_rng([seed, 5]).permutation(n)
    masks_by_field = {}
    for number, share in enumerate(selectivities):
        if not 0 < share <= 1:
            raise BadInput(f"selectivity must be above 0 and at most 1, got {share:g}", hint="--selectivity 0.5,0.01")
        masks_by_field[f"rung_{number}"] = order < max(1, round(share * n))
    return masks_by_field


def build_filter_metadata(
    masks_by_field: Mapping[str, Mask], start: int = 0, count: int | None = None
) -> list[dict[str, str]]:
    """Build the metadata of each row for the given filters.

    With `start` or `count`, only those rows are included.

    >>> build_filter_metadata({"rung_0": np.array([True, False])})
    [{'rung_0': 'in'}, {'rung_0': 'out'}]
    """
    masks = {
        name: mask[start : None if count is None else start + count].tolist() for name, mask in masks_by_field.items()
    }
    length = len(next(iter(masks.values()), []))
    return [
        {name: MATCHING_VALUE if mask[row] else OTHER_VALUE for name, mask in masks.items()} for row in range(length)
    ]


def build_filter_condition(field: str) -> dict[str, str]:
    return {field: MATCHING_VALUE}


class FilteredStore:
    """A store whose searches all use one filter, so that the usual loop can time them."""

    def __init__(self, store: FullStore, where: Mapping[str, Any]) -> None:
        self.search = partial(store.search, where=where)
        self.tune = store.tune


SearchableStore = FullStore | FilteredStore
RawArrays = dict[str, NDArray[Any]]
"""Raw measurements as arrays, which can be saved in a file."""
NULL_STORE_QUERIES = 256
"""Number of queries per measurement of the null store; enough for a median within 3 ms."""
MIN_ROUND_NS = 200_000_000
"""Minimum duration of a round, in nanoseconds."""
MAX_PASSES = 100
MAX_RESTARTS = 3
UNKNOWN_POSITION = -2
"""Position of an id that was never added to the store."""


@dataclass(frozen=True, eq=False)
class LoopResults:
    """Results and times of searches, one per query."""

    ids: NDArray[np.object_]
    """One row per query; None for missing results."""
    distances: NDArray[np.float32]
    """As reported by the store."""
    nanoseconds: Ints


def time_searches(store: SearchableStore, queries: Matrix, k: int) -> LoopResults:
    """Run one query at a time, and time only the search.

    If a server dies and is restarted meanwhile, all queries are run again, so that times before and after are not
    mixed.
    """
    for _ in range(MAX_RESTARTS):
        with suppress(BackendRestarted):
            return _time_searches_once(store, queries, k)
    return _time_searches_once(store, queries, k)


def _time_searches_once(store: SearchableStore, queries: Matrix, k: int) -> LoopResults:
    search = store.search
    rows = split_rows(queries)
    times: list[int] = []
    answers: list[Any] = []
    add_answer, add_time = answers.append, times.append
    for row in rows:
        began = now()
        answer = search(row, k)
        ended = now()
        add_time(ended - began)
        add_answer(answer)
    return LoopResults(*stack_results(answers, k), np.array(times, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class SearchRounds:
    """How search settings are timed in rounds."""

    floor: FullStore
    """The null store, timed just before and just after each setting."""
    warm_up: Matrix
    """Other queries, run before a setting is timed."""
    repeats: int = 3
    max_repeats: int | None = None
    """Maximum number of repeats of a setting whose mean time is uncertain; None: `repeats`."""
    seed: int = 0
    budget_s: float | None = None
    """Seconds after which no further setting is timed."""


def time_search_rounds(
    store: SearchableStore,
    queries: Matrix,
    k: int,
    settings: Sequence[Mapping[str, Any]],
    *,
    index: Mapping[str, int],
    rounds: SearchRounds,
    progress: ProgressCallback = no_progress,
) -> list[RawArrays]:
    """Time every search setting in several rounds, and return its raw arrays.

    Each round has its own order of the settings, so that a temporary slowdown of the machine does not affect only one
    of them. Before a setting is timed, it is applied and warmed up. A round of a few fast searches runs them several
    times, since a disturbance would dominate a measurement of a few milliseconds.

    With a time budget, some settings may have fewer repeats, or no arrays. The first round of such a sweep uses the
    given order, and always times the first setting.

    The arrays are `nanoseconds` (repeats, searches); `positions` and `distances` (queries, k) of the first round;
    `changed`, the number of queries per repeat with other results than in the first; `floor_ns` (repeats, before and
    after); `readings` (repeats, SNAPSHOT_DIFFERENCES).
    """
    results: list[dict[str, list[Any]]] = [
        {"nanoseconds": [], "changed": [], "floor_ns": [], "readings": []} for _ in settings
    ]
    first: dict[int, RawArrays] = {}
    passes: dict[int, int] = {}
    times: list[list[Ints]] = [result["nanoseconds"] for result in results]
    repeats, floor = rounds.repeats, rounds.floor
    limits = repeats, rounds.max_repeats or repeats
    for done, number in enumerate(_schedule_searches(times, limits, rounds.seed, rounds.budget_s), 1):
        apply_search_options(store, settings[number])
        with without_gc():
            warm = time_searches(store, rounds.warm_up, k)
            n_passes = passes.setdefault(number, _passes_per_round(warm.nanoseconds, len(queries)))
            tiled_queries = np.tile(queries, (n_passes, 1))
            floors = [_time_null_store(floor, queries, k)]
            before = take_snapshot()
            answers = time_searches(store, tiled_queries, k)
            readings = take_snapshot().since(before)
            floors.append(_time_null_store(floor, queries, k))
        positions = find_positions(answers.ids[: len(queries)], index)
        result = results[number]
        round_results = first.setdefault(
            number, {"positions": positions, "distances": answers.distances[: len(queries)]}
        )
        result["nanoseconds"].append(answers.nanoseconds)
        result["changed"].append(int((positions != round_results["positions"]).any(axis=1).sum()))
        result["floor_ns"].append(floors)
        result["readings"].append(readings)
        progress(Progress("search", min(done, repeats * len(settings)), repeats * len(settings)))
    return [
        {name: np.array(values) for name, values in result.items()} | first[number] if number in first else {}
        for number, result in enumerate(results)
    ]


def _schedule_searches(
    times: Sequence[Sequence[Ints]], repeats: tuple[int, int], seed: int, budget_s: float | None
) -> Iterator[int]:
    """Yield the setting to time next: every setting once per round, within the budget.

    `times` are the times of each setting so far. After the first number of repeats, only settings with an uncertain
    mean are timed, up to the second number.
    """
    n_settings = len(times)
    random = np.random.default_rng([seed, 2])
    until = math.inf if budget_s is None else now() + budget_s * 1e9
    for turn in range(repeats[1]):
        shuffled = random.permutation(n_settings).tolist()
        if turn >= repeats[0]:
            shuffled = [setting for setting in shuffled if qps_error(np.array(times[setting])) > MAX_QPS_ERROR]
        for done, setting in enumerate(range(n_settings) if budget_s is not None and not turn else shuffled):
            if (turn or done) and now() > until:
                return
            yield setting


def apply_search_options(store: SearchableStore, options: Mapping[str, Any]) -> None:
    """Apply search options to the store, if there are any."""
    if options:
        store.tune(options)


def find_positions(ids: NDArray[np.object_], index: Mapping[str, int]) -> Ints:
    """Return the rows of the base for ids.

    -1 for a missing result, UNKNOWN_POSITION for an id that is not in the base.

    >>> find_positions(np.array([["b", None, "?"]], dtype=object), {"a": 0, "b": 1}).tolist()
    [[1, -1, -2]]
    """
    positions = [-1 if name is None else index.get(name, UNKNOWN_POSITION) for name in ids.ravel().tolist()]
    return np.array(positions, dtype=np.int64).reshape(ids.shape)


def split_rows(queries: Matrix) -> list[Matrix]:
    """Split queries into matrices of one row, before anything is timed."""
    matrix = np.ascontiguousarray(queries, dtype=np.float32)
    return [matrix[row : row + 1] for row in range(len(matrix))]


def stack_results(answers: Sequence[Any], k: int) -> tuple[NDArray[np.object_], NDArray[np.float32]]:
    """Stack the results of single queries into matrices with `k` columns.

    A user's store may return fewer than `k` results; the rest is None, at an infinite distance.
    """
    ids = np.full((len(answers), k), None, dtype=object)
    distances = np.full((len(answers), k), np.inf, dtype=np.float32)
    for row, answer in enumerate(answers):
        (names,), (row_distances,) = check_neighbours(answer, 1, k)
        row_ids = list(names)[:k]
        ids[row, : len(row_ids)] = row_ids
        distances[row, : len(row_ids)] = row_distances[: len(row_ids)]
    return ids, distances


def _passes_per_round(warm: Ints, queries: int) -> int:
    """Return how often a round repeats the queries to last long enough."""
    once = float(np.median(warm)) * queries if len(warm) else MIN_ROUND_NS
    return int(np.clip(round(MIN_ROUND_NS / max(once, 1.0)), 1, MAX_PASSES))


def _time_null_store(floor: FullStore, queries: Matrix, k: int) -> float:
    """Return the median latency of the null store, in nanoseconds."""
    sample = queries[np.arange(NULL_STORE_QUERIES) % len(queries)]
    return float(np.median(time_searches(floor, sample, k).nanoseconds))
