"""Curves of an embedder study over dimensions, bytes and corpus size.

The losses of perturbed queries are here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.summaries import Mean
from ragauge.embedder_study.report_tables import (
    REDUCTION_TITLES,
    REFERENCE_PRECISION,
    TradeOffPoint,
    pareto_frontier,
    sort_embedders,
    trade_offs_by_bytes,
    vector_embedders,
)
from ragauge.embedder_study.report_text import perturbation_key, perturbation_label, sort_perturbations
from ragauge.embedder_study.results import EmbedderStudy
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
from ragauge.output.numbers import join_with_and

CURVE_HEIGHT_PX = 240
LOSS_ROW_HEIGHT_PX = 17
"""Height of an embedder's row in a plot of losses, in pixels."""
MAX_TICKS_AT_POINTS = 5
"""Number of points up to which each gets an axis label."""
MeanCurves = Mapping[str, Sequence[tuple[float, Mean]]]
"""Points (position, mean) by embedder."""


def embedder_styles(found: EmbedderStudy) -> SystemStyles:
    """Return the styles of all embedders, so that each looks the same in every chart."""
    return SystemStyles([one.name for one in sort_embedders(found)], found.baseline)


def dimension_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw quality over dimensions, one panel per reduction method."""
    main = found.measures[0]
    panels: list[ChartPanel] = []
    said: list[str] = []
    cast = embedder_styles(found)
    for how, title in REDUCTION_TITLES.items():
        lines: dict[str, list[tuple[float, Mean]]] = {}
        for one in vector_embedders(found):
            points = {
                small.dimension: small.means[main]
                for small in one.shrunk
                if (small.how, small.kind) == (how, REFERENCE_PRECISION) and main in small.means
            }
            if points and one.dimension and main in one.means:
                points[one.dimension] = one.means[main]
            lines[one.name] = [(float(size), mean) for size, mean in sorted(points.items())]
        known = _finite_points(lines)
        if known:
            panels.append(_curve_panel(title, known, cast, "numbers in a vector (log scale)", main, keyed=not panels))
            said += [f"{how}, {name}: {_end_values_text(points)}" for name, points in known.items()]
    if not panels:
        return None
    caption = join_sentence("a line is an embedder whose vectors are made shorter", "its last point is its own vector")
    return ChartDraft(panels, f"Mean {main} by numbers in a vector. {'; '.join(said)}.", caption)


def corpus_size_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw quality over the corpus size, one line per embedder."""
    main = found.measures[0]
    lines = {
        one.name: [(float(part.documents), part.means[main]) for part in one.grown if main in part.means]
        for one in sort_embedders(found)
    }
    known = {name: points for name, points in _finite_points(lines).items() if len(points) > 1}
    if not known:
        return None
    drawn = _curve_panel("", known, embedder_styles(found), "documents (log scale)", main, keyed=True, wide=True)
    said = "; ".join(f"{name}: {_end_values_text(points)}" for name, points in known.items())
    caption = join_sentence(
        "all relevant documents are in every part, with more and more of the others", "lines that cross change order"
    )
    return ChartDraft([drawn], f"Mean {main} by number of documents. {said}.", caption)


def _finite_points(lines: MeanCurves) -> dict[str, list[tuple[float, Mean]]]:
    known = {name: [(x, mean) for x, mean in points if math.isfinite(mean.value)] for name, points in lines.items()}
    return {name: points for name, points in known.items() if points}


def _end_values_text(points: Sequence[tuple[float, Mean]]) -> str:
    (low, small), (high, large) = points[0], points[-1]
    return f"{format_bar_value(small.value)} at {low:,.0f}, {format_bar_value(large.value)} at {high:,.0f}"


def _curve_panel(
    title: str, lines: MeanCurves, cast: SystemStyles, words: str, main: str, *, keyed: bool, wide: bool = False
) -> ChartPanel:
    """Draw lines over a logarithmic axis."""
    alt = import_altair()
    rows: ChartRows = [
        {
            "system": name,
            "dash": cast.dashes[name],
            "x": x,
            "value": round_digits(mean.value),
            "low": round_digits(mean.low),
            "high": round_digits(mean.high),
            "n": mean.n or None,
        }
        for name, points in lines.items()
        for x, mean in points
    ]
    places = sorted({row["x"] for row in rows})
    ends = [places[0] / 1.08, places[-1] * 1.08]
    axis = alt.Axis(values=_axis_ticks(places), format="~s" if places[-1] >= 10_000 else ",d", labelOverlap="greedy")
    x = alt.X("x:Q", title=words, scale=alt.Scale(type="log", domain=ends, nice=False), axis=axis)
    top = max(row["value"] for row in rows) * 1.06 or 1.0
    y = alt.Y(
        "value:Q", title=main, scale=alt.Scale(domain=[0, round_digits(top)], nice=False), axis=alt.Axis(tickCount=6)
    )
    tips = [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("x:Q", title=words.partition(" (")[0], format=","),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="queries"),
    ]
    key = list(lines) if keyed else []
    chart = alt.Chart(alt.Data(values=rows))
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=cast.dash(alt)),
        chart.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return make_panel(title, layers, CURVE_HEIGHT_PX, wide=wide)


def _axis_ticks(places: Sequence[float]) -> list[float]:
    """Return axis labels at powers of two, or at all points.

    All points are labelled if they are few or if no power of two fits.
    """
    low, high = (math.log2(end) for end in (min(places), max(places)))
    binary = [2.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
    few = sorted(set(places))
    return few if len(few) <= MAX_TICKS_AT_POINTS else binary or few


def vector_bytes_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw all vectors by size in bytes, with their Pareto frontier."""
    offers = trade_offs_by_bytes(found)
    near = pareto_frontier(offers)
    if len(near) < 2:
        return None
    alt = import_altair()
    cast = embedder_styles(found)
    key = [name for name in cast.names if any(one.name == name for one in offers)]
    main = found.measures[0]
    prices = [one.price for one in offers]
    ends = (min(prices) / 1.3, max(prices) * 1.3)
    axis = alt.Axis(values=_axis_ticks(prices), format=",d", labelOverlap="greedy", labelSeparation=4)
    scale = alt.Scale(type="log", domain=[round_digits(one) for one in ends], nice=False)
    x = alt.X("bytes:Q", title="bytes of a vector (log scale)", scale=scale, axis=axis)
    top = 1.06 * max(one.mean.value for one in offers) or 1.0
    y = alt.Y(
        "value:Q", title=main, scale=alt.Scale(domain=[0, round_digits(top)], nice=False), axis=alt.Axis(tickCount=6)
    )
    steps = alt.Chart(alt.Data(values=_trade_off_rows(near)))
    dots = alt.Chart(alt.Data(values=_trade_off_rows(offers)))
    best = alt.Chart(alt.Data(values=_trade_off_rows(near)))
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
    layers = [
        steps.mark_line(style="guide", interpolate="step-after", strokeWidth=1).encode(x=x, y=y),
        dots.mark_point(filled=True, size=38, opacity=0.55).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_trade_off_tooltips(alt)
        ),
        best.mark_point(filled=True, size=85, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_trade_off_tooltips(alt)
        ),
    ]
    said = join_with_and(
        [f"{one.name} ({one.how}) {format_bar_value(one.mean.value)} at {one.price:,.0f}" for one in near]
    )
    caption = join_sentence(
        "each mark is an embedder's vector as it is, with fewer numbers, or with fewer bits for each",
        "the stepped line joins the large marks, which no other is both as small and as good as",
    )
    told = f"Mean {main} against the bytes of a vector. Not beaten in both: {said}."
    return ChartDraft([make_panel("", layers, CURVE_HEIGHT_PX + 40)], told, caption)


def _trade_off_rows(offers: Sequence[TradeOffPoint]) -> ChartRows:
    return [
        {
            "system": one.name,
            "how": one.how,
            "bytes": one.price,
            "value": round_digits(one.mean.value),
            "low": round_digits(one.mean.low),
            "high": round_digits(one.mean.high),
        }
        for one in offers
    ]


def _trade_off_tooltips(alt: Any) -> list[Any]:
    return [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("how:N", title="how"),
        alt.Tooltip("bytes:Q", title="bytes", format=","),
        *interval_tooltips(alt),
    ]


def perturbation_loss_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw the losses of the embedders with intervals.

    There is one panel per perturbation, worst first.
    """
    keys = sort_perturbations(found)
    several = [one for one in sort_embedders(found) if one.shaken]
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
    cast = embedder_styles(found)
    panels, said = [], []
    for key in keys:
        rows: ChartRows = [
            {
                "system": one.name,
                "value": round_digits(it.gap.difference),
                "low": round_digits(it.gap.low),
                "high": round_digits(it.gap.high),
                "changed": round_digits(100 * it.changed),
                "seeds": it.seeds,
            }
            for one in several
            for it in one.shaken
            if perturbation_key(it) == key and math.isfinite(it.gap.difference)
        ]
        if not rows:
            continue
        panels.append(_loss_panel(perturbation_label(found, key), rows, cast, (low - more, high + more)))
        worst = min(rows, key=lambda row: row["value"])
        said.append(f"{perturbation_label(found, key)}: {worst['system']} {worst['value']:+.3f} at worst")
    caption = join_sentence(
        f"the change of {found.measures[0]} against the queries as they were, with its {found.confidence:.0%} interval",
        "left of the line something is lost",
        "one axis for all",
    )
    return ChartDraft(panels, f"Change of {found.measures[0]}. {'; '.join(said)}.", caption)


def _loss_panel(title: str, rows: ChartRows, cast: SystemStyles, ends: tuple[float, float]) -> ChartPanel:
    alt = import_altair()
    scale = alt.Scale(domain=[round_digits(end) for end in ends], nice=False, zero=False)
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, format=".2~f"))
    names = [row["system"] for row in rows]
    y = cast.rows(alt, names)
    tips = [
        alt.Tooltip("system:N", title="embedder"),
        *interval_tooltips(alt, "change", sign="+"),
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
    return make_panel(title, layers, LOSS_ROW_HEIGHT_PX * len(names) + 4, wide=False)
