"""Draw the charts of an overview, for pages and files.

System names and texts are passed to Vega-Lite as data, never as part of an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.histories import History
from ragauge.overviews import Overview
from ragauge.reports.charts.curves import curves
from ragauge.reports.charts.differences import boxes, waterfall, wins
from ragauge.reports.charts.files import as_png, as_svg, sheet
from ragauge.reports.charts.latency import latency, stages
from ragauge.reports.charts.panels import panels
from ragauge.reports.charts.quality import measures, quality_latency
from ragauge.reports.charts.sketches import Panel, Sketch
from ragauge.reports.charts.strata import strata
from ragauge.reports.charts.trends import trends

__all__ = ["CHARTS", "Chart", "Drawing", "Panel", "as_png", "as_svg", "drawn", "sheet", "trend"]


@dataclass(frozen=True)
class Chart:
    """Title of a chart and the function that draws it.

    The function returns None if data are missing.
    """

    title: str
    draw: Callable[[Overview], Sketch | None]


@dataclass(frozen=True)
class Drawing:
    """Chart of panels that are arranged in rows, depending on the available width."""

    title: str
    caption: str
    """Text below the chart that explains how to read it."""
    alt: str
    """Alternative text: what the chart shows, with its values."""
    panels: Sequence[Panel]
    width: int = 760

    def sheet(self, width: int | None = None) -> dict[str, Any]:
        """Combine all panels into one specification of a fixed width in pixels, for files."""
        return sheet(self.title, self.alt, self.panels, width or self.width)


CHARTS: dict[str, Chart] = {
    "quality_latency": Chart("Quality against latency", quality_latency),
    "panels": Chart("Six panels", panels),
    "measures": Chart("Measure by measure", measures),
    "curves": Chart("How many documents are enough", curves),
    "waterfall": Chart("Differences, sorted", waterfall),
    "boxes": Chart("How differences are spread", boxes),
    "wins": Chart("Won, tied and lost", wins),
    "strata": Chart("By kind of query", strata),
    "latency": Chart("How long queries take", latency),
    "stages": Chart("Where the time goes", stages),
}
"""Definitions of all charts of an overview, in display order."""


def drawn(overview: Overview) -> dict[str, Drawing]:
    """Draw every chart for which the overview has data, by name."""
    found = {}
    for name, chart in CHARTS.items():
        sketch = chart.draw(overview) if overview.measures else None
        if sketch is not None:
            found[name] = Drawing(chart.title, sketch.caption, sketch.alt, sketch.panels, sketch.width)
    return found


def trend(history: History) -> Drawing | None:
    """Draw a history, or return None if it has no values."""
    sketch = trends(history)
    return None if sketch is None else Drawing("Over time", sketch.caption, sketch.alt, sketch.panels)
