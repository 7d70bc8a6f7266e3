"""Tables of a benchmark report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragauge.core.plugins import BUILTIN_PLUGINS, load_plugin
from ragauge.core.summaries import Latency
from ragauge.output.numbers import MISSING, join_with_and
from ragauge.output.tables import DOUBT_MARK, Cell, Column, Row, Table
from ragauge.store_benchmarks.filter_results import (
    list_filters,
    operating_points,
    passes_filter,
    points_with_filter,
)
from ragauge.store_benchmarks.frontiers import REFERENCE_RECALL, find_points_around, reaches
from ragauge.store_benchmarks.report_text import (
    describe_sufficient_recall,
    explain_recall,
    format_distinct_options,
    format_filter,
    list_store_notes,
    list_unmeasured,
    max_recall,
    points_in_series,
    rank_all_series,
    rank_stores,
    representative_point,
)
from ragauge.store_benchmarks.results import LoadResult, MeasuredConfiguration, StoreBenchmark
from ragauge.store_benchmarks.reused_results import REUSED_LEGEND, BenchmarkResult, format_reused

NOT_REACHED = "not reached"
CLOSED_LOOP_LABEL = "closed loop"
"""Target rate of a load test in which each client sends its next query after each result."""
MAX_TERMINAL_ROWS = 30
"""Maximum number of frontier configurations on a terminal."""
LATENCY_STATISTICS = ("p50", "p90", "p95", "p99", "mean", "max")
STORE_COLUMN = Column("store", "name")


class PointColumn(NamedTuple):
    """Column of a table of configurations."""

    column: Column
    value: Callable[[MeasuredConfiguration], float | None]
    is_time: bool = False
    """Whether the value is marked if the times of the configuration are unreliable."""


def select_frontier_points(result: StoreBenchmark, *, brief: bool = False) -> list[MeasuredConfiguration]:
    """Return the points of the frontiers of all stores, store by store.

    With `brief`, a long list is reduced to the fastest configuration of each store at each recall level, and the one
    with the highest recall.
    """
    frontiers = [[result.points[i] for i in result.frontiers.get(series, ())] for series in rank_stores(result)]
    if brief and sum(map(len, frontiers)) > MAX_TERMINAL_ROWS:
        frontiers = [_select_points_at_levels(result, frontier) for frontier in frontiers]
    return [point for frontier in frontiers for point in frontier]


def _select_points_at_levels(
    result: StoreBenchmark, frontier: Sequence[MeasuredConfiguration]
) -> list[MeasuredConfiguration]:
    """Return the first point of a frontier at each recall level, and the last point."""
    if not frontier:
        return []
    recalls, last = [point.quality[result.recall] for point in frontier], len(frontier) - 1
    levels = sorted({at.recall for at in result.reached})
    first = {next((i for i, recall in enumerate(recalls) if reaches(recall, level)), last) for level in levels}
    return [frontier[i] for i in sorted(first | {last})]


def select_representative_points(result: StoreBenchmark) -> list[MeasuredConfiguration]:
    """Return the configuration that represents each store."""
    points = (representative_point(result, series) for series in rank_stores(result))
    return [point for point in points if point is not None]


def select_all_points(result: StoreBenchmark) -> list[MeasuredConfiguration]:
    """Return all points by rank of their series, the null store last."""
    return [point for series in rank_all_series(result) for point in points_in_series(result, series)]


def build_configuration_table(
    result: StoreBenchmark, points: Sequence[MeasuredConfiguration], *, collapsed: bool = False
) -> Table:
    """Build a table of configurations: recall, speed and costs; all of them are collapsed."""
    columns = [
        column
        for column in _list_point_columns(result)
        if any(_is_finite(column.value(point)) for point in result.points if not point.is_floor)
    ]
    rows: list[Row] = [
        [_configuration_cell(result, point), *(_point_cell(point, column) for column in columns)] for point in points
    ]
    table_id, title = ("all", "All configurations") if collapsed else ("frontier", "Pareto frontier")
    table = Table(table_id, [STORE_COLUMN, *(column.column for column in columns)], rows, title, collapsed=collapsed)
    return _add_reused_column(table.mark_best(), [[point] for point in points])


def _list_point_columns(result: StoreBenchmark) -> list[PointColumn]:
    return [
        PointColumn(
            Column("recall", "recall", 1, legend=explain_recall(result.recall)),
            lambda point: point.quality.get(result.recall),
        ),
        PointColumn(Column("QPS", "qps", 1, legend="1000 / mean latency in ms, one client"), lambda p: p.qps, True),
        PointColumn(Column("p50 ms", "ms", -1), lambda point: point.latency.p50, True),
        PointColumn(Column("p99 ms", "ms", -1, 4), lambda point: point.latency.p99, True),
        PointColumn(Column("build s", "seconds", -1, 3, "inserting and indexing"), lambda p: p.build.build_seconds),
        PointColumn(Column("memory", "bytes", -1), lambda point: point.build.memory_bytes),
        PointColumn(Column("disk", "bytes", -1, 2), lambda point: point.build.disk_bytes),
        PointColumn(
            Column("cold ms", "ms", -1, 1, "opening the saved store in a new process, and the first search"),
            lambda point: point.build.cold_open_ms + point.build.cold_first_ms,
        ),
        PointColumn(
            Column("cost/million", "number", -1, legend="cost of a million queries on one thread at the given price"),
            lambda point: point.cost_per_million,
        ),
    ]


def _configuration_cell(result: StoreBenchmark, point: MeasuredConfiguration) -> Cell:
    """Return the name of a configuration: its series, and the options that differ within it."""
    return Cell(point.series, detail=format_distinct_options(result, point))


def _point_cell(point: MeasuredConfiguration, column: PointColumn) -> Cell:
    return Cell(column.value(point), mark=_doubt_mark(point) if column.is_time else "")


def _doubt_mark(point: MeasuredConfiguration) -> str:
    return DOUBT_MARK if point.clock.doubts else ""


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _add_reused_column(table: Table, results: Sequence[Sequence[BenchmarkResult]]) -> Table:
    """Add a column with the dates of reused results, if there are any; `results` are those of each row."""
    if not any(item.reused for row in results for item in row):
        return table
    column = Column("reused", "name", legend=REUSED_LEGEND)
    rows = [[*row, Cell(format_reused(items))] for row, items in zip(table.cells(), results, strict=True)]
    return replace(table, columns=[*table.columns, column], rows=rows)


def build_quality_table(result: StoreBenchmark, points: Sequence[MeasuredConfiguration]) -> Table:
    """Build a table of recall, precision and MRR at each k."""
    n_neighbours = result.true_neighbours
    highest = f"{n_neighbours} (at most k/{n_neighbours})" if n_neighbours else "all exact neighbours"
    measures = {
        f"{result.recall.rpartition('@')[0]}@": Column("recall", "recall"),
        "recall@": Column(f"recall of {highest}", "recall", 0, 1),
        "precision@": Column("precision", "recall"),
        "mrr@": Column("MRR", "recall"),
    }
    everything = f"all {n_neighbours}" if n_neighbours else "all"
    note = f"In recall of {n_neighbours or 'all'}, precision and MRR, {everything} exact neighbours are relevant."
    if len(result.scored_at) > 1:
        note += f" All k are scored from one search at k = {result.k:,}; a search at a smaller k may find less."
    rows: list[Row] = [
        [_configuration_cell(result, point), k, *(point.quality.get(f"{measure}{k}") for measure in measures)]
        for point in points
        for k in result.scored_at
    ]
    table = Table("quality", [STORE_COLUMN, Column("k", "count"), *measures.values()], rows, "Quality", note=note)
    return _add_reused_column(table, [[point] for point in points for _ in result.scored_at])


def build_latency_table(result: StoreBenchmark, points: Sequence[MeasuredConfiguration]) -> Table:
    columns = [Column(f"{name} ms", "ms", 0, int(name == "max")) for name in LATENCY_STATISTICS]
    rows: list[Row] = []
    for point in points:
        mark = _doubt_mark(point)
        cells = [Cell(getattr(point.latency, name), mark=mark) for name in LATENCY_STATISTICS]
        rows.append([_configuration_cell(result, point), *cells, Cell(point.qps, mark=mark)])
    table = Table("latency", [STORE_COLUMN, *columns, Column("QPS", "qps")], rows, "Latency")
    return _add_reused_column(table, [[point] for point in points])


def build_recall_level_table(result: StoreBenchmark) -> Table:
    """Build a table of the QPS and p50 latency of each store at each recall level."""
    levels = sorted({at.recall for at in result.reached})
    speeds = {(at.store, at.recall): at for at in result.reached}
    by_distance = sorted(levels, key=lambda level: -abs(level - REFERENCE_RECALL))
    stores = rank_stores(result) if levels else []
    rows: list[Row] = []
    for name in stores:
        points = points_in_series(result, name)
        by_qps = [_doubt_mark_at(result, points, [point.qps for point in points], level) for level in levels]
        inverse_p50s = [1 / (point.latency.p50 or math.nan) for point in points]
        by_p50 = [_doubt_mark_at(result, points, inverse_p50s, level) for level in levels]
        at_levels = [speeds[name, level] for level in levels]
        qps = [
            Cell(None, text=NOT_REACHED) if at.qps is None else Cell(at.qps, mark=mark)
            for at, mark in zip(at_levels, by_qps, strict=True)
        ]
        p50s = [
            Cell(at.p50_ms, mark="" if at.p50_ms is None else mark) for at, mark in zip(at_levels, by_p50, strict=True)
        ]
        rows.append([name, *qps, *p50s])
    note = (
        "Interpolated between the two nearest points of the frontier of a store, on a logarithmic scale. The points "
        "may be of different builds; the summary names a measured configuration."
    )
    columns = [
        STORE_COLUMN,
        *(Column(f"QPS at {level:.2f}", "qps", 1) for level in levels),
        *(Column(f"p50 ms at {level:.2f}", "ms", -1, by_distance.index(level) + 1) for level in levels),
    ]
    table = Table("recall-levels", columns, rows, "Speed at the same recall", note=note).mark_best()
    return _add_reused_column(table, [points_in_series(result, name) for name in stores])


def _doubt_mark_at(
    result: StoreBenchmark, points: Sequence[MeasuredConfiguration], speeds: Sequence[float], level: float
) -> str:
    """Return the mark of a speed that is interpolated from unreliable times."""
    around = find_points_around(points, speeds, result.recall, level)
    return DOUBT_MARK if any(point.clock.doubts for point in around) else ""


def build_relevance_table(result: StoreBenchmark, *, brief: bool = False) -> Table:
    """Build a table of scores against the relevance judgments, by ascending recall."""
    points = [
        point
        for point in select_frontier_points(result, brief=brief)
        if any(map(math.isfinite, point.relevance.values()))
    ]
    points.sort(key=lambda point: point.quality.get(result.recall, math.nan))
    measures = list(dict.fromkeys(name for point in points for name in point.relevance))
    rows: list[Row] = [
        [
            _configuration_cell(result, point),
            point.quality.get(result.recall),
            *(point.relevance.get(name) for name in measures),
            Cell(point.qps, mark=_doubt_mark(point)),
        ]
        for point in points
    ]
    columns = [
        STORE_COLUMN,
        Column("recall", "recall"),
        *(Column(name, "recall", 1) for name in measures),
        Column("QPS", "qps"),
    ]
    # The summary has the first sentence.
    sentences = [describe_sufficient_recall(sufficient) for sufficient in result.sufficient_recalls[1:]]
    note = " ".join(f"{text[:1].upper()}{text[1:]}." for text in sentences)
    table = Table("relevance", columns, rows, "Relevance", note=note).mark_best()
    return _add_reused_column(table, [[point] for point in points])


def build_load_table(result: StoreBenchmark) -> Table:
    """Build a table of load tests, with latency from the scheduled and the send time."""
    loads = [(point, load) for point in select_all_points(result) for load in point.loads]
    rows: list[Row] = [[_configuration_cell(result, point), *_load_cells(load)] for point, load in loads]
    columns = [
        STORE_COLUMN,
        Column("clients", "count"),
        Column("target QPS", "number"),
        Column("QPS", "qps", legend="completed queries per second of wall-clock time, all clients"),
        Column("sustained", drop_order=3, legend="the delay between the scheduled and the send time does not grow"),
        Column("p50 ms", "ms"),
        Column("p99 ms", "ms", 0, 4),
        Column("send p50", "ms", 0, 2),
        Column("send p99", "ms"),
        Column("note", drop_order=1),
    ]
    note = (
        "Latency counts from the scheduled time of a query, so a stall counts for every query that has to wait; send "
        "p50 and send p99 count from the time of sending, as a closed loop does."
    )
    table = Table("loads", columns, rows, "Load", note=note)
    if not any(load.note for _, load in loads):
        table = replace(table, columns=columns[:-1], rows=[row[:-1] for row in rows])
    return _add_reused_column(table, [[load] for _, load in loads])


def _load_cells(load: LoadResult) -> list[Cell]:
    mark = DOUBT_MARK if load.doubts else ""
    is_closed = load.rate is None
    target = Cell(None, text=CLOSED_LOOP_LABEL) if load.rate is None else Cell(load.rate, _rate_style(load.rate))
    return [
        Cell(load.clients),
        target,
        Cell(load.qps, mark=mark),
        Cell(MISSING if is_closed else "yes" if load.kept_up else "no"),
        *_p50_p99_cells(load.latency, mark),
        *_p50_p99_cells(load.service, mark),
        Cell(load.note),
    ]


def _rate_style(rate: float) -> str:
    return "count" if rate.is_integer() else "number"


def _p50_p99_cells(latency: Latency, mark: str = "") -> list[Cell]:
    return [Cell(latency.p50, mark=mark), Cell(latency.p99, mark=mark)]


def build_filter_table(result: StoreBenchmark, *, collapsed: bool = False) -> Table:
    """Build a table of the operating points of each store with each filter, or of all configurations, collapsed.

    The fastest one that passes the filter is marked.
    """
    select = points_with_filter if collapsed else operating_points
    points = [(key, point) for key in list_filters(result) for point in select(result, key)]
    fastest = [point.filters[0] for key in list_filters(result) for point in operating_points(result, key)[:1]]
    columns = [
        Column("filter", "name"),
        STORE_COLUMN,
        Column("recall", "recall", legend="compared with the exact neighbours among the vectors that match"),
        Column("QPS", "qps"),
        Column("p50 ms", "ms"),
        Column("p95 ms", "ms", 0, 4),
        Column("p99 ms", "ms", 0, 6),
        Column("returned", "share", 0, 5, f"share of min({result.k}, number of matches) rows"),
        Column("wrong", "count", 0, 3, "returned rows that do not match"),
        Column("selectivity", "selectivity"),
        Column("matching", "count", 0, 1),
        Column("repeats", "count", 0, 2),
    ]
    rows: list[Row] = [
        [Cell(format_filter(key)), _configuration_cell(result, point), *_filter_cells(point, fastest)]
        for key, point in points
    ]
    if not any(name for name, _ in list_filters(result)):  # the first column has the selectivity of random filters
        index = [column.title for column in columns].index("selectivity")
        columns.pop(index)
        rows = [[*row[:index], *row[index + 1 :]] for row in rows]
    note = (
        f"Each store at its fastest configuration with recall {REFERENCE_RECALL:g} under the filter, else at the one "
        "with the highest recall. The fastest store with that recall is marked."
    )
    stores = {point.configuration.store for _, point in points}
    listed = [
        store
        for store in BUILTIN_PLUGINS["stores"]
        if store in stores and load_plugin("stores", store).remembers_metadata
    ]
    if 0 < len(listed) < len(stores):
        names = join_with_and(listed)
        note += f" For {names} the matching rows were listed before timing; the other stores filter in each search."
    table_id, title = ("all-filters", "All configurations with a filter") if collapsed else ("filters", "Filters")
    table = Table(table_id, columns, rows, title, 0, collapsed, "" if collapsed else note)
    return _add_reused_column(table, [point.filters for _, point in points])


def _filter_cells(point: MeasuredConfiguration, fastest: Sequence[BenchmarkResult]) -> list[Cell]:
    (search,) = point.filters
    mark = DOUBT_MARK if search.doubts else ""
    return [
        Cell(search.recall),
        Cell(search.qps, mark=mark, best=passes_filter(search) and search in fastest),
        *(Cell(value, mark=mark) for value in (search.latency.p50, search.latency.p95, search.latency.p99)),
        Cell(search.returned),
        Cell(search.wrong),
        Cell(search.selectivity),
        Cell(search.matching),
        Cell(search.repeats),
    ]


def build_update_table(result: StoreBenchmark) -> Table:
    """Build a table of inserts, updates and deletes."""
    updates = [(point, update) for point in select_all_points(result) for update in point.changes]
    rows: list[Row] = [
        [
            _configuration_cell(result, point),
            update.operation,
            *_p50_p99_cells(update.latency),
            update.latency.max,
            update.next_search.p50,
            update.latency.n,
            update.visible,
        ]
        for point, update in updates
    ]
    columns = [
        STORE_COLUMN,
        Column("operation", "name"),
        Column("p50 ms", "ms"),
        Column("p99 ms", "ms"),
        Column("max ms", "ms", 0, 1),
        Column("next search ms", "ms", legend="the search right after, which includes work that a store defers"),
        Column("n", "count"),
        Column("visible", "share", legend="share of the operations whose effect this search returned"),
    ]
    return _add_reused_column(Table("updates", columns, rows, "Updates"), [[update] for _, update in updates])


def build_mixed_table(result: StoreBenchmark) -> Table:
    """Build a table of searches during inserts."""
    workloads = [(point, point.mixed) for point in select_all_points(result) if point.mixed is not None]
    rows: list[Row] = [
        [
            _configuration_cell(result, point),
            mixed.inserts_per_second,
            "concurrent" if mixed.together else "alternating",
            mixed.recall,
            *_p50_p99_cells(mixed.latency),
            *_p50_p99_cells(mixed.alone),
        ]
        for point, mixed in workloads
    ]
    columns = [
        STORE_COLUMN,
        Column("inserts/s", "qps", legend="achieved rate; inserts are sent at a fixed rate, so a store may allow more"),
        Column("operations", "name", 0, 2, "whether the engine inserts and searches concurrently"),
        Column("recall", "recall", legend="compared with the exact neighbours among the vectors stored when it began"),
        Column("p50 ms", "ms"),
        Column("p99 ms", "ms"),
        Column("p50 without inserts", "ms", 0, 1),
        Column("p99 without inserts", "ms"),
    ]
    table = Table("mixed", columns, rows, "Search during inserts")
    return _add_reused_column(table, [[mixed] for _, mixed in workloads])


def build_store_table(result: StoreBenchmark) -> Table:
    """Build a table with one row per store, for a paper: recall, QPS at each recall level, latency and costs."""
    levels = build_recall_level_table(result)
    n_levels = len({at.recall for at in result.reached})
    columns = [
        STORE_COLUMN,
        Column("recall", "recall", legend="highest of all configurations"),
        *levels.columns[1 : n_levels + 1],
        Column("MRR", "recall"),
        *(Column(f"{name} (ms)", "ms") for name in ("p50", "p90", "p95", "p99")),
        Column("build (s)", "seconds", -1),
        Column("memory", "bytes", -1),
    ]
    rows: list[Row] = []
    for name, levels_row in zip(rank_stores(result), levels.cells(), strict=False):
        point = representative_point(result, name)
        speeds = [cell._replace(text="" if cell.value is None else cell.text) for cell in levels_row[1 : n_levels + 1]]
        rows.append([name, max_recall(result, name), *speeds, *_representative_cells(result, point)])
    note = (
        f"{explain_recall(result.recall)[:1].upper()}{explain_recall(result.recall)[1:]}. QPS of one client, "
        f"interpolated along the frontier of a store. MRR, latency, build time and memory of the fastest configuration "
        f"with recall {REFERENCE_RECALL:g}, else of the one with the highest recall."
    )
    if any(cell.mark for row in rows for cell in row if isinstance(cell, Cell)):
        note += f" {DOUBT_MARK}: unreliable time."
    table = Table("stores", columns, rows, note=note).mark_best()
    return _add_reused_column(table, [points_in_series(result, name) for name in rank_stores(result)] if rows else [])


def _representative_cells(result: StoreBenchmark, point: MeasuredConfiguration | None) -> list[Cell]:
    if point is None:
        return [Cell(None)] * 7
    latency, mark = point.latency, _doubt_mark(point)
    return [
        Cell(point.quality.get(f"mrr@{result.k}")),
        *(Cell(value, mark=mark) for value in (latency.p50, latency.p90, latency.p95, latency.p99)),
        Cell(point.build.build_seconds),
        Cell(point.build.memory_bytes),
    ]


def build_unmeasured_table(result: StoreBenchmark) -> Table:
    """Build a table of what was requested but not measured."""
    columns = [Column("store"), Column("stage"), Column("reason"), Column("remedy")]
    rows = list_unmeasured(result)
    if not any(remedy for *_, remedy in rows):
        return Table("unmeasured", columns[:-1], [row[:-1] for row in rows], "Not measured")
    return Table("unmeasured", columns, rows, "Not measured")


def build_note_table(result: StoreBenchmark) -> Table:
    return Table("limitations", [Column("store"), Column("note")], list_store_notes(result), "Limitations")
