"""Page of a history, and its charts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from ragauge.experiments.history import report, report_text
from ragauge.experiments.history.results import History, HistoryChange, HistoryPoint
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    format_bar_value,
    import_altair,
    interval_tooltips,
    join_sentence,
    make_panel,
    round_digits,
)
from ragauge.output.numbers import count_noun, format_p_value
from ragauge.output.page import Cell, PageSection, PageTable, render_page
from ragauge.output.report import Chart


class RunPosition(NamedTuple):
    """Position of a run among those of its dataset, and its finish time in UTC."""

    place: int
    when: datetime


def draw_trends(history: History) -> ChartDraft | None:
    """Draw one panel per dataset and measure, with a line per system.

    Lines are interrupted between points that are not comparable. Runs are evenly spaced, because the time between
    them varies from seconds to months.
    """
    cast = SystemStyles(history.systems)
    panels, said, drawn = [], [], []
    for dataset in history.datasets:
        runs = _order_runs([one for one in history.points if one.dataset == dataset])
        for measure in history.measures:
            series = {name: _finite_points(history.series(name, measure, dataset)) for name in history.systems}
            series = {name: points for name, points in series.items() if points}
            if not series:
                continue
            title = f"{dataset}: {measure}" if len(history.datasets) > 1 and dataset else measure
            panels.append(_trend_panel(title, measure, series, runs, cast))
            said.append(
                f"{title}: " + "; ".join(_describe_trend(name, points, runs) for name, points in series.items())
            )
            drawn += list(series.values())
    if not panels:
        return None
    known = any(math.isfinite(one.mean.low) for points in drawn for one in points)
    broken = any(one.changed for points in drawn for one in points[1:])
    caption = join_sentence(
        "each step is a run, the oldest on the left, and times are UTC",
        f"bars are {history.confidence:.0%} intervals" if known else "",
        "a line breaks, at a dashed upright, where something else than the system changed, so that both sides cannot "
        "be compared"
        if broken
        else "",
    )
    return ChartDraft(panels, ". ".join(said) + ".", caption)


def _finite_points(points: list[HistoryPoint]) -> list[HistoryPoint]:
    return [one for one in points if math.isfinite(one.mean.value)]


def _order_runs(points: Sequence[HistoryPoint]) -> dict[str, RunPosition]:
    """Return runs by folder in order of time. A run ends when its last system does."""
    ends: dict[str, datetime] = {}
    for one in points:
        ends[one.folder] = max(_to_utc(one.when), ends.get(one.folder, _to_utc(one.when)))
    ordered = sorted(ends, key=ends.__getitem__)
    return {folder: RunPosition(place, ends[folder]) for place, folder in enumerate(ordered)}


def _to_utc(when: datetime) -> datetime:
    """Convert a time to UTC. A time without a zone is assumed to be UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _is_one_day(runs: Mapping[str, RunPosition]) -> bool:
    return len({one.when.date() for one in runs.values()}) == 1


def _time_axis_labels(runs: Mapping[str, RunPosition]) -> dict[int, str]:
    """Return axis labels by position.

    The first run of each day is labelled, or of each minute within one day.
    """
    form = "%H:%M" if _is_one_day(runs) else "%Y-%m-%d"
    found: dict[str, int] = {}
    for one in runs.values():
        found.setdefault(one.when.strftime(form), one.place)
    return {place: label for label, place in found.items()}


def _describe_trend(name: str, points: list[HistoryPoint], runs: Mapping[str, RunPosition]) -> str:
    form = "at %H:%M" if _is_one_day(runs) else "on %Y-%m-%d"
    first, last = (
        f"{format_bar_value(one.mean.value)} {_to_utc(one.when).strftime(form)}" for one in (points[0], points[-1])
    )
    if len(points) == 1:
        return f"{name} {last}"
    breaks = sum(bool(one.changed) for one in points[1:])
    broken = f", not comparable across {breaks} break{'s' * (breaks != 1)}" if breaks else ""
    return f"{name} {last}, {first}{broken}"


def _trend_panel(
    title: str, measure: str, series: dict[str, list[HistoryPoint]], runs: Mapping[str, RunPosition], cast: SystemStyles
) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = []
    breaks: dict[str, tuple[float, dict[str, None]]] = {}
    for name, points in series.items():
        part = 0
        for i, one in enumerate(points):
            place = runs[one.folder].place
            if one.changed and i:
                part += 1
                middle = (runs[points[i - 1].folder].place + place) / 2
                breaks.setdefault(one.folder, (middle, {}))[1][one.changed] = None
            rows.append(
                {
                    "system": name,
                    "run": place,
                    "at": f"{_to_utc(one.when):%Y-%m-%d %H:%M:%S}",
                    "value": round_digits(one.mean.value),
                    "low": round_digits(one.mean.low),
                    "high": round_digits(one.mean.high),
                    "n": one.mean.n or None,
                    "folder": one.folder,
                    "dash": cast.dashes[name],
                    "part": part,
                }
            )
    labels = _time_axis_labels(runs)
    axis = alt.Axis(
        values=list(labels),
        # Safe in an expression: dates and times only, no text from files.
        labelExpr=f"{json.dumps({str(place): label for place, label in labels.items()})}[datum.value]",
        labelOverlap="greedy",
        labelSeparation=8,
        grid=False,
    )
    day = f"{next(iter(runs.values())).when:%Y-%m-%d}" if _is_one_day(runs) else None
    reach = alt.Scale(domain=[-0.4, len(runs) - 0.6], nice=False, zero=False)
    x = alt.X("run:Q", title=day, scale=reach, axis=axis)
    y = alt.Y("value:Q", title=measure, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("at:N", title="UTC"),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="queries"),
        alt.Tooltip("folder:N", title="folder"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    colour, dash, shape = cast.colour(alt, list(series)), cast.dash(alt), cast.shape(alt, list(series))
    layers = [
        chart.mark_rule(strokeWidth=1.5, opacity=0.5).encode(
            x=x, y=alt.Y("low:Q", title=measure), y2="high:Q", color=colour
        ),
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash, detail="part:O"),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    if breaks:
        changed = [{"run": middle, "changed": "; ".join(words)} for middle, words in breaks.values()]
        rule = alt.Chart(alt.Data(values=changed)).mark_rule(style="guide", strokeDash=[4, 3], strokeWidth=1.5)
        layers.insert(0, rule.encode(x=x, tooltip=[alt.Tooltip("changed:N", title="not comparable")]))
    return make_panel(title, layers, 240)


def draw_history_chart(history: History) -> Chart | None:
    """Draw a history, or return None if it has no values."""
    sketch = draw_trends(history)
    return None if sketch is None else Chart("Over time", sketch.caption, sketch.alt, sketch.panels)


REFERENCE_COLUMNS = ("before", "first", "best")
MAX_POINTS_DRAWN = 200
"""Maximum number of points drawn per series: the last ones. More would not be legible."""
MAX_POINTS_LISTED = 5_000
"""Maximum number of points listed: the last ones. The CSV contains all."""


def render_history_page(found: History, made: str = "", vega: str | None = None) -> str:
    """Render the page of a history. `made` is the creation time in ISO 8601."""
    recent, left = _select_recent_points(found)
    chart = draw_history_chart(recent)
    said = _summary_sentences(found)
    names = [one for one in found.datasets if one]
    title = "History" + (f" of {', '.join(names[:3])}{', …' if len(names) > 3 else ''}" if names else "")
    parts = {
        "title": title,
        "kind": "history",
        "made": made,
        "sections": [
            PageSection("series", "The last run", "The last run"),
            *([PageSection("trend", "Over time", "Over time")] if chart is not None else []),
            PageSection("breaks", "Not compared", "Not compared"),
            PageSection("points", "Every point", "Every point"),
        ],
        "about": _history_facts(found),
        "headline": said[0],
        "more": said[1:],
        "chart": chart,
        "shortened": f"The last {MAX_POINTS_DRAWN} points of each series; {left:,} earlier ones are not drawn."
        if left
        else "",
        "series": [_series_table(found, dataset) for dataset in found.datasets],
        "legend": _columns_legend(found),
        "breaks": _breaks_table(found),
        "skipped": found.skipped,
        "notes": found.notes,
        "points": _points_table(found),
    }
    return render_page("history.html", parts, {} if chart is None else {"trend": chart}, vega=vega)


def _summary_sentences(found: History) -> list[str]:
    """Return sentences on the significant changes, worst first."""
    lines = []
    for what, changes in report_text.find_significant_changes(found).items():
        lines += [f"{report_text.describe_change(found, one)}." for one in changes[: report_text.MAX_SENTENCES]]
        more = len(changes) - report_text.MAX_SENTENCES
        lines += [f"{more} more {'is' if more == 1 else 'are'} {what}."] if more > 0 else []
    calm = report_text.describe_no_change(found)
    if calm:
        lines.append(f"{calm[0].upper()}{calm[1:]}.")
    return [one.replace("p = ", "p\u00a0=\u00a0").replace("p < ", "p\u00a0<\u00a0") for one in lines] or [
        _untested_summary(found)
    ]


def _untested_summary(found: History) -> str:
    """Explain why nothing was tested."""
    if len(found.folders) < 2:
        return "One result so far: the next one begins the history."
    if any(one.changed for one in found.points):
        return "The last results cannot be compared with the ones before: something else than the systems changed."
    return "Nothing could be tested."


def _columns_legend(found: History) -> list[str]:
    return [f"{line}." for line in report_text.describe_columns(found, REFERENCE_COLUMNS)] or [
        "Nothing can be compared yet."
    ]


def _history_facts(found: History) -> list[str]:
    return [
        count_noun(len(found.folders), "folder"),
        count_noun(len(found.systems), "system"),
        report_text.format_time_span(found),
        f"{100 * found.confidence:g}% intervals",
    ]


def _select_recent_points(found: History) -> tuple[History, int]:
    """Return the last points of each series, and the number of points left out."""
    kept: list[HistoryPoint] = []
    seen: dict[tuple[str, str, str], int] = {}
    for one in reversed(found.points):
        key = (one.dataset, one.system, one.measure)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= MAX_POINTS_DRAWN:
            kept.append(one)
    return replace(found, points=kept[::-1]), len(found.points) - len(kept)


def _series_table(found: History, dataset: str) -> PageTable:
    mine = found.of(dataset)
    style = report_text.find_time_format(found)
    moved: list[list[str | Cell]] = []
    still: list[list[str | Cell]] = []
    for system in mine.systems:
        for measure in mine.measures:
            points = mine.series(system, measure)
            if not points:
                continue
            alike = found.comparable.get((dataset, system, measure), 1)
            changes = {one: mine.change(system, measure, against=one) for one in REFERENCE_COLUMNS}
            first = changes["first"]
            row: list[str | Cell] = [
                Cell(system),
                measure,
                report.render_trend(points),
                f"{alike}" if alike == len(points) else f"{alike} of {len(points)}",
                Cell("-") if first is None else _point_cell(first.since, style),
                _point_cell(points[-1], style),
                *(_change_cell(one, found.confidence) for one in changes.values()),
            ]
            (still if report_text.is_unchanged(mine, points) else moved).append(row)
    header = [
        "system",
        "measure",
        "trend",
        "runs",
        "first",
        "last",
        *(report_text.COLUMN_TITLES[one] for one in REFERENCE_COLUMNS),
    ]
    return PageTable(header, [*moved, *still], title=dataset or "runs", sortable=len(moved) + len(still) > 1)


def _point_cell(point: HistoryPoint, style: str = "") -> Cell:
    mean, measure = point.mean, point.measure
    ends = [report_text.format_value(end, measure) for end in (mean.low, mean.high)]
    known = "" if math.isnan(mean.low) and math.isnan(mean.high) else f"[{ends[0]}, {ends[1]}]"
    order = None if math.isnan(mean.value) else mean.value
    return Cell(
        report_text.format_value(mean.value, measure), f"{known} {point.when.strftime(style)}".strip(), order=order
    )


def _change_cell(change: HistoryChange | None, confidence: float) -> Cell:
    if change is None:
        return Cell("-")
    sure = change.p < 1 - confidence
    below = "" if math.isnan(change.p) else f"p {format_p_value(change.p)}"
    return Cell(
        report_text.format_difference(change.difference, change.last.measure), below, sure, order=change.difference
    )


def _breaks_table(found: History) -> PageTable | None:
    known: dict[tuple[HistoryPoint, str], dict[str, None]] = {}
    firsts: dict[tuple[str, str], HistoryPoint] = {}
    for one in found.points:
        if one.changed:
            first = firsts.setdefault((one.folder, one.changed), one)
            known.setdefault((first, one.changed), {})[one.system] = None
    rows = [
        [f"{one.when:%Y-%m-%d %H:%M}", one.folder, ", ".join(systems), changed]
        for (one, changed), systems in reversed(known.items())
    ]
    return PageTable(["when", "folder", "systems", "what else changed"], rows, numbers=False) if rows else None


def _points_table(found: History) -> PageTable:
    rows: list[list[str | Cell]] = [
        [
            *(f"{one.when:%Y-%m-%d %H:%M:%S}", one.folder, one.system, one.measure),
            _point_cell(one),
            *(str(one.mean.n), one.changed),
        ]
        for one in reversed(found.points[-MAX_POINTS_LISTED:])
    ]
    left = len(found.points) - len(rows)
    title = f"{len(found.points):,} points" + (f", the last {MAX_POINTS_LISTED:,} here" if left else "")
    header = ["when (UTC)", "folder", "system", "measure", "mean", "queries", "what else changed"]
    return PageTable(header, rows, title=title, sortable=len(rows) > 1, folded=True)
