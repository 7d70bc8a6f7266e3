"""Report of freshness: rates, stale documents, queries and conflicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ragauge.core.text import one_line
from ragauge.knowledge.freshness.charts import build_charts
from ragauge.knowledge.freshness.results import Freshness, QueryFreshness, StaleHit, VersionConflict
from ragauge.output.numbers import format_number, join_names, pluralise
from ragauge.output.report import Block, Charts, Paragraph, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Column, Row, Table

MAX_ROWS_SHOWN = 6
"""Maximum number of table rows on a terminal; other formats have all rows."""
MAX_QUERY_CHARS = 40
"""Maximum number of characters of a query text."""


class StaleDocument(NamedTuple):
    """Stale document with its hits over all queries."""

    doc: str
    replacement: str
    reason: str
    hits: int
    best_rank: int
    hits_with_newer: int
    """Number of hits whose ranking also has the replacement."""


def build_report(result: Freshness) -> Report:
    subject = [result.run, f"top {result.k}", pluralise(result.versions, "version")]
    if result.as_of:
        subject.append(f"as of {result.as_of}")
    rates: list[Block] = [_rates_table(result), Charts(lambda: build_charts(result))]
    sections = [
        Section("rates", "Rates", rates, "Rates"),
        _documents_section(result),
        _queries_section(result),
        _conflicts_section(result),
        _unscored_section(result),
    ]
    return Report(
        "freshness",
        "Freshness",
        summarise_freshness(result),
        [section for section in sections if section.blocks],
        subject,
        notes=result.notes,
        provenance=result.provenance,
    )


def summarise_freshness(result: Freshness) -> str:
    """Summarise the result in one sentence.

    >>> summarise_freshness(Freshness("run", 2, [QueryFreshness("q", 2, 2, [StaleHit("a", 1, "b")])], compared=True))
    '1 of 1 query returns stale documents (50.0% of positions); none returns conflicting versions.'
    >>> summarise_freshness(Freshness("run", 2, [], {"q": "no results"}))
    'Freshness cannot be computed: 1 query is unscored (no results).'
    """
    if not result.query_count:
        unscored = pluralise(len(result.unscored), "query is", "queries are")
        reason = next(iter(result.unscored.values()), "")
        return (
            f"Freshness cannot be computed: {f'{unscored} unscored ({reason})' if reason else 'there are no queries'}."
        )
    conflicts = "conflicting versions" if result.compared else "several versions of the same content"
    stale = f"{result.stale_query_count:,} of {pluralise(result.query_count, 'query')}"
    returns = "returns" if result.stale_query_count == 1 else "return"
    share = format_number(result.stale_rate, "share")
    return f"{stale} {returns} stale documents ({share} of positions); {_count_conflicts(result)} {conflicts}."


def _count_conflicts(result: Freshness) -> str:
    if not result.conflict_query_count:
        return "none returns"
    return "1 returns" if result.conflict_query_count == 1 else f"{result.conflict_query_count:,} return"


def _rates_table(result: Freshness) -> Table:
    positions, queries = result.total_considered, result.query_count
    conflict = "in conflict" if result.compared else "in conflict, or copies"
    counts = [
        ("stale positions", result.stale_hit_count, positions),
        ("queries with stale documents", result.stale_query_count, queries),
        (f"positions {conflict}", result.conflicting_doc_count, positions),
        ("queries with a conflict", result.conflict_query_count, queries),
        ("positions with a version", result.versioned_count, positions),
        ("unscored queries", len(result.unscored), queries + len(result.unscored)),
    ]
    if result.compared:
        copies = sum(len(group.docs) for query in result.queries for group in query.copies)
        counts.insert(4, ("copies, not in conflict", copies, positions))
    columns = [Column("", "name"), Column("count", "count"), Column("of", "count"), Column("rate", "share")]
    rows: list[Row] = [[name, count, total, count / total if total else None] for name, count, total in counts]
    return Table("rates", columns, rows)


def _list_section(table: Table, section_id: str, title: str, short: str) -> Section:
    """Return a section with the first rows, and all rows as a collapsed table if there are more."""
    if not table.rows:
        return Section(section_id, title, [])
    blocks: list[Block] = [replace(table, rows=table.rows[:MAX_ROWS_SHOWN])]
    if len(table.rows) > MAX_ROWS_SHOWN:
        blocks.append(replace(table, title=f"All {len(table.rows):,} rows", collapsed=True))
    return Section(section_id, title, blocks, short)


def find_stale_documents(result: Freshness) -> list[StaleDocument]:
    """Return the stale documents of a run, most frequent first."""
    hits_by_document: dict[str, list[StaleHit]] = {}
    for query in result.queries:
        for hit in query.stale:
            hits_by_document.setdefault(hit.doc, []).append(hit)
    documents = [
        StaleDocument(
            doc,
            hits[0].newer,
            hits[0].why,
            len(hits),
            min(hit.rank for hit in hits),
            sum(hit.newer_rank is not None for hit in hits),
        )
        for doc, hits in hits_by_document.items()
    ]
    return sorted(documents, key=lambda document: (-document.hits, document.best_rank, document.doc))


def _documents_section(result: Freshness) -> Section:
    columns = [
        Column("document", "name"),
        Column("replaced by", "name"),
        Column(
            "reason",
            drop_order=1,
            legend="superseded if the versions name a successor, older if its key has a newer document",
        ),
        Column("hits", "count"),
        Column("best rank", "count", drop_order=3),
        Column("with replacement", "count", drop_order=2, legend="hits whose ranking also has the replacement"),
    ]
    rows: list[Row] = [
        [
            document.doc,
            document.replacement,
            document.reason or "-",
            document.hits,
            document.best_rank,
            document.hits_with_newer,
        ]
        for document in find_stale_documents(result)
    ]
    title = "Stale documents, most frequent first"
    return _list_section(Table("documents", columns, rows), "documents", title, "Documents")


def _affected_queries(result: Freshness) -> list[QueryFreshness]:
    """Return the queries with a stale hit or a conflict, most stale first."""
    queries = [query for query in result.queries if query.stale or query.conflicts]
    return sorted(queries, key=lambda query: (-len(query.stale) / query.considered, -query.conflicting, query.query))


def _queries_section(result: Freshness) -> Section:
    columns = [
        Column("query", "name"),
        Column("stale ranks"),
        Column("documents", "count"),
        Column("conflicts", "count"),
        *([Column("text")] if result.texts else []),
    ]
    rows: list[Row] = []
    for query in _affected_queries(result):
        ranks = ", ".join(str(hit.rank) for hit in query.stale) or "-"
        text = [_shorten_query(result.texts.get(query.query, ""))] if result.texts else []
        rows.append([query.query, ranks, query.considered, len(query.conflicts), *text])
    return _list_section(Table("queries", columns, rows), "queries", "Queries, most stale first", "Queries")


def _shorten_query(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= MAX_QUERY_CHARS else f"{line[: MAX_QUERY_CHARS - 1]}…"


def _conflicts_section(result: Freshness) -> Section:
    conflicts = [(query.query, group) for query in result.queries for group in query.conflicts]
    if not result.compared:
        title, text = "Several versions of the same content", "The texts were not compared, so copies are included."
    else:
        title, text = "Conflicting versions", "Excerpts around the first difference."
    section = _list_section(_conflicts_table(conflicts), "conflicts", title, "Conflicts")
    return section._replace(blocks=[Paragraph(text), *section.blocks]) if section.blocks else section


def _conflicts_table(conflicts: Iterable[tuple[str, VersionConflict]]) -> Table:
    """Build a table with one row per document of each distinct conflict.

    The first query of the conflict is named.
    """
    groups: dict[tuple[str, frozenset[str]], tuple[VersionConflict, list[str]]] = {}
    for query, conflict in conflicts:
        groups.setdefault((conflict.key, frozenset(conflict.docs)), (conflict, []))[1].append(query)
    has_excerpts = any(conflict.excerpts for conflict, _ in groups.values())
    columns = [Column("key", "name"), Column("document", "name"), Column("query", "name", drop_order=int(has_excerpts))]
    columns += [Column("excerpt")] if has_excerpts else []
    rows: list[Row] = []
    for conflict, queries in sorted(groups.values(), key=lambda pair: -len(pair[1])):
        excerpts = conflict.excerpts or ("text unknown",) * len(conflict.docs)
        for doc, excerpt in zip(conflict.docs, excerpts, strict=True):
            text = [one_line(excerpt)] if has_excerpts else []
            rows.append([conflict.key, doc, join_names(queries, 1), *text])
    return Table("conflicts", columns, rows, group_by=0)


def _unscored_section(result: Freshness) -> Section:
    """Queries without freshness, one row per reason."""
    reasons: dict[str, list[str]] = {}
    for query, reason in result.unscored.items():
        reasons.setdefault(reason, []).append(query)
    columns = [Column("reason"), Column("queries", "count"), Column("examples")]
    rows: list[Row] = [
        [reason, len(queries), join_names(queries, MAX_ROWS_SHOWN)]
        for reason, queries in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    ]
    blocks = [Table("unscored", columns, rows)] if rows else []
    return Section("unscored", "Unscored queries", blocks, "Unscored")


def build_comparison(results: Sequence[Freshness]) -> Report:
    """Build a report that compares runs, one row per run."""
    columns = [
        Column("run", "name"),
        Column("queries", "count"),
        Column("unscored", "count", drop_order=3),
        *(
            Column(title, "share", better=-1, drop_order=order)
            for title, order in (("stale", 0), ("stale queries", 2), ("conflict", 0), ("conflict queries", 1))
        ),
    ]
    rows: list[Row] = [
        [
            result.run,
            result.query_count,
            len(result.unscored),
            result.stale_rate,
            result.stale_query_rate,
            result.conflict_rate,
            result.conflict_query_rate,
        ]
        for result in results
    ]
    best = min(results, key=lambda result: math.inf if math.isnan(result.stale_rate) else result.stale_rate)
    share = format_number(best.stale_rate, "share")
    return Report(
        "freshness",
        "Freshness",
        f"{best.run} has the lowest share of stale positions: {share}.",
        [Section("runs", "Runs", [Table("runs", columns, rows).mark_best()], "Runs")],
        [pluralise(len(results), "run"), *{f"top {result.k}": None for result in results}],
        notes=[f"{result.run}: {note}" for result in results for note in result.notes],
    )


def build_scores_table(result: Freshness) -> Table:
    """Build the table with one row per query, for CSV; `compare` and `gate` read it as scores."""
    scores = result.scores()
    columns = [Column(name) for name in ("run", "query", f"stale@{result.k}", f"conflict@{result.k}", "judge")]
    rows: list[Row] = [
        [result.run, query, *(float(column[index]) for column in scores.values.values()), scores.judge]
        for index, query in enumerate(scores.queries)
    ]
    return Table("scores", columns, rows)


REPORTER = ResultReporter(
    build_report, {"csv": TableBuilder("one row per query", build_scores_table)}, build_comparison
)
