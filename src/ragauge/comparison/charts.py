"""Charts of an overview, and the figure of six panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.comparison.curve_charts import draw_curves, draw_latency_distributions, draw_stage_times
from ragauge.comparison.difference_charts import draw_difference_boxes, draw_strata, draw_waterfall, draw_wins
from ragauge.comparison.quality_charts import (
    describe_bars,
    draw_bars,
    draw_measures,
    draw_quality_latency,
    significance_stars,
)
from ragauge.comparison.results import Overview
from ragauge.core.summaries import Mean
from ragauge.evaluation.indicators import find_measure
from ragauge.output.chart_style import SystemStyles
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    format_bar_value,
    import_altair,
    interval_tooltips,
    join_sentence,
    log_range,
    log_ticks,
    make_panel,
    padded_range,
    round_digits,
)
from ragauge.output.report import Chart

MIN_PANELS = 4
"""Minimum number of panels for the chart to be drawn."""
DEFAULT_STRATA_TAG = "complexity"
MAX_STRATA_DRAWN = 4
"""Maximum number of strata drawn. More could not be distinguished."""
MeansByGroup = Mapping[str, Mapping[str, Mean]]
"""Means by system for each group on the x axis."""


def draw_panels(overview: Overview) -> ChartDraft | None:
    """Draw the panels for which measures are available.

    Returns None with too few panels, or without measures that other charts lack.
    """
    hits = _measures_by_cutoff(overview, "hit_rate")
    ranks, recall = _measure_without_cutoff(overview, "mrr"), _deepest_measure(overview, "recall")
    distinct, diversity, unique = (
        _deepest_measure(overview, name) for name in ("dr", "diversity_count", "unique_ratio")
    )
    if len(hits) < 2 or ranks is None or (distinct is None and diversity is None):
        return None
    styles = SystemStyles(overview.systems, overview.baseline)
    height = max(160, 20 * len(styles.names) + 4)
    panels: list[ChartPanel] = [
        draw_dots(
            "hit_rate@k",
            {f"@{k}": _system_means(overview, name) for k, name in hits.items()},
            "hit rate",
            styles,
            height,
            key=styles.names,
        ),
        draw_bars(overview, styles, ranks, height=height),
    ]
    descriptions = [_describe_best_and_worst(overview, name) for name in (*hits.values(), ranks)]
    if recall is not None and distinct is not None:
        panels.append(_paired_bars_panel(overview, styles, (recall, distinct), height))
        descriptions += [_describe_best_and_worst(overview, recall), _describe_best_and_worst(overview, distinct)]
    tag = DEFAULT_STRATA_TAG if DEFAULT_STRATA_TAG in overview.strata else next(iter(overview.strata), None)
    if tag is not None:  # below the first panel, as both have a value axis on the left
        mean_groups = {
            f"{stratum.value} ({stratum.n})": stratum.means for stratum in overview.strata[tag][:MAX_STRATA_DRAWN]
        }
        below = f"{tag} (number of {overview.nouns[1]})"
        title = f"{overview.first} by {tag}"
        panels.append(draw_dots(title, mean_groups, overview.first, styles, height, key=styles.names, below=below))
    if diversity is not None:
        panels.append(draw_bars(overview, styles, diversity, height=height, extra_measure=unique))
        descriptions += [
            _describe_best_and_worst(overview, diversity),
            *([_describe_best_and_worst(overview, unique)] if unique is not None else []),
        ]
    latency_panel = _latency_range_panel(overview, styles, height)
    panels += [] if latency_panel is None else [latency_panel]
    if len(panels) < MIN_PANELS:
        return None
    caption = join_sentence(
        *describe_bars(overview, [measure for measure in (ranks, recall, distinct, diversity) if measure is not None]),
        f"in brackets {unique}" if diversity is not None and unique is not None else "",
        f"the paler bar is {distinct}" if recall is not None and distinct is not None else "",
        "latencies: the mark is the median, the line ends at p95" if latency_panel is not None else "",
    )
    return ChartDraft(panels, "; ".join(descriptions) + ".", caption, width=1140)


def _available_measures(overview: Overview) -> list[str]:
    return [name for name in overview.measures if any(name in entry.means for entry in overview.entries.values())]


def _measures_by_cutoff(overview: Overview, base: str) -> dict[int, str]:
    """Return measures of one kind by cutoff, regardless of their options.

    The first one for each cutoff is used.
    """
    measure_by_cutoff: dict[int, str] = {}
    for name in _available_measures(overview):
        measure = find_measure(name)
        if measure is not None and measure.spec.name == base and measure.cutoff is not None:
            measure_by_cutoff.setdefault(int(measure.cutoff), name)
    return dict(sorted(measure_by_cutoff.items()))


def _deepest_measure(overview: Overview, base: str) -> str | None:
    measures = _measures_by_cutoff(overview, base)
    return measures[max(measures)] if measures else None


def _measure_without_cutoff(overview: Overview, base: str) -> str | None:
    """Return the measure of this kind without a cutoff, else with the largest one."""
    for name in _available_measures(overview):
        measure = find_measure(name)
        if measure is not None and measure.spec.name == base and measure.cutoff is None:
            return name
    return _deepest_measure(overview, base)


def _system_means(overview: Overview, measure: str) -> dict[str, Mean]:
    return {name: entry.means[measure] for name, entry in overview.entries.items() if measure in entry.means}


def _describe_best_and_worst(overview: Overview, measure: str) -> str:
    """Describe the best and the worst system by a measure."""
    ranked = overview.ranked(measure)
    texts = [
        f"{name} {format_bar_value(overview.entries[name].means[measure].value)}"
        for name in dict.fromkeys([*ranked[:1], *ranked[-1:]])
    ]
    prefixes = ["best ", "worst "] if len(texts) > 1 else [""]
    return f"{measure}: " + (
        ", ".join(prefix + text for prefix, text in zip(prefixes, texts, strict=True)) if texts else "none"
    )


def draw_dots(
    title: str,
    groups: MeansByGroup,
    value_title: str,
    styles: SystemStyles,
    height: int,
    *,
    key: Sequence[str] = (),
    below: str | None = None,
    wide: bool = False,
) -> ChartPanel:
    """Draw a dot with its interval for each system and group.

    `below` is the title of the x axis.
    """
    alt = import_altair()
    rows: ChartRows = [
        {
            "group": group,
            "system": name,
            "place": styles.names.index(name),
            "value": round_digits(mean.value),
            "low": round_digits(mean.low),
            "high": round_digits(mean.high),
            "n": mean.n or None,
        }
        for group, means in groups.items()
        for name, mean in means.items()
        if name in styles.names and math.isfinite(mean.value)
    ]
    ends = padded_range(
        [end for row in rows for end in (row["value"], row["low"], row["high"]) if end is not None] or [0.0]
    )
    scale = alt.Scale(domain=[round_digits(end) for end in ends], zero=False, nice=False)
    axis = alt.Axis(grid=False, labelAngle=0, labelLimit=240 if wide else 90)
    x = alt.X("group:N", title=below, sort=None, axis=axis, scale=alt.Scale(domain=list(groups), paddingInner=0.2))
    # Ordinal numbers, because Vega-Lite would write sorted names into an expression.
    offset = alt.XOffset("place:O", sort="ascending", scale=alt.Scale(domain=list(range(len(styles.names)))))
    colour, shape = styles.colour(alt, key), styles.shape(alt, key)
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("group:N", title="at"),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="queries"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    lines, marks = chart.mark_rule(strokeWidth=1.5, opacity=0.75), chart.mark_point(filled=True, size=45, opacity=1)
    low = alt.Y("low:Q", title=value_title)
    y = alt.Y("value:Q", title=value_title, scale=scale, axis=alt.Axis(tickCount=5))
    layers = [
        lines.encode(x=x, xOffset=offset, y=low, y2="high:Q", color=colour),
        marks.encode(x=x, xOffset=offset, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    return make_panel(title, layers, height, wide=wide)


def _paired_bars_panel(overview: Overview, styles: SystemStyles, measures: Sequence[str], height: int) -> ChartPanel:
    """Draw two bars per system, the second one paler, with both values as text."""
    alt = import_altair()
    means = [_system_means(overview, measure) for measure in measures]
    no_mean = Mean(math.nan, 0)
    rows: ChartRows = [
        {
            "system": name,
            "measure": measure,
            "place": position,
            "value": round_digits(measure_means.get(name, no_mean).value),
            "n": measure_means.get(name, no_mean).n or None,
        }
        for position, (measure, measure_means) in enumerate(zip(measures, means, strict=True))
        for name in styles.names
    ]
    label_rows = [
        {
            "system": name,
            "label": " / ".join(
                " ".join(
                    filter(
                        None,
                        [
                            format_bar_value(measure_means.get(name, no_mean).value),
                            significance_stars(overview, name, measure),
                        ],
                    )
                )
                for measure, measure_means in zip(measures, means, strict=True)
            ),
        }
        for name in styles.names
    ]
    highest = max([row["value"] for row in rows if row["value"] is not None], default=0.0) or 1.0
    scale = alt.Scale(domain=[0, round_digits(1.75 * highest)], nice=False)
    axis = alt.Axis(values=[tick for tick in (0, 0.2, 0.4, 0.6, 0.8, 1) if tick <= max(highest, 0.2)])
    x = alt.X("value:Q", title=None, scale=scale, axis=axis, stack=None)
    y = styles.rows(alt, styles.names)
    offset = alt.YOffset("place:O", sort="ascending", scale=alt.Scale(domain=[0, 1]))
    opacity = alt.Opacity("place:O", scale=alt.Scale(domain=[0, 1], range=[1, 0.5]), legend=None)
    tips: list[Any] = [alt.Tooltip(f"{field}:N", title=field) for field in ("system", "measure")]
    tips += [alt.Tooltip("value:Q", title="mean", format=".4f"), alt.Tooltip("n:Q", title="queries")]
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(height={"band": 0.8})
    text = alt.Chart(alt.Data(values=label_rows)).mark_text(style="words", align="left", dx=5)
    layers = [
        bars.encode(x=x, y=y, yOffset=offset, opacity=opacity, color=styles.colour(alt), tooltip=tips),
        text.encode(x=alt.XDatum(highest, title=None, scale=scale), y=y, text="label:N"),
    ]
    return make_panel(" and ".join(measures), layers, height, wide=False)


def _latency_range_panel(overview: Overview, styles: SystemStyles, height: int) -> ChartPanel | None:
    """Draw the range from p50 to p95 of the total latency on a logarithmic axis."""
    alt = import_altair()
    rows: ChartRows = []
    for name, entry in overview.entries.items():
        total = None if entry.speed is None else entry.speed.stages.get("total")
        if total is not None and 0 < total.p50 <= total.p95 < math.inf:
            label = f"{format_bar_value(total.p50)} to {format_bar_value(total.p95)}"
            rows.append(
                {
                    "system": name,
                    "p50": round_digits(total.p50),
                    "p95": round_digits(total.p95),
                    "label": label,
                    "n": total.n,
                }
            )
    if not rows:
        return None
    low, high = min(row["p50"] for row in rows), max(row["p95"] for row in rows)
    ends = log_range(low / 1.3, high * 1.3)
    # Space for the values on the right.
    scale = alt.Scale(
        type="log", domain=[round_digits(ends[0]), round_digits(ends[1] * max(3.0, (ends[1] / ends[0]) ** 0.75))]
    )
    axis = alt.Axis(values=log_ticks(*ends), format="~g", labelOverlap="greedy")
    x = alt.X("p50:Q", title=None, scale=scale, axis=axis)
    y = styles.rows(alt, [row["system"] for row in rows])
    tips = [alt.Tooltip("system:N", title="system")]
    tips += [alt.Tooltip(f"{field}:Q", title=f"{field} ms", format=".4~g") for field in ("p50", "p95")]
    tips.append(alt.Tooltip("n:Q", title="answers"))
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_rule(strokeWidth=2).encode(x=x, x2="p95:Q", y=y, color=styles.colour(alt)),
        chart.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=styles.colour(alt), shape=styles.shape(alt), tooltip=tips
        ),
        chart.mark_text(style="words", align="left", dx=6).encode(
            x=alt.XDatum(round_digits(ends[1]), title=None, scale=scale), y=y, text="label:N"
        ),
    ]
    return make_panel("total ms, p50 to p95 (log scale, lower is better)", layers, height, wide=False)


@dataclass(frozen=True)
class ChartDefinition:
    """Title of a chart and the function that draws it.

    The function returns None if data are missing.
    """

    title: str
    draw: Callable[[Overview], ChartDraft | None]
    section: str
    """Id of the section of the page that shows the chart."""


CHART_DEFINITIONS: dict[str, ChartDefinition] = {
    "quality_latency": ChartDefinition("Quality against latency", draw_quality_latency, "systems"),
    "panels": ChartDefinition("Six panels", draw_panels, "panels"),
    "measures": ChartDefinition("Measure by measure", draw_measures, "measures"),
    "curves": ChartDefinition("How many documents are enough", draw_curves, "over-k"),
    "waterfall": ChartDefinition("Differences, sorted", draw_waterfall, "differences"),
    "boxes": ChartDefinition("How differences are spread", draw_difference_boxes, "differences"),
    "wins": ChartDefinition("Won, tied and lost", draw_wins, "differences"),
    "strata": ChartDefinition("By kind of query", draw_strata, "strata"),
    "latency": ChartDefinition("How long queries take", draw_latency_distributions, "latency"),
    "stages": ChartDefinition("Where the time goes", draw_stage_times, "latency"),
}
"""Definitions of all charts of an overview, in display order."""


def draw_charts(overview: Overview) -> dict[str, Chart]:
    """Draw every chart for which the overview has data, by name."""
    charts = {}
    for name, chart in CHART_DEFINITIONS.items():
        sketch = chart.draw(overview) if overview.measures else None
        if sketch is not None:
            charts[name] = Chart(chart.title, sketch.caption, sketch.alt, sketch.panels, sketch.width)
    return charts
