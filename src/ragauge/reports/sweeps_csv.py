"""CSV tables of a benchmark: one row per configuration, per load test, or per filter. Unknown values are empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ragauge.outcomes import Latency
from ragauge.reports.sweeps_filters import list_filters, operating_points, points_with_filter
from ragauge.reports.tables import csv_text, number
from ragauge.sweeps import Point, Sweep, told

LATENCY = tuple(one.name for one in fields(Latency))
BUILD = ("insert_seconds", "index_seconds", "disk_bytes", "memory_bytes", "cold_open_ms", "cold_first_ms")


def points_csv(sweep: Sweep) -> str:
    """Render one row per configuration, with one column per build and search option."""
    points = sweep.points
    build, search = (
        list(dict.fromkeys(name for one in points for name in getattr(one.configuration, part)))
        for part in ("build", "search")
    )
    quality, relevance = (
        list(dict.fromkeys(name for one in points for name in getattr(one, part))) for part in ("quality", "relevance")
    )
    header = ["series", "store", "name", *(f"build.{one}" for one in build), *(f"search.{one}" for one in search)]
    header += [*quality, *(f"relevance.{one}" for one in relevance), "qps", "qps_spread", *_latency_columns()]
    header += [*BUILD, "bytes_per_vector", "cost_per_million", "frontier", "series_frontier"]
    header += ["floor_ms", "switches", "steal", "doubts", "notes", "made", "reused"]
    own = {place for places in sweep.frontiers.values() for place in places}
    rows = []
    for place, one in enumerate(points):
        made, clock = one.configuration, one.clock
        rows.append(
            [
                *(made.series, made.store, made.name),
                *(_option(made.build, name) for name in build),
                *(_option(made.search, name) for name in search),
                *(number(one.quality.get(name)) for name in quality),
                *(number(one.relevance.get(name)) for name in relevance),
                *(number(one.qps), number(one.qps_spread), *_latency(one.latency)),
                *(number(getattr(one.build, name)) for name in BUILD),
                *(number(one.build.bytes_per_vector), number(one.cost_per_million)),
                *(str(place in set(sweep.frontier)).lower(), str(place in own).lower()),
                *(number(clock.floor_ms), str(clock.switches), number(clock.steal)),
                *("; ".join(clock.doubts), "; ".join(one.notes), one.made, str(one.reused).lower()),
            ]
        )
    return csv_text(header, rows)


def loads_csv(sweep: Sweep) -> str:
    """Render one row per load test, with latency from the scheduled and the send time."""
    header = ["series", "configuration", "clients", "rate", "qps", "kept_up", "late"]
    header += [*_latency_columns(), *_latency_columns("service_"), "note", "doubts", "made", "reused"]
    return csv_text(header, (row for one in sweep.points for row in _loads(one)))


def _loads(one: Point) -> Iterator[list[str]]:
    for load in one.loads:
        yield [
            *(one.configuration.series, str(one.configuration), str(load.clients), number(load.rate)),
            *(number(load.qps), str(load.kept_up).lower(), number(load.late)),
            *(*_latency(load.latency), *_latency(load.service), load.note, "; ".join(load.doubts)),
            *(load.made, str(load.reused).lower()),
        ]


def filters_csv(sweep: Sweep) -> str:
    """Render one row per configuration and filter.

    `operating_point` marks the configuration chosen for a store.
    """
    header = ["filter", "selectivity", "matching", "series", "configuration", "operating_point", "recall", "returned"]
    header += ["wrong", "qps", "qps_spread", "repeats", *_latency_columns(), "doubts", "made", "reused"]
    rows = []
    for key in list_filters(sweep):
        chosen = [point.configuration for point in operating_points(sweep, key)]
        for point in points_with_filter(sweep, key):
            (one,) = point.filters
            rows.append(
                [
                    *(one.name, number(one.selectivity), str(one.matching)),
                    *(point.configuration.series, str(point.configuration)),
                    *(str(point.configuration in chosen).lower(), number(one.recall), number(one.returned)),
                    *(str(one.wrong), number(one.qps), number(one.qps_spread), str(one.repeats)),
                    *(*_latency(one.latency), "; ".join(one.doubts), one.made, str(one.reused).lower()),
                ]
            )
    return csv_text(header, rows)


def _latency_columns(before: str = "") -> list[str]:
    return [f"{before}{name}" if name == "n" else f"{before}{name}_ms" for name in LATENCY]


def _latency(found: Latency) -> list[str]:
    return [number(getattr(found, name)) for name in LATENCY]


def _option(options: Any, name: str) -> str:
    return told(options[name]) if name in options else ""
