"""Measures over k, and which k is enough."""

from __future__ import annotations

import math
from typing import Any

from ragauge.outcomes import Advice
from ragauge.overviews import Curve, Overview
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import Panel, Rows, Sketch, altair, apart, figure, listed, panel, shown, span

HEIGHT = 240


def curves(overview: Overview) -> Sketch | None:
    """A panel for each measure that is known over k."""
    cast = Cast(overview.systems, overview.baseline)
    panels, said = [], []
    for curve in overview.curves:
        known = {
            name: [(k, v) for k, v in zip(curve.ks, values, strict=True) if math.isfinite(v)]
            for name, values in curve.values.items()
            if name in overview.entries
        }
        known = {name: points for name, points in known.items() if points}
        if not known:
            continue
        name, advice = _advice(overview, curve)
        panels.append(_panel(curve, known, cast, name, advice))
        last = listed([f"{one} {shown(points[-1][1])} at {points[-1][0]}" for one, points in known.items()])
        advised = f"; for {name} {enough(advice, curve)}" if advice is not None else ""
        said.append(f"{curve.measure} over k: {last}{advised}")
    return Sketch(panels, "; ".join(said) + ".") if panels else None


def _advice(overview: Overview, curve: Curve) -> tuple[str, Advice | None]:
    """What is advised for the baseline; where there is none, for the best system."""
    for name in (overview.baseline, *overview.ranked(), *curve.enough):
        if name is not None and name in curve.enough:
            return name, curve.enough[name]
    return "", None


def enough(advice: Advice, curve: Curve) -> str:
    """The advice in words; of the largest k that was tried nobody knows whether it is enough."""
    return f"k = {advice.k} is enough" if advice.k < curve.ks[-1] else f"no k below {advice.k} is enough"


def _panel(
    curve: Curve, known: dict[str, list[tuple[int, float]]], cast: Cast, advised: str, advice: Advice | None
) -> Panel:
    alt = altair()
    low, high = span([v for points in known.values() for _, v in points])
    ends = [figure(max(low, 0.0)), figure(high)]
    first, last = curve.ks[0], curve.ks[-1]
    # A little room on the right of the last k keeps its points off the edge.
    reach = [first, last * (last / first) ** 0.02]
    axis = alt.Axis(values=list(curve.ks), format="~g", labelOverlap="greedy", grid=False)
    x = alt.X("k:Q", title="k (log scale)", scale=alt.Scale(type="log", domain=reach), axis=axis)
    scale = alt.Scale(domain=ends, nice=False, zero=False)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    rows: Rows = [
        {"system": name, "k": k, "value": figure(v), "dash": cast.dashes[name]}
        for name, points in known.items()
        for k, v in points
    ]
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("k:Q", title="k"),
        alt.Tooltip("value:Q", title="mean", format=".4f"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    key = [] if cast.few else list(known)
    colour, dash, shape = cast.colour(alt, key), cast.dash(alt), cast.shape(alt, key)
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        chart.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    if advice is not None:
        layers = [*_enough(alt, advice, advised, x, y, float(ends[1] or 0), curve), *layers]
    if cast.few:
        gap = 13 / HEIGHT * (high - max(low, 0.0))
        tails = {name: points[-1] for name, points in known.items()}
        heights = apart([value for _, value in tails.values()], gap)
        words = [
            {"system": name, "k": k, "value": figure(at)}
            for (name, (k, _)), at in zip(tails.items(), heights, strict=True)
        ]
        text = alt.Chart(alt.Data(values=words)).mark_text(align="left", dx=9, fontSize=11, limit=110)
        layers.append(text.encode(x=x, y=y, text="system:N", color=cast.colour(alt)))
    return panel(f"{curve.measure}@k", layers, HEIGHT, wide=False)


def _enough(alt: Any, advice: Advice, name: str, x: Any, y: Any, top: float, curve: Curve) -> list[Any]:
    """An upright line, and words on that side of it where there is room."""
    ks = curve.ks
    right = math.log(advice.k / ks[0]) > 0.5 * math.log(ks[-1] / ks[0]) if ks[-1] > ks[0] else False
    rows = [{"k": advice.k, "value": figure(top), "system": name, "label": enough(advice, curve)}]
    chart = alt.Chart(alt.Data(values=rows))
    tips = [alt.Tooltip("label:N", title="advice"), alt.Tooltip("system:N", title="for")]
    text = chart.mark_text(style="words", align="right" if right else "left", dx=-5 if right else 5, baseline="top")
    return [
        chart.mark_rule(style="guide", strokeDash=[4, 3]).encode(x=x, tooltip=tips),
        text.encode(x=x, y=y, text="label:N"),
    ]
