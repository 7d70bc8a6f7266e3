"""Chart of the distribution of judged scores: one histogram per measure."""

from __future__ import annotations

import math

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import PALETTE
from ragauge.reports.charts.sketches import Panel, Rows, Sketch, altair, figure, panel, sentence
from ragauge.reports.judged_words import Figure, confidence, figures
from ragauge.verdicts import Judged

WIDTH = 0.1
"""Width of a histogram bar, in units of the score."""
HEIGHT = 120
GAP = 0.003
"""Half of the gap between two bars, in units of the score."""


def drawn(judged: Judged) -> dict[str, Drawing]:
    """Draw all charts for which there is enough data."""
    sketch = spread(judged)
    if sketch is None:
        return {}
    return {"spread": Drawing("How values are spread", sketch.caption, sketch.alt, sketch.panels)}


def spread(judged: Judged) -> Sketch | None:
    """Sketch the distribution of scores of each measure; None without scored samples."""
    panels, said = [], []
    for one in figures(judged):
        values = judged.scores.values[one.measure]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        counts, edges = bars(values)
        panels.append(_panel(one, counts.tolist(), edges.tolist()))
        interval = "" if math.isnan(one.low) else f" ({confidence(judged)} interval {one.low:.3f} to {one.high:.3f})"
        said.append(f"{one.measure}: mean {one.mean:.3f}{interval}, {one.n} of {one.of} samples")
    if not panels:
        return None
    caption = sentence(
        "bars count the samples with values up to there: the last is above 0.9, with 1",
        "the line is the mean"
        + (f", and its {confidence(judged)} interval lies on the axis" if judged.intervals else ""),
        "what is unscored is in no bar",
    )
    return Sketch(panels, f"Values of samples: {'; '.join(said)}.", caption)


def bars(values: Floats) -> tuple[Ints, Floats]:
    """Count the scores in bars of width 0.1, from 0 or the lowest score to at least 1.

    >>> counts, edges = bars(np.array([0.0, 0.1, 0.95, 1.0]))
    >>> counts.tolist(), len(edges)
    ([2, 0, 0, 0, 0, 0, 0, 0, 0, 2], 11)
    """
    first = min(0, math.floor(round(float(values.min()) / WIDTH, 9)))
    last = max(10, math.ceil(round(float(values.max()) / WIDTH, 9)))
    edges = np.round(np.arange(first, last + 1) * WIDTH, 9)
    # A value on an edge belongs to the bar below it; the lowest value belongs to the first bar.
    places = np.clip(np.ceil(np.round(values / WIDTH, 9)).astype(int) - first - 1, 0, last - first - 1)
    return np.bincount(places, minlength=last - first), edges


def _panel(one: Figure, counts: list[int], edges: list[float]) -> Panel:
    alt = altair()
    rows: Rows = [
        {"from": low, "to": high, "count": count, "start": round(low + GAP, 6), "end": round(high - GAP, 6)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        if count
    ]
    scale = alt.Scale(domain=[edges[0], edges[-1]], nice=False)
    ticks = (
        [edges[0], *(e for e in edges[1:-1] if round(e * 10) % 2 == 0), edges[-1]] if len(edges) < 15 else [-1, 0, 1]
    )
    axis = alt.Axis(values=ticks, format=".1f", grid=False)
    x = alt.X("start:Q", title=None, scale=scale, axis=axis)
    most = max(counts)
    tall = alt.Axis(values=sorted({0, round(most / 2), most}), format=",d")
    y = alt.Y("count:Q", title="samples", axis=tall, scale=alt.Scale(domain=[0, most], nice=False), stack=None)
    tips = [
        alt.Tooltip("from:Q", title="above", format=".1f"),
        alt.Tooltip("to:Q", title="up to", format=".1f"),
        alt.Tooltip("count:Q", title="samples", format=","),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_rect(color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1).encode(
            x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=tips
        )
    ]
    mean = alt.Chart(alt.Data(values=[{"mean": figure(one.mean), "low": figure(one.low), "high": figure(one.high)}]))
    layers.append(mean.mark_rule(style="guide", strokeWidth=2, strokeDash=[4, 3]).encode(x=alt.X("mean:Q", title=None)))
    if not math.isnan(one.low):
        band = mean.mark_rule(style="guide", strokeWidth=4, clip=True).encode(
            x=alt.X("low:Q", title=None), x2="high:Q", y=alt.value(HEIGHT - 2)
        )
        layers.append(band)
    return panel(f"{one.measure}: {one.mean:.3f}", layers, HEIGHT, wide=False)
