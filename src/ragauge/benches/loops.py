"""One client, one query after the other: the loop that is timed, and rounds over all settings of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.benches.clocks import now, read, undisturbed
from ragauge.records import Ints
from ragauge.sweeps import Matrix

Raw = dict[str, NDArray[Any]]
"""What was measured, before anything is made of it: plain numbers, so that it can be kept in a file."""
FLOOR_QUERIES = 256
"""How often the store that does nothing is asked each time: enough for a median, and over in 3 milliseconds."""
ROUND_NS = 200_000_000
"""How long a round should last at least."""
MOST_PASSES = 20
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


def timed(store: Any, queries: Matrix, k: int, *, where: Mapping[str, Any] | None = None) -> Answers:
    """Ask a store one query at a time; between the two looks at the clock there is the search and nothing else."""
    search = store.search if where is None else partial(store.search, where=where)
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
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Raw]:
    """Every setting in `repeats` rounds over all queries; for each setting its raw figures.

    The settings of a round come in an order of its own, so that whatever slows the machine for a while does not hit
    one setting alone. Before a setting is timed it is set and warmed up with other queries. `floor` is a store that
    does nothing, asked just before and just after. A round of a few fast searches asks them over and over, since in
    milliseconds any hiccup is half of what is measured.

    `nanoseconds` (repeats, searches); `positions` and `distances` (queries, k) of the first round; `changed`, for each
    repeat, the rows answered otherwise than in the first; `floor_ns` (repeats, before and after); `readings` (repeats,
    READINGS).
    """
    random = np.random.default_rng([seed, 2])
    found: list[dict[str, list[Any]]] = [
        {"nanoseconds": [], "changed": [], "floor_ns": [], "readings": []} for _ in settings
    ]
    first: dict[int, Raw] = {}
    passes: dict[int, int] = {}
    for turn in range(repeats):
        for done, place in enumerate(random.permutation(len(settings)).tolist()):
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
                progress(turn * len(settings) + done + 1, repeats * len(settings))
    return [
        {name: np.array(values) for name, values in mine.items()} | first.get(place, {})
        for place, mine in enumerate(found)
    ]


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
    """The answers to single queries as one, k wide: a store of somebody's own may give fewer."""
    ids = np.full((len(answers), k), None, dtype=object)
    distances = np.full((len(answers), k), np.inf, dtype=np.float32)
    for place, (names, far) in enumerate(answers):
        line = list(names[0])[:k]
        ids[place, : len(line)] = line
        distances[place, : len(line)] = far[0][: len(line)]
    return ids, distances


def _passes(warm: Ints, queries: int) -> int:
    """How often a round goes over the queries, so that it lasts long enough."""
    once = float(np.median(warm)) * queries if len(warm) else ROUND_NS
    return int(np.clip(round(ROUND_NS / max(once, 1.0)), 1, MOST_PASSES))


def _floor(floor: Any, queries: Matrix, k: int) -> float:
    """The median nanoseconds of a store that does nothing."""
    some = queries[np.arange(FLOOR_QUERIES) % len(queries)]
    return float(np.median(timed(floor, some, k).nanoseconds))
