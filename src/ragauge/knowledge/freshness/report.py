"""Report of freshness: rates, stale documents, queries and conflicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragauge.core.text import one_line
from ragauge.evaluation.indicators import FRESHNESS_RATES
from ragauge.knowledge.freshness.results import Freshness, QueryFreshness, StaleHit, VersionConflict
from ragauge.output.chart_style import PALETTE
from ragauge.output.charts import ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import format_exact, format_rate
from ragauge.output.report import Chart, Report, Section
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_csv_rows

BY_RANK_HEIGHT_PX = 140


def stale_counts_by_rank(told: Freshness) -> list[tuple[int, int, int]]:
    """Count, for each rank, the stale hits and all hits; return (rank, stale, hits)."""
    stale, filled = [0] * told.k, [0] * told.k
    for one in told.queries:
        for rank in range(one.considered):
            filled[rank] += 1
        for hit in one.stale:
            stale[hit.rank - 1] += 1
    return [(rank, mine, of) for rank, (mine, of) in enumerate(zip(stale, filled, strict=True), start=1) if of]


def build_rank_chart(told: Freshness) -> dict[str, Chart]:
    """Build a bar chart by rank; empty if nothing is stale or k is above 100."""
    counts = stale_counts_by_rank(told)
    if not any(mine for _, mine, _ in counts) or len(counts) > 100:
        return {}
    alt = import_altair()
    rows: ChartRows = [
        {"rank": rank, "part": round_digits(mine / of), "stale": mine, "of": of, "from": rank - 0.4, "to": rank + 0.4}
        for rank, mine, of in counts
    ]
    last = counts[-1][0]
    most = max(mine / of for _, mine, of in counts)
    step = max(1, -(-last // 10))
    axis = alt.Axis(values=list(range(1, last + 1, step)), format="d", grid=False)
    x = alt.X("from:Q", title="rank", axis=axis, scale=alt.Scale(domain=[0.5, last + 0.5], nice=False))
    y = alt.Y("part:Q", title="stale", axis=alt.Axis(format=".0%" if most >= 0.02 else ".1%", tickCount=4), stack=None)
    tips = [
        alt.Tooltip("rank:Q", title="rank"),
        alt.Tooltip("stale:Q", title="stale", format=","),
        alt.Tooltip("of:Q", title="of", format=","),
    ]
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_rect(color=PALETTE[0], opacity=0.75, stroke="transparent", strokeWidth=1)
        .encode(x=x, x2="to:Q", y=y, y2=alt.datum(0), tooltip=tips)
    )
    caption = join_sentence("bars are the part of the queries that have a stale document at that rank")
    words = ", ".join(f"rank {rank}: {mine} of {of}" for rank, mine, of in counts)
    drawn = make_panel("Stale documents by rank", [bars], BY_RANK_HEIGHT_PX)
    return {"stale_by_rank": Chart("Where stale documents stand", caption, f"Stale by rank: {words}.", [drawn])}


DERIVED_FIELDS: tuple[str, ...] = (
    "query_count",
    "total_considered",
    "versioned_count",
    "stale_hit_count",
    "stale_query_count",
    "conflict_group_count",
    "conflicting_doc_count",
    "conflict_query_count",
    *FRESHNESS_RATES,
)
"""Properties written to the JSON in addition to the fields, named as by rig."""
MAX_ROWS_SHOWN = 6
"""Maximum number of table rows on a terminal; other formats have all rows."""
MAX_QUERY_CHARS = 40
"""Maximum number of characters of a query text."""


class StaleDocument(NamedTuple):
    """Stale document with its hits over all queries."""

    doc: str
    newer: str
    why: str
    times: int
    best: int
    """Best rank of the document."""
    beside: int
    """Number of queries that also returned its replacement."""


def build_report(told: Freshness) -> Report:
    """Build the report of a freshness result."""
    about = [told.run, f"top {told.k}", f"{told.versions:,} versions"]
    as_of = told.circumstances.get("as_of")
    parts = [Section("rates", "How much is stale", "Rates", rows=[_rates_table(told)], charts=build_rank_chart(told))]
    documents, queries = find_stale_documents(told), _affected_queries(told)
    if documents:
        parts += _list_sections(
            _documents_table(documents), "documents", "Stale documents, the most often returned first", "Documents"
        )
    if queries:
        parts += _list_sections(_queries_table(told, queries), "queries", "Queries, the most stale first", "Queries")
    conflicts = [(one.query, group) for one in told.queries for group in one.conflicts]
    if conflicts:
        title, text = _conflicts_heading(told)
        parts += _list_sections(_conflicts_table(conflicts), "conflicts", title, "Conflicts", text)
    if told.unscored:
        parts.append(Section("unscored", "Queries of which nothing is known", "Unscored", rows=[_unscored_table(told)]))
    return Report(
        "freshness",
        "Freshness",
        [*about, *([f"as of {as_of}"] if as_of else [])],
        summarise_freshness(told),
        parts,
        notes=told.notes,
        circumstances=told.circumstances,
    )


def summarise_freshness(told: Freshness) -> str:
    """Summarise the result in one sentence.

    >>> summarise_freshness(Freshness("run", 2, [QueryFreshness("q", 2, 2, [StaleHit("a", 1, "b")])], compared=True))
    '1 of 1 query returns something stale: 50.0% of positions; none returns versions that contradict each other.'
    >>> summarise_freshness(Freshness("run", 2, [], {"q": "it returned nothing"}))
    'Whether anything is stale cannot be told: 1 query is unscored (it returned nothing).'
    """
    if not told.query_count:
        many = len(told.unscored)
        few = "1 query is unscored" if many == 1 else f"{many:,} queries are unscored"
        why = next(iter(told.unscored.values()), "")
        return f"Whether anything is stale cannot be told: {few if many else 'there is no query'}" + (
            f" ({why})." if why else "."
        )
    n = told.query_count
    stale = f"{told.stale_query_count:,} of {_pluralise(n, 'query', 'queries')} "
    stale += "returns" if told.stale_query_count == 1 else "return"
    part = f"{format_rate(told.stale_rate)} of positions"
    conflicts = told.conflict_query_count
    against = "versions that contradict each other" if told.compared else "several versions of one thing"
    some = "none returns" if not conflicts else "1 returns" if conflicts == 1 else f"{conflicts:,} return"
    return f"{stale} something stale: {part}; {some} {against}."


def _pluralise(n: int, one: str, several: str) -> str:
    return f"1 {one}" if n == 1 else f"{n:,} {several}"


def _rates_table(told: Freshness) -> TextTable:
    positions, queries = told.total_considered, told.query_count
    asked = queries + len(told.unscored)
    unscored = len(told.unscored)
    conflict = "in conflict" if told.compared else "in conflict, or copies"
    lines = [
        ("stale positions", told.stale_hit_count, positions, told.stale_rate),
        ("queries with something stale", told.stale_query_count, queries, told.stale_query_rate),
        (f"positions {conflict}", told.conflicting_doc_count, positions, told.conflict_rate),
        ("queries with a conflict", told.conflict_query_count, queries, told.conflict_query_rate),
        ("positions with a version", told.versioned_count, positions, _ratio(told.versioned_count, positions)),
        ("unscored queries", unscored, asked, _ratio(unscored, asked)),
    ]
    copies = sum(len(group.docs) for one in told.queries for group in one.copies)
    if told.compared:
        lines.insert(4, ("copies, which are no conflict", copies, positions, _ratio(copies, positions)))
    rows = [[name, f"{count:,}", f"{of:,}", format_rate(rate)] for name, count, of, rate in lines]
    return TextTable("", ["", "count", "of", "rate"], rows)


def _ratio(some: int, whole: int) -> float:
    return some / whole if whole else math.nan


def _list_sections(rows: TextTable, id: str, title: str, short: str, text: str = "") -> list[Section]:
    """Return a section with the first rows, and one with all rows if there are more."""
    few = rows._replace(rows=rows.rows[:MAX_ROWS_SHOWN])
    found = [Section(id, title, short, text, [few])]
    if len(rows.rows) > MAX_ROWS_SHOWN:
        found.append(
            Section(f"all-{id}", f"All {len(rows.rows):,} of them", f"All {short.lower()}", rows=[rows], long=True)
        )
    return found


def find_stale_documents(told: Freshness) -> list[StaleDocument]:
    """Return the stale documents of a run, most often returned first."""
    found: dict[str, list[StaleHit]] = {}
    for one in told.queries:
        for hit in one.stale:
            found.setdefault(hit.doc, []).append(hit)
    several = [
        StaleDocument(
            doc,
            hits[0].newer,
            hits[0].why,
            len(hits),
            min(hit.rank for hit in hits),
            sum(hit.newer_rank is not None for hit in hits),
        )
        for doc, hits in found.items()
    ]
    return sorted(several, key=lambda one: (-one.times, one.best, one.doc))


def _documents_table(documents: Iterable[StaleDocument]) -> TextTable:
    header = ["document", "replaced by", "why", "times", "best rank", "replacement returned too"]
    rows = [
        [one.doc, one.newer, one.why or "-", str(one.times), str(one.best), f"{one.beside} of {one.times}"]
        for one in documents
    ]
    return TextTable("", header, rows, numbers=False, goes=(2, 5, 4))


def _affected_queries(told: Freshness) -> list[QueryFreshness]:
    """Return the queries with a stale hit or a conflict, most stale first."""
    found = [one for one in told.queries if one.stale or one.conflicts]
    return sorted(found, key=lambda one: (-len(one.stale) / one.considered, -one.conflicting, one.query))


def _queries_table(told: Freshness, queries: Iterable[QueryFreshness]) -> TextTable:
    header = ["query", "stale at ranks", "of", "conflicts", *(["asked"] if told.texts else [])]
    rows = []
    for one in queries:
        ranks = ", ".join(str(hit.rank) for hit in one.stale) or "-"
        text = one_line(told.texts.get(one.query, ""))
        shown = text if len(text) <= MAX_QUERY_CHARS else f"{text[: MAX_QUERY_CHARS - 1]}…"
        row = [one.query, ranks, str(one.considered), str(len(one.conflicts))]
        rows.append([*row, shown] if told.texts else row)
    return TextTable("", header, rows, numbers=False)


def _conflicts_heading(told: Freshness) -> tuple[str, str]:
    if not told.compared:
        return "Several versions of one thing in one ranking", "Whether they say the same is not known."
    return "What contradicts itself", "Each version with the words around the place where they first part."


def _conflicts_table(conflicts: Sequence[tuple[str, VersionConflict]]) -> TextTable:
    """Build a table with one row per document of each distinct conflict.

    The first query of the conflict is named.
    """
    groups: dict[tuple[str, frozenset[str]], tuple[VersionConflict, list[str]]] = {}
    for query, one in conflicts:
        groups.setdefault((one.key, frozenset(one.docs)), (one, []))[1].append(query)
    rows = []
    for one, queries in sorted(groups.values(), key=lambda pair: -len(pair[1])):
        where = queries[0] if len(queries) == 1 else f"{queries[0]} and {len(queries) - 1} more"
        for at, doc in enumerate(one.docs):
            words = one_line(one.excerpts[at]) if one.excerpts else "(not known)"
            rows.append([one.key if not at else "", doc, where if not at else "", words])
    header = ["key", "document", "query", "says"]
    if all(row[3] == "(not known)" for row in rows):
        header, rows = header[:3], [row[:3] for row in rows]
    return TextTable("", header, rows, numbers=False, goes=(2,) if len(header) > 3 else ())


def _unscored_table(told: Freshness) -> TextTable:
    """Build a table with one row per reason."""
    reasons: dict[str, list[str]] = {}
    for query, why in told.unscored.items():
        reasons.setdefault(why, []).append(query)
    rows = [
        [
            why,
            f"{len(queries):,}",
            ", ".join(queries[:MAX_ROWS_SHOWN]) + (", …" if len(queries) > MAX_ROWS_SHOWN else ""),
        ]
        for why, queries in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    ]
    return TextTable("", ["why", "queries", "such as"], rows, numbers=False)


def build_comparison_report(several: Sequence[Freshness]) -> Report:
    """Build a report that compares runs, one row per run."""
    header = ["run", "queries", "unscored", "stale", "stale queries", "conflict", "conflict queries"]
    rows = [
        [
            one.run,
            f"{one.query_count:,}",
            f"{len(one.unscored):,}",
            *(format_rate(getattr(one, name)) for name in FRESHNESS_RATES),
        ]
        for one in several
    ]
    best = min(several, key=lambda one: math.inf if math.isnan(one.stale_rate) else one.stale_rate)
    part = Section("runs", "Runs", "Runs", rows=[TextTable("", header, rows, goes=(6, 4, 2))])
    about = [f"{len(several)} runs", *{f"top {one.k}": None for one in several}]
    said = f"{best.run} returns the least that is stale: {format_rate(best.stale_rate)} of its positions."
    notes = [f"{one.run}: {note}" for one in several for note in one.notes]
    return Report("freshness", "Freshness", about, said, [part], notes=notes)


def render_csv(told: Freshness) -> str:
    """Render one CSV row per query; `compare` and `gate` read it as scores."""
    scores = told.scores()
    rows = [
        [told.run, query, *(format_exact(float(column[at])) for column in scores.values.values()), scores.judge]
        for at, query in enumerate(scores.queries)
    ]
    return render_csv_rows(["run", "query", f"stale@{told.k}", f"conflict@{told.k}", "judge"], rows)
