"""Charts of a lint: text lengths and languages."""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.findings import Bar, Lint
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import PALETTE
from ragauge.reports.charts.sketches import Panel, Rows, altair, listed, panel, powers, sentence, ticked

HEIGHT = 160
ROW = 22
"""Height of a horizontal bar, in pixels."""
MOST = 12
"""Maximum number of languages drawn."""


def lengths(told: Lint) -> Drawing | None:
    """Build histograms of characters and, if counted, tokens.

    None if there are no texts.
    """
    panels, said = [], []
    for unit, bars in told.bars.items():
        if not bars:
            continue
        marks = _marks(told, unit)
        panels.append(_panel(unit, bars, marks))
        figures = told.lengths[unit]
        said.append(f"{unit}: half of the texts have {figures['p50']:,.0f} or fewer, the longest {figures['max']:,.0f}")
    if not panels:
        return None
    lines = [name for unit, bars in told.bars.items() for name in _inside(_marks(told, unit), bars)]
    caption = sentence(
        "bars count the documents of a length, on a logarithmic axis",
        f"broken lines: {listed(lines)}" if lines else "",
    )
    return Drawing("How long texts are", caption, f"Lengths in {'; '.join(said)}.", panels)


def _marks(told: Lint, unit: str) -> dict[str, float]:
    if unit == "tokens":
        return {} if told.limit is None else {"the embedder's limit": told.limit}
    return {name: float(told.thresholds[name]) for name in ("tiny", "giant") if told.thresholds.get(name)}


def _ends(bars: Sequence[Bar]) -> tuple[float, float]:
    return ticked(float(bars[0].low), float(bars[-1].high))


def _inside(marks: dict[str, float], bars: Sequence[Bar]) -> dict[str, float]:
    """Return the marks within the axis range."""
    low, high = _ends(bars) if bars else (1.0, 0.0)
    return {name: value for name, value in marks.items() if low <= value <= high}


def _panel(unit: str, bars: Sequence[Bar], marks: dict[str, float]) -> Panel:
    alt = altair()
    low, high = _ends(bars)
    inside = _inside(marks, bars)
    rows: Rows = [{"from": one.low, "to": one.high, "count": one.n} for one in bars if one.n]
    most = max(one.n for one in bars)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X("from:Q", title=unit, scale=scale, axis=alt.Axis(values=powers(low, high), format=",d", grid=False))
    tall = alt.Axis(values=sorted({0, round(most / 2), most}), format=",d")
    y = alt.Y("count:Q", title="documents", axis=tall, scale=alt.Scale(domain=[0, most], nice=False), stack=None)
    tips = [
        alt.Tooltip("from:Q", title="from", format=","),
        alt.Tooltip("to:Q", title="below", format=","),
        alt.Tooltip("count:Q", title="documents", format=","),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_rect(color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1).encode(
            x=x, x2="to:Q", y=y, y2=alt.datum(0), tooltip=tips
        )
    ]
    if inside:
        at = alt.Chart(alt.Data(values=[{"at": value, "name": name} for name, value in inside.items()]))
        tip = [alt.Tooltip("name:N", title="line"), alt.Tooltip("at:Q", title=unit, format=",")]
        layers.append(
            at.mark_rule(style="guide", strokeWidth=2, strokeDash=[4, 3]).encode(
                x=alt.X("at:Q", title=unit), tooltip=tip
            )
        )
    return panel(f"{unit} of a document", layers, HEIGHT, wide=False)


def languages(told: Lint) -> Drawing | None:
    """Build the chart of documents by language; None if there is only one."""
    known = list(told.languages.items())[:MOST]
    if len(known) < 2:
        return None
    alt = altair()
    rows: Rows = [{"language": _name(one), "documents": count} for one, count in known]
    order = [str(row["language"]) for row in rows]
    y = alt.Y("language:N", title=None, sort=order, axis=alt.Axis(ticks=False))
    x = alt.X("documents:Q", title="documents", axis=alt.Axis(format=",d", grid=False, tickCount=4))
    tips = [alt.Tooltip("language:N"), alt.Tooltip("documents:Q", format=",")]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(color=PALETTE[0], opacity=0.75).encode(x=x, y=y, tooltip=tips)
    said = ", ".join(f"{row['language']} {row['documents']:,}" for row in rows)
    caption = "Bars count documents; those that are too short or too mixed to tell have a bar of their own."
    drawing = panel("documents by language", [bars], ROW * len(rows), wide=False)
    return Drawing("Languages", caption, f"Documents by language: {said}.", [drawing])


def _name(language: str) -> str:
    return "cannot be told" if language == "?" else language
