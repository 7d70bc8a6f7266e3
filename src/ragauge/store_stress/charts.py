"""Chart of a stress test: time per document while the store fills."""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import (
    ChartRows,
    format_bar_value,
    import_altair,
    join_sentence,
    log_range,
    log_ticks,
    make_panel,
    round_digits,
)
from ragauge.output.numbers import join_with_and
from ragauge.output.report import Chart
from ragauge.store_stress.results import FillRate, StressTest

CHART_HEIGHT_PX = 220
MIN_CHART_POINTS = 3
"""Minimum number of points for a line chart."""


def build_fill_rate_chart(result: StressTest) -> dict[str, Chart]:
    """Build the chart of the time per document; empty if every mode has too few points."""
    rates_by_mode = {mode.name: _positive_rates(mode.fill_rates) for mode in result.modes}
    rates_by_mode = {name: rates for name, rates in rates_by_mode.items() if len(rates) >= MIN_CHART_POINTS}
    if not rates_by_mode:
        return {}
    alt = import_altair()
    names = list(rates_by_mode)
    styles = SystemStyles(names)
    rows: ChartRows = [
        {
            "system": name,
            "dash": styles.dashes[name],
            "documents": rate.documents,
            "ms": round_digits(rate.milliseconds, 4),
        }
        for name, rates in rates_by_mode.items()
        for rate in rates
    ]
    times = [row["ms"] for row in rows]
    low, high = log_range(min(times) / 1.3, max(times) * 1.3)
    x = alt.X("documents:Q", title="documents in the store", axis=alt.Axis(format=",d", tickCount=5))
    y = alt.Y(
        "ms:Q",
        title="ms per document (log scale)",
        scale=alt.Scale(type="log", domain=[round_digits(low), round_digits(high)]),
        axis=alt.Axis(values=log_ticks(low, high), format="~g"),
    )
    tooltips = [
        alt.Tooltip("system:N", title="ingestion"),
        alt.Tooltip("documents:Q", title="documents", format=","),
        alt.Tooltip("ms:Q", title="ms per document", format=".4~g"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    colour = styles.colour(alt, names)
    layers = [
        chart.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=colour, strokeDash=styles.dash(alt)),
        chart.mark_point(filled=True, size=25, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltips),
    ]
    values = [
        f"{name} {format_bar_value(rates[0].milliseconds)} for the first documents, "
        f"{format_bar_value(rates[-1].milliseconds)} for the last"
        for name, rates in rates_by_mode.items()
    ]
    caption = join_sentence(
        "each point is the median time of a group of puts, divided by the documents per put",
        "a rising line is a store that becomes slower as it fills",
    )
    panel = make_panel("put", layers, CHART_HEIGHT_PX)
    alt_text = f"Milliseconds per document: {join_with_and(values)}."
    return {"fill_rate": Chart("Ingestion time while the store fills", caption, alt_text, [panel])}


def _positive_rates(rates: Sequence[FillRate]) -> list[FillRate]:
    """Return the rates that a logarithmic axis can show."""
    return [rate for rate in rates if rate.milliseconds > 0]
