"""Charts of tokenizers: bytes per token and tokens per document."""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.lineups import Tokenizers, Tokens
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import PALETTE
from ragauge.reports.charts.sketches import Panel, altair, figure, panel, sentence, shown

ROW = 26
"""Height of a horizontal bar, in pixels."""
ENDS = ("p5", "p95")


def drawn(found: Tokenizers) -> dict[str, Drawing]:
    """Build bars of bytes per token and tokens per document.

    Empty if there are no tokens.
    """
    rows = [one for one in found.rows if one.tokens]
    if not rows:
        return {}
    said = "; ".join(f"{one.tokenizer} {shown(one.compression)}" for one in rows)
    lengths = "; ".join(f"{one.tokenizer} {shown(one.per_document['mean'])}" for one in rows)
    thin = "thin lines go from the 5th to the 95th percentile"
    return {
        "tokenizers": Drawing(
            "What a token holds, and how many there are",
            sentence("the more bytes a token holds, the fewer tokens a document has", thin),
            f"Bytes a token: {said}. Tokens a document: {lengths}.",
            [_held(rows), _counted(rows)],
        )
    }


def _held(rows: Sequence[Tokens]) -> Panel:
    alt = altair()
    values = [{"tokenizer": one.tokenizer, "bytes": figure(one.compression)} for one in rows]
    x = alt.X("bytes:Q", title="bytes a token", axis=alt.Axis(grid=False, tickCount=4), scale=alt.Scale(zero=True))
    tips = [alt.Tooltip("tokenizer:N"), alt.Tooltip("bytes:Q", title="bytes a token", format=".3~f")]
    chart = alt.Chart(alt.Data(values=values))
    bars = chart.mark_bar(color=PALETTE[0], opacity=0.75, height={"band": 0.7}).encode(
        x=x, y=_names(rows), tooltip=tips
    )
    return panel("bytes a token", [bars], ROW * len(rows), wide=False)


def _counted(rows: Sequence[Tokens]) -> Panel:
    alt = altair()
    values = [
        {
            "tokenizer": one.tokenizer,
            "mean": figure(one.per_document["mean"]),
            "low": figure(one.per_document[ENDS[0]]),
            "high": figure(one.per_document[ENDS[1]]),
        }
        for one in rows
    ]
    axis = alt.Axis(grid=False, tickCount=4, format=",d")
    x = alt.X("mean:Q", title="tokens a document", axis=axis, scale=alt.Scale(zero=True))
    tips = [
        alt.Tooltip("tokenizer:N"),
        alt.Tooltip("mean:Q", title="mean", format=",.1f"),
        alt.Tooltip("low:Q", title="5th percentile", format=",.0f"),
        alt.Tooltip("high:Q", title="95th percentile", format=",.0f"),
    ]
    chart = alt.Chart(alt.Data(values=values))
    y = _names(rows)
    layers = [
        chart.mark_bar(color=PALETTE[1], opacity=0.75, height={"band": 0.7}).encode(x=x, y=y, tooltip=tips),
        chart.mark_rule(style="guide", strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q", y=y, tooltip=tips),
    ]
    return panel("tokens a document", layers, ROW * len(rows), wide=False)


def _names(rows: Sequence[Tokens]) -> object:
    alt = altair()
    order = [one.tokenizer for one in rows]
    return alt.Y("tokenizer:N", title=None, sort=order, axis=alt.Axis(grid=False, labelLimit=170))
