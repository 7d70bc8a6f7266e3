"""Personalised PageRank: comparison with networkx and rustworkx on random graphs, and values computed by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import rustworkx as rx
from hypothesis import given
from hypothesis import strategies as st

import ragauge
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.graphs import LinkArrays
from ragauge.core.stages import StageTimer
from ragauge.systems.graph_corpus import LinkedCorpus
from ragauge.systems.graph_walkers import PageRank
from small_graphs import to_networkx, to_rustworkx


class Points:
    """Embedder of numbers: a single number n is the n-th unit vector, several numbers are a vector.

    Documents are unit vectors, so the numbers of a query are proportional to its cosines to the documents.
    """

    name = "points"

    def __init__(self, size):
        self.size = size

    def embed(self, texts):
        return np.array([self._vector(text) for text in texts], np.float32)

    def _vector(self, text):
        numbers = [float(word) for word in text.split()]
        return np.eye(self.size)[int(numbers[0])] if len(numbers) == 1 else np.array(numbers)


class FixedLinks:
    name = "given"

    def __init__(self, rows):
        self._rows = rows

    def link(self, documents, vectors):
        sources, targets, weights = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return LinkArrays(np.array(sources, np.int64), np.array(targets, np.int64), np.array(weights, float))


def make_corpus(size, rows) -> LinkedCorpus:
    documents = [Document(f"d{number}", str(number), metadata={"n": number}) for number in range(size)]
    return LinkedCorpus(documents, Points(size), [FixedLinks(rows)])


def start_probabilities(cosines, seeds, temperature):
    """Compute the start probability of each seed in a loop."""
    chosen = sorted(range(len(cosines)), key=lambda row: (-cosines[row], row))[:seeds]
    weights = {row: float(np.exp(cosines[row] / temperature)) for row in chosen}
    return {row: weight / sum(weights.values()) for row, weight in weights.items()}


SIZE = 9
node = st.integers(0, SIZE - 1)
edges = st.lists(st.tuples(node, node, st.integers(1, 16).map(lambda n: n / 8)), max_size=24)
queries = st.lists(st.integers(-4, 9), min_size=SIZE, max_size=SIZE).filter(any)


@given(edges, queries, st.integers(1, SIZE), st.sampled_from([0.0, 0.5, 0.85, 0.95]), st.sampled_from([0.05, 0.5]))
def test_pagerank_matches_networkx_and_rustworkx(rows, query, seeds, damping, temperature):
    """Graphs have few links, so isolated nodes are common."""
    corpus = make_corpus(SIZE, rows)
    text = " ".join(map(str, query))
    cosines = corpus.similarities(text)
    ranker = PageRank(corpus, seeds=seeds, damping=damping, temperature=temperature, tolerance=1e-10, rounds=2000)
    hits = ranker.search(text, SIZE)
    personalization = start_probabilities(cosines, seeds, temperature)
    exact = nx.pagerank(
        to_networkx(corpus.graph),
        alpha=damping,
        personalization={f"d{row}": share for row, share in personalization.items()},
        tol=1e-12,
        max_iter=5000,
    )
    total = sum(hit.score for hit in hits)
    assert {hit.id: pytest.approx(hit.score / total, abs=1e-6) for hit in hits} == exact
    rustworkx_scores = rx.pagerank(
        to_rustworkx(corpus.graph).to_directed(),
        alpha=damping,
        weight_fn=float,
        personalization=personalization,
        tol=1e-12,
        max_iter=5000,
    )
    assert {hit.id: pytest.approx(hit.score / total, abs=1e-6) for hit in hits} == {
        f"d{row}": share for row, share in rustworkx_scores.items()
    }


def test_pagerank_large_random_graph_matches_networkx():
    rng = np.random.default_rng(3)
    size = 400
    rows = list(zip(rng.integers(0, size, 700), rng.integers(0, size, 700), rng.random(700) + 0.01, strict=True))
    corpus = make_corpus(size, rows)
    assert (corpus.graph.degrees == 0).any()
    text = " ".join(map(str, rng.normal(size=size)))
    start_shares = start_probabilities(corpus.similarities(text), 10, 0.05)
    exact = nx.pagerank(
        to_networkx(corpus.graph), personalization={f"d{row}": share for row, share in start_shares.items()}, tol=1e-12
    )
    hits = PageRank(corpus, damping=0.85, temperature=0.05).search(text, size)
    total = sum(hit.score for hit in hits)
    assert len(hits) == size
    np.testing.assert_allclose([hit.score / total for hit in hits], [exact[hit.id] for hit in hits], atol=1e-6)


def test_pagerank_two_linked_documents_by_hand():
    """With the seed d0, x0 = 0.5 · x1 + 0.5 and x1 = 0.5 · x0, so x0 = 2/3 and x1 = 1/3."""
    found = PageRank(make_corpus(3, [(0, 1, 1.0)]), seeds=1, damping=0.5).search("1 0.5 0.2", 3)
    assert [hit.id for hit in found] == ["d0", "d1", "d2"]
    np.testing.assert_allclose([hit.score for hit in found], [1.0, 0.5, 0.0], atol=1e-7)
    assert (found[1].text, found[1].metadata) == ("1", {"n": 1})


def test_pagerank_blend_adds_weighted_cosine():
    corpus = make_corpus(3, [(0, 1, 1.0)])
    found = PageRank(corpus, seeds=1, damping=0.5, blend=0.25).search("1 -0.5 0.2", 3)
    scores = {hit.id: hit.score for hit in found}
    assert scores == {
        "d0": pytest.approx(1.0),
        "d1": pytest.approx(0.75 * 0.5),
        "d2": pytest.approx(0.25 * 0.2),
    }
    cosine_only = PageRank(corpus, blend=1.0).search("1 0.5 0.2", 3)
    np.testing.assert_allclose([hit.score for hit in cosine_only], [1.0, 0.5, 0.2], atol=1e-6)


def test_pagerank_ties_are_sorted_by_similarity_then_document_order():
    """d1 to d4 are linked to the seed with equal weights; d5 and d6 have no links."""
    rows = [(0, leaf, 0.1) for leaf in (1, 2, 3, 4)]
    found = PageRank(make_corpus(7, rows), seeds=1).search("9 1 2 2 1 3 4", 10)
    assert [hit.id for hit in found] == ["d0", "d2", "d3", "d1", "d4", "d6", "d5"]
    assert len({hit.score for hit in found[1:5]}) == 1


def test_pagerank_search_returns_at_most_k():
    corpus = make_corpus(4, [(0, 1, 1.0)])
    assert [hit.id for hit in PageRank(corpus, seeds=1).search("9 1 2 3", 2)] == ["d0", "d1"]
    assert PageRank(corpus).search("9 1 2 3", 0) == []


def test_pagerank_zero_query_vector_returns_no_hits():
    corpus = make_corpus(3, [(0, 1, 1.0)])
    assert PageRank(corpus).search("0 0 0", 3) == []
    assert PageRank(corpus).evidence("0 0 0", 3)["rounds_needed"] == 0


def test_pagerank_empty_or_single_document_corpus_returns_all_documents():
    empty = LinkedCorpus([], Points(3), [FixedLinks([])])
    assert PageRank(empty).search("1 0 0", 3) == []
    assert PageRank(empty).evidence("1 0 0", 3)["graph"]["nodes"] == 0
    corpus = LinkedCorpus([Document("only", "1 0")], Points(2), [FixedLinks([])])
    assert [(hit.id, hit.score) for hit in PageRank(corpus).search("3 4", 5)] == [("only", 1.0)]


def test_pagerank_evidence_reports_graph_parameters_and_rounds():
    corpus = make_corpus(3, [(0, 1, 1.0)])
    evidence = PageRank(corpus, seeds=1, damping=0.5, tolerance=1e-3).evidence("1 0.5 0.2", 3)
    # The change is 1 in the first round and halves every round. Round 11, with 2 ** -10, is the first below 1e-3.
    assert evidence["rounds_needed"] == 11
    assert evidence["graph"] == corpus.graph.about()
    assert (evidence["embedder"], evidence["seeds"], evidence["damping"], evidence["blend"]) == ("points", 1, 0.5, 0.0)
    assert PageRank(corpus, seeds=1, damping=0.5, rounds=2).evidence("1 0.5 0.2", 3)["rounds_needed"] == 2


def test_pagerank_records_walk_stage():
    ranker = PageRank(make_corpus(3, [(0, 1, 1.0)]))
    with StageTimer() as watch:
        ranker.search("1 0.5 0.2", 3)
    assert list(watch.nanoseconds) == ["embed", "retrieve", "walk"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("damping", 1.0, "damping must be a number from 0 to below 1, got 1.0"),
        ("damping", -0.1, "damping must be a number from 0 to below 1, got -0.1"),
        ("temperature", 0.0, "temperature must be a number above 0, got 0.0"),
        ("blend", 1.5, "blend must be a number from 0 to 1, got 1.5"),
        ("tolerance", 0.0, "tolerance must be a number between 0 and 1, got 0.0"),
        ("damping", float("nan"), "damping must be a number from 0 to below 1, got nan"),
        ("seeds", 0, "seeds must be at least 1, got 0"),
        ("rounds", 0, "rounds must be at least 1, got 0"),
        ("seeds", 2.5, "seeds must be a whole number"),
    ],
)
def test_pagerank_option_out_of_range_raises_error(option, value, message):
    with pytest.raises(BadInput, match=message):
        PageRank(make_corpus(2, []), **{option: value})


def test_pagerank_run_from_description_repeats_identically():
    described = "pagerank(embedder=words, graph=knn(neighbours=5)+entities, seeds=5)"
    run = ragauge.run("synthetic:multihop(documents=60, queries=10)", {"pr": described}, repeats=2).runs["pr"]
    evidence = run.manifest["evidence"]
    assert evidence["graph"]["nodes"] == 60
    assert set(evidence["graph"]["kinds"]) == {"knn(neighbours=5)", "entities"}
    assert evidence["rounds_needed"] > 1
    assert run.table["query"].n_unique() == 10
    assert run.repeats.drop("repeat").sort("query", "rank").equals(run.table.sort("query", "rank"))


def test_pagerank_run_manifest_counts_unknown_link_ids():
    documents = [Document("a", "one", metadata={"links": ["b", "gone"]}), Document("b", "two")]
    dataset = ragauge.Dataset("mine", documents, {"q": "one"}, ragauge.Judgments({"q": {"b": 1}}))
    run = ragauge.run(dataset, {"pr": "pagerank(embedder=words, graph=links)"}).runs["pr"]
    assert run.manifest["evidence"]["graph"]["skipped"] == {"links": {"unknown ids": 1}}
    assert run.table["doc"].to_list() == ["a", "b"]


def test_pagerank_coarse_tolerance_returns_all_documents():
    corpus = make_corpus(3, [(0, 1, 1.0), (1, 2, 1.0)])
    found = PageRank(corpus, tolerance=0.5, temperature=1.0).search("1 0.5 0.2", 3)
    assert [hit.id for hit in found] == ["d1", "d0", "d2"]
    assert all(hit.score > 0 for hit in found)
