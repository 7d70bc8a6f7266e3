"""Charts: one definition for the page and for files. Names and texts are data in them, never part of an expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.histories import History
from ragauge.overviews import Overview
from ragauge.reports.charts.curves import curves
from ragauge.reports.charts.differences import boxes, compared, waterfall, wins
from ragauge.reports.charts.files import as_png, as_svg, sheet
from ragauge.reports.charts.latency import latency, stages
from ragauge.reports.charts.quality import measures, quality_latency
from ragauge.reports.charts.sketches import Panel, Sketch
from ragauge.reports.charts.strata import strata
from ragauge.reports.charts.trends import trends

__all__ = ["CHARTS", "Chart", "Drawing", "Panel", "as_png", "as_svg", "drawn", "sheet", "trend"]


@dataclass(frozen=True)
class Chart:
    """A kind of chart: what it is called, how to read it, and what draws it where an overview has enough for it."""

    title: str
    caption: str
    """One sentence; `{measure}`, `{confidence}` and `{baseline}` are filled in."""
    draw: Callable[[Overview], Sketch | None]


@dataclass(frozen=True)
class Drawing:
    """A chart of some systems: panels that stand in a row or below each other, as there is room."""

    title: str
    caption: str
    alt: str
    """What it shows, in words and figures."""
    panels: Sequence[Panel]

    def sheet(self, width: int = 760) -> dict[str, Any]:
        """All of it as one specification of a fixed width, for files."""
        return sheet(self.title, self.alt, self.panels, width)


CHARTS: dict[str, Chart] = {
    "quality_latency": Chart(
        "Quality against latency",
        "Higher is better and further left is faster; the stepped line joins the systems that no other beats in both, "
        "and bars are {confidence} intervals.",
        quality_latency,
    ),
    "measures": Chart(
        "Every measure",
        "Bars are means with {confidence} intervals, the dashed line is the baseline, and stars are the corrected "
        "p-value of the test against it: *** below 0.001, ** 0.01, * 0.05, ns otherwise.",
        measures,
    ),
    "curves": Chart(
        "How many results are enough",
        "Each line is a mean over k; right of the dashed line more results add little.",
        curves,
    ),
    "waterfall": Chart(
        "Query by query",
        "All queries in order, best for the system first: where a line lies above 0 the system beats {baseline}, and "
        "marks show where winning ends and losing begins.",
        waterfall,
    ),
    "boxes": Chart(
        "How differences are spread",
        "Boxes hold the middle half of the queries and thin lines all but 5% at each end; the diamond is the mean with "
        "its {confidence} interval.",
        boxes,
    ),
    "wins": Chart(
        "Won, tied and lost",
        "How many queries each system ranks better than, like, or worse than {baseline} by {measure}.",
        wins,
    ),
    "strata": Chart(
        "By kind of query",
        "A row is a kind of query and a mark a system's mean {measure} there, with its {confidence} interval.",
        strata,
    ),
    "latency": Chart(
        "How long queries take",
        "A line shows which share of the queries took at most so long; marks are the 50th, 90th, 95th and 99th "
        "percentile.",
        latency,
    ),
    "stages": Chart(
        "Where the time goes",
        "Mean milliseconds of a query, by the stage in which they were spent.",
        stages,
    ),
}
"""All charts of an overview, in the order in which a reader asks."""


def drawn(overview: Overview) -> dict[str, Drawing]:
    """Every chart that the overview has enough for."""
    found = {}
    against = compared(overview)
    words = {
        "measure": overview.first if overview.measures else "",
        "confidence": f"{overview.confidence:.0%}",
        "baseline": against[0].baseline if against else "the baseline",
    }
    for name, chart in CHARTS.items():
        sketch = chart.draw(overview) if overview.measures else None
        if sketch is not None:
            found[name] = Drawing(chart.title, chart.caption.format(**words), sketch.alt, sketch.panels)
    return found


def trend(history: History) -> Drawing | None:
    """A history as a chart; None where there is nothing to draw."""
    sketch = trends(history)
    if sketch is None:
        return None
    caption = (
        f"Bars are {history.confidence:.0%} intervals; a line breaks, at a dashed upright, where something else than "
        "the system changed, so that both sides cannot be compared."
    )
    return Drawing("Over time", caption, sketch.alt, sketch.panels)
