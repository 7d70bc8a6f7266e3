"""JSON data of a benchmark; `sweep.schema.json` in this package describes every field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ragauge.reports.overviews_data import plain
from ragauge.reports.sweeps_filters import FilterKey, list_filters, operating_points, passes_filter
from ragauge.reports.sweeps_words import enough, verdict
from ragauge.reports.tables import without_nan
from ragauge.sweeps import Point, Sweep

SCHEMA = "ragauge-sweep/1"
"""Schema version of the data; a new number means that fields were removed or changed their meaning."""


def as_data(sweep: Sweep) -> dict[str, Any]:
    """Return the benchmark as plain data; NaN becomes None."""
    data = {
        "schema": SCHEMA,
        "verdict": verdict(sweep),
        **_told(sweep),
        "points": [point_data(one) for one in sweep.points],
        "enough": [one._asdict() for one in enough(sweep)],
        "with_filter": [_filter_data(sweep, key) for key in list_filters(sweep)],
    }
    return dict(without_nan(plain(data)))


def point_data(point: Point) -> dict[str, Any]:
    """Return one configuration as plain data, with derived values."""
    return {
        **_told(point),
        "series": point.configuration.series,
        "qps": point.qps,
        "loads": [{**_told(one), "kept_up": one.kept_up} for one in point.loads],
        "filters": [{**_told(one), "qps": one.qps} for one in point.filters],
    }


def _filter_data(sweep: Sweep, key: FilterKey) -> dict[str, Any]:
    """Return the operating point of each store with a filter.

    Stores that pass it come first, by descending QPS.
    """
    chosen = operating_points(sweep, key)
    return {
        "name": key[0],
        "selectivity": key[1],
        "operating_points": [
            {
                "series": point.configuration.series,
                "configuration": str(point.configuration),
                "recall": point.filters[0].recall,
                "qps": point.qps,
                "passes": passes_filter(point.filters[0]),
            }
            for point in chosen
        ],
    }


def _told(record: Any) -> Any:
    """Convert a record and the records in it to plain data."""
    if is_dataclass(record):
        return {one.name: _told(getattr(record, one.name)) for one in fields(record)}
    if isinstance(record, Mapping):
        return {str(name): _told(one) for name, one in record.items()}
    return [_told(one) for one in record] if isinstance(record, list | tuple) else record
