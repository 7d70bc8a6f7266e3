"""Operating points of stores under a filter: chosen by recall and speed of the searches with that filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ragauge.store_benchmarks.frontiers import reaches, select_representative

if TYPE_CHECKING:  # A benchmark has its operating points as a property.
    from ragauge.store_benchmarks.results import FilteredSearch, MeasuredConfiguration, StoreBenchmark

FilterKey = tuple[str, float]
"""Name of a filter (empty if it is random) and the share of the vectors that match."""


class OperatingPoint(NamedTuple):
    """Configuration that is chosen for a store under a filter, with its results under the filter."""

    series: str
    configuration: str
    recall: float
    qps: float
    passes: bool
    """Whether it reaches REFERENCE_RECALL, and all returned rows match the filter."""


class FilterComparison(NamedTuple):
    """Operating points of all stores with one filter, best first."""

    name: str
    """The user's filter as it is typed; empty for a filter on random vectors."""
    selectivity: float
    """Share of the vectors that match the filter."""
    operating_points: Sequence[OperatingPoint]


def compare_filters(result: StoreBenchmark) -> list[FilterComparison]:
    """Return the operating points with each filter."""
    return [
        FilterComparison(
            *key,
            [
                OperatingPoint(
                    point.series,
                    str(point.configuration),
                    point.filters[0].recall,
                    point.qps,
                    passes_filter(point.filters[0]),
                )
                for point in operating_points(result, key)
            ],
        )
        for key in list_filters(result)
    ]


def list_filters(result: StoreBenchmark) -> list[FilterKey]:
    """List the filters that searches were measured with, in requested order."""
    by_length = sorted(result.points, key=lambda point: -len(point.filters))
    return list(dict.fromkeys((search.name, search.selectivity) for point in by_length for search in point.filters))


def points_with_filter(result: StoreBenchmark, key: FilterKey) -> list[MeasuredConfiguration]:
    """Return the points measured with a filter.

    Their recall, times and doubts are those with the filter, and `filters` contains only it.
    """
    return [
        replace(
            point,
            quality={result.recall: search.recall},
            latency=search.latency,
            qps_spread=search.qps_spread,
            clock=replace(point.clock, doubts=search.doubts),
            filters=[search],
        )
        for point in result.points
        for search in point.filters
        if (search.name, search.selectivity) == key
    ]


def operating_points(result: StoreBenchmark, key: FilterKey) -> list[MeasuredConfiguration]:
    """Return the operating point of each store with a filter.

    It is the fastest configuration with REFERENCE_RECALL under the filter, else the one with the highest recall.
    Configurations that return rows that do not match are chosen only if a store has no others. Stores that reach the
    level come first, by descending QPS.
    """
    by_series: dict[str, list[MeasuredConfiguration]] = {}
    for point in points_with_filter(result, key):
        by_series.setdefault(point.series, []).append(point)
    chosen = [
        select_representative([point for point in points if not point.filters[0].wrong] or points, result.recall)
        for points in by_series.values()
    ]
    selected = [point for point in chosen if point is not None]
    return sorted(selected, key=lambda point: (not passes_filter(point.filters[0]), -point.qps))


def passes_filter(search: FilteredSearch) -> bool:
    """Return whether a filtered search reaches REFERENCE_RECALL without wrong rows."""
    return reaches(search.recall) and not search.wrong


def store_filter_results(result: StoreBenchmark, series: str) -> list[FilteredSearch]:
    """Return the results of a store at its operating point with each filter."""
    chosen = [point for key in list_filters(result) for point in operating_points(result, key)]
    return [point.filters[0] for point in chosen if point.series == series]


def without_filters(result: StoreBenchmark) -> StoreBenchmark:
    """Return the benchmark as if no filter had been requested."""
    points = [
        replace(point, filters=(), unsupported=[operation for operation in point.unsupported if operation != "filter"])
        for point in result.points
    ]
    failures = [failure for failure in result.failures if failure.stage != "filters"]
    return replace(result, points=points, failures=failures)


def best_with_filter(
    result: StoreBenchmark, key: FilterKey, failing: Sequence[str] = ()
) -> list[MeasuredConfiguration]:
    """Return the operating points that pass a filter, by descending QPS.

    Stores in `failing` are left out, unless all are in it.
    """
    passing = [point for point in operating_points(result, key) if passes_filter(point.filters[0])]
    return [point for point in passing if point.series not in failing] or passing
