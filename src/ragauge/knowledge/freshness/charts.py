"""Chart of freshness: stale documents by rank."""

from __future__ import annotations

from ragauge.knowledge.freshness.results import Freshness
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.report import Chart

CHART_HEIGHT_PX = 140
MAX_RANKS_DRAWN = 100


def stale_counts_by_rank(result: Freshness) -> list[tuple[int, int, int]]:
    """Count, for each rank, the stale hits and all hits; return (rank, stale, hits)."""
    stale, hits = [0] * result.k, [0] * result.k
    for query in result.queries:
        for index in range(query.considered):
            hits[index] += 1
        for hit in query.stale:
            stale[hit.rank - 1] += 1
    return [
        (rank, n_stale, n_hits)
        for rank, (n_stale, n_hits) in enumerate(zip(stale, hits, strict=True), start=1)
        if n_hits
    ]


def build_charts(result: Freshness) -> dict[str, Chart]:
    """Build a bar chart by rank; empty if no document is stale, or if there are too many ranks."""
    counts = stale_counts_by_rank(result)
    if not any(stale for _, stale, _ in counts) or len(counts) > MAX_RANKS_DRAWN:
        return {}
    alt = import_altair()
    rows: ChartRows = [
        {
            "rank": rank,
            "share": round_digits(n_stale / n_hits),
            "stale": n_stale,
            "of": n_hits,
            "from": rank - 0.4,
            "to": rank + 0.4,
        }
        for rank, n_stale, n_hits in counts
    ]
    last = counts[-1][0]
    highest = max(n_stale / n_hits for _, n_stale, n_hits in counts)
    step = max(1, -(-last // 10))
    axis = alt.Axis(values=list(range(1, last + 1, step)), format="d", grid=False)
    x = alt.X("from:Q", title="rank", axis=axis, scale=alt.Scale(domain=[0.5, last + 0.5], nice=False))
    share_axis = alt.Axis(format=".0%" if highest >= 0.02 else ".1%", tickCount=4)
    y = alt.Y("share:Q", title="stale", axis=share_axis, stack=None)
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
    caption = join_sentence("share of the queries with a stale document at each rank")
    values = ", ".join(f"rank {rank}: {n_stale} of {n_hits}" for rank, n_stale, n_hits in counts)
    panel = make_panel("stale documents by rank", [bars], CHART_HEIGHT_PX)
    return {"stale_by_rank": Chart("Stale documents by rank", caption, f"Stale by rank: {values}.", [panel])}
