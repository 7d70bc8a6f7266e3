"""Chart of a history: each measure over time."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ragauge.experiments.history.results import History, HistoryPoint, SeriesKey
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import (
    ChartPanel,
    ChartRows,
    format_bar_value,
    import_altair,
    interval_tooltips,
    join_sentence,
    make_panel,
    round_digits,
)
from ragauge.output.numbers import pluralise
from ragauge.output.report import Chart

MAX_POINTS_DRAWN = 200
"""Maximum number of points drawn per series: the last ones. More would not be legible."""
CHART_HEIGHT_PX = 240


class RunPosition(NamedTuple):
    """Position of a run among those of its dataset, and its finish time in UTC."""

    position: int
    finished: datetime


def select_drawn_points(history: History) -> History:
    """Return the history with the last points of each series only."""
    selected: list[HistoryPoint] = []
    n_selected: Counter[SeriesKey] = Counter()
    for point in reversed(history.points):
        n_selected[point.series] += 1
        if n_selected[point.series] <= MAX_POINTS_DRAWN:
            selected.append(point)
    return replace(history, points=selected[::-1])


def build_trend_chart(history: History) -> dict[str, Chart]:
    """Build the chart with one panel per dataset and measure, and a line per system; empty without values.

    Lines are interrupted between points that are not comparable. Runs are evenly spaced, because the time between
    them varies from seconds to months.
    """
    selection = select_drawn_points(history)
    styles = SystemStyles(selection.systems)
    panels, descriptions, lines = [], [], []
    for dataset in selection.datasets:
        runs = _order_runs([point for point in selection.points if point.dataset == dataset])
        for measure in selection.measures:
            series = {name: _finite_points(selection.series(name, measure, dataset)) for name in selection.systems}
            series = {name: points for name, points in series.items() if points}
            if not series:
                continue
            title = f"{dataset}: {measure}" if len(selection.datasets) > 1 and dataset else measure
            panels.append(_trend_panel(title, measure, series, runs, styles))
            trends = (_describe_trend(name, points, runs) for name, points in series.items())
            descriptions.append(f"{title}: {'; '.join(trends)}")
            lines += list(series.values())
    if not panels:
        return {}
    has_intervals = any(math.isfinite(point.mean.low) for points in lines for point in points)
    has_breaks = any(point.changed for points in lines for point in points[1:])
    left_out = len(history.points) - len(selection.points)
    caption = join_sentence(
        "one step per run, the oldest on the left; times are UTC",
        f"bars are {history.confidence:.0%} confidence intervals" if has_intervals else "",
        "lines break at dashed rules, where not only the system changed: both sides cannot be compared"
        if has_breaks
        else "",
        f"the last {MAX_POINTS_DRAWN} points of each series; {pluralise(left_out, 'earlier point')} not drawn"
        if left_out
        else "",
    )
    return {"trend": Chart("Trend", caption, f"{'. '.join(descriptions)}.", panels)}


def _finite_points(points: Sequence[HistoryPoint]) -> list[HistoryPoint]:
    return [point for point in points if math.isfinite(point.mean.value)]


def _order_runs(points: Sequence[HistoryPoint]) -> dict[str, RunPosition]:
    """Return runs by folder in order of time. A run ends when its last system does."""
    ends: dict[str, datetime] = {}
    for point in points:
        when = _to_utc(point.when)
        ends[point.folder] = max(when, ends.get(point.folder, when))
    ordered = sorted(ends, key=ends.__getitem__)
    return {folder: RunPosition(position, ends[folder]) for position, folder in enumerate(ordered)}


def _to_utc(when: datetime) -> datetime:
    """Convert a time to UTC. A time without a zone is assumed to be UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _is_one_day(runs: Mapping[str, RunPosition]) -> bool:
    return len({run.finished.date() for run in runs.values()}) == 1


def _time_axis_labels(runs: Mapping[str, RunPosition]) -> dict[int, str]:
    """Return axis labels by position.

    The first run of each day is labelled, or of each minute within one day.
    """
    style = "%H:%M" if _is_one_day(runs) else "%Y-%m-%d"
    positions: dict[str, int] = {}
    for run in runs.values():
        positions.setdefault(run.finished.strftime(style), run.position)
    return {position: label for label, position in positions.items()}


def _describe_trend(name: str, points: Sequence[HistoryPoint], runs: Mapping[str, RunPosition]) -> str:
    style = "at %H:%M" if _is_one_day(runs) else "on %Y-%m-%d"
    first, last = (
        f"{format_bar_value(point.mean.value)} {_to_utc(point.when).strftime(style)}"
        for point in (points[0], points[-1])
    )
    if len(points) == 1:
        return f"{name} {last}"
    breaks = sum(bool(point.changed) for point in points[1:])
    broken = f", not comparable across {pluralise(breaks, 'break')}" if breaks else ""
    return f"{name} {last}, {first}{broken}"


def _trend_panel(
    title: str,
    measure: str,
    series: Mapping[str, Sequence[HistoryPoint]],
    runs: Mapping[str, RunPosition],
    styles: SystemStyles,
) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = []
    breaks: dict[str, tuple[float, dict[str, None]]] = {}
    for name, points in series.items():
        part = 0
        for i, point in enumerate(points):
            position = runs[point.folder].position
            if point.changed and i:
                part += 1
                middle = (runs[points[i - 1].folder].position + position) / 2
                breaks.setdefault(point.folder, (middle, {}))[1][point.changed] = None
            rows.append(
                {
                    "system": name,
                    "run": position,
                    "at": f"{_to_utc(point.when):%Y-%m-%d %H:%M:%S}",
                    "value": round_digits(point.mean.value),
                    "low": round_digits(point.mean.low),
                    "high": round_digits(point.mean.high),
                    "n": point.mean.n or None,
                    "folder": point.folder,
                    "dash": styles.dashes[name],
                    "part": part,
                }
            )
    x = _time_axis(alt, runs)
    y = alt.Y("value:Q", title=measure, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    tooltip = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("at:N", title="UTC"),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="queries"),
        alt.Tooltip("folder:N", title="folder"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    colour, dash, shape = styles.colour(alt, list(series)), styles.dash(alt), styles.shape(alt, list(series))
    layers = [
        chart.mark_rule(strokeWidth=1.5, opacity=0.5).encode(
            x=x, y=alt.Y("low:Q", title=measure), y2="high:Q", color=colour
        ),
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash, detail="part:O"),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
    ]
    if breaks:
        changed = [{"run": middle, "changed": "; ".join(reasons)} for middle, reasons in breaks.values()]
        rule = alt.Chart(alt.Data(values=changed)).mark_rule(style="guide", strokeDash=[4, 3], strokeWidth=1.5)
        layers.insert(0, rule.encode(x=x, tooltip=[alt.Tooltip("changed:N", title="not comparable")]))
    return make_panel(title, layers, CHART_HEIGHT_PX)


def _time_axis(alt: Any, runs: Mapping[str, RunPosition]) -> Any:
    """Build the x encoding, with one step per run and labels of dates or times."""
    labels = _time_axis_labels(runs)
    axis = alt.Axis(
        values=list(labels),
        # Safe in an expression: dates and times only, no text from files.
        labelExpr=f"{json.dumps({str(position): label for position, label in labels.items()})}[datum.value]",
        labelOverlap="greedy",
        labelSeparation=8,
        grid=False,
    )
    day = f"{next(iter(runs.values())).finished:%Y-%m-%d}" if _is_one_day(runs) else None
    scale = alt.Scale(domain=[-0.4, len(runs) - 0.6], nice=False, zero=False)
    return alt.X("run:Q", title=day, scale=scale, axis=axis)
