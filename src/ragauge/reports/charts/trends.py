"""The same systems over time."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from ragauge.histories import History, Point
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import Panel, Rows, Sketch, altair, figure, panel, shown


def trends(history: History) -> Sketch | None:
    """A panel for each dataset and measure: a line for each system, broken where points cannot be compared."""
    cast = Cast(history.systems)
    panels, said = [], []
    for dataset in history.datasets:
        for measure in history.measures:
            series = {name: _known(history.series(name, measure, dataset)) for name in history.systems}
            series = {name: points for name, points in series.items() if points}
            if not series:
                continue
            title = f"{dataset}: {measure}" if len(history.datasets) > 1 and dataset else measure
            panels.append(_panel(title, measure, series, cast))
            said.append(f"{title}: " + "; ".join(_said(name, points) for name, points in series.items()))
    return Sketch(panels, ". ".join(said) + ".") if panels else None


def _known(points: list[Point]) -> list[Point]:
    return [one for one in points if math.isfinite(one.mean.value)]


def _said(name: str, points: list[Point]) -> str:
    last = f"{name} {shown(points[-1].mean.value)} on {points[-1].when:%Y-%m-%d}"
    if len(points) == 1:
        return last
    breaks = sum(bool(one.changed) for one in points[1:])
    broken = f", not comparable across {breaks} break{'s' * (breaks != 1)}" if breaks else ""
    return f"{last}, {shown(points[0].mean.value)} on {points[0].when:%Y-%m-%d}{broken}"


def _time(when: datetime) -> str:
    """ISO 8601 in UTC; a time without a zone is taken for UTC."""
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _panel(title: str, measure: str, series: dict[str, list[Point]], cast: Cast) -> Panel:
    alt = altair()
    rows: Rows = []
    breaks: dict[str, tuple[datetime, dict[str, None]]] = {}
    for name, points in series.items():
        part = 0
        for i, one in enumerate(points):
            if one.changed and i:
                part += 1
                before = points[i - 1].when
                breaks.setdefault(one.folder, (before + (one.when - before) / 2, {}))[1][one.changed] = None
            rows.append(
                {
                    "system": name,
                    "when": _time(one.when),
                    "at": _time(one.when).replace("T", " ").removesuffix("Z"),
                    "value": figure(one.mean.value),
                    "low": figure(one.mean.low),
                    "high": figure(one.mean.high),
                    "n": one.mean.n or None,
                    "folder": one.folder,
                    "dash": cast.dashes[name],
                    "part": part,
                }
            )
    x = alt.X(
        "when:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(grid=False, labelOverlap="greedy", tickCount=6)
    )
    y = alt.Y("value:Q", title=measure, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("at:N", title="UTC"),
        alt.Tooltip("value:Q", title="mean", format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
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
        changed = [{"when": _time(when), "changed": "; ".join(words)} for when, words in breaks.values()]
        rule = alt.Chart(alt.Data(values=changed)).mark_rule(style="guide", strokeDash=[4, 3], strokeWidth=1.5)
        layers.insert(0, rule.encode(x=x, tooltip=[alt.Tooltip("changed:N", title="not comparable")]))
    return panel(title, layers, 240)
