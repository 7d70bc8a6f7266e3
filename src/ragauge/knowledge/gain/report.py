"""Report of a gain: terms, changed queries and added documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ragauge.core.summaries import Estimate
from ragauge.core.text import one_line
from ragauge.knowledge.gain.charts import build_charts
from ragauge.knowledge.gain.results import AddedDocument, Gain, QueryChange
from ragauge.knowledge.gain.terms import NOVELTY
from ragauge.output.numbers import format_interval, format_number, format_p_value, join_names, pluralise
from ragauge.output.report import (
    Block,
    Charts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Cell, Column, Row, Table

MAX_ROWS_SHOWN = 8
"""Maximum number of documents and queries shown at either end of a table."""
MAX_TERMINAL_TEXT_CHARS = 30
"""Maximum number of characters of a query text on a terminal."""
MAX_TEXT_CHARS = 240
"""Maximum number of characters of a query text in other formats."""
MAX_DOCUMENTS_NAMED = 3
"""Maximum number of documents named in a cell."""


def build_report(result: Gain) -> Report:
    added = [f"{pluralise(result.added, 'document')} added"] if result.documents_known else []
    subject = [
        f"{result.before or 'before'} to {result.after or 'after'}",
        *added,
        f"{result.removed:,} removed" if result.removed else "",
        f"{result.changed:,} changed" if result.changed else "",
        pluralise(result.queries, "query") + (f" of {result.dataset}" if result.dataset else ""),
        result.system,
        f"judge {result.judge}" if result.judge else "",
        f"novelty by {result.embedder}" if result.embedder else "",
    ]
    sections = [_terms_section(result), _queries_section(result), _documents_section(result)]
    return Report(
        "gain",
        "Gain",
        summarise_gain(result),
        [section for section in sections if section.blocks],
        list(filter(None, subject)),
        notes=result.notes,
        provenance=result.provenance,
    )


def summarise_gain(result: Gain) -> str:
    """Summarise the result in one sentence.

    >>> summarise_gain(Gain(0.75, math.nan, math.nan, 0.95, [], 10, 2, 0, 0, 3, []))
    'Gain +0.7500: 0 queries gained, 0 lost, 3 did not change.'
    >>> summarise_gain(Gain(0.0, math.nan, math.nan, 0.95, [], 10, 2, 0, 0, 3, [QueryChange("q", "", 0.0, {})]))
    'Gain +0.0000: 0 queries gained, 0 lost, 1 changed without gain or loss, 2 did not change.'
    """
    if math.isnan(result.total):
        return "The gain cannot be computed: no term has a value."
    level = f"{result.confidence:.0%} CI"
    interval = "" if math.isnan(result.low) else f" ({level} {format_interval(result.low, result.high, 'signed')})"
    novelty = sum(
        term.weight * term.value for term in result.terms if term.name == NOVELTY and not math.isnan(term.value)
    )
    share = f", of which novelty {format_number(novelty, 'signed')}" if novelty else ""
    even = f"{len(result.even):,} changed without gain or loss, " if result.even else ""
    unchanged = result.queries - len(result.changed_queries)
    gained = f"{pluralise(len(result.gained), 'query')} gained, {len(result.lost):,} lost"
    total = f"Gain {format_number(result.total, 'signed')}{interval}{share}"
    return f"{total}: {gained}, {even}{unchanged:,} did not change."


def _terms_section(result: Gain) -> Section:
    level = f"{result.confidence:.0%}"
    columns = [
        Column("term", "name"),
        Column("weight", "statistic"),
        Column("before", "score", drop_order=1),
        Column("after", "score", drop_order=2),
        Column("change", "signed", legend=f"positive if better, with {level} confidence interval"),
        Column("weighted", "signed", legend="weight times change; the gain is their sum"),
        Column("n", "count", legend="number of queries; for novelty, of documents"),
    ]
    rows: list[Row] = []
    for term in result.terms:
        change = Estimate(term.value, term.low, term.high)
        rows.append([term.name, term.weight, term.before, term.after, change, term.weight * term.value, term.n or None])
    weight = sum(term.weight for term in result.terms if not math.isnan(term.value))
    total = Estimate(result.total, result.low, result.high)
    rows.append(["gain", weight, Cell("", "text"), Cell("", "text"), Cell("", "text"), total, Cell("", "text")])
    blocks: list[Block] = [Paragraph(text)] if (text := _describe_terms(result)) else []
    return Section("terms", "Terms", [*blocks, Table("terms", columns, rows)], "Terms")


def _describe_terms(result: Gain) -> str:
    """Describe the test of the change, depths, and undefined terms."""
    texts = []
    if not math.isnan(result.p):
        texts.append(f"Randomisation test of the gain of the queries: {format_p_value(result.p)}.")
    if result.terms_without_cutoff:
        texts.append(f"{join_names(result.terms_without_cutoff)}: computed on the first {result.k} documents.")
    texts += [f"{term.name} is undefined: {term.reason}." for term in result.terms if math.isnan(term.value)]
    return " ".join(texts)


def _queries_section(result: Gain) -> Section:
    changed = result.changed_queries
    if not changed:
        return Section("queries", "Changed queries", [])
    top_queries = [query for group in (result.gained, result.lost, result.even) for query in group[:MAX_ROWS_SHOWN]]
    charts = Charts(lambda: build_charts(result))
    if len(top_queries) == len(changed):
        return Section("queries", "Changed queries", [_queries_table(top_queries), charts], "Queries")
    everything = _queries_table(changed, f"All {len(changed):,} changed queries", MAX_TEXT_CHARS)
    blocks: list[Block] = [
        _queries_table(top_queries, f"The {MAX_ROWS_SHOWN} largest changes in each direction"),
        charts,
        replace(everything, collapsed=True),
    ]
    return Section("queries", "Changed queries", blocks, "Queries")


def _queries_table(
    queries: Sequence[QueryChange], title: str = "", max_text_chars: int = MAX_TERMINAL_TEXT_CHARS
) -> Table:
    columns = [
        Column("query", "name"),
        Column("gain"),  # without a column of numbers, a phone shows the cells of a row below each other
        Column("change by term", drop_order=1),
        Column("entered", legend="added documents in the top k"),
        Column("pushed out", legend="relevant documents that left the top k"),
        Column("text", drop_order=2),
    ]
    rows: list[Row] = []
    for query in queries:
        changes = [f"{name} {format_number(value, 'signed')}" for name, value in query.changes.items() if value]
        rows.append(
            [
                query.query,
                Cell(query.gain, "signed"),
                ", ".join(changes) or "-",
                join_names(query.entered, MAX_DOCUMENTS_NAMED) or "-",
                join_names(query.pushed_out, MAX_DOCUMENTS_NAMED) or "-",
                _shorten_text(query.text, max_text_chars),
            ]
        )
    return Table("queries", columns, rows, title)


def _shorten_text(text: str, max_chars: int) -> str:
    line = one_line(text)
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def _documents_section(result: Gain) -> Section:
    documents = result.documents
    if not documents:
        return Section("documents", "Added documents", [])
    if len(documents) <= MAX_ROWS_SHOWN:
        blocks: list[Block] = [_documents_table(result, documents)]
    else:
        everything = _documents_table(result, documents, f"All {len(documents):,} documents")
        title = f"The {MAX_ROWS_SHOWN} documents in the top {result.k} of most queries"
        blocks = [
            _documents_table(result, documents[:MAX_ROWS_SHOWN], title),
            replace(everything, collapsed=True),
        ]
    return Section("documents", "Added documents", blocks, "Documents")


def _documents_table(result: Gain, documents: Sequence[AddedDocument], title: str = "") -> Table:
    columns = [
        Column("document", "name"),
        Column("novelty", "statistic"),
        Column("relevant", "count", legend="queries to which it is judged relevant"),
        Column(f"top {result.k}", "count", legend=f"queries with it in the top {result.k}"),
    ]
    return Table("documents", columns, [list(document) for document in documents], title)


def build_rows_table(result: Gain) -> Table:
    """Build the table with one row per changed query, for CSV.

    The columns `gain_…` are changes by term, before weights.
    """
    terms = [term.name for term in result.terms if term.name != NOVELTY]
    rows: list[Row] = [
        [
            query.query,
            query.gain,
            *(query.changes.get(name) for name in terms),
            " ".join(query.entered),
            " ".join(query.pushed_out),
            query.text,
        ]
        for query in result.changed_queries
    ]
    names = ["query", "gain", *(f"gain_{name}" for name in terms), "entered", "pushed_out", "text"]
    return Table("queries", [Column(name) for name in names], rows)


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per changed query", build_rows_table)})
