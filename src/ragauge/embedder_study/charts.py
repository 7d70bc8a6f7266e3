"""Charts of an embedder study: measures, cutoffs, latency and bits per byte."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ragauge.comparison.curve_charts import draw_stage_times
from ragauge.comparison.quality_charts import draw_measures, draw_quality_latency
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.summaries import Mean, Speed
from ragauge.embedder_study.curve_charts import (
    corpus_size_chart,
    dimension_chart,
    embedder_styles,
    perturbation_loss_chart,
    vector_bytes_chart,
)
from ragauge.embedder_study.report_tables import sort_embedders, store_names
from ragauge.embedder_study.report_text import bits_per_byte_table
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy, MeanDifference, StoreResult
from ragauge.output.chart_style import NEUTRAL_COLOUR, PALETTE, SystemStyles
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    format_bar_value,
    import_altair,
    interval_tooltips,
    join_sentence,
    make_panel,
    round_digits,
)
from ragauge.output.numbers import join_with_and
from ragauge.output.report import Chart
from ragauge.stats.comparisons import Comparison, Comparisons, ComparisonSettings

CHART_HEIGHT_PX = 220
CHART_TITLES = {
    "measures": "Measure by measure",
    "recall": "At each cutoff",
    "times": "Where the time of a query goes",
    "milliseconds": "Quality against time",
    "dimensions": "Quality against dimension",
    "bytes": "Quality against bytes",
    "sizes": "Quality against the size of the corpus",
    "robustness": "What queries lose when they are written otherwise",
    "bits": "Bits per byte",
}


def build_charts(found: EmbedderStudy) -> dict[str, Chart]:
    """Build all charts for which there is enough data."""
    if not found.measures or not any(one.means for one in found.entrants):
        return {}
    sketches = {
        "measures": draw_measures(to_overview(found)),
        "recall": cutoff_chart(found),
        "times": stage_times_chart(found),
        "milliseconds": _quality_latency_chart(found),
        "dimensions": dimension_chart(found),
        "bytes": vector_bytes_chart(found),
        "sizes": corpus_size_chart(found),
        "robustness": perturbation_loss_chart(found),
        "bits": bits_per_byte_chart(found),
    }
    return {
        name: Chart(CHART_TITLES[name], one.caption, one.alt, one.panels)
        for name, one in sketches.items()
        if one is not None
    }


def to_overview(found: EmbedderStudy, store: str | None = None) -> Overview:
    """Convert the study to an overview of systems, best first.

    With `store`, it has the latency in that store.
    """
    entries = {
        one.name: SystemSummary(
            one.name, one.means, speed=None if store is None else _to_speed(_find_store_result(one, store))
        )
        for one in sort_embedders(found)
    }
    rows = [
        _to_comparison(found, one, name, gap)
        for one in found.entrants
        for name, gap in one.gaps.items()
        if name in one.means
    ]
    method = ComparisonSettings(confidence=found.confidence)
    compared = Comparisons(rows, method, found.baseline, list(entries)) if rows else None
    base = found.baseline if found.baseline in entries else None
    return Overview(
        found.dataset, entries, found.measures, confidence=found.confidence, baseline=base, compared=compared
    )


def _find_store_result(one: EmbedderResult, store: str) -> StoreResult | None:
    """Return an embedder's result in a store; for a system without vectors, its own."""
    return one.shelf(store) or (one.shelves[0] if one.shelves and one.kind != "embedder" else None)


def _to_speed(shelf: StoreResult | None) -> Speed | None:
    if shelf is None or "total" not in shelf.stages:
        return None
    return Speed(shelf.stages, math.nan, shelf.stages["total"].n, 0, 0)


def _to_comparison(found: EmbedderStudy, one: EmbedderResult, measure: str, gap: MeanDifference) -> Comparison:
    mine = one.means[measure].value
    nothing = math.nan
    return Comparison(
        measure, found.baseline, one.name, gap.n, (mine - gap.difference, mine), gap.difference, (gap.low, gap.high),
        gap.p, nothing, nothing, nothing, gap.p_corrected, nothing, nothing, 0, 0, 0, nothing,
    )  # fmt: skip


def _quality_latency_chart(found: EmbedderStudy) -> ChartDraft | None:
    store = next(iter(store_names(found)), None)
    return None if store is None else draw_quality_latency(to_overview(found, store))


def stage_times_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw the mean latency of a query by stage, one panel per store."""
    panels, said = [], []
    for store in store_names(found):
        sketch = draw_stage_times(to_overview(found, store))
        if sketch is not None:
            panels += [replace(one, title=store, wide=False) for one in sketch.panels]
            said.append(f"{store}: {sketch.alt}")
    if not panels:
        return None
    caption = join_sentence(
        "mean milliseconds of a query by stage, each query by itself",
        "axes differ from store to store" if len(panels) > 1 else "",
    )
    return ChartDraft(panels, " ".join(said), caption)


def cutoff_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw the embedders at each cutoff, one panel per measure with several cutoffs."""
    families: dict[str, list[tuple[int, str]]] = {}
    for name in found.measures:
        family, _, k = name.rpartition("@")
        if family and k.isdigit():
            families.setdefault(family, []).append((int(k), name))
    known = {family: sorted(several) for family, several in families.items() if len(several) > 1}
    if not known:
        return None
    cast = embedder_styles(found)
    panels: list[ChartPanel] = []
    said = []
    for family, several in known.items():
        panels.append(_cutoff_panel(found, family, several, cast, keyed=not panels))
        best = [f"@{k} {_best_embedder_text(found, name)}" for k, name in several]
        said.append(f"best {family}: {', '.join(best)}")
    caption = join_sentence(
        "a bar for each embedder at each cutoff, the best on the left", f"lines are {found.confidence:.0%} intervals"
    )
    return ChartDraft(panels, f"{'; '.join(said)}.".capitalize(), caption)


def _best_embedder_text(found: EmbedderStudy, measure: str) -> str:
    known = {one.name: one.means[measure].value for one in found.entrants if measure in one.means}
    known = {name: value for name, value in known.items() if math.isfinite(value)}
    best = max(known, key=known.__getitem__, default="")
    return f"{best} {format_bar_value(known[best])}" if best else "none"


def _cutoff_panel(
    found: EmbedderStudy, family: str, several: list[tuple[int, str]], cast: SystemStyles, *, keyed: bool
) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = []
    names = [one.name for one in sort_embedders(found) if one.means]
    for place, one in enumerate(found.find(name) for name in names):
        for k, name in several:
            mean = one.means.get(name, Mean(math.nan, 0))
            ends = {"value": round_digits(mean.value), "low": round_digits(mean.low), "high": round_digits(mean.high)}
            rows.append({"system": one.name, "place": place, "k": f"@{k}", "n": mean.n or None, **ends})
    x = alt.X("k:N", title=None, sort=None, scale=alt.Scale(paddingInner=0.15), axis=alt.Axis(labelAngle=0, grid=False))
    # An explicit domain of numbers: otherwise Vega-Lite writes the names into an expression.
    offset = alt.XOffset("place:O", sort="ascending", scale=alt.Scale(domain=list(range(len(names)))))
    most = max([row[end] for row in rows for end in ("value", "high") if row[end] is not None], default=1.0) or 1.0
    scale = alt.Scale(domain=[0, round_digits(1.03 * most)], nice=False)
    y = alt.Y("value:Q", title=family, scale=scale, axis=alt.Axis(tickCount=5), stack=None)
    key = names if keyed else []
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_bar().encode(x=x, xOffset=offset, y=y, color=cast.colour(alt, key), tooltip=_cutoff_tooltips(alt)),
        chart.mark_rule(style="guide", strokeWidth=1.25).encode(
            x=x, xOffset=offset, y=alt.Y("low:Q", title=family), y2="high:Q"
        ),
    ]
    return make_panel(family, layers, CHART_HEIGHT_PX, wide=len(names) * len(several) > 16)


def _cutoff_tooltips(alt: Any) -> list[Any]:
    return [
        alt.Tooltip("system:N", title="embedder"),
        alt.Tooltip("k:N", title="cutoff"),
        *interval_tooltips(alt),
        alt.Tooltip("n:Q", title="queries"),
    ]


def bits_per_byte_chart(found: EmbedderStudy) -> ChartDraft | None:
    """Draw the bits per byte of language models and compressors, fewest first."""
    table = bits_per_byte_table(found)
    if table is None:
        return None
    alt = import_altair()
    models = {one.name for one in found.entrants}
    rows: ChartRows = [
        {"system": row[0], "value": float(row[1]), "label": row[1], "model": row[0] in models} for row in table.rows
    ]
    most = max(row["value"] for row in rows)
    scale = alt.Scale(domain=[0, round_digits(1.2 * most)], nice=False)
    x = alt.X("value:Q", title="bits per byte (less is better)", scale=scale, axis=alt.Axis(tickCount=5), stack=None)
    y = SystemStyles([]).rows(alt, [row["system"] for row in rows])
    colour = alt.Color(
        "model:N", scale=alt.Scale(domain=[True, False], range=[PALETTE[0], NEUTRAL_COLOUR]), legend=None
    )
    tips = [alt.Tooltip("system:N", title="model"), alt.Tooltip("value:Q", title="bits per byte", format=".3f")]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_bar(height={"band": 0.66}).encode(x=x, y=y, color=colour, tooltip=tips),
        chart.mark_text(style="words", align="left", dx=5).encode(x=x, y=y, text="label:N"),
    ]
    said = join_with_and([f"{row['system']} {row['label']}" for row in rows])
    caption = join_sentence(
        "bits that a byte of documents takes which nobody learned from", "grey bars are compressors"
    )
    return ChartDraft([make_panel("", layers, 22 * len(rows) + 4, wide=False)], f"Bits per byte: {said}.", caption)
