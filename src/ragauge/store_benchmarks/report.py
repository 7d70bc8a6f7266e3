"""Report of a benchmark for terminal, Markdown, LaTeX and as a page."""

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
from ragauge.files.serialization import replace_nan
from ragauge.output.latex import escape_latex
from ragauge.output.markdown import details_block, escape_markdown, render_markdown_table
from ragauge.output.numbers import count_noun, format_milliseconds
from ragauge.output.page import Cell, PageSection, PageTable, render_page
from ragauge.output.report import Chart
from ragauge.output.terminal import borderless_table, fit_columns, shorten_names, terminal_cell
from ragauge.store_benchmarks import report_text
from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts
from ragauge.store_benchmarks.report_tables import (
    BenchmarkCell,
    BenchmarkTable,
    build_benchmark_tables,
    build_filter_table,
    build_frontier_table,
    build_recall_level_table,
)
from ragauge.store_benchmarks.report_text import (
    BYTES_PER_MEGABYTE,
    DOUBT_MARK,
    describe_benchmark,
    describe_filters,
    explain_recall,
    format_configuration,
    format_megabytes,
    format_recall,
    format_seconds,
    list_doubts,
    list_failures,
    list_unmeasured,
    max_recall,
    null_store_latency,
    rank_stores,
    representative_point,
    summary_sentences,
)
from ragauge.store_benchmarks.results import REFERENCE_RECALL, MeasuredConfiguration, StoreBenchmark, format_option
from ragauge.store_benchmarks.reused_results import describe_mixture, describe_reuse

MAX_DOUBTS_SHOWN = 4


def render_benchmark_tables(sweep: StoreBenchmark, width: int) -> tuple[list[RenderableType], list[str]]:
    """Render all tables for a terminal, and list the columns that do not fit."""
    pieces: list[RenderableType] = [terminal_cell(f"{sweep.data}: {describe_benchmark(sweep)}", "bold"), Text("")]
    left: dict[str, None] = {}
    for part in build_benchmark_tables(sweep, brief=True):
        flat = _group_by_store(part)
        kept = fit_columns(flat.header, flat.texts, width, flat.goes)
        left.update({flat.header[i]: None for i in range(len(flat.header)) if i not in kept and flat.header[i]})
        pieces += [terminal_cell(part.title, "bold"), _terminal_table(flat, kept, width), Text("")]
    pieces += [terminal_cell(line) for line in summary_sentences(sweep)]
    return pieces, list(left)


def list_legends(sweep: StoreBenchmark, width: int) -> list[str]:
    """List the legends of the columns that fit a terminal.

    A last line says how many frontier configurations are omitted.
    """
    told = {
        part.title: [line for line in part.legend if _is_legend_shown(line, part, width)]
        for part in build_benchmark_tables(sweep, brief=True)
    }
    lines = [f"{title.rstrip('?')}: {'; '.join(legend)}" for title, legend in told.items() if legend]
    shown, known = (len(build_frontier_table(sweep, brief=brief).rows) for brief in (True, False))
    left = f"{known - shown} more settings are worth having; the page and the tables in files have them"
    return [*lines, left] if shown < known else lines


def _is_legend_shown(line: str, part: BenchmarkTable, width: int) -> bool:
    """Return whether a legend line refers to a displayed column.

    A line such as `cold is …` is omitted without the column `cold ms`.
    """
    flat = _group_by_store(part)
    kept = fit_columns(flat.header, flat.texts, width, flat.goes)
    gone = [title.split()[0] for i, title in enumerate(flat.header) if i not in kept and title]
    return not any(line.startswith((f"{word} is ", f"{word}: ")) for word in gone)


def list_benchmark_notes(sweep: StoreBenchmark) -> list[str]:
    """List notes on the results, and on which of them are not reliable."""
    lines = []
    least = null_store_latency(sweep)
    if math.isfinite(least):
        but = " but your own" if any(":" in one.configuration.store for one in sweep.points) else ""
        lines.append(
            f"a store of ours that does nothing takes {format_milliseconds(least)} ms a query (checks and ids): the "
            f"floor of "
            f"every store here{but}"
        )
    if reuse := describe_reuse(sweep):
        lines.append(reuse)
    found = list_doubts(sweep)
    if found:
        told = ", ".join(f"{name} ({why})" for name, why in found[:MAX_DOUBTS_SHOWN])
        more = f", and {len(found) - MAX_DOUBTS_SHOWN} more" if len(found) > MAX_DOUBTS_SHOWN else ""
        lines.append(f"{DOUBT_MARK} marks doubtful times: {told}{more}; measure them again with --remeasure doubtful")
    said: dict[str, list[str]] = {}
    for one in sweep.points:
        for note in () if one.is_floor else one.notes:
            said.setdefault(note, []).append(format_configuration(sweep, one))
    for note, who in said.items():
        more = f" and {count_noun(len(who) - 1, 'other configuration')}" if len(who) > 1 else ""
        lines.append(f"{who[0]}{more}: {note}")
    return [*dict.fromkeys([*lines, *sweep.notes])]


def describe_failures(sweep: StoreBenchmark) -> list[str]:
    """Describe what could not be measured, with the original error messages."""
    return [f"{who}, {stage}: {why}" + (f" ({hint})" if hint else "") for who, stage, why, hint in list_failures(sweep)]


def _group_by_store(part: BenchmarkTable) -> BenchmarkTable:
    """Add a heading row per store above its configurations.

    If a store has only one row, its name is put in that row.
    """
    if not part.groups:
        return BenchmarkTable(
            part.id, part.title, part.header, _blank_repeated_names(part.rows), part.legend, part.goes
        )
    rows: list[Sequence[BenchmarkCell]] = []
    before = ""
    for name, row in zip(part.groups, part.rows, strict=True):
        if part.groups.count(name) == 1:
            rows.append([BenchmarkCell(f"{name} {row[0].text}".strip()), *row[1:]])
            continue
        if name != before:
            rows.append([BenchmarkCell(name), *(BenchmarkCell("") for _ in row[1:])])
        rows.append([BenchmarkCell(f"  {row[0].text}"), *row[1:]])
        before = name
    return BenchmarkTable(part.id, part.title, part.header, rows, part.legend, part.goes)


def _blank_repeated_names(rows: Sequence[Sequence[BenchmarkCell]]) -> list[Sequence[BenchmarkCell]]:
    found: list[Sequence[BenchmarkCell]] = []
    before = None
    for row in rows:
        found.append([BenchmarkCell(""), *row[1:]] if row[0].text == before else row)
        before = row[0].text
    return found


def _terminal_table(part: BenchmarkTable, kept: Sequence[int], width: int) -> Table:
    table = borderless_table([part.header[i] for i in kept])
    for column, i in zip(table.columns, kept, strict=True):
        if part.header[i] == "store":
            column.justify = "left"
    for name, row in zip(shorten_names(part.header, part.texts, kept, width), part.rows, strict=True):
        head = not row[0].text.startswith(" ") and not any(one.text for one in row[1:])
        cells = [terminal_cell(row[i].text, "bold" if row[i].best else "") for i in kept if i]
        table.add_row(terminal_cell(name, "bold" if head else ""), *cells)
    return table


def summarise_benchmark(sweep: StoreBenchmark) -> str:
    """Summarise the number of configurations and stores in a phrase."""
    real = sum(not one.is_floor for one in sweep.points)
    return (
        f"{count_noun(real, 'configuration')} of {count_noun(len(sweep.frontiers), 'store')}"
        if real
        else "the harness alone"
    )


PAGE_SECTIONS: Mapping[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
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


def render_benchmark_html(sweep: StoreBenchmark, vega: str | None = None) -> str:
    """Render the HTML report.

    `vega` is the result of `vega_script`, which avoids building it again.
    """
    charts = draw_benchmark_charts(sweep)
    middle = _chart_sections(sweep, charts)
    said = report_text.summary_sentences(sweep)
    stores = list(_store_sheets(sweep))
    ends = [
        PageSection("failures", "Not measured", "Not measured"),
        *([PageSection("stores", "Store by store", "Stores")] if stores else []),
        PageSection("again", "Circumstances", "Circumstances"),
    ]
    return render_page(
        "sweep.html",
        {
            "title": f"Vector stores on {sweep.data}",
            "kind": "bench",
            "made": str(sweep.circumstances.get("made") or ""),
            "sections": [*middle, *ends],
            "about": report_text.list_benchmark_facts(sweep),
            "headline": said[0],
            "more": said[1:],
            "chart_sections": middle,
            "failures": report_text.list_unmeasured(sweep),
            "stores": stores,
            "circumstances": _provenance_sheet(sweep),
            "notes": list_benchmark_notes(sweep),
        },
        charts,
        vega=vega,
    )


def _chart_sections(sweep: StoreBenchmark, charts: Mapping[str, Chart]) -> list[PageSection]:
    """Return the sections for which there are charts or tables."""
    known = {part.id: _to_sheet(part) for part in build_benchmark_tables(sweep)}
    found = []
    for place, (title, short, pictures, grids) in PAGE_SECTIONS.items():
        sheets = [known[one] for one in grids if one in known]
        sheets = [replace(one, title="") if one.title == title else one for one in sheets]
        if place == "points" and sum(not one.is_floor for one in sweep.points) > len(sheets and sheets[0].rows):
            sheets.append(_to_sheet(build_frontier_table(sweep, every=True), folded=True))
        if place == "filters" and sheets:
            sheets.append(_to_sheet(build_filter_table(sweep, every=True), folded=True))
        mine = {one: charts[one] for one in pictures if one in charts}
        if sheets or mine:
            found.append(PageSection(place, title, short, mine, sheets, layout="pairs" if len(mine) > 1 else ""))
    return found


def _to_sheet(part: BenchmarkTable, *, folded: bool = False) -> PageTable:
    rows = []
    for i, row in enumerate(part.rows):
        first = Cell(part.groups[i], row[0].text) if part.groups else Cell(row[0].text)
        rows.append([first, *map(_to_sheet_cell, row[1:])])
    said = "; ".join(part.legend)
    legend = f"{said[:1].upper()}{said[1:]}." if said else ""
    return PageTable(part.header, rows, part.title, sortable=len(rows) > 1, legend=legend, folded=folded)


def _to_sheet_cell(one: BenchmarkCell) -> Cell:
    return Cell(one.text, best=one.best, order=None if math.isnan(one.value) else one.value)


def _store_sheets(sweep: StoreBenchmark) -> Iterator[PageTable]:
    """Yield the details of each store at its representative configuration."""
    for name in report_text.rank_stores(sweep):
        point = report_text.representative_point(sweep, name)
        if point is not None:
            rows = [[key, value] for key, value in _store_facts(sweep, point) if value]
            yield PageTable(["", ""], rows, name, numbers=False, folded=True)


def _store_facts(sweep: StoreBenchmark, point: MeasuredConfiguration) -> Iterator[tuple[str, str]]:
    made, clock = point.build, point.clock
    yield "setting", report_text.format_options(point.configuration)
    for key, value in made.about.items():
        yield str(key), _format_fact(value)
    yield "inserting", f"{report_text.format_seconds(made.insert_seconds)} s"
    yield "indexing", f"{report_text.format_seconds(made.index_seconds)} s"
    yield "bytes per vector", "" if math.isnan(made.bytes_per_vector) else f"{made.bytes_per_vector:,.0f}"
    for measure, value in point.quality.items():
        yield measure, "" if math.isnan(value) else report_text.format_recall(value)
    yield "QPS from repeat to repeat", "" if math.isnan(point.qps_spread) else f"within {100 * point.qps_spread:.1f}%"
    yield (
        "put aside by the machine",
        f"{clock.switches:,} times, {100 * clock.steal:.1f}% of the time taken by the host",
    )
    yield "doubts", "; ".join(clock.doubts)
    yield "reused", f"made {point.made}" if point.reused else ""
    every = dict.fromkeys(
        note for one in report_text.points_in_series(sweep, point.configuration.series) for note in one.notes
    )
    yield "notes", "; ".join(every)


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_fact(one)}" for key, one in value.items())
    return ", ".join(map(_format_fact, value)) if isinstance(value, list | tuple) else one_line(format_option(value))


def _provenance_sheet(sweep: StoreBenchmark) -> PageTable:
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
    rows = [
        [str(name).replace("_", " "), _format_fact(value)]
        for name, value in facts.items()
        if value not in (None, "", {})
    ]
    return PageTable(["", ""], rows, numbers=False)


LATEX_LATENCY_COLUMNS = {"p50": "p50 (ms)", "p90": "p90", "p95": "p95", "p99": "p99"}
"""Latency percentiles of the representative configuration, and their column titles."""
UNRELIABLE_NOTE = f"{DOUBT_MARK}: the time is not reliable."
"""Caption sentence that explains the mark of unreliable times."""


def render_benchmark_latex(sweep: StoreBenchmark) -> str:
    """Render one row per store: recall, QPS at each recall level, latency and costs."""
    part = build_recall_level_table(sweep)
    levels = len([title for title in part.header if title.startswith("QPS")])
    header = [
        "Store",
        "Recall",
        *part.header[1 : levels + 1],
        "MRR",
        *LATEX_LATENCY_COLUMNS.values(),
        "Build (s)",
        "Memory (MB)",
    ]
    table = [
        [BenchmarkCell(row[0].text), *_latex_store_cells(sweep, row[0].text, row[1 : levels + 1])] for row in part.rows
    ]
    least = [min((row[i].value for row in table if math.isfinite(row[i].value)), default=math.nan) for i in (-2, -1)]
    rows = []
    for row in table:
        cells = [
            *row[:-2],
            *(one._replace(best=len(table) > 1 and one.value == low) for one, low in zip(row[-2:], least, strict=True)),
        ]
        rows.append([escape_latex(cells[0].text), *map(_latex_cell, cells[1:])])
    dated = part.header[-1] == "reused"
    if dated:
        header.append("Reused")
        rows = [[*row, escape_latex(own[-1].text)] for row, own in zip(rows, part.rows, strict=True)]
    caption = (
        f"{escape_latex(sweep.data)}: {count_noun(sweep.vectors, 'vector')} of {sweep.dimension} dimensions, "
        f"{count_noun(sweep.queries, 'query', 'queries')}, {escape_latex(sweep.metric)}, $k = {sweep.k}$, "
        f"{count_noun(sweep.threads, 'thread')}. Recall: the most that any setting has "
        f"({escape_latex(explain_recall(sweep.recall))}). "
        "Queries per second of one client, interpolated along each store's frontier. MRR (all exact neighbours count "
        "as relevant), latency, build time and memory: the fastest configuration with recall "
        f"{REFERENCE_RECALL:g}, else the one with the most recall. Best in bold."
    )
    if any(one.text.endswith(DOUBT_MARK) for row in table for one in row[1:]):
        caption += f" {UNRELIABLE_NOTE}"
    if dated:
        caption += " Reused: when a result was made (UTC); no: measured by the last command."
    if describe_mixture(sweep):
        caption += " Reused results are compared with new ones."
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            *_latex_table(caption, "tab:stores", header, rows),
            *_latex_filter_table(sweep),
            "",
        ]
    )


def _latex_filter_table(sweep: StoreBenchmark) -> list[str]:
    """Render the operating points with each filter as a separate table, if any."""
    part = build_filter_table(sweep)
    if not part.rows:
        return []
    titles = ["filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "repeats"]
    titles += ["reused"] * ("reused" in part.header)
    places = [part.header.index(title) for title in titles]
    rows = [
        [escape_latex(row[i].text) if i < 2 or i == places[-1] else _latex_cell(row[i]) for i in places]
        for row in part.rows
    ]
    header = [
        title.replace(" ms", " (ms)") if title[1:2].isdigit() else title[:1].upper() + title[1:] for title in titles
    ]
    said = " ".join(describe_filters(sweep, rank_stores(sweep)))
    caption = (
        f"{escape_latex(said)} Search with a filter, each store at its fastest setting with recall "
        f"{REFERENCE_RECALL:g} under the "
        "filter, else with the most recall; all queries of a row share the filter. The fastest with that recall in "
        f"bold. {UNRELIABLE_NOTE}"
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


def _latex_store_cells(sweep: StoreBenchmark, series: str, speeds: Sequence[BenchmarkCell]) -> list[BenchmarkCell]:
    point = representative_point(sweep, series)
    mrr = math.nan if point is None else point.quality.get(f"mrr@{sweep.k}", math.nan)
    times = [math.nan if point is None else getattr(point.latency, kind) for kind in LATEX_LATENCY_COLUMNS]
    size = (
        math.nan if point is None or point.build.memory_bytes is None else point.build.memory_bytes / BYTES_PER_MEGABYTE
    )
    built = math.nan if point is None else point.build.seconds
    doubt = DOUBT_MARK if point is not None and point.clock.doubts else ""
    return [
        BenchmarkCell(format_recall(max_recall(sweep, series))),
        *(one if math.isfinite(one.value) else BenchmarkCell("--") for one in speeds),
        BenchmarkCell(format_recall(mrr), mrr),
        *(BenchmarkCell(format_milliseconds(value) + doubt, value) for value in times),
        BenchmarkCell(format_seconds(built), built),
        BenchmarkCell(format_megabytes(size), size),
    ]


def _latex_cell(one: BenchmarkCell) -> str:
    text = "--" if one.text == "-" else one.text.replace(",", "{,}")
    return rf"\textbf{{{text}}}" if one.best else text


def render_benchmark_markdown(sweep: StoreBenchmark) -> str:
    """Render the report as Markdown."""
    lines = [
        f"# {escape_markdown(sweep.data)}",
        "",
        escape_markdown(f"{describe_benchmark(sweep)}."),
        "",
        escape_markdown(" ".join(summary_sentences(sweep))),
        "",
    ]
    for part in build_benchmark_tables(sweep):
        lines += [f"## {escape_markdown(part.title)}", "", *_markdown_grid(part), "", *_markdown_legend(part)]
    lines += [*details_block("Every configuration", _markdown_grid(build_frontier_table(sweep, every=True))), ""]
    tried = build_filter_table(sweep, every=True)
    lines += [*details_block(tried.title, _markdown_grid(tried)), ""] if tried.rows else []
    missing = list_unmeasured(sweep)
    if missing:
        header = ["store", "stage", "reason", "remedy"]
        lines += ["## Not measured", "", *render_markdown_table(header, missing, numbers=False), ""]
    said = list_benchmark_notes(sweep)
    lines += ["## Notes", "", *(f"- {escape_markdown(line)}" for line in said), ""] if said else []
    kept = json.dumps(replace_nan(dict(sweep.circumstances)), indent=2, ensure_ascii=False, default=str)
    fence = "~" * (3 + kept.count("~~~"))
    lines += [*details_block("Circumstances", [f"{fence}json", *kept.splitlines(), fence]), ""]
    return "\n".join(lines)


def _markdown_grid(part: BenchmarkTable) -> list[str]:
    cells = part.texts
    for row, name in zip(cells, part.groups, strict=False):
        row[0] = f"{name} {row[0]}".strip()
    strong = {(at, i) for at, row in enumerate(part.rows) for i, one in enumerate(row) if one.best}
    return render_markdown_table(part.header, cells, strong=strong)


def _markdown_legend(part: BenchmarkTable) -> list[str]:
    said = "; ".join(part.legend)
    return [escape_markdown(f"{said[:1].upper()}{said[1:]}."), ""] if said else []
