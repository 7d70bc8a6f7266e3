"""One client, one query after the other: the loop that is timed, and rounds over all settings of a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.benches.clocks import now, read, undisturbed
from ragauge.errors import BackendRestarted
from ragauge.measures.stores import QPS_ERROR, qps_error
from ragauge.records import Ints
from ragauge.sweeps import Matrix
from ragauge.systems.stores.contract import check_neighbours

Raw = dict[str, NDArray[Any]]
"""What was measured, before anything is made of it: plain numbers, so that it can be kept in a file."""
FLOOR_QUERIES = 256
"""How often the store that does nothing is asked each time: enough for a median, and over in 3 milliseconds."""
ROUND_NS = 200_000_000
"""How long a round should last at least."""
MOST_PASSES = 100
MAX_RESTARTS = 3
UNKNOWN = -2
"""The position of an id that was never given to the store."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a store said to each query, and how long that took."""

    ids: NDArray[np.object_]
    """A row for each query; None where nothing was found."""
    distances: NDArray[np.float32]
    """As the store claims them."""
    nanoseconds: Ints


def timed(store: Any, queries: Matrix, k: int) -> Answers:
    """Run one query at a time; only the search is timed.

    If a server dies and is restarted meanwhile, all queries are run again: no time of before and after is mixed.
    """
    for _ in range(MAX_RESTARTS):
        with suppress(BackendRestarted):
            return _timed_once(store, queries, k)
    return _timed_once(store, queries, k)


def _timed_once(store: Any, queries: Matrix, k: int) -> Answers:
    search = store.search
    rows = rows_of(queries)
    taken: list[int] = []
    answers: list[Any] = []
    kept, noted = answers.append, taken.append
    for row in rows:
        began = now()
        answer = search(row, k)
        ended = now()
        noted(ended - began)
        kept(answer)
    return Answers(*stacked(answers, k), np.array(taken, dtype=np.int64))


def rounds(  # noqa: PLR0913 - each is one choice of the experiment
    store: Any,
    queries: Matrix,
    k: int,
    settings: Sequence[Mapping[str, Any]],
    *,
    index: Mapping[str, int],
    floor: Any,
    warm_up: Matrix,
    repeats: int = 3,
    max_repeats: int | None = None,
    seed: int = 0,
    budget_s: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Raw]:
    """Every setting in `repeats` rounds over all queries; for each setting its raw figures.

    The settings of a round come in an order of its own, so that whatever slows the machine for a while does not hit
    one setting alone. Before a setting is timed it is set and warmed up with other queries. `floor` is a store that
    does nothing, asked just before and just after. A round of a few fast searches asks them over and over, since in
    milliseconds any hiccup is half of what is measured.

    A setting whose repeats leave its mean time uncertain is repeated up to `max_repeats` times, if given.

    After `budget_s` seconds no further setting is timed. Some settings may then have fewer repeats, or no arrays. The
    first round of such a sweep visits the settings in the given order, and always times the first of them.

    `nanoseconds` (repeats, searches); `positions` and `distances` (queries, k) of the first round; `changed`, for each
    repeat, the rows answered otherwise than in the first; `floor_ns` (repeats, before and after); `readings` (repeats,
    READINGS).
    """
    found: list[dict[str, list[Any]]] = [
        {"nanoseconds": [], "changed": [], "floor_ns": [], "readings": []} for _ in settings
    ]
    first: dict[int, Raw] = {}
    passes: dict[int, int] = {}
    times: list[list[Ints]] = [mine["nanoseconds"] for mine in found]
    for done, place in enumerate(_visits(times, (repeats, max_repeats or repeats), seed, budget_s), 1):
        tune(store, settings[place])
        with undisturbed():
            warm = timed(store, warm_up, k)
            many = passes.setdefault(place, _passes(warm.nanoseconds, len(queries)))
            asked = np.tile(queries, (many, 1))
            floors = [_floor(floor, queries, k)]
            before = read()
            answers = timed(store, asked, k)
            readings = read().since(before)
            floors.append(_floor(floor, queries, k))
        where = positions(answers.ids[: len(queries)], index)
        mine = found[place]
        one = first.setdefault(place, {"positions": where, "distances": answers.distances[: len(queries)]})
        mine["nanoseconds"].append(answers.nanoseconds)
        mine["changed"].append(int((where != one["positions"]).any(axis=1).sum()))
        mine["floor_ns"].append(floors)
        mine["readings"].append(readings)
        if progress is not None:
            progress(min(done, repeats * len(settings)), repeats * len(settings))
    return [
        {name: np.array(values) for name, values in mine.items()} | first[place] if place in first else {}
        for place, mine in enumerate(found)
    ]


def _visits(
    times: Sequence[Sequence[Ints]], repeats: tuple[int, int], seed: int, budget_s: float | None
) -> Iterator[int]:
    """Yield which setting is timed next: every setting once per round, until the budget is spent.

    `times` are those of each setting so far. After the first number of repeats only settings whose mean is uncertain
    are timed, up to the second number.
    """
    n_settings = len(times)
    random = np.random.default_rng([seed, 2])
    until = math.inf if budget_s is None else now() + budget_s * 1e9
    for turn in range(repeats[1]):
        shuffled = random.permutation(n_settings).tolist()
        if turn >= repeats[0]:
            shuffled = [place for place in shuffled if qps_error(np.array(times[place])) > QPS_ERROR]
        for done, place in enumerate(range(n_settings) if budget_s is not None and not turn else shuffled):
            if (turn or done) and now() > until:
                return
            yield place


def tune(store: Any, options: Mapping[str, Any]) -> None:
    """Set the options of the searches to come, if there are any."""
    if options:
        store.tune(**options)


def positions(ids: NDArray[np.object_], index: Mapping[str, int]) -> Ints:
    """Rows of the base for ids: -1 where nothing was found, UNKNOWN where the id is none of the base's.

    >>> positions(np.array([["b", None, "?"]], dtype=object), {"a": 0, "b": 1}).tolist()
    [[1, -1, -2]]
    """
    found = [-1 if name is None else index.get(name, UNKNOWN) for name in ids.ravel().tolist()]
    return np.array(found, dtype=np.int64).reshape(ids.shape)


def rows_of(queries: Matrix) -> list[Matrix]:
    """Each query as a matrix of one row, made before anything is timed."""
    whole = np.ascontiguousarray(queries, dtype=np.float32)
    return [whole[place : place + 1] for place in range(len(whole))]


def stacked(answers: Sequence[Any], k: int) -> tuple[NDArray[np.object_], NDArray[np.float32]]:
    """Return the results of single queries as one matrix, k wide; a user's store may return fewer than k."""
    ids = np.full((len(answers), k), None, dtype=object)
    distances = np.full((len(answers), k), np.inf, dtype=np.float32)
    for place, answer in enumerate(answers):
        (names,), (far,) = check_neighbours(answer, 1, k)
        line = list(names)[:k]
        ids[place, : len(line)] = line
        distances[place, : len(line)] = far[: len(line)]
    return ids, distances


def _passes(warm: Ints, queries: int) -> int:
    """How often a round goes over the queries, so that it lasts long enough."""
    once = float(np.median(warm)) * queries if len(warm) else ROUND_NS
    return int(np.clip(round(ROUND_NS / max(once, 1.0)), 1, MOST_PASSES))


def _floor(floor: Any, queries: Matrix, k: int) -> float:
    """The median nanoseconds of a store that does nothing."""
    some = queries[np.arange(FLOOR_QUERIES) % len(queries)]
    return float(np.median(timed(floor, some, k).nanoseconds))
