"""Report of a graph analysis: summary sentences, then tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.core.summaries import Mean
from ragauge.core.text import one_line
from ragauge.knowledge.graph.charts import drawn
from ragauge.knowledge.graph.results import DISTANCES, NEAR, STEPS, Following, QueryReach, Reach, Web, Within
from ragauge.output.numbers import count_noun, format_rate, number
from ragauge.output.report import Account, Part
from ragauge.output.tables import Rows
from ragauge.output.terminal import csv_text

ALL = "all links"
EVEN = 0.5
"""Value of `nearer` if links carry no information."""
MOSTLY = 0.5
"""Share of links between relevant documents, or overlap with one document's neighbours, that may be a leak."""
APART = 0.05
"""Differences of shares below this are not given as evidence."""
MANY = 1000
"""Number of documents from which no decimal is shown."""
LONG = 44
"""Maximum number of characters of a title."""


def account(web: Web) -> Account:
    """Build the report of a graph analysis."""
    kinds = " + ".join(one.name for one in web.kinds)
    asked = [count_noun(web.queries, "query", "queries"), f"seeds by {web.embedder}"] if web.reach else []
    parts = [*_distances(web), *_ceilings(web), *_by_kind(web), *_following(web), *_shape(web), *_links(web)]
    return Account(
        "graph",
        "Graph",
        [web.corpus, count_noun(web.documents, "document"), kinds, *asked],
        headline(web),
        [*parts, *_hubs(web)],
        more=_more(web),
        notes=web.notes,
        circumstances=web.circumstances,
    )


def headline(web: Web) -> str:
    """Summarise in one sentence whether relevant documents are nearer than chance."""
    if not web.reach:
        return f"{_size(web)}."
    whole = web.reach[0]
    if not whole.nearer.n:
        return (
            f"Every relevant document is among the {count_noun(web.seeds, 'seed')}: nothing is left for a walk to find."
        )
    if not web.links:
        return "There are no links: a walk cannot leave its seeds."
    return f"The answers are {_than_chance(whole.nearer)}{_evidence(whole)}."


def _evidence(whole: Reach) -> str:
    """Return the shares or the probability behind the summary.

    Empty if the result is not significant.
    """
    if whole.nearer.low <= EVEN <= whole.nearer.high or math.isnan(whole.nearer.low):
        return ""
    more = whole.near.value - whole.near_others.value
    if (more if whole.nearer.value > EVEN else -more) >= APART:
        shares = f"{format_rate(whole.near.value)} are {_reached(NEAR)} away, of all others {format_rate(whole.near_others.value)}"
        return f": of the relevant documents that are not seeds, {shares}"
    cases = f"in {_spread(whole.nearer)} of cases, where chance gives {EVEN:.0%}"
    return f": a relevant document is nearer to the seeds than another one {cases}"


def _size(web: Web) -> str:
    told = f"{count_noun(web.documents, 'document')} with {count_noun(web.links, 'link')}"
    return f"{told}: the largest part has {format_rate(web.largest[0] / web.documents)} of them" if web.links else told


def _than_chance(nearer: Mean) -> str:
    """Describe the probability against chance (0.5).

    >>> [_than_chance(Mean(0.7, 9, low, 0.9)) for low in (0.6, 0.4)]
    ['nearer than chance', 'no nearer than chance, as far as 9 queries can tell']
    """
    if nearer.low > EVEN:
        return "nearer than chance"
    if nearer.high < EVEN:
        return "farther than chance"
    return f"no nearer than chance, as far as {count_noun(nearer.n, 'query', 'queries')} can tell"


def _reached(links: int) -> str:
    """Describe a maximum number of links in words.

    >>> [_reached(n) for n in (1, 2, 3)]
    ['one link', 'one or two links', 'up to 3 links']
    """
    return {1: "one link", 2: "one or two links"}.get(links, f"up to {links} links")


def _more(web: Web) -> list[str]:
    found = list(web.doubts)
    if web.reach and web.links:
        found += [_ceiling(web, one) for one in web.reach[0].within[1 : NEAR + 1]]
    if web.links and web.degrees.isolated:
        part = format_rate(web.degrees.isolated / web.documents)
        found.append(f"{part} of the documents have no link: no walk comes to them, or goes on from them.")
    found += [_doubt(one) for one in web.following[:1] if _doubtful(one)]
    return found


def _ceiling(web: Web, within: Within) -> str:
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
        f"{way} can reach {_spread(within.recall)} of what is relevant, in {format_rate(within.share)} of the corpus; "
        f"plain search has {format_rate(within.plain.value)} among as many documents: {verdict}."
    )


def _doubtful(one: Following) -> bool:
    return one.share >= MOSTLY or one.star >= MOSTLY


def _doubt(one: Following) -> str:
    if one.star >= MOSTLY:
        told = f"The answers of a query are {format_rate(one.star)} the neighbours of a single document"
    else:
        told = f"{format_rate(one.share)} of the links join two answers of one query"
    return f"{told}: if the links were made from what makes answers right, a walk reads it off."


def _distances(web: Web) -> list[Part]:
    if not web.reach:
        return []
    whole = web.reach[0]
    rows = [
        [side, *(format_rate(one.value) for one in means)]
        for side, means in (("relevant", whole.relevant), ("others", whole.others))
    ]
    text = (
        f"Links from the nearest of the {count_noun(web.seeds, 'document')} that plain search finds first (seeds); never: "
        "no way leads there. Others are all documents that are not relevant, which is what chance would find."
    )
    table = Rows("", ["", *DISTANCES], rows)
    charts = {name: one for name, one in drawn(web).items() if name == "reach"}
    return [Part("distances", "How far the answers are", "Distances", text, [table], charts)]


def _ceilings(web: Web) -> list[Part]:
    if not web.reach:
        return []
    header = ["links", "documents", "recall", "plain", "differs by"]
    rows = [
        [
            str(one.links),
            f"{_documents(one.documents)} ({format_rate(one.share)})",
            _spread(one.recall),
            format_rate(one.plain.value),
            f"{_signed(one.gap.value)} ({_signed(one.gap.low)} to {_signed(one.gap.high)})",
        ]
        for one in web.reach[0].within
    ]
    text = (
        "The most that a walk of so many links can find: the recall of all documents within them. Walkers return only "
        "some of these, and find less. plain: the recall of plain search that returns as many documents."
    )
    charts = {name: one for name, one in drawn(web).items() if name == "within"}
    table = Rows("", header, rows, goes=(3,))
    return [Part("within", "What lies within reach", "Within reach", text, [table], charts)]


def _by_kind(web: Web) -> list[Part]:
    if len(web.reach) < 2:
        return []
    header = ["links", "nearer", "documents", "recall", "plain", "differs"]
    rows = [_kind(one) for one in web.reach]
    text = (
        "nearer: the chance that a relevant document is nearer to the seeds than one that is not, neither being a seed "
        "(ties count half; 50% says nothing); the rest is of what lies within "
        f"{NEAR} links."
    )
    return [Part("kinds", "Which links lead to the answers", "Kinds", text, [Rows("", header, rows, goes=(2,))])]


def _kind(one: Reach) -> list[str]:
    within = one.within[NEAR]
    return [
        one.kind or ALL,
        _spread(one.nearer),
        _documents(within.documents),
        format_rate(within.recall.value),
        format_rate(within.plain.value),
        _signed(within.gap.value),
    ]


def _following(web: Web) -> list[Part]:
    if not web.links or not any(one.pairs for one in web.following):
        return []
    header = ["links", "between", "by chance", "linked", "around one", "exactly"]
    rows = [
        [
            one.kind or ALL,
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
    return [Part("following", "Whether links follow the answers", "Leaks", text, [Rows("", header, rows, goes=(2, 5))])]


def _shape(web: Web) -> list[Part]:
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
    charts = {name: one for name, one in drawn(web).items() if name == "degrees"}
    table = Rows("", ["", ""], [list(line) for line in lines])
    return [Part("shape", "The graph", "Graph", rows=[table], charts=charts)]


def _links(web: Web) -> list[Part]:
    rows = [
        [one.name, f"{one.links:,}", f"{one.only:,}", f"{one.documents:,}", format_rate(one.documents / web.documents)]
        for one in web.kinds
    ]
    tables = [Rows("", ["kind", "links", "its own", "documents", "of all"], rows)]
    pairs = [[f"{one.one} and {one.other}", f"{one.pairs:,}"] for one in web.shared]
    if pairs:
        tables.append(Rows("Pairs of documents that two kinds link both", ["kinds", "pairs"], pairs))
    text = "its own: pairs that no other kind links; documents: those that have such a link."
    return [Part("links", "Links of each kind", "Links", text if pairs else "", tables)]


def _hubs(web: Web) -> list[Part]:
    rows = [[one.id, f"{one.links:,}", _short(one_line(one.title))] for one in web.hubs]
    table = Rows("", ["document", "links", "title"], rows, numbers=False)
    return [Part("hubs", "Documents with most links", "Hubs", rows=[table])] if rows else []


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


def _spread(mean: Mean) -> str:
    """Format a share with its interval, if it has one.

    >>> _spread(Mean(0.94, 9, 0.88, 0.975)), _spread(Mean(1.0, 1))
    ('94.0% (88.0 to 97.5)', '100.0%')
    """
    ends = "" if math.isnan(mean.low) else f" ({100 * mean.low:.1f} to {100 * mean.high:.1f})"
    return f"{format_rate(mean.value)}{ends}"


def _documents(mean: float) -> str:
    """Format a mean number of documents, with a decimal if it is small.

    >>> _documents(53.69), _documents(2470.2)
    ('53.7', '2,470')
    """
    return f"{mean:,.1f}" if mean < MANY else f"{mean:,.0f}"


def _signed(value: float) -> str:
    """Format a difference of shares in percentage points.

    >>> _signed(-0.0616), _signed(0.0), _signed(math.nan)
    ('-6.2', '+0.0', '-')
    """
    return "-" if math.isnan(value) else f"{100 * value + 0.0:+.1f}"


def csv(web: Web) -> str:
    """Render one CSV row per link kind and query.

    Without judgments, one per link kind.
    """
    if not web.reach:
        plain = [[one.name, str(one.links), str(one.only), str(one.documents)] for one in web.kinds]
        return csv_text(["kind", "links", "only", "documents"], plain)
    names = [name.replace(" ", "_") for name in DISTANCES]
    header = ["kind", "query", *(f"{side}_{name}" for side in ("relevant", "others") for name in names)]
    header += [f"{name}_{links}" for name in ("documents", "recall", "plain") for links in range(STEPS + 1)]
    rows = [
        [one.kind or ALL, query.query, *map(str, query.relevant), *map(str, query.others), *_figures(query)]
        for one in web.reach
        for query in one.queries
    ]
    return csv_text(header, rows)


def _figures(query: QueryReach) -> Sequence[str]:
    """Return documents, recall and recall of plain search within 0 to 3 links."""
    total = sum(query.relevant)
    documents = [sum(query.relevant[: far + 1]) + sum(query.others[: far + 1]) for far in range(STEPS + 1)]
    recall = [sum(query.relevant[: far + 1]) / total for far in range(STEPS + 1)]
    return [*map(str, documents), *map(number, recall), *(number(found / total) for found in query.plain)]
