"""Report of a graph analysis: summaries, tables, charts, and result files that are read again."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("altair")


from ragauge.core.findings import HistogramBin
from ragauge.core.summaries import Mean
from ragauge.files.serialization import to_json_data
from ragauge.knowledge import graph
from ragauge.knowledge.graph import report as graph_report
from ragauge.knowledge.graph.charts import DISTANCE_COLOURS, build_charts
from ragauge.knowledge.graph.results import (
    DegreeSummary,
    GraphAnalysis,
    Hub,
    LinkKind,
    LinkRelevance,
    QueryReach,
    Reach,
    ReachableRecall,
)
from ragauge.output.csv import render_csv
from ragauge.output.terminal import render_report
from ragauge.reports import report
from ragauge.reports.registry import is_result_file, read_results, write_results


def make_mean(value, low=None, high=None, n=9):
    return Mean(value, n, value if low is None else low, value if high is None else high)


def make_reach(kind="", nearer=(0.8, 0.7, 0.9), gap=(0.1, 0.05, 0.15)):
    relevant = [make_mean(part) for part in (0.2, 0.3, 0.1, 0.1, 0.1, 0.2)]
    others = [make_mean(part) for part in (0.0, 0.1, 0.2, 0.3, 0.3, 0.1)]
    within = [
        ReachableRecall(
            n, 5.0 * 4**n, 0.05 * 4**n, make_mean(r, r - 0.1, r + 0.1), make_mean(r - gap[0]), make_mean(*gap)
        )
        for n, r in enumerate((0.2, 0.5, 0.6, 0.7))
    ]
    rows = [QueryReach("q1", (1, 2, 0, 0, 0, 1), (4, 10, 20, 30, 29, 3), (1, 2, 3, 4))]
    return Reach(kind, make_mean(*nearer), make_mean(0.5), make_mean(0.3), relevant, others, within, rows)


ANALYSIS = GraphAnalysis(
    "docs",
    100,
    250,
    [LinkKind("links", 100, 90, 40), LinkKind("knn(neighbours=3)", 160, 150, 100)],
    DegreeSummary(5.0, 4.0, 30, 2, [HistogramBin(0, 1, 2), HistogramBin(1, 2, 90), HistogramBin(2, 31, 8)]),
    3,
    [98, 1, 1],
    0.25,
    [Hub("d1", "A <b>hub</b>", 30)],
    embedder="angles",
    seeds=5,
    queries=9,
    reach=[make_reach(), make_reach("links"), make_reach("knn(neighbours=3)")],
    link_relevance=[LinkRelevance("", 250, 10, 5, 4950, 9, 0.2, 1)],
)


def list_sentences(analysis):
    report = graph_report.build_report(analysis)
    return [report.summary, *report.details]


def sections_by_id(analysis):
    return {section.id: section for section in graph_report.build_report(analysis).sections}


def test_graph_report_summary_and_details_are_sentences():
    assert list_sentences(ANALYSIS) == [
        "Relevant documents are nearer to the seeds than other documents: 50.0% of those that are not seeds are one or "
        "two links away, and 30.0% of others.",
        "Within 1 link of 5 seeds, recall is at most 50.0% [40.0%, 60.0%], in 20.0% of the corpus. Plain search finds "
        "40.0% among as many documents: links lead to documents that similarity alone does not find.",
        "Within 2 links of 5 seeds, recall is at most 60.0% [50.0%, 70.0%], in 80.0% of the corpus. Plain search finds "
        "50.0% among as many documents: links lead to documents that similarity alone does not find.",
        "2.0% of the documents have no link, so no walk reaches or leaves them.",
    ]


@pytest.mark.parametrize(
    ("nearer", "gap", "first", "second"),
    [
        (
            (0.5, 0.4, 0.6),
            (0.0, -0.1, 0.1),
            "not significantly nearer to the seeds than other documents (9 queries)",
            "no significant difference (9 queries).",
        ),
        ((0.3, 0.2, 0.4), (-0.1, -0.2, -0.05), "farther from the seeds", "similarity alone finds more"),
        (
            (0.7, math.nan, math.nan),
            (0.2, math.nan, math.nan),
            "not significantly nearer",
            "no significant difference (9 queries).",
        ),
    ],
)
def test_graph_report_insignificant_interval_claims_no_difference(nearer, gap, first, second):
    lines = list_sentences(replace(ANALYSIS, reach=[make_reach(nearer=nearer, gap=gap)]))
    assert first in lines[0]
    assert second in lines[1]


def test_graph_report_evidence_does_not_contradict_verdict():
    nearer = "Relevant documents are nearer to the seeds than other documents: the probability of being nearer is "
    for near, others in ((1.0, 1.0), (0.5, 0.5), (0.5, 0.48), (0.4, 0.6)):
        equal_shares = replace(make_reach(), near=make_mean(near), near_others=make_mean(others))
        assert (
            list_sentences(replace(ANALYSIS, reach=[equal_shares]))[0]
            == f"{nearer}80.0% [70.0%, 90.0%], and 50% by chance."
        )
    farther = replace(make_reach(nearer=(0.3, 0.2, 0.4)), near=make_mean(0.1), near_others=make_mean(0.4))
    assert list_sentences(replace(ANALYSIS, reach=[farther]))[0].endswith(
        "10.0% of those that are not seeds are one or two links away, and 40.0% of others."
    )


def test_graph_report_no_difference_omits_figures():
    no_difference = replace(ANALYSIS, reach=[make_reach(nearer=(0.5, 0.4, 0.6), gap=(0.0, 0.0, 0.0))])
    assert list_sentences(no_difference)[0] == (
        "Relevant documents are not significantly nearer to the seeds than other documents (9 queries)."
    )
    assert list_sentences(no_difference)[1].endswith("Plain search finds 50.0% among as many documents: no difference.")


def test_graph_report_link_warnings_precede_results():
    warning = "links: no document has `links` in its metadata."
    assert list_sentences(replace(ANALYSIS, warnings=[warning]))[1] == warning
    no_links = replace(ANALYSIS, links=0, warnings=[warning])
    assert list_sentences(no_links) == ["There are no links, so a walk cannot leave its seeds.", warning]


def test_graph_report_warns_of_links_that_leak_relevance():
    overlapping = replace(ANALYSIS, link_relevance=[LinkRelevance("", 250, 10, 5, 4950, 9, 0.9, 8)])
    assert list_sentences(overlapping)[-1].startswith(
        "Possible leak: the relevant documents of a query overlap by 90.0% with the neighbours of a single document."
    )
    joining = replace(ANALYSIS, link_relevance=[LinkRelevance("", 8, 10, 6, 4950, 9, 0.1, 0)])
    assert list_sentences(joining)[-1].startswith(
        "Possible leak: 75.0% of the links join two relevant documents of one query."
    )


def test_graph_report_omits_relevance_section_without_relevant_pairs():
    no_pairs = replace(ANALYSIS, link_relevance=[LinkRelevance("", 250, 0, 0, 4950)])
    assert "relevance" in sections_by_id(ANALYSIS)
    assert "relevance" not in sections_by_id(no_pairs)


def test_graph_report_relevance_table_by_hand():
    text, table = sections_by_id(ANALYSIS)["relevance"].blocks
    # 5 of 250 links connect relevant pairs; 10 of 4950 pairs are relevant; 5 of these 10 are linked
    assert table.texts() == [["all links", "2.0%", "0.2%", "50.0%", "20.0%", "1"]]
    assert all(column.legend for column in table.columns[1:])
    assert text.text.startswith("9 queries with several relevant documents.")


def test_graph_report_all_relevant_documents_are_seeds():
    undefined = make_mean(math.nan, n=0)
    all_seeds = replace(make_reach(), nearer=undefined, near=undefined, near_others=undefined)
    assert list_sentences(replace(ANALYSIS, reach=[all_seeds]))[0] == (
        "Every relevant document is one of the 5 seeds: a walk can find nothing more."
    )


def test_graph_report_without_queries_has_only_structure():
    no_queries = replace(ANALYSIS, reach=[], link_relevance=[], queries=0)
    assert (
        list_sentences(no_queries)[0]
        == "100 documents with 250 links; the largest component has 98.0% of the documents."
    )
    assert list(sections_by_id(no_queries)) == ["shape", "links", "hubs"]
    assert render_csv(graph_report.build_rows_table(no_queries)).splitlines() == [
        "kind,links,only,documents",
        "links,100,90,40",
        "knn(neighbours=3),160,150,100",
    ]
    assert list_sentences(replace(no_queries, links=0))[0] == "100 documents with 0 links."


def test_graph_report_tables_fit_80_columns():
    found = graph.graph("synthetic:multihop(documents=100, queries=20)", "entities+knn(neighbours=8)")
    _, dropped = render_report(graph_report.build_report(found), 80)
    assert dropped == []


def test_graph_rows_table_has_counts_and_recall_per_query():
    header, first, *rest = (
        line.split(",") for line in render_csv(graph_report.build_rows_table(ANALYSIS)).splitlines()
    )
    row = dict(zip(header, first, strict=True))
    assert (row["kind"], row["query"], len(rest)) == ("all links", "q1", 2)
    assert (row["relevant_1_link"], row["others_never"]) == ("2", "3")
    # 1 + 4 documents are seeds, and 2 + 10 are one link away. Of 4 relevant documents, 3 are within one link.
    # Plain search at the same depth returns 2.
    assert (row["documents_0"], row["documents_1"], row["recall_1"], row["plain_1"]) == ("5", "17", "0.75", "0.5")


@pytest.mark.slow
def test_graph_result_round_trip_and_combined_page(tmp_path):
    found = graph.graph("synthetic:multihop(documents=60, queries=6)", "entities+knn(neighbours=3)")
    files = [str(tmp_path / f"graph.{extension}") for extension in ("json", "html", "md", "csv", "tex")]
    write_results([found], files)
    (restored,) = read_results(files[0])
    assert to_json_data(restored) == to_json_data(found)
    assert json.loads((tmp_path / "graph.json").read_text())["schema"] == "ragauge-graph/2"
    assert "## Reachable recall" in (tmp_path / "graph.md").read_text()
    assert is_result_file(files[0])
    report([found, found], tmp_path / "both.html")
    assert (tmp_path / "both.html").read_text().count("Distance of relevant documents") >= 2


def test_graph_charts_have_titles_and_alt_texts():
    found = build_charts(ANALYSIS)
    assert list(found) == ["reach", "within", "degrees"]
    assert [one.title for one in found["reach"].panels] == ["all links", "links", "knn(neighbours=3)"]
    assert found["reach"].alt.startswith("Relevant documents: seeds 20%, 1 link 30%, 2 links 10%")
    assert "within 2: 60%, plain search 50%" in found["within"].alt
    assert found["degrees"].alt == "Documents by links: 0: 2, 1: 90, 2-30: 8."
    assert found["degrees"].caption.endswith("the last bar has all documents with more than 1.")
    assert build_charts(replace(ANALYSIS, links=0, reach=[])) == {}


def test_graph_chart_adjacent_distance_colours_differ():
    rgb = [[int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in DISTANCE_COLOURS]
    assert min(math.dist(one, other) for one, other in pairwise(rgb)) > 100


def test_graph_page_escapes_titles_and_draws_charts(open_page, tmp_path):
    path = tmp_path / "graph.html"
    write_results([ANALYSIS], [str(path)])
    page = open_page(path, charts=True, size=(390, 800))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#graph-hubs td", has_text="A <b>hub</b>").count() == 1
    bars = page.locator('[data-chart^="graph-reach"] .mark-rect path')
    assert bars.count() == 3 * 12
    assert re.search("Leaks", page.locator("nav").inner_text())
