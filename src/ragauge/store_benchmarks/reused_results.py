"""Reused results of a benchmark, and when they were made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ragauge.output.numbers import pluralise
from ragauge.store_benchmarks.results import (
    FilteredSearch,
    LoadResult,
    MeasuredConfiguration,
    MixedWorkload,
    OperationLatency,
    StoreBenchmark,
)

BenchmarkResult = MeasuredConfiguration | LoadResult | FilteredSearch | OperationLatency | MixedWorkload
REUSED_LEGEND = "date of the result (UTC); `no`: measured by this command"


def list_results(result: StoreBenchmark) -> Iterator[tuple[MeasuredConfiguration, BenchmarkResult]]:
    """Yield every result with its configuration, without the null store."""
    for point in result.points:
        if not point.is_floor:
            yield point, point
            for load in (*point.loads, *point.filters, *point.changes, *((point.mixed,) if point.mixed else ())):
                yield point, load


def format_reused(results: Sequence[BenchmarkResult]) -> str:
    """Format when reused results were made, for a table cell; `no` if none is reused.

    >>> from ragauge.core.summaries import Latency
    >>> times = Latency(*[1] * 9)
    >>> change = OperationLatency("insert", times, times, 1.0, "2026-11-17T14:02:09+00:00", reused=True)
    >>> format_reused([change]), format_reused([])
    ('2026-11-17 14:02', 'no')
    """
    times = sorted(point.made for point in results if point.reused)
    if not times:
        return "no"
    minutes = [time[:16].replace("T", " ") for time in (times[0], times[-1])]
    days = list(dict.fromkeys(minute[:10] for minute in minutes))
    text = minutes[0] if len(set(minutes)) == 1 else " to ".join(days)
    return text if len(times) == len(results) else f"{text} ({len(times)} of {len(results)})"


def describe_reuse(result: StoreBenchmark) -> str:
    """Return a note on the stores with reused results and their dates; empty if none."""
    reused = [(point, configuration) for point, configuration in list_results(result) if configuration.reused]
    if not reused:
        return ""
    stores = list(dict.fromkeys(point.series for point, _ in reused))
    names = ", ".join(stores[:4]) + (f" and {pluralise(len(stores) - 4, 'other store')}" if len(stores) > 4 else "")
    dates = list(dict.fromkeys(f(point.made for _, point in reused) for f in (min, max)))
    return f"{names}: reused; made {' to '.join(dates)} (measure again with --fresh)"


def describe_mixture(result: StoreBenchmark) -> str:
    """Return a sentence if reused results are compared with new ones, else empty."""
    points = [point for _, point in list_results(result)]
    reused = [point for point in points if point.reused]
    if not reused or len(reused) == len(points):
        return ""
    dates = list(dict.fromkeys(f(point.made for point in reused)[:10] for f in (min, max)))
    are = "is" if len(reused) == 1 else "are"
    return (
        f"{len(reused)} of {pluralise(len(points), 'result')} {are} reused (made {' to '.join(dates)}) and compared "
        f"with "
        "new ones; measure all again with `--fresh` before you compare times."
    )
