"""Charts of a lint: lengths of the documents, and their languages."""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.core.findings import HistogramBin
from ragauge.knowledge.lint.results import Lint
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import (
    ChartPanel,
    ChartRows,
    import_altair,
    join_sentence,
    log_range,
    log_ticks,
    make_panel,
)
from ragauge.output.numbers import join_with_and
from ragauge.output.report import Chart

LENGTH_CHART_HEIGHT_PX = 160
LANGUAGE_BAR_HEIGHT_PX = 22
"""Height of a horizontal bar, in pixels."""
MAX_LANGUAGES_DRAWN = 12


def build_length_chart(result: Lint) -> dict[str, Chart]:
    """Build histograms of characters and, if counted, tokens.

    Empty if there are no texts.
    """
    panels, descriptions = [], []
    for unit, bars in result.bars.items():
        if not bars:
            continue
        marks = _threshold_marks(result, unit)
        panels.append(_length_panel(unit, bars, marks))
        figures = result.lengths[unit]
        descriptions.append(
            f"{unit}: half of the texts have {figures['p50']:,.0f} or fewer, the longest {figures['max']:,.0f}"
        )
    if not panels:
        return {}
    lines = [
        name for unit, bars in result.bars.items() for name in _visible_marks(_threshold_marks(result, unit), bars)
    ]
    caption = join_sentence(
        "bars count the documents of a length, on a logarithmic axis",
        f"broken lines: {join_with_and(lines)}" if lines else "",
    )
    return {"lengths": Chart("How long texts are", caption, f"Lengths in {'; '.join(descriptions)}.", panels)}


def _threshold_marks(result: Lint, unit: str) -> dict[str, float]:
    if unit == "tokens":
        return {} if result.limit is None else {"the embedder's limit": result.limit}
    limits = {"tiny": "min_chars", "giant": "max_chars"}
    return {name: float(result.thresholds[key]) for name, key in limits.items() if result.thresholds.get(key)}


def _axis_range(bars: Sequence[HistogramBin]) -> tuple[float, float]:
    return log_range(float(bars[0].low), float(bars[-1].high))


def _visible_marks(marks: dict[str, float], bars: Sequence[HistogramBin]) -> dict[str, float]:
    """Return the marks within the axis range."""
    low, high = _axis_range(bars) if bars else (1.0, 0.0)
    return {name: value for name, value in marks.items() if low <= value <= high}


def _length_panel(unit: str, bars: Sequence[HistogramBin], marks: dict[str, float]) -> ChartPanel:
    alt = import_altair()
    low, high = _axis_range(bars)
    inside = _visible_marks(marks, bars)
    rows: ChartRows = [{"from": bar.low, "to": bar.high, "count": bar.n} for bar in bars if bar.n]
    highest = max(bar.n for bar in bars)
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X("from:Q", title=unit, scale=scale, axis=alt.Axis(values=log_ticks(low, high), format=",d", grid=False))
    tall = alt.Axis(values=sorted({0, round(highest / 2), highest}), format=",d")
    y = alt.Y("count:Q", title="documents", axis=tall, scale=alt.Scale(domain=[0, highest], nice=False), stack=None)
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
    return make_panel(f"{unit} of a document", layers, LENGTH_CHART_HEIGHT_PX, wide=False)


def build_language_chart(result: Lint) -> dict[str, Chart]:
    """Build the chart of documents by language; empty if there is only one."""
    language_counts = list(result.languages.items())[:MAX_LANGUAGES_DRAWN]
    if len(language_counts) < 2:
        return {}
    alt = import_altair()
    rows: ChartRows = [
        {"language": _language_label(language), "documents": count} for language, count in language_counts
    ]
    order = [str(row["language"]) for row in rows]
    y = alt.Y("language:N", title=None, sort=order, axis=alt.Axis(ticks=False))
    x = alt.X("documents:Q", title="documents", axis=alt.Axis(format=",d", grid=False, tickCount=4))
    tips = [alt.Tooltip("language:N"), alt.Tooltip("documents:Q", format=",")]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(color=PALETTE[0], opacity=0.75).encode(x=x, y=y, tooltip=tips)
    summary = ", ".join(f"{row['language']} {row['documents']:,}" for row in rows)
    caption = "Bars count documents; those that are too short or too mixed to identify have a bar of their own."
    drawing = make_panel("documents by language", [bars], LANGUAGE_BAR_HEIGHT_PX * len(rows), wide=False)
    return {"languages": Chart("Languages", caption, f"Documents by language: {summary}.", [drawing])}


def _language_label(language: str) -> str:
    return "unknown" if language == "?" else language
