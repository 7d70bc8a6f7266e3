"""HTML report of a benchmark: summary, frontier, tables and charts, details per store, and provenance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ragauge.reports import sweeps as reports
from ragauge.reports import sweeps_words as words
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.sweeps import drawn
from ragauge.reports.page import Section, document
from ragauge.reports.page.sections import Cell, Sheet
from ragauge.reports.sweeps_rows import filters, frontier, parts
from ragauge.reports.sweeps_tables import Figure, Part
from ragauge.reports.tables import one_line
from ragauge.sweeps import Point, Sweep, told

SECTIONS: Mapping[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "frontier": ("Recall against speed", "Frontier", ("frontier",), ("reached",)),
    "points": ("Worth having", "Settings", (), ("frontier",)),
    "quality": ("Quality", "Quality", (), ("quality",)),
    "latency": ("Latency", "Latency", ("recall_latency",), ("latency",)),
    "costs": ("What it takes", "Costs", ("costs",), ()),
    "relevance": ("Does it matter for answers?", "Answers", ("relevance",), ("relevance",)),
    "load": ("Under load", "Load", ("rates", "clients"), ("loads",)),
    "filters": ("With a filter", "Filters", ("filter_latency", "filters"), ("filters",)),
    "changes": ("Changes", "Changes", (), ("changes", "mixed")),
}
"""Title, short title, charts and tables of each section, by id."""


def page(sweep: Sweep, vega: str | None = None) -> str:
    """Render the HTML report.

    `vega` is the result of `vega_script`, which avoids building it again.
    """
    charts = drawn(sweep)
    middle = _middle(sweep, charts)
    said = words.verdict(sweep)
    stores = list(_stores(sweep))
    ends = [
        Section("failures", "Not measured", "Not measured"),
        *([Section("stores", "Store by store", "Stores")] if stores else []),
        Section("again", "Circumstances", "Circumstances"),
    ]
    return document(
        "sweep.html",
        {
            "title": f"Vector stores on {sweep.data}",
            "kind": "bench",
            "made": str(sweep.circumstances.get("made") or ""),
            "sections": [*middle, *ends],
            "about": words.facts(sweep),
            "headline": said[0],
            "more": said[1:],
            "chart_sections": middle,
            "failures": words.unmeasured(sweep),
            "stores": stores,
            "circumstances": _circumstances(sweep),
            "notes": reports.notes(sweep),
        },
        charts,
        vega=vega,
    )


def _middle(sweep: Sweep, charts: Mapping[str, Drawing]) -> list[Section]:
    """Return the sections for which there are charts or tables."""
    known = {part.id: _sheet(part) for part in parts(sweep)}
    found = []
    for place, (title, short, pictures, grids) in SECTIONS.items():
        sheets = [known[one] for one in grids if one in known]
        sheets = [replace(one, title="") if one.title == title else one for one in sheets]
        if place == "points" and sum(not one.is_floor for one in sweep.points) > len(sheets and sheets[0].rows):
            sheets.append(_sheet(frontier(sweep, every=True), folded=True))
        if place == "filters" and sheets:
            sheets.append(_sheet(filters(sweep, every=True), folded=True))
        mine = {one: charts[one] for one in pictures if one in charts}
        if sheets or mine:
            found.append(Section(place, title, short, mine, sheets, layout="pairs" if len(mine) > 1 else ""))
    return found


def _sheet(part: Part, *, folded: bool = False) -> Sheet:
    rows = []
    for i, row in enumerate(part.rows):
        first = Cell(part.groups[i], row[0].text) if part.groups else Cell(row[0].text)
        rows.append([first, *map(_cell, row[1:])])
    said = "; ".join(part.legend)
    legend = f"{said[:1].upper()}{said[1:]}." if said else ""
    return Sheet(part.header, rows, part.title, sortable=len(rows) > 1, legend=legend, folded=folded)


def _cell(one: Figure) -> Cell:
    return Cell(one.text, best=one.best, order=None if math.isnan(one.value) else one.value)


def _stores(sweep: Sweep) -> Iterator[Sheet]:
    """Yield the details of each store at its representative configuration."""
    for name in words.ranked(sweep):
        point = words.chosen(sweep, name)
        if point is not None:
            rows = [[key, value] for key, value in _facts(sweep, point) if value]
            yield Sheet(["", ""], rows, name, numbers=False, folded=True)


def _facts(sweep: Sweep, point: Point) -> Iterator[tuple[str, str]]:
    made, clock = point.build, point.clock
    yield "setting", words.options(point.configuration)
    for key, value in made.about.items():
        yield str(key), _told(value)
    yield "inserting", f"{words.seconds(made.insert_seconds)} s"
    yield "indexing", f"{words.seconds(made.index_seconds)} s"
    yield "bytes per vector", "" if math.isnan(made.bytes_per_vector) else f"{made.bytes_per_vector:,.0f}"
    for measure, value in point.quality.items():
        yield measure, "" if math.isnan(value) else words.recalled(value)
    yield "QPS from repeat to repeat", "" if math.isnan(point.qps_spread) else f"within {100 * point.qps_spread:.1f}%"
    yield (
        "put aside by the machine",
        f"{clock.switches:,} times, {100 * clock.steal:.1f}% of the time taken by the host",
    )
    yield "doubts", "; ".join(clock.doubts)
    yield "reused", f"made {point.made}" if point.reused else ""
    every = dict.fromkeys(note for one in words.of_series(sweep, point.configuration.series) for note in one.notes)
    yield "notes", "; ".join(every)


def _told(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_told(one)}" for key, one in value.items())
    return ", ".join(map(_told, value)) if isinstance(value, list | tuple) else one_line(told(value))


def _circumstances(sweep: Sweep) -> Sheet:
    facts = {
        "data": sweep.data,
        "vectors": f"{sweep.vectors:,} of {sweep.dimension:,}",
        "queries": f"{sweep.queries:,}",
        "metric": sweep.metric,
        "exact neighbours by": sweep.truth,
        "threads": sweep.threads,
        "repeats": sweep.repeats,
        **sweep.circumstances,
    }
    rows = [[str(name).replace("_", " "), _told(value)] for name, value in facts.items() if value not in (None, "", {})]
    return Sheet(["", ""], rows, numbers=False)
