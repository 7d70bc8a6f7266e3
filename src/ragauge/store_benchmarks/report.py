"""HTML report of a benchmark: summary, frontier, tables and charts, details per store, and provenance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ragauge.core.text import one_line
from ragauge.files.serialization import without_nan
from ragauge.output.latex import escaped
from ragauge.output.markdown import folded, grid, safe
from ragauge.output.numbers import count_noun, milliseconds
from ragauge.output.page import Cell, Section, Sheet, document
from ragauge.output.report import Drawing
from ragauge.output.terminal import cell, fitting, plain_table, shortened
from ragauge.store_benchmarks import report_text as words
from ragauge.store_benchmarks.load_and_cost_charts import drawn
from ragauge.store_benchmarks.report_tables import Figure, Part, filters, frontier, parts, reached
from ragauge.store_benchmarks.report_text import (
    DOUBT,
    MEGABYTE,
    about,
    chosen,
    describe_filters,
    doubts,
    failed,
    floor,
    meant,
    megabytes,
    most,
    named,
    ranked,
    recalled,
    seconds,
    unmeasured,
    verdict,
)
from ragauge.store_benchmarks.results import LEVEL, Point, Sweep, told
from ragauge.store_benchmarks.reused_results import describe_mixture, describe_reuse

MOST = 4


def tables(sweep: Sweep, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render all tables for a terminal, and list the columns that do not fit."""
    pieces: list[RenderableType] = [cell(f"{sweep.data}: {about(sweep)}", "bold"), Text("")]
    left: dict[str, None] = {}
    for part in parts(sweep, brief=True):
        flat = _grouped(part)
        kept = fitting(flat.header, flat.texts, width, flat.goes)
        left.update({flat.header[i]: None for i in range(len(flat.header)) if i not in kept and flat.header[i]})
        pieces += [cell(part.title, "bold"), _terminal_table(flat, kept, width), Text("")]
    pieces += [cell(line) for line in verdict(sweep)]
    return pieces, list(left)


def legends(sweep: Sweep, width: int) -> list[str]:
    """List the legends of the columns that fit a terminal.

    A last line says how many frontier configurations are omitted.
    """
    told = {part.title: [line for line in part.legend if _of(line, part, width)] for part in parts(sweep, brief=True)}
    lines = [f"{title.rstrip('?')}: {'; '.join(legend)}" for title, legend in told.items() if legend]
    shown, known = (len(frontier(sweep, brief=brief).rows) for brief in (True, False))
    left = f"{known - shown} more settings are worth having; the page and the tables in files have them"
    return [*lines, left] if shown < known else lines


def _of(line: str, part: Part, width: int) -> bool:
    """Return whether a legend line refers to a displayed column.

    A line such as `cold is …` is omitted without the column `cold ms`.
    """
    flat = _grouped(part)
    kept = fitting(flat.header, flat.texts, width, flat.goes)
    gone = [title.split()[0] for i, title in enumerate(flat.header) if i not in kept and title]
    return not any(line.startswith((f"{word} is ", f"{word}: ")) for word in gone)


def notes(sweep: Sweep) -> list[str]:
    """List notes on the results, and on which of them are not reliable."""
    lines = []
    least = floor(sweep)
    if math.isfinite(least):
        but = " but your own" if any(":" in one.configuration.store for one in sweep.points) else ""
        lines.append(
            f"a store of ours that does nothing takes {milliseconds(least)} ms a query (checks and ids): the floor of "
            f"every store here{but}"
        )
    if reuse := describe_reuse(sweep):
        lines.append(reuse)
    found = doubts(sweep)
    if found:
        told = ", ".join(f"{name} ({why})" for name, why in found[:MOST])
        more = f", and {len(found) - MOST} more" if len(found) > MOST else ""
        lines.append(f"{DOUBT} marks doubtful times: {told}{more}; measure them again with --remeasure doubtful")
    said: dict[str, list[str]] = {}
    for one in sweep.points:
        for note in () if one.is_floor else one.notes:
            said.setdefault(note, []).append(named(sweep, one))
    for note, who in said.items():
        more = f" and {count_noun(len(who) - 1, 'other configuration')}" if len(who) > 1 else ""
        lines.append(f"{who[0]}{more}: {note}")
    return [*dict.fromkeys([*lines, *sweep.notes])]


def broken(sweep: Sweep) -> list[str]:
    """Describe what could not be measured, with the original error messages."""
    return [f"{who}, {stage}: {why}" + (f" ({hint})" if hint else "") for who, stage, why, hint in failed(sweep)]


def _grouped(part: Part) -> Part:
    """Add a heading row per store above its configurations.

    If a store has only one row, its name is put in that row.
    """
    if not part.groups:
        return Part(part.id, part.title, part.header, _once(part.rows), part.legend, part.goes)
    rows: list[Sequence[Figure]] = []
    before = ""
    for name, row in zip(part.groups, part.rows, strict=True):
        if part.groups.count(name) == 1:
            rows.append([Figure(f"{name} {row[0].text}".strip()), *row[1:]])
            continue
        if name != before:
            rows.append([Figure(name), *(Figure("") for _ in row[1:])])
        rows.append([Figure(f"  {row[0].text}"), *row[1:]])
        before = name
    return Part(part.id, part.title, part.header, rows, part.legend, part.goes)


def _once(rows: Sequence[Sequence[Figure]]) -> list[Sequence[Figure]]:
    found: list[Sequence[Figure]] = []
    before = None
    for row in rows:
        found.append([Figure(""), *row[1:]] if row[0].text == before else row)
        before = row[0].text
    return found


def _terminal_table(part: Part, kept: Sequence[int], width: int) -> Table:
    table = plain_table([part.header[i] for i in kept])
    for column, i in zip(table.columns, kept, strict=True):
        if part.header[i] == "store":
            column.justify = "left"
    for name, row in zip(shortened(part.header, part.texts, kept, width), part.rows, strict=True):
        head = not row[0].text.startswith(" ") and not any(one.text for one in row[1:])
        cells = [cell(row[i].text, "bold" if row[i].best else "") for i in kept if i]
        table.add_row(cell(name, "bold" if head else ""), *cells)
    return table


def summary(sweep: Sweep) -> str:
    """Summarise the number of configurations and stores in a phrase."""
    real = sum(not one.is_floor for one in sweep.points)
    return (
        f"{count_noun(real, 'configuration')} of {count_noun(len(sweep.frontiers), 'store')}"
        if real
        else "the harness alone"
    )


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
            "notes": notes(sweep),
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


LATENCY = {"p50": "p50 (ms)", "p90": "p90", "p95": "p95", "p99": "p99"}
"""Latency percentiles of the representative configuration, and their column titles."""
UNRELIABLE = f"{DOUBT}: the time is not reliable."
"""Caption sentence that explains the mark of unreliable times."""


def latex(sweep: Sweep) -> str:
    """Render one row per store: recall, QPS at each recall level, latency and costs."""
    part = reached(sweep)
    levels = len([title for title in part.header if title.startswith("QPS")])
    header = ["Store", "Recall", *part.header[1 : levels + 1], "MRR", *LATENCY.values(), "Build (s)", "Memory (MB)"]
    table = [[Figure(row[0].text), *_figures(sweep, row[0].text, row[1 : levels + 1])] for row in part.rows]
    least = [min((row[i].value for row in table if math.isfinite(row[i].value)), default=math.nan) for i in (-2, -1)]
    rows = []
    for row in table:
        cells = [
            *row[:-2],
            *(one._replace(best=len(table) > 1 and one.value == low) for one, low in zip(row[-2:], least, strict=True)),
        ]
        rows.append([escaped(cells[0].text), *map(_set, cells[1:])])
    dated = part.header[-1] == "reused"
    if dated:
        header.append("Reused")
        rows = [[*row, escaped(own[-1].text)] for row, own in zip(rows, part.rows, strict=True)]
    caption = (
        f"{escaped(sweep.data)}: {count_noun(sweep.vectors, 'vector')} of {sweep.dimension} dimensions, "
        f"{count_noun(sweep.queries, 'query', 'queries')}, {escaped(sweep.metric)}, $k = {sweep.k}$, "
        f"{count_noun(sweep.threads, 'thread')}. Recall: the most that any setting has ({escaped(meant(sweep.recall))}). "
        "Queries per second of one client, interpolated along each store's frontier. MRR (all exact neighbours count "
        "as relevant), latency, build time and memory: the fastest configuration with recall "
        f"{LEVEL:g}, else the one with the most recall. Best in bold."
    )
    if any(one.text.endswith(DOUBT) for row in table for one in row[1:]):
        caption += f" {UNRELIABLE}"
    if dated:
        caption += " Reused: when a result was made (UTC); no: measured by the last command."
    if describe_mixture(sweep):
        caption += " Reused results are compared with new ones."
    return "\n".join(
        [r"% \usepackage{booktabs}", *_latex_table(caption, "tab:stores", header, rows), *_filters(sweep), ""]
    )


def _filters(sweep: Sweep) -> list[str]:
    """Render the operating points with each filter as a separate table, if any."""
    part = filters(sweep)
    if not part.rows:
        return []
    titles = ["filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "repeats"]
    titles += ["reused"] * ("reused" in part.header)
    places = [part.header.index(title) for title in titles]
    rows = [[escaped(row[i].text) if i < 2 or i == places[-1] else _set(row[i]) for i in places] for row in part.rows]
    header = [
        title.replace(" ms", " (ms)") if title[1:2].isdigit() else title[:1].upper() + title[1:] for title in titles
    ]
    said = " ".join(describe_filters(sweep, ranked(sweep)))
    caption = (
        f"{escaped(said)} Search with a filter, each store at its fastest setting with recall {LEVEL:g} under the "
        "filter, else with the most recall; all queries of a row share the filter. The fastest with that recall in "
        f"bold. {UNRELIABLE}"
    )
    return _latex_table(caption, "tab:filters", header, rows)


def _latex_table(caption: str, label: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return "    " + " & ".join(one.ljust(w) for one, w in zip(cells, wide, strict=True)).rstrip() + r" \\"

    return [
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \label{{{label}}}",
        rf"  \begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"    \toprule",
        line(header),
        r"    \midrule",
        *map(line, rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _figures(sweep: Sweep, series: str, speeds: Sequence[Figure]) -> list[Figure]:
    point = chosen(sweep, series)
    mrr = math.nan if point is None else point.quality.get(f"mrr@{sweep.k}", math.nan)
    times = [math.nan if point is None else getattr(point.latency, kind) for kind in LATENCY]
    size = math.nan if point is None or point.build.memory_bytes is None else point.build.memory_bytes / MEGABYTE
    built = math.nan if point is None else point.build.seconds
    doubt = DOUBT if point is not None and point.clock.doubts else ""
    return [
        Figure(recalled(most(sweep, series))),
        *(one if math.isfinite(one.value) else Figure("--") for one in speeds),
        Figure(recalled(mrr), mrr),
        *(Figure(milliseconds(value) + doubt, value) for value in times),
        Figure(seconds(built), built),
        Figure(megabytes(size), size),
    ]


def _set(one: Figure) -> str:
    text = "--" if one.text == "-" else one.text.replace(",", "{,}")
    return rf"\textbf{{{text}}}" if one.best else text


def markdown(sweep: Sweep) -> str:
    """Render the report as Markdown."""
    lines = [f"# {safe(sweep.data)}", "", safe(f"{about(sweep)}."), "", safe(" ".join(verdict(sweep))), ""]
    for part in parts(sweep):
        lines += [f"## {safe(part.title)}", "", *_grid(part), "", *_legend(part)]
    lines += [*folded("Every configuration", _grid(frontier(sweep, every=True))), ""]
    tried = filters(sweep, every=True)
    lines += [*folded(tried.title, _grid(tried)), ""] if tried.rows else []
    missing = unmeasured(sweep)
    if missing:
        header = ["store", "stage", "reason", "remedy"]
        lines += ["## Not measured", "", *grid(header, missing, numbers=False), ""]
    said = notes(sweep)
    lines += ["## Notes", "", *(f"- {safe(line)}" for line in said), ""] if said else []
    kept = json.dumps(without_nan(dict(sweep.circumstances)), indent=2, ensure_ascii=False, default=str)
    fence = "~" * (3 + kept.count("~~~"))
    lines += [*folded("Circumstances", [f"{fence}json", *kept.splitlines(), fence]), ""]
    return "\n".join(lines)


def _grid(part: Part) -> list[str]:
    cells = part.texts
    for row, name in zip(cells, part.groups, strict=False):
        row[0] = f"{name} {row[0]}".strip()
    strong = {(at, i) for at, row in enumerate(part.rows) for i, one in enumerate(row) if one.best}
    return grid(part.header, cells, strong=strong)


def _legend(part: Part) -> list[str]:
    said = "; ".join(part.legend)
    return [safe(f"{said[:1].upper()}{said[1:]}."), ""] if said else []
