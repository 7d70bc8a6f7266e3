"""The tables of a sweep, once for the terminal, for Markdown and for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ragauge.outcomes import Latency
from ragauge.reports.sweeps_words import (
    DOUBT,
    MEGABYTE,
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
from ragauge.reports.tables import milliseconds, rate
from ragauge.sweeps import LEVEL, Point, Sweep

NOT_REACHED = "not reached"
FLAT_OUT = "flat out"
"""Every client asks as soon as it has its answer."""
TIMES = ("p50 ms", "p99 ms")
LONG = 30
"""More configurations than that are too many for a terminal."""


class Figure(NamedTuple):
    """A cell: how it is shown, what it is sorted by, and whether it is the best of its column."""

    text: str
    value: float = math.nan
    best: bool = False


@dataclass(frozen=True)
class Part:
    """A table with what is said of it."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Figure]]
    legend: Sequence[str] = ()
    goes: Sequence[int] = ()
    """Which columns a narrow terminal does without, the first first."""
    groups: Sequence[str] = ()
    """For each row the store that it belongs to, where several rows do; a row's first cell then lacks it."""

    @property
    def texts(self) -> list[list[str]]:
        """The cells without what is known of them."""
        return [[one.text for one in row] for row in self.rows]


class Column(NamedTuple):
    """A figure of a configuration."""

    title: str
    value: Callable[[Point], float]
    show: Callable[[float], str]
    better: int = 0
    """1 where more is better, -1 where less is."""


def parts(sweep: Sweep, *, brief: bool = False) -> list[Part]:
    """Every table that the sweep has figures for."""
    made = (loads, filters, changes, mixed)
    first = (frontier(sweep, brief=brief), reached(sweep), relevance(sweep, brief=brief))
    return [part for part in (*first, *(make(sweep) for make in made)) if part.rows]


def columns(sweep: Sweep) -> list[Column]:
    """What is shown of each configuration."""
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
    """The configurations of each store that none of its own beats in both recall and speed; or simply all.

    `brief` leaves a long list with the fastest of each store at each recall that was looked for, and the most exact.
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
    return Part("every" if every else "frontier", title, ["store", *titles], rows, _there(legend), goes, groups)


def _worth(sweep: Sweep, brief: bool) -> list[Point]:
    """The points of all frontiers, store by store."""
    lines = [[sweep.points[i] for i in sweep.frontiers.get(series, ())] for series in ranked(sweep)]
    short = brief and sum(map(len, lines)) > LONG
    return [one for line in lines for one in (_steps(sweep, line) if short else line)]


def _steps(sweep: Sweep, line: Sequence[Point]) -> list[Point]:
    """The first point of a frontier at each level, and the last."""
    levels = sorted({one.recall for one in sweep.reached})
    recalls = [one.quality[sweep.recall] for one in line]
    firsts = {next((i for i, one in enumerate(recalls) if one >= level - 1e-9), len(line) - 1) for level in levels}
    return [line[i] for i in sorted(firsts | {len(line) - 1})] if line else []


def reached(sweep: Sweep) -> Part:
    """Queries per second at each recall, and the latency at the one that stores are ranked by."""
    levels = sorted({one.recall for one in sweep.reached})
    found = {(one.store, one.recall): one for one in sweep.reached}
    names = [one for one in ranked(sweep) if any((one, level) in found for level in levels)]
    values = [
        [_known(found[one, level].qps) for level in levels] + [_known(found[one, level].p50_ms) for level in levels]
        for one in names
    ]
    best = _best(values, [1] * len(levels) + [-1] * len(levels))
    rows = []
    for at, name in enumerate(names):
        cells = [Figure(name)]
        for i, value in enumerate(values[at]):
            show = rate if i < len(levels) else milliseconds
            missing = NOT_REACHED if i < len(levels) else "-"
            cells.append(Figure(missing if math.isnan(value) else show(value), value, (at, i) in best))
        rows.append(cells)
    header = ["store", *(f"QPS at {one:.2f}" for one in levels), *(f"p50 at {one:.2f}" for one in levels)]
    legend = [
        "between the two nearest points of a store's frontier, evenly in the logarithm",
        "nothing is drawn out: a store whose least recall is above has the speed of that point",
    ]
    far = sorted(range(len(levels)), key=lambda i: -abs(levels[i] - LEVEL))
    p50s = [len(levels) + 1 + i for i in far]
    return Part("reached", "At the same recall", header, rows if levels else [], legend, p50s)


def relevance(sweep: Sweep, *, brief: bool = False) -> Part:
    """What the judgments of people say of each configuration, by recall."""
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
    legend = ["by recall, the least first", *(stops(one) for one in enough(sweep)[1:])]  # the verdict has the first
    return Part("relevance", "Does it matter for answers?", ["store", "recall", *names, "QPS"], rows, legend)


def loads(sweep: Sweep) -> Part:
    """Several clients, and fixed rates: times from when a query was due beside those from when it was sent."""
    rows = []
    for point, load in ((one, load) for one in _in_order(sweep) for load in one.loads):
        asked = FLAT_OUT if load.rate is None else f"{load.rate:,.4g}/s" if load.rate < 100 else f"{load.rate:,.0f}/s"
        doubt = DOUBT * bool(load.note)
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
    header = ["store", "clients", "asked", "QPS", "kept up", *TIMES, "sent p50", "sent p99", "note"]
    if not any(row[-1].text for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    closed = any(row[2].text == FLAT_OUT for row in rows)
    legend = [
        "QPS by the wall clock, over all clients" + f"; {FLAT_OUT}: each asks as soon as it has its answer" * closed,
        "p50 and p99 count from the moment at which a query was due, so that a stall counts for all who had to wait; "
        "sent p50 and sent p99 count from when it was sent, as a closed loop does",
    ]
    return Part("loads", "Under load", header, rows, legend, [i for i in (9, 7, 5) if i < len(header)])


def filters(sweep: Sweep) -> Part:
    """Search among the vectors that a condition lets through."""
    rows = [
        [
            Figure(named(sweep, point)),
            Figure(f"{100 * one.selectivity:g}%", one.selectivity),
            Figure(f"{one.matching:,}", one.matching),
            Figure(f"{100 * one.returned:.1f}%", one.returned),
            _recall(one.recall),
            Figure(f"{one.wrong:,}", one.wrong),
            *_times(one.latency),
        ]
        for point in _in_order(sweep)
        for one in point.filters
    ]
    header = ["store", "let through", "matching", "returned", "recall", "wrong", *TIMES]
    legend = [
        f"returned: rows that came back, of those that should: the smaller of {sweep.k} and what matches",
        "recall against the exact neighbours among what matches",
        "wrong: rows that do not match",
    ]
    return Part("filters", "With a filter", header, rows, legend, (2, 7, 5))


def changes(sweep: Sweep) -> Part:
    """Inserting, updating and deleting, one vector at a time."""
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
    return Part("changes", "Changes", header, rows, legend, (4,))


def mixed(sweep: Sweep) -> Part:
    """Search while vectors come in."""
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
    return Part("mixed", "Search while inserting", header, rows, legend, (6, 2))


def _real(sweep: Sweep) -> list[Point]:
    return [one for one in sweep.points if not one.is_floor]


def _in_order(sweep: Sweep) -> list[Point]:
    """All points; the harness too, which has these figures only where it was told to behave badly."""
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
    """The places of the best of each column, where not all are alike."""
    found: set[tuple[int, int]] = set()
    for i, sign in enumerate(better):
        known = {at: sign * row[i] for at, row in enumerate(values) if math.isfinite(row[i])}
        if sign and len(set(known.values())) > 1:
            found |= {(at, i) for at, value in known.items() if value == max(known.values())}
    return found
