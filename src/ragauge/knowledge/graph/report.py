"""Report of a graph analysis: whether links lead to relevant documents, and the links themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.core.summaries import Estimate, Mean
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
from ragauge.output.numbers import format_number, pluralise
from ragauge.output.report import (
    Block,
    Charts,
    Facts,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
    select_charts,
)
from ragauge.output.tables import Cell, Column, Row, Table, format_value

ALL_LINKS = "all links"
CHANCE_PROBABILITY = 0.5
"""Value of `nearer` if links carry no information."""
LEAK_SHARE = 0.5
"""Share of links between relevant documents, or overlap with one document's neighbours, that may be a leak."""
MIN_SHARE_DIFFERENCE = 0.05
"""Differences of shares below this are not given as evidence."""
MAX_TITLE_CHARS = 44
"""Maximum number of characters of a title."""


def build_report(result: GraphAnalysis) -> Report:
    """Build the report of a graph analysis."""
    subject = [result.corpus, pluralise(result.documents, "document"), " + ".join(kind.name for kind in result.kinds)]
    if result.reach:
        subject += [pluralise(result.queries, "query"), f"seeds by {result.embedder}"]
    sections = [
        _distances_section(result),
        _recall_section(result),
        _kinds_section(result),
        _relevance_section(result),
        _shape_section(result),
        _links_section(result),
        _hubs_section(result),
    ]
    return Report(
        "graph",
        "Graph",
        summarise_graph(result),
        [section for section in sections if section.blocks],
        subject,
        _further_sentences(result),
        notes=result.notes,
        provenance=result.provenance,
    )


def summarise_graph(result: GraphAnalysis) -> str:
    """Summarise in one sentence whether relevant documents are nearer to the seeds than others."""
    if not result.reach:
        size = f"{pluralise(result.documents, 'document')} with {pluralise(result.links, 'link')}"
        if not result.links:
            return f"{size}."
        share = format_number(result.largest[0] / result.documents, "share")
        return f"{size}; the largest component has {share} of the documents."
    overall = result.reach[0]
    if not overall.nearer.n:
        return f"Every relevant document is one of the {pluralise(result.seeds, 'seed')}: a walk can find nothing more."
    if not result.links:
        return "There are no links, so a walk cannot leave its seeds."
    return f"Relevant documents are {_compare_with_chance(overall.nearer)}{_distance_evidence(overall)}."


def _compare_with_chance(nearer: Mean) -> str:
    """Describe the probability against chance (0.5).

    >>> _compare_with_chance(Mean(0.7, 9, 0.4, 0.9))
    'not significantly nearer to the seeds than other documents (9 queries)'
    """
    if nearer.low > CHANCE_PROBABILITY:
        return "nearer to the seeds than other documents"
    if nearer.high < CHANCE_PROBABILITY:
        return "farther from the seeds than other documents"
    return f"not significantly nearer to the seeds than other documents ({pluralise(nearer.n, 'query')})"


def _distance_evidence(overall: Reach) -> str:
    """Return the shares or the probability behind the summary.

    Empty if the result is not significant.
    """
    if overall.nearer.low <= CHANCE_PROBABILITY <= overall.nearer.high or math.isnan(overall.nearer.low):
        return ""
    difference = overall.near.value - overall.near_others.value
    if (difference if overall.nearer.value > CHANCE_PROBABILITY else -difference) >= MIN_SHARE_DIFFERENCE:
        relevant, others = (format_number(mean.value, "share") for mean in (overall.near, overall.near_others))
        return (
            f": {relevant} of those that are not seeds are {_links_phrase(NEAR_MAX_LINKS)} away, and {others} of others"
        )
    return f": the probability of being nearer is {_format_mean(overall.nearer)}, and 50% by chance"


def _links_phrase(links: int) -> str:
    """Describe a maximum number of links in words.

    >>> [_links_phrase(n) for n in (1, 2, 3)]
    ['one link', 'one or two links', 'up to 3 links']
    """
    return {1: "one link", 2: "one or two links"}.get(links, f"up to {links} links")


def _to_estimate(mean: Mean) -> Estimate:
    return Estimate(mean.value, mean.low, mean.high)


def _format_mean(mean: Mean) -> str:
    """Format a share with its interval, if it has one.

    >>> _format_mean(Mean(0.94, 9, 0.88, 0.975)), _format_mean(Mean(1.0, 1))
    ('94.0% [88.0%, 97.5%]', '100%')
    """
    return format_value(_to_estimate(mean), "share")


def _further_sentences(result: GraphAnalysis) -> list[str]:
    sentences = list(result.warnings)
    if result.reach and result.links:
        sentences += [_recall_sentence(result, within) for within in result.reach[0].within[1 : NEAR_MAX_LINKS + 1]]
    if result.links and result.degrees.isolated:
        share = format_number(result.degrees.isolated / result.documents, "share")
        sentences.append(f"{share} of the documents have no link, so no walk reaches or leaves them.")
    return sentences + [_leak_sentence(leak) for leak in result.link_relevance[:1] if _is_possible_leak(leak)]


def _recall_sentence(result: GraphAnalysis, within: ReachableRecall) -> str:
    """Describe the recall within reach, compared with plain search.

    Both return the same number of documents.
    """
    gap = within.gap
    if gap.low > 0:
        verdict = "links lead to documents that similarity alone does not find"
    elif gap.high < 0:
        verdict = "similarity alone finds more than the links lead to"
    elif gap.low == gap.high == 0:
        verdict = "no difference"
    else:
        verdict = f"no significant difference ({pluralise(gap.n, 'query')})"
    reach = f"Within {pluralise(within.links, 'link')} of {pluralise(result.seeds, 'seed')}"
    return (
        f"{reach}, recall is at most {_format_mean(within.recall)}, in {format_number(within.share, 'share')} of the "
        f"corpus. Plain search finds {format_number(within.plain.value, 'share')} among as many documents: {verdict}."
    )


def _is_possible_leak(leak: LinkRelevance) -> bool:
    return leak.share >= LEAK_SHARE or leak.star >= LEAK_SHARE


def _leak_sentence(leak: LinkRelevance) -> str:
    if leak.star >= LEAK_SHARE:
        overlap = format_number(leak.star, "share")
        evidence = f"the relevant documents of a query overlap by {overlap} with the neighbours of a single document"
    else:
        evidence = f"{format_number(leak.share, 'share')} of the links join two relevant documents of one query"
    return f"Possible leak: {evidence}. Check that judgments and links have different sources."


def _distances_section(result: GraphAnalysis) -> Section:
    title = "Distance of relevant documents"
    if not result.reach:
        return Section("distances", title, [])
    overall = result.reach[0]
    columns = [Column("documents", "name"), *(Column(label, "share") for label in DISTANCE_LABELS)]
    rows: list[Row] = [
        [group, *(mean.value for mean in means)]
        for group, means in (("relevant", overall.relevant), ("others", overall.others))
    ]
    text = (
        f"Number of links from the nearest seed; seeds are the {pluralise(result.seeds, 'document')} that plain search "
        "ranks first. Never: there is no path. Others: all documents that are not relevant."
    )
    charts = Charts(select_charts(lambda: build_charts(result), "reach"))
    return Section("distances", title, [Paragraph(text), Table("distances", columns, rows), charts], "Distances")


def _recall_section(result: GraphAnalysis) -> Section:
    if not result.reach:
        return Section("within", "Reachable recall", [])
    columns = [
        Column("links", "name"),
        Column("documents", "mean count"),
        Column("share", "share", legend="share of the corpus"),
        Column("recall", "share", legend="recall of all documents within these links, an upper bound for a walk"),
        Column("plain", "share", drop_order=1, legend="recall of plain search that returns as many documents"),
        Column("difference", "signed share", legend="recall minus plain, in percentage points"),
    ]
    rows: list[Row] = [
        [
            Cell(within.links, "count"),
            within.documents,
            within.share,
            _to_estimate(within.recall),
            within.plain.value,
            _to_estimate(within.gap),
        ]
        for within in result.reach[0].within
    ]
    charts = Charts(select_charts(lambda: build_charts(result), "within"))
    return Section("within", "Reachable recall", [Table("within", columns, rows), charts], "Recall")


def _kinds_section(result: GraphAnalysis) -> Section:
    if len(result.reach) < 2:
        return Section("kinds", "Link types", [])
    columns = [
        Column("links", "name"),
        Column(
            "nearer",
            "share",
            better=1,
            legend="probability that a relevant document is nearer to the seeds than another one; seeds are left out, "
            "ties count half, and chance is 50%",
        ),
        Column("documents", "mean count", drop_order=1, legend=f"documents within {NEAR_MAX_LINKS} links"),
        Column("recall", "share"),
        Column("plain", "share"),
        Column("difference", "signed share", better=1),
    ]
    rows: list[Row] = []
    for reach in result.reach:
        within = reach.within[NEAR_MAX_LINKS]
        values = [within.documents, within.recall.value, within.plain.value, within.gap.value]
        rows.append([reach.kind or ALL_LINKS, _to_estimate(reach.nearer), *values])
    return Section("kinds", "Link types", [Table("kinds", columns, rows).mark_best()], "Link types")


def _relevance_section(result: GraphAnalysis) -> Section:
    title = "Links between relevant documents"
    if not result.links or not any(relevance.pairs for relevance in result.link_relevance):
        return Section("relevance", title, [])
    columns = [
        Column("links", "name"),
        Column("between", "share", legend="share of the links that join two relevant documents of a query"),
        Column("by chance", "share", drop_order=1, legend="expected share for randomly placed links"),
        Column("linked", "share", legend="share of the pairs of relevant documents that are linked"),
        Column(
            "one document",
            "share",
            legend="overlap of the relevant documents of a query with the neighbours of one document",
        ),
        Column("exact", "count", drop_order=2, legend="queries whose relevant documents are exactly these neighbours"),
    ]
    rows: list[Row] = [
        [
            relevance.kind or ALL_LINKS,
            relevance.share,
            relevance.chance,
            relevance.covered,
            relevance.star,
            relevance.stars,
        ]
        for relevance in result.link_relevance
    ]
    queries = pluralise(result.link_relevance[0].queries, "query")
    text = (
        f"{queries} with several relevant documents. Links that follow relevance help a walk, but links that judgments "
        "were made from are a leak. No measure separates the two: check where the links come from."
    )
    return Section("relevance", title, [Paragraph(text), Table("relevance", columns, rows)], "Leaks")


def _shape_section(result: GraphAnalysis) -> Section:
    degrees = result.degrees
    isolated = format_number(degrees.isolated / result.documents, "share")
    more = ", …" if result.components > len(result.largest) else ""
    facts = {
        "documents": format_number(result.documents, "count"),
        "links": format_number(result.links, "count"),
        "links per document, mean": format_number(degrees.mean, "mean count"),
        "links per document, median": format_number(degrees.median, "mean count"),
        "links per document, maximum": format_number(degrees.max, "count"),
        "documents without links": f"{degrees.isolated:,} ({isolated})",
        "connected components": format_number(result.components, "count"),
        "documents of the largest": ", ".join(f"{size:,}" for size in result.largest) + more,
        "share of the largest": format_number(result.largest[0] / result.documents, "share"),
        "clustering coefficient": format_number(result.clustering, "statistic"),
    }
    charts = Charts(select_charts(lambda: build_charts(result), "degrees"))
    return Section("shape", "Structure", [Facts(facts), charts], "Structure")


def _links_section(result: GraphAnalysis) -> Section:
    columns = [
        Column("kind", "name"),
        Column("links", "count"),
        Column("only", "count", legend="linked pairs that no other kind links"),
        Column("documents", "count", legend="documents with such a link"),
        Column("share", "share"),
    ]
    rows: list[Row] = [
        [kind.name, kind.links, kind.only, kind.documents, kind.documents / result.documents] for kind in result.kinds
    ]
    blocks: list[Block] = [Table("links", columns, rows)]
    pairs: list[Row] = [[f"{shared.one} and {shared.other}", shared.pairs] for shared in result.shared]
    if pairs:
        columns = [Column("kinds", "name"), Column("pairs", "count")]
        blocks.append(Table("shared", columns, pairs, "Pairs of documents that two kinds link"))
    return Section("links", "Links by kind", blocks, "Links")


def _hubs_section(result: GraphAnalysis) -> Section:
    columns = [Column("document", "name"), Column("links"), Column("title")]
    rows: list[Row] = [[hub.id, Cell(hub.links, "count"), _shorten_title(one_line(hub.title))] for hub in result.hubs]
    return Section("hubs", "Documents with most links", [Table("hubs", columns, rows)] if rows else [], "Hubs")


def _shorten_title(text: str) -> str:
    return text if len(text) <= MAX_TITLE_CHARS else f"{text[: MAX_TITLE_CHARS - 1]}…"


def build_rows_table(result: GraphAnalysis) -> Table:
    """Build the table with one row per link kind and query, for CSV.

    Without judgments, one per link kind.
    """
    if not result.reach:
        plain: list[Row] = [[kind.name, kind.links, kind.only, kind.documents] for kind in result.kinds]
        return Table("kinds", [Column(name) for name in ("kind", "links", "only", "documents")], plain)
    labels = [label.replace(" ", "_") for label in DISTANCE_LABELS]
    names = ["kind", "query", *(f"{group}_{label}" for group in ("relevant", "others") for label in labels)]
    names += [f"{name}_{links}" for name in ("documents", "recall", "plain") for links in range(MAX_STEPS + 1)]
    rows: list[Row] = [
        [reach.kind or ALL_LINKS, query.query, *query.relevant, *query.others, *_query_values(query)]
        for reach in result.reach
        for query in reach.queries
    ]
    return Table("queries", [Column(name) for name in names], rows)


def _query_values(query: QueryReach) -> Sequence[float]:
    """Return documents, recall and recall of plain search within 0 to 3 links."""
    total = sum(query.relevant)
    relevant = [sum(query.relevant[: links + 1]) for links in range(MAX_STEPS + 1)]
    others = [sum(query.others[: links + 1]) for links in range(MAX_STEPS + 1)]
    documents = [n + m for n, m in zip(relevant, others, strict=True)]
    return [*documents, *(n / total for n in relevant), *(n / total for n in query.plain)]


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per kind of link and query", build_rows_table)})
