"""Chart of the share of queries with a stale hit at each rank."""

from __future__ import annotations

from ragauge.ages import Freshness
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import PALETTE
from ragauge.reports.charts.sketches import Rows, altair, figure, panel, sentence

HEIGHT = 140


def parts_by_rank(told: Freshness) -> list[tuple[int, int, int]]:
    """Count, for each rank, the stale hits and all hits; return (rank, stale, hits)."""
    stale, filled = [0] * told.k, [0] * told.k
    for one in told.queries:
        for rank in range(one.considered):
            filled[rank] += 1
        for hit in one.stale:
            stale[hit.rank - 1] += 1
    return [(rank, mine, of) for rank, (mine, of) in enumerate(zip(stale, filled, strict=True), start=1) if of]


def by_rank(told: Freshness) -> dict[str, Drawing]:
    """Build a bar chart by rank; empty if nothing is stale or k is above 100."""
    counts = parts_by_rank(told)
    if not any(mine for _, mine, _ in counts) or len(counts) > 100:
        return {}
    alt = altair()
    rows: Rows = [
        {"rank": rank, "part": figure(mine / of), "stale": mine, "of": of, "from": rank - 0.4, "to": rank + 0.4}
        for rank, mine, of in counts
    ]
    last = counts[-1][0]
    most = max(mine / of for _, mine, of in counts)
    step = max(1, -(-last // 10))
    axis = alt.Axis(values=list(range(1, last + 1, step)), format="d", grid=False)
    x = alt.X("from:Q", title="rank", axis=axis, scale=alt.Scale(domain=[0.5, last + 0.5], nice=False))
    y = alt.Y("part:Q", title="stale", axis=alt.Axis(format=".0%" if most >= 0.02 else ".1%", tickCount=4), stack=None)
    tips = [
        alt.Tooltip("rank:Q", title="rank"),
        alt.Tooltip("stale:Q", title="stale", format=","),
        alt.Tooltip("of:Q", title="of", format=","),
    ]
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_rect(color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1)
        .encode(x=x, x2="to:Q", y=y, y2=alt.datum(0), tooltip=tips)
    )
    caption = sentence("bars are the part of the queries that have a stale document at that rank")
    words = ", ".join(f"rank {rank}: {mine} of {of}" for rank, mine, of in counts)
    drawn = panel("Stale documents by rank", [bars], HEIGHT)
    return {"stale_by_rank": Drawing("Where stale documents stand", caption, f"Stale by rank: {words}.", [drawn])}
