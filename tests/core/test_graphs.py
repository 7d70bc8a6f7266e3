"""Graphs of documents and linked corpora: agreement with networkx, fingerprints, similarities and errors."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.graphs import Graph, LinkArrays
from small_graphs import to_networkx


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
    assert nx.utils.graphs_equal(to_networkx(graph), expected)
    assert graph.links == expected.number_of_edges()
    assert graph.degrees.tolist() == [degree for _, degree in expected.degree()]
    for number in range(8):
        neighbours = graph.ends[graph.starts[number] : graph.starts[number + 1]].tolist()
        assert neighbours == sorted(int(name[1:]) for name in expected[f"d{number}"])
        assert (graph.sources[graph.starts[number] : graph.starts[number + 1]] == number).all()


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
