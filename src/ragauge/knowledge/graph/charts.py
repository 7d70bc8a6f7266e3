"""Charts of a graph analysis: distances, recall and links per document."""

from __future__ import annotations

from ragauge.knowledge.graph.results import DISTANCE_LABELS, GraphAnalysis, Reach
from ragauge.output.chart_style import NEUTRAL_COLOUR, PALETTE
from ragauge.output.charts import (
    ChartPanel,
    ChartRows,
    import_altair,
    interval_tooltips,
    join_sentence,
    make_panel,
    round_digits,
)
from ragauge.output.report import Chart

BAR_HEIGHT_PX = 34
"""Height of a horizontal bar, in pixels."""
CHART_HEIGHT_PX = 170
DISTANCE_COLOURS = (*PALETTE[:5], NEUTRAL_COLOUR)
"""Colour of each distance; grey for documents without a path."""
DOCUMENT_GROUPS = ("relevant", "others")
SEARCH_LABELS = ("within reach", "plain search, as many documents")
POINT_OFFSET_LINKS = 0.04
"""Horizontal offset of the two points at each distance, in links."""


def build_charts(web: GraphAnalysis) -> dict[str, Chart]:
    """Build all charts for which there is data."""
    return {**(_reach_charts(web) if web.reach else {}), **(_degree_chart(web) if web.links else {})}


def _reach_charts(web: GraphAnalysis) -> dict[str, Chart]:
    several = len(web.reach) > 1
    panels = [
        _distance_panel(one, (one.kind or "all links") if several else "how far documents are") for one in web.reach
    ]
    whole = web.reach[0]
    said = ", ".join(f"{name} {one.value:.0%}" for name, one in zip(DISTANCE_LABELS, whole.relevant, strict=True))
    rest = ", ".join(f"{name} {one.value:.0%}" for name, one in zip(DISTANCE_LABELS, whole.others, strict=True))
    lines = "; ".join(
        f"within {one.links}: {one.recall.value:.0%}, plain search {one.plain.value:.0%}" for one in whole.within
    )
    return {
        "reach": Chart(
            "How far the answers are",
            join_sentence("each bar is all relevant documents, or all others, by their links to the nearest seed"),
            f"Relevant documents: {said}. Others: {rest}.",
            panels,
        ),
        "within": Chart(
            "What lies within reach",
            join_sentence(
                "the part of the relevant documents within so many links of the seeds, beside what plain search finds "
                "among as many documents",
                f"thin lines are intervals of {web.confidence:.0%}",
            ),
            f"Recall {lines}.",
            [_recall_panel(whole)],
        ),
    }


def _distance_panel(reach: Reach, title: str) -> ChartPanel:
    alt = import_altair()
    values: ChartRows = [
        {"side": side, "distance": name, "order": place, "part": round_digits(one.value)}
        for side, means in zip(DOCUMENT_GROUPS, (reach.relevant, reach.others), strict=True)
        for place, (name, one) in enumerate(zip(DISTANCE_LABELS, means, strict=True))
    ]
    colour = alt.Color(
        "distance:N",
        sort=list(DISTANCE_LABELS),
        scale=alt.Scale(domain=list(DISTANCE_LABELS), range=list(DISTANCE_COLOURS)),
        legend=alt.Legend(title=None, orient="bottom", columns=3),
    )
    bars = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(opacity=0.9, height={"band": 0.7})
        .encode(
            x=alt.X("part:Q", title=None, axis=alt.Axis(format=".0%", tickCount=5), scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("side:N", title=None, sort=list(DOCUMENT_GROUPS), axis=alt.Axis(grid=False)),
            color=colour,
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("side:N"), alt.Tooltip("distance:N"), alt.Tooltip("part:Q", format=".1%")],
        )
    )
    return make_panel(title, [bars], BAR_HEIGHT_PX * len(DOCUMENT_GROUPS), wide=False)


def _recall_panel(reach: Reach) -> ChartPanel:
    alt = import_altair()
    values: ChartRows = [
        {
            "links": one.links,
            "at": one.links + aside,
            "way": way,
            "documents": round_digits(one.documents),
            "value": round_digits(mean.value),
            "low": round_digits(mean.low),
            "high": round_digits(mean.high),
        }
        for one in reach.within
        for way, aside, mean in zip(
            SEARCH_LABELS, (-POINT_OFFSET_LINKS, POINT_OFFSET_LINKS), (one.recall, one.plain), strict=True
        )
    ]
    colour = alt.Color(
        "way:N",
        scale=alt.Scale(domain=list(SEARCH_LABELS), range=[PALETTE[0], NEUTRAL_COLOUR]),
        legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=260),
    )
    last = reach.within[-1].links
    axis = alt.Axis(values=list(range(last + 1)), format="d", grid=False)
    x = alt.X("at:Q", title="links from the seeds", axis=axis, scale=alt.Scale(domain=[-0.3, last + 0.3], nice=False))
    y = alt.Y("value:Q", title="recall", axis=alt.Axis(tickCount=5), scale=alt.Scale(domain=[0, 1]))
    tips = [
        alt.Tooltip("way:N", title="what"),
        alt.Tooltip("documents:Q", format=",.1f", title="documents a query"),
        *interval_tooltips(alt, "recall"),
    ]
    chart = alt.Chart(alt.Data(values=values))
    layers = [
        chart.mark_line(strokeWidth=1, opacity=0.5).encode(x=x, y=y, color=colour),
        chart.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q", title="recall"), y2="high:Q", color=colour),
        chart.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
    ]
    return make_panel("recall", layers, CHART_HEIGHT_PX)


def _degree_chart(web: GraphAnalysis) -> dict[str, Chart]:
    alt = import_altair()
    names = [_bar_label(one.low, one.high - 1) for one in web.degrees.bars]
    values: ChartRows = [{"links": name, "documents": one.n} for name, one in zip(names, web.degrees.bars, strict=True)]
    axis = alt.Axis(labelAngle=0, labelOverlap=True, grid=False)
    bars = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(color=PALETTE[0], opacity=0.75)
        .encode(
            x=alt.X("links:N", title="links", sort=names, axis=axis),
            y=alt.Y("documents:Q", title="documents", axis=alt.Axis(tickCount=4, format=",d")),
            tooltip=[alt.Tooltip("links:N"), alt.Tooltip("documents:Q", format=",")],
        )
    )
    first, last = web.degrees.bars[0], web.degrees.bars[-1]
    beyond = f"the last bar has all beyond {last.low - 1:,}" if last.high - last.low > first.high - first.low else ""
    words = ", ".join(f"{name}: {one.n:,}" for name, one in zip(names, web.degrees.bars, strict=True) if one.n)
    drawing = Chart(
        "How many links documents have",
        join_sentence("how many documents have so many links", beyond),
        f"Documents by links: {words}.",
        [make_panel("documents by their links", [bars], CHART_HEIGHT_PX)],
    )
    return {"degrees": drawing}


def _bar_label(low: int, high: int) -> str:
    """Format the label of a bar.

    >>> _bar_label(3, 3), _bar_label(1200, 1299)
    ('3', '1,200-1,299')
    """
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
