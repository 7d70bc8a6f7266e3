"""Report of novelty: documents, their claims, and their nearest known passages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ragauge.core.text import one_line
from ragauge.knowledge.novelty.charts import build_charts
from ragauge.knowledge.novelty.results import (
    CONTAINED_SHARE,
    NEAR_PERCENTILE,
    DocumentClaim,
    DocumentNovelty,
    NearestChunk,
    Novelty,
)
from ragauge.output.numbers import pluralise
from ragauge.output.report import Block, Charts, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table

CLAIM_STATES = ("new", "known", "conflicting", "unscored")
CLAIM_TABLE_TITLES = {
    "conflicting": "Claims that a known document contradicts",
    "new": "Claims that no known document supports",
}
MAX_ROWS_SHOWN = 10
"""Maximum number of documents and claims shown at either end of a table."""
MAX_PASSAGES_SHOWN = 3
MAX_PASSAGE_CHARS = 240
"""Maximum number of characters of a passage."""


def build_report(result: Novelty) -> Report:
    overlap = f", overlapping by up to {result.chunking.overlap:,}" if result.chunking.overlap else ""
    subject = [
        pluralise(len(result.documents), "document"),
        f"{pluralise(result.known, 'known document')} in {pluralise(result.known_chunks, 'chunk')}",
        f"chunks of at most {result.chunking.size:,} {result.chunking.unit}{overlap}",
        result.embedder,
    ]
    if result.judge:
        subject.append(f"judge {result.judge}")
    sections = [
        _documents_section(result),
        _claims_section(result),
        _passages_section(result),
        _undefined_section(result),
    ]
    return Report(
        "novelty",
        "Novelty",
        summarise_novelty(result),
        [section for section in sections if section.blocks],
        subject,
        _define_states(result),
        notes=result.notes,
        provenance=result.provenance,
    )


def summarise_novelty(result: Novelty) -> str:
    """Summarise the result in one sentence.

    >>> from ragauge.knowledge.novelty.results import ChunkSettings
    >>> first = DocumentNovelty("a", 1, 0.4, 0.4, 0.9, percentile=70.0, claims=[DocumentClaim("x", "new"),
    ...     DocumentClaim("y", "known")])
    >>> second = DocumentNovelty("b", 1, 0.0, 0.0, 0.0, percentile=0.0, contained=1.0)
    >>> summarise_novelty(Novelty([first, second], 9, 9, "words", ChunkSettings(1000)))
    '1 of 2 documents is new, 1 is contained in a known document; of 2 claims, 1 is new and 1 is known.'
    """
    text = _summarise_documents(result)
    claims = Counter(claim.state for document in result.documents for claim in document.claims)
    if claims:
        counts = [f"{claims[state]:,} {_is_or_are(claims[state])} {state}" for state in CLAIM_STATES if claims[state]]
        joined = " and ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))
        text += f"; of {pluralise(claims.total(), 'claim')}, {joined}"
    return f"{text}."


def _summarise_documents(result: Novelty) -> str:
    states = Counter(document.state for document in result.documents)
    means = [document.mean for document in result.documents if not math.isnan(document.mean)]
    contained = f", {states['contained']:,} {_is_or_are(states['contained'])} contained in a known document"
    if not means:
        return "The novelty of no document can be computed"
    if states["new"] + states["near"] == 0 and states["contained"] < len(means):
        text = f"The mean novelty of {pluralise(len(means), 'document')} is {sum(means) / len(means):.3f}"
        return text + (contained if states["contained"] else "")
    text = f"{states['new']:,} of {pluralise(len(result.documents), 'document')} {_is_or_are(states['new'])} new"
    if states["near"]:
        text += f", {states['near']:,} {_is_or_are(states['near'])} near a known document"
    text += contained if states["contained"] else ""
    return text + (f", {states['']:,} cannot be scored" if states[""] else "")


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _define_states(result: Novelty) -> list[str]:
    """Define the states that the summary names."""
    states = {document.state for document in result.documents}
    definitions = []
    if states & {"new", "near"}:
        reference = f"{result.reference_documents:,} known documents ({pluralise(result.reference_chunks, 'chunk')})"
        share = f"{100 - NEAR_PERCENTILE:.0f}%"
        definitions.append(f"Near: more similar to a known document than {share} of {reference} are to the others.")
    if "contained" in states:
        definitions.append(f"Contained: one known document has at least {CONTAINED_SHARE:.0%} of its 3-word shingles.")
    return definitions


def _documents_section(result: Novelty) -> Section:
    ordered = sorted(result.documents, key=lambda document: (math.isnan(document.mean), -document.mean))
    charts = Charts(lambda: build_charts(result))
    if len(ordered) <= 2 * MAX_ROWS_SHOWN:
        return Section("documents", "Documents, most novel first", [_documents_table(ordered), charts], "Documents")
    blocks: list[Block] = [
        _documents_table(ordered[:MAX_ROWS_SHOWN], f"The {MAX_ROWS_SHOWN} most novel documents"),
        _documents_table(ordered[-MAX_ROWS_SHOWN:], f"The {MAX_ROWS_SHOWN} least novel documents"),
        charts,
        replace(_documents_table(ordered, f"All {len(ordered):,} documents"), collapsed=True),
    ]
    return Section("documents", "Documents", blocks, "Documents")


def _documents_table(documents: Sequence[DocumentNovelty], title: str = "") -> Table:
    """Build the table of documents; percentiles are left out if no document has one."""
    ranked = any(not math.isnan(document.percentile) for document in documents)
    rank_legend = "percentile of the value before it among known documents"
    columns = [
        Column("document", "name"),
        Column("mean", "statistic", legend="1 - the highest cosine with a known chunk, mean over the chunks"),
        Column("pct", "count", legend=rank_legend),
        Column("least", "statistic", drop_order=3, legend="1 - the highest cosine of any chunk"),
        Column("pct", "count", drop_order=2),
        Column("words", "statistic", legend="share of the 3-word shingles that no known document has"),
        Column("pct", "count", drop_order=4),
        Column("chunks", "count", drop_order=1),
        Column("state"),
        Column("nearest", "name", drop_order=5, legend="known document with the most similar chunk"),
    ]
    rows: list[Row] = []
    for document in documents:
        nearest = nearest_passage(document)
        rows.append(
            [
                document.id,
                *(document.mean, document.percentile),
                *(document.least, document.least_percentile),
                *(document.lexical, document.lexical_percentile),
                document.chunks,
                document.state or "-",
                nearest.document if nearest else "-",
            ]
        )
    column_indices = [i for i, column in enumerate(columns) if ranked or column.title != "pct"]
    selected: list[Row] = [[row[i] for i in column_indices] for row in rows]
    return Table("documents", [columns[i] for i in column_indices], selected, title)


def nearest_passage(document: DocumentNovelty) -> NearestChunk | None:
    """Return the chunk of a document that is most similar to a known one, or None."""
    compared = [chunk for chunk in document.nearest if not math.isnan(chunk.similarity)]
    return max(compared, key=lambda chunk: chunk.similarity) if compared else None


def _claims_section(result: Novelty) -> Section:
    judged = [document for document in result.documents if document.claims]
    claims = [(document.id, claim) for document in judged for claim in document.claims]
    if not claims:
        return Section("claims", "Claims", [])
    counts: list[Row] = []
    for document in judged[: 2 * MAX_ROWS_SHOWN]:
        states = Counter(claim.state for claim in document.claims)
        counts.append([document.id, *(states[state] for state in CLAIM_STATES)])
    columns = [Column("document", "name"), *(Column(state, "count") for state in CLAIM_STATES)]
    blocks: list[Block] = [Table("claim-counts", columns, counts, "Number of claims by document")]
    for state, title in CLAIM_TABLE_TITLES.items():
        selected = [(name, claim) for name, claim in claims if claim.state == state]
        if selected:
            blocks.append(_claims_table(selected[:MAX_ROWS_SHOWN], title))
    blocks.append(replace(_claims_table(claims, f"All {len(claims):,} claims"), collapsed=True))
    return Section("claims", "Claims", blocks, "Claims")


def _claims_table(claims: Sequence[tuple[str, DocumentClaim]], title: str) -> Table:
    columns = [
        Column("document", "name"),
        Column("claim"),
        Column("state"),
        Column("known documents", legend="documents that support or contradict the claim"),
        Column("reason"),
    ]
    rows = [
        [
            name,
            shorten_passage(claim.text),
            claim.state,
            ", ".join(claim.documents) or "-",
            shorten_passage(claim.reason),
        ]
        for name, claim in claims
    ]
    return Table("claims", columns, rows, title)


def _passages_section(result: Novelty) -> Section:
    """Pairs of passages, the most similar first."""
    pairs = []
    for document in result.documents:
        nearest = nearest_passage(document)
        if nearest is not None and nearest.known_text:
            pairs.append((document.id, nearest))
    pairs.sort(key=lambda pair: -pair[1].similarity)
    if not pairs:
        return Section("passages", "Nearest passages", [])
    blocks: list[Block] = [_passages_table(pairs[:MAX_PASSAGES_SHOWN])]
    if len(pairs) > MAX_PASSAGES_SHOWN:
        title = f"Nearest passages of all {len(pairs):,} documents"
        blocks.append(replace(_passages_table(pairs), title=title, collapsed=True))
    return Section("passages", "Nearest passages", blocks, "Passages")


def _passages_table(pairs: Sequence[tuple[str, NearestChunk]]) -> Table:
    columns = [
        Column("document", "name"),
        Column("passage"),
        Column("cosine"),  # without a column of numbers, a phone shows the cells of a row below each other
        Column("known document", "name"),
        Column("known passage"),
    ]
    rows: list[Row] = [
        [
            name,
            shorten_passage(chunk.text),
            Cell(chunk.similarity, "statistic"),
            chunk.document,
            shorten_passage(chunk.known_text),
        ]
        for name, chunk in pairs
    ]
    return Table("passages", columns, rows)


def shorten_passage(text: str) -> str:
    """Return a passage on one line, shortened to MAX_PASSAGE_CHARS."""
    line = one_line(text)
    return line if len(line) <= MAX_PASSAGE_CHARS else f"{line[: MAX_PASSAGE_CHARS - 1]}…"


def _undefined_section(result: Novelty) -> Section:
    rows = [[document.id, document.reason] for document in result.documents if document.reason]
    blocks = [Table("unscored", [Column("document", "name"), Column("reason")], rows)] if rows else []
    return Section("unscored", "Documents without a value", blocks, "Unscored")


def build_documents_table(result: Novelty) -> Table:
    """Build the table with one row per document, for CSV."""
    names = ["document", "chunks", "mean", "percentile", "least", "least_percentile", "lexical", "lexical_percentile"]
    names += ["contained", "container", "state", "nearest", *(f"{state}_claims" for state in CLAIM_STATES), "reason"]
    rows: list[Row] = []
    for document in result.documents:
        nearest, states = nearest_passage(document), Counter(claim.state for claim in document.claims)
        rows.append(
            [
                document.id,
                document.chunks,
                *(document.mean, document.percentile),
                *(document.least, document.least_percentile),
                *(document.lexical, document.lexical_percentile),
                *(document.contained, document.container),
                document.state,
                nearest.document if nearest else "",
                *(states[state] if document.claims else None for state in CLAIM_STATES),
                document.reason,
            ]
        )
    return Table("documents", [Column(name) for name in names], rows)


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per document", build_documents_table)})
