"""Report of a stress test: read-backs, performance, failures and charts."""

from __future__ import annotations

from ragauge.ordeals import Ordeal
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import Rows, altair, figure, listed, panel, powers, sentence, shown, ticked

HEIGHT = 220
FEWEST = 3
"""Minimum number of points for a line chart."""


def drawn(told: Ordeal) -> dict[str, Drawing]:
    """Build the charts that have enough data."""
    ways = [way for way in told.ways if len([one for one in way.pace if one.milliseconds > 0]) >= FEWEST]
    if not ways:
        return {}
    alt = altair()
    cast = Cast([way.name for way in ways])
    rows: Rows = [
        {
            "system": way.name,
            "dash": cast.dashes[way.name],
            "documents": one.documents,
            "ms": figure(one.milliseconds, 4),
        }
        for way in ways
        for one in way.pace
        if one.milliseconds > 0
    ]
    times = [row["ms"] for row in rows]
    low, high = ticked(min(times) / 1.3, max(times) * 1.3)
    x = alt.X("documents:Q", title="documents in the store", axis=alt.Axis(format=",d", tickCount=5))
    y = alt.Y(
        "ms:Q",
        title="ms a document (log scale)",
        scale=alt.Scale(type="log", domain=[figure(low), figure(high)]),
        axis=alt.Axis(values=powers(low, high), format="~g"),
    )
    tips = [
        alt.Tooltip("system:N", title="way"),
        alt.Tooltip("documents:Q", title="documents", format=","),
        alt.Tooltip("ms:Q", title="ms a document", format=".4~g"),
    ]
    names = [way.name for way in ways]
    chart = alt.Chart(alt.Data(values=rows))
    colour = cast.colour(alt, names)
    layers = [
        chart.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=colour, strokeDash=cast.dash(alt)),
        chart.mark_point(filled=True, size=25, opacity=1).encode(x=x, y=y, color=colour, tooltip=tips),
    ]
    said = [
        f"{way.name} {shown(way.pace[0].milliseconds)} at first, {shown(way.pace[-1].milliseconds)} at last"
        for way in ways
    ]
    caption = sentence(
        "each point is the median of a stretch of puts, divided by the documents in a put",
        "a line that rises is a store that gets slower as it fills",
    )
    return {
        "pace": Drawing(
            "How long putting takes as it fills",
            caption,
            f"Milliseconds a document: {listed(said)}.",
            [panel("put", layers, HEIGHT)],
        )
    }
