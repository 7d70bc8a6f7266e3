"""Acceptance of stores: which of them pass all requested rates, filters and updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ragauge.output.numbers import format_number
from ragauge.store_benchmarks.filter_results import store_filter_results
from ragauge.store_benchmarks.frontiers import REFERENCE_RECALL, reaches
from ragauge.store_benchmarks.results import FilteredSearch, MeasuredConfiguration, StoreBenchmark

EXTRA_STAGES = ("load", "filters", "changes")
"""Stages that are measured in addition to searching."""


def has_extra_stages(result: StoreBenchmark) -> bool:
    """Return whether rates, filters or updates were requested."""
    return any(
        point.filters
        or point.changes
        or point.mixed
        or point.unsupported
        or any(load.rate is not None for load in point.loads)
        for point in result.points
        if not point.is_floor
    ) or any(failure.stage in EXTRA_STAGES for failure in result.failures)


def find_failing_stores(result: StoreBenchmark, stores: Iterable[str]) -> dict[str, list[str]]:
    """Return the stores that fail a requested rate, filter or update, and why.

    A store passes a filter if it does so at its operating point under that filter.
    """
    if not has_extra_stages(result):
        return {}
    reasons_by_store = {}
    for series in stores:
        measured = [point for point in result.points if point.series == series and _has_extra_results(point)]
        reasons = [reason for point in measured for reason in _failure_reasons(point)]
        reasons += _filter_reasons(store_filter_results(result, series))
        failures = [failure for failure in result.failures if failure.configuration.series == series]
        reasons += [f"{failure.stage} failed" for failure in failures if failure.stage in EXTRA_STAGES]
        if not measured and not reasons:
            reasons = ["not measured"]
        if reasons:
            reasons_by_store[series] = list(dict.fromkeys(reasons))
    return reasons_by_store


def _has_extra_results(point: MeasuredConfiguration) -> bool:
    return bool(point.filters or point.changes or point.mixed or point.loads or point.unsupported)


def _failure_reasons(point: MeasuredConfiguration) -> Iterator[str]:
    """Yield the rates and updates that a configuration fails or does not support."""
    yield from (
        "cannot be load-tested" if operation == "load" else f"cannot {operation}" for operation in point.unsupported
    )
    rates = [load.rate for load in point.loads if load.rate is not None and not load.kept_up]
    if rates:
        yield f"does not sustain {min(rates):,.4g} queries per second"
    for update in point.changes:
        if update.visible < 1:
            share = format_number(1 - update.visible, "selectivity")
            yield f"the next search misses {share} of the {update.operation}s"
    if point.mixed is not None and point.mixed.recall < REFERENCE_RECALL:
        yield f"recall {point.mixed.recall:.3f} during inserts"


def _filter_reasons(filters: Sequence[FilteredSearch]) -> Iterator[str]:
    """Yield why a store fails its filters.

    The filter with the lowest recall is named, and one with which rows that do not match are returned.
    """
    wrong = [search for search in filters if search.wrong]
    if wrong:
        yield f"returns rows that do not match the filter {_filter_name(wrong[0])}"
    worst = min(filters, key=lambda search: search.recall, default=None)
    if worst is not None and not reaches(worst.recall):
        problem = f"recall {worst.recall:.3f}"
        if worst.returned < REFERENCE_RECALL:
            problem = f"returns {format_number(worst.returned, 'selectivity')} of the rows"
        yield f"{problem} with the filter {_filter_name(worst)}"


def _filter_name(search: FilteredSearch) -> str:
    return f"`{search.name}`" if search.name else f"of {format_number(search.selectivity, 'selectivity')}"
