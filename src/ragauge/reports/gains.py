"""Report of a gain: terms, queries, document contributions and best batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ragauge.reports.accounts import Account, Part
from ragauge.reports.charts import Drawing
from ragauge.reports.charts.gains import drawn
from ragauge.reports.tables import Rows, counted, csv_text, number, one_line, p_value
from ragauge.worths import DocumentWorth, Gain, QueryChange, Term

FEW = 8
"""Maximum number of documents and queries shown at either end of a table."""
LONG = 30
"""Maximum number of characters of a query text on a terminal."""
WHOLE = 240
"""Maximum number of characters of a query text in other formats."""
NOVELTY = "novelty"
"""Name of the term that is not computed per query."""
CONTEXT_RECALL = "context_recall"
WAYS = {
    "rebuilt": "the system was built anew without each document",
    "dropped": "each document was left out of a deeper ranking",
    "none": "nobody looked what is lost without a document",
}


def account(told: Gain) -> Account:
    """Build the report of a gain."""
    about = [
        f"{told.before or 'before'} to {told.after or 'after'}",
        *([counted(told.added, "document") + " added"] if told.known else []),
        *([f"{told.removed:,} removed"] if told.removed else []),
        *([f"{told.changed:,} changed"] if told.changed else []),
        counted(told.queries, "query", "queries") + (f" of {told.dataset}" if told.dataset else ""),
        told.system,
        *([f"judged by {told.judge}"] if told.judge else []),
        *([f"novelty by {told.embedder}"] if told.embedder else []),
    ]
    charts = drawn(told)
    parts = [_terms(told), *_queries(told, charts), *_documents(told), *_harm(told), *_batch(told, charts)]
    return Account("gain", "Gain", list(filter(None, about)), headline(told), parts, [], told.notes, told.circumstances)


def headline(told: Gain) -> str:
    """Summarise the result in one sentence.

    >>> headline(Gain(0.75, math.nan, math.nan, 0.95, [], 10, 2, 0, 0, 3, []))
    'Gain +0.750: 0 queries gained, 0 lost, 3 did not move.'
    >>> headline(Gain(0.0, math.nan, math.nan, 0.95, [], 10, 2, 0, 0, 3, [QueryChange("q", "", 0.0, {})]))
    'Gain +0.000: 0 queries gained, 0 lost, 1 moved without gain or loss, 2 did not move.'
    """
    if math.isnan(told.total):
        return "The gain cannot be told: no term has a value."
    sure = "" if math.isnan(told.low) else f" ({told.confidence:.0%} {told.low:+.3f} to {told.high:+.3f})"
    moved = [f"{len(told.lost):,} lost", *([f"{len(told.even):,} moved without gain or loss"] if told.even else [])]
    still = told.queries - len(told.moved)
    gained = counted(len(told.gained), "query", "queries")
    new = sum(one.weight * one.value for one in told.terms if one.name == NOVELTY and not math.isnan(one.value))
    part = f", novelty {new:+.3f} of it" if new else ""
    return f"Gain {told.total + 0.0:+.3f}{sure}{part}: {gained} gained, {', '.join(moved)}, {still:,} did not move."


def _terms(told: Gain) -> Part:
    rows = [_term(one) for one in told.terms]
    whole = [
        "together",
        f"{sum(one.weight for one in told.terms if not math.isnan(one.value)):.3f}",
        "",
        "",
        "",
        _interval(told.low, told.high),
        _signed(told.total),
        "",
    ]
    header = ["term", "weight", "before", "after", "change", f"{told.confidence:.0%}", "counts", "n"]
    p = "" if math.isnan(told.p) else f" Would chance alone move queries as much? p {_equals(p_value(told.p))}."
    unknown = [f"{one.name} cannot be told: {one.why}." for one in told.terms if math.isnan(one.value)]
    uncut = [one.name for one in told.terms if "@" not in one.name and one.name not in (CONTEXT_RECALL, NOVELTY)]
    depth = [f"{', '.join(uncut)}: of the first {told.k} documents."] if uncut else []
    text = " ".join([f"The gain is the sum of weight times change.{p}", *depth, *unknown])
    return Part("terms", "Terms", "Terms", text, [Rows("", header, [*rows, whole], goes=(5, 2, 3))])


def _term(one: Term) -> list[str]:
    figures = [_plain(one.before), _plain(one.after), _signed(one.value), _interval(one.low, one.high)]
    return [one.name, f"{one.weight:.3f}", *figures, _signed(one.weight * one.value), f"{one.n:,}" if one.n else "-"]


def _queries(told: Gain, charts: Mapping[str, Drawing]) -> list[Part]:
    if not told.moved:
        return []
    header = ["query", "gain", "by term", "entered", "pushed out", "text"]
    some = [*told.gained[:FEW], *told.lost[:FEW], *told.even[:FEW]]
    rows = Rows("", header, [_query(one) for one in some], numbers=False, goes=(2, 5))
    mine = {name: one for name, one in charts.items() if name == "queries"}
    shown = f"Queries that moved, the first {FEW} each way" if len(some) < len(told.moved) else "Queries that moved"
    found = [Part("queries", shown, "Queries", "", [rows], mine)]
    if len(some) < len(told.moved):
        all_rows = Rows("", header, [_query(one, WHOLE) for one in told.moved], numbers=False)
        found.append(
            Part("moved", f"All {len(told.moved):,} queries that moved", "All moved", rows=[all_rows], long=True)
        )
    return found


def _query(one: QueryChange, longest: int = LONG) -> list[str]:
    by_term = ", ".join(f"{name} {value:+.3f}" for name, value in one.changes.items() if value)
    text = one_line(one.text)
    return [
        one.query,
        _signed(one.gain),
        by_term or "-",
        _listed(one.entered),
        _listed(one.left),
        text if len(text) <= longest else f"{text[: longest - 1]}…",
    ]


def _documents(told: Gain) -> list[Part]:
    if not told.documents:
        return []
    header = ["document", "causal", "by queries", "labelled", "helped", "harmed", "novelty", "alone", "relevant"]
    header.append(f"top {told.k}")
    weights = {one.name: one.weight for one in told.terms}
    rows = [_document(one, weights) for one in told.documents]
    new = any(one.name == NOVELTY and not math.isnan(one.value) for one in told.terms)
    base = ", on what is there afterwards less all that was added" if told.removed or told.changed else ""
    text = (
        f"causal: the gain with all minus the gain without it ({WAYS[told.attribution]})"
        f"{', of novelty its own divided by the number of documents' if new else ''}; by queries: the same without "
        "novelty; labelled: grade times the weighted mean change of each query that it is relevant to; alone: its gain "
        f"where no other is added{base}."
    )
    goes = (8, 9, 7, 6)
    if len(rows) <= 2 * FEW:
        return [Part("documents", "Documents", "Documents", text, [Rows("", header, rows, goes=goes)], {})]
    ends = [
        Rows(f"The {FEW} worth most", header, rows[:FEW], goes=goes),
        Rows(f"The {FEW} worth least", header, rows[-FEW:], goes=goes),
    ]
    whole = Rows("", header, rows, goes=goes)
    return [
        Part("documents", "Documents", "Documents", text, ends),
        Part("all", f"All {len(rows):,} documents", "All documents", rows=[whole], long=True),
    ]


def _document(one: DocumentWorth, weights: Mapping[str, float]) -> list[str]:
    asked = [weights.get(name, 0.0) * value for name, value in one.changes.items() if name != NOVELTY]
    unknown = math.isnan(one.causal)
    return [
        one.id,
        _signed(one.causal, 5),
        _signed(math.fsum(asked) if asked else math.nan, 5),
        _signed(one.labelled, 3),
        "-" if unknown else f"{len(one.helped):,}",
        "-" if unknown else f"{len(one.harmed):,}",
        _plain(one.novelty, 3),
        _signed(one.alone),
        f"{one.relevant:,}",
        f"{one.entered:,}",
    ]


def _harm(told: Gain) -> list[Part]:
    """Return the section of documents that made queries worse."""
    bad = sorted((one for one in told.documents if one.harmed), key=lambda one: (-len(one.harmed), one.id))
    if not bad:
        return []
    rows = [[one.id, f"{len(one.harmed):,}", ", ".join(one.harmed[:FEW]), f"{len(one.helped):,}"] for one in bad[:FEW]]
    more = f" The first {FEW} of {len(bad):,}." if len(bad) > FEW else ""
    table = Rows("", ["document", "harmed", "queries that are better without it", "helped"], rows, numbers=False)
    return [Part("harm", "Harm", "Harm", f"These documents made queries worse.{more}", [table])]


def _batch(told: Gain, charts: Mapping[str, Drawing]) -> list[Part]:
    if not told.batch:
        return []
    terms = [one.name for one in told.terms if not math.isnan(one.value)]
    header = ["document", "adds", "batch", *terms]
    rows = [
        [
            one.id,
            _signed(one.marginal, 5),
            _signed(one.total, 5),
            *(_signed(one.changes.get(t, math.nan), 5) for t in terms),
        ]
        for one in told.batch
    ]
    real = (
        f" Really retrieved, it gains {told.batch_measured:+.5f}."
        if not told.exact and not math.isnan(told.batch_measured)
        else ""
    )
    base = " It begins with what is there afterwards less all that was added." if told.removed or told.changed else ""
    text = f"Taken one by one, each the best after those before it: what is like them is less new.{base}{real}"
    mine = {name: one for name, one in charts.items() if name == "batch"}
    title = f"The best {len(told.batch)} of {told.added:,}"
    goes = tuple(range(len(header) - 1, 2, -1))
    return [Part("batch", title, "Batch", text, [Rows("", header, rows, goes=goes)], mine)]


def _plain(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _signed(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value + 0.0:+.{digits}f}"


def _equals(p: str) -> str:
    return f"< {p[1:]}" if p.startswith("<") else f"= {p}"


def _interval(low: float, high: float) -> str:
    return "-" if math.isnan(low) else f"{low:+.3f} to {high:+.3f}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f", … ({len(names)})" if len(names) > 3 else "") if names else "-"


def csv(told: Gain) -> str:
    """Render one CSV row per document; if there are none, one per changed query.

    The columns `gain_…` are changes by term, before weights.
    """
    terms = [one.name for one in told.terms]
    if told.documents:
        header = ["document", "causal", "labelled", "alone", "novelty", "helped", "harmed", "relevant", "entered"]
        documents = [
            [
                one.id,
                *(number(value) for value in (one.causal, one.labelled, one.alone, one.novelty)),
                *("" if math.isnan(one.causal) else str(len(queries)) for queries in (one.helped, one.harmed)),
                *(str(n) for n in (one.relevant, one.entered)),
                *(number(one.changes.get(name)) for name in terms),
            ]
            for one in told.documents
        ]
        return csv_text([*header, *(f"gain_{name}" for name in terms)], documents)
    terms = [name for name in terms if name != NOVELTY]
    moved = [
        [one.query, number(one.gain), *(number(one.changes.get(name)) for name in terms), one.text]
        for one in told.moved
    ]
    return csv_text(["query", "gain", *(f"gain_{name}" for name in terms), "text"], moved)
