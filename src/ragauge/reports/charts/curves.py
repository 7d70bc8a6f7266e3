"""Draw measures over k with the smallest sufficient k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ragauge.outcomes import Advice
from ragauge.overviews import Curve, Overview
from ragauge.reports.charts.labels import NEAR, Box, Mark, Spot, named, spots
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
    sentence,
    shown,
    span,
)

WIDTH, HEIGHT = 200, 240
"""Plot size on a phone, where labels have the least space."""
PARTS = 6
"""Number of boxes that cover a line segment, used to keep labels off the line."""
BESIDE = 110
"""Width reserved for a name at the end of a line, in pixels."""
LONG = 22
"""Maximum number of characters of a system name in a recommendation."""
Lines = Mapping[str, list[tuple[int, float]]]
"""`(k, mean)` points by system, up to the depth of its rankings."""


class Told(NamedTuple):
    """Smallest sufficient k of a system."""

    system: str
    advice: Advice
    enough: bool
    """Whether a k below the largest tested one is sufficient."""
    last: int
    """Largest tested k."""

    @property
    def k(self) -> int:
        """Smallest sufficient k, or the largest tested one."""
        return self.last if self.advice.k is None else self.advice.k

    @property
    def words(self) -> str:
        """Recommendation as text, without the system name."""
        return f"k = {self.k} is enough" if self.enough else f"no k below {self.k} is enough"


def curves(overview: Overview) -> Sketch | None:
    """Draw one panel per measure that is known over k."""
    cast = Cast(overview.systems, overview.baseline)
    panels, said, advised = [], [], []
    for curve in overview.curves:
        known = {
            name: [(k, v) for k, v in zip(curve.ks, values, strict=True) if math.isfinite(v)]
            for name, values in curve.values.items()
            if name in overview.entries
        }
        known = {name: points for name, points in known.items() if points}
        if not known:
            continue
        told = _advice(overview, curve, known)
        panels.append(_panel(curve, known, cast, told))
        last = listed([f"{one} {shown(points[-1][1])} at {points[-1][0]}" for one, points in known.items()])
        said.append(f"{curve.measure} over k: {last}" + (f"; for {told.system} {told.words}" if told else ""))
        advised += [told] if told else []
    if not panels:
        return None
    return Sketch(panels, "; ".join(said) + ".", sentence("each line is a system's mean over k", *_read(advised)))


def _read(advised: Sequence[Told]) -> list[str]:
    """Return caption parts that explain the recommendations."""
    parts = []
    enough, lacking = ([one for one in advised if one.enough is wanted] for wanted in (True, False))
    if enough:
        least, sure = enough[0].advice.tolerance, enough[0].advice.confidence
        parts.append(
            f"right of the dashed line more documents add at most {least:g} for the system that is named, with "
            f"{sure:.0%} confidence"
        )
    if lacking:
        least = lacking[0].advice.tolerance
        parts.append(f"where no k is enough, none is sure to come within {least:g} of the largest")
    return parts


def _advice(overview: Overview, curve: Curve, known: Lines) -> Told | None:
    """Return the recommendation for the best system, else for the baseline, else None."""
    for name in (*overview.ranked()[:1], overview.baseline):
        if name is not None and name in curve.enough and name in known:
            advice = curve.enough[name]
            last = known[name][-1][0]
            return Told(name, advice, advice.k is not None and advice.k < last, last)
    return None


def _panel(curve: Curve, known: Lines, cast: Cast, told: Told | None) -> Panel:
    alt = altair()
    bottom, top = span([v for points in known.values() for _, v in points])
    bottom = max(bottom, 0.0)
    # Space for the text above all lines.
    top += (top - bottom) * 13 / HEIGHT if told is not None else 0.0
    first, last = curve.ks[0], curve.ks[-1]
    # Padding at both ends keeps points off the axis labels and the names.
    more = (last / first) ** 0.02
    axis = alt.Axis(values=list(curve.ks), format="~g", labelOverlap="greedy", grid=False)
    x = alt.X("k:Q", title="k (log scale)", scale=alt.Scale(type="log", domain=[first / more, last * more]), axis=axis)
    scale = alt.Scale(domain=[figure(bottom), figure(top)], nice=False, zero=False)
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
    if told is not None:
        layers = [*_enough(alt, told, x, y, top, curve), *layers]
    if cast.few:
        words = _names(known, (first / more, last * more), (bottom, top))
        layers += [text.encode(x=x, y=y, text="system:N") for text in named(alt, words, BESIDE)]
    return panel(f"{curve.measure}@k", layers, HEIGHT, wide=False)


def _names(known: Lines, xs: tuple[float, float], ys: tuple[float, float]) -> Rows:
    """Place names to the right of the plot.

    Names of lines that end earlier are placed off the lines.
    """
    deepest = max(points[-1][0] for points in known.values())
    tails = {name: points[-1][1] for name, points in known.items() if points[-1][0] == deepest}
    heights = apart(list(tails.values()), 13 / HEIGHT * (ys[1] - ys[0]))
    beside = Spot("left", NEAR, 0)
    rows: Rows = [
        {"system": name, "k": deepest, "value": figure(at), **beside._asdict()}
        for name, at in zip(tails, heights, strict=True)
    ]

    def plotted(k: float, value: float) -> tuple[float, float]:
        return WIDTH * math.log(k / xs[0]) / math.log(xs[1] / xs[0]), HEIGHT * (ys[1] - value) / (ys[1] - ys[0])

    lines = []
    for points in known.values():
        for (x, y), (further, other) in pairwise(plotted(*point) for point in points):
            for part in range(PARTS):
                ends = [y + (other - y) * share / PARTS for share in (part, part + 1)]
                left, right = (x + (further - x) * share / PARTS for share in (part, part + 1))
                lines.append(Box(left, min(ends) - 1, right, max(ends) + 1))
    early = {name: points[-1] for name, points in known.items() if name not in tails}
    marks = [Mark(name, *(at := plotted(*point)), at[1], at[1]) for name, point in early.items()]
    for (name, (k, value)), spot in zip(early.items(), spots(marks, lines, WIDTH, HEIGHT), strict=True):
        rows.append({"system": name, "k": k, "value": figure(value), **spot._asdict()})
    return rows


def _enough(alt: Any, told: Told, x: Any, y: Any, top: float, curve: Curve) -> list[Any]:
    """Draw the recommendation as text, with a vertical line if a k is sufficient.

    The text is on the side of the line with more space.
    """
    ks = curve.ks
    right = not told.enough or math.log(told.k / ks[0]) > 0.5 * math.log(ks[-1] / ks[0])
    name = told.system if len(told.system) <= LONG else f"{told.system[: LONG - 1]}…"
    rows = [
        {
            "k": told.k if told.enough else ks[-1],
            "value": figure(top),
            "system": told.system,
            "label": f"{name}: {told.words}",
        }
    ]
    chart = alt.Chart(alt.Data(values=rows))
    tips = [alt.Tooltip("label:N", title="advice"), alt.Tooltip("system:N", title="for")]
    aside = 5 if told.enough else 0
    text = chart.mark_text(style="words", align="right" if right else "left", dx=-aside if right else aside)
    rule = chart.mark_rule(style="guide", strokeDash=[4, 3]).encode(x=x, tooltip=tips)
    return [*([rule] if told.enough else []), text.encode(x=x, y=y, text="label:N", tooltip=tips)]
