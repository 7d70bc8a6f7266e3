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
from small_graphs import QUERY, build, fits, ground, ids

MANY = 20_000
"""Number of agents in a test of frequencies."""


def colony(**options) -> AntColony:
    plain = {"agents": 3, "rounds": 1, "steps": 1, "deposit": 1.0, "decay": 0.2}
    return AntColony(**(plain | {"explore": 0.0, "alpha": 1.0, "beta": 1.0, "leap": 0.0} | options))


def field(likeness, *links, of: AntColony, starts=(0,), tops=(0,), gain=None) -> WalkState:
    """Build the state of a walk from similarities and links (node, node, weight); the largest weight is scaled to 1."""
    ways = LinkTable.of(ground(likeness, *links).graph, 64)
    pull = of.pull(np.array(likeness, float), np.ones(len(likeness)))
    reached = np.array(likeness if gain is None else gain, float)
    return WalkState(ways, ways.to_power(of.beta), pull, reached, np.array(starts), np.array(tops))


def fresh(seed=0):
    return np.random.default_rng(seed)


# Steps ------------------------------------------------------------------------------------------------------------

STAR = [(0, 1, 1.0), (0, 2, 0.5), (0, 3, 0.25)]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (0.0, 3.0), (2.0, 0.0)])
def test_ant_colony_step_odds_combine_pheromone_weight_and_similarity(alpha, beta):
    many = colony(agents=MANY, alpha=alpha, beta=beta)
    place = field([0.9, 0.3, 0.6, -0.5], *STAR, of=many)
    pheromone = np.array([1.0, 0.5, 4.0])  # of the links 0-1, 0-2 and 0-3, in this order
    nodes, moves = many.walk(place, pheromone, 0.0, fresh())
    # A similarity below 0.01 counts as 0.01, so that every node can be reached.
    odds = pheromone**alpha * (np.array([1.0, 0.5, 0.25]) * np.array([0.3, 0.6, 0.01])) ** beta
    assert np.all(nodes[:, 0] == 0)
    seen = np.bincount(nodes[:, 1], minlength=4)[1:]
    assert fits(seen, odds / odds.sum()) > 0.001
    assert np.bincount(moves[:, 0], minlength=3).tolist() == seen.tolist()


def test_ant_colony_explore_one_walks_uniformly():
    many = colony(agents=MANY, explore=1.0, beta=5.0)
    nodes, _ = many.walk(field([0.9, 0.3, 0.6, -0.5], *STAR, of=many), np.array([1.0, 9.0, 0.1]), 0.0, fresh())
    assert fits(np.bincount(nodes[:, 1], minlength=4)[1:], [1 / 3, 1 / 3, 1 / 3]) > 0.001


def test_ant_colony_partial_explore_mixes_uniform_and_weighted_steps():
    many = colony(agents=MANY, explore=0.4)
    nodes, _ = many.walk(field([0.9, 0.3, 0.6, 0.4], *STAR, of=many), np.ones(3), 0.0, fresh())
    odds = np.array([0.3, 0.3, 0.1])
    assert fits(np.bincount(nodes[:, 1], minlength=4)[1:], 0.4 / 3 + 0.6 * odds / odds.sum()) > 0.001


def test_ant_colony_uniform_walk_visits_nodes_by_degree():
    # After many steps, the visits of a node are proportional to its degree, regardless of the start.
    # A triangle with a tail has the degrees 2, 2, 3 and 1.
    walkers = colony(agents=MANY, steps=40, explore=1.0)
    place = field([0.9, 0.5, 0.5, 0.5], (0, 1, 1.0), (1, 2, 0.5), (0, 2, 1.0), (2, 3, 0.1), of=walkers)
    nodes, _ = walkers.walk(place, np.ones(4), 0.0, fresh())
    assert fits(np.bincount(nodes[:, -1], minlength=4), np.array([2, 2, 3, 1]) / 8) > 0.001


def test_ant_colony_starts_are_proportional_to_similarity():
    many = colony(agents=MANY, beta=2.0)
    nodes, moves = many.walk(field([0.8, 0.4, 0.9, 0.2], of=many, starts=(0, 1, 3)), np.ones(0), 0.0, fresh())
    odds = np.array([0.8, 0.4, 0.2]) ** 2
    assert fits(np.bincount(nodes[:, 0], minlength=4)[[0, 1, 3]], odds / odds.sum()) > 0.001
    assert np.array_equal(nodes[:, 0], nodes[:, 1])  # without links an agent cannot move
    assert np.all(moves == -1)


def test_ant_colony_leap_lands_on_top_nodes_without_link():
    many = colony(agents=MANY, leap=0.3)
    place = field([0.9, 0.6, 0.2, 0.6, 0.4], (0, 1, 1.0), (0, 2, 1.0), (3, 4, 1.0), of=many, tops=(3, 4))
    nodes, moves = many.walk(place, np.ones(3), 0.3, fresh())
    seen = np.bincount(nodes[:, 1], minlength=5)
    assert fits(seen[1:], [0.7 * 0.75, 0.7 * 0.25, 0.3 * 0.6, 0.3 * 0.4]) > 0.001
    assert np.array_equal(moves[:, 0] == -1, nodes[:, 1] >= 3)


# Pheromone --------------------------------------------------------------------------------------------------------


def test_ant_colony_one_and_two_rounds_by_hand():
    # With two nodes and one link, all agents go back and forth. The mean gain of their path is (1 + 0.5) / 2 = 0.75.
    # Three agents deposit 3 * 2 * 0.75 = 4.5 on each link and node, once per path even if they pass it repeatedly.
    agents = colony(agents=3, steps=3, deposit=2.0, decay=0.2)
    place = field([0.8, 0.6], (0, 1, 1.0), of=agents, gain=[1.0, 0.5])
    left = agents.run_rounds(place, 0.0, fresh())
    np.testing.assert_allclose(left.links, [0.8 * 1 + 4.5])
    np.testing.assert_allclose(left.nodes, [4.5, 4.5])
    twice = colony(agents=3, rounds=2, steps=3, deposit=2.0, decay=0.2).run_rounds(place, 0.0, fresh())
    np.testing.assert_allclose(twice.links, [0.8 * (0.8 + 4.5) + 4.5])
    np.testing.assert_allclose(twice.nodes, [0.8 * 4.5 + 4.5, 0.8 * 4.5 + 4.5])
    assert twice.visited.tolist() == [True, True]


def test_ant_colony_deposit_matches_loop_over_paths():
    agents = colony(agents=7, rounds=1, steps=5, deposit=1.5, decay=0.3, explore=0.2, beta=2.0)
    rng = fresh(5)
    links = [(int(one), int(other), 1.0) for one, other in rng.integers(0, 10, (25, 2))]
    likeness = rng.uniform(0, 1, 10)
    place = field(likeness, *links, of=agents, starts=(0, 3, 4), tops=(1, 2), gain=likeness - 0.4)
    nodes, moves = agents.walk(place, np.ones(place.links.n_links), 0.2, fresh(9))
    trail, pheromone = np.zeros(10), np.full(place.links.n_links, 0.7)
    for path, along in zip(nodes, moves, strict=True):
        left = 1.5 * max(0.0, float(np.mean([likeness[node] - 0.4 for node in set(path.tolist())])))
        for node in set(path.tolist()):
            trail[node] += left
        for link in set(along.tolist()) - {-1}:
            pheromone[link] += left
    found = agents.run_rounds(place, 0.2, fresh(9))
    np.testing.assert_allclose(found.nodes, trail)
    np.testing.assert_allclose(found.links, pheromone)
    assert set(np.flatnonzero(found.visited)) == set(nodes.ravel().tolist())


def test_ant_colony_path_below_mean_similarity_deposits_nothing():
    agents = colony(steps=2, decay=0.5)
    found = agents.run_rounds(field([0.8, 0.6], (0, 1, 1.0), of=agents, gain=[0.2, -0.4]), 0.0, fresh())
    assert found.links.tolist() == [0.5]
    assert found.nodes.tolist() == [0, 0]
    assert found.visited.all()


def test_ant_colony_decay_one_keeps_only_last_round():
    agents = colony(agents=2, rounds=6, steps=3, decay=1.0, explore=1.0)
    links = [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 4, 1.0), (4, 5, 1.0), (0, 5, 1.0)]
    place = field([0.9, 0.5, 0.5, 0.5, 0.5, 0.5], *links, of=agents)
    rng = fresh(4)
    for _ in range(5):
        agents.walk(place, np.ones(6), 0.0, rng)
    nodes, moves = agents.walk(place, np.ones(6), 0.0, rng)  # with explore=1.0, pheromone has no effect
    found = agents.run_rounds(place, 0.0, fresh(4))
    assert set(np.flatnonzero(found.nodes)) == set(nodes.ravel().tolist()) != set(range(6))
    assert set(np.flatnonzero(found.links > MIN_PHEROMONE)) == set(moves.ravel().tolist())
    assert found.links.min() == MIN_PHEROMONE


def test_ant_colony_pheromone_attracts_agents_to_rewarded_links():
    # Two branches have equal similarities and weights: 0-1-2 ends at a node with gain 1, 0-3-4 at one with gain -1.
    links = [(0, 1, 1.0), (1, 2, 1.0), (0, 3, 1.0), (3, 4, 1.0)]
    shares = []
    for alpha in (0.0, 1.0):
        agents = colony(agents=200, rounds=8, steps=2, alpha=alpha, deposit=0.1)
        place = field([0.5] * 5, *links, of=agents, gain=[0.0, 0.0, 1.0, 0.0, -1.0])
        found = agents.run_rounds(place, 0.0, fresh())
        nodes, _ = agents.walk(place, found.links, 0.0, fresh(1))
        shares.append(float(np.mean(nodes[:, 1] == 1)))
    # With alpha 0, agents ignore pheromone and take both branches equally often. With alpha 1, nearly all take 0-1-2.
    assert shares[0] == pytest.approx(0.5, abs=0.15)
    assert shares[1] > 0.9


# Ranking ----------------------------------------------------------------------------------------------------------

TREE = [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 4, 1.0)]


def test_swarm_score_is_weighted_sum_of_scaled_similarity_and_pheromone():
    terrain = ground([0.9, 0.5, 0.6, 0.4, 0.8, 0.3], *TREE)
    options = {"seeds": 2, "beta": 1.0, "explore": 0.2}
    likeness = terrain.similarities(QUERY)
    by = {
        weight: {hit.id: hit.score for hit in build(Swarm, terrain, weight=weight, **options).search(QUERY, 6)}
        for weight in (0.0, 0.3, 1.0)
    }
    for name, cosine in zip("abcde", likeness[:5], strict=True):
        assert by[0.3][name] == pytest.approx(0.3 * by[1.0][name] + 0.7 * by[0.0][name], abs=1e-5)
        assert by[1.0][name] == pytest.approx((cosine - 0.4) / 0.5, abs=1e-5)
    assert by[0.0]["f"] < 0 <= by[0.0]["d"]
    assert max(by[0.0].values()) == pytest.approx(1, abs=1e-5)


def test_swarm_path_value_is_excess_over_mean_similarity():
    # The mean similarity is 0.5. A path through a and b gains 0.4, through c and d a quarter of it, through e and f 0.
    likeness = [0.9, 0.9, 0.6, 0.6, 0.3, 0.3, 0.2, 0.2]
    terrain = ground(likeness, (0, 1, 1.0), (2, 3, 1.0), (4, 5, 1.0))
    swarm = build(Swarm, terrain, seeds=6, agents=MANY, rounds=1, weight=0.0, beta=0.0)
    found = {hit.id: hit.score for hit in swarm.search(QUERY, 8)}
    assert found["a"] == found["b"] == pytest.approx(1, abs=1e-5)
    assert found["c"] == found["d"] == pytest.approx(0.25, abs=0.02)
    assert found["e"] == found["f"] == pytest.approx(0, abs=1e-5)
    assert found["g"] < -1


def test_swarm_unvisited_seeds_are_ranked():
    terrain = ground([0.9, 0.001, 0.002, 0.5])
    found = build(Swarm, terrain, seeds=3, agents=1, rounds=1, beta=10.0).search(QUERY, 4)
    assert ids(found) == ["a", "d", "c", "b"]
    assert [hit.score >= 0 for hit in found] == [True, True, True, False]


def test_swarm_leap_reaches_unlinked_documents():
    likeness = [0.9, 0.8, 0.5, 0.45, 0.4]
    terrain = ground(likeness, (0, 1, 1.0), (2, 3, 1.0), (3, 4, 1.0))
    plain, leaping = (
        build(Swarm, terrain, seeds=2, top=3, leap=leap, beta=1.0).search(QUERY, 5) for leap in (0.0, 0.5)
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
        build(Swarm, ground([0.5]), **options)


# Router -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("likeness", "links", "expected"),
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
def test_choose_route_depends_on_peak_and_seed_links(likeness, links, expected):
    values = np.array(likeness)
    found = choose_route(values, values.mean(), find_top_k(values, 3), LinkTable.of(ground(likeness, *links).graph, 64))
    assert found.choice == expected[0]
    assert (found.peak, found.linked) == pytest.approx(expected[1:])


def test_swarm_router_follows_choice_and_reports_it_in_evidence():
    swarm = build(Swarm, ground([0.9, 0.2, 0.1, 0.1, 0.3], (0, 1, 1.0)), seeds=3, router=True)
    found = swarm.search(QUERY, 4)
    assert swarm.evidence(QUERY, 4)["route"]["choice"] == "semantic"
    assert ids(found) == ["a", "e", "b", "c"]
    np.testing.assert_allclose([hit.score for hit in found], [0.9, 0.3, 0.2, 0.1], atol=1e-6)
    linked = ground([0.9, 0.85, 0.8, 0.1, 0.05], (0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0))
    walking = build(Swarm, linked, seeds=3, router=True, leap=0.9)
    assert walking.evidence(QUERY, 4)["route"]["choice"] == "walk"
    assert walking.search(QUERY, 5) == build(Swarm, linked, seeds=3).search(QUERY, 5)
    apart = ground([0.9, 0.85, 0.8, 0.1, 0.05], (0, 3, 1.0), (2, 3, 1.0))
    leaping = build(Swarm, apart, seeds=3, router=True)
    assert leaping.evidence(QUERY, 4)["route"]["choice"] == "leap"
    assert leaping.search(QUERY, 5) == build(Swarm, apart, seeds=3, leap=graph_swarm.DEFAULT_LEAP_PROBABILITY).search(
        QUERY, 5
    )
    far = build(Swarm, apart, seeds=3, router=True, leap=0.6).search(QUERY, 5)
    assert far == build(Swarm, apart, seeds=3, leap=0.6).search(QUERY, 5) != leaping.search(QUERY, 5)
    assert "route" not in build(Swarm, apart).evidence(QUERY, 4)
    assert "route" not in leaping.evidence("0 0", 4)


# Reranker ---------------------------------------------------------------------------------------------------------


def some_hits(terrain, names):
    return [Hit(name, 10.0 - i, f"text of {name}", {"place": i}) for i, name in enumerate(names)]


@pytest.mark.parametrize("options", [{}, {"leap": 0.3}, {"router": True}, {"bridges": True}, {"weight": 0.0}])
def test_swarm_reranker_returns_same_hits_reordered(options):
    rng = fresh(8)
    terrain = ground(rng.uniform(0.1, 0.9, 26), *((int(i), int(j), 1.0) for i, j in rng.integers(0, 26, (70, 2))))
    hits = some_hits(terrain, "zmaqbyxkc")
    reranker = build(SwarmReranker, terrain, **options)
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
    terrain = ground([0.8, 0.8, 0.8, 0.75, 0.1, 0.1, 0.1, 0.1], (0, 3, 1.0), (1, 3, 1.0))
    hits = some_hits(terrain, "cab")
    spread_out = {
        bridges: np.mean(
            [scores_of(terrain, hits, number, bridges=bridges, weight=0.0, beta=0.0) for number in range(60)], axis=0
        )
        for bridges in (False, True)
    }
    # Without bridges agents cannot move, and every hit is an equally likely start. With bridges they also move
    # between a and b.
    assert np.ptp(spread_out[False]) < 0.2
    assert spread_out[True][:2].min() > spread_out[True][2] + 0.5


def scores_of(terrain, hits, number, **options):
    with set_trial(number):
        found = {hit.id: hit.score for hit in build(SwarmReranker, terrain, **options).rerank(QUERY, hits)}
    return [found[name] for name in "abc"]


def test_swarm_reranker_puts_unknown_hits_last_and_keeps_duplicates():
    terrain = ground([0.9, 0.5, 0.7], (0, 1, 1.0), (1, 2, 1.0))
    hits = some_hits(terrain, ["other", "b", "a", "stranger", "a"])
    found = build(SwarmReranker, terrain, weight=1.0).rerank(QUERY, hits)
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
    terrain = ground([0.9, 0.5], (0, 1, 1.0))
    reranker = build(SwarmReranker, terrain)
    strangers = some_hits(terrain, ["x", "y"])
    assert reranker.rerank(QUERY, []) == []
    assert reranker.rerank(QUERY, strangers) == strangers
    assert reranker.rerank("0 0", some_hits(terrain, "ba")) == some_hits(terrain, "ba")
    assert ids(reranker.rerank(QUERY, some_hits(terrain, "b"))) == ["b"]


def test_swarm_reranker_router_uses_mean_of_all_documents():
    # Ten hits have similarities from 0.9 to 0.81, on average 0.045 below the first. The mean of all documents is 0.4,
    # and the first hit is 0.5 above it, so there is no peak. With the mean of the hits, 0.855, there would be one.
    terrain = ground([0.9 - i / 100 for i in range(10)] + [-0.05] * 10)
    hits = some_hits(terrain, "jihgfedcba")
    assert build(SwarmReranker, terrain, router=True).rerank(QUERY, hits) == build(
        SwarmReranker, terrain, leap=graph_swarm.DEFAULT_LEAP_PROBABILITY
    ).rerank(QUERY, hits)
    alone = ground([0.9, *[0.2] * 9, *[0.1] * 10])
    found = build(SwarmReranker, alone, router=True).rerank(QUERY, hits)
    assert ids(found) == list("ajihgfedcb")
    assert found[0].score == pytest.approx(0.9)


def test_swarm_reranker_prior_prefers_higher_value():
    held = [{}, {"cited": 1}, {"cited": 9}]
    terrain = ground([0.9, 0.6, 0.6], (0, 1, 1.0), (0, 2, 1.0), metadata=held)
    hits = some_hits(terrain, "abc")
    assert ids(build(SwarmReranker, terrain, prior="cited", prior_weight=9.0).rerank(QUERY, hits))[0] == "c"


def test_swarm_retriever_mean_scores_match_reranker():
    # Both use one graph and one set of options: all documents are seeds of the retriever and hits of the reranker.
    rng = fresh(11)
    likeness = rng.permutation(np.linspace(0.2, 0.9, 15))
    terrain = ground(likeness, *((int(i), int(j), 1.0) for i, j in rng.integers(0, 15, (30, 2))))
    found = build(Swarm, terrain, seeds=15).search(QUERY, 15)
    hits = [Hit(one.id, 0.0, one.text) for one in terrain.documents]
    again = build(SwarmReranker, terrain).rerank(QUERY, hits)
    # The retriever draws starts from seeds in order of similarity, the reranker from hits in order of documents.
    # Scores of a single trial therefore differ, and means over 100 trials are compared.
    means = []
    for make in (
        lambda: build(Swarm, terrain, seeds=15).search(QUERY, 15),
        lambda: build(SwarmReranker, terrain).rerank(QUERY, hits),
    ):
        rows = []
        for number in range(100):
            with set_trial(number):
                rows.append([hit.score for hit in sorted(make())])
        means.append(np.array(rows))
    error = np.sqrt(means[0].var(axis=0) / 100 + means[1].var(axis=0) / 100)
    assert np.all(np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) < 4.5 * error + 1e-6)
    assert set(ids(found)) == set(ids(again))


def test_swarm_run_from_descriptions_returns_full_rankings():
    systems = {
        "swarm": "swarm(graph=knn(neighbours=4), agents=5, rounds=2)",
        "leaping": "swarm(graph=knn(neighbours=4), leap=0.2)",
        "reranked": "pipeline(of=dense(embedder=wordllama), reranker=swarm(graph=knn(neighbours=4)), depth=20)",
        "dense": "dense",
    }
    found = run("synthetic:multihop(documents=60, queries=6)", systems, warmup=0, k=20, measures=["recall@20"])
    assert not found.failures
    assert all(len(rows) == 20 for name in systems for rows in found.runs[name].nested.values())
    for query, rows in found.runs["dense"].nested.items():
        assert set(found.runs["reranked"].nested[query]) == set(rows)
    told = found.runs["swarm"].manifest
    assert told is not None
    assert '"steps": 40' in str(told).replace("'", '"')
    assert isinstance(build(Swarm, ground([0.5])), Retriever)
