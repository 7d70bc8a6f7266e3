"""`graph`: distances, reachable documents and relevance of links, by hand and compared with NetworkX and SciPy."""

from __future__ import annotations

import inspect
import json
import math
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

import ragauge
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.graphs import Graph, LinkArrays
from ragauge.core.records import Dataset, Judgments
from ragauge.knowledge import graph as knowledge_graph
from ragauge.knowledge.graph.distances import (
    BEYOND_MAX_STEPS,
    BLOCK_ROWS,
    UNREACHABLE,
    RankedQuery,
    clustering_coefficient,
    component_labels,
    count_by_distance,
    link_relevance,
    seed_distances,
    summarise_reach,
)
from ragauge.knowledge.graph.report import build_rows_table
from ragauge.knowledge.graph.results import MAX_STEPS
from ragauge.models.embedders import open_embedder
from ragauge.output.csv import render_csv
from ragauge.stats.intervals import mean_intervals
from ragauge.stores.reference import ExactStore
from ragauge.systems.dense import DenseRetriever
from ragauge.systems.graph_swarm import Swarm
from ragauge.systems.graph_walkers import GraphFlowSettings, PageRank


class AngleEmbedder:
    """Embedder that reads a text as an angle in degrees; a text that is not a number has a zero vector."""

    name = "angles"

    def embed(self, texts):
        angles = [None if not text.strip("-").isdigit() else math.radians(int(text)) for text in texts]
        rows = [[0.0, 0.0] if angle is None else [math.cos(angle), math.sin(angle)] for angle in angles]
        return np.array(rows, np.float32)


class FixedLinks:
    """Graph builder that links given pairs of document ids."""

    def __init__(self, name, *pairs):
        self.name = name
        self._pairs = pairs

    def link(self, documents, vectors):
        assert len(vectors) == len(documents)
        row_by_id = {one.id: row for row, one in enumerate(documents)}
        ends = np.array([[row_by_id[one] for one in pair] for pair in self._pairs], np.int64).reshape(-1, 2)
        return LinkArrays(ends[:, 0], ends[:, 1], np.ones(len(ends)))


CHAIN = FixedLinks("next", "ab", "bc", "cd", "de", "ef")
DOCUMENTS = [Document(name, str(10 * place)) for place, name in enumerate("abcdefg")]
DATA = Dataset(
    "line",
    DOCUMENTS,
    {"one": "0", "two": "60"},
    Judgments({"one": {"a": 1, "b": 0, "c": 2, "g": 1}, "two": {"f": 1}}),
)


def analyse_graph(data=DATA, graph=CHAIN, **settings):
    return knowledge_graph.graph(data, graph, embedder=AngleEmbedder(), **{"seeds": 1, **settings})


@st.composite
def random_graphs(draw):
    nodes = draw(st.integers(1, 30))
    ends = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=60))
    table = np.array(pairs, np.int64).reshape(-1, 2)
    links = LinkArrays(table[:, 0], table[:, 1], np.ones(len(table)))
    return Graph.of([str(node) for node in range(nodes)], {"drawn": links})


@given(random_graphs(), st.data())
def test_seed_distances_match_networkx(graph, data):
    seeds = data.draw(st.lists(st.integers(0, len(graph) - 1), unique=True, max_size=4))
    found = seed_distances(graph, component_labels(graph), np.array(seeds, np.int64))
    expected_graph = graph.to_networkx()
    path_lengths = (
        nx.multi_source_dijkstra_path_length(expected_graph, {str(seed) for seed in seeds}, weight=None)
        if seeds
        else {}
    )
    expected = [
        min(path_lengths[name], BEYOND_MAX_STEPS) if name in path_lengths else UNREACHABLE for name in graph.ids
    ]
    assert found.tolist() == expected


@given(random_graphs())
def test_components_and_clustering_match_networkx(graph):
    expected_graph = graph.to_networkx()
    assert sorted(np.bincount(component_labels(graph))) == sorted(map(len, nx.connected_components(expected_graph)))
    assert clustering_coefficient(graph) == pytest.approx(nx.average_clustering(expected_graph))


@pytest.mark.slow
def test_clustering_and_link_relevance_beyond_one_block_match_oracle():
    expected_graph = nx.gnm_random_graph(BLOCK_ROWS + 500, 9000, seed=4)
    ends = np.array(expected_graph.edges, np.int64)
    graph = Graph.of(
        [str(n) for n in expected_graph], {"drawn": LinkArrays(ends[:, 0], ends[:, 1], np.ones(len(ends)))}
    )
    assert clustering_coefficient(graph) == pytest.approx(nx.average_clustering(expected_graph))
    rng = np.random.default_rng(1)
    relevant = [rng.choice(len(graph), 40, replace=False) for _ in range(60)]
    (found,) = link_relevance({"": graph}, relevant)
    pairs = {tuple(sorted(pair)) for rows in relevant for pair in combinations(rows.tolist(), 2)}
    linked = {tuple(sorted(edge)) for edge in expected_graph.edges}
    assert (found.pairs, found.linked) == (len(pairs), len(pairs & linked))
    best_overlaps = [
        max(
            len(neighbours & set(rows.tolist())) / len(neighbours | set(rows.tolist()))
            for neighbours in map(set, expected_graph.adj.values())
        )
        for rows in relevant
    ]
    assert found.star == pytest.approx(np.mean(best_overlaps))


@given(random_graphs(), st.data())
def test_summarise_reach_nearer_matches_mann_whitney_u(graph, data):
    order = np.array(data.draw(st.permutations(range(len(graph)))), np.int64)
    relevant = np.array(sorted(data.draw(st.sets(st.integers(0, len(graph) - 1), min_size=1))), np.int64)
    rows = count_by_distance({"": graph}, [RankedQuery("q", relevant, order, 2)])
    (found,) = summarise_reach(rows, len(graph), 0.95)
    distances = seed_distances(graph, component_labels(graph), order[:2])
    relevant_distances = [distances[node] for node in relevant if distances[node]]
    other_distances = [distances[node] for node in set(range(len(graph))) - set(relevant.tolist()) if distances[node]]
    if not relevant_distances or not other_distances:
        assert math.isnan(found.nearer.value)
    else:
        assert found.nearer.value == pytest.approx(
            mannwhitneyu(other_distances, relevant_distances).statistic
            / (len(relevant_distances) * len(other_distances))
        )


def test_graph_reach_of_chain_by_hand():
    found = analyse_graph()
    (reach,) = found.reach
    one, two = reach.queries
    # The seed of query one is a: b is 1 link away, c 2, d 3, e and f further, and g is unreachable.
    # The seed of query two is g, which has no links.
    assert one.relevant == (1, 0, 1, 0, 0, 1)
    assert one.others == (0, 1, 0, 1, 2, 0)
    assert one.plain == (1, 1, 2, 2)
    assert two.relevant == (0, 0, 0, 0, 0, 1)
    assert two.others == (1, 0, 0, 0, 0, 5)
    assert two.plain == (0, 0, 0, 0)
    # Query one: of the other documents b, d, e and f, c is nearer than three and g than none: 3/8.
    # Query two: f ties with all: 1/2.
    assert reach.nearer.value == pytest.approx((3 / 8 + 1 / 2) / 2)
    assert reach.near.value == pytest.approx((1 / 2 + 0) / 2)
    assert reach.near_others.value == pytest.approx((1 / 4 + 0) / 2)
    assert [one.value for one in reach.relevant] == pytest.approx([1 / 6, 0, 1 / 6, 0, 0, (1 / 3 + 1) / 2])
    assert [one.value for one in reach.others] == pytest.approx([1 / 12, 1 / 8, 0, 1 / 8, 1 / 4, 5 / 12])
    assert [one.recall.value for one in reach.within] == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 3])
    assert [one.documents for one in reach.within] == pytest.approx([1, 1.5, 2, 2.5])
    assert [one.share for one in reach.within] == pytest.approx([1 / 7, 1.5 / 7, 2 / 7, 2.5 / 7])
    assert [one.gap.value for one in reach.within] == pytest.approx([0, 0, 0, 0])


def test_graph_plain_search_uses_as_many_documents_as_walk():
    within = analyse_graph(graph=FixedLinks("leap", "ag"), max_queries=1).reach[0].within
    # g is one link from the seed a, and relevant. Plain search for two documents returns a and b; b is not relevant.
    assert [(one.documents, one.recall.value, one.plain.value) for one in within[:2]] == [
        (1.0, pytest.approx(1 / 3), pytest.approx(1 / 3)),
        (2.0, pytest.approx(2 / 3), pytest.approx(1 / 3)),
    ]
    assert within[1].gap.value == pytest.approx(1 / 3)


def test_graph_kinds_degrees_and_hubs_by_hand():
    found = analyse_graph(graph=[CHAIN, FixedLinks("leap", "ab", "ac", "ad"), FixedLinks("none")])
    assert [tuple(one) for one in found.kinds] == [("next", 5, 4, 6), ("leap", 3, 2, 4), ("none", 0, 0, 0)]
    assert [tuple(one) for one in found.shared] == [("next", "leap", 1)]
    assert (found.documents, found.links, found.components, found.largest) == (7, 7, 2, [6, 1])
    degrees = found.degrees
    assert (degrees.mean, degrees.median, degrees.max, degrees.isolated) == (2.0, 2.0, 3, 1)
    assert [(bar.low, bar.n) for bar in degrees.bars] == [(0, 1), (1, 1), (2, 2), (3, 3)]
    assert [(hub.id, hub.links) for hub in found.hubs] == [("a", 3), ("c", 3), ("d", 3), ("b", 2), ("e", 2), ("f", 1)]
    assert found.hubs[1].title == "20"
    assert [one.kind for one in found.reach] == ["", "next", "leap"]


def test_graph_link_relevance_by_hand():
    star = FixedLinks("star", "ac", "ag")
    (found,) = analyse_graph(graph=star).link_relevance
    # Pairs of relevant documents: a-c, a-g, c-g of query one. Two of them are linked, of 21 pairs of documents.
    assert (found.pairs, found.linked, found.possible) == (3, 2, 21)
    assert (found.share, found.covered) == (1.0, 2 / 3)
    assert (found.queries, found.stars) == (1, 0)
    assert found.star == pytest.approx(2 / 3)
    (found,) = analyse_graph(graph=FixedLinks("all of one", "ba", "bc", "bg")).link_relevance
    assert (found.linked, found.star, found.stars) == (0, 1.0, 1)


def test_graph_without_links_or_with_all_seeds_is_valid():
    found = analyse_graph(graph=FixedLinks("none"))
    assert [one.value for one in found.reach[0].within[3][3:5]] == pytest.approx([1 / 6, 1 / 6])
    assert found.reach[0].relevant[-1].value == pytest.approx(5 / 6)
    assert math.isnan(found.link_relevance[0].share)
    all_seeds = analyse_graph(seeds=50).reach[0]
    assert all_seeds.relevant[0].value == 1.0
    assert (all_seeds.nearer.n, all_seeds.near.n) == (0, 0)


def test_graph_seeds_are_first_hits_of_plain_search():
    data = ragauge.load("synthetic:needles(documents=120, queries=20)")
    dense = DenseRetriever(data.documents, open_embedder("wordllama"), ExactStore())
    (reach,) = knowledge_graph.graph(data, FixedLinks("none"), seeds=4).reach
    for query_reach in reach.queries:
        hits = {hit.id for hit in dense.search(data.queries[query_reach.query], 4)}
        relevant = {doc for doc, grade in data.judgments.nested[query_reach.query].items() if grade >= 1}
        assert (query_reach.relevant[0], query_reach.others[0]) == (len(hits & relevant), len(hits - relevant))


def test_graph_means_and_intervals_are_over_queries():
    found = knowledge_graph.graph("synthetic:multihop(documents=80, queries=25)", "knn(neighbours=4)", seeds=3)
    rows = [line.split(",") for line in render_csv(build_rows_table(found)).splitlines()]
    table = {name: [row[column] for row in rows[1:]] for column, name in enumerate(rows[0])}
    assert len(rows) == 26
    for within in found.reach[0].within:
        recall = np.array(table[f"recall_{within.links}"], float)
        plain = np.array(table[f"plain_{within.links}"], float)
        ends = mean_intervals(np.column_stack([recall, recall - plain]))
        assert within.recall[0] == pytest.approx(recall.mean())
        assert within.recall[2:] == pytest.approx(ends[:, 0])
        assert within.gap[0] == pytest.approx((recall - plain).mean())
        assert within.gap[2:] == pytest.approx(ends[:, 1])
        assert within.documents == pytest.approx(np.mean(np.array(table[f"documents_{within.links}"], float)))


def test_graph_all_links_reach_at_least_as_far_as_each_kind():
    found = knowledge_graph.graph("synthetic:multihop(documents=100, queries=20)", "entities+knn(neighbours=3)")
    all_links, *kinds = found.reach
    assert [kind_reach.kind for kind_reach in kinds] == ["entities", "knn(neighbours=3)"]
    for steps in range(MAX_STEPS + 1):
        assert all(
            all_links.within[steps].recall.value >= kind_reach.within[steps].recall.value for kind_reach in kinds
        )
        assert all(all_links.within[steps].documents >= kind_reach.within[steps].documents for kind_reach in kinds)


def test_graph_query_that_is_a_document_is_not_its_own_seed():
    documents = [*DOCUMENTS, Document("two", "60")]
    judgments = Judgments({"two": {"f": 1}})
    (reach,) = analyse_graph(Dataset("own", documents, {"two": "60"}, judgments)).reach
    assert sum(reach.queries[0].relevant) + sum(reach.queries[0].others) == 7
    assert reach.queries[0].others[0] == 1


def test_graph_notes_uncounted_queries_and_documents():
    grades = {"one": {"a": 1, "gone": 1}, "two": {"gone": 1}, "three": {"c": 1}}
    data = Dataset("gaps", DOCUMENTS, {"one": "0", "two": "60", "three": "?"}, Judgments(grades))
    found = analyse_graph(data)
    assert found.queries == 2
    assert found.notes == [
        "1 of 3 queries left out: no relevant document in the corpus",
        "2 relevant documents not counted: not in the corpus",
        "1 query without a vector: no seeds, so no document is reached",
    ]
    assert found.reach[0].queries[1].relevant == (0, 0, 0, 0, 0, 1)


def test_graph_max_queries_limits_queries():
    assert analyse_graph(max_queries=1).queries == 1


def test_graph_corpus_without_queries_has_no_reach(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"_id": one, "text": str(n), "metadata": {"links": list("ab")}} for n, one in enumerate("abc")]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for source in (path, str(path), tmp_path):
        found = knowledge_graph.graph(source, "links", embedder=AngleEmbedder())
        assert (found.documents, found.links, found.reach, found.queries) == (3, 3, [], 0)
        assert found.notes == ["no queries: distances of relevant documents cannot be computed"]
    assert knowledge_graph.graph(DOCUMENTS, CHAIN, embedder=AngleEmbedder()).corpus == "documents"


def test_graph_links_of_mappings_are_read():
    rows = [{"id": "a", "text": "0", "metadata": {"links": ["b", "c"]}}, *({"id": n, "text": "9"} for n in "bc")]
    assert knowledge_graph.graph(rows, "links", embedder=AngleEmbedder()).links == 2


def test_graph_dangling_links_are_warned_once():
    documents = [Document("a", "0", "", {"links": ["b", "gone"]}), Document("b", "10")]
    found = knowledge_graph.graph(documents, "links", embedder=AngleEmbedder())
    assert found.links == 1
    assert found.warnings == ["links: 1 of 2 links name no document (gone)."]
    assert not any("unknown" in note for note in found.notes)  # the warning is not repeated


@pytest.mark.parametrize(
    ("rows", "warnings"),
    [
        ([{"links": ["B-1", "c-1"]}], ["links: 1 of 2 links name no document (B-1: did you mean b-1?)."]),
        ([{"links": {"cites": ["c--1"]}}], ["links: 1 of 1 links name no document (c--1: did you mean c-1?)."]),
        ([{}], ["links: no document has `links` in its metadata."]),
        (
            [{"references": ["b-1", "c-1"], "tags": ["x"], "see": ["b-1"]}],
            [
                "links: no document has `links` in its metadata "
                "(there is `references`, which names documents: links(field=references))."
            ],
        ),
        ([{"links": ["b-1"]}], []),
    ],
)
def test_graph_link_warnings_suggest_ids_and_fields(rows, warnings):
    documents = [Document("a-1", "0", "", rows[0]), Document("b-1", "10"), Document("c-1", "20")]
    assert knowledge_graph.graph(documents, "links+knn", embedder=AngleEmbedder()).warnings == warnings


def test_graph_links_outside_metadata_are_warned(tmp_path):
    rows = [{"_id": one, "text": str(n), "links": ["a"], "tags": ["x"]} for n, one in enumerate("abc")]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for source in (path, tmp_path):
        found = knowledge_graph.graph(source, "links", embedder=AngleEmbedder())
        assert found.warnings == [
            "links: no document has `links` in its metadata.",
            "The field `links` names documents, but is not in `metadata`, so it is not read.",
        ]


def test_graph_default_seeds_equal_those_of_walkers():
    seeds = [inspect.signature(walker).parameters["seeds"].default for walker in (PageRank, Swarm)]
    defaults = [*seeds, GraphFlowSettings().seeds]
    assert defaults == [inspect.signature(knowledge_graph.graph).parameters["seeds"].default] * 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": 1.5}, "seeds must be a whole number of at least 1, got 1.5"),
        ({"max_queries": 0}, "max_queries must be at least 1, got 0"),
        ({"confidence": 1.0}, "confidence must be above 0 and below 1, got 1"),
        ({"graph": []}, "no links given"),
        ({"graph": "knn+"}, "the graph `knn\\+` cannot be read"),
        ({"graph": "knn+knn"}, r"kind of links `knn\(neighbours=8\)` appears more than once"),
        ({"graph": [3]}, "int is not a linker"),
        ({"graph": "knn(neighbors=3)"}, "neighbors"),
        ({"data": 7}, "a corpus cannot be read from int"),
        ({"data": []}, "no documents in documents"),
    ],
)
def test_graph_invalid_settings_raise_error(settings, message):
    with pytest.raises(BadInput, match=message):
        analyse_graph(**settings)


def test_graph_unknown_names_raise_error():
    with pytest.raises(UnknownName, match="unknown graph `lnks`"):
        analyse_graph(graph="lnks")
    with pytest.raises(UnknownName, match="unknown embedder `minlm`"):
        knowledge_graph.graph(DATA, CHAIN, embedder="minlm")
    with pytest.raises(BadInput, match="int is not an embedder"):
        knowledge_graph.graph(DATA, CHAIN, embedder=3)


def test_graph_is_deterministic():
    first, second = (knowledge_graph.graph("synthetic:multihop(documents=60, queries=8)", seeds=2) for _ in range(2))
    assert first.reach == second.reach
    assert first.provenance["graph"] == second.provenance["graph"]
