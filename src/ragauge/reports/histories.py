"""Histories on a terminal, as Markdown, as CSV and as plain data: how measures went, and since when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ragauge.comparisons import figures
from ragauge.histories import Change, History, Point
from ragauge.reports.comparisons import interval, signed
from ragauge.reports.markdown import grid, safe
from ragauge.reports.sparklines import BLOCKS, sparkline
from ragauge.reports.tables import (
    cell,
    csv_text,
    fitting,
    milliseconds,
    number,
    one_line,
    p_value,
    plain_table,
    shortened,
    shown,
    without_nan,
)

SCHEMA = "ragauge-history/1"
HEADER = ["system", "measure", "trend", "runs", "since", "first", "last", "change", "p"]
GOES = ("since", "runs")
"""Which columns a narrow terminal does without, the first first."""
LONGEST, SHORTEST = 24, 8
"""How many points the small line has, as there is room."""
MOST = 5
"""How many sentences of a kind are said."""


class Part(NamedTuple):
    """The table of one dataset: title, rows, and for each row what became of it."""

    title: str
    rows: list[list[str]]
    changes: list[Change | None]


def figure(value: float, measure: str) -> str:
    """A value as its measure is read: four decimals, or three digits of a time.

    >>> figure(0.27738, "ndcg@10"), figure(12.345, "p95_ms"), figure(1486.7, "qps"), figure(math.nan, "qps")
    ('0.2774', '12.3', '1,487', '-')
    """
    if math.isnan(value):
        return "-"
    if measure == "qps":
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    if is_time(measure):
        sign = "-" if value < 0 else ""
        return f"{sign}{milliseconds(abs(value))}"
    return shown(value, measure)


def is_time(measure: str) -> bool:
    """Whether a figure says how fast, not how good.

    >>> [is_time(name) for name in ("p95_ms", "qps", "build_seconds", "ndcg@10")]
    [True, True, True, False]
    """
    return measure == "qps" or measure.endswith(("_ms", "_seconds"))


def difference(value: float, measure: str) -> str:
    """The same with its sign."""
    if math.isnan(value):
        return "-"
    return f"+{figure(value, measure)}" if value >= 0 else figure(value, measure)


def dates(found: History, *, narrow: bool = False) -> str:
    """How moments are written: a day, or where all is of one day the time; where room is scarce, without the year."""
    if len({one.when.date() for one in found.points}) < 2:
        return "%H:%M:%S"
    return "%m-%d" if narrow and len({one.when.year for one in found.points}) < 2 else "%Y-%m-%d"


def trend(points: Sequence[Point], width: int = LONGEST, marks: str = BLOCKS) -> str:
    """The last points as a small line, with a gap before one that cannot be compared with the one before.

    It is as high as the intervals reach, so that what may be chance looks small.
    """
    values: list[float | None] = []
    for place, one in enumerate(points):
        values += [None, one.mean.value] if one.changed and place else [one.mean.value]
    means = [one.mean for one in points]
    ends = [end for one in means for end in (one.value, one.low, one.high) if math.isfinite(end)]
    if not ends:
        return ""
    return sparkline(values[-width:], min(ends), max(ends), marks=marks).strip()


def parts(found: History, width: int = LONGEST, marks: str = BLOCKS) -> Iterator[Part]:
    """A table for each dataset, a row for each system and measure."""
    style = dates(found, narrow=width < LONGEST)
    for dataset in found.datasets:
        mine = found.of(dataset)
        rows: list[list[str]] = []
        changes: list[Change | None] = []
        for system in mine.systems:
            for measure in mine.measures:
                points = mine.series(system, measure)
                if points:
                    change = mine.change(system, measure, against="first")
                    rows.append(_row(mine, points, change, trend(points, width, marks), style))
                    changes.append(change)
        days = list(dict.fromkeys(one.when.strftime("%Y-%m-%d") for one in mine.points))
        many = len(mine.folders)
        span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        yield Part(f"{dataset or 'runs'}: {many:,} folder{'s' * (many != 1)}, {span}", rows, changes)


def _row(found: History, points: Sequence[Point], change: Change | None, line: str, style: str) -> list[str]:
    last = points[-1]
    alike = found.comparable.get((last.dataset, last.system, last.measure), 1)
    since = change.since if change is not None else last
    return [
        one_line(last.system),
        one_line(last.measure),
        line,
        f"{alike}" if alike == len(points) else f"{alike}/{len(points)}",
        since.when.strftime(style),
        figure(since.mean.value, last.measure) if change is not None else "-",
        figure(last.mean.value, last.measure),
        "-" if change is None else difference(change.difference, last.measure),
        "-" if change is None else p_value(change.p),
    ]


def tables(found: History, width: int, marks: str = BLOCKS) -> tuple[list[Table | Text], list[str]]:
    """Everything for a terminal, and the titles of the columns for which it is too narrow."""
    pieces: list[Table | Text] = []
    left: dict[str, None] = {}
    for part in parts(found, LONGEST if width > 100 else SHORTEST, marks):
        kept = fitting(HEADER, part.rows, width, [HEADER.index(title) for title in GOES])
        left.update(dict.fromkeys(title for i, title in enumerate(HEADER) if i not in kept))
        table = plain_table([HEADER[i] for i in kept])
        for place in (1, 2):
            table.columns[place].justify = "left"
        before = ""
        for name, row, change in zip(shortened(HEADER, part.rows, kept, width), part.rows, part.changes, strict=True):
            sure = change is not None and change.p < 1 - found.confidence
            colour = "bold green" if sure and change is not None and change.better else "bold red" if sure else ""
            cells = [cell(row[i], colour if HEADER[i] in ("change", "p") else "") for i in kept[1:]]
            table.add_row(cell("" if row[0] == before else name), *cells)
            before = row[0]
        pieces += [cell(part.title, "bold"), table, Text("")]
    return pieces[:-1], list(left)


def sentence(change: Change) -> str:
    """What has changed, in words, since which day and folder."""
    measure, row = change.last.measure, change.comparison
    told = difference(change.difference, measure)
    if row is not None:
        told = f"{signed(row.difference)} {interval(row.ci)}, p {p_value(change.p)}"
    values = f"{figure(change.since.mean.value, measure)} -> {figure(change.last.mean.value, measure)}"
    word = "better" if change.better else "worse"
    which = " than its best" if change.against == "best" else ""
    when = f"{change.since.when:%Y-%m-%d}"
    return f"{word}{which}: {measure} of {change.last.system}: {values} ({told}) since {when} ({change.since.folder})"


def verdicts(found: History) -> list[str]:
    """What has surely changed since the run before, and what is surely below its best."""
    alpha = 1 - found.confidence
    before = [one for one in found.changes if one.against == "before"]
    sure = [one for one in before if one.p < alpha]
    told = {id(one.since): one for one in sure}
    best = [
        one
        for one in found.changes
        if one.against == "best" and one.p < alpha and not one.better and id(one.since) not in told
    ]
    worse = [one for one in sure if not one.better]
    lines = [
        *_first([sentence(one) for one in worse], "worse than in the run before"),
        *_first([sentence(one) for one in best], "worse than their best"),
        *_first([sentence(one) for one in sure if one.better], "better than in the run before"),
    ]
    tested = [one for one in before if not math.isnan(one.p)]
    if tested and not sure:
        lines.append("against the run before nothing is surely better or worse")
    return lines


def _first(lines: Sequence[str], what: str) -> list[str]:
    more = [f"{len(lines) - MOST} more are {what}; --json has them"] if len(lines) > MOST else []
    return [*lines[:MOST], *more]


def breaks(found: History) -> list[str]:
    """Where series are broken: a line for each folder and reason, the latest first."""
    known: dict[tuple[str, str], list[Point]] = {}
    for one in found.points:
        if one.changed:
            known.setdefault((one.folder, one.changed), []).append(one)
    lines = []
    for (folder, changed), points in reversed(known.items()):
        who = ", ".join(dict.fromkeys(one.system for one in points))
        lines.append(f"{points[0].when:%Y-%m-%d} ({folder}): {changed}; {who}: not compared with the run before")
    return _first(lines, "not compared with the run before")


def explained(found: History) -> list[str]:
    """What the columns are."""
    lines = []
    tested = [one for one in found.changes if one.against == "first" and not math.isnan(one.p)]
    if found.changes:
        lines.append("change: of the last run against the first that it can be compared with")
    if tested:
        many = f"{len(tested)} series" if len(tested) > 1 else "one series"
        lines.append(f"p: paired t-test over queries, Holm-corrected for {many}")
    if any(is_time(one.measure) for one in found.points):
        lines.append("times are not tested: what makes them differ from run to run is not in the queries")
    return lines


def about(found: History) -> list[str]:
    """What the numbers are, what could not be compared, and what could not be read."""
    return [*explained(found), *found.notes, *breaks(found), *unread(found), *verdicts(found)]


def unread(found: History) -> list[str]:
    """Which folders could not be read, and why."""
    skipped = [why if folder in why else f"{folder}: {why}" for folder, why in found.skipped.items()]
    return _first([f"not read: {one}" for one in skipped], "not read")


def markdown(found: History) -> str:
    """The tables and what they are, as Markdown."""
    lines: list[str] = []
    for part in parts(found):
        lines += [f"### {safe(part.title)}", "", *grid(HEADER, part.rows), ""]
    return "\n".join([*lines, *(f"- {safe(line)}" for line in about(found)), ""])


def as_csv(found: History) -> str:
    """A row for each point."""
    header = ["when", "folder", "dataset", "system", "measure", "mean", "low", "high", "n", "changed"]
    rows = (
        [
            *(one.when.isoformat(), one.folder, one.dataset, one.system, one.measure),
            *(number(one.mean.value), number(one.mean.low), number(one.mean.high), str(one.mean.n), one.changed),
        ]
        for one in found.points
    )
    return csv_text(header, rows)


def as_data(found: History) -> dict[str, Any]:
    """`{"schema": …, "points": […], "changes": […], "skipped": {…}, "notes": […]}`; what is not a number is null."""
    data = {
        "schema": SCHEMA,
        "confidence": found.confidence,
        "points": [_point(one) for one in found.points],
        "changes": [
            {
                "against": one.against,
                "dataset": one.last.dataset,
                "system": one.last.system,
                "measure": one.last.measure,
                "since": {"when": one.since.when.isoformat(), "folder": one.since.folder},
                "last": {"when": one.last.when.isoformat(), "folder": one.last.folder},
                "difference": one.difference,
                "better": one.better,
                "p": one.p,
                "comparison": None if one.comparison is None else figures(one.comparison),
            }
            for one in found.changes
        ],
        "skipped": dict(found.skipped),
        "notes": list(found.notes),
    }
    return dict(without_nan(data))


def _point(one: Point) -> dict[str, Any]:
    return {
        "when": one.when.isoformat(),
        "folder": one.folder,
        "dataset": one.dataset,
        "system": one.system,
        "measure": one.measure,
        "mean": one.mean.value,
        "low": one.mean.low,
        "high": one.mean.high,
        "n": one.mean.n,
        "changed": one.changed,
    }
