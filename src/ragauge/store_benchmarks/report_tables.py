"""Tables of a benchmark for the terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragauge.core.summaries import Latency
from ragauge.output.numbers import milliseconds, rate
from ragauge.output.terminal import format_share
from ragauge.store_benchmarks.filter_results import list_filters, operating_points, passes_filter, points_with_filter
from ragauge.store_benchmarks.report_text import (
    DOUBT,
    MEGABYTE,
    chosen,
    enough,
    everyone,
    meant,
    megabytes,
    named,
    of_series,
    options,
    ranked,
    recalled,
    seconds,
    shared,
    stops,
)
from ragauge.store_benchmarks.results import LEVEL, Point, Sweep, points_around
from ragauge.store_benchmarks.reused_results import LEGEND, Result, format_reused

EXPLAINED = ("frontier", "every")
"""Ids of the tables whose legend explains the column of reused results."""


class Figure(NamedTuple):
    """Table cell: text, sort value, and whether it is the best of its column."""

    text: str
    value: float = math.nan
    best: bool = False


@dataclass(frozen=True)
class Part:
    """Table with its title and legend."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Figure]]
    legend: Sequence[str] = ()
    goes: Sequence[int] = ()
    """Columns that are dropped on a narrow terminal, in this order."""
    groups: Sequence[str] = ()
    """Store of each row, if a store has several rows; the first cell then omits it."""

    @property
    def texts(self) -> list[list[str]]:
        """Texts of the cells."""
        return [[one.text for one in row] for row in self.rows]


def mark_reused(part: Part, results: Sequence[Sequence[Result]]) -> Part:
    """Add a column with the dates of reused results, if there are any.

    `results` are the results of each row.
    """
    if not any(one.reused for row in results for one in row):
        return part
    rows = [[*row, Figure(format_reused(own))] for row, own in zip(part.rows, results, strict=True)]
    legend = [*part.legend, *([LEGEND] if part.id in EXPLAINED else [])]
    return replace(part, header=[*part.header, "reused"], rows=rows, legend=legend)


NOT_REACHED = "not reached"
FLAT_OUT = "flat out"
"""Label of a closed loop, in which each client sends its next query after each result."""
TIMES = ("p50 ms", "p99 ms")
LONG = 30
"""Maximum number of frontier configurations on a terminal."""


class Column(NamedTuple):
    """Column of a table of configurations."""

    title: str
    value: Callable[[Point], float]
    show: Callable[[float], str]
    better: int = 0
    """1 if higher is better, -1 if lower is better, 0 if neither."""


def parts(sweep: Sweep, *, brief: bool = False) -> list[Part]:
    """Build every table that the benchmark has results for."""
    made = (loads, filters, changes, mixed)
    first = (
        *(frontier(sweep, brief=brief), quality(sweep, brief=brief), latency(sweep, brief=brief)),
        *(reached(sweep), relevance(sweep, brief=brief)),
    )
    return [part for part in (*first, *(make(sweep) for make in made)) if part.rows]


def columns(sweep: Sweep) -> list[Column]:
    """Return the columns of a table of configurations."""
    size = MEGABYTE
    found = [
        Column("recall", lambda one: one.quality.get(sweep.recall, math.nan), recalled, 1),
        Column("QPS", lambda one: one.qps, rate, 1),
        Column("p50 ms", lambda one: one.latency.p50, milliseconds, -1),
        Column("p99 ms", lambda one: one.latency.p99, milliseconds, -1),
        Column("build s", lambda one: one.build.seconds, seconds, -1),
        Column("memory MB", lambda one: _known(one.build.memory_bytes) / size, megabytes, -1),
        Column("disk MB", lambda one: _known(one.build.disk_bytes) / size, megabytes, -1),
        Column("cold ms", lambda one: one.build.cold_open_ms + one.build.cold_first_ms, milliseconds, -1),
    ]
    if any(math.isfinite(one.cost_per_million) for one in sweep.points):
        found.append(Column("cost/million", lambda one: one.cost_per_million, _money, -1))
    return [one for one in found if any(math.isfinite(one.value(point)) for point in _real(sweep))]


def frontier(sweep: Sweep, *, every: bool = False, brief: bool = False) -> Part:
    """Build a table of the Pareto frontier of each store, or of every configuration.

    With `brief`, a long list is reduced to the fastest configuration of each store at each recall level, and the one
    with the highest recall.
    """
    kept = columns(sweep)
    chosen = [one for series in ranked(sweep) for one in of_series(sweep, series)] if every else _worth(sweep, brief)
    best = _best([[column.value(one) for column in kept] for one in chosen], [column.better for column in kept])
    rows, groups = [], []
    for at, point in enumerate(chosen):
        series = point.configuration.series
        told = options(point.configuration, shared(of_series(sweep, series)))
        cells = [Figure(told)]
        for i, column in enumerate(kept):
            value = column.value(point)
            doubt = DOUBT if point.clock.doubts and column.title in ("QPS", *TIMES) else ""
            cells.append(Figure(column.show(value) + doubt, value, (at, i) in best))
        rows.append(cells)
        groups.append(series)
    titles = [one.title for one in kept]
    goes = [titles.index(one) + 1 for one in ("cold ms", "disk MB", "build s", "p99 ms") if one in titles]
    legend = [
        f"recall is {meant(sweep.recall)}",
        "QPS is 1000 / mean ms of one client",
        "build is inserting and indexing" * ("build s" in titles),
        "cold is opening what was kept in a new process, and the first search" * ("cold ms" in titles),
        "cost/million is for a million queries on one such thread at its price" * ("cost/million" in titles),
    ]
    title = "Every configuration" if every else "Worth having"
    part = Part("every" if every else "frontier", title, ["store", *titles], rows, _there(legend), goes, groups)
    return mark_reused(part, [[one] for one in chosen])


def _worth(sweep: Sweep, brief: bool) -> list[Point]:
    """Return the points of all frontiers, store by store."""
    lines = [[sweep.points[i] for i in sweep.frontiers.get(series, ())] for series in ranked(sweep)]
    short = brief and sum(map(len, lines)) > LONG
    return [one for line in lines for one in (_steps(sweep, line) if short else line)]


def _steps(sweep: Sweep, line: Sequence[Point]) -> list[Point]:
    """Return the first point of a frontier at each recall level, and the last point."""
    levels = sorted({one.recall for one in sweep.reached})
    recalls = [one.quality[sweep.recall] for one in line]
    firsts = {next((i for i, one in enumerate(recalls) if one >= level - 1e-9), len(line) - 1) for level in levels}
    return [line[i] for i in sorted(firsts | {len(line) - 1})] if line else []


def quality(sweep: Sweep, *, brief: bool = False) -> Part:
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
            Figure(named(sweep, point)),
            Figure(f"{k:,}", k),
            *(_recall(point.quality.get(f"{measure}{k}", math.nan)) for measure in measures.values()),
        ]
        for point in _shown(sweep, brief)
        for k in sweep.scored_at
    ]
    several = f"every k is scored from one search at k = {sweep.k:,}; a search at a smaller k may find less"
    legend = [
        several * (len(sweep.scored_at) > 1),
        f"in {', '.join(list(measures)[1:])} all {known or ''} exact neighbours count as relevant".replace("  ", " "),
    ]
    part = Part("quality", "Quality", ["store", "k", *measures], rows, _there(legend), (3,))
    return mark_reused(part, [[point] for point in _shown(sweep, brief) for _ in sweep.scored_at])


def latency(sweep: Sweep, *, brief: bool = False) -> Part:
    """Build a table of latency percentiles.

    With `brief`, it has one configuration per store.
    """
    kinds = ("p50", "p90", "p95", "p99", "mean", "max")
    rows = []
    for point in _shown(sweep, brief):
        doubt = DOUBT * bool(point.clock.doubts)
        values = [getattr(point.latency, kind) for kind in kinds]
        cells = [Figure(milliseconds(value) + doubt, value) for value in values]
        rows.append([Figure(named(sweep, point)), *cells, Figure(rate(point.qps) + doubt, point.qps)])
    header = ["store", "p50 ms", *(kind for kind in kinds[1:]), "QPS"]
    part = Part("latency", "Latency", header, rows, ["milliseconds per query of one client"], (6,))
    return mark_reused(part, [[point] for point in _shown(sweep, brief)])


def reached(sweep: Sweep) -> Part:
    """Build a table of the QPS and p50 latency of each store at each recall level."""
    levels = sorted({one.recall for one in sweep.reached})
    found = {(one.store, one.recall): one for one in sweep.reached}
    names = [one for one in ranked(sweep) if any((one, level) in found for level in levels)]
    at_levels = {one: [found.get((one, level)) for level in levels] for one in names}
    values = [
        [_known(at.qps if at else None) for at in at_levels[one]]
        + [_known(at.p50_ms if at else None) for at in at_levels[one]]
        for one in names
    ]
    best = _best(values, [1] * len(levels) + [-1] * len(levels))
    rows = []
    for at, name in enumerate(names):
        cells = [Figure(name)]
        for i, value in enumerate(values[at]):
            show = rate if i < len(levels) else milliseconds
            missing = NOT_REACHED if i < len(levels) else "-"
            points = of_series(sweep, name)
            speeds = [one.qps if i < len(levels) else 1 / (one.latency.p50 or math.nan) for one in points]
            used = points_around(points, speeds, sweep.recall, levels[i % len(levels)])
            doubt = DOUBT * any(one.clock.doubts for one in used)
            cells.append(Figure(missing if math.isnan(value) else show(value) + doubt, value, (at, i) in best))
        rows.append(cells)
    header = ["store", *(f"QPS at {one:.2f}" for one in levels), *(f"p50 at {one:.2f}" for one in levels)]
    legend = [
        "between the two nearest points of a store's frontier, evenly in the logarithm",
        "nothing is drawn out: a store whose least recall is above has the speed of that point",
    ]
    far = sorted(range(len(levels)), key=lambda i: -abs(levels[i] - LEVEL))
    p50s = [len(levels) + 1 + i for i in far]
    part = Part("reached", "At the same recall", header, rows if levels else [], legend, p50s)
    return mark_reused(part, [of_series(sweep, name) for name in names] if levels else [])


def relevance(sweep: Sweep, *, brief: bool = False) -> Part:
    """Build a table of scores against the relevance judgments, by ascending recall."""
    points = [one for one in _worth(sweep, brief) if any(map(math.isfinite, one.relevance.values()))]
    names = list(dict.fromkeys(name for one in points for name in one.relevance))
    points.sort(key=lambda one: one.quality.get(sweep.recall, math.nan))
    values = [[one.relevance.get(name, math.nan) for name in names] for one in points]
    best = _best(values, [1] * len(names))
    rows = [
        [
            Figure(named(sweep, one)),
            _recall(one.quality.get(sweep.recall, math.nan)),
            *(Figure(recalled(v), v, (at, i) in best) for i, v in enumerate(values[at])),
            Figure(rate(one.qps) + DOUBT * bool(one.clock.doubts), one.qps),
        ]
        for at, one in enumerate(points)
    ]
    legend = ["by recall, the least first", *(stops(one) for one in enough(sweep)[1:])]  # the summary has the first
    part = Part("relevance", "Does it matter for answers?", ["store", "recall", *names, "QPS"], rows, legend)
    return mark_reused(part, [[one] for one in points])


def loads(sweep: Sweep) -> Part:
    """Build a table of load tests, with latency from the scheduled and the send time."""
    rows = []
    for point, load in ((one, load) for one in _in_order(sweep) for load in one.loads):
        asked = FLAT_OUT if load.rate is None else f"{load.rate:,.4g}/s" if load.rate < 100 else f"{load.rate:,.0f}/s"
        doubt = DOUBT * bool(load.doubts)
        rows.append(
            [
                Figure(named(sweep, point)),
                Figure(str(load.clients), load.clients),
                Figure(asked, _known(load.rate)),
                Figure(rate(load.qps) + doubt, load.qps),
                Figure("-" if load.rate is None else "yes" if load.kept_up else "no"),
                *_times(load.latency, doubt),
                *_times(load.service, doubt),
                Figure(load.note),
            ]
        )
    header = ["store", "clients", "asked", "throughput", "kept up", *TIMES, "sent p50", "sent p99", "note"]
    if not any(row[-1].text for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    closed = any(row[2].text == FLAT_OUT for row in rows)
    legend = [
        "throughput: queries per second of wall-clock time, over all clients"
        + f"; {FLAT_OUT}: each asks as soon as it has its answer" * closed,
        "p50 and p99 count from the moment at which a query was due, so that a stall counts for all who had to wait; "
        "sent p50 and sent p99 count from when it was sent, as a closed loop does",
    ]
    part = Part("loads", "Under load", header, rows, legend, [i for i in (9, 7, 5) if i < len(header)])
    return mark_reused(part, [[load] for point in _in_order(sweep) for load in point.loads])


def filters(sweep: Sweep, *, every: bool = False) -> Part:
    """Build a table of the operating points of each store with each filter.

    With `every`, it has all configurations. The fastest one that passes the filter is marked.
    """
    choose = points_with_filter if every else operating_points
    rows, results = [], []
    for key in list_filters(sweep):
        fastest = [one.filters[0] for one in operating_points(sweep, key)[:1] if passes_filter(one.filters[0])]
        for point in choose(sweep, key):
            (one,) = point.filters
            doubt = DOUBT * bool(one.doubts)
            times = (one.latency.p50, one.latency.p95, one.latency.p99)
            rows.append(
                [
                    Figure(one.name or format_share(one.selectivity)),
                    Figure(named(sweep, point)),
                    _recall(one.recall),
                    Figure(rate(one.qps) + doubt, one.qps, one in fastest),
                    *(Figure(milliseconds(value) + doubt, value) for value in times),
                    Figure(f"{100 * one.returned:.1f}%", one.returned),
                    Figure(f"{one.wrong:,}", one.wrong),
                    Figure(format_share(one.selectivity), one.selectivity),
                    Figure(f"{one.matching:,}", one.matching),
                    Figure(str(one.repeats), one.repeats),
                ]
            )
            results.append([one])
    header = ["filter", "store", "recall", "QPS", "p50 ms", "p95 ms", "p99 ms", "returned", "wrong", "selectivity"]
    header += ["matching", "repeats"]
    legend = [
        f"each store at its fastest setting with recall {LEVEL:g} under the filter, or else with the most recall",
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
    part = Part("every_filter" if every else "filters", title, header, rows, legend, goes)
    return mark_reused(part, results)


def changes(sweep: Sweep) -> Part:
    """Build a table of inserts, updates and deletes."""
    rows = [
        [
            Figure(named(sweep, point)),
            Figure(one.operation),
            *_times(one.latency),
            Figure(milliseconds(one.latency.max), one.latency.max),
            Figure(milliseconds(one.next_search.p50), one.next_search.p50),
            Figure(f"{one.latency.n:,}", one.latency.n),
            Figure(f"{100 * one.visible:.0f}%", one.visible),
        ]
        for point in _in_order(sweep)
        for one in point.changes
    ]
    header = ["store", "change", *TIMES, "max ms", "next ms", "n", "seen"]
    legend = [
        "next: the search right after, which pays for what was put off",
        "seen: the share of changes that it saw; an update also has to be gone from its old place",
    ]
    part = Part("changes", "Changes", header, rows, legend, (4,))
    return mark_reused(part, [[one] for point in _in_order(sweep) for one in point.changes])


def mixed(sweep: Sweep) -> Part:
    """Build a table of searches during inserts."""
    rows = [
        [
            Figure(named(sweep, point)),
            Figure(rate(one.inserts_per_second), one.inserts_per_second),
            Figure("together" if one.together else "in turns"),
            _recall(one.recall),
            *_times(one.latency),
            *_times(one.alone),
        ]
        for point in _in_order(sweep)
        if (one := point.mixed) is not None
    ]
    header = ["store", "inserts/s", "how", "recall", *TIMES, "alone p50", "alone p99"]
    legend = [
        "inserts/s: what came in, of vectors that were sent at an even pace: whoever keeps up has that pace and may be "
        "able to do more",
        "recall of each search against the exact neighbours of what was there when it began",
        "in turns: the engine takes one thing at a time",
    ]
    part = Part("mixed", "Search while inserting", header, rows, legend, (6, 2))
    return mark_reused(part, [[point.mixed] for point in _in_order(sweep) if point.mixed is not None])


def _shown(sweep: Sweep, brief: bool) -> list[Point]:
    """Return the representative configuration of each store, or all frontier points."""
    if not brief:
        return _worth(sweep, brief)
    return [point for series in ranked(sweep) if (point := chosen(sweep, series)) is not None]


def _real(sweep: Sweep) -> list[Point]:
    return [one for one in sweep.points if not one.is_floor]


def _in_order(sweep: Sweep) -> list[Point]:
    """Return all points by rank of their series, including the null store."""
    return [point for series in everyone(sweep) for point in of_series(sweep, series)]


def _times(found: Latency, doubt: str = "") -> list[Figure]:
    return [Figure(milliseconds(value) + doubt, value) for value in (found.p50, found.p99)]


def _recall(value: float) -> Figure:
    return Figure(recalled(value), value)


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _money(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _there(legend: Sequence[str]) -> list[str]:
    return [one for one in legend if one]


def _best(values: Sequence[Sequence[float]], better: Sequence[int]) -> set[tuple[int, int]]:
    """Return the positions of the best values of each column, unless all are equal."""
    found: set[tuple[int, int]] = set()
    for i, sign in enumerate(better):
        known = {at: sign * row[i] for at, row in enumerate(values) if math.isfinite(row[i])}
        if sign and len(set(known.values())) > 1:
            found |= {(at, i) for at, value in known.items() if value == max(known.values())}
    return found
