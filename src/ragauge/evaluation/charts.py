"""Chart of scores: means of runs by measure."""

from __future__ import annotations

import math

from ragauge.evaluation.results import EvaluatedRuns
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartPanel, ChartRows, format_bar_value, import_altair, make_panel
from ragauge.output.report import Chart

BAR_HEIGHT_PX = 22
MAX_RUNS_DRAWN = 30
MAX_MEASURES_DRAWN = 12


def build_score_chart(result: EvaluatedRuns) -> dict[str, Chart]:
    """Build bars of the means, one panel per measure; empty for a single run, or for too many runs."""
    if not 1 < len(result.runs) <= MAX_RUNS_DRAWN:
        return {}
    panels, descriptions = [], []
    for measure in result.measures[:MAX_MEASURES_DRAWN]:
        means = {name: scores[measure].mean for name, scores in result.runs.items() if measure in scores}
        means = {name: mean for name, mean in means.items() if math.isfinite(mean)}
        if not means:
            continue
        panels.append(_mean_panel(measure, means))
        values = ", ".join(f"{name} {format_bar_value(mean)}" for name, mean in means.items())
        descriptions.append(f"{measure}: {values}")
    if not panels:
        return {}
    caption = "Bars are means over the scored queries. ragauge compare shows which differences are significant."
    return {"means": Chart("Mean scores", caption, f"{'. '.join(descriptions)}.", panels)}


def _mean_panel(measure: str, means: dict[str, float]) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [{"run": name, "mean": mean, "label": format_bar_value(mean)} for name, mean in means.items()]
    y = alt.Y("run:N", title=None, sort=list(means), axis=alt.Axis(ticks=False))
    x = alt.X("mean:Q", title=measure, axis=alt.Axis(grid=False, tickCount=4))
    tooltip = [alt.Tooltip("run:N"), alt.Tooltip("mean:Q", format=".4f")]
    chart = alt.Chart(alt.Data(values=rows))
    bars = chart.mark_bar(color=PALETTE[0], opacity=0.75).encode(x=x, y=y, tooltip=tooltip)
    labels = chart.mark_text(style="words", align="left", dx=4).encode(x=x, y=y, text="label:N")
    return make_panel(measure, [bars, labels], BAR_HEIGHT_PX * len(rows), wide=False)
