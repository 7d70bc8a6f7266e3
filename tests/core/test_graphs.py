"""Graphs of documents and linked corpora: agreement with networkx, fingerprints, similarities and errors."""

from __future__ import annotations

import sys

import networkx as nx
import numpy as np
import pytest
import rustworkx as rx
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.graphs import Graph, LinkArrays
from ragauge.systems.graph_corpus import LinkedCorpus
from ragauge.systems.graph_links import NeighbourLinks


class CoordinateEmbedder:
    """Embedder of texts that are coordinates: "1 0" becomes the vector (1, 0)."""

    name = "plane"

    def embed(self, texts):
        return np.array([[float(number) for number in text.split()] for text in texts], np.float32).reshape(-1, 2)


class FixedLinks:
    """Linker that returns the given links."""

    def __init__(self, *rows, name="given"):
        self.name = name
        self._rows = rows

    def link(self, documents, vectors):
        sources, targets, weights = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return LinkArrays(np.array(sources), np.array(targets), np.array(weights))


def make_documents(*texts):
    return [Document(f"d{row}", text) for row, text in enumerate(texts)]


def make_links(rows, skipped=None):
    sources, targets, weights = zip(*rows, strict=True) if rows else ((), (), ())
    return LinkArrays(np.array(sources, np.int64), np.array(targets, np.int64), np.array(weights), skipped or {})


# Graphs -----------------------------------------------------------------------------------------------------------

node = st.integers(0, 7)
row = st.tuples(node, node, st.integers(1, 8).map(lambda n: n / 4))
kinds = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.lists(row, max_size=20))


def build_expected_graph(by_kind) -> nx.Graph:
    """Build the expected graph: the weight of a pair is its heaviest link per kind, summed over the kinds."""
    graph = nx.Graph()
    graph.add_nodes_from(f"d{number}" for number in range(8))
    for rows in by_kind.values():
        heaviest: dict[tuple[int, int], float] = {}
        for one, other, weight in rows:
            if one != other:
                pair = (min(one, other), max(one, other))
                heaviest[pair] = max(weight, heaviest.get(pair, 0.0))
        for (one, other), weight in heaviest.items():
            before = graph.get_edge_data(f"d{one}", f"d{other}", {"weight": 0.0})["weight"]
            graph.add_edge(f"d{one}", f"d{other}", weight=before + weight)
    return graph


@given(kinds)
def test_graph_of_random_links_matches_networkx(by_kind):
    graph = Graph.of([f"d{number}" for number in range(8)], {kind: make_links(rows) for kind, rows in by_kind.items()})
    expected = build_expected_graph(by_kind)
    assert nx.utils.graphs_equal(graph.to_networkx(), expected)
    assert graph.links == expected.number_of_edges()
    assert graph.degrees.tolist() == [degree for _, degree in expected.degree()]
    for number in range(8):
        neighbours = graph.ends[graph.starts[number] : graph.starts[number + 1]].tolist()
        assert neighbours == sorted(int(name[1:]) for name in expected[f"d{number}"])
        assert (graph.sources[graph.starts[number] : graph.starts[number + 1]] == number).all()


@given(kinds)
def test_graph_to_rustworkx_matches_to_networkx(by_kind):
    graph = Graph.of([f"d{number}" for number in range(8)], {kind: make_links(rows) for kind, rows in by_kind.items()})
    converted = graph.to_rustworkx()
    assert isinstance(converted, rx.PyGraph)
    assert converted.nodes() == graph.ids
    edges = {(converted[one], converted[other]): weight for one, other, weight in converted.weighted_edge_list()}
    assert edges == {(one, other): weight for one, other, weight in graph.to_networkx().edges(data="weight")}


def test_graph_fingerprint_depends_on_nodes_links_and_weights():
    ids = ["a", "b", "c"]
    first = Graph.of(ids, {"x": make_links([(0, 1, 1.0), (1, 2, 0.5)])})
    assert Graph.of(ids, {"y": make_links([(2, 1, 0.5), (1, 0, 1.0)])}).fingerprint == first.fingerprint
    others = [
        Graph.of(["a", "b", "d"], {"x": make_links([(0, 1, 1.0), (1, 2, 0.5)])}),
        Graph.of(ids, {"x": make_links([(0, 1, 1.0), (0, 2, 0.5)])}),
        Graph.of(ids, {"x": make_links([(0, 1, 1.0), (1, 2, 0.25)])}),
    ]
    assert len({first.fingerprint, *(one.fingerprint for one in others)}) == 4


def test_graph_fingerprint_accepts_lone_surrogates():
    graph = Graph.of(["a\ud800", "b"], {"x": make_links([(0, 1, 1.0)])})
    assert len(graph.fingerprint) == 10
    assert graph.fingerprint != Graph.of(["a\ud801", "b"], {"x": make_links([(0, 1, 1.0)])}).fingerprint


def test_graph_about_reports_skipped_links():
    graph = Graph.of(["a", "b"], {"x": make_links([(0, 1, 1.0)], {"unknown ids": 3}), "y": make_links([])})
    description = graph.about()
    assert description.pop("fingerprint") == graph.fingerprint
    assert description == {"nodes": 2, "links": 1, "kinds": {"x": 1, "y": 0}, "skipped": {"x": {"unknown ids": 3}}}
    assert "skipped" not in Graph.of(["a", "b"], {"y": make_links([])}).about()


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (make_links([(0, 2, 1.0)]), "`x` links a node that does not exist; expected node numbers below 2"),
        (make_links([(-1, 1, 1.0)]), "`x` links a node that does not exist; expected node numbers below 2"),
        (make_links([(0, 1, 0.0)]), "the weights of `x` must be finite numbers above 0"),
        (make_links([(0, 1, -1.0)]), "the weights of `x` must be finite numbers above 0"),
        (make_links([(0, 1, np.nan)]), "the weights of `x` must be finite numbers above 0"),
        (make_links([(0, 1, np.inf)]), "the weights of `x` must be finite numbers above 0"),
        (LinkArrays(np.array([0]), np.array([1, 0]), np.array([1.0])), "`x` links 1 to 2 nodes with 1 weights"),
        (LinkArrays(np.array(["a"]), np.array(["b"]), np.array([1.0])), "the links of `x` must be numbers"),
    ],
)
def test_graph_of_invalid_links_raises(links, message):
    with pytest.raises(BadInput, match=message):
        Graph.of(["a", "b"], {"x": links})


def test_graph_of_int32_links_does_not_overflow():
    """The number of node pairs, 100,000², exceeds 32 bits."""
    small = LinkArrays(np.array([99_999, 70_000], np.int32), np.array([99_998, 3], np.int32), np.array([1.0, 2.0]))
    graph = Graph.of([str(number) for number in range(100_000)], {"x": small})
    ends = graph.ends.tolist()
    assert sorted(zip(graph.sources.tolist(), ends, strict=True)) == [
        (3, 70_000),
        (70_000, 3),
        (99_998, 99_999),
        (99_999, 99_998),
    ]


def test_graph_to_rustworkx_missing_library_raises_with_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rustworkx", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[graph\]"):
        Graph.of(["a"], {}).to_rustworkx()


def test_graph_to_networkx_missing_library_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(BadInput, match="pip install networkx"):
        Graph.of(["a"], {}).to_networkx()


# Linked corpora ---------------------------------------------------------------------------------------------------


def test_linked_corpus_similarities_are_cosines():
    corpus = LinkedCorpus(make_documents("3 4", "0 0", "0 -2"), CoordinateEmbedder(), [])
    np.testing.assert_allclose(corpus.similarities("0 5"), [0.8, 0.0, -1.0], atol=1e-6)
    assert not corpus.similarities("0 0").any()


def test_linked_corpus_empty_has_no_nodes():
    corpus = LinkedCorpus([], CoordinateEmbedder(), [NeighbourLinks(), FixedLinks()])
    assert len(corpus.graph) == 0
    assert corpus.similarities("1 0").shape == (0,)
    assert corpus.best(np.zeros(0), np.zeros(0), 3) == []
    assert corpus.about()["graph"]["kinds"] == {"knn(neighbours=8)": 0, "given": 0}


@pytest.mark.parametrize("wrong", ["nan 1", "inf 0"])
def test_linked_corpus_nan_vector_raises_with_document(wrong):
    with pytest.raises(BadInput, match="`plane` returned a vector with NaN or infinite values for the document `d1`"):
        LinkedCorpus(make_documents("1 0", wrong), CoordinateEmbedder(), [])
    with pytest.raises(BadInput, match="for the query"):
        LinkedCorpus(make_documents("1 0"), CoordinateEmbedder(), []).similarities(wrong)


def test_linked_corpus_wrong_vector_count_raises():
    class TruncatingEmbedder(CoordinateEmbedder):
        def embed(self, texts):
            return super().embed(texts)[1:]

    with pytest.raises(BadInput, match="`plane` returned 1 vectors for 2 texts"):
        LinkedCorpus(make_documents("1 0", "0 1"), TruncatingEmbedder(), [])


def test_linked_corpus_duplicate_document_id_raises():
    with pytest.raises(BadInput, match="duplicate document id `twin`"):
        LinkedCorpus([Document("a", "1 0"), Document("twin", "1 0"), Document("twin", "0 1")], CoordinateEmbedder(), [])


def test_linked_corpus_duplicate_linker_name_raises():
    with pytest.raises(BadInput, match="the graph has `given` twice"):
        LinkedCorpus(make_documents("1 0", "0 1"), CoordinateEmbedder(), [FixedLinks(), FixedLinks((0, 1, 1.0))])


def test_linked_corpus_accepts_lone_surrogate_ids():
    corpus = LinkedCorpus(
        [Document("\ud800", "1 0"), Document("b", "1 0")], CoordinateEmbedder(), [NeighbourLinks(neighbours=1)]
    )
    assert corpus.graph.links == 1
    assert [hit.id for hit in corpus.best(np.array([1.0, 2.0]), np.zeros(2), 2)] == ["b", "\ud800"]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), min_size=1, max_size=12),
    st.integers(0, 15),
)
def test_linked_corpus_best_sorts_by_score_similarity_and_order(rows, k):
    corpus = LinkedCorpus(make_documents(*["1 0"] * len(rows)), CoordinateEmbedder(), [])
    scores, similarities = (np.array(part, float) for part in zip(*rows, strict=True))
    hits = corpus.best(scores, similarities, k)
    order = sorted(range(len(rows)), key=lambda number: (-rows[number][0], -rows[number][1], number))[:k]
    assert [(hit.id, hit.score) for hit in hits] == [(f"d{number}", float(rows[number][0])) for number in order]


def test_linked_corpus_numbers_are_scaled_to_unit_interval():
    values = [10, None, 20.0, True, float("nan"), "30", 10**400, 15]
    documents = [Document(f"d{row}", "1 0", metadata={"year": value}) for row, value in enumerate(values)]
    assert LinkedCorpus(documents, CoordinateEmbedder(), []).numbers("year").tolist() == [
        0.0,
        0.0,
        1.0,
        0.0,
        0.0,
        0.0,
        0.0,
        0.5,
    ]
    assert LinkedCorpus(documents[:1], CoordinateEmbedder(), []).numbers("year").tolist() == [0.0]
    with pytest.raises(BadInput, match="no document has a number called `age`"):
        LinkedCorpus(documents, CoordinateEmbedder(), []).numbers("age")
