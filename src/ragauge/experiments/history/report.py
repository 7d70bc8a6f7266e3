"""Report of a history: the last run against earlier ones, trends, breaks, and all points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ragauge.experiments.history.charts import build_trend_chart
from ragauge.experiments.history.report_text import (
    DIFFERENCE_STYLES,
    MAX_SENTENCES,
    UNIT_STYLES,
    describe_method,
    describe_skipped,
    find_time_format,
    format_time_span,
    format_value,
    is_first_always_previous,
    is_unchanged,
    summarise_history,
)
from ragauge.experiments.history.results import History, HistoryChange, HistoryPoint
from ragauge.output.numbers import MISSING, format_interval, format_number, join_names, pluralise
from ragauge.output.report import (
    FILES_ONLY,
    PAGE_ONLY,
    Block,
    Charts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.sparklines import NO_VALUE_MARK, sparkline
from ragauge.output.tables import Cell, Column, Row, Table

TERMINAL_ONLY = frozenset({"terminal"})
REFERENCE_COLUMNS = {"before": "vs previous", "first": "vs first", "best": "vs best"}
"""Column titles by the run that the last one is compared with."""
REFERENCE_LEGENDS = {
    "before": "last run minus the latest comparable run before it",
    "first": "last run minus the first comparable run",
    "best": "last run minus the best comparable run",
}
MAX_SPARKLINE_POINTS = 24
MAX_UNCHANGED_NAMED = 12
"""Maximum number of unchanged series that are named."""
MAX_POINTS_LISTED = 5_000
"""Maximum number of points listed: the last ones. The CSV contains all."""


def build_report(history: History, *, sparkline_points: int = MAX_SPARKLINE_POINTS) -> Report:
    """Build the report of a history. A terminal shows the last `sparkline_points` of each trend."""
    summary, *details = summarise_history(history)
    breaks = _breaks_table(history)
    datasets = [dataset for dataset in history.datasets if dataset]
    sections = [
        *_terminal_sections(history, sparkline_points),
        Section(
            "series",
            "Last run",
            [_series_table(history, i) for i in range(len(history.datasets))],
            "Last run",
            FILES_ONLY,
        ),
        Section("trend", "Trend", [Charts(lambda: build_trend_chart(history))], "Trend", PAGE_ONLY),
        Section("breaks", "Breaks", _breaks_blocks(breaks), "Breaks", FILES_ONLY),
        *_breaks_section(breaks),
        Section("skipped", "Folders not read", _skipped_blocks(history), "Not read", FILES_ONLY),
        Section("points", "Points", [_points_table(history)], "Points", FILES_ONLY),
    ]
    return Report(
        "history",
        f"History of {join_names(datasets, 3)}" if datasets else "History",
        summary,
        [section for section in sections if section.blocks],
        [
            pluralise(len(history.folders), "folder"),
            pluralise(len(history.systems), "system"),
            format_time_span(history),
            f"{100 * history.confidence:g}% confidence intervals",
        ],
        details,
        notes=[*history.notes, *describe_skipped(history), *describe_method(history)],
        provenance=history.provenance,
    )


def _select_series(history: History) -> Iterator[list[HistoryPoint]]:
    """Yield the points of each series of one dataset."""
    for system in history.systems:
        for measure in history.measures:
            points = history.series(system, measure)
            if points:
                yield points


def render_trend(points: Sequence[HistoryPoint], max_points: int = MAX_SPARKLINE_POINTS) -> str:
    """Render the last points as a sparkline.

    A gap precedes a point that is not comparable with the previous one. The height covers the confidence intervals,
    so that insignificant changes look small.
    """
    values: list[float | None] = []
    for i, point in enumerate(points):
        values += [None, point.mean.value] if point.changed and i else [point.mean.value]
    ends = [
        end for point in points for end in (point.mean.value, point.mean.low, point.mean.high) if math.isfinite(end)
    ]
    if not ends:
        return ""
    return sparkline(values[-max_points:], min(ends), max(ends)).strip().replace(" ", NO_VALUE_MARK)


def _terminal_sections(history: History, sparkline_points: int) -> Iterator[Section]:
    """Yield the section of each dataset on a terminal: series that changed in a table, the others in a sentence."""
    style = find_time_format(history, narrow=True)
    is_first_redundant = is_first_always_previous(history)
    for i, dataset in enumerate(history.datasets):
        selected = history.of(dataset)
        series = list(_select_series(selected))
        unchanged = [points for points in series if is_unchanged(selected, points)]
        # If nothing changed, show the unchanged series rather than no table.
        listed = [points for points in series if points not in unchanged] or series
        columns = [
            Column("system", "name"),
            Column("measure", "name"),
            Column("trend", "name"),
            Column("runs", "count", drop_order=3),
            Column("last", "number"),
            Column(REFERENCE_COLUMNS["before"], "number"),
            Column("since", "name", drop_order=1),
            Column("first", "number", drop_order=2),
            *([] if is_first_redundant else [Column(REFERENCE_COLUMNS["first"], "number", drop_order=4)]),
        ]
        rows = [_terminal_row(selected, points, sparkline_points, style)[: len(columns)] for points in listed]
        blocks: list[Block] = [Table("series", columns, rows, group_by=0)]
        if len(listed) < len(series):
            blocks.append(Paragraph(_describe_unchanged(unchanged)))
        title = "Last run"
        if len(history.datasets) > 1:
            title = f"{dataset or 'runs'}: {pluralise(len(selected.folders), 'folder')}, {format_time_span(selected)}"
        yield Section(f"dataset-{i}", title, blocks, formats=TERMINAL_ONLY)


def _terminal_row(history: History, points: Sequence[HistoryPoint], sparkline_points: int, style: str) -> Row:
    last = points[-1]
    before, first = (history.change(last.system, last.measure, against=name) for name in ("before", "first"))
    return [
        last.system,
        last.measure,
        render_trend(points, sparkline_points),
        _runs_cell(points),
        _value_cell(last),
        _change_cell(history, before),
        (last if first is None else first.since).when.strftime(style),
        Cell(None, text=MISSING) if first is None else _value_cell(first.since),
        _change_cell(history, first),
    ]


def _describe_unchanged(series: Sequence[Sequence[HistoryPoint]]) -> str:
    """Summarise the unchanged series in one sentence."""
    values: dict[str, list[str]] = {}
    for points in series[:MAX_UNCHANGED_NAMED]:
        values.setdefault(points[-1].system, []).append(f"{points[-1].measure} {format_value(points[-1])}")
    named = "; ".join(f"{system} {', '.join(measures)}" for system, measures in values.items())
    more = len(series) - MAX_UNCHANGED_NAMED
    suffix = f"; and {more} more" if more > 0 else ""
    return f"{len(series)} series {'is' if len(series) == 1 else 'are'} unchanged: {named}{suffix}"


def _series_table(history: History, dataset_index: int) -> Table:
    """Build the table of one dataset for files: unchanged series last, values with intervals and dates."""
    dataset = history.datasets[dataset_index]
    selected = history.of(dataset)
    style = find_time_format(history)
    columns = [
        Column("system", "name"),
        Column("measure", "name"),
        Column("trend", "name"),
        Column("runs", "count", legend="number of runs comparable with the last one"),
        Column("first", "number"),
        Column("last", "number"),
        *(Column(title, "number", legend=REFERENCE_LEGENDS[name]) for name, title in REFERENCE_COLUMNS.items()),
    ]
    changed: list[Row] = []
    unchanged: list[Row] = []
    for points in _select_series(selected):
        last = points[-1]
        changes = {name: selected.change(last.system, last.measure, against=name) for name in REFERENCE_COLUMNS}
        first = changes["first"]
        row: Row = [
            last.system,
            last.measure,
            render_trend(points),
            _runs_cell(points),
            Cell(None, text=MISSING) if first is None else _value_cell(first.since, style),
            _value_cell(last, style),
            *(_change_cell(selected, change) for change in changes.values()),
        ]
        (unchanged if is_unchanged(selected, points) else changed).append(row)
    return Table(f"series-{dataset_index}", columns, [*changed, *unchanged], dataset)


def _runs_cell(points: Sequence[HistoryPoint]) -> Cell:
    comparable = sum(point.comparable for point in points)
    return Cell(comparable, text="" if comparable == len(points) else f"{comparable} of {len(points)}")


def _value_cell(point: HistoryPoint, time_format: str = "") -> Cell:
    """Return the cell of a mean; with a time format, its interval and time are details."""
    style = UNIT_STYLES[point.unit]
    detail = ""
    if time_format:
        interval = _format_open_interval(point, style)
        detail = f"{interval} {point.when.strftime(time_format)}".strip()
    return Cell(point.mean.value, style, detail=detail)


def _format_open_interval(point: HistoryPoint, style: str) -> str:
    """Format the interval of a mean; an end that is open is a dash. Empty if both are."""
    low, high = point.mean.low, point.mean.high
    if math.isnan(low) and math.isnan(high):
        return ""
    if math.isnan(low) or math.isnan(high):
        return f"[{format_number(low, style)}, {format_number(high, style)}]"
    return format_interval(low, high, style)


def _change_cell(history: History, change: HistoryChange | None) -> Cell:
    if change is None:
        return Cell(None, text=MISSING)
    tested = not math.isnan(change.p)
    return Cell(
        change.difference,
        DIFFERENCE_STYLES[change.last.unit],
        significant=change.p < history.alpha if tested else None,
        detail=f"p {format_number(change.p, 'p')}" if tested else "",
    )


def _breaks_table(history: History) -> Table:
    """Build the table of runs that are not comparable with the previous one, latest first."""
    systems: dict[tuple[str, str], dict[str, None]] = {}
    first_points: dict[tuple[str, str], HistoryPoint] = {}
    for point in history.points:
        if point.changed:
            key = point.folder, point.changed
            first_points.setdefault(key, point)
            systems.setdefault(key, {})[point.system] = None
    columns = [Column("time (UTC)", "name"), Column("folder"), Column("systems"), Column("difference")]
    rows: list[Row] = [
        [f"{first_points[key].when:%Y-%m-%d %H:%M}", folder, ", ".join(systems[key]), changed]
        for key in reversed(systems)
        for folder, changed in [key]
    ]
    return Table("breaks", columns, rows)


def _breaks_blocks(breaks: Table) -> list[Block]:
    if not breaks.rows:
        return [Paragraph("Only the systems changed between runs: each point is comparable with the previous one.")]
    about = "In these runs not only the systems changed. They are not compared with the runs before them."
    return [Paragraph(about), breaks]


def _breaks_section(breaks: Table) -> list[Section]:
    """Return the section of the latest breaks on a terminal, if there are any."""
    if not breaks.rows:
        return []
    rows = breaks.rows[:MAX_SENTENCES]
    more = f" ({len(rows)} of {len(breaks.rows)})" if len(rows) < len(breaks.rows) else ""
    table = Table("breaks", breaks.columns, rows)
    return [Section("breaks-terminal", f"Not comparable with the previous run{more}", [table], formats=TERMINAL_ONLY)]


def _skipped_blocks(history: History) -> list[Block]:
    columns = [Column("folder", "name"), Column("reason")]
    return [Table("skipped", columns, list(history.skipped.items()))] if history.skipped else []


def _points_table(history: History) -> Table:
    """Build the collapsed table of all points, the last ones first."""
    columns = [
        Column("time (UTC)", "name"),
        Column("folder"),
        Column("system"),
        Column("measure"),
        Column("mean", "number"),
        Column("queries", "count"),
        Column("difference from the previous run"),
    ]
    points = history.points[-MAX_POINTS_LISTED:]
    rows: list[Row] = [
        [
            f"{point.when:%Y-%m-%d %H:%M:%S}",
            point.folder,
            point.system,
            point.measure,
            Cell(
                point.mean.value, UNIT_STYLES[point.unit], detail=_format_open_interval(point, UNIT_STYLES[point.unit])
            ),
            point.mean.n,
            point.changed,
        ]
        for point in reversed(points)
    ]
    title = pluralise(len(history.points), "point")
    if len(points) < len(history.points):
        title += f", the last {len(points):,} listed"
    return Table("points", columns, rows, title, collapsed=True)


def build_points_table(history: History) -> Table:
    names = ("when", "folder", "dataset", "system", "measure", "mean", "low", "high", "n", "changed")
    rows: list[Row] = [
        [
            point.when.isoformat(),
            point.folder,
            point.dataset,
            point.system,
            point.measure,
            point.mean.value,
            point.mean.low,
            point.mean.high,
            point.mean.n,
            point.changed,
        ]
        for point in history.points
    ]
    return Table("points", [Column(name) for name in names], rows)


def build_changes_table(history: History) -> Table:
    names = ("against", "dataset", "system", "measure", "since", "since_folder", "last", "last_folder")
    rows: list[Row] = [
        [
            change.against,
            change.dataset,
            change.system,
            change.measure,
            change.since.when.isoformat(),
            change.since.folder,
            change.last.when.isoformat(),
            change.last.folder,
            change.difference,
            change.p,
            change.better,
        ]
        for change in history.changes
    ]
    return Table("changes", [Column(name) for name in (*names, "difference", "p", "better")], rows)


REPORTER = ResultReporter(
    build_report,
    {
        "csv": TableBuilder("one row per point", build_points_table),
        "changes": TableBuilder("one row per change of the last run", build_changes_table),
    },
)
