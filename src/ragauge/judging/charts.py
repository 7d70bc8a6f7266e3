"""Charts of judged samples: the distribution of the scores of each measure."""

from __future__ import annotations

import math

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.judging.results import JudgedSamples, MeasureSummary
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartPanel, ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import format_number
from ragauge.output.report import Chart

BAR_WIDTH = 0.1
"""Width of a histogram bar, in units of the score."""
PANEL_HEIGHT_PX = 120
BAR_GAP = 0.003
"""Half of the gap between two bars, in units of the score."""


def build_score_charts(judged: JudgedSamples) -> dict[str, Chart]:
    """Build histograms of the scores of each measure; empty without scored samples."""
    panels, facts = [], []
    level = f"{100 * judged.confidence:g}% CI"
    for measure, summary in judged.measures.items():
        values = judged.scores.values[measure]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        counts, edges = histogram_counts(values)
        panels.append(_distribution_panel(measure, summary, counts.tolist(), edges.tolist()))
        interval = "" if summary.interval is None else " ({} {:.3f} to {:.3f})".format(level, *summary.interval)
        facts.append(f"{measure}: mean {summary.mean:.3f}{interval}, {summary.n} of {summary.samples} samples")
    if not panels:
        return {}
    caption = join_sentence(
        "bars count the samples in intervals of 0.1 that include their upper end",
        "the dashed line is the mean" + (f", and the line on the axis its {level}" if judged.intervals else ""),
        "unscored samples are left out",
    )
    return {"scores": Chart("Distribution of scores", caption, f"Scores of samples: {'; '.join(facts)}.", panels)}


def histogram_counts(values: Floats) -> tuple[Ints, Floats]:
    """Count the scores in bars of width 0.1, from 0 or the lowest score to at least 1.

    >>> counts, edges = histogram_counts(np.array([0.0, 0.1, 0.95, 1.0]))
    >>> counts.tolist(), len(edges)
    ([2, 0, 0, 0, 0, 0, 0, 0, 0, 2], 11)
    """
    first = min(0, math.floor(round(float(values.min()) / BAR_WIDTH, 9)))
    last = max(10, math.ceil(round(float(values.max()) / BAR_WIDTH, 9)))
    edges = np.round(np.arange(first, last + 1) * BAR_WIDTH, 9)
    # A value on an edge belongs to the bar below it; the lowest value belongs to the first bar.
    bins = np.clip(np.ceil(np.round(values / BAR_WIDTH, 9)).astype(int) - first - 1, 0, last - first - 1)
    return np.bincount(bins, minlength=last - first), edges


def _distribution_panel(measure: str, summary: MeasureSummary, counts: list[int], edges: list[float]) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {"from": low, "to": high, "count": count, "start": round(low + BAR_GAP, 6), "end": round(high - BAR_GAP, 6)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        if count
    ]
    scale = alt.Scale(domain=[edges[0], edges[-1]], nice=False)
    inner_ticks = (edge for edge in edges[1:-1] if round(edge * 10) % 2 == 0)
    ticks = [edges[0], *inner_ticks, edges[-1]] if len(edges) < 15 else [-1, 0, 1]
    x = alt.X("start:Q", title=None, scale=scale, axis=alt.Axis(values=ticks, format=".1f", grid=False))
    highest = max(counts)
    count_axis = alt.Axis(values=sorted({0, round(highest / 2), highest}), format=",d")
    y = alt.Y("count:Q", title="samples", axis=count_axis, scale=alt.Scale(domain=[0, highest], nice=False), stack=None)
    tips = [
        alt.Tooltip("from:Q", title="above", format=".1f"),
        alt.Tooltip("to:Q", title="up to", format=".1f"),
        alt.Tooltip("count:Q", title="samples", format=","),
    ]
    bars = alt.Chart(alt.Data(values=rows)).mark_rect(
        color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1
    )
    layers = [bars.encode(x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=tips)]
    low, high = summary.interval or (math.nan, math.nan)
    mean = alt.Chart(
        alt.Data(values=[{"mean": round_digits(summary.mean), "low": round_digits(low), "high": round_digits(high)}])
    )
    layers.append(mean.mark_rule(style="guide", strokeWidth=2, strokeDash=[4, 3]).encode(x=alt.X("mean:Q", title=None)))
    if summary.interval is not None:
        interval = mean.mark_rule(style="guide", strokeWidth=4, clip=True).encode(
            x=alt.X("low:Q", title=None), x2="high:Q", y=alt.value(PANEL_HEIGHT_PX - 2)
        )
        layers.append(interval)
    return make_panel(f"{measure}: {format_number(summary.mean, 'statistic')}", layers, PANEL_HEIGHT_PX, wide=False)
