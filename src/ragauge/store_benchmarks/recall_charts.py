"""Charts of recall against throughput, latency and relevance, with the Pareto frontier of each store as a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ragauge.output.chart_style import SystemStyles
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
    padded_range,
    round_digits,
)
from ragauge.output.numbers import format_number
from ragauge.store_benchmarks.filter_results import best_with_filter, list_filters, points_with_filter
from ragauge.store_benchmarks.frontiers import find_pareto_indices
from ragauge.store_benchmarks.report_text import (
    describe_sufficient_recall,
    explain_recall,
    find_qps_at_recall,
    format_filter,
    format_options,
    rank_all_series,
    rank_stores,
)
from ragauge.store_benchmarks.results import MeasuredConfiguration, StoreBenchmark

TICK_RECALLS = (0.9, 0.99, 0.999, 0.9999, 0.5, 0.95, 0.995, 0.8, 0.98, 0.7, 0.2, 0.0)
"""Recall values with a tick, by priority."""
MAX_TICKS = 11
"""Approximate maximum number of ticks."""
MIN_MISSING_RECALL, MAX_MISSING_RECALL = 1e-7, 0.05
"""Smaller differences from 1 are rounding; the position of recall 1 is computed from at most the second."""


class RecallAxis(NamedTuple):
    """Axis that maps recall 0.9 to 1, 0.99 to 2 and 0.999 to 3.

    Recall 1 is placed just beyond the highest recall below it.
    """

    end: float
    """Position of recall 1."""
    low: float
    high: float

    def position(self, recall: float) -> float:
        """Return the position of a recall value."""
        return min(self.end, -math.log10(max(1 - recall, 10**-self.end)))

    @property
    def ticks(self) -> list[float]:
        """Positions of the ticks: round values with a minimum distance, and 1 if reached."""
        gap = (self.high - self.low) / MAX_TICKS
        ticks: list[float] = [self.end] if self.end <= self.high else []
        for recall in TICK_RECALLS:
            at = self.position(recall)
            if self.low <= at <= self.high and all(abs(at - tick) >= gap for tick in ticks):
                ticks.append(at)
        return sorted(ticks)

    def x(self, alt: Any, title: str) -> Any:
        """Return the encoding of the field `at`."""
        ends = alt.Scale(domain=[round(self.low, 5), round(self.high, 5)], nice=False, zero=False)
        # Only numbers go into the expression, never text from a file.
        label = f"datum.value > {self.end - 1e-3:.5f} ? '1' : format(1 - pow(10, -datum.value), '.5~f')"
        axis = alt.Axis(
            values=[round(tick, 5) for tick in self.ticks], labelExpr=label, labelOverlap="greedy", labelSeparation=5
        )
        return alt.X("at:Q", title=title, scale=ends, axis=axis)


def build_recall_axis(recalls: Sequence[float]) -> RecallAxis:
    """Build the axis for the given recall values.

    Recall 1 is placed one halving of the missing recall beyond the highest value below 1.

    >>> [round(build_recall_axis([0.5, 0.999, 1.0]).position(one), 2) for one in (0.5, 0.9, 0.999, 1.0)]
    [0.3, 1.0, 3.0, 3.3]
    """
    nearest = min([1 - recall for recall in recalls if recall < 1 - MIN_MISSING_RECALL], default=MAX_MISSING_RECALL)
    end = -math.log10(min(nearest, MAX_MISSING_RECALL)) + math.log10(2)
    axis = RecallAxis(round(end, 5), 0.0, 0.0)
    positions = [axis.position(recall) for recall in recalls]
    pad = max(0.04 * (max(positions) - min(positions)), 0.05)
    return axis._replace(low=max(0.0, min(positions) - pad), high=max(positions) + pad)


CHART_HEIGHT = 380
ConfigurationValue = Callable[[MeasuredConfiguration], float]


def draw_speed(result: StoreBenchmark) -> ChartDraft | None:
    """Draw recall against queries per second; None if there is nothing to draw."""
    points = _drawable_points(result, lambda point: point.qps)
    if not points:
        return None
    panel = _recall_panel(
        result, points, lambda point: point.qps, "queries per second (log scale)", up=True, chosen=True
    )
    descriptions = [
        f"{name} {format_number(qps_at_recall.qps, 'qps') if qps_at_recall.qps else 'not reached'}"
        for name in rank_stores(result)
        if (qps_at_recall := find_qps_at_recall(result, name)) is not None
    ]
    caption = join_sentence(
        "right is more accurate, up is faster",
        "lines are the Pareto frontiers of the stores; faint marks are dominated configurations",
        f"recall is {explain_recall(result.recall)}; its axis is logarithmic in 1 - recall",
        "click a name to show only that store, shift-click to add others",
    )
    alt_text = f"Recall against queries per second. At recall 0.95: {', '.join(descriptions)}."
    return ChartDraft([panel], alt_text, caption)


def draw_latency(result: StoreBenchmark) -> ChartDraft | None:
    """Draw recall against the p50 and p99 latency; None if there is nothing to draw."""
    panels: list[ChartPanel] = []
    descriptions = []
    for name in ("p50", "p99"):
        value = _percentile_getter(name)
        points = _drawable_points(result, value)
        if points:
            panels.append(_recall_panel(result, points, value, f"{name}, ms (log scale)", up=False, keyed=not panels))
            point = min(points, key=value)
            descriptions.append(f"{name} from {format_bar_value(value(point))} ms ({point.configuration.series})")
    if not panels:
        return None
    caption = join_sentence("right is more accurate, down is faster", "one client, one query after the other")
    return ChartDraft(panels, f"Recall against latency: {', '.join(descriptions)}.", caption)


def draw_filter_latency(result: StoreBenchmark) -> ChartDraft | None:
    """Draw recall against the median latency with each filter, one panel per filter.

    None if there is nothing to draw.
    """
    panels: list[ChartPanel] = []
    descriptions = []
    value = _percentile_getter("p50")
    for key in list_filters(result):
        points = [
            point for point in points_with_filter(result, key) if not point.is_floor and 0 < value(point) < math.inf
        ]
        if points:
            name = f"`{key[0]}`" if key[0] else format_filter(key)
            panel = _recall_panel(
                result, points, value, f"p50, ms (log scale), filter {name}", up=False, keyed=not panels
            )
            panels.append(panel)
            best = best_with_filter(result, key)
            descriptions.append(
                f"{name} {best[0].configuration.series} {format_bar_value(value(best[0]))} ms"
                if best
                else f"{name} none"
            )
    if not panels:
        return None
    caption = join_sentence(
        "right is more accurate, down is faster",
        "all configurations were measured with the filter",
        "recall is compared with the exact neighbours among the vectors that match",
    )
    return ChartDraft(panels, f"Fastest at recall 0.95 with a filter: {', '.join(descriptions)}.", caption)


def draw_relevance(result: StoreBenchmark) -> ChartDraft | None:
    """Draw relevance against recall, one panel per measure.

    None if there is nothing to draw.
    """
    panels: list[ChartPanel] = []
    for name in dict.fromkeys(name for point in result.points for name in point.relevance):
        points = [
            point
            for point in _drawable_points(result, _relevance_getter(name))
            if math.isfinite(point.relevance.get(name, math.nan))
        ]
        if len(points) > 1:
            panels.append(_relevance_panel(result, points, name, keyed=not panels))
    if not panels:
        return None
    descriptions = [describe_sufficient_recall(sufficient_recall) for sufficient_recall in result.sufficient_recalls]
    caption = join_sentence("each mark is a configuration", "where marks are level, more recall does not help")
    return ChartDraft(panels, join_sentence(*descriptions), caption)


def _relevance_getter(name: str) -> ConfigurationValue:
    return lambda point: point.relevance.get(name, math.nan)


def _percentile_getter(name: str) -> ConfigurationValue:
    return lambda point: float(getattr(point.latency, name))


def _drawable_points(result: StoreBenchmark, value: ConfigurationValue) -> list[MeasuredConfiguration]:
    """Return the points with a recall and a value that a logarithmic axis can show."""
    return [
        point
        for point in result.points
        if not point.is_floor
        and math.isfinite(point.quality.get(result.recall, math.nan))
        and 0 < value(point) < math.inf
    ]


def _axis_for_points(result: StoreBenchmark, points: Sequence[MeasuredConfiguration]) -> RecallAxis:
    return build_recall_axis([point.quality[result.recall] for point in points])


def _recall_chart_rows(
    result: StoreBenchmark,
    points: Sequence[MeasuredConfiguration],
    value: ConfigurationValue,
    up: bool,
    styles: SystemStyles,
) -> ChartRows:
    """Build one row per point with its tooltip values.

    `line` says whether the point is on the frontier of its store.
    """
    axis = _axis_for_points(result, points)
    frontier: set[int] = set()
    for name in dict.fromkeys(point.series for point in points):
        indices = [i for i, point in enumerate(points) if point.series == name]
        speeds = [value(points[i]) if up else 1 / value(points[i]) for i in indices]
        frontier |= {
            indices[i] for i in find_pareto_indices([points[j].quality[result.recall] for j in indices], speeds)
        }
    return [
        {
            "system": point.series,
            "dash": styles.dashes[point.series],
            "options": format_options(point.configuration) or "defaults",
            "recall": round_digits(point.quality[result.recall], 7),
            "at": round_digits(axis.position(point.quality[result.recall])),
            "value": round_digits(value(point)),
            "qps": round_digits(point.qps),
            "p50": round_digits(point.latency.p50),
            "p99": round_digits(point.latency.p99),
            "build": round_digits(point.build.build_seconds),
            "memory": None if point.build.memory_bytes is None else round_digits(point.build.memory_bytes / 1e6),
            "doubts": "; ".join(point.clock.doubts) or "none",
            "line": i in frontier,
        }
        for i, point in enumerate(points)
    ]


def _recall_chart_tooltips(alt: Any, rows: ChartRows) -> list[Any]:
    tips = [
        alt.Tooltip("system:N", title="store"),
        alt.Tooltip("options:N", title="options"),
        alt.Tooltip("recall:Q", title="recall", format=".4f"),
        alt.Tooltip("qps:Q", title="QPS", format=",.4~g"),
        alt.Tooltip("p50:Q", title="p50 ms", format=".4~g"),
        alt.Tooltip("p99:Q", title="p99 ms", format=".4~g"),
        alt.Tooltip("build:Q", title="build s", format=".4~g"),
        alt.Tooltip("memory:Q", title="memory MB", format=".4~g"),
        alt.Tooltip("doubts:N", title="doubts"),
    ]
    return [tip for tip in tips if any(row[tip.shorthand.partition(":")[0]] is not None for row in rows)]


def _recall_panel(
    result: StoreBenchmark,
    points: Sequence[MeasuredConfiguration],
    value: ConfigurationValue,
    axis_title: str,
    *,
    up: bool,
    keyed: bool = True,
    chosen: bool = False,
) -> ChartPanel:
    """Draw recall against a value on a logarithmic axis.

    With `chosen`, a click on a name in the legend shows only that store.
    """
    alt = import_altair()
    names = [store for store in rank_stores(result) if any(point.series == store for point in points)]
    styles = SystemStyles(rank_all_series(result))
    rows = _recall_chart_rows(result, points, value, up, styles)
    x = _axis_for_points(result, points).x(alt, f"recall of the {result.k} nearest")
    values = [value(point) for point in points]
    ends = log_range(min(values) / 1.25, max(values) * 1.25)
    axis = alt.Axis(values=log_ticks(*ends), format="~s" if ends[1] >= 1000 else "~g")
    y = alt.Y(
        "value:Q", title=axis_title, scale=alt.Scale(type="log", domain=[round_digits(end) for end in ends]), axis=axis
    )
    key = names if keyed else []
    colour, shape, dash = styles.colour(alt, key), styles.shape(alt, key), styles.dash(alt)
    frontier_rows = [row for row in rows if row["line"]]
    dominated_rows = [row for row in rows if not row["line"]]
    line = alt.Chart(alt.Data(values=frontier_rows)).mark_line(strokeWidth=2, clip=True)
    dots = alt.Chart(alt.Data(values=frontier_rows)).mark_point(filled=True, size=55)
    faint = alt.Chart(alt.Data(values=dominated_rows)).mark_point(filled=True, size=28)
    bright, dim = (1.0, 0.35)
    show = [alt.value(bright), alt.value(dim)]
    layers = [
        faint.encode(x=x, y=y, color=colour, shape=shape, tooltip=_recall_chart_tooltips(alt, rows), opacity=show[1]),
        line.encode(x=x, y=y, color=colour, strokeDash=dash, order=alt.Order("at:Q"), opacity=show[0]),
        dots.encode(x=x, y=y, color=colour, shape=shape, tooltip=_recall_chart_tooltips(alt, rows), opacity=show[0]),
    ]
    if chosen and len(names) > 1:
        picked = alt.selection_point(name="picked", fields=["system"], bind="legend")
        layers = [
            layer.encode(opacity=alt.condition(picked, alt.value(value), alt.value(0.04)))
            for layer, value in zip(layers, (dim, bright, bright), strict=True)
        ]
        layers[-1] = layers[-1].add_params(picked)
    return make_panel("", layers[0 if dominated_rows else 1 :], CHART_HEIGHT if chosen else 280, wide=chosen)


def _relevance_panel(
    result: StoreBenchmark, points: Sequence[MeasuredConfiguration], name: str, *, keyed: bool
) -> ChartPanel:
    alt = import_altair()
    names = [store for store in rank_stores(result) if any(point.series == store for point in points)]
    cast = SystemStyles(rank_all_series(result))
    rows = _recall_chart_rows(result, points, lambda point: point.qps or 1.0, True, cast)
    for row, configuration in zip(rows, points, strict=True):
        row["value"] = round_digits(configuration.relevance[name])
    x = _axis_for_points(result, points).x(alt, f"recall of the {result.k} nearest")
    ends = [round_digits(limit) for limit in padded_range([point.relevance[name] for point in points])]
    scale = alt.Scale(domain=ends, zero=False, nice=False)
    y = alt.Y("value:Q", title=name, scale=scale, axis=alt.Axis(tickCount=6))
    key = names if keyed else []
    tips = [alt.Tooltip("value:Q", title=name, format=".4f"), *_recall_chart_tooltips(alt, rows)]
    chart = alt.Chart(alt.Data(values=rows))
    dots = chart.mark_point(filled=True, size=55, opacity=0.85)
    layers = [dots.encode(x=x, y=y, color=cast.colour(alt, key), shape=cast.shape(alt, key), tooltip=tips)]
    return make_panel("", layers, 280, wide=False)
