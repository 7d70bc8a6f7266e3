"""How good the systems are, and at which price: quality against latency, and a panel of bars for each measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ragauge.overviews import Mean, Overview
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import (
    Panel,
    Rows,
    Sketch,
    altair,
    apart,
    figure,
    listed,
    panel,
    powers,
    shown,
    span,
)

MOST = 8
"""So many measures have a panel."""
LABELLED = 8
"""Up to so many systems have their names beside their marks."""
LABEL = 14
"""Pixels that a line of words needs."""


class Place(NamedTuple):
    """A system between quality and latency."""

    system: str
    mean: Mean
    p95: float


def quality_latency(overview: Overview) -> Sketch | None:
    """The first measure against the 95th percentile of a query's whole time."""
    places = [
        Place(name, entry.means[overview.first], entry.speed.stages["total"].p95)
        for name, entry in overview.entries.items()
        if overview.first in entry.means and entry.speed is not None and "total" in entry.speed.stages
    ]
    places = [one for one in places if math.isfinite(one.mean.value) and 0 < one.p95 < math.inf]
    if not places:
        return None
    alt, height = altair(), 300
    lower = overview.first in overview.lower_is_better
    cast = Cast(overview.systems, overview.baseline)
    near = frontier(places, lower=lower)
    xs = [one.p95 for one in places]
    ends = (figure(min(xs) / 1.6), figure(max(xs) * 1.6))
    ys = span([end for one in places for end in (one.mean.value, one.mean.low, one.mean.high)])
    side = alt.Axis(values=powers(min(xs) / 1.6, max(xs) * 1.6), format="~g")
    x = alt.X("ms:Q", title="p95 of total latency, ms (log scale)", scale=alt.Scale(type="log", domain=ends), axis=side)
    title = overview.first + " (lower is better, axis upside down)" * lower
    scale = alt.Scale(domain=[figure(end) for end in ys], zero=False, nice=False, reverse=lower)
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("value:Q", title="mean", format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
        alt.Tooltip("ms:Q", title="p95 ms", format=".4~g"),
        alt.Tooltip("n:Q", title="queries"),
    ]
    rows = _rows(places)
    steps = [{"ms": figure(one.p95), "value": figure(one.mean.value)} for one in near]
    layers = []
    if len(near) > 1:
        line = alt.Chart(alt.Data(values=steps)).mark_line(style="guide", interpolate="step-after", strokeWidth=1)
        layers.append(line.encode(x=x, y=y))
    dots = alt.Chart(alt.Data(values=rows))
    key = [one.system for one in places] if len(places) > LABELLED else []
    colour = cast.colour(alt, key)
    layers.append(dots.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour))
    layers.append(
        dots.mark_point(filled=True, size=90, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            shape=cast.shape(alt, key),
            tooltip=tips,
        )
    )
    if len(places) <= LABELLED:
        layers += _names(alt, places, near, cast, x, (ys[1] - ys[0]) * LABEL / height)
    said = listed([f"{one.system} {shown(one.mean.value)} at {shown(one.p95)} ms" for one in places])
    best = listed([one.system for one in near])
    words = f"Mean {overview.first} against p95 of total latency: {said}. Not beaten in both: {best}."
    return Sketch([panel("", layers, height)], words)


def frontier(places: Sequence[Place], *, lower: bool) -> list[Place]:
    """The systems that no other is both as fast and as good as, the fastest first; of equal ones all."""

    def beaten(one: Place, other: Place) -> bool:
        better = (one.mean.value - other.mean.value) * (1 if lower else -1)
        return other.p95 <= one.p95 and better >= 0 and (other.p95 < one.p95 or better > 0)

    return sorted((one for one in places if not any(beaten(one, other) for other in places)), key=lambda one: one.p95)


def _rows(places: Sequence[Place]) -> Rows:
    return [
        {
            "system": one.system,
            "ms": figure(one.p95),
            "value": figure(one.mean.value),
            "low": figure(one.mean.low),
            "high": figure(one.mean.high),
            "n": one.mean.n or None,
        }
        for one in places
    ]


def _names(alt: Any, places: Sequence[Place], best: Sequence[Place], cast: Cast, x: Any, gap: float) -> list[Any]:
    """Names beside the marks, towards the middle, and off the stepped line; they keep apart from each other."""
    low, high = (math.log(end(one.p95 for one in places)) for end in (min, max))
    sides: dict[tuple[bool, bool, int], list[Place]] = {}
    for one in places:
        share = (math.log(one.p95) - low) / (high - low) if high > low else 0.0
        sides.setdefault((share > 0.5, one in best, round(share * 3)), []).append(one)
    layers = []
    for right, above in ((False, False), (False, True), (True, False), (True, True)):
        rows: Rows = []
        for mine in (several for side, several in sides.items() if side[:2] == (right, above)):
            heights = apart([one.mean.value for one in mine], gap)
            rows += [
                {"system": one.system, "label": cast.called(one.system), "ms": figure(one.p95), "value": figure(at)}
                for one, at in zip(mine, heights, strict=True)
            ]
        if rows:
            sits = {"align": "right" if right else "left", "dx": -9 if right else 9, "dy": -8 if above else 8}
            text = alt.Chart(alt.Data(values=rows)).mark_text(**sits, fontSize=11, limit=150)
            layers.append(text.encode(x=x, y="value:Q", text="label:N", color=cast.colour(alt)))
    return layers


def measures(overview: Overview) -> Sketch | None:
    """A panel for each measure: a bar for each system, its interval, and its stars against the baseline."""
    names = [m for m in overview.measures if any(m in entry.means for entry in overview.entries.values())][:MOST]
    if not names:
        return None
    cast = Cast(overview.systems, overview.baseline)
    panels, said = [], []
    for measure in names:
        panels.append(_bars(overview, cast, measure))
        ranked = overview.ranked(measure)
        if ranked:
            ends = [ranked[0], ranked[-1]] if len(ranked) > 1 else ranked
            figures = [f"{one} {shown(overview.entries[one].means[measure].value)}" for one in ends]
            words = ["best ", "worst "] if len(ranked) > 1 else [""]
            said.append(f"{measure}: " + ", ".join(w + f for w, f in zip(words, figures, strict=True)))
    times = {
        name: entry.speed.stages["total"].p95
        for name, entry in overview.entries.items()
        if entry.speed is not None and "total" in entry.speed.stages
    }
    times = {name: value for name, value in times.items() if 0 < value < math.inf}
    if times:
        panels.append(_times(overview, cast, times))
        fast, slow = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        said.append(f"p95 ms: lowest {fast} {shown(times[fast])}, highest {slow} {shown(times[slow])}")
    return Sketch(panels, "; ".join(said) + ".")


def _bars(overview: Overview, cast: Cast, measure: str) -> Panel:
    rows: Rows = []
    for name, entry in overview.entries.items():
        mean = entry.means.get(measure, Mean(math.nan, 0))
        row = overview.difference(name, measure)
        stars = "" if row is None or name == overview.baseline else row.corrected_stars
        rows.append(
            {
                "system": name,
                "value": figure(mean.value),
                "low": figure(mean.low),
                "high": figure(mean.high),
                "n": mean.n or None,
                "label": f"{shown(mean.value)} {stars}".strip(),
            }
        )
    lower = measure in overview.lower_is_better
    return _bar_panel(measure + " (lower is better)" * lower, rows, cast, ".4f", small=len(overview.measures) > 1)


def _bar_panel(title: str, rows: Rows, cast: Cast, number: str, *, small: bool = True) -> Panel:
    alt = altair()
    data = alt.Data(values=rows)
    ends = [row[field] for row in rows for field in ("value", "low", "high") if row.get(field) is not None]
    least, most = min([0.0, *ends]), max([0.0, *ends]) or 1.0
    scale = alt.Scale(domain=[figure(1.1 * least), figure(least + (most - least) * 1.42)], nice=False)
    # To stack bars, Vega-Lite would write the names into an expression.
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4), stack=None)
    y = cast.rows(alt, [row["system"] for row in rows])
    tips = [alt.Tooltip("system:N", title="system"), alt.Tooltip("value:Q", title="value", format=number)]
    for field, name in (("low", "from"), ("high", "to")):
        if any(row.get(field) is not None for row in rows):
            tips.append(alt.Tooltip(f"{field}:Q", title=name, format=number))
    tips.append(alt.Tooltip("n:Q", title="queries"))
    chart = alt.Chart(data)
    layers = [chart.mark_bar(height={"band": 0.66}).encode(x=x, y=y, color=cast.colour(alt), tooltip=tips)]
    for row in rows:
        if row["system"] == cast.baseline and row["value"] is not None:
            line = alt.Chart(alt.Data(values=[{"value": row["value"]}]))
            layers.append(line.mark_rule(style="guide", strokeDash=[4, 3]).encode(x=x))
    if any(row.get("low") is not None for row in rows):
        layers.append(chart.mark_rule(style="guide", strokeWidth=1.5).encode(x="low:Q", x2="high:Q", y=y))
    text = chart.mark_text(style="words", align="left", dx=5)
    layers.append(text.encode(x=alt.XDatum(most, title=None, scale=scale), y=y, text="label:N"))
    return panel(title, layers, 20 * len(rows) + 4, wide=not small)


def _times(overview: Overview, cast: Cast, times: dict[str, float]) -> Panel:
    """Bars, or dots on a logarithmic axis where the slowest takes many times as long as the fastest."""
    alt = altair()
    counts = {
        name: entry.speed.stages["total"].n for name, entry in overview.entries.items() if entry.speed and name in times
    }
    rows: Rows = [
        {"system": name, "value": figure(ms), "n": counts[name], "label": shown(ms)} for name, ms in times.items()
    ]
    low, high = min(times.values()), max(times.values())
    if high / low <= 30:
        return _bar_panel("p95 ms (lower is better)", rows, cast, ".4~g")
    ends = (low / 1.5, high * (high / low) ** 0.42)
    scale = alt.Scale(type="log", domain=[figure(end) for end in ends])
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(values=powers(*ends), format="~g"))
    y = cast.rows(alt, list(times))
    chart = alt.Chart(alt.Data(values=rows))
    tips = [alt.Tooltip("system:N", title="system"), alt.Tooltip("value:Q", title="p95 ms", format=".4~g")]
    dots = chart.mark_point(filled=True, size=80, opacity=1)
    words = chart.mark_text(style="words", align="left", dx=8)
    layers = [
        dots.encode(x=x, y=y, color=cast.colour(alt), shape=cast.shape(alt), tooltip=tips),
        words.encode(x=x, y=y, text="label:N"),
    ]
    return panel("p95 ms (log scale, lower is better)", layers, 20 * len(rows) + 4, wide=False)
