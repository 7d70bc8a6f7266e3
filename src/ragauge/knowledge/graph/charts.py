"""Charts of a graph analysis: distances, recall and links per document."""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.core.summaries import Mean
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


def build_charts(result: GraphAnalysis) -> dict[str, Chart]:
    """Build all charts for which there is data."""
    return {**(_reach_charts(result) if result.reach else {}), **(_degree_chart(result) if result.links else {})}


def _reach_charts(result: GraphAnalysis) -> dict[str, Chart]:
    several = len(result.reach) > 1
    panels = [
        _distance_panel(reach, (reach.kind or "all links") if several else "distance of documents")
        for reach in result.reach
    ]
    overall = result.reach[0]
    recalls = "; ".join(
        f"within {within.links}: {within.recall.value:.0%}, plain search {within.plain.value:.0%}"
        for within in overall.within
    )
    return {
        "reach": Chart(
            "Distance of relevant documents",
            join_sentence(
                "a bar divides all relevant documents, or all others, by their distance from the nearest seed"
            ),
            f"Relevant documents: {_list_shares(overall.relevant)}. Others: {_list_shares(overall.others)}.",
            panels,
        ),
        "within": Chart(
            "Reachable recall",
            join_sentence(
                "recall of all documents within a number of links, and of plain search that returns as many",
                f"thin lines are {result.confidence:.0%} confidence intervals",
            ),
            f"Recall {recalls}.",
            [_recall_panel(overall)],
        ),
    }


def _list_shares(means: Sequence[Mean]) -> str:
    return ", ".join(f"{label} {mean.value:.0%}" for label, mean in zip(DISTANCE_LABELS, means, strict=True))


def _distance_panel(reach: Reach, title: str) -> ChartPanel:
    alt = import_altair()
    values: ChartRows = [
        {"group": group, "distance": label, "order": index, "share": round_digits(mean.value)}
        for group, means in zip(DOCUMENT_GROUPS, (reach.relevant, reach.others), strict=True)
        for index, (label, mean) in enumerate(zip(DISTANCE_LABELS, means, strict=True))
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
            x=alt.X("share:Q", title=None, axis=alt.Axis(format=".0%", tickCount=5), scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("group:N", title=None, sort=list(DOCUMENT_GROUPS), axis=alt.Axis(grid=False)),
            color=colour,
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("group:N"), alt.Tooltip("distance:N"), alt.Tooltip("share:Q", format=".1%")],
        )
    )
    return make_panel(title, [bars], BAR_HEIGHT_PX * len(DOCUMENT_GROUPS), wide=False)


def _recall_panel(reach: Reach) -> ChartPanel:
    alt = import_altair()
    values: ChartRows = [
        {
            "links": within.links,
            "at": within.links + offset,
            "search": label,
            "documents": round_digits(within.documents),
            "value": round_digits(mean.value),
            "low": round_digits(mean.low),
            "high": round_digits(mean.high),
        }
        for within in reach.within
        for label, offset, mean in zip(
            SEARCH_LABELS, (-POINT_OFFSET_LINKS, POINT_OFFSET_LINKS), (within.recall, within.plain), strict=True
        )
    ]
    colour = alt.Color(
        "search:N",
        scale=alt.Scale(domain=list(SEARCH_LABELS), range=[PALETTE[0], NEUTRAL_COLOUR]),
        legend=alt.Legend(title=None, orient="bottom", columns=1, labelLimit=260),
    )
    last = reach.within[-1].links
    axis = alt.Axis(values=list(range(last + 1)), format="d", grid=False)
    x = alt.X("at:Q", title="links from the seeds", axis=axis, scale=alt.Scale(domain=[-0.3, last + 0.3], nice=False))
    y = alt.Y("value:Q", title="recall", axis=alt.Axis(tickCount=5), scale=alt.Scale(domain=[0, 1]))
    tips = [
        alt.Tooltip("search:N", title="search"),
        alt.Tooltip("documents:Q", format=",.1f", title="documents per query"),
        *interval_tooltips(alt, "recall"),
    ]
    chart = alt.Chart(alt.Data(values=values))
    layers = [
        chart.mark_line(strokeWidth=1, opacity=0.5).encode(x=x, y=y, color=colour),
        chart.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q", title="recall"), y2="high:Q", color=colour),
        chart.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
    ]
    return make_panel("recall", layers, CHART_HEIGHT_PX)


def _degree_chart(result: GraphAnalysis) -> dict[str, Chart]:
    alt = import_altair()
    bins = result.degrees.bars
    names = [_bar_label(bin_.low, bin_.high - 1) for bin_ in bins]
    values: ChartRows = [{"links": name, "documents": bin_.n} for name, bin_ in zip(names, bins, strict=True)]
    axis = alt.Axis(labelAngle=0, labelOverlap=True, grid=False)
    bars = (
        alt.Chart(alt.Data(values=values))
        .mark_bar(color=PALETTE[0], opacity=0.75)
        .encode(
            x=alt.X("links:N", title="links per document", sort=names, axis=axis),
            y=alt.Y("documents:Q", title="documents", axis=alt.Axis(tickCount=4, format=",d")),
            tooltip=[alt.Tooltip("links:N"), alt.Tooltip("documents:Q", format=",")],
        )
    )
    first, last = bins[0], bins[-1]
    last_bar_note = f"the last bar has all documents with more than {last.low - 1:,}"
    counts = ", ".join(f"{name}: {bin_.n:,}" for name, bin_ in zip(names, bins, strict=True) if bin_.n)
    drawing = Chart(
        "Links per document",
        join_sentence(
            "documents by number of links", last_bar_note if last.high - last.low > first.high - first.low else ""
        ),
        f"Documents by links: {counts}.",
        [make_panel("links per document", [bars], CHART_HEIGHT_PX)],
    )
    return {"degrees": drawing}


def _bar_label(low: int, high: int) -> str:
    """Format the label of a bar.

    >>> _bar_label(3, 3), _bar_label(1200, 1299)
    ('3', '1,200-1,299')
    """
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
