"""All charts of a benchmark, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable

from ragauge.reports.charts import Drawing, frontier, load, stores
from ragauge.reports.charts.sketches import Sketch
from ragauge.sweeps import Sweep

CHARTS: dict[str, tuple[str, Callable[[Sweep], Sketch | None]]] = {
    "frontier": ("Recall against speed", frontier.speed),
    "recall_latency": ("Recall against latency", frontier.latency),
    "costs": ("What it takes", stores.costs),
    "relevance": ("Does it matter for answers?", frontier.relevance),
    "rates": ("At a fixed rate", load.rates),
    "clients": ("Several clients", load.clients),
    "filter_latency": ("Latency against recall with a filter", frontier.filter_latency),
    "filters": ("Recall by selectivity", stores.filters),
}


def drawn(sweep: Sweep) -> dict[str, Drawing]:
    """Draw every chart that the benchmark has data for."""
    found = {}
    for name, (title, draw) in CHARTS.items():
        sketch = draw(sweep)
        if sketch is not None:
            found[name] = Drawing(title, sketch.caption, sketch.alt, sketch.panels)
    return found
