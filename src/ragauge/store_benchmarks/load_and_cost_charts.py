"""Charts of load, build time, memory, disk space, cold start and filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ragauge.output.chart_style import PALETTE, SystemStyles
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    format_bar_value,
    import_altair,
    join_sentence,
    log_range,
    log_ticks,
    make_panel,
    round_digits,
)
from ragauge.output.numbers import format_number
from ragauge.output.report import Chart
from ragauge.store_benchmarks import recall_charts
from ragauge.store_benchmarks.filter_results import list_filters, operating_points
from ragauge.store_benchmarks.report_text import (
    format_configuration,
    points_in_series,
    rank_all_series,
    rank_stores,
    representative_point,
)
from ragauge.store_benchmarks.results import LoadResult, MeasuredConfiguration, StoreBenchmark

BYTES_PER_MEGABYTE = 1e6
LATENCY_START_COLOURS = {"from scheduled time": PALETTE[1], "from send time": PALETTE[0]}
"""Colours by the start of the latency: scheduled time or actual send time."""
MAX_LOAD_PANELS = 12


def draw_rates(result: StoreBenchmark) -> ChartDraft | None:
    """Draw p99 latency by target rate, one panel per configuration.

    Latency counts from the scheduled time and from the send time. None if there is nothing to draw.
    """
    candidates = [(point, loads) for point in _ranked_points(result) if len(loads := _open_loop_results(point)) > 0]
    if not candidates:
        return None
    plotted = candidates[:MAX_LOAD_PANELS]
    values = [v for _, loads in plotted for load in loads for v in (load.latency.p99, load.service.p99) if v > 0]
    ends = log_range(min(values) / 1.3, max(values) * 1.3)
    panels = [
        _rate_panel(format_configuration(result, point), loads, ends, keyed=not i)
        for i, (point, loads) in enumerate(plotted)
    ]
    descriptions = []
    for point, loads in plotted:
        worst = max(loads, key=lambda load: load.latency.p99 / max(load.service.p99, 1e-9))
        descriptions.append(
            f"{format_configuration(result, point)} at {worst.rate or 0:,.0f} queries per second "
            f"{format_bar_value(worst.latency.p99)} ms from the scheduled time, "
            f"{format_bar_value(worst.service.p99)} ms from the time of sending"
        )
    caption = join_sentence(
        "p99 latency by target rate",
        "from the scheduled time, a stall counts for every query that has to wait; from the time of sending, it counts "
        "once, as in a closed loop",
        "crosses: the rate was not sustained"
        if any(not load.kept_up for _, loads in plotted for load in loads)
        else "",
        f"{len(candidates) - MAX_LOAD_PANELS} more are not drawn" if len(candidates) > MAX_LOAD_PANELS else "",
    )
    return ChartDraft(panels, f"99th percentile at target rates: {'; '.join(descriptions)}.", caption)


def draw_clients(result: StoreBenchmark) -> ChartDraft | None:
    """Draw closed-loop throughput by number of clients, one line per store.

    None if there are fewer than two numbers of clients.
    """
    alt = import_altair()
    names = rank_all_series(result)
    styles = SystemStyles(names)
    rows: ChartRows = [
        {
            "system": point.series,
            "dash": styles.dashes[point.series],
            "setting": format_configuration(result, point),
            "clients": load.clients,
            "qps": round_digits(load.qps),
            "p50": round_digits(load.latency.p50),
            "p99": round_digits(load.latency.p99),
        }
        for point in _ranked_points(result)
        for load in point.loads
        if load.rate is None and load.qps > 0
    ]
    numbers = sorted({row["clients"] for row in rows})
    if len(numbers) < 2:
        return None
    speeds = [row["qps"] for row in rows]
    ends = log_range(min(speeds) / 1.3, max(speeds) * 1.3)
    scale = alt.Scale(type="log", domain=[round_digits(end) for end in ends])
    axis = alt.Axis(values=log_ticks(*ends), format="~s")
    x = alt.X(
        "clients:Q",
        title="concurrent clients",
        scale=alt.Scale(domain=[numbers[0] - 0.3, numbers[-1] + 0.3], nice=False, zero=False),
        axis=alt.Axis(values=numbers, format="d"),
    )
    y = alt.Y("qps:Q", title="queries per second, all clients (log scale)", scale=scale, axis=axis)
    key = [name for name in names if any(row["system"] == name for row in rows)]
    colour, shape = styles.colour(alt, key), styles.shape(alt, key)
    tips = [
        alt.Tooltip("setting:N", title="store"),
        alt.Tooltip("clients:Q", title="clients"),
        alt.Tooltip("qps:Q", title="throughput", format=",.4~g"),
        alt.Tooltip("p50:Q", title="p50 ms", format=".4~g"),
        alt.Tooltip("p99:Q", title="p99 ms", format=".4~g"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=styles.dash(alt), detail="setting:N"),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    description = ", ".join(f"{row['setting']} {format_bar_value(row['qps'])} with {row['clients']}" for row in rows)
    caption = join_sentence("closed loop: each client sends its next query after each result")
    return ChartDraft([make_panel("", layers, 260)], f"Queries per second by clients: {description}.", caption)


def _ranked_points(result: StoreBenchmark) -> list[MeasuredConfiguration]:
    return [point for name in rank_all_series(result) for point in points_in_series(result, name)]


def _open_loop_results(point: MeasuredConfiguration) -> list[LoadResult]:
    loads = [load for load in point.loads if load.rate and load.latency.p99 > 0 and load.service.p99 > 0]
    return sorted(loads, key=lambda load: load.rate or 0.0)


def _rate_panel(title: str, loads: Sequence[LoadResult], ends: tuple[float, float], *, keyed: bool) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {
            "from": start,
            "rate": round_digits(load.rate or math.nan),
            "ms": round_digits(latency.p99),
            "p50": round_digits(latency.p50),
            "max": round_digits(latency.max),
            "qps": round_digits(load.qps),
            "kept": load.kept_up,
        }
        for load in loads
        for start, latency in zip(LATENCY_START_COLOURS, (load.latency, load.service), strict=True)
    ]
    rates = [load.rate or 1.0 for load in loads]
    rate_range = log_range(min(rates) / 1.5, max(rates) * 1.5)
    x = alt.X(
        "rate:Q",
        title="target rate, queries per second",
        scale=alt.Scale(type="log", domain=[round_digits(value) for value in rate_range]),
        axis=alt.Axis(values=log_ticks(*rate_range), format="~s"),
    )
    y = alt.Y(
        "ms:Q",
        title="p99, ms (log scale)",
        scale=alt.Scale(type="log", domain=[round_digits(end) for end in ends]),
        axis=alt.Axis(values=log_ticks(*ends), format="~g"),
    )
    legend = alt.Legend(title=None, orient="bottom", columns=1) if keyed else None
    colour = alt.Color(
        "from:N",
        scale=alt.Scale(domain=list(LATENCY_START_COLOURS), range=list(LATENCY_START_COLOURS.values())),
        sort=None,
        legend=legend,
    )
    shape = alt.Shape("kept:N", scale=alt.Scale(domain=[True, False], range=["circle", "cross"]), legend=None)
    tips = [
        alt.Tooltip("from:N", title="latency"),
        alt.Tooltip("rate:Q", title="target QPS", format=",.4~g"),
        alt.Tooltip("qps:Q", title="QPS", format=",.4~g"),
        alt.Tooltip("p50:Q", title="p50 ms", format=".4~g"),
        alt.Tooltip("ms:Q", title="p99 ms", format=".4~g"),
        alt.Tooltip("max:Q", title="max ms", format=".4~g"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        chart.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return make_panel(title, layers, 200, wide=False)


MIN_LOG_SCALE_RATIO = 30
"""Ratio of the largest to the smallest value above which points on a logarithmic axis replace bars."""
BAR_WIDTH_SHARE = 0.66
"""Share of the width used up to the largest value; the rest is for its label."""
COST_VALUES: Mapping[str, Callable[[MeasuredConfiguration], float | None]] = {
    "build, s": lambda point: point.build.build_seconds,
    "memory, MB": lambda point: (
        None if point.build.memory_bytes is None else point.build.memory_bytes / BYTES_PER_MEGABYTE
    ),
    "disk, MB": lambda point: None if point.build.disk_bytes is None else point.build.disk_bytes / BYTES_PER_MEGABYTE,
    "cold start, ms": lambda point: point.build.cold_open_ms + point.build.cold_first_ms,
}


def draw_costs(result: StoreBenchmark) -> ChartDraft | None:
    """Draw one panel per cost, with one row per store.

    Each store is shown at its representative configuration. None if there is nothing to draw.
    """
    points = {name: point for name in rank_stores(result) if (point := representative_point(result, name)) is not None}
    styles = SystemStyles(rank_all_series(result))
    panels, descriptions = [], []
    for title, value in COST_VALUES.items():
        all_costs = {name: value(configuration) for name, configuration in points.items()}
        costs = {name: v for name, v in all_costs.items() if v is not None and math.isfinite(v) and v > 0}
        if costs:
            panels.append(
                _cost_panel(title, costs, {name: format_configuration(result, points[name]) for name in costs}, styles)
            )
            low, high = min(costs, key=costs.__getitem__), max(costs, key=costs.__getitem__)
            descriptions.append(
                f"{title}: least {low} {format_bar_value(costs[low])}, most {high} {format_bar_value(costs[high])}"
            )
    if not panels:
        return None
    caption = join_sentence(
        "the fastest configuration of each store with recall 0.95, else the one with the highest recall",
        "lower is better",
    )
    return ChartDraft(panels, f"{'; '.join(descriptions)}.", caption)


def _cost_panel(
    title: str, values: Mapping[str, float], settings: Mapping[str, str], styles: SystemStyles
) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {"system": name, "setting": settings[name], "value": round_digits(v), "label": format_bar_value(v)}
        for name, v in values.items()
    ]
    low, high = min(values.values()), max(values.values())
    is_log = high / low > MIN_LOG_SCALE_RATIO
    chart = alt.Chart(alt.Data(values=rows))
    y = styles.rows(alt, list(values))
    tips = [alt.Tooltip("setting:N", title="store"), alt.Tooltip("value:Q", title=title, format=".4~g")]
    if is_log:
        ends = (low / (high / low) ** 0.06, high * (high / low) ** (1.06 / BAR_WIDTH_SHARE - 1.06))
        ticks = [tick for tick in log_ticks(*ends) if tick <= 1.3 * high]
        axis = alt.Axis(values=ticks, format="~g", labelOverlap="greedy", labelSeparation=4)
        x = alt.X(
            "value:Q", title=None, scale=alt.Scale(type="log", domain=[round_digits(end) for end in ends]), axis=axis
        )
        marks = chart.mark_point(filled=True, size=80, opacity=1).encode(
            x=x, y=y, color=styles.colour(alt), shape=styles.shape(alt), tooltip=tips
        )
    else:
        # Without this, Vega-Lite would write the names into an expression to stack bars.
        scale = alt.Scale(domain=[0, round_digits(high / BAR_WIDTH_SHARE)], nice=False)
        x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4), stack=None)
        marks = chart.mark_bar(height={"band": 0.66}).encode(x=x, y=y, color=styles.colour(alt), tooltip=tips)
    labels = chart.mark_text(style="words", align="left", dx=8 if is_log else 5)
    layers = [marks, labels.encode(x=x, y=y, text="label:N")]
    return make_panel(f"{title} (log scale)" if is_log else title, layers, 20 * len(rows) + 4, wide=False)


def draw_filters(result: StoreBenchmark) -> ChartDraft | None:
    """Draw recall and share of rows returned by the selectivity of a filter.

    None if there is nothing to draw.
    """
    filters = [(key, point) for key in list_filters(result) if key[1] > 0 for point in operating_points(result, key)]
    if not filters:
        return None
    series = {point.series for _, point in filters}
    names = [name for name in rank_all_series(result) if name in series]
    styles = SystemStyles(rank_all_series(result))
    rows: ChartRows = [
        {
            "system": point.series,
            "dash": styles.dashes[point.series],
            "setting": format_configuration(result, point),
            "filter": name or "random",
            "share": round_digits(100 * selectivity),
            "recall": round_digits(point.filters[0].recall),
            "returned": round_digits(point.filters[0].returned),
            "matching": point.filters[0].matching,
            "p50": round_digits(point.latency.p50),
        }
        for (name, selectivity), point in filters
    ]
    panels = [_filter_panel(rows, "recall", styles, names), _filter_panel(rows, "returned", styles, [])]
    descriptions = []
    for name in names:
        store_points = [point for _, point in filters if point.series == name]
        search = min(
            (point.filters[0] for point in store_points), key=lambda filtered_search: filtered_search.selectivity
        )
        descriptions.append(
            f"{name} at {format_number(search.selectivity, 'selectivity')} recall {format_bar_value(search.recall)}, "
            f"{format_number(search.returned, 'share')} of the rows"
        )
    caption = join_sentence(
        "each store at its operating point under the filter",
        f"returned: share of min({result.k}, number of matches) rows",
        "recall is compared with the exact neighbours among the vectors that match",
    )
    return ChartDraft(panels, f"With a filter: {'; '.join(descriptions)}.", caption)


def _filter_panel(rows: ChartRows, field: str, styles: SystemStyles, key: Sequence[str]) -> ChartPanel:
    alt = import_altair()
    shares = [row["share"] for row in rows]
    ends = (min(shares) / 1.4, max(shares) * 1.4)
    x = alt.X(
        "share:Q",
        title="selectivity of the filter, %",
        scale=alt.Scale(type="log", domain=[round_digits(end) for end in ends], reverse=True),
        axis=alt.Axis(values=sorted(set(shares)), format=".3~g", labelOverlap="greedy"),
    )
    y = alt.Y(f"{field}:Q", title=field, scale=alt.Scale(domain=[0, 1.02], nice=False), axis=alt.Axis(tickCount=6))
    colour, shape = styles.colour(alt, key), styles.shape(alt, key)
    tips = [
        alt.Tooltip("setting:N", title="store"),
        alt.Tooltip("filter:N", title="filter"),
        alt.Tooltip("share:Q", title="selectivity, %", format=".3~g"),
        alt.Tooltip("matching:Q", title="vectors", format=","),
        alt.Tooltip("recall:Q", title="recall", format=".4f"),
        alt.Tooltip("returned:Q", title="returned", format=".4f"),
        alt.Tooltip("p50:Q", title="p50 ms", format=".4~g"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=styles.dash(alt), detail="system:N"),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return make_panel("", layers, 240, wide=False)


BENCHMARK_CHARTS: dict[str, tuple[str, Callable[[StoreBenchmark], ChartDraft | None]]] = {
    "frontier": ("Recall and throughput", recall_charts.draw_speed),
    "recall_latency": ("Recall and latency", recall_charts.draw_latency),
    "costs": ("Build time, memory and disk", draw_costs),
    "relevance": ("Recall and relevance", recall_charts.draw_relevance),
    "rates": ("Latency by target rate", draw_rates),
    "clients": ("Throughput by number of clients", draw_clients),
    "filter_latency": ("Recall and latency with a filter", recall_charts.draw_filter_latency),
    "filters": ("Recall by selectivity", draw_filters),
}


def draw_benchmark_charts(result: StoreBenchmark, names: Sequence[str] = tuple(BENCHMARK_CHARTS)) -> dict[str, Chart]:
    """Draw the named charts that the benchmark has data for."""
    charts = {}
    for name in names:
        title, draw = BENCHMARK_CHARTS[name]
        draft = draw(result)
        if draft is not None:
            charts[name] = Chart(title, draft.caption, draft.alt, draft.panels)
    return charts
