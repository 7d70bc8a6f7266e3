"""Report of a gain: terms, queries, contributions of documents, and the best batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ragauge.core.summaries import Estimate
from ragauge.core.text import one_line
from ragauge.knowledge.gain.charts import build_charts
from ragauge.knowledge.gain.results import DocumentContribution, Gain, QueryChange
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
    select_charts,
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
ATTRIBUTION_TEXTS = {
    "rebuilt": "the system was rebuilt without each document",
    "dropped": "each document was left out of a deeper ranking",
    "none": "not computed",
}


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
    sections = [
        _terms_section(result),
        _queries_section(result),
        _documents_section(result),
        _harm_section(result),
        _batch_section(result),
    ]
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
    charts = Charts(select_charts(lambda: build_charts(result), "queries"))
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
    if not result.documents:
        return Section("documents", "Contributions of documents", [])
    documents = result.documents
    if len(documents) <= 2 * MAX_ROWS_SHOWN:
        blocks: list[Block] = [_documents_table(result, documents)]
    else:
        everything = _documents_table(result, documents, f"All {len(documents):,} documents")
        blocks = [
            _documents_table(result, documents[:MAX_ROWS_SHOWN], f"The {MAX_ROWS_SHOWN} largest contributions"),
            _documents_table(result, documents[-MAX_ROWS_SHOWN:], f"The {MAX_ROWS_SHOWN} smallest contributions"),
            replace(everything, collapsed=True),
        ]
    return Section("documents", "Contributions of documents", blocks, "Documents")


def _documents_table(result: Gain, documents: Sequence[DocumentContribution], title: str = "") -> Table:
    has_novelty = any(term.name == NOVELTY and not math.isnan(term.value) for term in result.terms)
    share = "; of novelty, its own divided by the number of added documents" if has_novelty else ""
    reference = " to the corpus after without all added documents" if result.removed or result.changed else ""
    columns = [
        Column("document", "name"),
        Column(
            "causal",
            "signed",
            legend=f"gain with all added documents minus gain without this one "
            f"({ATTRIBUTION_TEXTS[result.attribution]}{share})",
        ),
        Column("by queries", "signed", legend="causal without novelty"),
        Column("labelled", "signed", legend="sum over its relevant queries of grade times weighted mean change"),
        Column("helped", "count", legend="queries that are worse without it"),
        Column("harmed", "count", legend="queries that are better without it"),
        Column("novelty", "statistic", drop_order=4),
        Column("alone", "signed", drop_order=3, legend=f"gain if only this document is added{reference}"),
        Column("relevant", "count", drop_order=1, legend="queries to which it is judged relevant"),
        Column(f"top {result.k}", "count", drop_order=2, legend=f"queries with it in the top {result.k}"),
    ]
    weights = {term.name: term.weight for term in result.terms}
    rows: list[Row] = []
    for document in documents:
        changes = [weights.get(name, 0.0) * change for name, change in document.changes.items() if name != NOVELTY]
        is_unknown = math.isnan(document.causal)
        rows.append(
            [
                document.id,
                document.causal,
                math.fsum(changes) if changes else None,
                document.labelled,
                None if is_unknown else len(document.helped),
                None if is_unknown else len(document.harmed),
                document.novelty,
                document.alone,
                document.relevant,
                document.entered,
            ]
        )
    return Table("documents", columns, rows, title)


def _harm_section(result: Gain) -> Section:
    """Documents that made queries worse."""
    harmful = [document for document in result.documents if document.harmed]
    harmful.sort(key=lambda document: (-len(document.harmed), document.id))
    if not harmful:
        return Section("harm", "Documents that made queries worse", [])
    columns = [
        Column("document", "name"),
        Column("harmed", legend="number of queries that are better without it"),
        Column("harmed queries"),
        Column("helped", legend="number of queries that are worse without it"),
    ]
    rows: list[Row] = [
        [
            document.id,
            Cell(len(document.harmed), "count"),
            join_names(document.harmed, MAX_ROWS_SHOWN),
            Cell(len(document.helped), "count"),
        ]
        for document in harmful[:MAX_ROWS_SHOWN]
    ]
    title = f"The first {MAX_ROWS_SHOWN} of {len(harmful):,} documents" if len(harmful) > MAX_ROWS_SHOWN else ""
    return Section("harm", "Documents that made queries worse", [Table("harm", columns, rows, title)], "Harm")


def _batch_section(result: Gain) -> Section:
    if not result.batch:
        return Section("batch", "Best batch", [])
    terms = [term.name for term in result.terms if not math.isnan(term.value)]
    columns = [
        Column("document", "name"),
        Column("adds", "signed", legend="gain that it adds to the documents above it"),
        Column("batch", "signed", legend="gain of the batch up to it"),
        *(Column(name, "signed", drop_order=len(terms) - i) for i, name in enumerate(terms)),
    ]
    rows: list[Row] = [
        [step.id, step.marginal, step.total, *(step.changes.get(name) for name in terms)] for step in result.batch
    ]
    texts = ["Each document adds the most to those above it; one that is similar to them is less new."]
    if result.removed or result.changed:
        texts.append("The batch starts from the corpus after without all added documents.")
    if not result.exact and not math.isnan(result.batch_measured):
        texts.append(f"Measured by retrieval, it gains {format_number(result.batch_measured, 'signed')}.")
    charts = Charts(select_charts(lambda: build_charts(result), "batch"))
    title = f"Best batch: {len(result.batch)} of {pluralise(result.added, 'added document')}"
    return Section("batch", title, [Paragraph(" ".join(texts)), Table("batch", columns, rows), charts], "Batch")


def build_rows_table(result: Gain) -> Table:
    """Build the table with one row per document, or per changed query if there are no documents, for CSV.

    The columns `gain_…` are changes by term, before weights.
    """
    return _document_rows(result) if result.documents else _query_rows(result)


def _document_rows(result: Gain) -> Table:
    terms = [term.name for term in result.terms]
    names = ["document", "causal", "labelled", "alone", "novelty", "helped", "harmed", "relevant", "entered"]
    rows: list[Row] = []
    for document in result.documents:
        is_unknown = math.isnan(document.causal)
        rows.append(
            [
                document.id,
                *(document.causal, document.labelled, document.alone, document.novelty),
                *(None if is_unknown else len(queries) for queries in (document.helped, document.harmed)),
                *(document.relevant, document.entered),
                *(document.changes.get(name) for name in terms),
            ]
        )
    return Table("documents", [Column(name) for name in (*names, *(f"gain_{name}" for name in terms))], rows)


def _query_rows(result: Gain) -> Table:
    terms = [term.name for term in result.terms if term.name != NOVELTY]
    rows: list[Row] = [
        [query.query, query.gain, *(query.changes.get(name) for name in terms), query.text]
        for query in result.changed_queries
    ]
    names = ["query", "gain", *(f"gain_{name}" for name in terms), "text"]
    return Table("queries", [Column(name) for name in names], rows)


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per document", build_rows_table)})
