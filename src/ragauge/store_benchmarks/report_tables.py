"""Tables of a benchmark for the terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragauge.core.summaries import Latency
from ragauge.output.numbers import format_milliseconds, format_qps
from ragauge.output.terminal import format_share
from ragauge.store_benchmarks.filter_results import list_filters, operating_points, passes_filter, points_with_filter
from ragauge.store_benchmarks.report_text import (
    BYTES_PER_MEGABYTE,
    DOUBT_MARK,
    describe_sufficient_recall,
    explain_recall,
    find_sufficient_recalls,
    format_configuration,
    format_megabytes,
    format_options,
    format_recall,
    format_seconds,
    points_in_series,
    rank_all_series,
    rank_stores,
    representative_point,
    shared_options,
)
from ragauge.store_benchmarks.results import REFERENCE_RECALL, MeasuredConfiguration, StoreBenchmark, find_points_around
from ragauge.store_benchmarks.reused_results import REUSED_LEGEND, BenchmarkResult, format_reused

TABLES_WITH_REUSED_LEGEND = ("frontier", "every")
"""Ids of the tables whose legend explains the column of reused results."""


class BenchmarkCell(NamedTuple):
    """Table cell: text, sort value, and whether it is the best of its column."""

    text: str
    value: float = math.nan
    best: bool = False


@dataclass(frozen=True)
class BenchmarkTable:
    """Table with its title and legend."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[BenchmarkCell]]
    legend: Sequence[str] = ()
    goes: Sequence[int] = ()
    """Columns that are dropped on a narrow terminal, in this order."""
    groups: Sequence[str] = ()
    """Store of each row, if a store has several rows; the first cell then omits it."""

    @property
    def texts(self) -> list[list[str]]:
        """Texts of the cells."""
        return [[one.text for one in row] for row in self.rows]


def add_reused_column(part: BenchmarkTable, results: Sequence[Sequence[BenchmarkResult]]) -> BenchmarkTable:
    """Add a column with the dates of reused results, if there are any.

    `results` are the results of each row.
    """
    if not any(one.reused for row in results for one in row):
        return part
    rows = [[*row, BenchmarkCell(format_reused(own))] for row, own in zip(part.rows, results, strict=True)]
    legend = [*part.legend, *([REUSED_LEGEND] if part.id in TABLES_WITH_REUSED_LEGEND else [])]
    return replace(part, header=[*part.header, "reused"], rows=rows, legend=legend)


NOT_REACHED = "not reached"
CLOSED_LOOP_LABEL = "flat out"
"""Label of a closed loop, in which each client sends its next query after each result."""
LATENCY_HEADERS = ("p50 ms", "p99 ms")
MAX_TERMINAL_ROWS = 30
"""Maximum number of frontier configurations on a terminal."""


class ConfigurationColumn(NamedTuple):
    """Column of a table of configurations."""

    title: str
    value: Callable[[MeasuredConfiguration], float]
    show: Callable[[float], str]
    better: int = 0
    """1 if higher is better, -1 if lower is better, 0 if neither."""


def build_benchmark_tables(sweep: StoreBenchmark, *, brief: bool = False) -> list[BenchmarkTable]:
    """Build every table that the benchmark has results for."""
    made = (build_load_table, build_filter_table, build_update_table, build_mixed_table)
    first = (
        *(
            build_frontier_table(sweep, brief=brief),
            build_quality_table(sweep, brief=brief),
            build_latency_table(sweep, brief=brief),
        ),
        *(build_recall_level_table(sweep), build_relevance_table(sweep, brief=brief)),
    )
    return [part for part in (*first, *(make(sweep) for make in made)) if part.rows]


def build_columns(sweep: StoreBenchmark) -> list[ConfigurationColumn]:
    """Return the columns of a table of configurations."""
    size = BYTES_PER_MEGABYTE
    found = [
        ConfigurationColumn("recall", lambda one: one.quality.get(sweep.recall, math.nan), format_recall, 1),
        ConfigurationColumn("QPS", lambda one: one.qps, format_qps, 1),
        ConfigurationColumn("p50 ms", lambda one: one.latency.p50, format_milliseconds, -1),
        ConfigurationColumn("p99 ms", lambda one: one.latency.p99, format_milliseconds, -1),
        ConfigurationColumn("build s", lambda one: one.build.seconds, format_seconds, -1),
        ConfigurationColumn("memory MB", lambda one: _nan_if_none(one.build.memory_bytes) / size, format_megabytes, -1),
        ConfigurationColumn("disk MB", lambda one: _nan_if_none(one.build.disk_bytes) / size, format_megabytes, -1),
        ConfigurationColumn(
            "cold ms", lambda one: one.build.cold_open_ms + one.build.cold_first_ms, format_milliseconds, -1
        ),
    ]
    if any(math.isfinite(one.cost_per_million) for one in sweep.points):
        found.append(ConfigurationColumn("cost/million", lambda one: one.cost_per_million, _format_cost, -1))
    return [one for one in found if any(math.isfinite(one.value(point)) for point in _points_without_null(sweep))]


def build_frontier_table(sweep: StoreBenchmark, *, every: bool = False, brief: bool = False) -> BenchmarkTable:
    """Build a table of the Pareto frontier of each store, or of every configuration.

    With `brief`, a long list is reduced to the fastest configuration of each store at each recall level, and the one
    with the highest recall.
    """
    kept = build_columns(sweep)
    chosen = (
        [one for series in rank_stores(sweep) for one in points_in_series(sweep, series)]
        if every
        else _frontier_points(sweep, brief)
    )
    best = _best_cells([[column.value(one) for column in kept] for one in chosen], [column.better for column in kept])
    rows, groups = [], []
    for at, point in enumerate(chosen):
        series = point.configuration.series
        told = format_options(point.configuration, shared_options(points_in_series(sweep, series)))
        cells = [BenchmarkCell(told)]
        for i, column in enumerate(kept):
            value = column.value(point)
            doubt = DOUBT_MARK if point.clock.doubts and column.title in ("QPS", *LATENCY_HEADERS) else ""
            cells.append(BenchmarkCell(column.show(value) + doubt, value, (at, i) in best))
        rows.append(cells)
        groups.append(series)
    titles = [one.title for one in kept]
    goes = [titles.index(one) + 1 for one in ("cold ms", "disk MB", "build s", "p99 ms") if one in titles]
    legend = [
        f"recall is {explain_recall(sweep.recall)}",
        "QPS is 1000 / mean ms of one client",
        "build is inserting and indexing" * ("build s" in titles),
        "cold is opening what was kept in a new process, and the first search" * ("cold ms" in titles),
        "cost/million is for a million queries on one such thread at its price" * ("cost/million" in titles),
    ]
    title = "Every configuration" if every else "Worth having"
    part = BenchmarkTable(
        "every" if every else "frontier", title, ["store", *titles], rows, _non_empty_lines(legend), goes, groups
    )
    return add_reused_column(part, [[one] for one in chosen])


def _frontier_points(sweep: StoreBenchmark, brief: bool) -> list[MeasuredConfiguration]:
    """Return the points of all frontiers, store by store."""
    lines = [[sweep.points[i] for i in sweep.frontiers.get(series, ())] for series in rank_stores(sweep)]
    short = brief and sum(map(len, lines)) > MAX_TERMINAL_ROWS
    return [one for line in lines for one in (_points_at_levels(sweep, line) if short else line)]


def _points_at_levels(sweep: StoreBenchmark, line: Sequence[MeasuredConfiguration]) -> list[MeasuredConfiguration]:
    """Return the first point of a frontier at each recall level, and the last point."""
    levels = sorted({one.recall for one in sweep.reached})
    recalls = [one.quality[sweep.recall] for one in line]
    firsts = {next((i for i, one in enumerate(recalls) if one >= level - 1e-9), len(line) - 1) for level in levels}
    return [line[i] for i in sorted(firsts | {len(line) - 1})] if line else []


def build_quality_table(sweep: StoreBenchmark, *, brief: bool = False) -> BenchmarkTable:
    """Build a table of recall, precision and MRR at each k.

    With `brief`, it has one configuration per store.
    """
    known = sweep.true_neighbours
    measures = {
        "recall": f"{sweep.recall.rpartition('@')[0]}@",
        f"recall of {known}" if known else "recall of all": "recall@",
        "precision": "precision@",
        "MRR": "mrr@",
    }
    rows = [
        [
            BenchmarkCell(format_configuration(sweep, point)),
            BenchmarkCell(f"{k:,}", k),
            *(_recall_cell(point.quality.get(f"{measure}{k}", math.nan)) for measure in measures.values()),
        ]
        for point in _displayed_points(sweep, brief)
        for k in sweep.scored_at
    ]
    several = f"every k is scored from one search at k = {sweep.k:,}; a search at a smaller k may find less"
    legend = [
        several * (len(sweep.scored_at) > 1),
        f"in {', '.join(list(measures)[1:])} all {known or ''} exact neighbours count as relevant".replace("  ", " "),
    ]
    part = BenchmarkTable("quality", "Quality", ["store", "k", *measures], rows, _non_empty_lines(legend), (3,))
    return add_reused_column(part, [[point] for point in _displayed_points(sweep, brief) for _ in sweep.scored_at])


def build_latency_table(sweep: StoreBenchmark, *, brief: bool = False) -> BenchmarkTable:
    """Build a table of latency percentiles.

    With `brief`, it has one configuration per store.
    """
    kinds = ("p50", "p90", "p95", "p99", "mean", "max")
    rows = []
    for point in _displayed_points(sweep, brief):
        doubt = DOUBT_MARK * bool(point.clock.doubts)
        values = [getattr(point.latency, kind) for kind in kinds]
        cells = [BenchmarkCell(format_milliseconds(value) + doubt, value) for value in values]
        rows.append(
            [
                BenchmarkCell(format_configuration(sweep, point)),
                *cells,
                BenchmarkCell(format_qps(point.qps) + doubt, point.qps),
            ]
        )
    header = ["store", "p50 ms", *(kind for kind in kinds[1:]), "QPS"]
    part = BenchmarkTable("latency", "Latency", header, rows, ["milliseconds per query of one client"], (6,))
    return add_reused_column(part, [[point] for point in _displayed_points(sweep, brief)])


def build_recall_level_table(sweep: StoreBenchmark) -> BenchmarkTable:
    """Build a table of the QPS and p50 latency of each store at each recall level."""
    levels = sorted({one.recall for one in sweep.reached})
    found = {(one.store, one.recall): one for one in sweep.reached}
    names = [one for one in rank_stores(sweep) if any((one, level) in found for level in levels)]
    at_levels = {one: [found.get((one, level)) for level in levels] for one in names}
    values = [
        [_nan_if_none(at.qps if at else None) for at in at_levels[one]]
        + [_nan_if_none(at.p50_ms if at else None) for at in at_levels[one]]
        for one in names
    ]
    best = _best_cells(values, [1] * len(levels) + [-1] * len(levels))
    rows = []
    for at, name in enumerate(names):
        cells = [BenchmarkCell(name)]
        for i, value in enumerate(values[at]):
            show = format_qps if i < len(levels) else format_milliseconds
            missing = NOT_REACHED if i < len(levels) else "-"
            points = points_in_series(sweep, name)
            speeds = [one.qps if i < len(levels) else 1 / (one.latency.p50 or math.nan) for one in points]
            used = find_points_around(points, speeds, sweep.recall, levels[i % len(levels)])
            doubt = DOUBT_MARK * any(one.clock.doubts for one in used)
            cells.append(BenchmarkCell(missing if math.isnan(value) else show(value) + doubt, value, (at, i) in best))
        rows.append(cells)
    header = ["store", *(f"QPS at {one:.2f}" for one in levels), *(f"p50 at {one:.2f}" for one in levels)]
    legend = [
        "between the two nearest points of a store's frontier, evenly in the logarithm",
        "nothing is drawn out: a store whose least recall is above has the speed of that point",
    ]
    far = sorted(range(len(levels)), key=lambda i: -abs(levels[i] - REFERENCE_RECALL))
    p50s = [len(levels) + 1 + i for i in far]
    part = BenchmarkTable("reached", "At the same recall", header, rows if levels else [], legend, p50s)
    return add_reused_column(part, [points_in_series(sweep, name) for name in names] if levels else [])


def build_relevance_table(sweep: StoreBenchmark, *, brief: bool = False) -> BenchmarkTable:
    """Build a table of scores against the relevance judgments, by ascending recall."""
    points = [one for one in _frontier_points(sweep, brief) if any(map(math.isfinite, one.relevance.values()))]
    names = list(dict.fromkeys(name for one in points for name in one.relevance))
    points.sort(key=lambda one: one.quality.get(sweep.recall, math.nan))
    values = [[one.relevance.get(name, math.nan) for name in names] for one in points]
    best = _best_cells(values, [1] * len(names))
    rows = [
        [
            BenchmarkCell(format_configuration(sweep, one)),
            _recall_cell(one.quality.get(sweep.recall, math.nan)),
            *(BenchmarkCell(format_recall(v), v, (at, i) in best) for i, v in enumerate(values[at])),
            BenchmarkCell(format_qps(one.qps) + DOUBT_MARK * bool(one.clock.doubts), one.qps),
        ]
        for at, one in enumerate(points)
    ]
    legend = [
        "by recall, the least first",
        *(describe_sufficient_recall(one) for one in find_sufficient_recalls(sweep)[1:]),
    ]  # the summary has the first
    part = BenchmarkTable("relevance", "Does it matter for answers?", ["store", "recall", *names, "QPS"], rows, legend)
    return add_reused_column(part, [[one] for one in points])


def build_load_table(sweep: StoreBenchmark) -> BenchmarkTable:
    """Build a table of load tests, with latency from the scheduled and the send time."""
    rows = []
    for point, load in ((one, load) for one in _ranked_table_points(sweep) for load in one.loads):
        asked = (
            CLOSED_LOOP_LABEL
            if load.rate is None
            else f"{load.rate:,.4g}/s"
            if load.rate < 100
            else f"{load.rate:,.0f}/s"
        )
        doubt = DOUBT_MARK * bool(load.doubts)
        rows.append(
            [
                BenchmarkCell(format_configuration(sweep, point)),
                BenchmarkCell(str(load.clients), load.clients),
                BenchmarkCell(asked, _nan_if_none(load.rate)),
                BenchmarkCell(format_qps(load.qps) + doubt, load.qps),
                BenchmarkCell("-" if load.rate is None else "yes" if load.kept_up else "no"),
                *_p50_p99_cells(load.latency, doubt),
                *_p50_p99_cells(load.service, doubt),
                BenchmarkCell(load.note),
            ]
        )
    header = ["store", "clients", "asked", "throughput", "kept up", *LATENCY_HEADERS, "sent p50", "sent p99", "note"]
    if not any(row[-1].text for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    closed = any(row[2].text == CLOSED_LOOP_LABEL for row in rows)
    legend = [
        "throughput: queries per second of wall-clock time, over all clients"
        + f"; {CLOSED_LOOP_LABEL}: each asks as soon as it has its answer" * closed,
        "p50 and p99 count from the moment at which a query was due, so that a stall counts for all who had to wait; "
        "sent p50 and sent p99 count from when it was sent, as a closed loop does",
    ]
    part = BenchmarkTable("loads", "Under load", header, rows, legend, [i for i in (9, 7, 5) if i < len(header)])
    return add_reused_column(part, [[load] for point in _ranked_table_points(sweep) for load in point.loads])


def build_filter_table(sweep: StoreBenchmark, *, every: bool = False) -> BenchmarkTable:
    """Build a table of the operating points of each store with each filter.

    With `every`, it has all configurations. The fastest one that passes the filter is marked.
    """
    choose = points_with_filter if every else operating_points
    rows, results = [], []
    for key in list_filters(sweep):
        fastest = [one.filters[0] for one in operating_points(sweep, key)[:1] if passes_filter(one.filters[0])]
        for point in choose(sweep, key):
            (one,) = point.filters
            doubt = DOUBT_MARK * bool(one.doubts)
            times = (one.latency.p50, one.latency.p95, one.latency.p99)
            rows.append(
                [
                    BenchmarkCell(one.name or format_share(one.selectivity)),
                    BenchmarkCell(format_configuration(sweep, point)),
                    _recall_cell(one.recall),
                    BenchmarkCell(format_qps(one.qps) + doubt, one.qps, one in fastest),
                    *(BenchmarkCell(format_milliseconds(value) + doubt, value) for value in times),
                    BenchmarkCell(f"{100 * one.returned:.1f}%", one.returned),
                    BenchmarkCell(f"{one.wrong:,}", one.wrong),
                    BenchmarkCell(format_share(one.selectivity), one.selectivity),
                    BenchmarkCell(f"{one.matching:,}", one.matching),
                    BenchmarkCell(str(one.repeats), one.repeats),
                ]
            )
            results.append([one])
    header = ["filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "returned", "wrong", "selectivity"]
    header += ["matching", "repeats"]
    legend = [
        f"each store at its fastest setting with recall {REFERENCE_RECALL:g} under the filter, or else with the most "
        f"recall",
        "recall against the exact neighbours among the vectors that match",
        f"returned: share of the rows that should be returned, the smaller of {sweep.k} and the number of matches",
        "wrong: number of rows that do not match",
    ][every:]
    goes = [header.index(title) for title in ("matching", "repeats", "wrong", "p95 ms", "returned", "p99 ms")]
    if not any(name for name, _ in list_filters(sweep)):  # the first column has the selectivity of random filters
        at = header.index("selectivity")
        header, rows = header[:at] + header[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
        goes = [place - (place > at) for place in goes]
    title = "Every setting with a filter" if every else "With a filter"
    part = BenchmarkTable("every_filter" if every else "filters", title, header, rows, legend, goes)
    return add_reused_column(part, results)


def build_update_table(sweep: StoreBenchmark) -> BenchmarkTable:
    """Build a table of inserts, updates and deletes."""
    rows = [
        [
            BenchmarkCell(format_configuration(sweep, point)),
            BenchmarkCell(one.operation),
            *_p50_p99_cells(one.latency),
            BenchmarkCell(format_milliseconds(one.latency.max), one.latency.max),
            BenchmarkCell(format_milliseconds(one.next_search.p50), one.next_search.p50),
            BenchmarkCell(f"{one.latency.n:,}", one.latency.n),
            BenchmarkCell(f"{100 * one.visible:.0f}%", one.visible),
        ]
        for point in _ranked_table_points(sweep)
        for one in point.changes
    ]
    header = ["store", "change", *LATENCY_HEADERS, "max ms", "next ms", "n", "seen"]
    legend = [
        "next: the search right after, which pays for what was put off",
        "seen: the share of changes that it saw; an update also has to be gone from its old place",
    ]
    part = BenchmarkTable("changes", "Changes", header, rows, legend, (4,))
    return add_reused_column(part, [[one] for point in _ranked_table_points(sweep) for one in point.changes])


def build_mixed_table(sweep: StoreBenchmark) -> BenchmarkTable:
    """Build a table of searches during inserts."""
    rows = [
        [
            BenchmarkCell(format_configuration(sweep, point)),
            BenchmarkCell(format_qps(one.inserts_per_second), one.inserts_per_second),
            BenchmarkCell("together" if one.together else "in turns"),
            _recall_cell(one.recall),
            *_p50_p99_cells(one.latency),
            *_p50_p99_cells(one.alone),
        ]
        for point in _ranked_table_points(sweep)
        if (one := point.mixed) is not None
    ]
    header = ["store", "inserts/s", "how", "recall", *LATENCY_HEADERS, "alone p50", "alone p99"]
    legend = [
        "inserts/s: what came in, of vectors that were sent at an even pace: whoever keeps up has that pace and may be "
        "able to do more",
        "recall of each search against the exact neighbours of what was there when it began",
        "in turns: the engine takes one thing at a time",
    ]
    part = BenchmarkTable("mixed", "Search while inserting", header, rows, legend, (6, 2))
    return add_reused_column(part, [[point.mixed] for point in _ranked_table_points(sweep) if point.mixed is not None])


def _displayed_points(sweep: StoreBenchmark, brief: bool) -> list[MeasuredConfiguration]:
    """Return the representative configuration of each store, or all frontier points."""
    if not brief:
        return _frontier_points(sweep, brief)
    return [point for series in rank_stores(sweep) if (point := representative_point(sweep, series)) is not None]


def _points_without_null(sweep: StoreBenchmark) -> list[MeasuredConfiguration]:
    return [one for one in sweep.points if not one.is_floor]


def _ranked_table_points(sweep: StoreBenchmark) -> list[MeasuredConfiguration]:
    """Return all points by rank of their series, including the null store."""
    return [point for series in rank_all_series(sweep) for point in points_in_series(sweep, series)]


def _p50_p99_cells(found: Latency, doubt: str = "") -> list[BenchmarkCell]:
    return [BenchmarkCell(format_milliseconds(value) + doubt, value) for value in (found.p50, found.p99)]


def _recall_cell(value: float) -> BenchmarkCell:
    return BenchmarkCell(format_recall(value), value)


def _nan_if_none(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _format_cost(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _non_empty_lines(legend: Sequence[str]) -> list[str]:
    return [one for one in legend if one]


def _best_cells(values: Sequence[Sequence[float]], better: Sequence[int]) -> set[tuple[int, int]]:
    """Return the positions of the best values of each column, unless all are equal."""
    found: set[tuple[int, int]] = set()
    for i, sign in enumerate(better):
        known = {at: sign * row[i] for at, row in enumerate(values) if math.isfinite(row[i])}
        if sign and len(set(known.values())) > 1:
            found |= {(at, i) for at, value in known.items() if value == max(known.values())}
    return found
