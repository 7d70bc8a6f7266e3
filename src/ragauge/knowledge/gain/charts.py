"""Charts of a gain: the best batch, and the changed queries."""

from __future__ import annotations

import math

from ragauge.knowledge.gain.results import Gain
from ragauge.output.chart_style import LOSS_COLOUR, PALETTE, WIN_COLOUR
from ragauge.output.charts import ChartRows, import_altair, join_sentence, make_panel, round_digits
from ragauge.output.numbers import format_number, pluralise
from ragauge.output.report import Chart

CHART_HEIGHT_PX = 200
MAX_QUERIES_DRAWN = 200
MAX_NAME_CHARS = 24
"""Maximum number of characters of a document name."""
MAX_TOOLTIP_CHARS = 120
"""Maximum number of characters of a query text."""


def build_charts(result: Gain) -> dict[str, Chart]:
    """Build all charts for which there is enough data."""
    charts = {}
    if len(result.batch) > 1:
        charts["batch"] = build_batch_chart(result)
    if len(result.gained) + len(result.lost) > 1:
        charts["queries"] = build_queries_chart(result)
    return charts


def build_batch_chart(result: Gain) -> Chart:
    """Build the chart of marginal gains by term, and of the batch's total."""
    alt = import_altair()
    names = [_shorten_name(f"{number}. {step.id}") for number, step in enumerate(result.batch, 1)]
    terms = [term.name for term in result.terms if not math.isnan(term.value)]
    bars: ChartRows = [
        {"document": name, "id": step.id, "term": term, "adds": round_digits(step.changes.get(term, 0.0))}
        for name, step in zip(names, result.batch, strict=True)
        for term in terms
    ]
    line: ChartRows = [
        {"document": name, "id": step.id, "total": round_digits(step.total), "adds": round_digits(step.marginal)}
        for name, step in zip(names, result.batch, strict=True)
    ]
    x = alt.X("document:N", title=None, sort=None, scale=alt.Scale(domain=names), axis=alt.Axis(labelAngle=-40))
    colour = alt.Color(
        "term:N",
        scale=alt.Scale(domain=terms, range=[PALETTE[i % len(PALETTE)] for i in range(len(terms))]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [
        alt.Tooltip("id:N", title="document"),
        alt.Tooltip("term:N"),
        alt.Tooltip("adds:Q", title="adds", format="+.5f"),
    ]
    totals = [alt.Tooltip("id:N", title="document"), alt.Tooltip("total:Q", format="+.5f", title="gain of the batch")]
    adds = alt.Chart(alt.Data(values=bars)).mark_bar(opacity=0.85)
    totals_by_step = alt.Chart(alt.Data(values=line))
    added = alt.Y("adds:Q", title="gain", axis=alt.Axis(tickCount=5))
    total = alt.Y("total:Q", title="gain of the batch", axis=alt.Axis(tickCount=5))
    panels = [
        make_panel(
            "Gain added by each document", [adds.encode(x=x, y=added, color=colour, tooltip=tips)], CHART_HEIGHT_PX
        ),
        make_panel(
            "Gain of the batch",
            [
                totals_by_step.mark_line(color=PALETTE[0], strokeWidth=2).encode(x=x, y=total),
                totals_by_step.mark_point(color=PALETTE[0], filled=True, size=45, opacity=1).encode(
                    x=x, y=total, tooltip=totals
                ),
            ],
            CHART_HEIGHT_PX,
        ),
    ]
    first, last = result.batch[0], result.batch[-1]
    alt_text = (
        f"A batch of {pluralise(len(result.batch), 'document')}: the first ({first.id}) adds "
        f"{format_number(first.marginal, 'signed')}, the last ({last.id}) {format_number(last.marginal, 'signed')}; "
        f"the batch gains {format_number(last.total, 'signed')}."
    )
    caption = join_sentence(
        "documents are in the order of selection: each adds most to those before it",
        "bars are the gain that it adds, by weighted term",
        "the line is the gain of the batch up to it",
    )
    return Chart("Best batch", caption, alt_text, panels)


def build_queries_chart(result: Gain) -> Chart:
    """Build the chart of the queries that gained or lost, largest gain first."""
    alt = import_altair()
    queries = sorted([*result.gained, *result.lost], key=lambda query: -query.gain)
    n_queries = len(queries)
    if n_queries > MAX_QUERIES_DRAWN:
        queries = queries[: MAX_QUERIES_DRAWN // 2] + queries[-MAX_QUERIES_DRAWN // 2 :]
    rows: ChartRows = [
        {
            "place": rank,
            "query": query.query,
            "text": query.text[:MAX_TOOLTIP_CHARS],
            "gain": round_digits(query.gain),
            "side": "gained" if query.gain > 0 else "lost",
        }
        for rank, query in enumerate(queries, 1)
    ]
    colour = alt.Color(
        "side:N",
        scale=alt.Scale(domain=["gained", "lost"], range=[WIN_COLOUR, LOSS_COLOUR]),
        legend=alt.Legend(title=None, orient="bottom"),
    )
    tips = [alt.Tooltip("query:N"), alt.Tooltip("text:N"), alt.Tooltip("gain:Q", format="+.4f")]
    x = alt.X("place:O", title=None, axis=None)
    bars = alt.Chart(alt.Data(values=rows)).mark_bar(opacity=0.9)
    layer = bars.encode(x=x, y=alt.Y("gain:Q", title="gain", axis=alt.Axis(tickCount=5)), color=colour, tooltip=tips)
    even = f", {len(result.even)} changed without gain or loss" if result.even else ""
    alt_text = (
        f"{pluralise(len(result.gained), 'query')} gained, {len(result.lost)} lost{even}, "
        f"{result.queries - len(result.changed_queries)} did not change."
    )
    caption = join_sentence(
        "each bar is the gain of a query that gained or lost",
        f"the first and the last {MAX_QUERIES_DRAWN // 2} are drawn" if n_queries > MAX_QUERIES_DRAWN else "",
    )
    return Chart("Changed queries", caption, alt_text, [make_panel("Changed queries", [layer], CHART_HEIGHT_PX)])


def _shorten_name(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…"
