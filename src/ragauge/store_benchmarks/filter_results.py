"""Operating points of stores under a filter: chosen by recall and speed of the searches with that filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragauge.output.terminal import format_share
from ragauge.store_benchmarks.results import (
    REFERENCE_RECALL,
    FilteredSearch,
    MeasuredConfiguration,
    StoreBenchmark,
    format_option,
    select_representative,
)

FilterKey = tuple[str, float]
"""Name of a filter (empty if it is random) and the share of the vectors that match."""


def list_filters(sweep: StoreBenchmark) -> list[FilterKey]:
    """List the filters that searches were measured with, in requested order."""
    by_length = sorted(sweep.points, key=lambda point: -len(point.filters))
    return list(dict.fromkeys((one.name, one.selectivity) for point in by_length for one in point.filters))


def points_with_filter(sweep: StoreBenchmark, key: FilterKey) -> list[MeasuredConfiguration]:
    """Return the points measured with a filter.

    Their recall, times and doubts are those with the filter, and `filters` contains only it.
    """
    return [
        replace(
            point,
            quality={sweep.recall: one.recall},
            latency=one.latency,
            qps_spread=one.qps_spread,
            clock=replace(point.clock, doubts=one.doubts),
            filters=[one],
        )
        for point in sweep.points
        for one in point.filters
        if (one.name, one.selectivity) == key
    ]


def operating_points(sweep: StoreBenchmark, key: FilterKey) -> list[MeasuredConfiguration]:
    """Return the operating point of each store with a filter.

    It is the fastest configuration with REFERENCE_RECALL under the filter, else the one with the highest recall.
    Configurations that return rows that do not match are chosen only if a store has no others. Stores that reach the
    level come first, by descending QPS.
    """
    series: dict[str, list[MeasuredConfiguration]] = {}
    for point in points_with_filter(sweep, key):
        series.setdefault(point.configuration.series, []).append(point)
    chosen = [
        select_representative([one for one in some if not one.filters[0].wrong] or some, sweep.recall)
        for some in series.values()
    ]
    found = [one for one in chosen if one is not None]
    return sorted(found, key=lambda one: (not passes_filter(one.filters[0]), -one.qps))


def passes_filter(one: FilteredSearch) -> bool:
    """Return whether a filtered search reaches REFERENCE_RECALL without wrong rows."""
    return one.recall >= REFERENCE_RECALL - 1e-9 and not one.wrong


def store_filter_results(sweep: StoreBenchmark, series: str) -> list[FilteredSearch]:
    """Return the results of a store at its operating point with each filter."""
    chosen = [point for key in list_filters(sweep) for point in operating_points(sweep, key)]
    return [point.filters[0] for point in chosen if point.configuration.series == series]


def without_filters(sweep: StoreBenchmark) -> StoreBenchmark:
    """Return the benchmark as if no filter had been requested."""
    points = [
        replace(one, filters=(), unsupported=[what for what in one.unsupported if what != "filter"])
        for one in sweep.points
    ]
    return replace(sweep, points=points, failures=[one for one in sweep.failures if one.stage != "filters"])


def name_filter(key: FilterKey) -> str:
    """Name a filter in a sentence.

    >>> name_filter(("", 0.01)), name_filter(("lang=de", 0.25))
    ('a filter that matches 1% of the vectors', 'the filter `lang=de` (25% of the vectors)')
    """
    name, selectivity = key
    share = format_share(selectivity)
    return f"the filter `{name}` ({share} of the vectors)" if name else f"a filter that matches {share} of the vectors"


def name_setting(point: MeasuredConfiguration) -> str:
    """Format a store with its search options, which differ between filters."""
    options = " ".join(f"{name}={format_option(value)}" for name, value in point.configuration.search.items())
    return f"{point.configuration.series} ({options})" if options else point.configuration.series


def best_with_filter(sweep: StoreBenchmark, key: FilterKey, failing: Sequence[str] = ()) -> list[MeasuredConfiguration]:
    """Return the operating points that pass a filter, by descending QPS.

    Stores in `failing` are left out, unless all are in it.
    """
    passing = [one for one in operating_points(sweep, key) if passes_filter(one.filters[0])]
    return [one for one in passing if one.configuration.series not in failing] or passing
