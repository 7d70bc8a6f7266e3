"""Curves of an embedder study over dimensions, bytes and corpus size.

The losses of perturbed queries are here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.summaries import Mean
from ragauge.embedder_study.report_tables import ALIKE, METHODS, Offer, ordered, unbeaten, with_vectors
from ragauge.embedder_study.report_tables import by_bytes as offered
from ragauge.embedder_study.report_text import called, key_of, perturbations
from ragauge.embedder_study.results import Lineup
from ragauge.output.chart_style import Cast
from ragauge.output.charts import (
    ChartRows,
    Panel,
    Sketch,
    altair,
    figure,
    format_bar_label,
    interval_tips,
    listed,
    panel,
    sentence,
)

HEIGHT = 240
ROW = 17
"""Height of an embedder's row in a plot of losses, in pixels."""
FEW = 5
"""Number of points up to which each gets an axis label."""
Line = Mapping[str, Sequence[tuple[float, Mean]]]
"""Points (position, mean) by embedder."""


def everyone(found: Lineup) -> Cast:
    """Return the styles of all embedders, so that each looks the same in every chart."""
    return Cast([one.name for one in ordered(found)], found.baseline)


def by_dimension(found: Lineup) -> Sketch | None:
    """Draw quality over dimensions, one panel per reduction method."""
    main = found.measures[0]
    panels: list[Panel] = []
    said: list[str] = []
    cast = everyone(found)
    for how, title in METHODS.items():
        lines: dict[str, list[tuple[float, Mean]]] = {}
        for one in with_vectors(found):
            points = {
                small.dimension: small.means[main]
                for small in one.shrunk
                if (small.how, small.kind) == (how, ALIKE) and main in small.means
            }
            if points and one.dimension and main in one.means:
                points[one.dimension] = one.means[main]
            lines[one.name] = [(float(size), mean) for size, mean in sorted(points.items())]
        known = _finite(lines)
        if known:
            panels.append(_panel(title, known, cast, "numbers in a vector (log scale)", main, keyed=not panels))
            said += [f"{how}, {name}: {_ends(points)}" for name, points in known.items()]
    if not panels:
        return None
    caption = sentence("a line is an embedder whose vectors are made shorter", "its last point is its own vector")
    return Sketch(panels, f"Mean {main} by numbers in a vector. {'; '.join(said)}.", caption)


def by_size(found: Lineup) -> Sketch | None:
    """Draw quality over the corpus size, one line per embedder."""
    main = found.measures[0]
    lines = {
        one.name: [(float(part.documents), part.means[main]) for part in one.grown if main in part.means]
        for one in ordered(found)
    }
    known = {name: points for name, points in _finite(lines).items() if len(points) > 1}
    if not known:
        return None
    drawn = _panel("", known, everyone(found), "documents (log scale)", main, keyed=True, wide=True)
    said = "; ".join(f"{name}: {_ends(points)}" for name, points in known.items())
    caption = sentence(
        "all relevant documents are in every part, with more and more of the others", "lines that cross change order"
    )
    return Sketch([drawn], f"Mean {main} by number of documents. {said}.", caption)


def _finite(lines: Line) -> dict[str, list[tuple[float, Mean]]]:
    known = {name: [(x, mean) for x, mean in points if math.isfinite(mean.value)] for name, points in lines.items()}
    return {name: points for name, points in known.items() if points}


def _ends(points: Sequence[tuple[float, Mean]]) -> str:
    (low, small), (high, large) = points[0], points[-1]
    return f"{format_bar_label(small.value)} at {low:,.0f}, {format_bar_label(large.value)} at {high:,.0f}"


def _panel(title: str, lines: Line, cast: Cast, words: str, main: str, *, keyed: bool, wide: bool = False) -> Panel:
    """Draw lines over a logarithmic axis."""
    alt = altair()
    rows: ChartRows = [
        {
            "system": name,
            "dash": cast.dashes[name],
            "x": x,
            "value": figure(mean.value),
            "low": figure(mean.low),
            "high": figure(mean.high),
            "n": mean.n or None,
        }
        for name, points in lines.items()
        for x, mean in points
    ]
    places = sorted({row["x"] for row in rows})
    ends = [places[0] / 1.08, places[-1] * 1.08]
    axis = alt.Axis(values=_ticks(places), format="~s" if places[-1] >= 10_000 else ",d", labelOverlap="greedy")
    x = alt.X("x:Q", title=words, scale=alt.Scale(type="log", domain=ends, nice=False), axis=axis)
    top = max(row["value"] for row in rows) * 1.06 or 1.0
    y = alt.Y("value:Q", title=main, scale=alt.Scale(domain=[0, figure(top)], nice=False), axis=alt.Axis(tickCount=6))
    tips = [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("x:Q", title=words.partition(" (")[0], format=","),
        *interval_tips(alt),
        alt.Tooltip("n:Q", title="queries"),
    ]
    key = list(lines) if keyed else []
    chart = alt.Chart(alt.Data(values=rows))
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=cast.dash(alt)),
        chart.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return panel(title, layers, HEIGHT, wide=wide)


def _ticks(places: Sequence[float]) -> list[float]:
    """Return axis labels at powers of two, or at all points.

    All points are labelled if they are few or if no power of two fits.
    """
    low, high = (math.log2(end) for end in (min(places), max(places)))
    binary = [2.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
    few = sorted(set(places))
    return few if len(few) <= FEW else binary or few


def by_bytes(found: Lineup) -> Sketch | None:
    """Draw all vectors by size in bytes, with their Pareto frontier."""
    offers = offered(found)
    near = unbeaten(offers)
    if len(near) < 2:
        return None
    alt = altair()
    cast = everyone(found)
    key = [name for name in cast.names if any(one.name == name for one in offers)]
    main = found.measures[0]
    prices = [one.price for one in offers]
    ends = (min(prices) / 1.3, max(prices) * 1.3)
    axis = alt.Axis(values=_ticks(prices), format=",d", labelOverlap="greedy", labelSeparation=4)
    scale = alt.Scale(type="log", domain=[figure(one) for one in ends], nice=False)
    x = alt.X("bytes:Q", title="bytes of a vector (log scale)", scale=scale, axis=axis)
    top = 1.06 * max(one.mean.value for one in offers) or 1.0
    y = alt.Y("value:Q", title=main, scale=alt.Scale(domain=[0, figure(top)], nice=False), axis=alt.Axis(tickCount=6))
    steps = alt.Chart(alt.Data(values=_rows(near)))
    dots = alt.Chart(alt.Data(values=_rows(offers)))
    best = alt.Chart(alt.Data(values=_rows(near)))
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
    layers = [
        steps.mark_line(style="guide", interpolate="step-after", strokeWidth=1).encode(x=x, y=y),
        dots.mark_point(filled=True, size=38, opacity=0.55).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_tips(alt)
        ),
        best.mark_point(filled=True, size=85, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_tips(alt)
        ),
    ]
    said = listed([f"{one.name} ({one.how}) {format_bar_label(one.mean.value)} at {one.price:,.0f}" for one in near])
    caption = sentence(
        "each mark is an embedder's vector as it is, with fewer numbers, or with fewer bits for each",
        "the stepped line joins the large marks, which no other is both as small and as good as",
    )
    told = f"Mean {main} against the bytes of a vector. Not beaten in both: {said}."
    return Sketch([panel("", layers, HEIGHT + 40)], told, caption)


def _rows(offers: Sequence[Offer]) -> ChartRows:
    return [
        {
            "system": one.name,
            "how": one.how,
            "bytes": one.price,
            "value": figure(one.mean.value),
            "low": figure(one.mean.low),
            "high": figure(one.mean.high),
        }
        for one in offers
    ]


def _tips(alt: Any) -> list[Any]:
    return [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("how:N", title="how"),
        alt.Tooltip("bytes:Q", title="bytes", format=","),
        *interval_tips(alt),
    ]


def losses(found: Lineup) -> Sketch | None:
    """Draw the losses of the embedders with intervals.

    There is one panel per perturbation, worst first.
    """
    keys = perturbations(found)
    several = [one for one in ordered(found) if one.shaken]
    every = [
        end
        for one in several
        for it in one.shaken
        for end in (it.gap.difference, it.gap.low, it.gap.high)
        if math.isfinite(end)
    ]
    if not every:
        return None
    low, high = min([0.0, *every]), max([0.0, *every])
    more = 0.06 * ((high - low) or 1.0)
    cast = everyone(found)
    panels, said = [], []
    for key in keys:
        rows: ChartRows = [
            {
                "system": one.name,
                "value": figure(it.gap.difference),
                "low": figure(it.gap.low),
                "high": figure(it.gap.high),
                "changed": figure(100 * it.changed),
                "seeds": it.seeds,
            }
            for one in several
            for it in one.shaken
            if key_of(it) == key and math.isfinite(it.gap.difference)
        ]
        if not rows:
            continue
        panels.append(_loss(called(found, key), rows, cast, (low - more, high + more)))
        worst = min(rows, key=lambda row: row["value"])
        said.append(f"{called(found, key)}: {worst['system']} {worst['value']:+.3f} at worst")
    caption = sentence(
        f"the change of {found.measures[0]} against the queries as they were, with its {found.confidence:.0%} interval",
        "left of the line something is lost",
        "one axis for all",
    )
    return Sketch(panels, f"Change of {found.measures[0]}. {'; '.join(said)}.", caption)


def _loss(title: str, rows: ChartRows, cast: Cast, ends: tuple[float, float]) -> Panel:
    alt = altair()
    scale = alt.Scale(domain=[figure(end) for end in ends], nice=False, zero=False)
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, format=".2~f"))
    names = [row["system"] for row in rows]
    y = cast.rows(alt, names)
    tips = [
        alt.Tooltip("system:N", title="embedder"),
        *interval_tips(alt, "change", sign="+"),
        alt.Tooltip("changed:Q", title="% of queries changed", format=".3~g"),
        alt.Tooltip("seeds:Q", title="seeds"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    zero = alt.Chart(alt.Data(values=[{"value": 0}]))
    layers = [
        zero.mark_rule(style="guide", strokeWidth=1).encode(x=x),
        chart.mark_rule(strokeWidth=1.75).encode(
            x=alt.X("low:Q", title=None), x2="high:Q", y=y, color=cast.colour(alt)
        ),
        chart.mark_point(filled=True, size=50, opacity=1).encode(
            x=x, y=y, color=cast.colour(alt), shape=cast.shape(alt), tooltip=tips
        ),
    ]
    return panel(title, layers, ROW * len(names) + 4, wide=False)
