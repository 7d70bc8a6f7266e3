"""Draw differences between systems by query and by stratum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ragauge.comparison.results import Overview, StratumMeans
from ragauge.core.records import Floats
from ragauge.datasets.queries import explain_tag
from ragauge.output.chart_style import LOSS_COLOUR, TIE_COLOUR, WIN_COLOUR, SystemStyles
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    format_bar_value,
    import_altair,
    interval_tooltips,
    join_sentence,
    make_panel,
    padded_range,
    round_digits,
)
from ragauge.output.numbers import join_with_and
from ragauge.stats.comparisons import Comparison

MAX_LINE_POINTS = 400
"""Maximum number of points per line."""


def baseline_comparisons(overview: Overview) -> list[Comparison]:
    """Return the comparisons with the baseline by the first measure.

    Without a baseline, returns the comparison of the best system with the second best.
    """
    rows = [] if overview.compared is None else [row for row in overview.compared if row.measure == overview.first]
    rows = [row for row in rows if row.n and {row.system, row.baseline} <= set(overview.entries)]
    if overview.baseline is not None:
        return [row for row in rows if row.baseline == overview.baseline and row.system != overview.baseline]
    return rows[:1] if overview.rival is None else [overview.rival]


def sort_query_differences(row: Comparison) -> Floats | None:
    """Return the differences of all queries, best first; None if some are unknown."""
    if len(row.moved) != row.wins + row.losses:
        return None
    values = np.array([query.difference for query in row.moved] + [0.0] * row.ties, dtype=np.float64)
    return np.sort(values) if row.lower_is_better else np.sort(values)[::-1]


def _comparisons_with_differences(overview: Overview) -> list[tuple[Comparison, Floats]]:
    return [
        (row, values)
        for row in baseline_comparisons(overview)
        if (values := sort_query_differences(row)) is not None and len(values)
    ]


def _difference_axis_title(overview: Overview, rows: Sequence[Comparison]) -> str:
    lower = " (less than 0 is better)" if rows[0].lower_is_better else ""
    return f"difference in {overview.first} to {rows[0].baseline}{lower}"


def draw_waterfall(overview: Overview) -> ChartDraft | None:
    """Draw the sorted differences, one line per system."""
    comparisons = _comparisons_with_differences(overview)
    if not comparisons:
        return None
    alt = import_altair()
    styles = SystemStyles(overview.systems, overview.baseline)
    rows: ChartRows = []
    turning_points: ChartRows = []
    for row, values in comparisons:
        n = len(values)
        positions = np.unique(np.linspace(0, n - 1, min(n, MAX_LINE_POINTS)).round().astype(int))
        shares = [round_digits(100 * (position + 0.5) / n, 4) for position in positions.tolist()]
        differences = [round_digits(value, 4) for value in values[positions].tolist()]
        rows.append(
            {"system": row.system, "dash": styles.dashes[row.system], "share": shares, "difference": differences}
        )
        outcomes = [("won", row.wins, 100 * row.wins / n), ("lost", row.losses, 100 - 100 * row.losses / n)]
        turning_points += [
            {
                "system": row.system,
                "share": round_digits(share, 4),
                "difference": 0,
                "what": outcome,
                "count": count,
                "n": n,
            }
            for outcome, count, share in outcomes
        ]
    title = f"{overview.nouns[1]}, best for the system first, %"
    x = alt.X("share:Q", title=title, scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5, grid=False))
    y = alt.Y(
        "difference:Q",
        title=_difference_axis_title(overview, [row for row, _ in comparisons]),
        axis=alt.Axis(tickCount=5),
    )
    key = [row.system for row, _ in comparisons]
    colour, dash, shape = styles.colour(alt, key), styles.dash(alt), styles.shape(alt, key)
    lines = alt.Chart(alt.Data(values=rows)).transform_flatten(["share", "difference"])
    dots = alt.Chart(alt.Data(values=turning_points))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("what:N", title=overview.nouns[1]),
        alt.Tooltip("count:Q", title="how many"),
        alt.Tooltip("n:Q", title="of"),
    ]
    layers = [
        alt.Chart(alt.Data(values=[{"difference": 0}])).mark_rule(style="guide").encode(y=y),
        lines.mark_line(strokeWidth=2, interpolate="step").encode(x=x, y=y, color=colour, strokeDash=dash),
        dots.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tips),
    ]
    if len(comparisons) == 1:
        area = lines.mark_area(interpolate="step", opacity=0.2)
        layers.insert(0, area.encode(x=x, y=y, color=colour))
    first = comparisons[0][0]
    caption = join_sentence(
        f"all {overview.nouns[1]} in order, best for the system first: where a line is "
        f"{'below' if first.lower_is_better else 'above'} 0 the system is better than {first.baseline}; "
        "marks show where winning ends and losing begins"
    )
    return ChartDraft([make_panel("", layers, 260)], _describe_wins(overview, [row for row, _ in comparisons]), caption)


def draw_difference_boxes(overview: Overview) -> ChartDraft | None:
    """Draw quartiles, 5th and 95th percentile, and mean difference with its interval."""
    comparisons = _comparisons_with_differences(overview)
    if not comparisons:
        return None
    alt = import_altair()
    styles = SystemStyles(overview.systems, overview.baseline)
    rows: ChartRows = []
    for row, values in comparisons:
        cuts = [round_digits(float(cut), 4) for cut in np.percentile(values, [5, 25, 50, 75, 95])]
        entry = dict(zip(("p5", "q1", "median", "q3", "p95"), cuts, strict=True))
        ends = {"low": round_digits(row.ci[0]), "high": round_digits(row.ci[1])}
        rows.append({"system": row.system, **entry, "mean": round_digits(row.difference), **ends, "n": row.n})
    title = _difference_axis_title(overview, [row for row, _ in comparisons])
    y = styles.rows(alt, [row["system"] for row in rows])
    chart = alt.Chart(alt.Data(values=rows))
    fields = {
        "mean": "mean",
        "low": "from",
        "high": "to",
        "median": "median",
        "q1": "1st quartile",
        "q3": "3rd quartile",
    }
    tips = [alt.Tooltip("system:N", title="system")]
    tips += [alt.Tooltip(f"{field}:Q", title=name, format="+.4f") for field, name in fields.items()]
    colour = styles.colour(alt)

    def at(field: str) -> Any:
        return alt.X(f"{field}:Q", title=title, axis=alt.Axis(tickCount=6))

    layers = [
        alt.Chart(alt.Data(values=[{"mean": 0}])).mark_rule(style="guide").encode(x=at("mean")),
        chart.mark_rule(strokeWidth=1.5).encode(x=at("p5"), x2="p95:Q", y=y, color=colour),
        chart.mark_bar(height=14, opacity=0.45).encode(x=at("q1"), x2="q3:Q", y=y, color=colour, tooltip=tips),
        chart.mark_tick(thickness=2, size=14).encode(x=at("median"), y=y, color=colour),
        chart.mark_rule(style="guide", strokeWidth=3).encode(x=at("low"), x2="high:Q", y=y),
        chart.mark_point(style="guide", filled=True, shape="diamond", size=70, opacity=1).encode(
            x=at("mean"), y=y, tooltip=tips
        ),
    ]
    means_text = join_with_and(
        [
            f"{row['system']} {row['mean']:+.4f} from {_format_signed(row['low'])} to {_format_signed(row['high'])}"
            for row in rows
        ]
    )
    description = f"Mean {title}: {means_text}."
    interval_text = (
        f" with its {overview.confidence:.0%} interval" if any(row["low"] is not None for row in rows) else ""
    )
    caption = join_sentence(
        f"boxes hold the middle half of the {overview.nouns[1]} and thin lines all but 5% at each end",
        f"the diamond is the mean{interval_text}",
    )
    return ChartDraft([make_panel("", layers, 34 * len(rows) + 6)], description, caption)


def _format_signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.4f}"


def draw_wins(overview: Overview) -> ChartDraft | None:
    """Draw the share of queries that each system wins, ties and loses."""
    comparisons = baseline_comparisons(overview)
    if not comparisons:
        return None
    alt = import_altair()
    styles = SystemStyles(overview.systems, overview.baseline)
    kinds = {"won": WIN_COLOUR, "tied": TIE_COLOUR, "lost": LOSS_COLOUR}
    rows: ChartRows = []
    for row in comparisons:
        begin = 0
        for kind, count in zip(kinds, (row.wins, row.ties, row.losses), strict=True):
            share = 100 * count / row.n
            rows.append(
                {
                    "system": row.system,
                    "what": kind,
                    "count": count,
                    "share": round_digits(share, 4),
                    "begin": round_digits(100 * begin / row.n),
                    "end": round_digits(100 * (begin + count) / row.n),
                    "middle": round_digits(100 * (begin + count / 2) / row.n),
                    "label": str(count) if share >= 6 else "",
                }
            )
            begin += count
    y = styles.rows(alt, [row.system for row in comparisons])
    x = alt.X("begin:Q", title=f"{overview.nouns[1]}, %", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(tickCount=5))
    scale = alt.Scale(domain=list(kinds), range=list(kinds.values()))
    colour = alt.Color("what:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=3))
    tips = [
        alt.Tooltip("system:N", title="system"),
        alt.Tooltip("what:N", title=overview.nouns[1]),
        alt.Tooltip("count:Q", title="how many"),
        alt.Tooltip("share:Q", title="%", format=".1f"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    # White in every colour scheme, because the text is on a coloured bar.
    layers = [
        chart.mark_bar(height=20).encode(x=x, x2="end:Q", y=y, color=colour, tooltip=tips),
        chart.mark_text(color="#ffffff", fontSize=11, fontWeight=600).encode(
            x=alt.X("middle:Q", title=f"{overview.nouns[1]}, %"), y=y, text="label:N"
        ),
    ]
    caption = join_sentence(
        f"how many {overview.nouns[1]} each system ranks better than, like, or worse than {comparisons[0].baseline} by "
        f"{overview.first}"
    )
    return ChartDraft(
        [make_panel("", layers, 28 * len(comparisons) + 4)], _describe_wins(overview, comparisons), caption
    )


def _describe_wins(overview: Overview, rows: Sequence[Comparison]) -> str:
    wins = [f"{row.system} wins {row.wins}, ties {row.ties} and loses {row.losses} of {row.n}" for row in rows]
    return f"{overview.nouns[1].capitalize()} by {overview.first} against {rows[0].baseline}: {'; '.join(wins)}."


MAX_STRATA_SHOWN = 20
"""Maximum number of strata drawn per tag."""
MAX_HALF_WIDTH_STRATA = 6
"""Maximum number of strata in a half-width panel."""


class StrataAxes(NamedTuple):
    """Axis range and left margin in pixels that all panels share."""

    ends: tuple[float, float]
    margin: int


def draw_strata(overview: Overview) -> ChartDraft | None:
    """Draw one panel per tag, with a row per stratum and a dot per system."""
    strata_by_tag = {
        tag: [stratum for stratum in strata if any(math.isfinite(mean.value) for mean in stratum.means.values())]
        for tag, strata in overview.strata.items()
    }
    strata_by_tag = {tag: strata[:MAX_STRATA_SHOWN] for tag, strata in strata_by_tag.items() if strata}
    if not strata_by_tag:
        return None
    means = [mean for strata in strata_by_tag.values() for stratum in strata for mean in stratum.means.values()]
    # One axis and one margin for all tags, so that they can be compared.
    frame = StrataAxes(
        padded_range([end for mean in means for end in (mean.value, mean.low, mean.high)], pad=0.03),
        min(130, 6 * max(len(_stratum_label(stratum)) for strata in strata_by_tag.values() for stratum in strata)),
    )
    styles = SystemStyles(overview.systems, overview.baseline, frame.margin)
    panels: list[ChartPanel] = []
    descriptions = []
    for tag, strata in strata_by_tag.items():
        n_strata = len(overview.strata[tag])
        title = (
            explain_tag(tag) if len(strata) == n_strata else f"{explain_tag(tag)} ({len(strata)} of {n_strata} values)"
        )
        panels.append(_strata_panel(title, strata, overview, styles, frame, key=[] if panels else styles.names))
        descriptions.append(f"{tag}: " + "; ".join(_describe_best_system(overview, stratum) for stratum in strata))
    interval_text = (
        f", with its {overview.confidence:.0%} interval" if any(math.isfinite(mean.low) for mean in means) else ""
    )
    caption = join_sentence(
        f"a row is a kind of {overview.nouns[0]} and a mark a system's mean {overview.first} there{interval_text}"
    )
    return ChartDraft(
        panels, f"Mean {overview.first} by kind of {overview.nouns[0]}. {'. '.join(descriptions)}.", caption
    )


def _stratum_label(stratum: StratumMeans) -> str:
    return f"{stratum.value} (n={stratum.n})"


def _describe_best_system(overview: Overview, stratum: StratumMeans) -> str:
    means = {name: mean.value for name, mean in stratum.means.items() if math.isfinite(mean.value)}
    best = (min if overview.first in overview.lower_is_better else max)(means, key=means.__getitem__)
    return f"{stratum.value} (n={stratum.n}) best {best} {format_bar_value(means[best])}"


def _strata_panel(
    title: str,
    strata: Sequence[StratumMeans],
    overview: Overview,
    styles: SystemStyles,
    frame: StrataAxes,
    *,
    key: Sequence[str],
) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {
            "stratum": _stratum_label(stratum),
            "system": name,
            "place": styles.names.index(name),
            "value": round_digits(mean.value),
            "low": round_digits(mean.low),
            "high": round_digits(mean.high),
            "n": mean.n or None,
        }
        for stratum in strata
        for name, mean in stratum.means.items()
        if math.isfinite(mean.value) and name in overview.entries
    ]
    lower = overview.first in overview.lower_is_better
    value_title = overview.first + " (lower is better)" * lower
    ends = alt.Scale(domain=[round_digits(end) for end in frame.ends], zero=False, nice=False)
    x = alt.X("value:Q", title=value_title, scale=ends, axis=alt.Axis(tickCount=6))
    scale = alt.Scale(domain=[_stratum_label(stratum) for stratum in strata], paddingInner=0.25, paddingOuter=0.12)
    y = alt.Y(
        "stratum:N",
        title=None,
        scale=scale,
        sort=None,
        axis=alt.Axis(grid=False, labelLimit=130, minExtent=frame.margin),
    )
    # Ordinal numbers, because Vega-Lite would write sorted names into an expression.
    offset = alt.YOffset("place:O", sort="ascending", scale=alt.Scale(domain=list(range(len(styles.names)))))
    tips = [
        alt.Tooltip("stratum:N", title="queries"),
        alt.Tooltip("system:N", title="system"),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="n"),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    bars = chart.mark_rule(strokeWidth=1.5, opacity=0.75)
    dots = chart.mark_point(filled=True, size=55, opacity=1)
    colour, shape = styles.colour(alt, key), styles.shape(alt, key)
    layers = [
        bars.encode(x=alt.X("low:Q", title=value_title), x2="high:Q", y=y, yOffset=offset, color=colour),
        dots.encode(x=x, y=y, yOffset=offset, color=colour, shape=shape, tooltip=tips),
    ]
    return make_panel(
        title, layers, len(strata) * (9 * len(styles.names) + 14) + 8, wide=len(strata) > MAX_HALF_WIDTH_STRATA
    )
