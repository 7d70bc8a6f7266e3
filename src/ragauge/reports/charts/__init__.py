"""Charts: one definition for the page and for files. Names and texts are data in them, never part of an expression."""

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
    """A kind of chart: what it is called, and what draws it where an overview has enough for it."""

    title: str
    draw: Callable[[Overview], Sketch | None]


@dataclass(frozen=True)
class Drawing:
    """A chart of some systems: panels that stand in a row or below each other, as there is room."""

    title: str
    caption: str
    """How to read it."""
    alt: str
    """What it shows, in words and figures."""
    panels: Sequence[Panel]
    width: int = 760

    def sheet(self, width: int | None = None) -> dict[str, Any]:
        """All of it as one specification of a fixed width, for files."""
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
"""All charts of an overview, in the order in which a reader asks."""


def drawn(overview: Overview) -> dict[str, Drawing]:
    """Every chart that the overview has enough for."""
    found = {}
    for name, chart in CHARTS.items():
        sketch = chart.draw(overview) if overview.measures else None
        if sketch is not None:
            found[name] = Drawing(chart.title, sketch.caption, sketch.alt, sketch.panels, sketch.width)
    return found


def trend(history: History) -> Drawing | None:
    """A history as a chart; None where there is nothing to draw."""
    sketch = trends(history)
    return None if sketch is None else Drawing("Over time", sketch.caption, sketch.alt, sketch.panels)
