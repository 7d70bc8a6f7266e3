"""Report of a store benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ragauge.core.text import one_line
from ragauge.output.numbers import format_number, pluralise
from ragauge.output.report import (
    FILES_ONLY,
    Block,
    Charts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Table, table_of_facts
from ragauge.store_benchmarks.csv_tables import build_filter_rows, build_load_rows, build_point_rows
from ragauge.store_benchmarks.load_and_cost_charts import draw_benchmark_charts
from ragauge.store_benchmarks.report_tables import (
    build_configuration_table,
    build_filter_table,
    build_latency_table,
    build_load_table,
    build_mixed_table,
    build_note_table,
    build_quality_table,
    build_recall_level_table,
    build_relevance_table,
    build_store_table,
    build_unmeasured_table,
    build_update_table,
    select_all_points,
    select_frontier_points,
    select_representative_points,
)
from ragauge.store_benchmarks.report_text import (
    format_options,
    list_benchmark_facts,
    list_benchmark_notes,
    points_in_series,
    summarise_benchmark,
)
from ragauge.store_benchmarks.results import MeasuredConfiguration, StoreBenchmark, format_option

TERMINAL_ONLY = frozenset({"terminal"})
LATEX_ONLY = frozenset({"latex"})


def build_report(result: StoreBenchmark) -> Report:
    summary, *details = summarise_benchmark(result)
    sections = [
        Section("stores", "Stores", [build_store_table(result)], formats=LATEX_ONLY),
        _recall_section(result),
        *_frontier_sections(result),
        *_quality_sections(result),
        *_latency_sections(result),
        Section("costs", "Build time, memory and disk", [_charts(result, "costs")], "Costs", FILES_ONLY),
        *_relevance_sections(result),
        _load_section(result),
        _filter_section(result),
        Section("updates", "Updates", [build_update_table(result), build_mixed_table(result)], "Updates"),
        Section("unmeasured", "Not measured", [build_unmeasured_table(result)], "Not measured"),
        Section("limitations", "Limitations", [build_note_table(result)], "Limitations"),
        _details_section(result),
    ]
    return Report(
        "bench",
        f"Vector stores on {result.data}",
        summary,
        [section for section in map(_without_empty_tables, sections) if section.blocks],
        list_benchmark_facts(result),
        details,
        notes=list_benchmark_notes(result),
        provenance={
            "data": result.data,
            "vectors": pluralise(result.vectors, "vector"),
            "dimensions": result.dimension,
            "queries": result.queries,
            "metric": result.metric,
            "exact neighbours by": result.truth,
            "threads": result.threads,
            "repeats": result.repeats,
            **result.provenance,
        },
    )


def _without_empty_tables(section: Section) -> Section:
    blocks = [block for block in section.blocks if not isinstance(block, Table) or block.rows]
    return section._replace(blocks=blocks)


def _charts(result: StoreBenchmark, *names: str) -> Charts:
    return Charts(partial(draw_benchmark_charts, result, names), in_pairs=len(names) > 1)


def _recall_section(result: StoreBenchmark) -> Section:
    blocks: list[Block] = [_charts(result, "frontier"), build_recall_level_table(result)]
    return Section("recall", "Recall and throughput", blocks, "Recall")


def _split_by_format(section: Section, brief: Sequence[Block]) -> list[Section]:
    """Return a section of files, and a shorter one of the terminal if it differs."""
    if list(section.blocks) == list(brief):
        return [section]
    return [section._replace(blocks=brief, formats=TERMINAL_ONLY), section._replace(formats=FILES_ONLY)]


def _frontier_sections(result: StoreBenchmark) -> list[Section]:
    frontier, brief_points = select_frontier_points(result), select_frontier_points(result, brief=True)
    blocks: list[Block] = [build_configuration_table(result, frontier)]
    brief: list[Block] = [build_configuration_table(result, brief_points)]
    if len(brief_points) < len(frontier):
        more = pluralise(len(frontier) - len(brief_points), "configuration")
        brief.append(Paragraph(f"{more} of the frontier not shown; files have all."))
    points = [point for point in select_all_points(result) if not point.is_floor]
    if len(points) > len(frontier):
        table = build_configuration_table(result, points, collapsed=True)
        blocks.append(table)
        brief.append(table)
    return _split_by_format(Section("frontier", "Pareto frontier", blocks, "Frontier"), brief)


def _quality_sections(result: StoreBenchmark) -> list[Section]:
    section = Section("quality", "Quality", [build_quality_table(result, select_frontier_points(result))], "Quality")
    return _split_by_format(section, [build_quality_table(result, select_representative_points(result))])


def _latency_sections(result: StoreBenchmark) -> list[Section]:
    charts = _charts(result, "recall_latency")
    blocks: list[Block] = [charts, build_latency_table(result, select_frontier_points(result))]
    brief: list[Block] = [charts, build_latency_table(result, select_representative_points(result))]
    return _split_by_format(Section("latency", "Latency", blocks, "Latency"), brief)


def _relevance_sections(result: StoreBenchmark) -> list[Section]:
    charts = _charts(result, "relevance")
    section = Section("relevance", "Relevance", [charts, build_relevance_table(result)], "Relevance")
    return _split_by_format(section, [charts, build_relevance_table(result, brief=True)])


def _load_section(result: StoreBenchmark) -> Section:
    return Section("load", "Load", [_charts(result, "rates", "clients"), build_load_table(result)], "Load")


def _filter_section(result: StoreBenchmark) -> Section:
    charts = _charts(result, "filter_latency", "filters")
    tables = [build_filter_table(result), build_filter_table(result, collapsed=True)]
    return Section("filters", "Filters", [charts, *tables], "Filters")


def _details_section(result: StoreBenchmark) -> Section:
    """Build a collapsed table per store: parameters in force, and details of its representative configuration."""
    tables = [
        replace(table_of_facts(dict(_store_facts(result, point)), point.series, f"store-{i}"), collapsed=True)
        for i, point in enumerate(select_representative_points(result))
    ]
    return Section("details", "Details of the stores", tables, "Details", FILES_ONLY - LATEX_ONLY)


def _store_facts(result: StoreBenchmark, point: MeasuredConfiguration) -> Iterator[tuple[str, str]]:
    notes = dict.fromkeys(
        note for series_point in points_in_series(result, point.series) for note in series_point.notes
    )
    facts = {
        "configuration": format_options(point.configuration),
        **{str(name): _format_fact(value) for name, value in point.build.about.items()},
        "inserting": f"{format_number(point.build.insert_seconds, 'seconds')} s",
        "indexing": f"{format_number(point.build.index_seconds, 'seconds')} s",
        "bytes per vector": _format_if_known(point.build.bytes_per_vector, "count"),
        **{measure: _format_if_known(value, "recall") for measure, value in point.quality.items()},
        "QPS variation between repeats": _format_if_known(point.qps_spread, "share"),
        "involuntary context switches": format_number(point.clock.switches, "count"),
        "CPU time taken by the host": _format_if_known(point.clock.steal, "share"),
        "doubts": "; ".join(point.clock.doubts),
        "reused": f"made {point.made}" if point.reused else "",
        "notes": "; ".join(notes),
    }
    yield from ((name, text) for name, text in facts.items() if text)


def _format_if_known(value: float, style: str) -> str:
    return "" if math.isnan(value) else format_number(value, style)


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_fact(item)}" for name, item in value.items())
    return ", ".join(map(_format_fact, value)) if isinstance(value, list | tuple) else one_line(format_option(value))


REPORTER = ResultReporter(
    build_report,
    {
        "csv": TableBuilder("one row per configuration", build_point_rows),
        "loads": TableBuilder("one row per load test", build_load_rows),
        "filters": TableBuilder("one row per filter and configuration", build_filter_rows),
    },
)
