"""Report of a graph analysis: summary sentences, then tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.core.summaries import Mean
from ragauge.core.text import one_line
from ragauge.knowledge.graph.charts import build_charts
from ragauge.knowledge.graph.results import (
    DISTANCE_LABELS,
    MAX_STEPS,
    NEAR_MAX_LINKS,
    GraphAnalysis,
    LinkRelevance,
    QueryReach,
    Reach,
    ReachableRecall,
)
from ragauge.output.numbers import count_noun, format_exact, format_rate
from ragauge.output.report import Report, Section
from ragauge.output.tables import TextTable
from ragauge.output.terminal import render_csv_rows

ALL_LINKS = "all links"
CHANCE_PROBABILITY = 0.5
"""Value of `nearer` if links carry no information."""
LEAK_SHARE = 0.5
"""Share of links between relevant documents, or overlap with one document's neighbours, that may be a leak."""
MIN_SHARE_DIFFERENCE = 0.05
"""Differences of shares below this are not given as evidence."""
MIN_COUNT_WITHOUT_DECIMALS = 1000
"""Number of documents from which no decimal is shown."""
MAX_TITLE_CHARS = 44
"""Maximum number of characters of a title."""


def build_report(web: GraphAnalysis) -> Report:
    """Build the report of a graph analysis."""
    kinds = " + ".join(one.name for one in web.kinds)
    asked = [count_noun(web.queries, "query", "queries"), f"seeds by {web.embedder}"] if web.reach else []
    parts = [
        *_distance_sections(web),
        *_reach_sections(web),
        *_kind_sections(web),
        *_relevance_sections(web),
        *_shape_sections(web),
        *_link_sections(web),
    ]
    return Report(
        "graph",
        "Graph",
        [web.corpus, count_noun(web.documents, "document"), kinds, *asked],
        summarise_graph(web),
        [*parts, *_hub_sections(web)],
        more=_further_sentences(web),
        notes=web.notes,
        circumstances=web.circumstances,
    )


def summarise_graph(web: GraphAnalysis) -> str:
    """Summarise in one sentence whether relevant documents are nearer than chance."""
    if not web.reach:
        return f"{_size_sentence(web)}."
    whole = web.reach[0]
    if not whole.nearer.n:
        return (
            f"Every relevant document is among the {count_noun(web.seeds, 'seed')}: nothing is left for a walk to find."
        )
    if not web.links:
        return "There are no links: a walk cannot leave its seeds."
    return f"The answers are {_compare_with_chance(whole.nearer)}{_distance_evidence(whole)}."


def _distance_evidence(whole: Reach) -> str:
    """Return the shares or the probability behind the summary.

    Empty if the result is not significant.
    """
    if whole.nearer.low <= CHANCE_PROBABILITY <= whole.nearer.high or math.isnan(whole.nearer.low):
        return ""
    more = whole.near.value - whole.near_others.value
    if (more if whole.nearer.value > CHANCE_PROBABILITY else -more) >= MIN_SHARE_DIFFERENCE:
        shares = (
            f"{format_rate(whole.near.value)} are {_links_phrase(NEAR_MAX_LINKS)} away, of all others "
            f"{format_rate(whole.near_others.value)}"
        )
        return f": of the relevant documents that are not seeds, {shares}"
    cases = f"in {_format_share_interval(whole.nearer)} of cases, where chance gives {CHANCE_PROBABILITY:.0%}"
    return f": a relevant document is nearer to the seeds than another one {cases}"


def _size_sentence(web: GraphAnalysis) -> str:
    told = f"{count_noun(web.documents, 'document')} with {count_noun(web.links, 'link')}"
    return f"{told}: the largest part has {format_rate(web.largest[0] / web.documents)} of them" if web.links else told


def _compare_with_chance(nearer: Mean) -> str:
    """Describe the probability against chance (0.5).

    >>> [_compare_with_chance(Mean(0.7, 9, low, 0.9)) for low in (0.6, 0.4)]
    ['nearer than chance', 'no nearer than chance, as far as 9 queries can tell']
    """
    if nearer.low > CHANCE_PROBABILITY:
        return "nearer than chance"
    if nearer.high < CHANCE_PROBABILITY:
        return "farther than chance"
    return f"no nearer than chance, as far as {count_noun(nearer.n, 'query', 'queries')} can tell"


def _links_phrase(links: int) -> str:
    """Describe a maximum number of links in words.

    >>> [_links_phrase(n) for n in (1, 2, 3)]
    ['one link', 'one or two links', 'up to 3 links']
    """
    return {1: "one link", 2: "one or two links"}.get(links, f"up to {links} links")


def _further_sentences(web: GraphAnalysis) -> list[str]:
    found = list(web.doubts)
    if web.reach and web.links:
        found += [_reach_sentence(web, one) for one in web.reach[0].within[1 : NEAR_MAX_LINKS + 1]]
    if web.links and web.degrees.isolated:
        part = format_rate(web.degrees.isolated / web.documents)
        found.append(f"{part} of the documents have no link: no walk comes to them, or goes on from them.")
    found += [_leak_sentence(one) for one in web.following[:1] if _is_possible_leak(one)]
    return found


def _reach_sentence(web: GraphAnalysis, within: ReachableRecall) -> str:
    """Describe the recall within reach, compared with plain search.

    Both return the same number of documents.
    """
    gap = within.gap
    if gap.low > 0:
        verdict = "links lead to what likeness alone does not find"
    elif gap.high < 0:
        verdict = "likeness alone finds more than the links lead to"
    else:
        over = f"no clear difference over {count_noun(gap.n, 'query', 'queries')}"
        verdict = "the same" if gap.low == gap.high == 0 else over
    way = f"Walking {count_noun(within.links, 'link')} from {count_noun(web.seeds, 'seed')}"
    return (
        f"{way} can reach {_format_share_interval(within.recall)} of what is relevant, in "
        f"{format_rate(within.share)} of the corpus; "
        f"plain search has {format_rate(within.plain.value)} among as many documents: {verdict}."
    )


def _is_possible_leak(one: LinkRelevance) -> bool:
    return one.share >= LEAK_SHARE or one.star >= LEAK_SHARE


def _leak_sentence(one: LinkRelevance) -> str:
    if one.star >= LEAK_SHARE:
        told = f"The answers of a query are {format_rate(one.star)} the neighbours of a single document"
    else:
        told = f"{format_rate(one.share)} of the links join two answers of one query"
    return f"{told}: if the links were made from what makes answers right, a walk reads it off."


def _distance_sections(web: GraphAnalysis) -> list[Section]:
    if not web.reach:
        return []
    whole = web.reach[0]
    rows = [
        [side, *(format_rate(one.value) for one in means)]
        for side, means in (("relevant", whole.relevant), ("others", whole.others))
    ]
    text = (
        f"Links from the nearest of the {count_noun(web.seeds, 'document')} that plain search finds first (seeds); "
        f"never: "
        "no way leads there. Others are all documents that are not relevant, which is what chance would find."
    )
    table = TextTable("", ["", *DISTANCE_LABELS], rows)
    charts = {name: one for name, one in build_charts(web).items() if name == "reach"}
    return [Section("distances", "How far the answers are", "Distances", text, [table], charts)]


def _reach_sections(web: GraphAnalysis) -> list[Section]:
    if not web.reach:
        return []
    header = ["links", "documents", "recall", "plain", "differs by"]
    rows = [
        [
            str(one.links),
            f"{_format_document_count(one.documents)} ({format_rate(one.share)})",
            _format_share_interval(one.recall),
            format_rate(one.plain.value),
            f"{_format_points(one.gap.value)} ({_format_points(one.gap.low)} to {_format_points(one.gap.high)})",
        ]
        for one in web.reach[0].within
    ]
    text = (
        "The most that a walk of so many links can find: the recall of all documents within them. Walkers return only "
        "some of these, and find less. plain: the recall of plain search that returns as many documents."
    )
    charts = {name: one for name, one in build_charts(web).items() if name == "within"}
    table = TextTable("", header, rows, goes=(3,))
    return [Section("within", "What lies within reach", "Within reach", text, [table], charts)]


def _kind_sections(web: GraphAnalysis) -> list[Section]:
    if len(web.reach) < 2:
        return []
    header = ["links", "nearer", "documents", "recall", "plain", "differs"]
    rows = [_kind_row(one) for one in web.reach]
    text = (
        "nearer: the chance that a relevant document is nearer to the seeds than one that is not, neither being a seed "
        "(ties count half; 50% says nothing); the rest is of what lies within "
        f"{NEAR_MAX_LINKS} links."
    )
    return [
        Section("kinds", "Which links lead to the answers", "Kinds", text, [TextTable("", header, rows, goes=(2,))])
    ]


def _kind_row(one: Reach) -> list[str]:
    within = one.within[NEAR_MAX_LINKS]
    return [
        one.kind or ALL_LINKS,
        _format_share_interval(one.nearer),
        _format_document_count(within.documents),
        format_rate(within.recall.value),
        format_rate(within.plain.value),
        _format_points(within.gap.value),
    ]


def _relevance_sections(web: GraphAnalysis) -> list[Section]:
    if not web.links or not any(one.pairs for one in web.following):
        return []
    header = ["links", "between", "by chance", "linked", "around one", "exactly"]
    rows = [
        [
            one.kind or ALL_LINKS,
            format_rate(one.share),
            f"{one.chance:.3%}",
            format_rate(one.covered),
            format_rate(one.star),
            f"{one.stars:,} of {count_noun(one.queries, 'query', 'queries')}",
        ]
        for one in web.following
    ]
    text = (
        "Answers are documents that are relevant to the same query. between: the part of the links that is "
        "between two answers; by chance: that part if as many links were laid anywhere. linked: the part of all pairs "
        "of answers that has a link. around one: how much the answers of a query are the neighbours of one document; "
        "exactly: the queries whose answers are these neighbours and no others, of all with several answers. A walk "
        "lives on links that follow the answers; links that were made from them are a leak. No figure tells the two "
        "apart: ask where the links come from."
    )
    return [
        Section(
            "following", "Whether links follow the answers", "Leaks", text, [TextTable("", header, rows, goes=(2, 5))]
        )
    ]


def _shape_sections(web: GraphAnalysis) -> list[Section]:
    degrees = web.degrees
    largest = ", ".join(f"{size:,}" for size in web.largest)
    lines = [
        ("documents", f"{web.documents:,}"),
        ("links", f"{web.links:,}"),
        ("links of a document, mean", f"{degrees.mean:,.1f}"),
        ("links of a document, median", f"{degrees.median:,.1f}"),
        ("links of a document, most", f"{degrees.most:,}"),
        ("documents without a link", f"{degrees.isolated:,} ({format_rate(degrees.isolated / web.documents)})"),
        ("parts that no link joins", f"{web.components:,}"),
        ("documents of the largest", f"{largest}{', …' if web.components > len(web.largest) else ''}"),
        ("share of the largest", format_rate(web.largest[0] / web.documents)),
        ("neighbours that are linked themselves", format_rate(web.clustering)),
    ]
    charts = {name: one for name, one in build_charts(web).items() if name == "degrees"}
    table = TextTable("", ["", ""], [list(line) for line in lines])
    return [Section("shape", "The graph", "Graph", rows=[table], charts=charts)]


def _link_sections(web: GraphAnalysis) -> list[Section]:
    rows = [
        [one.name, f"{one.links:,}", f"{one.only:,}", f"{one.documents:,}", format_rate(one.documents / web.documents)]
        for one in web.kinds
    ]
    tables = [TextTable("", ["kind", "links", "its own", "documents", "of all"], rows)]
    pairs = [[f"{one.one} and {one.other}", f"{one.pairs:,}"] for one in web.shared]
    if pairs:
        tables.append(TextTable("Pairs of documents that two kinds link both", ["kinds", "pairs"], pairs))
    text = "its own: pairs that no other kind links; documents: those that have such a link."
    return [Section("links", "Links of each kind", "Links", text if pairs else "", tables)]


def _hub_sections(web: GraphAnalysis) -> list[Section]:
    rows = [[one.id, f"{one.links:,}", _shorten_title(one_line(one.title))] for one in web.hubs]
    table = TextTable("", ["document", "links", "title"], rows, numbers=False)
    return [Section("hubs", "Documents with most links", "Hubs", rows=[table])] if rows else []


def _shorten_title(text: str) -> str:
    return text if len(text) <= MAX_TITLE_CHARS else f"{text[: MAX_TITLE_CHARS - 1]}…"


def _format_share_interval(mean: Mean) -> str:
    """Format a share with its interval, if it has one.

    >>> _format_share_interval(Mean(0.94, 9, 0.88, 0.975)), _format_share_interval(Mean(1.0, 1))
    ('94.0% (88.0 to 97.5)', '100.0%')
    """
    ends = "" if math.isnan(mean.low) else f" ({100 * mean.low:.1f} to {100 * mean.high:.1f})"
    return f"{format_rate(mean.value)}{ends}"


def _format_document_count(mean: float) -> str:
    """Format a mean number of documents, with a decimal if it is small.

    >>> _format_document_count(53.69), _format_document_count(2470.2)
    ('53.7', '2,470')
    """
    return f"{mean:,.1f}" if mean < MIN_COUNT_WITHOUT_DECIMALS else f"{mean:,.0f}"


def _format_points(value: float) -> str:
    """Format a difference of shares in percentage points.

    >>> _format_points(-0.0616), _format_points(0.0), _format_points(math.nan)
    ('-6.2', '+0.0', '-')
    """
    return "-" if math.isnan(value) else f"{100 * value + 0.0:+.1f}"


def render_csv(web: GraphAnalysis) -> str:
    """Render one CSV row per link kind and query.

    Without judgments, one per link kind.
    """
    if not web.reach:
        plain = [[one.name, str(one.links), str(one.only), str(one.documents)] for one in web.kinds]
        return render_csv_rows(["kind", "links", "only", "documents"], plain)
    names = [name.replace(" ", "_") for name in DISTANCE_LABELS]
    header = ["kind", "query", *(f"{side}_{name}" for side in ("relevant", "others") for name in names)]
    header += [f"{name}_{links}" for name in ("documents", "recall", "plain") for links in range(MAX_STEPS + 1)]
    rows = [
        [one.kind or ALL_LINKS, query.query, *map(str, query.relevant), *map(str, query.others), *_query_values(query)]
        for one in web.reach
        for query in one.queries
    ]
    return render_csv_rows(header, rows)


def _query_values(query: QueryReach) -> Sequence[str]:
    """Return documents, recall and recall of plain search within 0 to 3 links."""
    total = sum(query.relevant)
    documents = [sum(query.relevant[: far + 1]) + sum(query.others[: far + 1]) for far in range(MAX_STEPS + 1)]
    recall = [sum(query.relevant[: far + 1]) / total for far in range(MAX_STEPS + 1)]
    return [*map(str, documents), *map(format_exact, recall), *(format_exact(found / total) for found in query.plain)]
