"""Pareto frontiers of recall and speed, speed at a recall level, and the recall that is sufficient for relevance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # The results have their frontiers as properties.
    from ragauge.store_benchmarks.results import MeasuredConfiguration

REFERENCE_RECALL = 0.95
"""Recall level at which stores are compared, load-tested, filtered and updated."""
RECALL_LEVELS = (0.90, 0.95, 0.99)
"""Recall levels at which the speed of stores is compared."""
RECALL_TOLERANCE = 1e-9
"""Rounding error of a recall that is compared with a level."""
NEGLIGIBLE_DIFFERENCE = 0.005
"""Difference of a relevance measure that does not matter in practice."""
SpeedFunction = Callable[["MeasuredConfiguration"], float]

SPEED_FUNCTIONS: Mapping[str, SpeedFunction] = {
    "qps": lambda point: point.qps,
    "p50": lambda point: _reciprocal_or_nan(point.latency.p50),
    "p99": lambda point: _reciprocal_or_nan(point.latency.p99),
}
"""Speed of a configuration by name; higher is better."""


@dataclass(frozen=True)
class QpsAtRecall:
    """Speed of a store at a recall level, interpolated between configurations.

    `qps` and `p50_ms` are None if the store does not reach the level.
    """

    store: str
    recall: float
    qps: float | None
    p50_ms: float | None
    by: str = ""
    """Nearest configuration at or above the recall level."""


class SufficientRecall(NamedTuple):
    """Recall from which a relevance measure no longer improves."""

    measure: str
    score: float
    """Score at the highest recall."""
    highest_recall: float
    recall: float
    """Lowest recall from which every configuration is within NEGLIGIBLE_DIFFERENCE of `score`."""


def reaches(recall: float, level: float = REFERENCE_RECALL) -> bool:
    """Return whether a recall reaches a level, up to rounding."""
    return recall >= level - RECALL_TOLERANCE


def find_pareto_indices(recalls: Sequence[float], speeds: Sequence[float]) -> list[int]:
    """Return the indices of the Pareto frontier of recall and speed.

    They are sorted by ascending recall. Of equal points only the first is included. Points with a non-finite value are
    skipped.

    >>> find_pareto_indices([0.9, 0.8, 0.95, 0.9], [100, 90, 50, 100])
    [0, 2]
    """
    finite = [i for i, pair in enumerate(zip(recalls, speeds, strict=True)) if all(map(math.isfinite, pair))]
    frontier: list[int] = []
    for i in sorted(finite, key=lambda i: (-recalls[i], -speeds[i], i)):
        if not frontier or speeds[i] > speeds[frontier[-1]]:
            frontier.append(i)
    return frontier[::-1]


def find_frontier(points: Sequence[MeasuredConfiguration], recall: str, *, by: str = "qps") -> list[int]:
    """Return the indices of the Pareto frontier of recall and speed.

    They are sorted by ascending recall. `by` is `qps`, or `p50` or `p99` for the latency of one query. The null store
    is excluded.
    """
    recalls = [math.nan if point.is_floor else point.quality.get(recall, math.nan) for point in points]
    return find_pareto_indices(recalls, [_positive_or_nan(SPEED_FUNCTIONS[by](point)) for point in points])


def find_series_frontiers(
    points: Sequence[MeasuredConfiguration], recall: str, *, by: str = "qps"
) -> dict[str, list[int]]:
    """Return the indices of the Pareto frontier of each series."""
    return {
        series: [indices[i] for i in find_frontier([points[index] for index in indices], recall, by=by)]
        for series, indices in _group_by_series(points).items()
    }


def select_representative(points: Sequence[MeasuredConfiguration], recall: str) -> MeasuredConfiguration | None:
    """Select the configuration that represents a store.

    It is the fastest one that reaches REFERENCE_RECALL, else the one with the highest recall. None if `points` has no
    finite scores.
    """
    recalls = [point.quality.get(recall, math.nan) for point in points]
    frontier = [points[i] for i in find_pareto_indices(recalls, [point.qps for point in points])]
    sufficient = [point for point in frontier if reaches(point.quality[recall])]
    return sufficient[0] if sufficient else frontier[-1] if frontier else None


def find_points_around(
    points: Sequence[MeasuredConfiguration], speeds: Sequence[float], recall: str, level: float
) -> list[MeasuredConfiguration]:
    """Return the one or two frontier points around a recall level.

    The last one reaches the level. The list is empty if no point does.
    """
    recalls = [point.quality.get(recall, math.nan) for point in points]
    frontier = [points[i] for i in find_pareto_indices(recalls, speeds)]
    above = next((i for i, point in enumerate(frontier) if reaches(point.quality[recall], level)), None)
    if above is None:
        return []
    is_at_level = frontier[above].quality[recall] <= level + RECALL_TOLERANCE
    return frontier[above if is_at_level else max(above - 1, 0) : above + 1]


def compute_qps_at_recall(
    points: Sequence[MeasuredConfiguration], recall: str, levels: Sequence[float] = RECALL_LEVELS
) -> list[QpsAtRecall]:
    """Interpolate the speed of each store at each recall level.

    The logarithm of the speed is interpolated between the two adjacent points of the frontier. There is no
    extrapolation: a store whose lowest recall is above the level has the speed of that point, and one that does not
    reach it has None.
    """
    speeds = []
    for series, indices in _group_by_series(points).items():
        series_points = [points[index] for index in indices]
        for level in levels:
            qps, nearest = _interpolate_speed(series_points, recall, level, "qps")
            queries_per_ms, _ = _interpolate_speed(series_points, recall, level, "p50")
            p50_ms = None if queries_per_ms is None else 1 / queries_per_ms
            label = "" if nearest is None else str(nearest.configuration)
            speeds.append(QpsAtRecall(series, level, qps, p50_ms, label))
    return speeds


def find_sufficient_recalls(points: Sequence[MeasuredConfiguration], recall: str) -> list[SufficientRecall]:
    """Return the sufficient recall for each relevance measure, without the null store."""
    real = [point for point in points if not point.is_floor]
    measures = dict.fromkeys(name for point in real for name in point.relevance)
    recalls = (_find_sufficient_recall(real, recall, measure) for measure in measures)
    return [sufficient for sufficient in recalls if sufficient is not None]


def _find_sufficient_recall(
    points: Sequence[MeasuredConfiguration], recall: str, measure: str
) -> SufficientRecall | None:
    pairs = sorted((point.quality.get(recall, math.nan), point.relevance.get(measure, math.nan)) for point in points)
    pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
    if len(pairs) < 2:
        return None
    highest, score = pairs[-1]
    insufficient = [recall for recall, value in pairs if value < score - NEGLIGIBLE_DIFFERENCE]
    lowest = min((recall for recall, _ in pairs if not insufficient or recall > max(insufficient)), default=highest)
    return SufficientRecall(measure, score, highest, lowest)


def _group_by_series(points: Sequence[MeasuredConfiguration]) -> dict[str, list[int]]:
    """Group the indices of the points by series, without the null store."""
    indices_by_series: dict[str, list[int]] = {}
    for index, point in enumerate(points):
        if not point.is_floor:
            indices_by_series.setdefault(point.series, []).append(index)
    return indices_by_series


def _interpolate_speed(
    points: Sequence[MeasuredConfiguration], recall: str, level: float, by: str
) -> tuple[float | None, MeasuredConfiguration | None]:
    """Return the speed at a recall level, and the nearest point at or above it."""
    speed = SPEED_FUNCTIONS[by]
    around = find_points_around(points, [_positive_or_nan(speed(point)) for point in points], recall, level)
    if not around:
        return None, None
    first, last = around[0], around[-1]
    if first is last:
        return speed(last), last
    share = (level - first.quality[recall]) / (last.quality[recall] - first.quality[recall])
    return math.exp((1 - share) * math.log(speed(first)) + share * math.log(speed(last))), last


def _reciprocal_or_nan(value: float) -> float:
    return 1 / value if value > 0 else math.nan


def _positive_or_nan(value: float) -> float:
    return value if 0 < value < math.inf else math.nan
