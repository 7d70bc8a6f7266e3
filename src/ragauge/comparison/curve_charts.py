"""Charts of latency distributions, stages, and measures over k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ragauge.comparison.results import MeasureCurve, Overview, SystemSummary
from ragauge.core.stages import STAGES
from ragauge.core.summaries import Latency
from ragauge.output.chart_style import PALETTE, STAGE_COLOURS, SystemStyles
from ragauge.output.charts import (
    LABEL_DISTANCE_PX,
    ChartDraft,
    ChartPanel,
    ChartRows,
    LabelledMark,
    LabelPosition,
    PlotBox,
    format_bar_value,
    import_altair,
    join_sentence,
    label_layer,
    log_range,
    log_ticks,
    make_panel,
    padded_range,
    place_labels,
    round_digits,
    spread_labels,
)
from ragauge.output.numbers import join_with_and
from ragauge.stats.smallest_k import SmallestK

CURVE_WIDTH_PX, CURVE_HEIGHT_PX = 200, 240
"""Plot size on a phone, where labels have the least space."""
BOXES_PER_SEGMENT = 6
"""Number of boxes that cover a line segment, used to keep labels off the line."""
END_LABEL_WIDTH_PX = 110
"""Width reserved for a name at the end of a line, in pixels."""
MAX_ADVICE_NAME_CHARS = 22
"""Maximum number of characters of a system name in a recommendation."""
CurvePoints = Mapping[str, list[tuple[int, float]]]
"""`(k, mean)` points by system, up to the depth of its rankings."""


class KRecommendation(NamedTuple):
    """Smallest sufficient k of a system."""

    system: str
    advice: SmallestK
    is_sufficient: bool
    """Whether a k below the largest tested one is sufficient."""
    largest_k: int
    """Largest tested k."""

    @property
    def k(self) -> int:
        """Smallest sufficient k, or the largest tested one."""
        return self.largest_k if self.advice.k is None else self.advice.k

    @property
    def text(self) -> str:
        """Recommendation as text, without the system name."""
        return f"k = {self.k} is enough" if self.is_sufficient else f"no k below {self.k} is enough"


def draw_curves(overview: Overview) -> ChartDraft | None:
    """Draw one panel per measure that is known over k."""
    styles = SystemStyles(overview.systems, overview.baseline)
    panels, descriptions, recommendations = [], [], []
    for curve in overview.curves:
        points_by_system = {
            name: [(k, v) for k, v in zip(curve.ks, values, strict=True) if math.isfinite(v)]
            for name, values in curve.values.items()
            if name in overview.entries
        }
        points_by_system = {name: points for name, points in points_by_system.items() if points}
        if not points_by_system:
            continue
        recommendation = _find_recommendation(overview, curve, points_by_system)
        panels.append(_curve_panel(curve, points_by_system, styles, recommendation))
        last_points = join_with_and(
            [
                f"{name} {format_bar_value(points[-1][1])} at {points[-1][0]}"
                for name, points in points_by_system.items()
            ]
        )
        descriptions.append(
            f"{curve.measure} over k: {last_points}"
            + (f"; for {recommendation.system} {recommendation.text}" if recommendation else "")
        )
        recommendations += [recommendation] if recommendation else []
    if not panels:
        return None
    return ChartDraft(
        panels,
        "; ".join(descriptions) + ".",
        join_sentence("each line is a system's mean over k", *_recommendation_captions(recommendations)),
    )


def _recommendation_captions(recommendations: Sequence[KRecommendation]) -> list[str]:
    """Return caption parts that explain the recommendations."""
    parts = []
    with_k, without_k = (
        [recommendation for recommendation in recommendations if recommendation.is_sufficient is is_enough]
        for is_enough in (True, False)
    )
    if with_k:
        tolerance, confidence = with_k[0].advice.tolerance, with_k[0].advice.confidence
        parts.append(
            f"right of the dashed line, more documents add at most {tolerance:g} to the named system, with "
            f"{confidence:.0%} confidence"
        )
    if without_k:
        tolerance = without_k[0].advice.tolerance
        parts.append(f"a system without such a line may still lose more than {tolerance:g} at every smaller k")
    return parts


def _find_recommendation(
    overview: Overview, curve: MeasureCurve, points_by_system: CurvePoints
) -> KRecommendation | None:
    """Return the recommendation for the best system, else for the baseline, else None."""
    for name in (*overview.ranked()[:1], overview.baseline):
        if name is not None and name in curve.enough and name in points_by_system:
            advice = curve.enough[name]
            last_k = points_by_system[name][-1][0]
            return KRecommendation(name, advice, advice.k is not None and advice.k < last_k, last_k)
    return None


def _curve_panel(
    curve: MeasureCurve, points_by_system: CurvePoints, styles: SystemStyles, recommendation: KRecommendation | None
) -> ChartPanel:
    alt = import_altair()
    bottom, top = padded_range([v for points in points_by_system.values() for _, v in points])
    bottom = max(bottom, 0.0)
    # Space for the text above all lines.
    top += (top - bottom) * 13 / CURVE_HEIGHT_PX if recommendation is not None else 0.0
    first_k, last_k = curve.ks[0], curve.ks[-1]
    # Padding at both ends keeps points off the axis labels and the names.
    margin = (last_k / first_k) ** 0.02
    axis = alt.Axis(values=list(curve.ks), format="~g", labelOverlap="greedy", grid=False)
    x = alt.X(
        "k:Q", title="k (log scale)", scale=alt.Scale(type="log", domain=[first_k / margin, last_k * margin]), axis=axis
    )
    scale = alt.Scale(domain=[round_digits(bottom), round_digits(top)], nice=False, zero=False)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=5))
    rows: ChartRows = [
        {"system": name, "k": k, "value": round_digits(v), "dash": styles.dashes[name]}
        for name, points in points_by_system.items()
        for k, v in points
    ]
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("k:Q", title="k"),
        alt.Tooltip("value:Q", title="mean", format=".4f"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    key = [] if styles.has_direct_labels else list(points_by_system)
    colour, dash, shape = styles.colour(alt, key), styles.dash(alt), styles.shape(alt, key)
    layers = [
        chart.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        chart.mark_point(filled=True, size=45, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    if recommendation is not None:
        layers = [*_recommendation_layers(alt, recommendation, x, y, top, curve), *layers]
    if styles.has_direct_labels:
        label_rows = _end_label_rows(points_by_system, (first_k / margin, last_k * margin), (bottom, top))
        layers += [text.encode(x=x, y=y, text="system:N") for text in label_layer(alt, label_rows, END_LABEL_WIDTH_PX)]
    return make_panel(f"{curve.measure}@k", layers, CURVE_HEIGHT_PX, wide=False)


def _end_label_rows(points_by_system: CurvePoints, xs: tuple[float, float], ys: tuple[float, float]) -> ChartRows:
    """Place names to the right of the plot.

    Names of lines that end earlier are placed off the lines.
    """
    deepest = max(points[-1][0] for points in points_by_system.values())
    tails = {name: points[-1][1] for name, points in points_by_system.items() if points[-1][0] == deepest}
    heights = spread_labels(list(tails.values()), 13 / CURVE_HEIGHT_PX * (ys[1] - ys[0]))
    label_position = LabelPosition("left", LABEL_DISTANCE_PX, 0)
    rows: ChartRows = [
        {"system": name, "k": deepest, "value": round_digits(height), **label_position._asdict()}
        for name, height in zip(tails, heights, strict=True)
    ]

    def plotted(k: float, value: float) -> tuple[float, float]:
        return CURVE_WIDTH_PX * math.log(k / xs[0]) / math.log(xs[1] / xs[0]), CURVE_HEIGHT_PX * (ys[1] - value) / (
            ys[1] - ys[0]
        )

    lines = []
    for points in points_by_system.values():
        for (x, y), (next_x, next_y) in pairwise(plotted(*point) for point in points):
            for part in range(BOXES_PER_SEGMENT):
                ends = [y + (next_y - y) * share / BOXES_PER_SEGMENT for share in (part, part + 1)]
                left, right = (x + (next_x - x) * share / BOXES_PER_SEGMENT for share in (part, part + 1))
                lines.append(PlotBox(left, min(ends) - 1, right, max(ends) + 1))
    early = {name: points[-1] for name, points in points_by_system.items() if name not in tails}
    marks = [LabelledMark(name, *(height := plotted(*point)), height[1], height[1]) for name, point in early.items()]
    for (name, (k, value)), position in zip(
        early.items(), place_labels(marks, lines, CURVE_WIDTH_PX, CURVE_HEIGHT_PX), strict=True
    ):
        rows.append({"system": name, "k": k, "value": round_digits(value), **position._asdict()})
    return rows


def _recommendation_layers(
    alt: Any, recommendation: KRecommendation, x: Any, y: Any, top: float, curve: MeasureCurve
) -> list[Any]:
    """Draw the recommendation as text, with a vertical line if a k is sufficient.

    The text is on the side of the line with more space.
    """
    ks = curve.ks
    is_on_right = not recommendation.is_sufficient or math.log(recommendation.k / ks[0]) > 0.5 * math.log(
        ks[-1] / ks[0]
    )
    name = (
        recommendation.system
        if len(recommendation.system) <= MAX_ADVICE_NAME_CHARS
        else f"{recommendation.system[: MAX_ADVICE_NAME_CHARS - 1]}…"
    )
    rows = [
        {
            "k": recommendation.k if recommendation.is_sufficient else ks[-1],
            "value": round_digits(top),
            "system": recommendation.system,
            "label": f"{name}: {recommendation.text}",
        }
    ]
    chart = alt.Chart(alt.Data(values=rows))
    tips = [alt.Tooltip("label:N", title="advice"), alt.Tooltip("system:N", title="for")]
    aside = 5 if recommendation.is_sufficient else 0
    text = chart.mark_text(style="words", align="right" if is_on_right else "left", dx=-aside if is_on_right else aside)
    rule = chart.mark_rule(style="guide", strokeDash=[4, 3]).encode(x=x, tooltip=tips)
    return [*([rule] if recommendation.is_sufficient else []), text.encode(x=x, y=y, text="label:N", tooltip=tips)]


MAX_DISTRIBUTION_POINTS = 120
"""Maximum number of points per line."""
MARKED_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def draw_latency_distributions(overview: Overview) -> ChartDraft | None:
    """Draw the cumulative latency distribution of `total` and each stage."""
    stages = _ordered_stages(overview)
    styles = SystemStyles(overview.systems, overview.baseline)
    timed_systems = [name for name, entry in overview.entries.items() if entry.times or entry.speed is not None]
    panels: list[ChartPanel] = []
    for stage in stages:
        stage_panel = _distribution_panel(overview, stage, styles, [] if panels else timed_systems)
        panels += [stage_panel] if stage_panel is not None else []
    if not panels:
        return None
    descriptions = []
    for name, entry in overview.entries.items():
        if entry.speed is not None and "total" in entry.speed.stages:
            total = entry.speed.stages["total"]
            descriptions.append(
                f"{name} "
                + ", ".join(f"{mark} {format_bar_value(getattr(total, mark))}" for mark in MARKED_PERCENTILES)
            )
    caption = join_sentence(
        "each line shows the share of queries with at most this latency",
        "marks are the 50th, 90th, 95th and 99th percentile",
        "rerank includes fusion" if any(panel.title == "rerank" for panel in panels) else "",
    )
    return ChartDraft(
        panels,
        f"Milliseconds in total: {'; '.join(descriptions)}." if descriptions else "Milliseconds by stage.",
        caption,
    )


def _ordered_stages(overview: Overview) -> list[str]:
    """Return `total`, the standard stages, then custom stages sorted by name."""
    stages = {
        stage
        for entry in overview.entries.values()
        for stage in (*entry.times, *(entry.speed.stages if entry.speed is not None else ()))
    }
    standard_stages = [stage for stage in ("total", *STAGES) if stage in stages]
    return [*standard_stages, *sorted(stages - set(standard_stages))]


def _distribution_points(entry: SystemSummary, stage: str) -> tuple[list[float], list[float]]:
    """Return latencies in ms and cumulative shares of queries.

    They are computed from the latencies of all queries, or else from known percentiles.
    """
    times = np.asarray(entry.times.get(stage, ()), dtype=np.float64)
    times = np.sort(times[np.isfinite(times)])
    if len(times):
        positions = np.unique(
            np.linspace(0, len(times) - 1, min(len(times), MAX_DISTRIBUTION_POINTS)).round().astype(int)
        )
        return times[positions].tolist(), ((positions + 1) / len(times)).tolist()
    latency = None if entry.speed is None else entry.speed.stages.get(stage)
    if latency is None:
        return [], []
    shares = {
        0.0: latency.min,
        **{share: getattr(latency, percentile) for percentile, share in MARKED_PERCENTILES.items()},
        1.0: latency.max,
    }
    finite_shares = {share: ms for share, ms in shares.items() if math.isfinite(ms)}
    return list(finite_shares.values()), list(finite_shares)


def _percentile_values(entry: SystemSummary, stage: str) -> dict[str, float]:
    latency: Latency | None = None if entry.speed is None else entry.speed.stages.get(stage)
    if latency is not None:
        return {percentile: getattr(latency, percentile) for percentile in MARKED_PERCENTILES}
    times = entry.times.get(stage, ())
    return (
        {percentile: float(np.percentile(times, 100 * share)) for percentile, share in MARKED_PERCENTILES.items()}
        if len(times)
        else {}
    )


def _distribution_panel(overview: Overview, stage: str, styles: SystemStyles, key: Sequence[str]) -> ChartPanel | None:
    alt = import_altair()
    rows: ChartRows = []
    marks: ChartRows = []
    all_times: list[float] = []
    for name, entry in overview.entries.items():
        # A logarithmic axis cannot show 0.
        points = [(ms, share) for ms, share in zip(*_distribution_points(entry, stage), strict=True) if ms > 0]
        if not points:
            continue
        all_times += [ms for ms, _ in points]
        times, shares = zip(*points, strict=True)
        rows.append(
            {
                "system": name,
                "dash": styles.dashes[name],
                "ms": [round_digits(t, 4) for t in times],
                "share": [round_digits(100 * s, 4) for s in shares],
            }
        )
        marks += [
            {
                "system": name,
                "what": percentile,
                "ms": round_digits(ms, 4),
                "share": 100 * MARKED_PERCENTILES[percentile],
            }
            for percentile, ms in _percentile_values(entry, stage).items()
            if 0 < ms < math.inf
        ]
    if not all_times:
        return None
    low, high = log_range(min(all_times) / 1.15, max(all_times) * 1.15)
    scale = alt.Scale(type="log", domain=[round_digits(low), round_digits(high)])
    axis = alt.Axis(values=log_ticks(low, high), format="~g", labelOverlap="greedy")
    x = alt.X("ms:Q", title="ms (log scale)", scale=scale, axis=axis)
    y = alt.Y("share:Q", title="% of queries", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(values=[0, 50, 90, 100]))
    colour, dash, shape = styles.colour(alt, key), styles.dash(alt), styles.shape(alt, key)
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("what:N", title="percentile"),
        alt.Tooltip("ms:Q", title="ms", format=".4~g"),
    ]
    lines = alt.Chart(alt.Data(values=rows)).transform_flatten(["ms", "share"])
    layers = [lines.mark_line(strokeWidth=1.75).encode(x=x, y=y, color=colour, strokeDash=dash)]
    if marks:
        dots = alt.Chart(alt.Data(values=marks)).mark_point(filled=True, size=40, opacity=1)
        layers.append(dots.encode(x=x, y=y, color=colour, shape=shape, tooltip=tips))
    return make_panel(stage, layers, 190, wide=False)


def draw_stage_times(overview: Overview) -> ChartDraft | None:
    """Draw the mean time of a query by stage, one bar per system."""
    parts = {name: _mean_stage_times(entry) for name, entry in overview.entries.items()}
    parts = {name: stage_times for name, stage_times in parts.items() if stage_times}
    if not parts:
        return None
    alt = import_altair()
    styles = SystemStyles(overview.systems, overview.baseline)
    stages = [
        stage
        for stage in (*STAGES, *_custom_stages(parts), "other")
        if any(stage in stage_times for stage_times in parts.values())
    ]
    spare_colours = [colour for colour in PALETTE if colour not in STAGE_COLOURS.values()]
    new_colours = {
        kind: spare_colours[i % len(spare_colours)]
        for i, kind in enumerate(k for k in stages if k not in STAGE_COLOURS)
    }
    rows: ChartRows = []
    totals: ChartRows = []
    for name, stage_times in parts.items():
        begin = 0.0
        for kind in stages:
            if kind in stage_times:
                end = begin + stage_times[kind]
                rows.append(
                    {
                        "system": name,
                        "stage": kind,
                        "ms": round_digits(stage_times[kind]),
                        "begin": round_digits(begin),
                        "end": round_digits(end),
                    }
                )
                begin = end
        totals.append({"system": name, "end": round_digits(begin), "label": f"{format_bar_value(begin)} ms"})
    scale = alt.Scale(domain=[0, round_digits(1.22 * max(row["end"] for row in totals))], nice=False)
    x = alt.X("begin:Q", title="mean ms of a query", scale=scale, axis=alt.Axis(tickCount=5))
    y = styles.rows(alt, list(parts))
    key = alt.Scale(domain=stages, range=[STAGE_COLOURS.get(kind) or new_colours[kind] for kind in stages])
    colour = alt.Color("stage:N", scale=key, legend=alt.Legend(title=None, orient="bottom", columns=4))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("stage:N", title="stage"),
        alt.Tooltip("ms:Q", title="mean ms", format=".4~g"),
    ]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(height=16)
    labels = alt.Chart(alt.Data(values=totals)).mark_text(style="words", align="left", dx=5)
    layers = [
        bars.encode(x=x, x2="end:Q", y=y, color=colour, tooltip=tips),
        labels.encode(x=alt.X("end:Q", title="mean ms of a query", scale=scale), y=y, text="label:N"),
    ]
    times = [
        f"{name} {join_with_and([f'{kind} {format_bar_value(ms)}' for kind, ms in stage_times.items()])}"
        for name, stage_times in parts.items()
    ]
    caption = join_sentence(
        "mean milliseconds per query, by stage",
        "`other` is the remaining time" if "other" in stages else "",
    )
    return ChartDraft(
        [make_panel("", layers, 24 * len(parts) + 4)], f"Mean milliseconds by stage: {'; '.join(times)}.", caption
    )


def _custom_stages(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    return sorted({kind for stage_times in parts.values() for kind in stage_times} - {*STAGES, "other"})


def _mean_stage_times(entry: SystemSummary) -> dict[str, float]:
    """Return the mean time in ms per query by stage, averaged over all queries.

    A stage that only some queries have is weighted by their number. `other` is the remaining time.
    """
    if entry.speed is None or "total" not in entry.speed.stages:
        return {}
    total = entry.speed.stages["total"]
    if not total.n or not math.isfinite(total.mean):
        return {}
    parts = {
        stage: latency.mean * latency.n / total.n
        for stage, latency in entry.speed.stages.items()
        if stage != "total" and math.isfinite(latency.mean)
    }
    other_time = total.mean - sum(parts.values())
    return {**parts, "other": other_time} if other_time > 1e-9 else parts
