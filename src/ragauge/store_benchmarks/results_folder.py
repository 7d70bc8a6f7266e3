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
from ragauge.files.serialization import from_json_data, replace_nan, to_plain_data
from ragauge.files.source import InputFile
from ragauge.output.formats import OutputFormat, write_format
from ragauge.output.numbers import format_exact
from ragauge.output.page import load_vega_script
from ragauge.output.terminal import render_csv_rows
from ragauge.store_benchmarks.analysis import with_frontiers
from ragauge.store_benchmarks.filter_results import (
    FilterKey,
    list_filters,
    operating_points,
    passes_filter,
    points_with_filter,
)
from ragauge.store_benchmarks.report import render_benchmark_html, render_benchmark_latex, render_benchmark_markdown
from ragauge.store_benchmarks.report_text import find_sufficient_recalls, summary_sentences
from ragauge.store_benchmarks.results import MeasuredConfiguration, StoreBenchmark, format_option

LATENCY_FIELDS = tuple(one.name for one in fields(Latency))
BUILD_FIELDS = ("insert_seconds", "index_seconds", "disk_bytes", "memory_bytes", "cold_open_ms", "cold_first_ms")


def render_points_csv(sweep: StoreBenchmark) -> str:
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
    header += [*BUILD_FIELDS, "bytes_per_vector", "cost_per_million", "frontier", "series_frontier"]
    header += ["floor_ms", "switches", "steal", "doubts", "notes", "made", "reused"]
    own = {place for places in sweep.frontiers.values() for place in places}
    rows = []
    for place, one in enumerate(points):
        made, clock = one.configuration, one.clock
        rows.append(
            [
                *(made.series, made.store, made.name),
                *(_option_cell(made.build, name) for name in build),
                *(_option_cell(made.search, name) for name in search),
                *(format_exact(one.quality.get(name)) for name in quality),
                *(format_exact(one.relevance.get(name)) for name in relevance),
                *(format_exact(one.qps), format_exact(one.qps_spread), *_latency_cells(one.latency)),
                *(format_exact(getattr(one.build, name)) for name in BUILD_FIELDS),
                *(format_exact(one.build.bytes_per_vector), format_exact(one.cost_per_million)),
                *(str(place in set(sweep.frontier)).lower(), str(place in own).lower()),
                *(format_exact(clock.floor_ms), str(clock.switches), format_exact(clock.steal)),
                *("; ".join(clock.doubts), "; ".join(one.notes), one.made, str(one.reused).lower()),
            ]
        )
    return render_csv_rows(header, rows)


def render_loads_csv(sweep: StoreBenchmark) -> str:
    """Render one row per load test, with latency from the scheduled and the send time."""
    header = ["series", "configuration", "clients", "rate", "qps", "kept_up", "late"]
    header += [*_latency_columns(), *_latency_columns("service_"), "note", "doubts", "made", "reused"]
    return render_csv_rows(header, (row for one in sweep.points for row in _load_rows(one)))


def _load_rows(one: MeasuredConfiguration) -> Iterator[list[str]]:
    for load in one.loads:
        yield [
            *(one.configuration.series, str(one.configuration), str(load.clients), format_exact(load.rate)),
            *(format_exact(load.qps), str(load.kept_up).lower(), format_exact(load.late)),
            *(*_latency_cells(load.latency), *_latency_cells(load.service), load.note, "; ".join(load.doubts)),
            *(load.made, str(load.reused).lower()),
        ]


def render_filters_csv(sweep: StoreBenchmark) -> str:
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
                    *(one.name, format_exact(one.selectivity), str(one.matching)),
                    *(point.configuration.series, str(point.configuration)),
                    *(str(point.configuration in chosen).lower(), format_exact(one.recall), format_exact(one.returned)),
                    *(str(one.wrong), format_exact(one.qps), format_exact(one.qps_spread), str(one.repeats)),
                    *(*_latency_cells(one.latency), "; ".join(one.doubts), one.made, str(one.reused).lower()),
                ]
            )
    return render_csv_rows(header, rows)


def _latency_columns(before: str = "") -> list[str]:
    return [f"{before}{name}" if name == "n" else f"{before}{name}_ms" for name in LATENCY_FIELDS]


def _latency_cells(found: Latency) -> list[str]:
    return [format_exact(getattr(found, name)) for name in LATENCY_FIELDS]


def _option_cell(options: Any, name: str) -> str:
    return format_option(options[name]) if name in options else ""


BENCHMARK_SCHEMA = "ragauge-sweep/1"
"""Schema version of the data; a new number means that fields were removed or changed their meaning."""


def to_benchmark_data(sweep: StoreBenchmark) -> dict[str, Any]:
    """Return the benchmark as plain data; NaN becomes None."""
    data = {
        "schema": BENCHMARK_SCHEMA,
        "verdict": summary_sentences(sweep),
        **_record_fields(sweep),
        "points": [point_data(one) for one in sweep.points],
        "enough": [one._asdict() for one in find_sufficient_recalls(sweep)],
        "with_filter": [_filter_data(sweep, key) for key in list_filters(sweep)],
    }
    return dict(replace_nan(to_plain_data(data)))


def point_data(point: MeasuredConfiguration) -> dict[str, Any]:
    """Return one configuration as plain data, with derived values."""
    return {
        **_record_fields(point),
        "series": point.configuration.series,
        "qps": point.qps,
        "loads": [{**_record_fields(one), "kept_up": one.kept_up} for one in point.loads],
        "filters": [{**_record_fields(one), "qps": one.qps} for one in point.filters],
    }


def _filter_data(sweep: StoreBenchmark, key: FilterKey) -> dict[str, Any]:
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


def _record_fields(record: Any) -> Any:
    """Convert a record and the records in it to plain data."""
    if is_dataclass(record):
        return {one.name: _record_fields(getattr(record, one.name)) for one in fields(record)}
    if isinstance(record, Mapping):
        return {str(name): _record_fields(one) for name, one in record.items()}
    return [_record_fields(one) for one in record] if isinstance(record, list | tuple) else record


BENCHMARK_FILE = "sweep.json"
"""Name of the file in the results folder that contains everything."""
SCHEMA_SEARCH_CHARS = 200
"""Number of characters at the start of a file that are searched for the schema."""


def _render_benchmark_json(sweep: StoreBenchmark) -> str:
    return json.dumps(to_benchmark_data(sweep), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


BENCHMARK_FORMATS: Mapping[str, OutputFormat[StoreBenchmark]] = {
    "html": OutputFormat(
        ".html", "one self-contained page", lambda found: render_benchmark_html(found, load_vega_script())
    ),
    "json": OutputFormat(".json", "everything, by a published schema", _render_benchmark_json),
    "csv": OutputFormat(".csv", "a row for each configuration", render_points_csv),
    "loads": OutputFormat(".csv", "a row for each load of each configuration", render_loads_csv),
    "filters": OutputFormat(".csv", "a row for each filter of each configuration", render_filters_csv),
    "markdown": OutputFormat(".md", "tables for a wiki or a pull request", render_benchmark_markdown),
    "latex": OutputFormat(".tex", "a table for a paper: booktabs, best in bold", render_benchmark_latex),
}
"""Output formats by name; an ending selects the first format with it."""


def write_benchmark_folder(sweep: StoreBenchmark, folder: Path) -> tuple[list[str], list[str]]:
    """Write all files of the results folder.

    Returns the names of the files, and notes on those that could not be written.
    """
    wanted = {"json": BENCHMARK_FILE, "csv": "points.csv", "markdown": "report.md", "html": "report.html"}
    if any(one.loads for one in sweep.points):
        wanted["loads"] = "loads.csv"
    if any(one.filters for one in sweep.points):
        wanted["filters"] = "filters.csv"
    files, notes = [], []
    for kind, name in wanted.items():
        try:
            write_format(sweep, BENCHMARK_FORMATS[kind], folder / name)
            files.append(name)
        except MissingExtra as missing:
            notes.append(f"no {name}: {missing.message} ({missing.hint})")
    return files, notes


def find_benchmark_file(path: str) -> str | None:
    """Return the benchmark file at a path, which may be a results folder.

    None if there is none.
    """
    place = Path(path)
    if place.is_dir():
        place = place / BENCHMARK_FILE
    if place.suffix != ".json" or not place.is_file():
        return None
    with place.open(encoding="utf-8", errors="replace") as file:
        return str(place) if f'"{BENCHMARK_SCHEMA.partition("/")[0]}/' in file.read(SCHEMA_SEARCH_CHARS) else None


def read_benchmark(path: str) -> StoreBenchmark:
    """Read a benchmark, and compute its frontiers again.

    Earlier versions labelled some series differently.
    """
    return with_frontiers(from_benchmark_data(read_json(InputFile(path)), file=path))


def from_benchmark_data(data: Any, file: str | None = None) -> StoreBenchmark:
    """Build a benchmark from its JSON data; derived values are computed again."""
    if not isinstance(data, Mapping) or data.get("schema") != BENCHMARK_SCHEMA:
        told = data.get("schema") if isinstance(data, Mapping) else None
        raise BadInput(
            f"this is not a benchmark; expected the schema {BENCHMARK_SCHEMA!r}, got {told!r}",
            file=file,
            hint="sweep.json of `ragauge bench`",
        )
    return from_json_data(StoreBenchmark, data, file=file or "sweep.json")
