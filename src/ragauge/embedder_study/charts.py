"""Charts of an embedder study: measures, cutoffs, latency and bits per byte."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ragauge.comparison.curve_charts import draw_stage_times
from ragauge.comparison.quality_charts import draw_measures, draw_quality_latency
from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import RagaugeError
from ragauge.core.summaries import Mean, Speed
from ragauge.embedder_study.curve_charts import (
    corpus_size_chart,
    dimension_chart,
    embedder_styles,
    perturbation_loss_chart,
    vector_bytes_chart,
)
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy, MeanDifference, StoreResult
from ragauge.embedder_study.selections import first_store, sort_bits_per_byte, sort_embedders, store_names
from ragauge.measures.names import parse_measure
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
    "measures": "All measures",
    "recall": "Quality by cutoff",
    "times": "Latency by stage",
    "milliseconds": "Quality and latency",
    "dimensions": "Quality and dimensions",
    "bytes": "Quality and vector size",
    "sizes": "Quality and corpus size",
    "robustness": "Change by perturbation",
    "bits": "Bits per byte",
}


def build_charts(result: EmbedderStudy) -> dict[str, Chart]:
    """Build all charts for which there is enough data."""
    if not result.measures or not any(embedder.means for embedder in result.embedders):
        return {}
    drafts = {
        "measures": draw_measures(to_overview(result)),
        "recall": cutoff_chart(result),
        "times": stage_times_chart(result),
        "milliseconds": _quality_latency_chart(result),
        "dimensions": dimension_chart(result),
        "bytes": vector_bytes_chart(result),
        "sizes": corpus_size_chart(result),
        "robustness": perturbation_loss_chart(result),
        "bits": bits_per_byte_chart(result),
    }
    return {
        name: Chart(CHART_TITLES[name], draft.caption, draft.alt, draft.panels)
        for name, draft in drafts.items()
        if draft is not None
    }


def to_overview(result: EmbedderStudy, store: str | None = None) -> Overview:
    """Convert the study to an overview of systems, best first.

    With `store`, it has the latency in that store.
    """
    entries = {
        embedder.name: SystemSummary(
            embedder.name,
            embedder.means,
            speed=None if store is None else _to_speed(_find_store_result(embedder, store)),
        )
        for embedder in sort_embedders(result)
    }
    rows = [
        _to_comparison(result, embedder, name, difference)
        for embedder in result.embedders
        for name, difference in embedder.differences.items()
        if name in embedder.means
    ]
    method = ComparisonSettings(confidence=result.confidence)
    compared = Comparisons(rows, method, result.baseline, list(entries)) if rows else None
    base = result.baseline if result.baseline in entries else None
    return Overview(
        result.dataset, entries, result.measures, confidence=result.confidence, baseline=base, compared=compared
    )


def _find_store_result(embedder: EmbedderResult, store: str) -> StoreResult | None:
    """Return an embedder's result in a store; for a system without vectors, its own."""
    return embedder.find_store(store) or (first_store(embedder) if embedder.kind != "embedder" else None)


def _to_speed(store: StoreResult | None) -> Speed | None:
    if store is None or "total" not in store.stages:
        return None
    return Speed(store.stages, math.nan, store.stages["total"].n, 0, 0)


def _to_comparison(
    result: EmbedderStudy, embedder: EmbedderResult, measure: str, difference: MeanDifference
) -> Comparison:
    mean = embedder.means[measure].value
    unknown = math.nan
    return Comparison(
        measure, result.baseline, embedder.name, difference.n, (mean - difference.value, mean), difference.value,
        (difference.low, difference.high), difference.p, unknown, unknown, unknown, difference.p_corrected, unknown,
        unknown, 0, 0, 0, unknown,
    )  # fmt: skip


def _quality_latency_chart(result: EmbedderStudy) -> ChartDraft | None:
    store = next(iter(store_names(result)), None)
    return None if store is None else draw_quality_latency(to_overview(result, store))


def stage_times_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw the mean latency of a query by stage, one panel per store."""
    panels, texts = [], []
    for store in store_names(result):
        draft = draw_stage_times(to_overview(result, store))
        if draft is not None:
            panels += [replace(panel, title=store, wide=False) for panel in draft.panels]
            texts.append(f"{store}: {draft.alt}")
    if not panels:
        return None
    caption = join_sentence(
        "mean latency of single queries by stage, in ms",
        "the axes of the stores differ" if len(panels) > 1 else "",
    )
    return ChartDraft(panels, " ".join(texts), caption)


def cutoff_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw the embedders at each cutoff, one panel per measure with several cutoffs."""
    families: dict[str, list[tuple[int, str]]] = {}
    for name in result.measures:
        try:
            measure = parse_measure(name)
        except RagaugeError:  # the user's own function
            continue
        if measure.cutoff is not None:
            families.setdefault(str(replace(measure, cutoff=None)), []).append((int(measure.cutoff), name))
    multi_cutoff = {family: sorted(several) for family, several in families.items() if len(several) > 1}
    if not multi_cutoff:
        return None
    styles = embedder_styles(result)
    panels: list[ChartPanel] = []
    texts = []
    for family, several in multi_cutoff.items():
        panels.append(_cutoff_panel(result, family, several, styles, keyed=not panels))
        best = [f"@{k} {_best_embedder_text(result, name)}" for k, name in several]
        texts.append(f"best {family}: {', '.join(best)}")
    caption = join_sentence(
        "one bar per embedder and cutoff, best embedder first",
        f"lines are {result.confidence:.0%} confidence intervals",
    )
    return ChartDraft(panels, f"{'; '.join(texts)}.".capitalize(), caption)


def _best_embedder_text(result: EmbedderStudy, measure: str) -> str:
    means = {embedder.name: embedder.means[measure].value for embedder in result.embedders if measure in embedder.means}
    means = {name: value for name, value in means.items() if math.isfinite(value)}
    best = max(means, key=means.__getitem__, default="")
    return f"{best} {format_bar_value(means[best])}" if best else "none"


def _cutoff_panel(
    result: EmbedderStudy, family: str, several: list[tuple[int, str]], styles: SystemStyles, *, keyed: bool
) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = []
    names = [result.name for result in sort_embedders(result) if result.means]
    for position, embedder in enumerate(result.find(name) for name in names):
        for k, name in several:
            mean = embedder.means.get(name, Mean(math.nan, 0))
            ends = {"value": round_digits(mean.value), "low": round_digits(mean.low), "high": round_digits(mean.high)}
            rows.append({"system": embedder.name, "place": position, "k": f"@{k}", "n": mean.n or None, **ends})
    x = alt.X("k:N", title=None, sort=None, scale=alt.Scale(paddingInner=0.15), axis=alt.Axis(labelAngle=0, grid=False))
    # An explicit domain of numbers: otherwise Vega-Lite writes the names into an expression.
    offset = alt.XOffset("place:O", sort="ascending", scale=alt.Scale(domain=list(range(len(names)))))
    top = max([row[end] for row in rows for end in ("value", "high") if row[end] is not None], default=1.0) or 1.0
    scale = alt.Scale(domain=[0, round_digits(1.03 * top)], nice=False)
    y = alt.Y("value:Q", title=family, scale=scale, axis=alt.Axis(tickCount=5), stack=None)
    key = names if keyed else []
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_bar().encode(x=x, xOffset=offset, y=y, color=styles.colour(alt, key), tooltip=_cutoff_tooltips(alt)),
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


def bits_per_byte_chart(result: EmbedderStudy) -> ChartDraft | None:
    """Draw the bits per byte of language models and compressors, fewest first."""
    items = sort_bits_per_byte(result)
    if not items:
        return None
    alt = import_altair()
    rows: ChartRows = [
        {"system": item.name, "value": item.bits, "label": f"{item.bits:.3f}", "model": item.model is not None}
        for item in items
    ]
    scale = alt.Scale(domain=[0, round_digits(1.2 * items[-1].bits)], nice=False)
    x = alt.X("value:Q", title="bits per byte (lower is better)", scale=scale, axis=alt.Axis(tickCount=5), stack=None)
    y = SystemStyles([]).rows(alt, [item.name for item in items])
    colour = alt.Color(
        "model:N", scale=alt.Scale(domain=[True, False], range=[PALETTE[0], NEUTRAL_COLOUR]), legend=None
    )
    tips = [alt.Tooltip("system:N", title="model"), alt.Tooltip("value:Q", title="bits per byte", format=".3f")]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_bar(height={"band": 0.66}).encode(x=x, y=y, color=colour, tooltip=tips),
        chart.mark_text(style="words", align="left", dx=5).encode(x=x, y=y, text="label:N"),
    ]
    values = join_with_and([f"{item.name} {item.bits:.3f}" for item in items])
    caption = join_sentence("bits per byte of documents that no model was trained on", "grey bars are compressors")
    return ChartDraft([make_panel("", layers, 22 * len(rows) + 4, wide=False)], f"Bits per byte: {values}.", caption)
