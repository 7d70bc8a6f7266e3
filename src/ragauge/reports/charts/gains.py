"""Charts of a gain: the gain of the batch as it grows, and the gain of each query."""

from __future__ import annotations

import math

from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import LOST, PALETTE, WON
from ragauge.reports.charts.sketches import Rows, altair, figure, panel, sentence
from ragauge.worths import Gain

HEIGHT = 200
MANY = 200
"""Maximum number of queries drawn."""
LONG = 24
"""Maximum number of characters of a document name."""


def drawn(gain: Gain) -> dict[str, Drawing]:
    """Build all charts for which there is enough data."""
    found = {}
    if len(gain.batch) > 1:
        found["batch"] = batch(gain)
    if len(gain.gained) + len(gain.lost) > 1:
        found["queries"] = queries(gain)
    return found


def batch(gain: Gain) -> Drawing:
    """Build the chart of marginal gains by term, and of the batch's total."""
    alt = altair()
    names = [_short(f"{place}. {one.id}") for place, one in enumerate(gain.batch, 1)]
    terms = [one.name for one in gain.terms if not math.isnan(one.value)]
    bars: Rows = [
        {"document": name, "id": one.id, "term": term, "adds": figure(one.changes.get(term, 0.0))}
        for name, one in zip(names, gain.batch, strict=True)
        for term in terms
    ]
    line: Rows = [
        {"document": name, "id": one.id, "total": figure(one.total), "adds": figure(one.marginal)}
        for name, one in zip(names, gain.batch, strict=True)
    ]
    x = alt.X("document:N", title=None, sort=None, scale=alt.Scale(domain=names), axis=alt.Axis(labelAngle=-40))
    colour = alt.Color(
        "term:N",
        scale=alt.Scale(domain=terms, range=[PALETTE[i % len(PALETTE)] for i in range(len(terms))]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [alt.Tooltip("id:N", title="document"), alt.Tooltip("term:N"), alt.Tooltip("adds:Q", format="+.5f")]
    totals = [alt.Tooltip("id:N", title="document"), alt.Tooltip("total:Q", format="+.5f", title="batch so far")]
    adds = alt.Chart(alt.Data(values=bars)).mark_bar(opacity=0.85)
    grows = alt.Chart(alt.Data(values=line))
    total = alt.Y("total:Q", title="gain of the batch", axis=alt.Axis(tickCount=5))
    panels = [
        panel(
            "What each adds",
            [adds.encode(x=x, y=alt.Y("adds:Q", title="gain", axis=alt.Axis(tickCount=5)), color=colour, tooltip=tips)],
            HEIGHT,
        ),
        panel(
            "All of them together",
            [
                grows.mark_line(color=PALETTE[0], strokeWidth=2).encode(x=x, y=total),
                grows.mark_point(color=PALETTE[0], filled=True, size=45, opacity=1).encode(
                    x=x, y=total, tooltip=totals
                ),
            ],
            HEIGHT,
        ),
    ]
    first, last = gain.batch[0], gain.batch[-1]
    alt_text = (
        f"A batch of {len(gain.batch)} documents: the first ({first.id}) adds {first.marginal:+.4f}, the last "
        f"({last.id}) {last.marginal:+.4f}; together they gain {last.total:+.4f}."
    )
    caption = sentence(
        "documents from left to right as they are taken, each the best after those before it",
        "bars are what it adds by term and weight",
        "the line is what all so far are worth",
    )
    return Drawing("The best batch", caption, alt_text, panels)


def queries(gain: Gain) -> Drawing:
    """Build the chart of the queries that gained or lost, largest gain first."""
    alt = altair()
    moved = sorted([*gain.gained, *gain.lost], key=lambda one: -one.gain)
    if len(moved) > MANY:
        moved = moved[: MANY // 2] + moved[-MANY // 2 :]
    rows: Rows = [
        {
            "place": place,
            "query": one.query,
            "text": one.text[:120],
            "gain": figure(one.gain),
            "side": "gained" if one.gain > 0 else "lost",
        }
        for place, one in enumerate(moved, 1)
    ]
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(domain=["gained", "lost"], range=[WON, LOST]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [alt.Tooltip("query:N"), alt.Tooltip("text:N"), alt.Tooltip("gain:Q", format="+.4f")]
    x = alt.X("place:O", title=None, axis=None)
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(opacity=0.9)
    shown = bars.encode(x=x, y=alt.Y("gain:Q", title="gain", axis=alt.Axis(tickCount=5)), color=colour, tooltip=tips)
    even = f"{len(gain.even)} moved without gain or loss, " if gain.even else ""
    said = (
        f"{len(gain.gained)} queries gained, {len(gain.lost)} lost, {even}"
        f"{gain.queries - len(gain.moved)} did not move."
    )
    few = f"only the first and the last {MANY // 2} are drawn" if len(gain.gained) + len(gain.lost) > MANY else ""
    caption = sentence("a bar for each query that gained or lost, as much as it did", "others are not drawn", few)
    return Drawing("Queries that moved", caption, said, [panel("Queries that moved", [shown], HEIGHT)])


def _short(name: str) -> str:
    return name if len(name) <= LONG else f"{name[: LONG - 1]}…"
