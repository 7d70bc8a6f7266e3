"""Report of a gain: terms, queries, document contributions and best batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ragauge.core.text import one_line
from ragauge.knowledge.gain.results import DocumentContribution, Gain, GainTerm, QueryChange
from ragauge.output.chart_style import LOSS_COLOUR, PALETTE, WIN_COLOUR
from ragauge.output.charts import ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import count_noun, format_exact, format_p_value
from ragauge.output.report import Chart, Report, Section
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_csv_rows

CHART_HEIGHT_PX = 200
MAX_QUERIES_DRAWN = 200
"""Maximum number of queries drawn."""
MAX_NAME_CHARS = 24
"""Maximum number of characters of a document name."""


def build_charts(gain: Gain) -> dict[str, Chart]:
    """Build all charts for which there is enough data."""
    found = {}
    if len(gain.batch) > 1:
        found["batch"] = build_batch_chart(gain)
    if len(gain.gained) + len(gain.lost) > 1:
        found["queries"] = build_queries_chart(gain)
    return found


def build_batch_chart(gain: Gain) -> Chart:
    """Build the chart of marginal gains by term, and of the batch's total."""
    alt = import_altair()
    names = [_shorten_name(f"{place}. {one.id}") for place, one in enumerate(gain.batch, 1)]
    terms = [one.name for one in gain.terms if not math.isnan(one.value)]
    bars: ChartRows = [
        {"document": name, "id": one.id, "term": term, "adds": round_digits(one.changes.get(term, 0.0))}
        for name, one in zip(names, gain.batch, strict=True)
        for term in terms
    ]
    line: ChartRows = [
        {"document": name, "id": one.id, "total": round_digits(one.total), "adds": round_digits(one.marginal)}
        for name, one in zip(names, gain.batch, strict=True)
    ]
    x = alt.X("document:N", title=None, sort=None, scale=alt.Scale(domain=names), axis=alt.Axis(labelAngle=-40))
    colour = alt.Color(
        "term:N",
        scale=alt.Scale(domain=terms, range=[PALETTE[i % len(PALETTE)] for i in range(len(terms))]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [alt.Tooltip("id:N", title="document"), alt.Tooltip("term:N"), alt.Tooltip("adds:Q", format="+.5f")]
    totals = [alt.Tooltip("id:N", title="document"), alt.Tooltip("total:Q", format="+.5f", title="batch so far")]
    adds = alt.Chart(alt.Data(values=bars)).mark_bar(opacity=0.85)
    grows = alt.Chart(alt.Data(values=line))
    total = alt.Y("total:Q", title="gain of the batch", axis=alt.Axis(tickCount=5))
    panels = [
        make_panel(
            "What each adds",
            [adds.encode(x=x, y=alt.Y("adds:Q", title="gain", axis=alt.Axis(tickCount=5)), color=colour, tooltip=tips)],
            CHART_HEIGHT_PX,
        ),
        make_panel(
            "All of them together",
            [
                grows.mark_line(color=PALETTE[0], strokeWidth=2).encode(x=x, y=total),
                grows.mark_point(color=PALETTE[0], filled=True, size=45, opacity=1).encode(
                    x=x, y=total, tooltip=totals
                ),
            ],
            CHART_HEIGHT_PX,
        ),
    ]
    first, last = gain.batch[0], gain.batch[-1]
    alt_text = (
        f"A batch of {len(gain.batch)} documents: the first ({first.id}) adds {first.marginal:+.4f}, the last "
        f"({last.id}) {last.marginal:+.4f}; together they gain {last.total:+.4f}."
    )
    caption = join_sentence(
        "documents from left to right as they are taken, each the best after those before it",
        "bars are what it adds by term and weight",
        "the line is what all so far are worth",
    )
    return Chart("The best batch", caption, alt_text, panels)


def build_queries_chart(gain: Gain) -> Chart:
    """Build the chart of the queries that gained or lost, largest gain first."""
    alt = import_altair()
    moved = sorted([*gain.gained, *gain.lost], key=lambda one: -one.gain)
    if len(moved) > MAX_QUERIES_DRAWN:
        moved = moved[: MAX_QUERIES_DRAWN // 2] + moved[-MAX_QUERIES_DRAWN // 2 :]
    rows: ChartRows = [
        {
            "place": place,
            "query": one.query,
            "text": one.text[:120],
            "gain": round_digits(one.gain),
            "side": "gained" if one.gain > 0 else "lost",
        }
        for place, one in enumerate(moved, 1)
    ]
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(domain=["gained", "lost"], range=[WIN_COLOUR, LOSS_COLOUR]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [alt.Tooltip("query:N"), alt.Tooltip("text:N"), alt.Tooltip("gain:Q", format="+.4f")]
    x = alt.X("place:O", title=None, axis=None)
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(opacity=0.9)
    shown = bars.encode(x=x, y=alt.Y("gain:Q", title="gain", axis=alt.Axis(tickCount=5)), color=colour, tooltip=tips)
    even = f"{len(gain.even)} moved without gain or loss, " if gain.even else ""
    said = (
        f"{len(gain.gained)} queries gained, {len(gain.lost)} lost, {even}"
        f"{gain.queries - len(gain.moved)} did not move."
    )
    few = (
        f"only the first and the last {MAX_QUERIES_DRAWN // 2} are drawn"
        if len(gain.gained) + len(gain.lost) > MAX_QUERIES_DRAWN
        else ""
    )
    caption = join_sentence("a bar for each query that gained or lost, as much as it did", "others are not drawn", few)
    return Chart("Queries that moved", caption, said, [make_panel("Queries that moved", [shown], CHART_HEIGHT_PX)])


def _shorten_name(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…"


MAX_ROWS_SHOWN = 8
"""Maximum number of documents and queries shown at either end of a table."""
MAX_TERMINAL_TEXT_CHARS = 30
"""Maximum number of characters of a query text on a terminal."""
MAX_TEXT_CHARS = 240
"""Maximum number of characters of a query text in other formats."""
NOVELTY = "novelty"
"""Name of the term that is not computed per query."""
CONTEXT_RECALL = "context_recall"
ATTRIBUTION_TEXTS = {
    "rebuilt": "the system was built anew without each document",
    "dropped": "each document was left out of a deeper ranking",
    "none": "nobody looked what is lost without a document",
}


def build_report(told: Gain) -> Report:
    """Build the report of a gain."""
    about = [
        f"{told.before or 'before'} to {told.after or 'after'}",
        *([count_noun(told.added, "document") + " added"] if told.known else []),
        *([f"{told.removed:,} removed"] if told.removed else []),
        *([f"{told.changed:,} changed"] if told.changed else []),
        count_noun(told.queries, "query", "queries") + (f" of {told.dataset}" if told.dataset else ""),
        told.system,
        *([f"judged by {told.judge}"] if told.judge else []),
        *([f"novelty by {told.embedder}"] if told.embedder else []),
    ]
    charts = build_charts(told)
    parts = [
        _terms_section(told),
        *_query_sections(told, charts),
        *_document_sections(told),
        *_harm_sections(told),
        *_batch_sections(told, charts),
    ]
    return Report(
        "gain", "Gain", list(filter(None, about)), summarise_gain(told), parts, [], told.notes, told.circumstances
    )


def summarise_gain(told: Gain) -> str:
    """Summarise the result in one sentence.

    >>> summarise_gain(Gain(0.75, math.nan, math.nan, 0.95, [], 10, 2, 0, 0, 3, []))
    'Gain +0.750: 0 queries gained, 0 lost, 3 did not move.'
    >>> summarise_gain(Gain(0.0, math.nan, math.nan, 0.95, [], 10, 2, 0, 0, 3, [QueryChange("q", "", 0.0, {})]))
    'Gain +0.000: 0 queries gained, 0 lost, 1 moved without gain or loss, 2 did not move.'
    """
    if math.isnan(told.total):
        return "The gain cannot be told: no term has a value."
    sure = "" if math.isnan(told.low) else f" ({told.confidence:.0%} {told.low:+.3f} to {told.high:+.3f})"
    moved = [f"{len(told.lost):,} lost", *([f"{len(told.even):,} moved without gain or loss"] if told.even else [])]
    still = told.queries - len(told.moved)
    gained = count_noun(len(told.gained), "query", "queries")
    new = sum(one.weight * one.value for one in told.terms if one.name == NOVELTY and not math.isnan(one.value))
    part = f", novelty {new:+.3f} of it" if new else ""
    return f"Gain {told.total + 0.0:+.3f}{sure}{part}: {gained} gained, {', '.join(moved)}, {still:,} did not move."


def _terms_section(told: Gain) -> Section:
    rows = [_term_row(one) for one in told.terms]
    whole = [
        "together",
        f"{sum(one.weight for one in told.terms if not math.isnan(one.value)):.3f}",
        "",
        "",
        "",
        _format_interval(told.low, told.high),
        _format_difference(told.total),
        "",
    ]
    header = ["term", "weight", "before", "after", "change", f"{told.confidence:.0%}", "counts", "n"]
    p = (
        ""
        if math.isnan(told.p)
        else f" Would chance alone move queries as much? p {_format_p_relation(format_p_value(told.p))}."
    )
    unknown = [f"{one.name} cannot be told: {one.why}." for one in told.terms if math.isnan(one.value)]
    uncut = [one.name for one in told.terms if "@" not in one.name and one.name not in (CONTEXT_RECALL, NOVELTY)]
    depth = [f"{', '.join(uncut)}: of the first {told.k} documents."] if uncut else []
    text = " ".join([f"The gain is the sum of weight times change.{p}", *depth, *unknown])
    return Section("terms", "Terms", "Terms", text, [TextTable("", header, [*rows, whole], goes=(5, 2, 3))])


def _term_row(one: GainTerm) -> list[str]:
    figures = [
        _format_value(one.before),
        _format_value(one.after),
        _format_difference(one.value),
        _format_interval(one.low, one.high),
    ]
    return [
        one.name,
        f"{one.weight:.3f}",
        *figures,
        _format_difference(one.weight * one.value),
        f"{one.n:,}" if one.n else "-",
    ]


def _query_sections(told: Gain, charts: Mapping[str, Chart]) -> list[Section]:
    if not told.moved:
        return []
    header = ["query", "gain", "by term", "entered", "pushed out", "text"]
    some = [*told.gained[:MAX_ROWS_SHOWN], *told.lost[:MAX_ROWS_SHOWN], *told.even[:MAX_ROWS_SHOWN]]
    rows = TextTable("", header, [_query_row(one) for one in some], numbers=False, goes=(2, 5))
    mine = {name: one for name, one in charts.items() if name == "queries"}
    shown = (
        f"Queries that moved, the first {MAX_ROWS_SHOWN} each way"
        if len(some) < len(told.moved)
        else "Queries that moved"
    )
    found = [Section("queries", shown, "Queries", "", [rows], mine)]
    if len(some) < len(told.moved):
        all_rows = TextTable("", header, [_query_row(one, MAX_TEXT_CHARS) for one in told.moved], numbers=False)
        found.append(
            Section("moved", f"All {len(told.moved):,} queries that moved", "All moved", rows=[all_rows], long=True)
        )
    return found


def _query_row(one: QueryChange, longest: int = MAX_TERMINAL_TEXT_CHARS) -> list[str]:
    by_term = ", ".join(f"{name} {value:+.3f}" for name, value in one.changes.items() if value)
    text = one_line(one.text)
    return [
        one.query,
        _format_difference(one.gain),
        by_term or "-",
        _join_first(one.entered),
        _join_first(one.left),
        text if len(text) <= longest else f"{text[: longest - 1]}…",
    ]


def _document_sections(told: Gain) -> list[Section]:
    if not told.documents:
        return []
    header = ["document", "causal", "by queries", "labelled", "helped", "harmed", "novelty", "alone", "relevant"]
    header.append(f"top {told.k}")
    weights = {one.name: one.weight for one in told.terms}
    rows = [_document_row(one, weights) for one in told.documents]
    new = any(one.name == NOVELTY and not math.isnan(one.value) for one in told.terms)
    base = ", on what is there afterwards less all that was added" if told.removed or told.changed else ""
    text = (
        f"causal: the gain with all minus the gain without it ({ATTRIBUTION_TEXTS[told.attribution]})"
        f"{', of novelty its own divided by the number of documents' if new else ''}; by queries: the same without "
        "novelty; labelled: grade times the weighted mean change of each query that it is relevant to; alone: its gain "
        f"where no other is added{base}."
    )
    goes = (8, 9, 7, 6)
    if len(rows) <= 2 * MAX_ROWS_SHOWN:
        return [Section("documents", "Documents", "Documents", text, [TextTable("", header, rows, goes=goes)], {})]
    ends = [
        TextTable(f"The {MAX_ROWS_SHOWN} worth most", header, rows[:MAX_ROWS_SHOWN], goes=goes),
        TextTable(f"The {MAX_ROWS_SHOWN} worth least", header, rows[-MAX_ROWS_SHOWN:], goes=goes),
    ]
    whole = TextTable("", header, rows, goes=goes)
    return [
        Section("documents", "Documents", "Documents", text, ends),
        Section("all", f"All {len(rows):,} documents", "All documents", rows=[whole], long=True),
    ]


def _document_row(one: DocumentContribution, weights: Mapping[str, float]) -> list[str]:
    asked = [weights.get(name, 0.0) * value for name, value in one.changes.items() if name != NOVELTY]
    unknown = math.isnan(one.causal)
    return [
        one.id,
        _format_difference(one.causal, 5),
        _format_difference(math.fsum(asked) if asked else math.nan, 5),
        _format_difference(one.labelled, 3),
        "-" if unknown else f"{len(one.helped):,}",
        "-" if unknown else f"{len(one.harmed):,}",
        _format_value(one.novelty, 3),
        _format_difference(one.alone),
        f"{one.relevant:,}",
        f"{one.entered:,}",
    ]


def _harm_sections(told: Gain) -> list[Section]:
    """Return the section of documents that made queries worse."""
    bad = sorted((one for one in told.documents if one.harmed), key=lambda one: (-len(one.harmed), one.id))
    if not bad:
        return []
    rows = [
        [one.id, f"{len(one.harmed):,}", ", ".join(one.harmed[:MAX_ROWS_SHOWN]), f"{len(one.helped):,}"]
        for one in bad[:MAX_ROWS_SHOWN]
    ]
    more = f" The first {MAX_ROWS_SHOWN} of {len(bad):,}." if len(bad) > MAX_ROWS_SHOWN else ""
    table = TextTable("", ["document", "harmed", "queries that are better without it", "helped"], rows, numbers=False)
    return [Section("harm", "Harm", "Harm", f"These documents made queries worse.{more}", [table])]


def _batch_sections(told: Gain, charts: Mapping[str, Chart]) -> list[Section]:
    if not told.batch:
        return []
    terms = [one.name for one in told.terms if not math.isnan(one.value)]
    header = ["document", "adds", "batch", *terms]
    rows = [
        [
            one.id,
            _format_difference(one.marginal, 5),
            _format_difference(one.total, 5),
            *(_format_difference(one.changes.get(t, math.nan), 5) for t in terms),
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
    return [Section("batch", title, "Batch", text, [TextTable("", header, rows, goes=goes)], mine)]


def _format_value(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _format_difference(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value + 0.0:+.{digits}f}"


def _format_p_relation(p: str) -> str:
    return f"< {p[1:]}" if p.startswith("<") else f"= {p}"


def _format_interval(low: float, high: float) -> str:
    return "-" if math.isnan(low) else f"{low:+.3f} to {high:+.3f}"


def _join_first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f", … ({len(names)})" if len(names) > 3 else "") if names else "-"


def render_csv(told: Gain) -> str:
    """Render one CSV row per document; if there are none, one per changed query.

    The columns `gain_…` are changes by term, before weights.
    """
    terms = [one.name for one in told.terms]
    if told.documents:
        header = ["document", "causal", "labelled", "alone", "novelty", "helped", "harmed", "relevant", "entered"]
        documents = [
            [
                one.id,
                *(format_exact(value) for value in (one.causal, one.labelled, one.alone, one.novelty)),
                *("" if math.isnan(one.causal) else str(len(queries)) for queries in (one.helped, one.harmed)),
                *(str(n) for n in (one.relevant, one.entered)),
                *(format_exact(one.changes.get(name)) for name in terms),
            ]
            for one in told.documents
        ]
        return render_csv_rows([*header, *(f"gain_{name}" for name in terms)], documents)
    terms = [name for name in terms if name != NOVELTY]
    moved = [
        [one.query, format_exact(one.gain), *(format_exact(one.changes.get(name)) for name in terms), one.text]
        for one in told.moved
    ]
    return render_csv_rows(["query", "gain", *(f"gain_{name}" for name in terms), "text"], moved)
