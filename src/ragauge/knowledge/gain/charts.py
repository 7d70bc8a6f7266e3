"""Chart of the changed queries of a gain."""

from __future__ import annotations

from ragauge.knowledge.gain.results import Gain
from ragauge.output.chart_style import LOSS_COLOUR, WIN_COLOUR
from ragauge.output.charts import ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import pluralise
from ragauge.output.report import Chart

CHART_HEIGHT_PX = 200
MAX_QUERIES_DRAWN = 200
MAX_TOOLTIP_CHARS = 120
"""Maximum number of characters of a query text."""


def build_charts(result: Gain) -> dict[str, Chart]:
    """Build all charts for which there is enough data."""
    return {"queries": build_queries_chart(result)} if len(result.gained) + len(result.lost) > 1 else {}


def build_queries_chart(result: Gain) -> Chart:
    """Build the chart of the queries that gained or lost, largest gain first."""
    alt = import_altair()
    queries = sorted([*result.gained, *result.lost], key=lambda query: -query.gain)
    n_queries = len(queries)
    if n_queries > MAX_QUERIES_DRAWN:
        queries = queries[: MAX_QUERIES_DRAWN // 2] + queries[-MAX_QUERIES_DRAWN // 2 :]
    rows: ChartRows = [
        {
            "place": rank,
            "query": query.query,
            "text": query.text[:MAX_TOOLTIP_CHARS],
            "gain": round_digits(query.gain),
            "side": "gained" if query.gain > 0 else "lost",
        }
        for rank, query in enumerate(queries, 1)
    ]
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(domain=["gained", "lost"], range=[WIN_COLOUR, LOSS_COLOUR]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [alt.Tooltip("query:N"), alt.Tooltip("text:N"), alt.Tooltip("gain:Q", format="+.4f")]
    x = alt.X("place:O", title=None, axis=None)
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(opacity=0.9)
    layer = bars.encode(x=x, y=alt.Y("gain:Q", title="gain", axis=alt.Axis(tickCount=5)), color=colour, tooltip=tips)
    even = f", {len(result.even)} changed without gain or loss" if result.even else ""
    alt_text = (
        f"{pluralise(len(result.gained), 'query')} gained, {len(result.lost)} lost{even}, "
        f"{result.queries - len(result.changed_queries)} did not change."
    )
    caption = join_sentence(
        "each bar is the gain of a query that gained or lost",
        f"the first and the last {MAX_QUERIES_DRAWN // 2} are drawn" if n_queries > MAX_QUERIES_DRAWN else "",
    )
    return Chart("Changed queries", caption, alt_text, [make_panel("Changed queries", [layer], CHART_HEIGHT_PX)])
