"""Acceptance of stores: which of them pass all requested rates, filters and updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ragauge.output.terminal import format_share
from ragauge.store_benchmarks.filter_results import store_filter_results
from ragauge.store_benchmarks.results import REFERENCE_RECALL, FilteredSearch, MeasuredConfiguration, StoreBenchmark

EXTRA_STAGES = ("load", "filters", "changes")
"""Stages that are measured in addition to searching."""


def has_extra_stages(sweep: StoreBenchmark) -> bool:
    """Return whether rates, filters or updates were requested."""
    return any(
        one.filters or one.changes or one.mixed or one.unsupported or any(load.rate is not None for load in one.loads)
        for one in sweep.points
        if not one.is_floor
    ) or any(one.stage in EXTRA_STAGES for one in sweep.failures)


def find_failing_stores(sweep: StoreBenchmark, stores: Iterable[str]) -> dict[str, list[str]]:
    """Return the stores that fail a requested rate, filter or update, and why.

    A store passes a filter if it does so at its operating point under that filter.
    """
    if not has_extra_stages(sweep):
        return {}
    found = {}
    for series in stores:
        measured = [one for one in sweep.points if one.configuration.series == series and _has_extra_results(one)]
        reasons = [reason for one in measured for reason in _failure_reasons(one)]
        reasons += _filter_reasons(store_filter_results(sweep, series))
        broken = [one for one in sweep.failures if one.configuration.series == series and one.stage in EXTRA_STAGES]
        reasons += [f"{one.stage} failed" for one in broken]
        if not measured and not reasons:
            reasons = ["not measured"]
        if reasons:
            found[series] = list(dict.fromkeys(reasons))
    return found


def _has_extra_results(point: MeasuredConfiguration) -> bool:
    return bool(point.filters or point.changes or point.mixed or point.loads or point.unsupported)


def _failure_reasons(point: MeasuredConfiguration) -> Iterator[str]:
    """Yield the rates and updates that a configuration fails or does not support."""
    yield from ("cannot be put under load" if one == "load" else f"cannot {one}" for one in point.unsupported)
    short = [load.rate for load in point.loads if load.rate is not None and not load.kept_up]
    if short:
        yield f"does not sustain {min(short):,.4g} queries per second"
    for one in point.changes:
        if one.visible < 1:
            yield f"the next search misses {format_share(1 - one.visible)} of the {one.operation}s"
    if point.mixed is not None and point.mixed.recall < REFERENCE_RECALL:
        yield f"recall {point.mixed.recall:.3f} during inserts"


def _filter_reasons(filters: Sequence[FilteredSearch]) -> Iterator[str]:
    """Yield why a store fails its filters.

    The filter with the lowest recall is named, and one with which rows that do not match are returned.
    """
    wrong = [one for one in filters if one.wrong]
    if wrong:
        yield f"returns rows that do not match the filter {_filter_name(wrong[0])}"
    worst = min(filters, key=lambda one: one.recall, default=None)
    if worst is not None and worst.recall < REFERENCE_RECALL - 1e-9:
        what = f"returns {format_share(worst.returned)} of the rows" if worst.returned < REFERENCE_RECALL else ""
        yield f"{what or f'recall {worst.recall:.3f}'} with the filter {_filter_name(worst)}"


def _filter_name(one: FilteredSearch) -> str:
    return f"`{one.name}`" if one.name else f"of {format_share(one.selectivity)}"
