"""Tables of a benchmark for CSV: configurations, load tests, and searches with a filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from ragauge.core.summaries import Latency
from ragauge.output.tables import Column, Row, Table, Value
from ragauge.store_benchmarks.filter_results import list_filters, operating_points, points_with_filter
from ragauge.store_benchmarks.results import Backlog, MeasuredConfiguration, StoreBenchmark, format_option

LATENCY_FIELDS = tuple(field.name for field in fields(Latency))
BUILD_FIELDS = (
    "build_seconds",
    "insert_seconds",
    "index_seconds",
    "disk_bytes",
    "memory_bytes",
    "cold_open_ms",
    "cold_first_ms",
)


def build_point_rows(result: StoreBenchmark) -> Table:
    """Build the table with one row per configuration, and one column per build and search option."""
    points = result.points
    build = _list_names(point.configuration.build for point in points)
    search = _list_names(point.configuration.search for point in points)
    quality = _list_names(point.quality for point in points)
    relevance = _list_names(point.relevance for point in points)
    names = ["series", "store", "name", *(f"build.{name}" for name in build), *(f"search.{name}" for name in search)]
    names += [*quality, *(f"relevance.{name}" for name in relevance), "qps", "qps_spread", *_latency_names()]
    names += [*BUILD_FIELDS, "bytes_per_vector", "cost_per_million", "frontier", "series_frontier"]
    names += ["floor_ms", "switches", "steal", "doubts", "notes", "made", "reused"]
    in_frontier = set(result.frontier)
    in_series_frontier = {index for indices in result.frontiers.values() for index in indices}
    rows: list[Row] = [
        [
            *(point.series, point.configuration.store, point.configuration.name),
            *(_format_option_of(point.configuration.build, name) for name in build),
            *(_format_option_of(point.configuration.search, name) for name in search),
            *(point.quality.get(name) for name in quality),
            *(point.relevance.get(name) for name in relevance),
            *(point.qps, point.qps_spread, *_latency_values(point.latency)),
            *(getattr(point.build, name) for name in BUILD_FIELDS),
            *(point.build.bytes_per_vector, point.cost_per_million),
            *(index in in_frontier, index in in_series_frontier),
            *(point.clock.floor_ms, point.clock.switches, point.clock.steal),
            *("; ".join(point.clock.doubts), "; ".join(point.notes), point.made, point.reused),
        ]
        for index, point in enumerate(points)
    ]
    return _build_table("points", names, rows)


def build_load_rows(result: StoreBenchmark) -> Table:
    """Build the table with one row per load test, with latency from the scheduled and the send time."""
    names = ["series", "configuration", "clients", "rate", "qps", "kept_up", "late"]
    names += [f"backlog_{field.name}" for field in fields(Backlog)]
    names += [*_latency_names(), *_latency_names("service_"), "note", "doubts", "made", "reused"]
    rows: list[Row] = [
        [
            *(point.series, str(point.configuration), load.clients, load.rate, load.qps, load.kept_up, load.late),
            *(None if load.backlog is None else getattr(load.backlog, field.name) for field in fields(Backlog)),
            *(*_latency_values(load.latency), *_latency_values(load.service)),
            *(load.note, "; ".join(load.doubts), load.made, load.reused),
        ]
        for point in result.points
        for load in point.loads
    ]
    return _build_table("loads", names, rows)


def build_filter_rows(result: StoreBenchmark) -> Table:
    """Build the table with one row per filter and configuration.

    `operating_point` marks the configuration chosen for a store.
    """
    names = ["filter", "selectivity", "matching", "series", "configuration", "operating_point", "recall", "returned"]
    names += ["wrong", "qps", "qps_spread", "repeats", *_latency_names(), "doubts", "made", "reused"]
    rows: list[Row] = []
    for key in list_filters(result):
        chosen = [point.configuration for point in operating_points(result, key)]
        rows += [_filter_row(point, point.configuration in chosen) for point in points_with_filter(result, key)]
    return _build_table("filters", names, rows)


def _filter_row(point: MeasuredConfiguration, is_operating_point: bool) -> Row:
    (search,) = point.filters
    return [
        *(search.name, search.selectivity, search.matching, point.series, str(point.configuration)),
        *(is_operating_point, search.recall, search.returned, search.wrong),
        *(search.qps, search.qps_spread, search.repeats, *_latency_values(search.latency)),
        *("; ".join(search.doubts), search.made, search.reused),
    ]


def _build_table(table_id: str, names: Iterable[str], rows: list[Row]) -> Table:
    return Table(table_id, [Column(name) for name in names], rows)


def _list_names(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _latency_names(prefix: str = "") -> list[str]:
    return [f"{prefix}{name}" if name == "n" else f"{prefix}{name}_ms" for name in LATENCY_FIELDS]


def _latency_values(latency: Latency) -> list[Value]:
    return [getattr(latency, name) for name in LATENCY_FIELDS]


def _format_option_of(options: Mapping[str, Any], name: str) -> str:
    return format_option(options[name]) if name in options else ""
