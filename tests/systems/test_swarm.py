"""Swarm retrieval: draws against exact probabilities, pheromone computed by hand, the router and the reranker."""

from __future__ import annotations

import numpy as np
import pytest

from ragauge import run
from ragauge.core.documents import Hit
from ragauge.core.errors import BadInput
from ragauge.core.protocols import Reranker, Retriever
from ragauge.core.randomness import set_trial
from ragauge.systems import graph_swarm
from ragauge.systems.bm25 import find_top_k
from ragauge.systems.graph_corpus import LinkTable
from ragauge.systems.graph_swarm import MIN_PHEROMONE, AntColony, Swarm, SwarmReranker, WalkState, choose_route
from small_graphs import QUERY, build_walker, chi_squared_p, ids, make_corpus

MANY = 20_000
"""Number of agents in a test of frequencies."""


def make_colony(**options) -> AntColony:
    defaults = {"agents": 3, "rounds": 1, "steps": 1, "deposit": 1.0, "decay": 0.2}
    return AntColony(**(defaults | {"explore": 0.0, "alpha": 1.0, "beta": 1.0, "leap": 0.0} | options))


def make_walk_state(cosines, *links, of: AntColony, starts=(0,), tops=(0,), gain=None) -> WalkState:
    """Build the state of a walk from similarities and links (node, node, weight); the largest weight is scaled to 1."""
    table = LinkTable.of(make_corpus(cosines, *links).graph, 64)
    pull = of.pull(np.array(cosines, float), np.ones(len(cosines)))
    gains = np.array(cosines if gain is None else gain, float)
    return WalkState(table, table.to_power(of.beta), pull, gains, np.array(starts), np.array(tops))


def make_rng(seed=0):
    return np.random.default_rng(seed)


# Steps ------------------------------------------------------------------------------------------------------------

STAR = [(0, 1, 1.0), (0, 2, 0.5), (0, 3, 0.25)]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (0.0, 3.0), (2.0, 0.0)])
def test_ant_colony_step_odds_combine_pheromone_weight_and_similarity(alpha, beta):
    agents = make_colony(agents=MANY, alpha=alpha, beta=beta)
    state = make_walk_state([0.9, 0.3, 0.6, -0.5], *STAR, of=agents)
    pheromone = np.array([1.0, 0.5, 4.0])  # links 0-1, 0-2 and 0-3, in this order
    nodes, moves = agents.walk(state, pheromone, 0.0, make_rng())
    # A similarity below 0.01 counts as 0.01, so that every node can be reached.
    odds = pheromone**alpha * (np.array([1.0, 0.5, 0.25]) * np.array([0.3, 0.6, 0.01])) ** beta
    assert np.all(nodes[:, 0] == 0)
    visit_counts = np.bincount(nodes[:, 1], minlength=4)[1:]
    assert chi_squared_p(visit_counts, odds / odds.sum()) > 0.001
    assert np.bincount(moves[:, 0], minlength=3).tolist() == visit_counts.tolist()


def test_ant_colony_explore_one_walks_uniformly():
    agents = make_colony(agents=MANY, explore=1.0, beta=5.0)
    nodes, _ = agents.walk(
        make_walk_state([0.9, 0.3, 0.6, -0.5], *STAR, of=agents), np.array([1.0, 9.0, 0.1]), 0.0, make_rng()
    )
    assert chi_squared_p(np.bincount(nodes[:, 1], minlength=4)[1:], [1 / 3, 1 / 3, 1 / 3]) > 0.001


def test_ant_colony_partial_explore_mixes_uniform_and_weighted_steps():
    agents = make_colony(agents=MANY, explore=0.4)
    nodes, _ = agents.walk(make_walk_state([0.9, 0.3, 0.6, 0.4], *STAR, of=agents), np.ones(3), 0.0, make_rng())
    odds = np.array([0.3, 0.3, 0.1])
    assert chi_squared_p(np.bincount(nodes[:, 1], minlength=4)[1:], 0.4 / 3 + 0.6 * odds / odds.sum()) > 0.001


def test_ant_colony_uniform_walk_visits_nodes_by_degree():
    # After many steps, the visits of a node are proportional to its degree, regardless of the start.
    # A triangle with a tail has the degrees 2, 2, 3 and 1.
    agents = make_colony(agents=MANY, steps=40, explore=1.0)
    state = make_walk_state([0.9, 0.5, 0.5, 0.5], (0, 1, 1.0), (1, 2, 0.5), (0, 2, 1.0), (2, 3, 0.1), of=agents)
    nodes, _ = agents.walk(state, np.ones(4), 0.0, make_rng())
    assert chi_squared_p(np.bincount(nodes[:, -1], minlength=4), np.array([2, 2, 3, 1]) / 8) > 0.001


def test_ant_colony_starts_are_proportional_to_similarity():
    agents = make_colony(agents=MANY, beta=2.0)
    nodes, moves = agents.walk(
        make_walk_state([0.8, 0.4, 0.9, 0.2], of=agents, starts=(0, 1, 3)), np.ones(0), 0.0, make_rng()
    )
    odds = np.array([0.8, 0.4, 0.2]) ** 2
    assert chi_squared_p(np.bincount(nodes[:, 0], minlength=4)[[0, 1, 3]], odds / odds.sum()) > 0.001
    assert np.array_equal(nodes[:, 0], nodes[:, 1])  # without links an agent cannot move
    assert np.all(moves == -1)


def test_ant_colony_leap_lands_on_top_nodes_without_link():
    agents = make_colony(agents=MANY, leap=0.3)
    state = make_walk_state([0.9, 0.6, 0.2, 0.6, 0.4], (0, 1, 1.0), (0, 2, 1.0), (3, 4, 1.0), of=agents, tops=(3, 4))
    nodes, moves = agents.walk(state, np.ones(3), 0.3, make_rng())
    visit_counts = np.bincount(nodes[:, 1], minlength=5)
    assert chi_squared_p(visit_counts[1:], [0.7 * 0.75, 0.7 * 0.25, 0.3 * 0.6, 0.3 * 0.4]) > 0.001
    assert np.array_equal(moves[:, 0] == -1, nodes[:, 1] >= 3)


# Pheromone --------------------------------------------------------------------------------------------------------


def test_ant_colony_one_and_two_rounds_by_hand():
    # With two nodes and one link, all agents go back and forth. The mean gain of their path is (1 + 0.5) / 2 = 0.75.
    # Three agents deposit 3 * 2 * 0.75 = 4.5 on each link and node, once per path even if they pass it repeatedly.
    agents = make_colony(agents=3, steps=3, deposit=2.0, decay=0.2)
    state = make_walk_state([0.8, 0.6], (0, 1, 1.0), of=agents, gain=[1.0, 0.5])
    after_one = agents.run_rounds(state, 0.0, make_rng())
    np.testing.assert_allclose(after_one.links, [0.8 * 1 + 4.5])
    np.testing.assert_allclose(after_one.nodes, [4.5, 4.5])
    after_two = make_colony(agents=3, rounds=2, steps=3, deposit=2.0, decay=0.2).run_rounds(state, 0.0, make_rng())
    np.testing.assert_allclose(after_two.links, [0.8 * (0.8 + 4.5) + 4.5])
    np.testing.assert_allclose(after_two.nodes, [0.8 * 4.5 + 4.5, 0.8 * 4.5 + 4.5])
    assert after_two.visited.tolist() == [True, True]


def test_ant_colony_deposit_matches_loop_over_paths():
    agents = make_colony(agents=7, rounds=1, steps=5, deposit=1.5, decay=0.3, explore=0.2, beta=2.0)
    rng = make_rng(5)
    links = [(int(one), int(other), 1.0) for one, other in rng.integers(0, 10, (25, 2))]
    cosines = rng.uniform(0, 1, 10)
    state = make_walk_state(cosines, *links, of=agents, starts=(0, 3, 4), tops=(1, 2), gain=cosines - 0.4)
    nodes, moves = agents.walk(state, np.ones(state.links.n_links), 0.2, make_rng(9))
    node_pheromone, pheromone = np.zeros(10), np.full(state.links.n_links, 0.7)
    for path, path_links in zip(nodes, moves, strict=True):
        deposit = 1.5 * max(0.0, float(np.mean([cosines[node] - 0.4 for node in set(path.tolist())])))
        for node in set(path.tolist()):
            node_pheromone[node] += deposit
        for link in set(path_links.tolist()) - {-1}:
            pheromone[link] += deposit
    pheromones = agents.run_rounds(state, 0.2, make_rng(9))
    np.testing.assert_allclose(pheromones.nodes, node_pheromone)
    np.testing.assert_allclose(pheromones.links, pheromone)
    assert set(np.flatnonzero(pheromones.visited)) == set(nodes.ravel().tolist())


def test_ant_colony_path_below_mean_similarity_deposits_nothing():
    agents = make_colony(steps=2, decay=0.5)
    pheromones = agents.run_rounds(
        make_walk_state([0.8, 0.6], (0, 1, 1.0), of=agents, gain=[0.2, -0.4]), 0.0, make_rng()
    )
    assert pheromones.links.tolist() == [0.5]
    assert pheromones.nodes.tolist() == [0, 0]
    assert pheromones.visited.all()


def test_ant_colony_decay_one_keeps_only_last_round():
    agents = make_colony(agents=2, rounds=6, steps=3, decay=1.0, explore=1.0)
    links = [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 4, 1.0), (4, 5, 1.0), (0, 5, 1.0)]
    state = make_walk_state([0.9, 0.5, 0.5, 0.5, 0.5, 0.5], *links, of=agents)
    rng = make_rng(4)
    for _ in range(5):
        agents.walk(state, np.ones(6), 0.0, rng)
    nodes, moves = agents.walk(state, np.ones(6), 0.0, rng)  # with explore=1.0, pheromone has no effect
    pheromones = agents.run_rounds(state, 0.0, make_rng(4))
    assert set(np.flatnonzero(pheromones.nodes)) == set(nodes.ravel().tolist()) != set(range(6))
    assert set(np.flatnonzero(pheromones.links > MIN_PHEROMONE)) == set(moves.ravel().tolist())
    assert pheromones.links.min() == MIN_PHEROMONE


def test_ant_colony_pheromone_attracts_agents_to_rewarded_links():
    # Two branches have equal similarities and weights: 0-1-2 ends at a node with gain 1, 0-3-4 at one with gain -1.
    links = [(0, 1, 1.0), (1, 2, 1.0), (0, 3, 1.0), (3, 4, 1.0)]
    shares = []
    for alpha in (0.0, 1.0):
        agents = make_colony(agents=200, rounds=8, steps=2, alpha=alpha, deposit=0.1)
        state = make_walk_state([0.5] * 5, *links, of=agents, gain=[0.0, 0.0, 1.0, 0.0, -1.0])
        pheromones = agents.run_rounds(state, 0.0, make_rng())
        nodes, _ = agents.walk(state, pheromones.links, 0.0, make_rng(1))
        shares.append(float(np.mean(nodes[:, 1] == 1)))
    # With alpha 0, agents ignore pheromone and take both branches equally often. With alpha 1, nearly all take 0-1-2.
    assert shares[0] == pytest.approx(0.5, abs=0.15)
    assert shares[1] > 0.9


# Ranking ----------------------------------------------------------------------------------------------------------

TREE = [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 4, 1.0)]


def test_swarm_score_is_weighted_sum_of_scaled_similarity_and_pheromone():
    corpus = make_corpus([0.9, 0.5, 0.6, 0.4, 0.8, 0.3], *TREE)
    options = {"seeds": 2, "beta": 1.0, "explore": 0.2}
    cosines = corpus.similarities(QUERY)
    scores_by_weight = {
        weight: {hit.id: hit.score for hit in build_walker(Swarm, corpus, weight=weight, **options).search(QUERY, 6)}
        for weight in (0.0, 0.3, 1.0)
    }
    for name, cosine in zip("abcde", cosines[:5], strict=True):
        assert scores_by_weight[0.3][name] == pytest.approx(
            0.3 * scores_by_weight[1.0][name] + 0.7 * scores_by_weight[0.0][name], abs=1e-5
        )
        assert scores_by_weight[1.0][name] == pytest.approx((cosine - 0.4) / 0.5, abs=1e-5)
    assert scores_by_weight[0.0]["f"] < 0 <= scores_by_weight[0.0]["d"]
    assert max(scores_by_weight[0.0].values()) == pytest.approx(1, abs=1e-5)


def test_swarm_path_value_is_excess_over_mean_similarity():
    # The mean similarity is 0.5. A path through a and b gains 0.4, through c and d a quarter of it, through e and f 0.
    cosines = [0.9, 0.9, 0.6, 0.6, 0.3, 0.3, 0.2, 0.2]
    corpus = make_corpus(cosines, (0, 1, 1.0), (2, 3, 1.0), (4, 5, 1.0))
    swarm = build_walker(Swarm, corpus, seeds=6, agents=MANY, rounds=1, weight=0.0, beta=0.0)
    found = {hit.id: hit.score for hit in swarm.search(QUERY, 8)}
    assert found["a"] == found["b"] == pytest.approx(1, abs=1e-5)
    assert found["c"] == found["d"] == pytest.approx(0.25, abs=0.02)
    assert found["e"] == found["f"] == pytest.approx(0, abs=1e-5)
    assert found["g"] < -1


def test_swarm_unvisited_seeds_are_ranked():
    corpus = make_corpus([0.9, 0.001, 0.002, 0.5])
    found = build_walker(Swarm, corpus, seeds=3, agents=1, rounds=1, beta=10.0).search(QUERY, 4)
    assert ids(found) == ["a", "d", "c", "b"]
    assert [hit.score >= 0 for hit in found] == [True, True, True, False]


def test_swarm_leap_reaches_unlinked_documents():
    cosines = [0.9, 0.8, 0.5, 0.45, 0.4]
    corpus = make_corpus(cosines, (0, 1, 1.0), (2, 3, 1.0), (3, 4, 1.0))
    plain, leaping = (
        build_walker(Swarm, corpus, seeds=2, top=3, leap=leap, beta=1.0).search(QUERY, 5) for leap in (0.0, 0.5)
    )
    assert [hit.id for hit in plain if hit.score >= 0] == ["a", "b"]
    assert {hit.id for hit in leaping if hit.score >= 0} == set("abcde")


@pytest.mark.parametrize(
    "options",
    [
        {"agents": 0},
        {"rounds": 0},
        {"steps": True},
        {"seeds": 0},
        {"top": 0},
        {"deposit": -1.0},
        {"decay": 1.1},
        {"explore": -0.1},
        {"alpha": 11.0},
        {"beta": float("nan")},
        {"leap": 2.0},
        {"weight": 1.5},
        {"prior_weight": float("inf")},
        {"most_links": 0},
    ],
)
def test_swarm_invalid_option_raises_error(options):
    with pytest.raises(BadInput, match=f"swarm: {next(iter(options))}"):
        build_walker(Swarm, make_corpus([0.5]), **options)


# Router -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cosines", "links", "expected"),
    [
        # The best is 0.9 - 0.32 above the mean, and 0.9 - (0.9 + 0.3 + 0.2) / 3 above the mean of the seeds: 75% of it.
        ([0.9, 0.2, 0.1, 0.1, 0.3], [(0, 1, 1.0)], ("semantic", (0.9 - 1.4 / 3) / 0.58, 2 / 3)),
        # 0.9 - 0.85 is too small a share of 0.9 - 0.54 for a peak. The seeds linked to another seed: all, two of three,
        # none.
        ([0.9, 0.85, 0.8, 0.1, 0.05], [(0, 1, 1.0), (1, 2, 1.0)], ("walk", 0.05 / 0.36, 1.0)),
        ([0.9, 0.85, 0.8, 0.1, 0.05], [(0, 1, 1.0), (2, 3, 1.0)], ("leap", 0.05 / 0.36, 2 / 3)),
        ([0.9, 0.85, 0.8, 0.1, 0.05], [(0, 3, 1.0), (2, 3, 1.0)], ("leap", 0.05 / 0.36, 0.0)),
        ([0.5, 0.5, 0.5], [], ("leap", 0.0, 0.0)),
    ],
)
def test_choose_route_depends_on_peak_and_seed_links(cosines, links, expected):
    values = np.array(cosines)
    route = choose_route(
        values, values.mean(), find_top_k(values, 3), LinkTable.of(make_corpus(cosines, *links).graph, 64)
    )
    assert route.choice == expected[0]
    assert (route.peak, route.linked) == pytest.approx(expected[1:])


def test_swarm_router_follows_choice_and_reports_it_in_evidence():
    swarm = build_walker(Swarm, make_corpus([0.9, 0.2, 0.1, 0.1, 0.3], (0, 1, 1.0)), seeds=3, router=True)
    found = swarm.search(QUERY, 4)
    assert swarm.evidence(QUERY, 4)["route"]["choice"] == "semantic"
    assert ids(found) == ["a", "e", "b", "c"]
    np.testing.assert_allclose([hit.score for hit in found], [0.9, 0.3, 0.2, 0.1], atol=1e-6)
    linked = make_corpus([0.9, 0.85, 0.8, 0.1, 0.05], (0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0))
    walking = build_walker(Swarm, linked, seeds=3, router=True, leap=0.9)
    assert walking.evidence(QUERY, 4)["route"]["choice"] == "walk"
    assert walking.search(QUERY, 5) == build_walker(Swarm, linked, seeds=3).search(QUERY, 5)
    unlinked = make_corpus([0.9, 0.85, 0.8, 0.1, 0.05], (0, 3, 1.0), (2, 3, 1.0))
    leaping = build_walker(Swarm, unlinked, seeds=3, router=True)
    assert leaping.evidence(QUERY, 4)["route"]["choice"] == "leap"
    assert leaping.search(QUERY, 5) == build_walker(
        Swarm, unlinked, seeds=3, leap=graph_swarm.DEFAULT_LEAP_PROBABILITY
    ).search(QUERY, 5)
    far_hits = build_walker(Swarm, unlinked, seeds=3, router=True, leap=0.6).search(QUERY, 5)
    assert far_hits == build_walker(Swarm, unlinked, seeds=3, leap=0.6).search(QUERY, 5) != leaping.search(QUERY, 5)
    assert "route" not in build_walker(Swarm, unlinked).evidence(QUERY, 4)
    assert "route" not in leaping.evidence("0 0", 4)


# Reranker ---------------------------------------------------------------------------------------------------------


def make_hits(corpus, names):
    return [Hit(name, 10.0 - i, f"text of {name}", {"place": i}) for i, name in enumerate(names)]


@pytest.mark.parametrize("options", [{}, {"leap": 0.3}, {"router": True}, {"bridges": True}, {"weight": 0.0}])
def test_swarm_reranker_returns_same_hits_reordered(options):
    rng = make_rng(8)
    corpus = make_corpus(rng.uniform(0.1, 0.9, 26), *((int(i), int(j), 1.0) for i, j in rng.integers(0, 26, (70, 2))))
    hits = make_hits(corpus, "zmaqbyxkc")
    reranker = build_walker(SwarmReranker, corpus, **options)
    assert isinstance(reranker, Reranker)
    found = reranker.rerank(QUERY, hits)
    assert sorted((hit.id, hit.text, hit.metadata["place"]) for hit in found) == sorted(
        (hit.id, hit.text, hit.metadata["place"]) for hit in hits
    )
    assert ids(found) != ids(hits)
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)
    assert reranker.rerank(QUERY, hits) == found
    with set_trial(3):
        assert set(ids(reranker.rerank(QUERY, hits))) == set(ids(hits))


def test_swarm_reranker_stays_within_hits_without_bridges():
    # a and b are linked only through d, which is not a hit, and c has no link. Their similarities are equal, so only
    # pheromone separates their scores.
    corpus = make_corpus([0.8, 0.8, 0.8, 0.75, 0.1, 0.1, 0.1, 0.1], (0, 3, 1.0), (1, 3, 1.0))
    hits = make_hits(corpus, "cab")
    mean_scores = {
        bridges: np.mean(
            [score_hits(corpus, hits, trial, bridges=bridges, weight=0.0, beta=0.0) for trial in range(60)], axis=0
        )
        for bridges in (False, True)
    }
    # Without bridges agents cannot move, and every hit is an equally likely start. With bridges they also move
    # between a and b.
    assert np.ptp(mean_scores[False]) < 0.2
    assert mean_scores[True][:2].min() > mean_scores[True][2] + 0.5


def score_hits(corpus, hits, trial, **options):
    with set_trial(trial):
        scores = {hit.id: hit.score for hit in build_walker(SwarmReranker, corpus, **options).rerank(QUERY, hits)}
    return [scores[name] for name in "abc"]


def test_swarm_reranker_puts_unknown_hits_last_and_keeps_duplicates():
    corpus = make_corpus([0.9, 0.5, 0.7], (0, 1, 1.0), (1, 2, 1.0))
    hits = make_hits(corpus, ["other", "b", "a", "stranger", "a"])
    found = build_walker(SwarmReranker, corpus, weight=1.0).rerank(QUERY, hits)
    assert [(hit.id, hit.metadata["place"]) for hit in found] == [
        ("a", 2),
        ("a", 4),
        ("b", 1),
        ("other", 0),
        ("stranger", 3),
    ]
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)


def test_swarm_reranker_empty_or_unknown_hits_are_unchanged():
    corpus = make_corpus([0.9, 0.5], (0, 1, 1.0))
    reranker = build_walker(SwarmReranker, corpus)
    unknown_hits = make_hits(corpus, ["x", "y"])
    assert reranker.rerank(QUERY, []) == []
    assert reranker.rerank(QUERY, unknown_hits) == unknown_hits
    assert reranker.rerank("0 0", make_hits(corpus, "ba")) == make_hits(corpus, "ba")
    assert ids(reranker.rerank(QUERY, make_hits(corpus, "b"))) == ["b"]


def test_swarm_reranker_router_uses_mean_of_all_documents():
    # Ten hits have similarities from 0.9 to 0.81, on average 0.045 below the first. The mean of all documents is 0.4,
    # and the first hit is 0.5 above it, so there is no peak. With the mean of the hits, 0.855, there would be one.
    corpus = make_corpus([0.9 - i / 100 for i in range(10)] + [-0.05] * 10)
    hits = make_hits(corpus, "jihgfedcba")
    assert build_walker(SwarmReranker, corpus, router=True).rerank(QUERY, hits) == build_walker(
        SwarmReranker, corpus, leap=graph_swarm.DEFAULT_LEAP_PROBABILITY
    ).rerank(QUERY, hits)
    peaked = make_corpus([0.9, *[0.2] * 9, *[0.1] * 10])
    found = build_walker(SwarmReranker, peaked, router=True).rerank(QUERY, hits)
    assert ids(found) == list("ajihgfedcb")
    assert found[0].score == pytest.approx(0.9)


def test_swarm_reranker_prior_prefers_higher_value():
    metadata_rows = [{}, {"cited": 1}, {"cited": 9}]
    corpus = make_corpus([0.9, 0.6, 0.6], (0, 1, 1.0), (0, 2, 1.0), metadata=metadata_rows)
    hits = make_hits(corpus, "abc")
    assert ids(build_walker(SwarmReranker, corpus, prior="cited", prior_weight=9.0).rerank(QUERY, hits))[0] == "c"


def test_swarm_retriever_mean_scores_match_reranker():
    # Both use one graph and one set of options: all documents are seeds of the retriever and hits of the reranker.
    rng = make_rng(11)
    cosines = rng.permutation(np.linspace(0.2, 0.9, 15))
    corpus = make_corpus(cosines, *((int(i), int(j), 1.0) for i, j in rng.integers(0, 15, (30, 2))))
    found = build_walker(Swarm, corpus, seeds=15).search(QUERY, 15)
    hits = [Hit(document.id, 0.0, document.text) for document in corpus.documents]
    reranked = build_walker(SwarmReranker, corpus).rerank(QUERY, hits)
    # The retriever draws starts from seeds in order of similarity, the reranker from hits in order of documents.
    # Scores of a single trial therefore differ, and means over 100 trials are compared.
    means = []
    for rank in (
        lambda: build_walker(Swarm, corpus, seeds=15).search(QUERY, 15),
        lambda: build_walker(SwarmReranker, corpus).rerank(QUERY, hits),
    ):
        rows = []
        for trial in range(100):
            with set_trial(trial):
                rows.append([hit.score for hit in sorted(rank())])
        means.append(np.array(rows))
    error = np.sqrt(means[0].var(axis=0) / 100 + means[1].var(axis=0) / 100)
    assert np.all(np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) < 4.5 * error + 1e-6)
    assert set(ids(found)) == set(ids(reranked))


def test_swarm_run_from_descriptions_returns_full_rankings():
    systems = {
        "swarm": "swarm(graph=knn(neighbours=4), agents=5, rounds=2)",
        "leaping": "swarm(graph=knn(neighbours=4), leap=0.2)",
        "reranked": "pipeline(of=dense(embedder=wordllama), reranker=swarm(graph=knn(neighbours=4)), depth=20)",
        "dense": "dense",
    }
    result = run("synthetic:multihop(documents=60, queries=6)", systems, warmup=0, k=20, measures=["recall@20"])
    assert not result.failures
    assert all(len(rows) == 20 for name in systems for rows in result.runs[name].nested.values())
    for query, rows in result.runs["dense"].nested.items():
        assert set(result.runs["reranked"].nested[query]) == set(rows)
    manifest = result.runs["swarm"].manifest
    assert manifest is not None
    assert '"steps": 40' in str(manifest).replace("'", '"')
    assert isinstance(build_walker(Swarm, make_corpus([0.5])), Retriever)
