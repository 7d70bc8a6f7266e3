"""Draw quality against latency, and one panel of bars per measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ragauge.comparison.results import Overview
from ragauge.core.summaries import Mean
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    LabelledMark,
    PlotBox,
    format_bar_value,
    import_altair,
    interval_tooltips,
    join_sentence,
    label_layer,
    log_range,
    log_ticks,
    make_panel,
    padded_range,
    place_labels,
    round_digits,
    round_outwards,
)
from ragauge.output.numbers import join_with_and

MAX_PANELS = 12
"""Maximum number of panels."""
MAX_LABELLED_SYSTEMS = 8
"""Maximum number of systems that are labelled in the plot. Above it, a legend is used."""
MAX_SHORT_NAME_CHARS = 14
"""Maximum length of a system name that needs no extra space next to the bars."""
PLOT_WIDTH_PX, PLOT_HEIGHT_PX = 260, 300
"""Plot size on a phone, where labels have the least space."""


class QualityLatencyPoint(NamedTuple):
    """Mean quality and p95 latency in ms of a system."""

    system: str
    mean: Mean
    p95: float


def draw_quality_latency(overview: Overview) -> ChartDraft | None:
    """Draw the first measure against the p95 total latency."""
    points = [
        QualityLatencyPoint(name, entry.means[overview.first], entry.speed.stages["total"].p95)
        for name, entry in overview.entries.items()
        if overview.first in entry.means and entry.speed is not None and "total" in entry.speed.stages
    ]
    points = [
        system_point
        for system_point in points
        if math.isfinite(system_point.mean.value) and 0 < system_point.p95 < math.inf
    ]
    if not points:
        return None
    alt = import_altair()
    lower = overview.first in overview.lower_is_better
    styles = SystemStyles(overview.systems, overview.baseline)
    frontier = find_pareto_frontier(points, lower=lower)
    xs = [system_point.p95 for system_point in points]
    ends = log_range(min(xs) / 1.6, max(xs) * 1.6)
    ys = padded_range(
        [
            end
            for system_point in points
            for end in (system_point.mean.value, system_point.mean.low, system_point.mean.high)
        ]
    )
    axis = alt.Axis(values=log_ticks(*ends), format="~g")
    log_scale = alt.Scale(type="log", domain=[round_digits(end) for end in ends])
    x = alt.X("ms:Q", title="p95 of total latency, ms (log scale)", scale=log_scale, axis=axis)
    title = overview.first + " (lower is better, axis upside down)" * lower
    scale = alt.Scale(domain=[round_digits(end) for end in ys], zero=False, nice=False, reverse=lower)
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6))
    tips = [
        alt.Tooltip("system:N", title="system"),
        *interval_tooltips(alt),
        alt.Tooltip("ms:Q", title="p95 ms", format=".4~g"),
        alt.Tooltip("n:Q", title="queries"),
    ]
    rows = _point_rows(points)
    corners = [{"ms": round_digits(point.p95), "value": round_digits(point.mean.value)} for point in frontier]
    layers = []
    if len(frontier) > 1:
        line = alt.Chart(alt.Data(values=corners)).mark_line(style="guide", interpolate="step-after", strokeWidth=1)
        layers.append(line.encode(x=x, y=y))
    dots = alt.Chart(alt.Data(values=rows))
    key = [system_point.system for system_point in points] if len(points) > MAX_LABELLED_SYSTEMS else []
    colour = styles.colour(alt, key)
    layers.append(dots.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour))
    layers.append(
        dots.mark_point(filled=True, size=90, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            shape=styles.shape(alt, key),
            tooltip=tips,
        )
    )
    if len(points) <= MAX_LABELLED_SYSTEMS:
        marks, lines = _to_pixels(points, frontier, styles, (ends, ys), lower=lower)
        label_rows = [
            {
                "label": mark.name,
                "ms": round_digits(point.p95),
                "value": round_digits(point.mean.value),
                **position._asdict(),
            }
            for point, mark, position in zip(
                points, marks, place_labels(marks, lines, PLOT_WIDTH_PX, PLOT_HEIGHT_PX), strict=True
            )
        ]
        layers += [text.encode(x=x, y="value:Q", text="label:N") for text in label_layer(alt, label_rows)]
    points_text = join_with_and(
        [f"{point.system} {format_bar_value(point.mean.value)} at {format_bar_value(point.p95)} ms" for point in points]
    )
    best = join_with_and([point.system for point in frontier])
    caption = join_sentence(
        "further up is better and further left is faster",
        "the stepped line joins the systems that no other beats in both" if len(frontier) > 1 else "",
        f"bars are {overview.confidence:.0%} intervals" if any(row["low"] is not None for row in rows) else "",
    )
    description = f"Mean {overview.first} against p95 of total latency: {points_text}. Not beaten in both: {best}."
    return ChartDraft([make_panel("", layers, PLOT_HEIGHT_PX)], description, caption)


def find_pareto_frontier(points: Sequence[QualityLatencyPoint], *, lower: bool) -> list[QualityLatencyPoint]:
    """Return the Pareto-optimal systems, fastest first. Ties are all included."""

    def beaten(point: QualityLatencyPoint, other: QualityLatencyPoint) -> bool:
        better = (point.mean.value - other.mean.value) * (1 if lower else -1)
        return other.p95 <= point.p95 and better >= 0 and (other.p95 < point.p95 or better > 0)

    return sorted(
        (candidate for candidate in points if not any(beaten(candidate, other) for other in points)),
        key=lambda point: point.p95,
    )


def _point_rows(points: Sequence[QualityLatencyPoint]) -> ChartRows:
    return [
        {
            "system": point.system,
            "ms": round_digits(point.p95),
            "value": round_digits(point.mean.value),
            "low": round_digits(point.mean.low),
            "high": round_digits(point.mean.high),
            "n": point.mean.n or None,
        }
        for point in points
    ]


def _to_pixels(
    points: Sequence[QualityLatencyPoint],
    frontier: Sequence[QualityLatencyPoint],
    styles: SystemStyles,
    frame: Sequence[tuple[float, float]],
    *,
    lower: bool,
) -> tuple[list[LabelledMark], list[PlotBox]]:
    """Convert marks and the frontier line to pixels of the narrowest plot."""
    xs, ys = frame

    def across(system_point: QualityLatencyPoint) -> float:
        return PLOT_WIDTH_PX * math.log(system_point.p95 / xs[0]) / math.log(xs[1] / xs[0])

    def down(value: float) -> float:
        share = (value - ys[0]) / (ys[1] - ys[0])
        return PLOT_HEIGHT_PX * (share if lower else 1 - share)

    marks = []
    for point in points:
        y, *ends = (down(v) for v in (point.mean.value, point.mean.low, point.mean.high))
        finite_ends = [end for end in ends if math.isfinite(end)]
        marks.append(
            LabelledMark(styles.called(point.system), across(point), y, min([y, *finite_ends]), max([y, *finite_ends]))
        )
    lines = []
    for point, next_point in pairwise(frontier):
        (x, y), (next_x, next_y) = ((across(corner), down(corner.mean.value)) for corner in (point, next_point))
        lines += [PlotBox(x, y - 2, next_x, y + 2), PlotBox(next_x - 2, next_y, next_x + 2, y)]
    return marks, lines


def draw_measures(overview: Overview) -> ChartDraft | None:
    """Draw one panel per measure: bars with intervals and significance stars."""
    available = [m for m in overview.measures if any(m in entry.means for entry in overview.entries.values())]
    if not available:
        return None
    times = _p95_latencies_ms(overview)
    names = available[: MAX_PANELS - bool(times)]
    styles = SystemStyles(overview.systems, overview.baseline)
    panels, descriptions = [], []
    for measure in names:
        panels.append(draw_bars(overview, styles, measure, small=len(names) + bool(times) > 1))
        ranked = overview.ranked(measure)
        if ranked:
            ends = [ranked[0], ranked[-1]] if len(ranked) > 1 else ranked
            figures = [f"{end} {format_bar_value(overview.entries[end].means[measure].value)}" for end in ends]
            prefixes = ["best ", "worst "] if len(ranked) > 1 else [""]
            descriptions.append(
                f"{measure}: " + ", ".join(prefix + figure for prefix, figure in zip(prefixes, figures, strict=True))
            )
    if times:
        panels.append(_latency_panel(overview, styles, times))
        fast, slow = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
        descriptions.append(
            f"p95 ms: lowest {fast} {format_bar_value(times[fast])}, highest {slow} {format_bar_value(times[slow])}"
        )
    omitted = available[len(names) :]
    caption = join_sentence(*describe_bars(overview, names), f"not drawn: {join_with_and(omitted)}" if omitted else "")
    return ChartDraft(panels, "; ".join(descriptions) + ".", caption)


def _p95_latencies_ms(overview: Overview) -> dict[str, float]:
    times = {
        name: entry.speed.stages["total"].p95
        for name, entry in overview.entries.items()
        if entry.speed is not None and "total" in entry.speed.stages
    }
    return {name: value for name, value in times.items() if 0 < value < math.inf}


def describe_bars(overview: Overview, names: Sequence[str]) -> list[str]:
    """Return caption parts that explain bars of these measures."""
    means = [entry.means[name] for entry in overview.entries.values() for name in names if name in entry.means]
    sure = f" with {overview.confidence:.0%} intervals" if any(math.isfinite(mean.low) for mean in means) else ""
    parts = [f"bars are means{sure}"]
    if overview.baseline in overview.entries and len(overview.entries) > 1:
        parts.append(f"the dashed line is {overview.baseline}, the baseline")
    if any(significance_stars(overview, system, name) for system in overview.entries for name in names):
        against = f"stars are the corrected p-value of the test against {overview.baseline}"
        parts.append(f"{against}: *** below 0.001, ** 0.01, * 0.05, ns otherwise")
    return parts


def significance_stars(overview: Overview, system: str, measure: str) -> str:
    """Return the significance stars of a system's difference from the baseline.

    Empty for the baseline and without a test.
    """
    row = overview.difference(system, measure)
    return "" if row is None or system == overview.baseline else row.stars


def draw_bars(
    overview: Overview,
    styles: SystemStyles,
    measure: str,
    *,
    small: bool = True,
    height: int = 0,
    extra_measure: str | None = None,
) -> ChartPanel:
    """Draw a bar per system with interval, value and stars.

    `extra_measure` is a measure shown in brackets.
    """
    rows: ChartRows = []
    for name, entry in overview.entries.items():
        mean = entry.means.get(measure, Mean(math.nan, 0))
        extra_label = (
            [f"({format_bar_value(entry.means[extra_measure].value)})"]
            if extra_measure is not None and extra_measure in entry.means
            else []
        )
        rows.append(
            {
                "system": name,
                "value": round_digits(mean.value),
                "low": round_digits(mean.low),
                "high": round_digits(mean.high),
                "n": mean.n or None,
                "label": " ".join(
                    filter(
                        None, [format_bar_value(mean.value), *extra_label, significance_stars(overview, name, measure)]
                    )
                ),
            }
        )
    lower = measure in overview.lower_is_better
    title = measure + " (lower is better)" * lower + (f" ({extra_measure})" if extra_measure is not None else "")
    return _bar_panel(title, rows, styles, ".4f", small=small, height=height)


def _bar_panel(
    title: str, rows: ChartRows, styles: SystemStyles, number_format: str, *, small: bool = True, height: int = 0
) -> ChartPanel:
    alt = import_altair()
    data = alt.Data(values=rows)
    ends = [row[field] for row in rows for field in ("value", "low", "high") if row.get(field) is not None]
    lowest, highest = min([0.0, *ends]), max([0.0, *ends]) or 1.0
    # Long names leave less space for the bars, but the values need the same width.
    stretch = 1.42 if max(len(row["system"]) for row in rows) <= MAX_SHORT_NAME_CHARS else 1.6
    stretch += 0.04 * max(0, max(len(row["label"]) for row in rows) - 9)
    scale = alt.Scale(
        domain=[round_digits(1.1 * lowest), round_digits(lowest + (highest - lowest) * stretch)], nice=False
    )
    # With stacking, Vega-Lite would write the names into an expression.
    x = alt.X("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4), stack=None)
    y = styles.rows(alt, [row["system"] for row in rows])
    tips = [alt.Tooltip("system:N", title="system"), alt.Tooltip("value:Q", title="value", format=number_format)]
    for field, name in (("low", "from"), ("high", "to")):
        if any(row.get(field) is not None for row in rows):
            tips.append(alt.Tooltip(f"{field}:Q", title=name, format=number_format))
    tips.append(alt.Tooltip("n:Q", title="queries"))
    chart = alt.Chart(data)
    layers = [chart.mark_bar(height={"band": 0.66}).encode(x=x, y=y, color=styles.colour(alt), tooltip=tips)]
    for row in rows:
        if row["system"] == styles.baseline and row["value"] is not None and len(rows) > 1:
            line = alt.Chart(alt.Data(values=[{"value": row["value"]}]))
            layers.append(line.mark_rule(style="guide", strokeDash=[4, 3]).encode(x=x))
    if any(row.get("low") is not None for row in rows):
        layers.append(chart.mark_rule(style="guide", strokeWidth=1.5).encode(x="low:Q", x2="high:Q", y=y))
    text = chart.mark_text(style="words", align="left", dx=5)
    layers.append(text.encode(x=alt.XDatum(highest, title=None, scale=scale), y=y, text="label:N"))
    return make_panel(title, layers, height or 20 * len(rows) + 4, wide=not small)


def _latency_panel(overview: Overview, styles: SystemStyles, times: dict[str, float]) -> ChartPanel:
    """Draw p95 latencies as bars, or as dots if they differ more than 30-fold.

    Dots are on a logarithmic axis.
    """
    alt = import_altair()
    counts = {
        name: entry.speed.stages["total"].n for name, entry in overview.entries.items() if entry.speed and name in times
    }
    rows: ChartRows = [
        {"system": name, "value": round_digits(ms), "n": counts[name], "label": format_bar_value(ms)}
        for name, ms in times.items()
    ]
    low, high = min(times.values()), max(times.values())
    if high / low <= 30:
        return _bar_panel("p95 ms (lower is better)", rows, styles, ".4~g")
    ends = round_outwards(low, high)
    axis = alt.Axis(values=log_ticks(*ends), format="~g", labelOverlap="greedy")
    x = alt.X("value:Q", title=None, scale=alt.Scale(type="log", domain=list(ends)), axis=axis)
    y = styles.rows(alt, list(times))
    chart = alt.Chart(alt.Data(values=rows))
    tips = [alt.Tooltip("system:N", title="system"), alt.Tooltip("value:Q", title="p95 ms", format=".4~g")]
    dots = chart.mark_point(filled=True, size=80, opacity=1)
    labels = chart.mark_text(style="words", align="left", dx=8)
    layers = [
        dots.encode(x=x, y=y, color=styles.colour(alt), shape=styles.shape(alt), tooltip=tips),
        labels.encode(x=x, y=y, text="label:N"),
    ]
    return make_panel("p95 ms (log scale, lower is better)", layers, 20 * len(rows) + 4, wide=False)
