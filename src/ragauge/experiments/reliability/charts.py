"""Charts of reliability: pass@k and pass^k by the number of trials."""

from __future__ import annotations

import math

from ragauge.experiments.reliability.results import ReliabilityBySystem
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import ChartPanel, ChartRows, import_altair, interval_tooltips, make_panel, round_digits
from ragauge.output.report import Chart

CHART_HEIGHT_PX = 220
MAX_LINEAR_K = 20
"""Largest number of trials that is drawn on a linear axis."""


def build_pass_charts(result: ReliabilityBySystem) -> dict[str, Chart]:
    """Build the chart of pass@k and pass^k; empty if there is only one k."""
    ks = sorted({k for estimate in result.values() for k in estimate.pass_at})
    if len(ks) < 2:
        return {}
    panels = [_pass_panel(result, "pass@k", ks), _pass_panel(result, "pass^k", ks)]
    k = ks[-1]
    values = "; ".join(
        f"{name}: pass@{k} {estimate.pass_at[k].value:.3f}, pass^{k} {estimate.pass_all[k].value:.3f}"
        for name, estimate in result.items()
        if k in estimate.pass_at
    )
    caption = (
        "Probability that at least one (pass@k) or all (pass^k) of k trials of a task succeed. Bars are "
        f"{result.confidence:.0%} confidence intervals."
    )
    return {"pass": Chart("Success over k trials", caption, f"At k = {k}, {values}.", panels)}


def _pass_panel(result: ReliabilityBySystem, title: str, ks: list[int]) -> ChartPanel:
    alt = import_altair()
    styles = SystemStyles(list(result))
    rows: ChartRows = [
        {
            "system": name,
            "k": k,
            "value": round_digits(value.value),
            "low": round_digits(value.low),
            "high": round_digits(value.high),
            "dash": styles.dashes[name],
        }
        for name, estimate in result.items()
        for k, value in (estimate.pass_at if title == "pass@k" else estimate.pass_all).items()
        if math.isfinite(value.value)
    ]
    linear = ks[-1] <= MAX_LINEAR_K
    scale = alt.Scale(domain=[ks[0], ks[-1]], nice=False, **({} if linear else {"type": "log"}), padding=12)
    x = alt.X("k:Q", title="k", scale=scale, axis=alt.Axis(values=ks, format="d", grid=False, labelOverlap="greedy"))
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5))
    legend = list(result) if len(result) > 1 else []
    colour, shape = styles.colour(alt, legend), styles.shape(alt, legend)
    tooltip = [alt.Tooltip("system:N"), alt.Tooltip("k:Q"), *interval_tooltips(alt, title)]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_rule(strokeWidth=1.5, opacity=0.5).encode(
            x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour
        ),
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=styles.dash(alt)),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
    ]
    return make_panel(title, layers, CHART_HEIGHT_PX, wide=False)
