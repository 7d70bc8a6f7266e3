"""Analysis of benchmark results: scores, Pareto frontiers, speed at a recall level, and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ragauge.sweeps import Point, Reached, Sweep, points_around, unbeaten

LEVELS = (0.90, 0.95, 0.99)
"""Recall levels at which the speed of stores is compared."""
Figure = Callable[[Point], float]

SPEEDS: dict[str, Figure] = {
    "qps": lambda point: point.qps,
    "p50": lambda point: _inverse(point.latency.p50),
    "p99": lambda point: _inverse(point.latency.p99),
}
"""Speed of a configuration by name; higher is better."""


def frontier(points: Sequence[Point], recall: str, *, by: str = "qps") -> list[int]:
    """Return the indices of the Pareto frontier of recall and speed.

    They are sorted by ascending recall. `by` is `qps`, or `p50` or `p99` for the latency of one query. The null store
    is excluded.
    """
    recalls = [math.nan if one.is_floor else one.quality.get(recall, math.nan) for one in points]
    return unbeaten(recalls, [_positive(SPEEDS[by](one)) for one in points])


def frontiers(points: Sequence[Point], recall: str, *, by: str = "qps") -> dict[str, list[int]]:
    """Return the indices of the Pareto frontier of each series."""
    return {
        series: [places[i] for i in frontier([points[place] for place in places], recall, by=by)]
        for series, places in _series(points).items()
    }


def reached(points: Sequence[Point], recall: str, levels: Sequence[float] = LEVELS) -> list[Reached]:
    """Interpolate the speed of each store at each recall level.

    The logarithm of the speed is interpolated between the two adjacent points of the frontier. There is no
    extrapolation: a store whose lowest recall is above the level has the speed of that point, and one that does not
    reach it has None.
    """
    found = []
    for series, places in _series(points).items():
        mine = [points[place] for place in places]
        for level in levels:
            qps, by = _at(mine, recall, level, "qps")
            fast, _ = _at(mine, recall, level, "p50")
            told = "" if by is None else str(by.configuration)
            found.append(Reached(series, level, qps, None if fast is None else 1 / fast, told))
    return found


def cost(qps: float, price_per_hour: float) -> float:
    """Return the cost of a million queries, given the price of one thread per hour.

    >>> cost(1000, 3.6)
    1.0
    """
    return price_per_hour * 1e6 / (qps * 3600) if qps > 0 else math.nan


def placed(sweep: Sweep) -> Sweep:
    """Return the benchmark with its frontiers and its speeds at the recall levels."""
    points, recall = sweep.points, sweep.recall
    return replace(
        sweep,
        frontiers=frontiers(points, recall),
        frontier=frontier(points, recall),
        reached=reached(points, recall),
    )


def _series(points: Sequence[Point]) -> dict[str, list[int]]:
    """Group the indices of the points by series, without the null store."""
    found: dict[str, list[int]] = {}
    for place, one in enumerate(points):
        if not one.is_floor:
            found.setdefault(one.configuration.series, []).append(place)
    return found


def _at(points: Sequence[Point], recall: str, level: float, by: str) -> tuple[float | None, Point | None]:
    """Return the speed at a recall level, and the nearest point at or above it."""
    speed = SPEEDS[by]
    around = points_around(points, [_positive(speed(one)) for one in points], recall, level)
    if not around:
        return None, None
    first, last = around[0], around[-1]
    if first is last:
        return speed(last), last
    share = (level - first.quality[recall]) / (last.quality[recall] - first.quality[recall])
    return math.exp((1 - share) * math.log(speed(first)) + share * math.log(speed(last))), last


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else math.nan


def _positive(value: float) -> float:
    return value if 0 < value < math.inf else math.nan
