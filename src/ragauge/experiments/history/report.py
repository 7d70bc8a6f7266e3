"""Render histories for the terminal, as Markdown, CSV and JSON data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from ragauge.core.text import one_line
from ragauge.experiments.history.report_text import (
    COLUMN_TITLES,
    describe_change,
    describe_history,
    find_significant_changes,
    find_time_format,
    format_difference,
    format_time_span,
    format_value,
    is_first_always_previous,
    is_unchanged,
)
from ragauge.experiments.history.results import History, HistoryChange, HistoryPoint
from ragauge.files.serialization import replace_nan
from ragauge.output.markdown import escape_markdown, render_markdown_table
from ragauge.output.numbers import count_noun, format_exact, format_p_value
from ragauge.output.terminal import (
    SPARKLINE_BLOCKS,
    borderless_table,
    fit_columns,
    render_csv_rows,
    shorten_names,
    sparkline,
    terminal_cell,
)
from ragauge.stats.comparisons import comparison_fields

HISTORY_SCHEMA = "ragauge-history/1"
PREVIOUS_TITLE, FIRST_TITLE = COLUMN_TITLES["before"], COLUMN_TITLES["first"]
HISTORY_HEADER = ["system", "measure", "trend", "runs", "last", PREVIOUS_TITLE, "p", "since", "first", FIRST_TITLE, "p"]
CHANGE_COLUMN_INDICES = {PREVIOUS_TITLE: (5, 6), FIRST_TITLE: (9, 10)}
"""Column indices of a change and of its p-value."""
DROPPABLE_COLUMN_INDICES = (7, 8, 3, 10, 9)
"""Column indices that a narrow terminal drops, in this order."""
MAX_SPARKLINE_POINTS, MIN_SPARKLINE_POINTS = 24, 8
"""Number of points of a sparkline on a wide and on a narrow terminal."""
MAX_UNCHANGED_NAMED = 12
"""Maximum number of unchanged series that are named."""


class SeriesRow(NamedTuple):
    """Row of a series: cells, changes, and whether it never changed."""

    cells: list[str]
    changes: dict[str, HistoryChange | None]
    still: bool


class HistoryTable(NamedTuple):
    """Table of one dataset, with unchanged series last."""

    title: str
    rows: list[SeriesRow]


def render_trend(
    points: Sequence[HistoryPoint], width: int = MAX_SPARKLINE_POINTS, marks: str = SPARKLINE_BLOCKS
) -> str:
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


def build_history_tables(
    found: History, width: int = MAX_SPARKLINE_POINTS, marks: str = SPARKLINE_BLOCKS, *, narrow: bool = False
) -> Iterator[HistoryTable]:
    """Yield a table per dataset with one row per system and measure."""
    style = find_time_format(found, narrow=narrow)
    for dataset in found.datasets:
        mine = found.of(dataset)
        rows: list[SeriesRow] = []
        for system in mine.systems:
            for measure in mine.measures:
                points = mine.series(system, measure)
                if points:
                    rows.append(_build_series_row(mine, points, render_trend(points, width, marks), style))
        title = f"{dataset or 'runs'}: {count_noun(len(mine.folders), 'folder')}, {format_time_span(mine)}"
        yield HistoryTable(title, sorted(rows, key=lambda row: row.still))


def _build_series_row(found: History, points: Sequence[HistoryPoint], line: str, style: str) -> SeriesRow:
    last = points[-1]
    alike = found.comparable.get((last.dataset, last.system, last.measure), 1)
    before, first = (found.change(last.system, last.measure, against=one) for one in ("before", "first"))
    cells = [
        one_line(last.system),
        one_line(last.measure),
        line,
        f"{alike}" if alike == len(points) else f"{alike}/{len(points)}",
        format_value(last.mean.value, last.measure),
        *_change_cells(before),
        (last if first is None else first.since).when.strftime(style),
        "-" if first is None else format_value(first.since.mean.value, last.measure),
        *_change_cells(first),
    ]
    return SeriesRow(cells, {PREVIOUS_TITLE: before, FIRST_TITLE: first}, is_unchanged(found, points))


def _change_cells(change: HistoryChange | None) -> list[str]:
    return (
        ["-", "-"]
        if change is None
        else [format_difference(change.difference, change.last.measure), format_p_value(change.p)]
    )


def render_history_tables(
    found: History, width: int, marks: str = SPARKLINE_BLOCKS
) -> tuple[list[Table | Text], list[str]]:
    """Render all tables for a terminal, and list the columns that do not fit."""
    pieces: list[Table | Text] = []
    left: dict[str, None] = {}
    for part in build_history_tables(
        found, MAX_SPARKLINE_POINTS if width > 120 else MIN_SPARKLINE_POINTS, marks, narrow=True
    ):
        moved = [row for row in part.rows if not row.still]
        rows = moved or part.rows  # If nothing changed, show the unchanged series rather than no table.
        still = part.rows[len(moved) :] if moved else []
        kept, gone = _fitting_columns(rows, width, is_first_always_previous(found))
        left.update(dict.fromkeys(gone))
        pieces += [terminal_cell(part.title, "bold"), _render_series_table(found, rows, kept, width)]
        if still:
            pieces.append(terminal_cell(_describe_unchanged(still), "dim"))
        pieces.append(Text(""))
    return pieces[:-1], list(left)


def _fitting_columns(rows: Sequence[SeriesRow], width: int, twice: bool) -> tuple[list[int], list[str]]:
    """Return the columns that fit and the titles of the others.

    A change and its p stay together.
    """
    asked = [i for i in range(len(HISTORY_HEADER)) if not (twice and i in CHANGE_COLUMN_INDICES[FIRST_TITLE])]
    cells = [[row.cells[i] for i in asked] for row in rows]
    goes = [asked.index(i) for i in DROPPABLE_COLUMN_INDICES if i in asked]
    kept = [asked[i] for i in fit_columns([HISTORY_HEADER[i] for i in asked], cells, width, goes)]
    if not set(CHANGE_COLUMN_INDICES[FIRST_TITLE]) <= set(kept):
        kept = [i for i in kept if i not in CHANGE_COLUMN_INDICES[FIRST_TITLE]]
    return kept, [HISTORY_HEADER[i] for i in asked if i not in kept and i != CHANGE_COLUMN_INDICES[FIRST_TITLE][1]]


def _render_series_table(found: History, rows: Sequence[SeriesRow], kept: Sequence[int], width: int) -> Table:
    table = borderless_table([HISTORY_HEADER[i] for i in kept])
    for place in (1, 2):
        table.columns[place].justify = "left"
    before = ""
    cells = [row.cells for row in rows]
    for name, row in zip(shorten_names(HISTORY_HEADER, cells, kept, width), rows, strict=True):
        colours = {
            place: _change_colour(found, row.changes[title])
            for title, places in CHANGE_COLUMN_INDICES.items()
            for place in places
        }
        shown = [terminal_cell(row.cells[i], colours.get(i, "")) for i in kept[1:]]
        table.add_row(terminal_cell("" if row.cells[0] == before else name), *shown)
        before = row.cells[0]
    return table


def _change_colour(found: History, change: HistoryChange | None) -> str:
    if change is None or not change.p < 1 - found.confidence:
        return ""
    return "bold green" if change.better else "bold red"


def _describe_unchanged(rows: Sequence[SeriesRow]) -> str:
    """Summarise the unchanged series in one line."""
    by_name: dict[str, list[str]] = {}
    for row in rows[:MAX_UNCHANGED_NAMED]:
        by_name.setdefault(row.cells[0], []).append(f"{row.cells[1]} {row.cells[4]}")
    told = "; ".join(f"{system} {', '.join(values)}" for system, values in by_name.items())
    more = f"; and {len(rows) - MAX_UNCHANGED_NAMED} more" if len(rows) > MAX_UNCHANGED_NAMED else ""
    return f"{len(rows)} series {'is' if len(rows) == 1 else 'are'} unchanged: {told}{more}"


def render_history_markdown(found: History) -> str:
    """Render the tables and their description as Markdown."""
    lines: list[str] = []
    for part in build_history_tables(found):
        lines += [
            f"### {escape_markdown(part.title)}",
            "",
            *render_markdown_table(HISTORY_HEADER, [row.cells for row in part.rows]),
            "",
        ]
    return "\n".join([*lines, *(f"- {escape_markdown(line)}" for line in describe_history(found)), ""])


def history_to_csv(found: History) -> str:
    """Format the points as CSV, one row per point."""
    header = ["when", "folder", "dataset", "system", "measure", "mean", "low", "high", "n", "changed"]
    rows = (
        [
            *(one.when.isoformat(), one.folder, one.dataset, one.system, one.measure),
            *(
                format_exact(one.mean.value),
                format_exact(one.mean.low),
                format_exact(one.mean.high),
                str(one.mean.n),
                one.changed,
            ),
        ]
        for one in found.points
    )
    return render_csv_rows(header, rows)


def history_to_data(found: History) -> dict[str, Any]:
    """Return the history as JSON data, as defined in history.schema.json.

    NaN becomes None.
    """
    data = {
        "schema": HISTORY_SCHEMA,
        "confidence": found.confidence,
        "verdicts": [
            f"{describe_change(found, one)}." for changes in find_significant_changes(found).values() for one in changes
        ],
        "points": [_point_to_data(one) for one in found.points],
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
                "comparison": None if one.comparison is None else comparison_fields(one.comparison),
            }
            for one in found.changes
        ],
        "skipped": dict(found.skipped),
        "notes": list(found.notes),
    }
    return dict(replace_nan(data))


def _point_to_data(one: HistoryPoint) -> dict[str, Any]:
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
