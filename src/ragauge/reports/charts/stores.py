"""Charts of build time, memory, disk space and cold start, and of recall with a filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ragauge.reports.charts.looks import Cast
from ragauge.reports.charts.sketches import Panel, Rows, Sketch, altair, figure, panel, powers, sentence, shown
from ragauge.reports.sweeps_filters import list_filters, operating_points
from ragauge.reports.sweeps_words import MEGABYTE, chosen, everyone, named, ranked
from ragauge.reports.tables import format_share
from ragauge.sweeps import Point, Sweep

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
            said.append(f"{title}: least {least} {shown(known[least])}, most {most} {shown(known[most])}")
    if not panels:
        return None
    caption = sentence(
        "of each store the fastest setting with recall 0.95, or else the one with the most recall", "less is better"
    )
    return Sketch(panels, f"{'; '.join(said)}.", caption)


def _panel(title: str, values: Mapping[str, float], settings: Mapping[str, str], cast: Cast) -> Panel:
    alt = altair()
    rows: Rows = [
        {"system": name, "setting": settings[name], "value": figure(v), "label": shown(v)} for name, v in values.items()
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
    rows: Rows = [
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
            f"{name} at {format_share(least.selectivity)} recall {shown(least.recall)}, "
            f"{shown(least.returned)} of the rows"
        )
    caption = sentence(
        "each store at its operating point under the filter",
        f"returned is the share of rows that came back, of the smaller of {sweep.k} and the number of matches",
        "recall is against the exact neighbours among the vectors that match",
    )
    return Sketch(panels, f"With a filter: {'; '.join(said)}.", caption)


def _filtered(rows: Rows, field: str, cast: Cast, key: Sequence[str]) -> Panel:
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
