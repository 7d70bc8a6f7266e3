"""Curves of an embedder study over dimensions, bytes and corpus size.

The losses of perturbed queries are here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.core.summaries import Mean
from ragauge.embedder_study.results import EmbedderStudy
from ragauge.embedder_study.selections import (
    REDUCTION_TITLES,
    REFERENCE_PRECISION,
    TradeOffPoint,
    pareto_frontier,
    perturbation_key,
    perturbation_label,
    sort_embedders,
    sort_perturbations,
    trade_offs_by_bytes,
    vector_embedders,
)
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


def embedder_styles(result: EmbedderStudy) -> SystemStyles:
    """Return the styles of all embedders, so that each looks the same in every chart."""
    return SystemStyles([embedder.name for embedder in sort_embedders(result)], result.baseline)


def dimension_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw quality over dimensions, one panel per reduction method."""
    main = result.measures[0]
    panels: list[ChartPanel] = []
    descriptions: list[str] = []
    styles = embedder_styles(result)
    for method, title in REDUCTION_TITLES.items():
        lines: dict[str, list[tuple[float, Mean]]] = {}
        for embedder in vector_embedders(result):
            points = {
                small.dimension: small.means[main]
                for small in embedder.compressed
                if (small.method, small.precision) == (method, REFERENCE_PRECISION) and main in small.means
            }
            if points and embedder.dimension and main in embedder.means:
                points[embedder.dimension] = embedder.means[main]
            lines[embedder.name] = [(float(size), mean) for size, mean in sorted(points.items())]
        curves = _finite_points(lines)
        if curves:
            panels.append(_curve_panel(title, curves, styles, "dimensions", main, keyed=not panels))
            descriptions += [f"{method}, {name}: {_end_values_text(points)}" for name, points in curves.items()]
    if not panels:
        return None
    caption = join_sentence("one line per embedder with reduced dimensions", "the last point has all dimensions")
    return ChartDraft(panels, f"Mean {main} by dimensions. {'; '.join(descriptions)}.", caption)


def corpus_size_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw quality over the corpus size, one line per embedder."""
    main = result.measures[0]
    lines = {
        embedder.name: [
            (float(part.documents), part.means[main]) for part in embedder.corpus_sizes if main in part.means
        ]
        for embedder in sort_embedders(result)
    }
    curves = {name: points for name, points in _finite_points(lines).items() if len(points) > 1}
    if not curves:
        return None
    panel = _curve_panel("", curves, embedder_styles(result), "documents", main, keyed=True, wide=True)
    description = "; ".join(f"{name}: {_end_values_text(points)}" for name, points in curves.items())
    caption = join_sentence(
        "each part of the corpus has all relevant documents", "where lines cross, the order of embedders changes"
    )
    return ChartDraft([panel], f"Mean {main} by number of documents. {description}.", caption)


def _finite_points(lines: MeanCurves) -> dict[str, list[tuple[float, Mean]]]:
    finite = {name: [(x, mean) for x, mean in points if math.isfinite(mean.value)] for name, points in lines.items()}
    return {name: points for name, points in finite.items() if points}


def _end_values_text(points: Sequence[tuple[float, Mean]]) -> str:
    (low, small), (high, large) = points[0], points[-1]
    return f"{format_bar_value(small.value)} at {low:,.0f}, {format_bar_value(large.value)} at {high:,.0f}"


def _curve_panel(
    title: str, lines: MeanCurves, styles: SystemStyles, quantity: str, main: str, *, keyed: bool, wide: bool = False
) -> ChartPanel:
    """Draw lines over a logarithmic axis."""
    alt = import_altair()
    rows: ChartRows = [
        {
            "system": name,
            "dash": styles.dashes[name],
            "x": x,
            "value": round_digits(mean.value),
            "low": round_digits(mean.low),
            "high": round_digits(mean.high),
            "n": mean.n or None,
        }
        for name, points in lines.items()
        for x, mean in points
    ]
    positions = sorted({row["x"] for row in rows})
    ends = [positions[0] / 1.08, positions[-1] * 1.08]
    axis = alt.Axis(
        values=_axis_ticks(positions), format="~s" if positions[-1] >= 10_000 else ",d", labelOverlap="greedy"
    )
    x = alt.X("x:Q", title=f"{quantity} (log scale)", scale=alt.Scale(type="log", domain=ends, nice=False), axis=axis)
    top = max(row["value"] for row in rows) * 1.06 or 1.0
    y = alt.Y(
        "value:Q", title=main, scale=alt.Scale(domain=[0, round_digits(top)], nice=False), axis=alt.Axis(tickCount=6)
    )
    tips = [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("x:Q", title=quantity, format=","),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="queries"),
    ]
    key = list(lines) if keyed else []
    chart = alt.Chart(alt.Data(values=rows))
    colour, shape = styles.colour(alt, key), styles.shape(alt, key)
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=styles.dash(alt)),
        chart.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return make_panel(title, layers, CURVE_HEIGHT_PX, wide=wide)


def _axis_ticks(positions: Sequence[float]) -> list[float]:
    """Return axis labels at powers of two, or at all points.

    All points are labelled if they are few or if no power of two fits.
    """
    low, high = (math.log2(end) for end in (min(positions), max(positions)))
    binary = [2.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
    points = sorted(set(positions))
    return points if len(points) <= MAX_TICKS_AT_POINTS else binary or points


def vector_bytes_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw all vectors by size in bytes, with their Pareto frontier."""
    points = trade_offs_by_bytes(result)
    frontier = pareto_frontier(points)
    if len(frontier) < 2:
        return None
    alt = import_altair()
    styles = embedder_styles(result)
    key = [name for name in styles.names if any(point.name == name for point in points)]
    main = result.measures[0]
    costs = [point.cost for point in points]
    ends = (min(costs) / 1.3, max(costs) * 1.3)
    axis = alt.Axis(values=_axis_ticks(costs), format=",d", labelOverlap="greedy", labelSeparation=4)
    scale = alt.Scale(type="log", domain=[round_digits(end) for end in ends], nice=False)
    x = alt.X("bytes:Q", title="bytes per vector (log scale)", scale=scale, axis=axis)
    top = 1.06 * max(point.mean.value for point in points) or 1.0
    y = alt.Y(
        "value:Q", title=main, scale=alt.Scale(domain=[0, round_digits(top)], nice=False), axis=alt.Axis(tickCount=6)
    )
    steps = alt.Chart(alt.Data(values=_trade_off_rows(frontier)))
    dots = alt.Chart(alt.Data(values=_trade_off_rows(points)))
    best = alt.Chart(alt.Data(values=_trade_off_rows(frontier)))
    colour, shape = styles.colour(alt, key), styles.shape(alt, key)
    layers = [
        steps.mark_line(style="guide", interpolate="step-after", strokeWidth=1).encode(x=x, y=y),
        dots.mark_point(filled=True, size=38, opacity=0.55).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_trade_off_tooltips(alt)
        ),
        best.mark_point(filled=True, size=85, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_trade_off_tooltips(alt)
        ),
    ]
    frontier_text = join_with_and(
        [
            f"{point.name} ({point.vectors}) {format_bar_value(point.mean.value)} at {point.cost:,.0f}"
            for point in frontier
        ]
    )
    caption = join_sentence(
        "each mark is an embedder with all dimensions, with fewer, or with lower precision",
        "the line is the Pareto frontier",
    )
    alt_text = f"Mean {main} by bytes per vector. Pareto frontier: {frontier_text}."
    return ChartDraft([make_panel("", layers, CURVE_HEIGHT_PX + 40)], alt_text, caption)


def _trade_off_rows(points: Sequence[TradeOffPoint]) -> ChartRows:
    return [
        {
            "system": point.name,
            "vectors": point.vectors,
            "bytes": point.cost,
            "value": round_digits(point.mean.value),
            "low": round_digits(point.mean.low),
            "high": round_digits(point.mean.high),
        }
        for point in points
    ]


def _trade_off_tooltips(alt: Any) -> list[Any]:
    return [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("vectors:N", title="vectors"),
        alt.Tooltip("bytes:Q", title="bytes", format=","),
        *interval_tooltips(alt),
    ]


def perturbation_loss_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw the losses of the embedders with intervals.

    There is one panel per perturbation, worst first.
    """
    keys = sort_perturbations(result)
    several = [embedder for embedder in sort_embedders(result) if embedder.perturbed]
    values = [
        end
        for embedder in several
        for item in embedder.perturbed
        for end in (item.difference.value, item.difference.low, item.difference.high)
        if math.isfinite(end)
    ]
    if not values:
        return None
    low, high = min([0.0, *values]), max([0.0, *values])
    more = 0.06 * ((high - low) or 1.0)
    styles = embedder_styles(result)
    panels, descriptions = [], []
    for key in keys:
        rows: ChartRows = [
            {
                "system": embedder.name,
                "value": round_digits(item.difference.value),
                "low": round_digits(item.difference.low),
                "high": round_digits(item.difference.high),
                "changed": round_digits(100 * item.changed),
                "seeds": item.seeds,
            }
            for embedder in several
            for item in embedder.perturbed
            if perturbation_key(item) == key and math.isfinite(item.difference.value)
        ]
        if not rows:
            continue
        panels.append(_loss_panel(perturbation_label(result, key), rows, styles, (low - more, high + more)))
        worst = min(rows, key=lambda row: row["value"])
        descriptions.append(f"{perturbation_label(result, key)}: {worst['system']} {worst['value']:+.3f} at worst")
    caption = join_sentence(
        f"change of {result.measures[0]} from the original queries, with {result.confidence:.0%} confidence interval",
        "left of the line is a loss",
    )
    return ChartDraft(panels, f"Change of {result.measures[0]}. {'; '.join(descriptions)}.", caption)


def _loss_panel(title: str, rows: ChartRows, styles: SystemStyles, ends: tuple[float, float]) -> ChartPanel:
    alt = import_altair()
    scale = alt.Scale(domain=[round_digits(end) for end in ends], nice=False, zero=False)
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5, format=".2~f"))
    names = [row["system"] for row in rows]
    y = styles.rows(alt, names)
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
            x=alt.X("low:Q", title=None), x2="high:Q", y=y, color=styles.colour(alt)
        ),
        chart.mark_point(filled=True, size=50, opacity=1).encode(
            x=x, y=y, color=styles.colour(alt), shape=styles.shape(alt), tooltip=tips
        ),
    ]
    return make_panel(title, layers, LOSS_ROW_HEIGHT_PX * len(names) + 4, wide=False)
