"""Page of judged samples: charts, sections, and the data embedded in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.core.samples import ANSWER, REFERENCE, Sample, Verdicts
from ragauge.core.text import one_line
from ragauge.judging import report, report_formats
from ragauge.judging.report import ClaimState, MeasureSummary, find_claim_states, format_confidence, summarise_measures
from ragauge.judging.results import JudgedSamples
from ragauge.output import page
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import (
    ChartDraft,
    ChartPanel,
    ChartRows,
    import_altair,
    join_sentence,
    make_panel,
    round_digits,
)
from ragauge.output.page import Cell, PageSection, PageTable, render_page
from ragauge.output.report import Chart
from ragauge.output.tables import TextTable

BAR_WIDTH = 0.1
"""Width of a histogram bar, in units of the score."""
PANEL_HEIGHT_PX = 120
BAR_GAP = 0.003
"""Half of the gap between two bars, in units of the score."""


def draw_judged(judged: JudgedSamples) -> dict[str, Chart]:
    """Draw all charts for which there is enough data."""
    sketch = sketch_score_distribution(judged)
    if sketch is None:
        return {}
    return {"spread": Chart("How values are spread", sketch.caption, sketch.alt, sketch.panels)}


def sketch_score_distribution(judged: JudgedSamples) -> ChartDraft | None:
    """Sketch the distribution of scores of each measure; None without scored samples."""
    panels, said = [], []
    for one in summarise_measures(judged):
        values = judged.scores.values[one.measure]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        counts, edges = histogram_counts(values)
        panels.append(_distribution_panel(one, counts.tolist(), edges.tolist()))
        interval = (
            "" if math.isnan(one.low) else f" ({format_confidence(judged)} interval {one.low:.3f} to {one.high:.3f})"
        )
        said.append(f"{one.measure}: mean {one.mean:.3f}{interval}, {one.n} of {one.of} samples")
    if not panels:
        return None
    caption = join_sentence(
        "bars count the samples with values up to there: the last is above 0.9, with 1",
        "the line is the mean"
        + (f", and its {format_confidence(judged)} interval lies on the axis" if judged.intervals else ""),
        "what is unscored is in no bar",
    )
    return ChartDraft(panels, f"Values of samples: {'; '.join(said)}.", caption)


def histogram_counts(values: Floats) -> tuple[Ints, Floats]:
    """Count the scores in bars of width 0.1, from 0 or the lowest score to at least 1.

    >>> counts, edges = histogram_counts(np.array([0.0, 0.1, 0.95, 1.0]))
    >>> counts.tolist(), len(edges)
    ([2, 0, 0, 0, 0, 0, 0, 0, 0, 2], 11)
    """
    first = min(0, math.floor(round(float(values.min()) / BAR_WIDTH, 9)))
    last = max(10, math.ceil(round(float(values.max()) / BAR_WIDTH, 9)))
    edges = np.round(np.arange(first, last + 1) * BAR_WIDTH, 9)
    # A value on an edge belongs to the bar below it; the lowest value belongs to the first bar.
    places = np.clip(np.ceil(np.round(values / BAR_WIDTH, 9)).astype(int) - first - 1, 0, last - first - 1)
    return np.bincount(places, minlength=last - first), edges


def _distribution_panel(one: MeasureSummary, counts: list[int], edges: list[float]) -> ChartPanel:
    alt = import_altair()
    rows: ChartRows = [
        {"from": low, "to": high, "count": count, "start": round(low + BAR_GAP, 6), "end": round(high - BAR_GAP, 6)}
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
        if count
    ]
    scale = alt.Scale(domain=[edges[0], edges[-1]], nice=False)
    ticks = (
        [edges[0], *(e for e in edges[1:-1] if round(e * 10) % 2 == 0), edges[-1]] if len(edges) < 15 else [-1, 0, 1]
    )
    axis = alt.Axis(values=ticks, format=".1f", grid=False)
    x = alt.X("start:Q", title=None, scale=scale, axis=axis)
    most = max(counts)
    tall = alt.Axis(values=sorted({0, round(most / 2), most}), format=",d")
    y = alt.Y("count:Q", title="samples", axis=tall, scale=alt.Scale(domain=[0, most], nice=False), stack=None)
    tips = [
        alt.Tooltip("from:Q", title="above", format=".1f"),
        alt.Tooltip("to:Q", title="up to", format=".1f"),
        alt.Tooltip("count:Q", title="samples", format=","),
    ]
    chart = alt.Chart(alt.Data(values=rows))
    layers = [
        chart.mark_rect(color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1).encode(
            x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=tips
        )
    ]
    mean = alt.Chart(
        alt.Data(
            values=[{"mean": round_digits(one.mean), "low": round_digits(one.low), "high": round_digits(one.high)}]
        )
    )
    layers.append(mean.mark_rule(style="guide", strokeWidth=2, strokeDash=[4, 3]).encode(x=alt.X("mean:Q", title=None)))
    if not math.isnan(one.low):
        band = mean.mark_rule(style="guide", strokeWidth=4, clip=True).encode(
            x=alt.X("low:Q", title=None), x2="high:Q", y=alt.value(PANEL_HEIGHT_PX - 2)
        )
        layers.append(band)
    return make_panel(f"{one.measure}: {one.mean:.3f}", layers, PANEL_HEIGHT_PX, wide=False)


MAX_CHUNK_CHARS_TOTAL = 12_000_000
"""Maximum total size of chunks in characters; beyond it, better samples come without chunks."""
MAX_TEXT_CHARS = 4_000
"""Maximum length of one text in characters."""


def build_values_payload(judged: JudgedSamples) -> dict[str, Any]:
    """Build the columns of questions, answers, scores and reasons by sample."""
    scores = judged.scores
    known = {one.id: one for one in judged.samples}
    ids = list(scores.queries)
    samples = [known.get(query, Sample(query)) for query in ids]
    said = [judged.verdicts.get(query) for query in ids]
    states = [
        [one.state for one in find_claim_states(verdicts, ANSWER, nothing=sample.contexts == ())]
        for sample, verdicts in zip(samples, said, strict=True)
    ]
    return {
        "ids": ids,
        "questions": [clip_text(one.question) for one in samples],
        "answers": [clip_text(one.answer or "") for one in samples],
        "values": [_rounded_values(scores.values[name].tolist()) for name in scores.measures],
        "why": [
            {str(i): scores.unscored[name][query] for i, query in enumerate(ids) if query in scores.unscored[name]}
            for name in scores.measures
        ],
        "contradicted": [some.count("contradicted") for some in states],
        "absent": [some.count("absent") for some in states],
        "unread": [0 if one is None else len(one.unscored) for one in said],
    }


def _rounded_values(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 6) for value in values]


def build_details_payload(judged: JudgedSamples) -> dict[str, Any]:
    """Build the details of each sample.

    A chunk shared by several samples is stored once.
    """
    known = {one.id: one for one in judged.samples}
    texts: dict[str, int] = {}
    found: list[Any] = [None] * len(judged.scores.queries)
    left = MAX_CHUNK_CHARS_TOTAL
    for i in _order_worst_first(judged):
        query = judged.scores.queries[i]
        sample = known.get(query, Sample(query))
        chunks = []
        for place, text in enumerate(sample.contexts or ()):
            name = sample.context_ids[place] if place < len(sample.context_ids) else ""
            short = clip_text(text)
            if short not in texts and len(short) <= left:
                left -= len(short)
                texts[short] = len(texts)
            chunks.append([f"k{place + 1}", name, texts.get(short, -1)])
        found[i] = _sample_details(sample, judged.verdicts.get(query), chunks)
    return {"texts": list(texts), "samples": found}


def _order_worst_first(judged: JudgedSamples) -> list[int]:
    """Return sample positions, unscored first, then worst to best.

    Sorted by the first measure.
    """
    scores = judged.scores
    if not scores.measures:
        return list(range(len(scores.queries)))
    column = scores.values[scores.measures[0]]
    worse = -column if scores.measures[0] in scores.lower_is_better else column
    return [int(i) for i in np.argsort(np.where(np.isnan(worse), -np.inf, worse), kind="stable")]


def _sample_details(sample: Sample, said: Verdicts | None, chunks: list[Any]) -> dict[str, Any]:
    detail: dict[str, Any] = {"chunks": chunks, "given": sample.contexts is not None}
    more: dict[str, Any] = {
        "reference": None if sample.reference is None else clip_text(sample.reference),
        "history": [clip_text(one) for one in sample.history],
        "labels": dict(sample.labels),
        "metadata": {str(name): clip_text(_metadata_text(value)) for name, value in sample.metadata.items()},
    }
    if said is not None:
        more |= {
            "asked": list(said.asked),
            "answer_claims": [
                _claim_row(one) for one in find_claim_states(said, ANSWER, nothing=sample.contexts == ())
            ],
            "reference_claims": [
                _claim_row(one) for one in find_claim_states(said, REFERENCE, nothing=sample.contexts == ())
            ],
            "useful": {
                chunk: [one.useful, clip_text(one.words), one.probability] for chunk, one in said.useful.items()
            },
            "questions": [[clip_text(one.text), _rounded_number(one.similarity)] for one in said.questions],
            "refusal": said.refusal,
            "left_out": {text: [clip_text(one) for one in listed] for text, listed in said.left_out.items()},
            "unscored": [[what, clip_text(one.why), clip_text(one.reply)] for what, one in said.unscored.items()],
        }
    return detail | {name: one for name, one in more.items() if one is not None and one not in ([], {})}


def _claim_row(one: ClaimState) -> list[Any]:
    said = one.support
    told: list[Any] = [[], [], [], "", None]
    if said is not None:
        sources = [list(some) for some in (said.by, said.together, said.against)]
        told = [*sources, clip_text(said.words), _rounded_number(said.probability)]
    return [one.id, clip_text(one.text), one.sentence, one.state, *told, clip_text(one.why)]


def _rounded_number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _metadata_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_metadata_text(one)}" for name, one in value.items())
    return ", ".join(map(_metadata_text, value)) if isinstance(value, list | tuple) else str(value)


def clip_text(text: str) -> str:
    """Truncate a text to the maximum length.

    >>> clip_text("short"), len(clip_text("long" * 2000))
    ('short', 4000)
    """
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


class MeasureCard(NamedTuple):
    """Summary card of one measure."""

    name: str
    value: str
    interval: str
    scored: str
    tone: str


def render_judged_page(judged: JudgedSamples, vega: str | None = None) -> str:
    """Render the page; `vega` is the script bundle if it is already loaded."""
    charts = draw_judged(judged)
    middle = [
        PageSection("spread", "How values are spread", "Spread", charts),
        PageSection("unscored", "Unscored, and why", "Unscored", grids=[_rows_to_sheet(report.unscored_table(judged))]),
        PageSection("took", "What it took", "Cost", grids=[_rows_to_sheet(report.cost_table(judged))]),
        PageSection(
            "robustness",
            "Robustness",
            "Robustness",
            grids=[
                one
                for one in (_rows_to_sheet(_injection_rows(judged)), _successful_injections_sheet(judged))
                if one.rows
            ],
            text="Texts that try to talk the judge into a verdict, and whether they did.",
        ),
    ]
    middle = [one for one in middle if one.charts or any(sheet.rows for sheet in one.grids)]
    about = {
        "measures": judged.scores.measures,
        "lower": [one in judged.scores.lower_is_better for one in judged.scores.measures],
    }
    blocks = {"values": build_values_payload(judged), "details": build_details_payload(judged)}
    return render_page(
        "judged.html",
        {
            "title": judged.name,
            "kind": "judge",
            "made": report.judging_date(judged),
            "sections": [
                *middle,
                PageSection("samples", "Samples", "Samples"),
                PageSection("again", "Circumstances", "Circumstances"),
            ],
            "about": [*report.judged_facts(judged), *filter(None, [report.judging_date(judged)[:10]])],
            "headline": report.summarise_judged(judged),
            "who": report.describe_judge(judged),
            "lexical": judged.lexical,
            "stopped": judged.stopped,
            "cards": [_measure_card(judged, one) for one in report.summarise_measures(judged)],
            "chart_sections": middle,
            "measures": judged.scores.measures,
            "circumstances": _provenance_sheet(judged),
            "notes": [one for one in report_formats.judged_notes(judged) if not one.startswith("the lexical judge")],
        },
        charts,
        {"about": about},
        {name: page.compress_json(one) for name, one in blocks.items()},
        vega=vega,
        own="judged",
    )


def _measure_card(judged: JudgedSamples, one: report.MeasureSummary) -> MeasureCard:
    interval = "" if math.isnan(one.low) else f"{one.low:.3f} to {one.high:.3f} ({report.format_confidence(judged)})"
    lower = "less is better; " if one.lower else ""
    return MeasureCard(
        one.measure,
        "no value" if math.isnan(one.mean) else f"{one.mean:.3f}",
        interval or "no interval",
        f"{lower}{one.n:,} of {one.of:,} scored" + (f", {one.unscored:,} unscored" if one.unscored else ""),
        "doubt" if one.unscored else "",
    )


def _injection_rows(judged: JudgedSamples) -> TextTable:
    return report.robustness_table(judged.robustness)._replace(title="")


def _successful_injections_sheet(judged: JudgedSamples) -> PageTable:
    """Build the sheet of successful prompt injections, narrow for small screens."""
    part = report.successful_injections_table(judged.robustness)
    rows: list[list[str | Cell]] = [
        [Cell(case, f"{step}, in the {where}"), *verdicts] for case, step, where, *verdicts in part.rows
    ]
    return PageTable([part.header[0], *part.header[3:]], rows, part.title, numbers=False)


def _rows_to_sheet(part: TextTable) -> PageTable:
    return PageTable(part.header, part.rows, numbers=part.numbers)


def _provenance_sheet(judged: JudgedSamples) -> PageTable:
    facts: dict[str, Any] = {
        "samples": f"{len(judged.samples):,}",
        "convention": judged.scores.convention,
        **judged.identity,
        **judged.circumstances,
    }
    rows = [
        [str(name).replace("_", " "), _format_fact(value)]
        for name, value in facts.items()
        if value not in (None, "", {})
    ]
    return PageTable(["", ""], rows, numbers=False)


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_fact(one)}" for key, one in value.items())
    return ", ".join(map(_format_fact, value)) if isinstance(value, list | tuple) else one_line(str(value))
