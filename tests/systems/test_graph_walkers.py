"""Graph walkers: link tables, random draws against exact probabilities, and rankings by visits."""

from __future__ import annotations

from itertools import product
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import run
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.graphs import Graph, LinkArrays
from ragauge.core.randomness import set_trial
from ragauge.systems.builder import SystemBuilder
from ragauge.systems.graph_corpus import (
    LinkedCorpus,
    LinkTable,
    compute_preferences,
    draw_columns,
    draw_rows,
    rank_visited,
    scale_to_unit,
    unique_visits,
    visit_scores,
)
from ragauge.systems.graph_swarm import Swarm
from ragauge.systems.graph_walkers import GraphFlow
from small_graphs import QUERY, FixedLinks, Points, build_walker, chi_squared_p, ids, make_corpus, to_networkx

MANY = 20_000
"""Number of draws in a test of frequencies; it detects a probability that is wrong by 0.02."""


# Link table -------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.sampled_from([0.5, 1.0, 2.0, 3.0])),
                max_size=20,
            ),
            st.integers(1, 5),
        )
    )
)
def test_link_table_keeps_heaviest_links_of_every_node(case):
    n, links, max_links = case
    columns = (np.array([link[i] for link in links], kind) for i, kind in enumerate((np.int64, np.int64, float)))
    graph = Graph.of([str(i) for i in range(n)], {"some": LinkArrays(*columns)})
    weights = {}
    for source, target, weight in links:
        if source != target:
            pair = (min(source, target), max(source, target))
            weights[pair] = max(weight, weights.get(pair, 0.0))
    numbers = {pair: number for number, pair in enumerate(sorted(weights))}
    table = LinkTable.of(graph, max_links)
    assert table.n_links == len(weights)
    for node in range(n):
        candidates = (
            (-weight, crc32(str(sum(pair) - node).encode()), pair) for pair, weight in weights.items() if node in pair
        )
        expected = sorted(candidates)[:max_links]
        is_link = table.weights[node] > 0
        assert table.ends[node][is_link].tolist() == [sum(pair) - node for *_, pair in expected]
        assert table.numbers[node][is_link].tolist() == [numbers[pair] for *_, pair in expected]
        heaviest = max(weights.values(), default=1.0)
        np.testing.assert_allclose(table.weights[node][is_link], [-weight / heaviest for weight, *_ in expected])


def test_link_table_restrict_to_matches_networkx_subgraph():
    rng = np.random.default_rng(4)
    pairs = np.unique(np.sort(rng.integers(0, 30, (90, 2)), axis=1), axis=0)
    graph = Graph.of(
        [str(i) for i in range(30)], {"some": LinkArrays(pairs[:, 0], pairs[:, 1], rng.integers(1, 9, len(pairs)) / 8)}
    )
    rows = rng.permutation(30)[:12]
    subtable = LinkTable.of(graph, 64).restrict_to(rows)
    expected = to_networkx(graph).subgraph([str(row) for row in rows])
    heaviest = graph.weights.max()
    seen = {}
    for node, place in zip(*np.nonzero(subtable.weights), strict=True):
        pair = (str(rows[node]), str(rows[subtable.ends[node, place]]))
        assert subtable.weights[node, place] == expected.edges[pair]["weight"] / heaviest
        seen.setdefault(int(subtable.numbers[node, place]), set()).add(frozenset(pair))
    assert {pair_set for pairs_of_number in seen.values() for pair_set in pairs_of_number} == {
        frozenset(pair) for pair in expected.edges
    }
    assert sorted(seen) == list(range(subtable.n_links)) == list(range(expected.number_of_edges()))
    assert all(len(pairs_of_number) == 1 for pairs_of_number in seen.values())


# Random draws -----------------------------------------------------------------------------------------------------


def test_draw_columns_and_draw_rows_are_proportional_to_weights():
    rng = np.random.default_rng(0)
    rows = np.array([[3.0, 0.0, 1.0, 6.0], [0.0, 1e-9, 3e-9, 0.0]])
    places, drawn = draw_columns(np.repeat(rows, MANY, axis=0), rng.random(2 * MANY))
    assert drawn.all()
    first, second = (np.bincount(half, minlength=4) for half in (places[:MANY], places[MANY:]))
    assert first[1] == 0
    assert chi_squared_p(first[[0, 2, 3]], [0.3, 0.1, 0.6]) > 0.001
    assert second[[0, 3]].tolist() == [0, 0]
    assert chi_squared_p(second[[1, 2]], [0.25, 0.75]) > 0.001
    row_counts = np.bincount(draw_rows(np.array([7, 2, 5]), np.array([1.0, 0.0, 3.0]), rng.random(MANY)), minlength=8)
    assert row_counts.sum() == row_counts[7] + row_counts[5]
    assert chi_squared_p(row_counts[[7, 5]], [0.25, 0.75]) > 0.001


@pytest.mark.parametrize("chance", [0.0, np.nextafter(1.0, 0.0)])
def test_draw_columns_and_draw_rows_never_draw_zero_weight(chance):
    weights = np.array([[0.0, 0.1, 0.2, 0.0], [0.0, 0.0, 0.0, 0.0]])
    places, drawn = draw_columns(weights, np.full(2, chance))
    assert places[0] in (1, 2)
    assert drawn.tolist() == [True, False]
    assert draw_rows(np.array([4, 5, 6]), np.array([0.0, 0.7, 0.0]), np.array([chance])).tolist() == [5]


def test_unique_visits_counts_each_node_once_per_path():
    rows, paths = unique_visits(np.array([[3, 1, 3, 1], [2, -1, -1, -1], [0, 0, 5, -1]]))
    assert list(zip(rows.tolist(), paths.tolist(), strict=True)) == [(1, 0), (3, 0), (2, 1), (0, 2), (5, 2)]


def test_scale_to_unit_returns_values_from_zero_to_one():
    assert scale_to_unit(np.array([2.0, 4.0, 3.0])).tolist() == [0, 1, 0.5]
    assert scale_to_unit(np.array([2.0, 2.0])).tolist() == [0, 0]


# Ranking ----------------------------------------------------------------------------------------------------------


def test_rank_visited_sorts_visited_first_with_strictly_falling_scores():
    corpus = make_corpus([0.9, 0.5, 0.7, 0.2, 0.7])
    cosines = corpus.similarities(QUERY)
    visited = np.array([1, 2, 3])
    scores = visit_scores(np.array([0.25, 0.25, 0.5]), cosines[visited], np.ones(3))
    found = rank_visited(corpus, 9, cosines, visited, scores)
    assert ids(found) == ["d", "c", "b", "a", "e"]
    hit_scores = [hit.score for hit in found]
    assert all(np.isfinite(hit_scores))
    assert hit_scores == sorted(set(hit_scores), reverse=True)
    assert ids(rank_visited(corpus, 2, cosines, visited, scores)) == ["d", "c"]
    assert rank_visited(corpus, 0, cosines, np.array([1]), np.array([0.5])) == []


def test_rank_visited_ties_keep_document_order():
    corpus = make_corpus([0.5, 0.5, 0.5, 0.5])
    cosines = corpus.similarities(QUERY)
    assert ids(rank_visited(corpus, 4, cosines, np.array([2, 3]), np.array([0.5, 0.5]))) == ["c", "d", "a", "b"]


# Trajectories -----------------------------------------------------------------------------------------------------


def count_visits(hits, names, walks):
    return [round((hit.score - 1e-6 * hit_cosine(hit)) * walks) for name in names for hit in hits if hit.id == name]


def hit_cosine(hit):
    return float(hit.text.split()[0])


def test_graph_flow_start_is_proportional_to_exp_similarity():
    corpus = make_corpus([0.6, 0.5, 0.4, 0.3])
    found = build_walker(GraphFlow, corpus, seeds=3, trajectories=MANY, temperature=0.2).search(QUERY, 3)
    weights = np.exp(np.array([0.6, 0.5, 0.4]) / 0.2)
    assert ids(found) == ["a", "b", "c"]
    assert chi_squared_p(count_visits(found, "abc", MANY), weights / weights.sum()) > 0.001


def test_graph_flow_step_is_proportional_to_weight_and_exp_similarity():
    corpus = make_corpus([0.8, 0.5, 0.4, 0.1], (0, 1, 1.0), (0, 2, 3.0), (0, 3, 2.0))
    found = build_walker(GraphFlow, corpus, seeds=1, trajectories=MANY, steps=1, temperature=0.3).search(QUERY, 4)
    weights = np.array([1.0, 3.0, 2.0]) * np.exp(np.array([0.5, 0.4, 0.1]) / 0.3)
    assert count_visits(found, "a", MANY) == [MANY]
    assert chi_squared_p(count_visits(found, "bcd", MANY), weights / weights.sum()) > 0.001


def test_graph_flow_visit_share_matches_exhaustive_enumeration():
    cosines = [0.8, 0.5, 0.4, 0.1, 0.6]
    links = [(0, 1, 1.0), (1, 2, 2.0), (0, 2, 0.5), (2, 3, 1.0), (3, 4, 3.0)]
    steps, walks = 4, 4000
    weight = np.zeros((5, 5))
    for source, target, link_weight in links:
        weight[source, target] = weight[target, source] = link_weight
    odds = weight * np.exp(np.array(cosines) / 0.5)
    odds /= odds.sum(axis=1, keepdims=True)
    exact = np.zeros(5)
    for path in product(range(5), repeat=steps):
        nodes = (0, *path)
        chance = np.prod([odds[source, target] for source, target in zip(nodes, path, strict=False)])
        exact[list(set(nodes))] += chance
    walker = build_walker(
        GraphFlow, make_corpus(cosines, *links), seeds=1, trajectories=walks, steps=steps, temperature=0.5
    )
    found = {hit.id: hit.score for hit in walker.search(QUERY, 5)}
    shares = np.array([found[name] for name in "abcde"])
    assert exact[0] == pytest.approx(1)
    # The tolerance is five standard errors of a share.
    assert np.all(np.abs(shares - exact) < 5 * np.sqrt(exact * np.abs(1 - exact) / walks) + 1e-5)


def test_graph_flow_stop_is_probability_of_ending_before_step():
    corpus = make_corpus([0.8, 0.5], (0, 1, 1.0))
    assert ids(build_walker(GraphFlow, corpus, seeds=1, stop=1.0).search(QUERY, 2)) == ["a", "b"]
    assert build_walker(GraphFlow, corpus, seeds=1, stop=1.0).search(QUERY, 2)[1].score < 0
    found = build_walker(GraphFlow, corpus, seeds=1, trajectories=MANY, steps=3, stop=0.3).search(QUERY, 2)
    stayed = MANY - count_visits(found, "b", MANY)[0]
    assert chi_squared_p([stayed, MANY - stayed], [0.3, 0.7]) > 0.001


@pytest.mark.parametrize("walker_class", [GraphFlow, Swarm])
def test_walker_never_leaves_connected_component(walker_class):
    # Both seeds are in the first of two squares. Its other two nodes (c and d) are less similar to the query than all
    # nodes of the second.
    square = [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.0)]
    second_square = [(source + 4, target + 4, weight) for source, target, weight in square]
    corpus = make_corpus([0.9, 0.8, 0.6, 0.62, 0.7, 0.68, 0.66, 0.64], *square, *second_square)
    found = build_walker(walker_class, corpus, seeds=2).search(QUERY, 8)
    assert set(ids(found)[:4]) == {"a", "b", "c", "d"}
    assert ids(found)[4:] == ["e", "f", "g", "h"]
    assert all(hit.score < 0 for hit in found[4:])


@pytest.mark.parametrize("walker_class", [GraphFlow, Swarm])
def test_walker_ranking_depends_on_trial_and_seed_only(walker_class):
    rng = np.random.default_rng(1)
    corpus = make_corpus(
        rng.uniform(0.2, 0.9, 26), *((source, target, 1.0) for source, target in rng.integers(0, 26, (60, 2)))
    )

    def search_in_trial(trial, seed=0):
        with set_trial(trial):
            return build_walker(walker_class, corpus, seed=seed).search(QUERY, 26)

    assert search_in_trial(1) == search_in_trial(1)
    assert len({tuple(ids(search_in_trial(trial))) for trial in range(4)}) > 1
    assert ids(search_in_trial(0, seed=7)) != ids(search_in_trial(0))
    assert {*ids(search_in_trial(1))} == {*ids(search_in_trial(2))} == set("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("walker_class", [GraphFlow, Swarm])
def test_walker_mean_scores_are_independent_of_document_order(walker_class):
    rng = np.random.default_rng(3)
    cosines = rng.permutation(np.linspace(0.2, 0.9, 12))
    pairs, weights = rng.integers(0, 12, (20, 2)).tolist(), (rng.random(20) + 0.1).tolist()
    links = [(one, other, weight) for (one, other), weight in zip(pairs, weights, strict=True)]
    order = rng.permutation(12)
    place = np.argsort(order)
    permuted = make_corpus(
        cosines[order], *((int(place[one]), int(place[other]), weight) for one, other, weight in links)
    )
    original = make_corpus(cosines, *links)
    values = []
    for corpus, key in ((original, list("abcdefghijkl")), (permuted, ["abcdefghijkl"[i] for i in place])):
        walker = build_walker(walker_class, corpus, seeds=3)
        rows = []
        for trial in range(150):
            with set_trial(trial):
                found = {hit.id: hit.score for hit in walker.search(QUERY, 12)}
            rows.append([max(found[name], 0.0) for name in key])
        values.append(np.array(rows))
    one, other = values
    error = np.sqrt(one.var(axis=0) / 150 + other.var(axis=0) / 150)
    assert np.all(np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4.5 * error + 1e-6)
    assert one.mean(axis=0).max() > 0.5


@pytest.mark.parametrize("walker_class", [GraphFlow, Swarm])
def test_walker_small_and_empty_corpora_return_valid_rankings(walker_class):
    assert walker_class(LinkedCorpus([], Points(), [FixedLinks()])).search(QUERY, 5) == []
    assert ids(walker_class(make_corpus([0.5])).search(QUERY, 5)) == ["a"]
    assert ids(walker_class(make_corpus([0.1, 0.9, 0.5])).search(QUERY, 2)) == ["b", "c"]
    assert ids(walker_class(make_corpus([0.1, 0.9, 0.5], (0, 1, 1.0))).search(QUERY, 9))[0] == "b"
    assert walker_class(make_corpus([0.1, 0.9])).search("0 0", 5) == []
    assert walker_class(make_corpus([0.1, 0.9])).search(QUERY, 0) == []
    negative = walker_class(make_corpus([-0.9, -0.5, -0.7], (0, 1, 1.0), (1, 2, 1.0))).search(QUERY, 3)
    assert set(ids(negative)) == {"a", "b", "c"}
    assert all(np.isfinite(hit.score) for hit in negative)


@given(st.data())
def test_walker_random_corpora_return_unique_documents_and_falling_scores(data):
    n = data.draw(st.integers(1, 9))
    cosines = data.draw(st.lists(st.floats(-1, 1), min_size=n, max_size=n).filter(any))
    node, weight = st.integers(0, n - 1), st.floats(1e-6, 1e6)
    corpus = make_corpus(cosines, *data.draw(st.lists(st.tuples(node, node, weight), max_size=15)))
    k = data.draw(st.integers(1, 12))
    extreme_options = (
        {"temperature": 0.01},
        {"alpha": 10.0, "beta": 10.0, "deposit": 1000.0},
        {"leap": 1.0},
        {"decay": 1.0},
    )
    for walker_class, options in zip((GraphFlow, Swarm, Swarm, Swarm), extreme_options, strict=True):
        found = build_walker(walker_class, corpus, seeds=3, **options).search(QUERY, k)
        scores = [hit.score for hit in found]
        assert len(set(ids(found))) == len(found) == (min(k, n) if corpus.similarities(QUERY).any() else 0)
        assert np.isfinite(scores).all()
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("walker_class", [GraphFlow, Swarm])
def test_walker_prior_prefers_documents_with_higher_value(walker_class):
    # The neighbours b and c differ only in `cited`. d has no `cited`, which counts as the lowest value.
    metadata_rows = [{}, {"cited": 10}, {"cited": 30}, {}]
    corpus = make_corpus([0.9, 0.5, 0.5, 0.5], (0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0), metadata=metadata_rows)
    np.testing.assert_allclose(compute_preferences(corpus, "cited", 2.0), np.exp([-2, -2, 0, -2]))
    assert compute_preferences(corpus, "", 2.0).tolist() == [1, 1, 1, 1]
    walker = build_walker(walker_class, corpus, seeds=1, prior="cited", prior_weight=10.0)
    assert ids(walker.search(QUERY, 4))[0] == "c"
    with pytest.raises(BadInput, match="`stars`"):
        build_walker(walker_class, corpus, prior="stars")


def test_graph_flow_prior_multiplies_step_odds_and_score():
    metadata_rows = [{"cited": 0}, {"cited": 0}, {"cited": 4}]
    corpus = make_corpus([0.9, 0.5, 0.5], (0, 1, 1.0), (0, 2, 1.0), metadata=metadata_rows)
    found = build_walker(
        GraphFlow, corpus, seeds=1, trajectories=MANY, steps=1, prior="cited", prior_weight=float(np.log(4))
    ).search(QUERY, 3)
    # c is drawn four times as often as b. A visit also counts four times as much: 1 for c and 1/4 for b.
    count_b, count_c = count_visits(found, "bc", MANY)
    assert 4 * count_b + count_c == pytest.approx(MANY, abs=4)
    assert chi_squared_p([4 * count_b, count_c], [0.2, 0.8]) > 0.001


@pytest.mark.parametrize(
    "options",
    [
        {"seeds": 0},
        {"trajectories": 0},
        {"steps": 1.5},
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"stop": 1.5},
        {"prior_weight": -1.0},
        {"prior_weight": 21.0},
        {"seed": -1},
        {"most_links": 0},
    ],
)
def test_graph_flow_invalid_option_raises_error(options):
    with pytest.raises(BadInput, match=f"graphflow: {next(iter(options))}"):
        build_walker(GraphFlow, make_corpus([0.5]), **options)


def test_graph_flow_and_swarm_defaults_have_equal_step_budget():
    corpus = make_corpus([0.5, 0.4], (0, 1, 1.0))
    flow, swarm = build_walker(GraphFlow, corpus).evidence(QUERY, 5), build_walker(Swarm, corpus).evidence(QUERY, 5)
    assert flow["steps"] == swarm["steps"] == 200 * 4 == 20 * 10 * 4
    for key in ("embedder", "graph", "seeds", "length", "most_links", "prior", "seed"):
        assert flow[key] == swarm[key]
    assert flow["graph"]["nodes"] == 2
    assert flow["embedder"] == "points"


def test_walker_rankings_are_independent_of_thread_count():
    systems = {
        "flow": "graphflow(graph=knn(neighbours=5))",
        "swarm": "swarm(graph=knn(neighbours=5), leap=0.1, router=true)",
        "again": "pipeline(of=dense, reranker=swarm(graph=knn(neighbours=5)))",
    }
    results = [
        run("synthetic:multihop(documents=80, queries=12)", systems, workers=workers, repeats=2, warmup=0, k=20)
        for workers in (1, 4)
    ]
    for name in systems:
        one_thread, four_threads = (result.runs[name] for result in results)
        assert len(one_thread.trials()) == 2
        for first_run, second_run in zip(one_thread.trials(), four_threads.trials(), strict=True):
            assert first_run.nested == second_run.nested
            assert len(first_run.nested) == 12
        assert one_thread.differing()


def test_system_builder_unknown_walker_option_error_lists_valid_options():
    documents = [Document("a", "one"), Document("b", "two")]
    with pytest.raises(BadInput) as refused:
        SystemBuilder(documents).check("graphflow(agents=5)")
    assert "trajectories" in (refused.value.hint or "")
