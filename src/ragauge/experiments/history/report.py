"""Render histories for the terminal, as Markdown, CSV and JSON data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ragauge.core.text import one_line
from ragauge.experiments.history.report_text import (
    COLUMNS,
    about,
    difference,
    doubled,
    figure,
    is_still,
    moments,
    sentence,
    span,
    sure,
)
from ragauge.experiments.history.results import Change, History, Point
from ragauge.files.serialization import without_nan
from ragauge.output.markdown import grid, safe
from ragauge.output.numbers import count_noun, number, p_value
from ragauge.output.terminal import BLOCKS, cell, csv_text, fitting, plain_table, shortened, sparkline
from ragauge.stats.comparisons import figures

SCHEMA = "ragauge-history/1"
BEFORE, FIRST = COLUMNS["before"], COLUMNS["first"]
HEADER = ["system", "measure", "trend", "runs", "last", BEFORE, "p", "since", "first", FIRST, "p"]
AT = {BEFORE: (5, 6), FIRST: (9, 10)}
"""Column indices of a change and of its p-value."""
GOES = (7, 8, 3, 10, 9)
"""Column indices that a narrow terminal drops, in this order."""
LONGEST, SHORTEST = 24, 8
"""Number of points of a sparkline on a wide and on a narrow terminal."""
NAMED = 12
"""Maximum number of unchanged series that are named."""


class Row(NamedTuple):
    """Row of a series: cells, changes, and whether it never changed."""

    cells: list[str]
    changes: dict[str, Change | None]
    still: bool


class Part(NamedTuple):
    """Table of one dataset, with unchanged series last."""

    title: str
    rows: list[Row]


def trend(points: Sequence[Point], width: int = LONGEST, marks: str = BLOCKS) -> str:
    """Render the last points as a sparkline.

    A gap precedes a point that is not comparable with the previous one. The height covers the confidence intervals,
    so that insignificant changes look small.
    """
    values: list[float | None] = []
    for place, one in enumerate(points):
        values += [None, one.mean.value] if one.changed and place else [one.mean.value]
    means = [one.mean for one in points]
    ends = [end for one in means for end in (one.value, one.low, one.high) if math.isfinite(end)]
    if not ends:
        return ""
    return sparkline(values[-width:], min(ends), max(ends), marks=marks).strip()


def parts(found: History, width: int = LONGEST, marks: str = BLOCKS, *, narrow: bool = False) -> Iterator[Part]:
    """Yield a table per dataset with one row per system and measure."""
    style = moments(found, narrow=narrow)
    for dataset in found.datasets:
        mine = found.of(dataset)
        rows: list[Row] = []
        for system in mine.systems:
            for measure in mine.measures:
                points = mine.series(system, measure)
                if points:
                    rows.append(_row(mine, points, trend(points, width, marks), style))
        title = f"{dataset or 'runs'}: {count_noun(len(mine.folders), 'folder')}, {span(mine)}"
        yield Part(title, sorted(rows, key=lambda row: row.still))


def _row(found: History, points: Sequence[Point], line: str, style: str) -> Row:
    last = points[-1]
    alike = found.comparable.get((last.dataset, last.system, last.measure), 1)
    before, first = (found.change(last.system, last.measure, against=one) for one in ("before", "first"))
    cells = [
        one_line(last.system),
        one_line(last.measure),
        line,
        f"{alike}" if alike == len(points) else f"{alike}/{len(points)}",
        figure(last.mean.value, last.measure),
        *_change(before),
        (last if first is None else first.since).when.strftime(style),
        "-" if first is None else figure(first.since.mean.value, last.measure),
        *_change(first),
    ]
    return Row(cells, {BEFORE: before, FIRST: first}, is_still(found, points))


def _change(change: Change | None) -> list[str]:
    return ["-", "-"] if change is None else [difference(change.difference, change.last.measure), p_value(change.p)]


def tables(found: History, width: int, marks: str = BLOCKS) -> tuple[list[Table | Text], list[str]]:
    """Render all tables for a terminal, and list the columns that do not fit."""
    pieces: list[Table | Text] = []
    left: dict[str, None] = {}
    for part in parts(found, LONGEST if width > 120 else SHORTEST, marks, narrow=True):
        moved = [row for row in part.rows if not row.still]
        rows = moved or part.rows  # If nothing changed, show the unchanged series rather than no table.
        still = part.rows[len(moved) :] if moved else []
        kept, gone = _kept(rows, width, doubled(found))
        left.update(dict.fromkeys(gone))
        pieces += [cell(part.title, "bold"), _table(found, rows, kept, width)]
        if still:
            pieces.append(cell(_folded(still), "dim"))
        pieces.append(Text(""))
    return pieces[:-1], list(left)


def _kept(rows: Sequence[Row], width: int, twice: bool) -> tuple[list[int], list[str]]:
    """Return the columns that fit and the titles of the others.

    A change and its p stay together.
    """
    asked = [i for i in range(len(HEADER)) if not (twice and i in AT[FIRST])]
    cells = [[row.cells[i] for i in asked] for row in rows]
    goes = [asked.index(i) for i in GOES if i in asked]
    kept = [asked[i] for i in fitting([HEADER[i] for i in asked], cells, width, goes)]
    if not set(AT[FIRST]) <= set(kept):
        kept = [i for i in kept if i not in AT[FIRST]]
    return kept, [HEADER[i] for i in asked if i not in kept and i != AT[FIRST][1]]


def _table(found: History, rows: Sequence[Row], kept: Sequence[int], width: int) -> Table:
    table = plain_table([HEADER[i] for i in kept])
    for place in (1, 2):
        table.columns[place].justify = "left"
    before = ""
    cells = [row.cells for row in rows]
    for name, row in zip(shortened(HEADER, cells, kept, width), rows, strict=True):
        colours = {place: _colour(found, row.changes[title]) for title, places in AT.items() for place in places}
        shown = [cell(row.cells[i], colours.get(i, "")) for i in kept[1:]]
        table.add_row(cell("" if row.cells[0] == before else name), *shown)
        before = row.cells[0]
    return table


def _colour(found: History, change: Change | None) -> str:
    if change is None or not change.p < 1 - found.confidence:
        return ""
    return "bold green" if change.better else "bold red"


def _folded(rows: Sequence[Row]) -> str:
    """Summarise the unchanged series in one line."""
    by_name: dict[str, list[str]] = {}
    for row in rows[:NAMED]:
        by_name.setdefault(row.cells[0], []).append(f"{row.cells[1]} {row.cells[4]}")
    told = "; ".join(f"{system} {', '.join(values)}" for system, values in by_name.items())
    more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return f"{len(rows)} series {'is' if len(rows) == 1 else 'are'} unchanged: {told}{more}"


def markdown(found: History) -> str:
    """Render the tables and their description as Markdown."""
    lines: list[str] = []
    for part in parts(found):
        lines += [f"### {safe(part.title)}", "", *grid(HEADER, [row.cells for row in part.rows]), ""]
    return "\n".join([*lines, *(f"- {safe(line)}" for line in about(found)), ""])


def as_csv(found: History) -> str:
    """Format the points as CSV, one row per point."""
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
    """Return the history as JSON data, as defined in history.schema.json.

    NaN becomes None.
    """
    data = {
        "schema": SCHEMA,
        "confidence": found.confidence,
        "verdicts": [f"{sentence(found, one)}." for changes in sure(found).values() for one in changes],
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
