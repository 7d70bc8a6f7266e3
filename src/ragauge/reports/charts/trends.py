"""Draw measures of systems over time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ragauge.histories import History, Point
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import Panel, Rows, Sketch, altair, figure, interval_tips, panel, sentence, shown


class Run(NamedTuple):
    """Position of a run among those of its dataset, and its finish time in UTC."""

    place: int
    when: datetime


def trends(history: History) -> Sketch | None:
    """Draw one panel per dataset and measure, with a line per system.

    Lines are interrupted between points that are not comparable. Runs are evenly spaced, because the time between
    them varies from seconds to months.
    """
    cast = Cast(history.systems)
    panels, said, drawn = [], [], []
    for dataset in history.datasets:
        runs = _runs([one for one in history.points if one.dataset == dataset])
        for measure in history.measures:
            series = {name: _known(history.series(name, measure, dataset)) for name in history.systems}
            series = {name: points for name, points in series.items() if points}
            if not series:
                continue
            title = f"{dataset}: {measure}" if len(history.datasets) > 1 and dataset else measure
            panels.append(_panel(title, measure, series, runs, cast))
            said.append(f"{title}: " + "; ".join(_said(name, points, runs) for name, points in series.items()))
            drawn += list(series.values())
    if not panels:
        return None
    known = any(math.isfinite(one.mean.low) for points in drawn for one in points)
    broken = any(one.changed for points in drawn for one in points[1:])
    caption = sentence(
        "each step is a run, the oldest on the left, and times are UTC",
        f"bars are {history.confidence:.0%} intervals" if known else "",
        "a line breaks, at a dashed upright, where something else than the system changed, so that both sides cannot "
        "be compared"
        if broken
        else "",
    )
    return Sketch(panels, ". ".join(said) + ".", caption)


def _known(points: list[Point]) -> list[Point]:
    return [one for one in points if math.isfinite(one.mean.value)]


def _runs(points: Sequence[Point]) -> dict[str, Run]:
    """Return runs by folder in order of time. A run ends when its last system does."""
    ends: dict[str, datetime] = {}
    for one in points:
        ends[one.folder] = max(_utc(one.when), ends.get(one.folder, _utc(one.when)))
    ordered = sorted(ends, key=ends.__getitem__)
    return {folder: Run(place, ends[folder]) for place, folder in enumerate(ordered)}


def _utc(when: datetime) -> datetime:
    """Convert a time to UTC. A time without a zone is assumed to be UTC."""
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def _same_day(runs: Mapping[str, Run]) -> bool:
    return len({one.when.date() for one in runs.values()}) == 1


def _labels(runs: Mapping[str, Run]) -> dict[int, str]:
    """Return axis labels by position.

    The first run of each day is labelled, or of each minute within one day.
    """
    form = "%H:%M" if _same_day(runs) else "%Y-%m-%d"
    found: dict[str, int] = {}
    for one in runs.values():
        found.setdefault(one.when.strftime(form), one.place)
    return {place: label for label, place in found.items()}


def _said(name: str, points: list[Point], runs: Mapping[str, Run]) -> str:
    form = "at %H:%M" if _same_day(runs) else "on %Y-%m-%d"
    first, last = (f"{shown(one.mean.value)} {_utc(one.when).strftime(form)}" for one in (points[0], points[-1]))
    if len(points) == 1:
        return f"{name} {last}"
    breaks = sum(bool(one.changed) for one in points[1:])
    broken = f", not comparable across {breaks} break{'s' * (breaks != 1)}" if breaks else ""
    return f"{name} {last}, {first}{broken}"


def _panel(title: str, measure: str, series: dict[str, list[Point]], runs: Mapping[str, Run], cast: Cast) -> Panel:
    alt = altair()
    rows: Rows = []
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
                    "at": f"{_utc(one.when):%Y-%m-%d %H:%M:%S}",
                    "value": figure(one.mean.value),
                    "low": figure(one.mean.low),
                    "high": figure(one.mean.high),
                    "n": one.mean.n or None,
                    "folder": one.folder,
                    "dash": cast.dashes[name],
                    "part": part,
                }
            )
    labels = _labels(runs)
    axis = alt.Axis(
        values=list(labels),
        # Safe in an expression: dates and times only, no text from files.
        labelExpr=f"{json.dumps({str(place): label for place, label in labels.items()})}[datum.value]",
        labelOverlap="greedy",
        labelSeparation=8,
        grid=False,
    )
    day = f"{next(iter(runs.values())).when:%Y-%m-%d}" if _same_day(runs) else None
    reach = alt.Scale(domain=[-0.4, len(runs) - 0.6], nice=False, zero=False)
    x = alt.X("run:Q", title=day, scale=reach, axis=axis)
    y = alt.Y("value:Q", title=measure, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("at:N", title="UTC"),
        *interval_tips(alt),
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
    return panel(title, layers, 240)
