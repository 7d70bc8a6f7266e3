"""Data embedded in the page of judged samples: scores of every sample, then all details."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.core.samples import ANSWER, REFERENCE, Sample, Verdicts
from ragauge.core.text import one_line
from ragauge.judging import report
from ragauge.judging import report as words
from ragauge.judging import report_formats as reports
from ragauge.judging.report import Figure, Standing, confidence, figures, standings
from ragauge.judging.results import Judged
from ragauge.output import page as output_page
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartRows, Panel, Sketch, altair, figure, panel, sentence
from ragauge.output.page import Cell, Section, Sheet, document
from ragauge.output.report import Drawing
from ragauge.output.tables import Rows

WIDTH = 0.1
"""Width of a histogram bar, in units of the score."""
HEIGHT = 120
GAP = 0.003
"""Half of the gap between two bars, in units of the score."""


def drawn(judged: Judged) -> dict[str, Drawing]:
    """Draw all charts for which there is enough data."""
    sketch = spread(judged)
    if sketch is None:
        return {}
    return {"spread": Drawing("How values are spread", sketch.caption, sketch.alt, sketch.panels)}


def spread(judged: Judged) -> Sketch | None:
    """Sketch the distribution of scores of each measure; None without scored samples."""
    panels, said = [], []
    for one in figures(judged):
        values = judged.scores.values[one.measure]
        values = values[~np.isnan(values)]
        if not len(values):
            continue
        counts, edges = bars(values)
        panels.append(_panel(one, counts.tolist(), edges.tolist()))
        interval = "" if math.isnan(one.low) else f" ({confidence(judged)} interval {one.low:.3f} to {one.high:.3f})"
        said.append(f"{one.measure}: mean {one.mean:.3f}{interval}, {one.n} of {one.of} samples")
    if not panels:
        return None
    caption = sentence(
        "bars count the samples with values up to there: the last is above 0.9, with 1",
        "the line is the mean"
        + (f", and its {confidence(judged)} interval lies on the axis" if judged.intervals else ""),
        "what is unscored is in no bar",
    )
    return Sketch(panels, f"Values of samples: {'; '.join(said)}.", caption)


def bars(values: Floats) -> tuple[Ints, Floats]:
    """Count the scores in bars of width 0.1, from 0 or the lowest score to at least 1.

    >>> counts, edges = bars(np.array([0.0, 0.1, 0.95, 1.0]))
    >>> counts.tolist(), len(edges)
    ([2, 0, 0, 0, 0, 0, 0, 0, 0, 2], 11)
    """
    first = min(0, math.floor(round(float(values.min()) / WIDTH, 9)))
    last = max(10, math.ceil(round(float(values.max()) / WIDTH, 9)))
    edges = np.round(np.arange(first, last + 1) * WIDTH, 9)
    # A value on an edge belongs to the bar below it; the lowest value belongs to the first bar.
    places = np.clip(np.ceil(np.round(values / WIDTH, 9)).astype(int) - first - 1, 0, last - first - 1)
    return np.bincount(places, minlength=last - first), edges


def _panel(one: Figure, counts: list[int], edges: list[float]) -> Panel:
    alt = altair()
    rows: ChartRows = [
        {"from": low, "to": high, "count": count, "start": round(low + GAP, 6), "end": round(high - GAP, 6)}
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
    mean = alt.Chart(alt.Data(values=[{"mean": figure(one.mean), "low": figure(one.low), "high": figure(one.high)}]))
    layers.append(mean.mark_rule(style="guide", strokeWidth=2, strokeDash=[4, 3]).encode(x=alt.X("mean:Q", title=None)))
    if not math.isnan(one.low):
        band = mean.mark_rule(style="guide", strokeWidth=4, clip=True).encode(
            x=alt.X("low:Q", title=None), x2="high:Q", y=alt.value(HEIGHT - 2)
        )
        layers.append(band)
    return panel(f"{one.measure}: {one.mean:.3f}", layers, HEIGHT, wide=False)


MOST_CHARACTERS = 12_000_000
"""Maximum total size of chunks in characters; beyond it, better samples come without chunks."""
LONGEST = 4_000
"""Maximum length of one text in characters."""


def values(judged: Judged) -> dict[str, Any]:
    """Build the columns of questions, answers, scores and reasons by sample."""
    scores = judged.scores
    known = {one.id: one for one in judged.samples}
    ids = list(scores.queries)
    samples = [known.get(query, Sample(query)) for query in ids]
    said = [judged.verdicts.get(query) for query in ids]
    states = [
        [one.state for one in standings(verdicts, ANSWER, nothing=sample.contexts == ())]
        for sample, verdicts in zip(samples, said, strict=True)
    ]
    return {
        "ids": ids,
        "questions": [clipped(one.question) for one in samples],
        "answers": [clipped(one.answer or "") for one in samples],
        "values": [_column(scores.values[name].tolist()) for name in scores.measures],
        "why": [
            {str(i): scores.unscored[name][query] for i, query in enumerate(ids) if query in scores.unscored[name]}
            for name in scores.measures
        ],
        "contradicted": [some.count("contradicted") for some in states],
        "absent": [some.count("absent") for some in states],
        "unread": [0 if one is None else len(one.unscored) for one in said],
    }


def _column(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else round(value, 6) for value in values]


def details(judged: Judged) -> dict[str, Any]:
    """Build the details of each sample.

    A chunk shared by several samples is stored once.
    """
    known = {one.id: one for one in judged.samples}
    texts: dict[str, int] = {}
    found: list[Any] = [None] * len(judged.scores.queries)
    left = MOST_CHARACTERS
    for i in _worst_first(judged):
        query = judged.scores.queries[i]
        sample = known.get(query, Sample(query))
        chunks = []
        for place, text in enumerate(sample.contexts or ()):
            name = sample.context_ids[place] if place < len(sample.context_ids) else ""
            short = clipped(text)
            if short not in texts and len(short) <= left:
                left -= len(short)
                texts[short] = len(texts)
            chunks.append([f"k{place + 1}", name, texts.get(short, -1)])
        found[i] = _detail(sample, judged.verdicts.get(query), chunks)
    return {"texts": list(texts), "samples": found}


def _worst_first(judged: Judged) -> list[int]:
    """Return sample positions, unscored first, then worst to best.

    Sorted by the first measure.
    """
    scores = judged.scores
    if not scores.measures:
        return list(range(len(scores.queries)))
    column = scores.values[scores.measures[0]]
    worse = -column if scores.measures[0] in scores.lower_is_better else column
    return [int(i) for i in np.argsort(np.where(np.isnan(worse), -np.inf, worse), kind="stable")]


def _detail(sample: Sample, said: Verdicts | None, chunks: list[Any]) -> dict[str, Any]:
    detail: dict[str, Any] = {"chunks": chunks, "given": sample.contexts is not None}
    more: dict[str, Any] = {
        "reference": None if sample.reference is None else clipped(sample.reference),
        "history": [clipped(one) for one in sample.history],
        "labels": dict(sample.labels),
        "metadata": {str(name): clipped(_verdict_data(value)) for name, value in sample.metadata.items()},
    }
    if said is not None:
        more |= {
            "asked": list(said.asked),
            "answer_claims": [_claim(one) for one in standings(said, ANSWER, nothing=sample.contexts == ())],
            "reference_claims": [_claim(one) for one in standings(said, REFERENCE, nothing=sample.contexts == ())],
            "useful": {chunk: [one.useful, clipped(one.words), one.probability] for chunk, one in said.useful.items()},
            "questions": [[clipped(one.text), _number(one.similarity)] for one in said.questions],
            "refusal": said.refusal,
            "left_out": {text: [clipped(one) for one in listed] for text, listed in said.left_out.items()},
            "unscored": [[what, clipped(one.why), clipped(one.reply)] for what, one in said.unscored.items()],
        }
    return detail | {name: one for name, one in more.items() if one is not None and one not in ([], {})}


def _claim(one: Standing) -> list[Any]:
    said = one.support
    told: list[Any] = [[], [], [], "", None]
    if said is not None:
        sources = [list(some) for some in (said.by, said.together, said.against)]
        told = [*sources, clipped(said.words), _number(said.probability)]
    return [one.id, clipped(one.text), one.sentence, one.state, *told, clipped(one.why)]


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)


def _verdict_data(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_verdict_data(one)}" for name, one in value.items())
    return ", ".join(map(_verdict_data, value)) if isinstance(value, list | tuple) else str(value)


def clipped(text: str) -> str:
    """Truncate a text to the maximum length.

    >>> clipped("short"), len(clipped("long" * 2000))
    ('short', 4000)
    """
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


class Card(NamedTuple):
    """Summary card of one measure."""

    name: str
    value: str
    interval: str
    scored: str
    tone: str


def page(judged: Judged, vega: str | None = None) -> str:
    """Render the page; `vega` is the script bundle if it is already loaded."""
    charts = drawn(judged)
    middle = [
        Section("spread", "How values are spread", "Spread", charts),
        Section("unscored", "Unscored, and why", "Unscored", grids=[_sheet(report.unscored(judged))]),
        Section("took", "What it took", "Cost", grids=[_sheet(report.ledger(judged))]),
        Section(
            "robustness",
            "Robustness",
            "Robustness",
            grids=[one for one in (_sheet(_canaries(judged)), _moved(judged)) if one.rows],
            text="Texts that try to talk the judge into a verdict, and whether they did.",
        ),
    ]
    middle = [one for one in middle if one.charts or any(sheet.rows for sheet in one.grids)]
    about = {
        "measures": judged.scores.measures,
        "lower": [one in judged.scores.lower_is_better for one in judged.scores.measures],
    }
    blocks = {"values": values(judged), "details": details(judged)}
    return document(
        "judged.html",
        {
            "title": judged.name,
            "kind": "judge",
            "made": words.made(judged),
            "sections": [
                *middle,
                Section("samples", "Samples", "Samples"),
                Section("again", "Circumstances", "Circumstances"),
            ],
            "about": [*words.about(judged), *filter(None, [words.made(judged)[:10]])],
            "headline": words.headline(judged),
            "who": words.who(judged),
            "lexical": judged.lexical,
            "stopped": judged.stopped,
            "cards": [_card(judged, one) for one in words.figures(judged)],
            "chart_sections": middle,
            "measures": judged.scores.measures,
            "circumstances": _circumstances(judged),
            "notes": [one for one in reports.notes(judged) if not one.startswith("the lexical judge")],
        },
        charts,
        {"about": about},
        {name: output_page.packed(one) for name, one in blocks.items()},
        vega=vega,
        own="judged",
    )


def _card(judged: Judged, one: words.Figure) -> Card:
    interval = "" if math.isnan(one.low) else f"{one.low:.3f} to {one.high:.3f} ({words.confidence(judged)})"
    lower = "less is better; " if one.lower else ""
    return Card(
        one.measure,
        "no value" if math.isnan(one.mean) else f"{one.mean:.3f}",
        interval or "no interval",
        f"{lower}{one.n:,} of {one.of:,} scored" + (f", {one.unscored:,} unscored" if one.unscored else ""),
        "doubt" if one.unscored else "",
    )


def _canaries(judged: Judged) -> Rows:
    return report.robustness(judged.robustness)._replace(title="")


def _moved(judged: Judged) -> Sheet:
    """Build the sheet of successful prompt injections, narrow for small screens."""
    part = report.moved(judged.robustness)
    rows: list[list[str | Cell]] = [
        [Cell(case, f"{step}, in the {where}"), *verdicts] for case, step, where, *verdicts in part.rows
    ]
    return Sheet([part.header[0], *part.header[3:]], rows, part.title, numbers=False)


def _sheet(part: Rows) -> Sheet:
    return Sheet(part.header, part.rows, numbers=part.numbers)


def _circumstances(judged: Judged) -> Sheet:
    facts: dict[str, Any] = {
        "samples": f"{len(judged.samples):,}",
        "convention": judged.scores.convention,
        **judged.identity,
        **judged.circumstances,
    }
    rows = [
        [str(name).replace("_", " "), _provenance_rows(value)]
        for name, value in facts.items()
        if value not in (None, "", {})
    ]
    return Sheet(["", ""], rows, numbers=False)


def _provenance_rows(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_provenance_rows(one)}" for key, one in value.items())
    return ", ".join(map(_provenance_rows, value)) if isinstance(value, list | tuple) else one_line(str(value))
