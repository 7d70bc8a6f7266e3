"""Report of novelty: documents, their nearest known passages, and their claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragauge.core.text import one_line
from ragauge.knowledge.novelty.results import (
    NEAR_PERCENTILE,
    SAME_SIMILARITY,
    DocumentClaim,
    DocumentNovelty,
    NearestChunk,
    Novelty,
)
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartPanel, ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import count_noun, format_exact
from ragauge.output.report import Chart, Report, Section
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_csv_rows

NOVELTY_TITLES = {"mean": "by vectors, mean over chunks", "least": "by vectors, nearest chunk", "lexical": "by words"}
HISTOGRAM_BARS = 25
CHART_HEIGHT_PX = 140
MIN_KNOWN_FOR_CHART = 5
"""Minimum number of known documents for a chart."""
MAX_DOCUMENTS_MARKED = 200
"""Maximum number of new documents marked, evenly spaced; more would be a solid band."""
MAX_DOCUMENT_LINES = 25
"""Number of new documents up to which they are lines; more are short strokes below the bars."""


def build_charts(told: Novelty) -> dict[str, Chart]:
    """Build the chart, one panel per definition of novelty with enough data.

    Empty if there is none.
    """
    panels, said = [], []
    for kind, title in NOVELTY_TITLES.items():
        own = np.array(told.own.get(kind, ()))
        new = np.array([value for one in told.documents if not np.isnan(value := float(getattr(one, kind)))])
        if len(own) < MIN_KNOWN_FOR_CHART or not len(new):
            continue
        panels.append(
            _novelty_panel(
                title,
                own,
                np.sort(new)[:: -(-len(new) // MAX_DOCUMENTS_MARKED)],
                below=len(told.documents) > MAX_DOCUMENT_LINES,
            )
        )
        said.append(f"{title}: known {np.median(own):.3f}, new {np.median(new):.3f} in the middle")
    if not panels:
        return {}
    many = len(told.documents)
    mark = "line" if many <= MAX_DOCUMENT_LINES else "stroke below the bars"
    caption = join_sentence(
        "bars count known documents by how far each is from all others, 0 for a copy and 1 for nothing in common",
        f"every {mark} is a new document"
        + (f", at most {MAX_DOCUMENTS_MARKED} of {many:,} at even steps" if many > MAX_DOCUMENTS_MARKED else ""),
        "those left of most bars are nearer to what is known than known documents are to each other",
    )
    alt = f"Novelty of known documents among themselves, and of new ones: {'; '.join(said)}."
    return {"novelty": Chart("New documents among known ones", caption, alt, panels)}


def _novelty_panel(title: str, own: np.ndarray, new: np.ndarray, *, below: bool) -> ChartPanel:
    alt = import_altair()
    counts, edges = np.histogram(own, bins=HISTOGRAM_BARS, range=(0, 1))
    rows: ChartRows = [
        {"from": low, "to": high, "count": count, "start": round(low + 0.002, 6), "end": round(high - 0.002, 6)}
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        if count
    ]
    most = int(counts.max())
    x = alt.X(
        "start:Q",
        title=None,
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2f", grid=False),
    )
    y = alt.Y(
        "count:Q",
        title="known documents",
        axis=alt.Axis(values=sorted({0, round(most / 2), most}), format=",d"),
        scale=alt.Scale(domain=[-0.15 * most if below else 0, most], nice=False),
        stack=None,
    )
    tips = [
        alt.Tooltip("from:Q", title="from", format=".2f"),
        alt.Tooltip("to:Q", title="to", format=".2f"),
        alt.Tooltip("count:Q", title="known documents", format=","),
    ]
    bars = alt.Chart(alt.Data(values=rows)).mark_rect(
        color=PALETTE[0], opacity=0.6, stroke="transparent", strokeWidth=1
    )
    marks = alt.Chart(alt.Data(values=[{"at": round_digits(float(value))} for value in new]))
    place: dict[str, Any] = {"y": alt.datum(-0.03 * most), "y2": alt.datum(-0.13 * most)} if below else {}
    width, opacity = (1.0, 0.45) if below else (1.5, 0.8)
    layers = [
        bars.encode(x=x, x2="end:Q", y=y, y2=alt.datum(0), tooltip=tips),
        marks.mark_rule(color=PALETTE[1], strokeWidth=width, opacity=opacity, clip=True).encode(
            x=alt.X("at:Q", title=None),
            tooltip=[alt.Tooltip("at:Q", title="a new document", format=".3f")],
            **place,
        ),
    ]
    return make_panel(title, layers, CHART_HEIGHT_PX, wide=False)


CLAIM_STATES = ("new", "known", "conflicting", "unscored")
MAX_ROWS_SHOWN = 10
"""Maximum number of documents and claims shown at either end of a table."""
MAX_PASSAGE_CHARS = 240
"""Maximum number of characters of a passage."""


def build_report(told: Novelty) -> Report:
    """Build the report of novelty."""
    cut = f"chunks of at most {told.chunking.size:,} {told.chunking.unit}"
    cut += f" that share up to {told.chunking.overlap:,}" if told.chunking.overlap else ""
    about = [
        count_noun(len(told.documents), "document"),
        f"{count_noun(told.known, 'known document')} in {count_noun(told.known_chunks, 'chunk')}",
        cut,
        told.embedder,
        *([f"judged by {told.judge}"] if told.judge else []),
    ]
    parts = [*_document_sections(told), *_claim_sections(told), *_passage_sections(told)]
    unknown = [[one.id, one.why] for one in told.documents if one.why]
    if unknown:
        rows = TextTable("", ["document", "why"], unknown, numbers=False)
        parts.append(Section("unscored", "Documents of which nothing can be told", "Unscored", rows=[rows]))
    return Report(
        "novelty",
        "Novelty",
        about,
        summarise_novelty(told),
        parts,
        _state_definitions(told),
        told.notes,
        told.circumstances,
    )


def summarise_novelty(told: Novelty) -> str:
    """Summarise the result in one sentence.

    >>> from ragauge.knowledge.novelty.results import ChunkSettings as Chunking
    >>> one = DocumentNovelty("a", 1, 0.4, 0.4, 0.9, percentile=70.0, claims=[DocumentClaim("x", "new"),
    ...     DocumentClaim("y", "known")])
    >>> two = DocumentNovelty("b", 1, 0.0, 0.0, 0.0, percentile=0.0, contained=1.0)
    >>> summarise_novelty(Novelty([one, two], 9, 9, "words", Chunking(1000)))
    '1 of 2 documents is new, 1 is there already; of 2 claims 1 is new, 1 is known.'
    """
    states = Counter(one.state for one in told.documents)
    n = len(told.documents)
    known = [one.mean for one in told.documents if not math.isnan(one.mean)]
    if states["new"] + states["near"] == 0 and states["there"] < len(known):
        of = count_noun(len(known), "document")
        text = f"The novelty of {of} is {sum(known) / len(known):.3f} in the mean"
        if states["there"]:
            text += f", {states['there']:,} {'is' if states['there'] == 1 else 'are'} there already"
        if told.compared_documents:
            text += f"; too few known documents ({told.compared_documents:,}) to tell what is near"
    elif not known:
        text = "Nothing can be told"
    else:
        be = "is" if states["new"] == 1 else "are"
        text = f"{states['new']:,} of {count_noun(n, 'document')} {be} new"
        for state, words in (("near", "near to a known one"), ("there", "there already")):
            if states[state]:
                text += f", {states[state]:,} {'is' if states[state] == 1 else 'are'} {words}"
        text += f", of {states['']:,} nothing can be told" if states[""] else ""
    claims = Counter(claim.state for one in told.documents for claim in one.claims)
    if claims:
        parts = [f"{claims[one]:,} {'is' if claims[one] == 1 else 'are'} {one}" for one in CLAIM_STATES if claims[one]]
        text += f"; of {count_noun(claims.total(), 'claim')} {', '.join(parts)}"
    return f"{text}."


def _state_definitions(told: Novelty) -> list[str]:
    """Define the states named in the summary."""
    if all(not one.state for one in told.documents):
        return []
    of = f"{told.compared_documents:,} known documents ({count_noun(told.compared, 'chunk')})"
    ranked = any(one.state in ("new", "near") for one in told.documents)
    near = f"near: nearer than {100 - NEAR_PERCENTILE:.0f}% of {of} are to the others; " if ranked else ""
    return [f"{near}there: one known document has {SAME_SIMILARITY:.0%} of its words, three at a time."]


def _document_sections(told: Novelty) -> list[Section]:
    ordered = sorted(told.documents, key=lambda one: (math.isnan(one.mean), -one.mean))
    text = (
        "mean: 1 - the highest cosine, over its chunks; least: of its nearest chunk; words: the part of its words, "
        "three at a time, that is not known; %: where that is among known documents."
    )
    header = ["document", "mean", "%", "least", "%", "words", "%", "chunks", "state", "nearest"]
    rows = [_document_row(one) for one in ordered]
    goes = (7, 4, 3, 6, 9)
    charts = build_charts(told)
    if len(rows) <= 2 * MAX_ROWS_SHOWN:
        return [
            Section(
                "documents",
                "Documents, the newest first",
                "Documents",
                text,
                [TextTable("", header, rows, goes=goes)],
                charts,
            )
        ]
    return [
        Section(
            "documents",
            "Documents, the newest and the nearest",
            "Documents",
            text,
            [
                TextTable(f"The {MAX_ROWS_SHOWN} newest", header, rows[:MAX_ROWS_SHOWN], goes=goes),
                TextTable(f"The {MAX_ROWS_SHOWN} nearest", header, rows[-MAX_ROWS_SHOWN:], goes=goes),
            ],
            charts,
        ),
        Section(
            "all",
            f"All {len(rows):,} documents",
            "All documents",
            rows=[TextTable("", header, rows, goes=goes)],
            long=True,
        ),
    ]


def _document_row(one: DocumentNovelty) -> list[str]:
    pairs = ((one.mean, one.percentile), (one.least, one.least_percentile), (one.lexical, one.lexical_percentile))
    figures = [text for value, rank in pairs for text in (_format_value(value), _format_percentile(rank))]
    near = nearest_passage(one)
    return [one.id, *figures, f"{one.chunks:,}", one.state or "-", near.document if near else "-"]


def nearest_passage(one: DocumentNovelty) -> NearestChunk | None:
    """Return the chunk of a document that is most similar to a known one, or None."""
    found = [each for each in one.nearest if not math.isnan(each.similarity)]
    return max(found, key=lambda each: each.similarity) if found else None


def _format_value(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _format_percentile(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f}"


def _claim_sections(told: Novelty) -> list[Section]:
    claims = [(one.id, claim) for one in told.documents for claim in one.claims]
    if not claims:
        return []
    parts = []
    counts = [
        [one.id, *(f"{Counter(each.state for each in one.claims)[state]:,}" for state in CLAIM_STATES)]
        for one in told.documents
        if one.claims
    ]
    parts.append(
        Section(
            "claims",
            "Claims",
            "Claims",
            rows=[TextTable("", ["document", *CLAIM_STATES], counts[: 2 * MAX_ROWS_SHOWN])],
        )
    )
    for state, title in (("conflicting", "What known documents contradict"), ("new", "What no known document says")):
        mine = [(name, claim) for name, claim in claims if claim.state == state]
        if mine:
            parts.append(
                Section(state, title, f"{state} claims".capitalize(), rows=[_claims_table(mine[:MAX_ROWS_SHOWN])])
            )
    parts.append(
        Section("all-claims", f"All {len(claims):,} claims", "All claims", rows=[_claims_table(claims)], long=True)
    )
    return parts


def _claims_table(claims: Sequence[tuple[str, DocumentClaim]]) -> TextTable:
    rows = [
        [name, shorten_passage(claim.text), claim.state, ", ".join(claim.by) or "-", shorten_passage(claim.why)]
        for name, claim in claims
    ]
    return TextTable("", ["document", "claim", "state", "known from", "why"], rows, numbers=False)


def _passage_sections(told: Novelty) -> list[Section]:
    pairs = [(one.id, near) for one in told.documents if (near := nearest_passage(one)) and near.near]
    pairs.sort(key=lambda pair: -pair[1].similarity)
    if not pairs:
        return []
    title = "The nearest passages side by side"
    few = Section("passages", title, "Passages", rows=[_passages_table(pairs[:3])])
    if len(pairs) <= 3:
        return [few]
    return [
        few,
        Section("all-passages", f"{title}, of all documents", "All passages", rows=[_passages_table(pairs)], long=True),
    ]


def _passages_table(pairs: Sequence[tuple[str, NearestChunk]]) -> TextTable:
    rows = [
        [name, shorten_passage(near.text), f"{near.similarity:.3f}", near.document, shorten_passage(near.near)]
        for name, near in pairs
    ]
    return TextTable("", ["document", "it says", "cosine", "known", "it says"], rows, numbers=False)


def shorten_passage(text: str) -> str:
    """Return a passage on one line, cut to MAX_PASSAGE_CHARS."""
    line = one_line(text)
    return line if len(line) <= MAX_PASSAGE_CHARS else f"{line[: MAX_PASSAGE_CHARS - 1]}…"


def render_csv(told: Novelty) -> str:
    """Render one CSV row per document."""
    header = ["document", "chunks", "mean", "percentile", "least", "least_percentile", "lexical", "lexical_percentile"]
    header += ["contained", "container", "state", "nearest", *(f"{state}_claims" for state in CLAIM_STATES), "why"]
    rows = []
    for one in told.documents:
        near, states = nearest_passage(one), Counter(claim.state for claim in one.claims)
        figures = (one.mean, one.percentile, one.least, one.least_percentile, one.lexical, one.lexical_percentile)
        rows.append(
            [
                one.id,
                str(one.chunks),
                *(format_exact(value) for value in (*figures, one.contained)),
                one.container,
                one.state,
                near.document if near else "",
                *(str(states[state]) if one.claims else "" for state in CLAIM_STATES),
                one.why,
            ]
        )
    return render_csv_rows(header, rows)
