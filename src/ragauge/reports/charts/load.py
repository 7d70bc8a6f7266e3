"""Charts of load tests, build costs and filters, and the list of all charts of a benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.reports.charts.looks import PALETTE, Cast
from ragauge.reports.charts.sketches import Panel, Rows, Sketch, altair, figure, panel, powers, sentence, shown, ticked
from ragauge.reports.sweeps_words import everyone, named, of_series
from ragauge.sweeps import Load, Point, Sweep

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
            f"{named(sweep, point)} at {worst.rate or 0:,.0f} a second {shown(worst.latency.p99)} ms from when it was "
            f"due, {shown(worst.service.p99)} ms from when it was sent"
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
    rows: Rows = [
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
    said = ", ".join(f"{row['setting']} {shown(row['qps'])} with {row['clients']}" for row in rows)
    caption = sentence("each client asks as soon as it has its answer, and the wall clock counts for all of them")
    return Sketch([panel("", layers, 260)], f"Queries per second by clients: {said}.", caption)


def _points(sweep: Sweep) -> list[Point]:
    return [point for name in everyone(sweep) for point in of_series(sweep, name)]


def _at_rates(point: Point) -> list[Load]:
    known = [one for one in point.loads if one.rate and one.latency.p99 > 0 and one.service.p99 > 0]
    return sorted(known, key=lambda one: one.rate or 0.0)


def _rates(title: str, loads: Sequence[Load], ends: tuple[float, float], *, keyed: bool) -> Panel:
    alt = altair()
    rows: Rows = [
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
