"""The frontier: which configurations are worth having, how fast a store is at a given recall, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ragauge.sweeps import Point, Reached, Sweep, points_around, unbeaten

LEVELS = (0.90, 0.95, 0.99)
"""The recalls at which stores are compared."""
Figure = Callable[[Point], float]

SPEEDS: dict[str, Figure] = {
    "qps": lambda point: point.qps,
    "p50": lambda point: _inverse(point.latency.p50),
    "p99": lambda point: _inverse(point.latency.p99),
}
"""What a configuration is fast by: more is better."""


def frontier(points: Sequence[Point], recall: str, *, by: str = "qps") -> list[int]:
    """The places of the points that no other beats in both recall and speed, by recall, the least first.

    `by` is `qps`, or `p50` or `p99` for the latency of one query. The harness itself is no competitor.
    """
    recalls = [math.nan if one.is_floor else one.quality.get(recall, math.nan) for one in points]
    return unbeaten(recalls, [_positive(SPEEDS[by](one)) for one in points])


def frontiers(points: Sequence[Point], recall: str, *, by: str = "qps") -> dict[str, list[int]]:
    """The same for each series alone: its own points that none of its own beats."""
    return {
        series: [places[i] for i in frontier([points[place] for place in places], recall, by=by)]
        for series, places in _series(points).items()
    }


def reached(points: Sequence[Point], recall: str, levels: Sequence[float] = LEVELS) -> list[Reached]:
    """How fast each store is at each recall: between the two points of its frontier around it.

    Speed is taken to fall evenly on a logarithmic scale from one to the next. Nothing is drawn out beyond what was
    measured: a store whose least recall is above has the speed of that point, and one that never gets there has none.
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
    """Money for a million queries, where one such thread costs so much an hour.

    >>> cost(1000, 3.6)
    1.0
    """
    return price_per_hour * 1e6 / (qps * 3600) if qps > 0 else math.nan


def placed(sweep: Sweep) -> Sweep:
    """The sweep with its frontiers, and with what each store reached."""
    points, recall = sweep.points, sweep.recall
    return replace(
        sweep,
        frontiers=frontiers(points, recall),
        frontier=frontier(points, recall),
        reached=reached(points, recall),
    )


def _series(points: Sequence[Point]) -> dict[str, list[int]]:
    """The places of each series, without the harness."""
    found: dict[str, list[int]] = {}
    for place, one in enumerate(points):
        if not one.is_floor:
            found.setdefault(one.configuration.series, []).append(place)
    return found


def _at(points: Sequence[Point], recall: str, level: float, by: str) -> tuple[float | None, Point | None]:
    """The speed at a recall, and the point that comes nearest above it."""
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
    """A speed of nothing is none."""
    return value if 0 < value < math.inf else math.nan
