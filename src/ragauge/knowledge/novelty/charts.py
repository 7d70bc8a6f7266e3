"""Chart of novelty: the values of new documents among those of known documents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.core.records import Floats
from ragauge.knowledge.novelty.results import Novelty
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartPanel, ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.report import Chart

NOVELTY_TITLES = {"mean": "vectors, mean over chunks", "least": "vectors, nearest chunk", "lexical": "shingles"}
HISTOGRAM_BARS = 25
CHART_HEIGHT_PX = 140
MIN_KNOWN_FOR_CHART = 5
"""Minimum number of known documents for a chart."""
MAX_DOCUMENTS_MARKED = 200
"""Maximum number of new documents marked, evenly spaced; more would be a solid band."""
MAX_DOCUMENT_LINES = 25
"""Number of new documents up to which they are lines; more are short ticks below the bars."""


def build_charts(result: Novelty) -> dict[str, Chart]:
    """Build the chart, one panel per definition of novelty with enough data.

    Empty if there is none.
    """
    n_new = len(result.documents)
    panels, medians = [], []
    for definition, title in NOVELTY_TITLES.items():
        known = np.array(result.reference_values.get(definition, ()))
        new = np.array([float(getattr(document, definition)) for document in result.documents])
        new = np.sort(new[~np.isnan(new)])
        if len(known) < MIN_KNOWN_FOR_CHART or not len(new):
            continue
        marked = new[:: -(-len(new) // MAX_DOCUMENTS_MARKED)]
        panels.append(_novelty_panel(title, known, marked, below=n_new > MAX_DOCUMENT_LINES))
        medians.append(f"{title}: median {np.median(known):.3f} of known and {np.median(new):.3f} of new documents")
    if not panels:
        return {}
    mark = "line" if n_new <= MAX_DOCUMENT_LINES else "tick below the bars"
    sampled = f" ({MAX_DOCUMENTS_MARKED} of {n_new:,} are drawn)" if n_new > MAX_DOCUMENTS_MARKED else ""
    caption = join_sentence(
        "bars count known documents by their novelty against all others, from 0 for a copy to 1 for nothing in common",
        f"each {mark} is a new document{sampled}",
        "a new document to the left of most bars is more similar to a known one than known documents usually are",
    )
    alt = f"Novelty of known and of new documents. {'; '.join(medians)}."
    return {"novelty": Chart("New documents among known ones", caption, alt, panels)}


def _novelty_panel(title: str, known: Floats, new: Floats, *, below: bool) -> ChartPanel:
    """Draw the histogram of the known documents, and a mark for each new one."""
    alt = import_altair()
    counts, edges = np.histogram(known, bins=HISTOGRAM_BARS, range=(0, 1))
    rows: ChartRows = [
        {"from": low, "to": high, "count": count, "start": round(low + 0.002, 6), "end": round(high - 0.002, 6)}
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        if count
    ]
    highest = int(counts.max())
    x = alt.X(
        "start:Q",
        title=None,
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2f", grid=False),
    )
    y = alt.Y(
        "count:Q",
        title="known documents",
        axis=alt.Axis(values=sorted({0, round(highest / 2), highest}), format=",d"),
        scale=alt.Scale(domain=[-0.15 * highest if below else 0, highest], nice=False),
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
    marks = alt.Chart(alt.Data(values=[{"at": round_digits(float(value))} for value in new]))
    span: dict[str, Any] = {"y": alt.datum(-0.03 * highest), "y2": alt.datum(-0.13 * highest)} if below else {}
    width, opacity = (1.0, 0.45) if below else (1.5, 0.8)
    layers = [
        bars.encode(x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=tips),
        marks.mark_rule(color=PALETTE[1], strokeWidth=width, opacity=opacity, clip=True).encode(
            x=alt.X("at:Q", title=None),
            tooltip=[alt.Tooltip("at:Q", title="new document", format=".3f")],
            **span,
        ),
    ]
    return make_panel(title, layers, CHART_HEIGHT_PX, wide=False)
