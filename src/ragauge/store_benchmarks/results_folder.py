"""Files of a benchmark: all output formats, the results folder of `bench`, and reading it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.summaries import Latency
from ragauge.files.json_files import read_json
from ragauge.files.serialization import from_data as noun_from_data
from ragauge.files.serialization import plain, without_nan
from ragauge.files.source import Source
from ragauge.output.formats import Kind, written
from ragauge.output.numbers import number
from ragauge.output.page import vega
from ragauge.output.terminal import csv_text
from ragauge.store_benchmarks.analysis import placed
from ragauge.store_benchmarks.filter_results import (
    FilterKey,
    list_filters,
    operating_points,
    passes_filter,
    points_with_filter,
)
from ragauge.store_benchmarks.report import latex, markdown, page
from ragauge.store_benchmarks.report_text import enough, verdict
from ragauge.store_benchmarks.results import Point, Sweep, told

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


KEPT = "sweep.json"
"""Name of the file in the results folder that contains everything."""
HEAD = 200
"""Number of characters at the start of a file that are searched for the schema."""


def _json(sweep: Sweep) -> str:
    return json.dumps(as_data(sweep), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


KINDS: Mapping[str, Kind[Sweep]] = {
    "html": Kind(".html", "one self-contained page", lambda found: page(found, vega())),
    "json": Kind(".json", "everything, by a published schema", _json),
    "csv": Kind(".csv", "a row for each configuration", points_csv),
    "loads": Kind(".csv", "a row for each load of each configuration", loads_csv),
    "filters": Kind(".csv", "a row for each filter of each configuration", filters_csv),
    "markdown": Kind(".md", "tables for a wiki or a pull request", markdown),
    "latex": Kind(".tex", "a table for a paper: booktabs, best in bold", latex),
}
"""Output formats by name; an ending selects the first format with it."""


def write_folder(sweep: Sweep, folder: Path) -> tuple[list[str], list[str]]:
    """Write all files of the results folder.

    Returns the names of the files, and notes on those that could not be written.
    """
    wanted = {"json": KEPT, "csv": "points.csv", "markdown": "report.md", "html": "report.html"}
    if any(one.loads for one in sweep.points):
        wanted["loads"] = "loads.csv"
    if any(one.filters for one in sweep.points):
        wanted["filters"] = "filters.csv"
    files, notes = [], []
    for kind, name in wanted.items():
        try:
            written(sweep, KINDS[kind], folder / name)
            files.append(name)
        except MissingExtra as missing:
            notes.append(f"no {name}: {missing.message} ({missing.hint})")
    return files, notes


def found_in(path: str) -> str | None:
    """Return the benchmark file at a path, which may be a results folder.

    None if there is none.
    """
    place = Path(path)
    if place.is_dir():
        place = place / KEPT
    if place.suffix != ".json" or not place.is_file():
        return None
    with place.open(encoding="utf-8", errors="replace") as file:
        return str(place) if f'"{SCHEMA.partition("/")[0]}/' in file.read(HEAD) else None


def read_sweep(path: str) -> Sweep:
    """Read a benchmark, and compute its frontiers again.

    Earlier versions labelled some series differently.
    """
    return placed(from_data(read_json(Source(path)), file=path))


def from_data(data: Any, file: str | None = None) -> Sweep:
    """Build a benchmark from its JSON data; derived values are computed again."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        told = data.get("schema") if isinstance(data, Mapping) else None
        raise BadInput(
            f"this is not a benchmark; expected the schema {SCHEMA!r}, got {told!r}",
            file=file,
            hint="sweep.json of `ragauge bench`",
        )
    return noun_from_data(Sweep, data, file=file or "sweep.json")
