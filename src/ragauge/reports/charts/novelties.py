"""Chart of the novelty of new documents among that of known ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.reports.charts import Drawing
from ragauge.reports.charts.looks import PALETTE
from ragauge.reports.charts.sketches import Panel, Rows, altair, figure, panel, sentence
from ragauge.worths import Novelty

KINDS = {"mean": "by vectors, mean over chunks", "least": "by vectors, nearest chunk", "lexical": "by words"}
BARS = 25
HEIGHT = 140
FEWEST = 5
"""Minimum number of known documents for a chart."""
MOST = 200
"""Maximum number of new documents marked, evenly spaced; more would be a solid band."""
LINES = 25
"""Number of new documents up to which they are lines; more are short strokes below the bars."""


def drawn(told: Novelty) -> dict[str, Drawing]:
    """Build the chart, one panel per definition of novelty with enough data.

    Empty if there is none.
    """
    panels, said = [], []
    for kind, title in KINDS.items():
        own = np.array(told.own.get(kind, ()))
        new = np.array([value for one in told.documents if not np.isnan(value := float(getattr(one, kind)))])
        if len(own) < FEWEST or not len(new):
            continue
        panels.append(_panel(title, own, np.sort(new)[:: -(-len(new) // MOST)], below=len(told.documents) > LINES))
        said.append(f"{title}: known {np.median(own):.3f}, new {np.median(new):.3f} in the middle")
    if not panels:
        return {}
    many = len(told.documents)
    mark = "line" if many <= LINES else "stroke below the bars"
    caption = sentence(
        "bars count known documents by how far each is from all others, 0 for a copy and 1 for nothing in common",
        f"every {mark} is a new document" + (f", at most {MOST} of {many:,} at even steps" if many > MOST else ""),
        "those left of most bars are nearer to what is known than known documents are to each other",
    )
    alt = f"Novelty of known documents among themselves, and of new ones: {'; '.join(said)}."
    return {"novelty": Drawing("New documents among known ones", caption, alt, panels)}


def _panel(title: str, own: np.ndarray, new: np.ndarray, *, below: bool) -> Panel:
    alt = altair()
    counts, edges = np.histogram(own, bins=BARS, range=(0, 1))
    rows: Rows = [
        {"from": low, "to": high, "count": count, "start": round(low + 0.002, 6), "end": round(high - 0.002, 6)}
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        if count
    ]
    most = int(counts.max())
    x = alt.X(
        "start:Q",
        title=None,
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2f", grid=False),
    )
    y = alt.Y(
        "count:Q",
        title="known documents",
        axis=alt.Axis(values=sorted({0, round(most / 2), most}), format=",d"),
        scale=alt.Scale(domain=[-0.15 * most if below else 0, most], nice=False),
        stack=None,
    )
    tips = [
        alt.Tooltip("from:Q", title="from", format=".2f"),
        alt.Tooltip("to:Q", title="to", format=".2f"),
        alt.Tooltip("count:Q", title="known documents", format=","),
    ]
    bars = alt.Chart(alt.Data(values=rows)).mark_rect(
        color=PALETTE[0], opacity=0.6, stroke="transparent", strokeWidth=1
    )
    marks = alt.Chart(alt.Data(values=[{"at": figure(float(value))} for value in new]))
    place: dict[str, Any] = {"y": alt.datum(-0.03 * most), "y2": alt.datum(-0.13 * most)} if below else {}
    width, opacity = (1.0, 0.45) if below else (1.5, 0.8)
    layers = [
        bars.encode(x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=tips),
        marks.mark_rule(color=PALETTE[1], strokeWidth=width, opacity=opacity, clip=True).encode(
            x=alt.X("at:Q", title=None),
            tooltip=[alt.Tooltip("at:Q", title="a new document", format=".3f")],
            **place,
        ),
    ]
    return panel(title, layers, HEIGHT, wide=False)
