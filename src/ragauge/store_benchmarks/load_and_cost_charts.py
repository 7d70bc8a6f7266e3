"""Charts of build time, memory, disk space and cold start, and of recall with a filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ragauge.output.chart_style import PALETTE, Cast
from ragauge.output.charts import (
    ChartRows,
    Panel,
    Sketch,
    altair,
    figure,
    format_bar_label,
    panel,
    powers,
    sentence,
    ticked,
)
from ragauge.output.report import Drawing
from ragauge.output.terminal import format_share
from ragauge.store_benchmarks import recall_charts
from ragauge.store_benchmarks.filter_results import list_filters, operating_points
from ragauge.store_benchmarks.report_text import MEGABYTE, chosen, everyone, named, of_series, ranked
from ragauge.store_benchmarks.results import Load, Point, Sweep

FROM = {"from when it was due": PALETTE[1], "from when it was sent": PALETTE[0]}
"""Colours by the start of the latency: scheduled time or actual send time."""
MOST = 12


def rates(sweep: Sweep) -> Sketch | None:
    """Draw p99 latency by target rate, one panel per configuration.

    Latency counts from the scheduled time and from the send time. None if there is nothing to draw.
    """
    every = [(point, loads) for point in _points(sweep) if len(loads := _at_rates(point)) > 0]
    if not every:
        return None
    drawn = every[:MOST]
    values = [v for _, loads in drawn for one in loads for v in (one.latency.p99, one.service.p99) if v > 0]
    ends = ticked(min(values) / 1.3, max(values) * 1.3)
    panels = [_rates(named(sweep, point), loads, ends, keyed=not i) for i, (point, loads) in enumerate(drawn)]
    said = []
    for point, loads in drawn:
        worst = max(loads, key=lambda one: one.latency.p99 / max(one.service.p99, 1e-9))
        said.append(
            f"{named(sweep, point)} at {worst.rate or 0:,.0f} a second {format_bar_label(worst.latency.p99)} ms from when it was "
            f"due, {format_bar_label(worst.service.p99)} ms from when it was sent"
        )
    caption = sentence(
        "p99 by the rate that queries were sent at, answered or not",
        "counted from when a query was due, a stall counts for all who had to wait; counted from when it was sent, "
        "it counts once, which is all that a closed loop sees",
        "crosses did not keep up" if any(not one.kept_up for _, loads in drawn for one in loads) else "",
        f"{len(every) - MOST} more are not drawn" if len(every) > MOST else "",
    )
    return Sketch(panels, f"99th percentile at fixed rates: {'; '.join(said)}.", caption)


def clients(sweep: Sweep) -> Sketch | None:
    """Draw closed-loop throughput by number of clients, one line per store.

    None if there are fewer than two numbers of clients.
    """
    alt = altair()
    names = everyone(sweep)
    cast = Cast(names)
    rows: ChartRows = [
        {
            "system": point.configuration.series,
            "dash": cast.dashes[point.configuration.series],
            "setting": named(sweep, point),
            "clients": one.clients,
            "qps": figure(one.qps),
            "p50": figure(one.latency.p50),
            "p99": figure(one.latency.p99),
        }
        for point in _points(sweep)
        for one in point.loads
        if one.rate is None and one.qps > 0
    ]
    numbers = sorted({row["clients"] for row in rows})
    if len(numbers) < 2:
        return None
    every = [row["qps"] for row in rows]
    ends = ticked(min(every) / 1.3, max(every) * 1.3)
    scale = alt.Scale(type="log", domain=[figure(one) for one in ends])
    axis = alt.Axis(values=powers(*ends), format="~s")
    x = alt.X(
        "clients:Q",
        title="clients at once",
        scale=alt.Scale(domain=[numbers[0] - 0.3, numbers[-1] + 0.3], nice=False, zero=False),
        axis=alt.Axis(values=numbers, format="d"),
    )
    y = alt.Y("qps:Q", title="queries per second, all clients (log scale)", scale=scale, axis=axis)
    key = [one for one in names if any(row["system"] == one for row in rows)]
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
    tips = [
        alt.Tooltip("setting:N", title="store"),
        alt.Tooltip("clients:Q", title="clients"),
        alt.Tooltip("qps:Q", title="throughput", format=",.4~g"),
        alt.Tooltip("p50:Q", title="p50 ms", format=".4~g"),
        alt.Tooltip("p99:Q", title="p99 ms", format=".4~g"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=cast.dash(alt), detail="setting:N"),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    said = ", ".join(f"{row['setting']} {format_bar_label(row['qps'])} with {row['clients']}" for row in rows)
    caption = sentence("each client asks as soon as it has its answer, and the wall clock counts for all of them")
    return Sketch([panel("", layers, 260)], f"Queries per second by clients: {said}.", caption)


def _points(sweep: Sweep) -> list[Point]:
    return [point for name in everyone(sweep) for point in of_series(sweep, name)]


def _at_rates(point: Point) -> list[Load]:
    known = [one for one in point.loads if one.rate and one.latency.p99 > 0 and one.service.p99 > 0]
    return sorted(known, key=lambda one: one.rate or 0.0)


def _rates(title: str, loads: Sequence[Load], ends: tuple[float, float], *, keyed: bool) -> Panel:
    alt = altair()
    rows: ChartRows = [
        {
            "from": start,
            "rate": figure(one.rate or math.nan),
            "ms": figure(found.p99),
            "p50": figure(found.p50),
            "max": figure(found.max),
            "qps": figure(one.qps),
            "kept": one.kept_up,
        }
        for one in loads
        for start, found in zip(FROM, (one.latency, one.service), strict=True)
    ]
    asked = [one.rate or 1.0 for one in loads]
    wide = ticked(min(asked) / 1.5, max(asked) * 1.5)
    x = alt.X(
        "rate:Q",
        title="queries per second asked for",
        scale=alt.Scale(type="log", domain=[figure(one) for one in wide]),
        axis=alt.Axis(values=powers(*wide), format="~s"),
    )
    y = alt.Y(
        "ms:Q",
        title="p99, ms (log scale)",
        scale=alt.Scale(type="log", domain=[figure(one) for one in ends]),
        axis=alt.Axis(values=powers(*ends), format="~g"),
    )
    legend = alt.Legend(title=None, orient="bottom", columns=1) if keyed else None
    colour = alt.Color(
        "from:N", scale=alt.Scale(domain=list(FROM), range=list(FROM.values())), sort=None, legend=legend
    )
    shape = alt.Shape("kept:N", scale=alt.Scale(domain=[True, False], range=["circle", "cross"]), legend=None)
    tips = [
        alt.Tooltip("from:N", title="counted"),
        alt.Tooltip("rate:Q", title="asked a second", format=",.4~g"),
        alt.Tooltip("qps:Q", title="answered a second", format=",.4~g"),
        alt.Tooltip("p50:Q", title="p50 ms", format=".4~g"),
        alt.Tooltip("ms:Q", title="p99 ms", format=".4~g"),
        alt.Tooltip("max:Q", title="max ms", format=".4~g"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour),
        chart.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return panel(title, layers, 200, wide=False)


FAR = 30
"""Ratio of the largest to the smallest value above which points on a logarithmic axis replace bars."""
SHARE = 0.66
"""Share of the width used up to the largest value; the rest is for its label."""
FIGURES: Mapping[str, Callable[[Point], float | None]] = {
    "build, s": lambda one: one.build.seconds,
    "memory, MB": lambda one: None if one.build.memory_bytes is None else one.build.memory_bytes / MEGABYTE,
    "disk, MB": lambda one: None if one.build.disk_bytes is None else one.build.disk_bytes / MEGABYTE,
    "cold start, ms": lambda one: one.build.cold_open_ms + one.build.cold_first_ms,
}


def costs(sweep: Sweep) -> Sketch | None:
    """Draw one panel per cost, with one row per store.

    Each store is shown at its representative configuration. None if there is nothing to draw.
    """
    points = {name: one for name in ranked(sweep) if (one := chosen(sweep, name)) is not None}
    cast = Cast(everyone(sweep))
    panels, said = [], []
    for title, value in FIGURES.items():
        found = {name: value(one) for name, one in points.items()}
        known = {name: v for name, v in found.items() if v is not None and math.isfinite(v) and v > 0}
        if known:
            panels.append(_panel(title, known, {name: named(sweep, points[name]) for name in known}, cast))
            least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
            said.append(
                f"{title}: least {least} {format_bar_label(known[least])}, most {most} {format_bar_label(known[most])}"
            )
    if not panels:
        return None
    caption = sentence(
        "of each store the fastest setting with recall 0.95, or else the one with the most recall", "less is better"
    )
    return Sketch(panels, f"{'; '.join(said)}.", caption)


def _panel(title: str, values: Mapping[str, float], settings: Mapping[str, str], cast: Cast) -> Panel:
    alt = altair()
    rows: ChartRows = [
        {"system": name, "setting": settings[name], "value": figure(v), "label": format_bar_label(v)}
        for name, v in values.items()
    ]
    low, high = min(values.values()), max(values.values())
    far = high / low > FAR
    chart = alt.Chart(alt.Data(values=rows))
    y = cast.rows(alt, list(values))
    tips = [alt.Tooltip("setting:N", title="store"), alt.Tooltip("value:Q", title=title, format=".4~g")]
    if far:
        ends = (low / (high / low) ** 0.06, high * (high / low) ** (1.06 / SHARE - 1.06))
        ticks = [one for one in powers(*ends) if one <= 1.3 * high]
        axis = alt.Axis(values=ticks, format="~g", labelOverlap="greedy", labelSeparation=4)
        x = alt.X("value:Q", title=None, scale=alt.Scale(type="log", domain=[figure(one) for one in ends]), axis=axis)
        marks = chart.mark_point(filled=True, size=80, opacity=1).encode(
            x=x, y=y, color=cast.colour(alt), shape=cast.shape(alt), tooltip=tips
        )
    else:
        # Without this, Vega-Lite would write the names into an expression to stack bars.
        scale = alt.Scale(domain=[0, figure(high / SHARE)], nice=False)
        x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4), stack=None)
        marks = chart.mark_bar(height={"band": 0.66}).encode(x=x, y=y, color=cast.colour(alt), tooltip=tips)
    words = chart.mark_text(style="words", align="left", dx=8 if far else 5)
    layers = [marks, words.encode(x=x, y=y, text="label:N")]
    return panel(f"{title} (log scale)" if far else title, layers, 20 * len(rows) + 4, wide=False)


def filters(sweep: Sweep) -> Sketch | None:
    """Draw recall and share of rows returned by the selectivity of a filter.

    None if there is nothing to draw.
    """
    found = [(key, one) for key in list_filters(sweep) if key[1] > 0 for one in operating_points(sweep, key)]
    if not found:
        return None
    series = {point.configuration.series for _, point in found}
    names = [name for name in everyone(sweep) if name in series]
    cast = Cast(everyone(sweep))
    rows: ChartRows = [
        {
            "system": point.configuration.series,
            "dash": cast.dashes[point.configuration.series],
            "setting": named(sweep, point),
            "filter": name or "random",
            "share": figure(100 * selectivity),
            "recall": figure(point.filters[0].recall),
            "returned": figure(point.filters[0].returned),
            "matching": point.filters[0].matching,
            "p50": figure(point.latency.p50),
        }
        for (name, selectivity), point in found
    ]
    panels = [_filtered(rows, "recall", cast, names), _filtered(rows, "returned", cast, [])]
    said = []
    for name in names:
        mine = [point for _, point in found if point.configuration.series == name]
        least = min((point.filters[0] for point in mine), key=lambda one: one.selectivity)
        said.append(
            f"{name} at {format_share(least.selectivity)} recall {format_bar_label(least.recall)}, "
            f"{format_bar_label(least.returned)} of the rows"
        )
    caption = sentence(
        "each store at its operating point under the filter",
        f"returned is the share of rows that came back, of the smaller of {sweep.k} and the number of matches",
        "recall is against the exact neighbours among the vectors that match",
    )
    return Sketch(panels, f"With a filter: {'; '.join(said)}.", caption)


def _filtered(rows: ChartRows, field: str, cast: Cast, key: Sequence[str]) -> Panel:
    alt = altair()
    shares = [row["share"] for row in rows]
    ends = (min(shares) / 1.4, max(shares) * 1.4)
    x = alt.X(
        "share:Q",
        title="selectivity of the filter, %",
        scale=alt.Scale(type="log", domain=[figure(one) for one in ends], reverse=True),
        axis=alt.Axis(values=sorted(set(shares)), format=".3~g", labelOverlap="greedy"),
    )
    y = alt.Y(f"{field}:Q", title=field, scale=alt.Scale(domain=[0, 1.02], nice=False), axis=alt.Axis(tickCount=6))
    colour, shape = cast.colour(alt, key), cast.shape(alt, key)
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
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=cast.dash(alt), detail="system:N"),
        chart.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return panel("", layers, 240, wide=False)


CHARTS: dict[str, tuple[str, Callable[[Sweep], Sketch | None]]] = {
    "frontier": ("Recall against speed", recall_charts.speed),
    "recall_latency": ("Recall against latency", recall_charts.latency),
    "costs": ("What it takes", costs),
    "relevance": ("Does it matter for answers?", recall_charts.relevance),
    "rates": ("At a fixed rate", rates),
    "clients": ("Several clients", clients),
    "filter_latency": ("Latency against recall with a filter", recall_charts.filter_latency),
    "filters": ("Recall by selectivity", filters),
}


def drawn(sweep: Sweep) -> dict[str, Drawing]:
    """Draw every chart that the benchmark has data for."""
    found = {}
    for name, (title, draw) in CHARTS.items():
        sketch = draw(sweep)
        if sketch is not None:
            found[name] = Drawing(title, sketch.caption, sketch.alt, sketch.panels)
    return found
