"""Swarm retrieval: agents search the graph together, on their own or to rerank the hits of another retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.randomness import query_rng
from ragauge.core.records import Floats, Ints
from ragauge.core.settings import check_int
from ragauge.core.stages import stage
from ragauge.systems.bm25 import find_top_k
from ragauge.systems.graph_corpus import (
    MAX_PRIOR_WEIGHT,
    NO_POSITION,
    LinkedCorpus,
    LinkTable,
    Mask,
    check_parameters,
    check_range,
    compute_preferences,
    draw_columns,
    draw_rows,
    rank_visited,
    scale_to_unit,
    unique_visits,
    visit_scores,
)

MIN_SIMILARITY = 0.01
"""Minimum similarity in the move probability, so that every node can be reached."""
MIN_PHEROMONE = 0.01
"""Minimum pheromone of a link, as in the MAX-MIN Ant System; it starts at 1."""


class WalkState(NamedTuple):
    """Graph and start points of the walks for one query: the whole graph, or the part to rerank."""

    ways: LinkTable
    heavy: Floats
    """Link weights to the power of `beta`."""
    pull: Floats
    """Attraction of each node, regardless of the link."""
    gain: Floats
    """Similarity to the query above the mean of all documents, scaled to 1 for the most similar document."""
    starts: Ints
    """Nodes at which agents start."""
    tops: Ints
    """Nodes to which agents leap."""


class PheromoneTrail(NamedTuple):
    """Pheromone that agents left, and the nodes that they visited."""

    nodes: Floats
    """Pheromone per node."""
    links: Floats
    """Pheromone per link, by link number."""
    visited: Mask


@dataclass(frozen=True)
class AntColony:
    """Settings of the walks: an Ant System (Dorigo and Stützle, 2004) with a minimum of pheromone."""

    agents: int
    rounds: int
    steps: int
    deposit: float
    decay: float
    explore: float
    alpha: float
    beta: float
    leap: float

    def __post_init__(self) -> None:
        counts = {"agents": self.agents, "rounds": self.rounds, "steps": self.steps}
        check_parameters("swarm", counts, {"decay": self.decay, "explore": self.explore, "leap": self.leap})
        # Larger values could underflow or overflow.
        check_range("swarm: deposit", self.deposit, 0, 1000)
        check_range("swarm: alpha", self.alpha, 0, 10)
        check_range("swarm: beta", self.beta, 0, 10)

    @property
    def moves(self) -> int:
        """Number of moves per query."""
        return self.agents * self.rounds * self.steps

    def pull(self, likeness: Floats, preference: Floats) -> Floats:
        """Compute the attraction of each node from its similarity and preference."""
        return np.asarray(np.maximum(likeness, MIN_SIMILARITY) ** self.beta * preference, np.float64)

    def forage(self, ground: WalkState, leap: float, rng: np.random.Generator) -> PheromoneTrail:
        """Run all rounds and return the pheromone.

        An agent leaves pheromone once on each node and link of its path.
        """
        trail = np.zeros(len(ground.pull))
        pheromone = np.ones(ground.ways.links)
        visited = np.zeros(len(ground.pull), bool)
        for _ in range(self.rounds):
            nodes, moves = self.walk(ground, pheromone, leap, rng)
            rows, agents = unique_visits(nodes)
            found = np.bincount(agents, ground.gain[rows]) / np.bincount(agents)
            left = self.deposit * np.maximum(found, 0)
            visited[rows] = True
            trail *= 1 - self.decay
            trail += np.bincount(rows, left[agents], minlength=len(trail))
            numbers, agents = unique_visits(moves)
            pheromone *= 1 - self.decay
            np.add.at(pheromone, numbers, left[agents])
            np.maximum(pheromone, MIN_PHEROMONE, out=pheromone)
        return PheromoneTrail(trail, pheromone, visited)

    def walk(self, ground: WalkState, pheromone: Floats, leap: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Run one round and return the nodes and links of each agent, one row per agent.

        The link is `NO_POSITION` if the agent leaps or cannot move.
        """
        ways = ground.ways
        chance = rng.random((self.steps + 1, 4, self.agents))
        at = draw_rows(ground.starts, ground.pull[ground.starts], chance[-1, 0])
        nodes, moves = np.empty((self.agents, self.steps + 1), np.int64), np.empty((self.agents, self.steps), np.int64)
        nodes[:, 0] = at
        each = np.arange(self.agents)
        for step in range(self.steps):
            ends, numbers = ways.ends[at], ways.numbers[at]
            trails = pheromone[numbers] if ways.links else np.ones(numbers.shape)
            worth = ground.heavy[at] * ground.pull[ends] * (trails if self.alpha == 1 else trails**self.alpha)
            if self.explore:
                worth = np.where((chance[step, 1] < self.explore)[:, None], ways.weights[at] > 0, worth)
            places, going = draw_columns(worth, chance[step, 0])
            to = np.where(going, ends[each, places], at)
            if leap:
                leaping = chance[step, 2] < leap
                to = np.where(leaping, draw_rows(ground.tops, ground.pull[ground.tops], chance[step, 3]), to)
                going &= ~leaping
            moves[:, step] = np.where(going, numbers[each, places], NO_POSITION)
            nodes[:, step + 1] = at = to
        return nodes, moves


MIN_SEMANTIC_PEAK = 0.4
"""Minimum peak at which documents are ranked by similarity alone."""
MIN_LINKED_SHARE = 0.7
"""Minimum share of linked seeds at which agents only follow links."""
DEFAULT_LEAP_PROBABILITY = 0.25
"""Leap probability for scattered seeds if none is set."""


class SwarmRoute(NamedTuple):
    """Chosen route, and the two values that determine it."""

    choice: str
    """`semantic`: ranking by similarity, without a walk; `walk`: along links only; `leap`: with leaps."""
    peak: float
    """Lead of the first seed over the mean of the seeds, relative to its lead over all documents."""
    linked: float
    """Share of the seeds with a link to another seed."""


def choose_route(likeness: Floats, mean: float, seeds: Ints, ways: LinkTable) -> SwarmRoute:
    """Choose the route of a query from its seeds.

    It is `semantic` if one document stands out, `walk` if the seeds are linked, else `leap`. If one seed is far ahead
    of the others, a walk could only make the ranking worse. Linked seeds are in one region, which a walk can explore;
    scattered ones need leaps between them. `mean` is the mean similarity of all documents, not only of those given.
    """
    first = likeness[seeds].max()
    above = first - mean
    peak = float((first - likeness[seeds].mean()) / above) if above > 0 else 0.0
    near = (ways.weights[seeds] > 0) & np.isin(ways.ends[seeds], seeds)
    linked = float(near.any(axis=1).mean())
    return SwarmRoute(
        "semantic" if peak >= MIN_SEMANTIC_PEAK else "walk" if linked >= MIN_LINKED_SHARE else "leap", peak, linked
    )


ROUTING_HITS = 10
"""Number of hits that determine the route of a reranker; equals the default number of seeds of the retriever."""


class Swarm:
    """Retriever with agents that leave pheromone, on links for the next round and on nodes for the ranking.

    An agent starts at one of the `seeds` documents most similar to the query and makes `steps` moves. With probability
    `leap`, a move goes to one of the `top` documents most similar to the query. Otherwise, with probability `explore`,
    it follows any of the node's `most_links` heaviest links. Otherwise it follows one drawn in proportion to
    `pheromone ** alpha * (link weight * similarity) ** beta * exp(prior_weight * number)`. A similarity counts as at
    least 0.01. The number is the metadata field `prior`, scaled to 0 to 1. After each of `rounds` rounds, pheromone is
    reduced by the share `decay`, and each agent leaves `deposit` times the gain of its path: its similarity above the
    mean of all documents, from 0 to 1. A document's score is `weight` times its similarity plus `1 - weight` times its
    pheromone, both scaled to 0 to 1 among visited documents and seeds, times `exp(prior_weight * number)`.
    """

    def __init__(  # noqa: PLR0913 - each has a use of its own, and a default
        self,
        terrain: LinkedCorpus,
        *,
        seeds: int = 10,
        agents: int = 20,
        rounds: int = 10,
        steps: int = 4,
        deposit: float = 1.0,
        decay: float = 0.2,
        explore: float = 0.1,
        alpha: float = 1.0,
        beta: float = 2.0,
        leap: float = 0.0,
        top: int = 50,
        router: bool = False,
        weight: float = 0.5,
        prior: str = "",
        prior_weight: float = 1.0,
        most_links: int = 64,
        seed: int = 0,
    ) -> None:
        self._seeds = check_parameters("swarm", {"seeds": seeds, "top": top}, {})
        colony = AntColony(agents, rounds, steps, deposit, decay, explore, alpha, beta, leap)
        self._walks = _SwarmWalks(terrain, colony, router, weight, prior, prior_weight, most_links, seed)

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k`, completed by similarity if agents visit fewer."""
        terrain = self._walks.terrain
        likeness = terrain.likeness(query)
        if not likeness.any():
            return []
        with stage("walk"):
            seeds, tops = (find_top_k(likeness, many) for many in self._seeds.values())
            walks = self._walks
            choice = walks.route(likeness, likeness.mean(), seeds, walks.ways)
            if choice == "semantic":
                rows = find_top_k(likeness, k)
                return terrain.hits(rows, likeness[rows])
            ground = walks.ground(likeness, np.arange(len(likeness)), walks.ways, seeds, tops)
            trail = walks.forage(query, ground, choice)
            trail.visited[seeds] = True
            found = np.flatnonzero(trail.visited)
            return rank_visited(terrain, k, likeness, found, walks.scores(likeness, trail.nodes[found], found))

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same however many
        """Return graph, parameters, moves per query, and the route of this query."""
        told, walks = self._walks.told(self._seeds), self._walks
        likeness = walks.terrain.likeness(query) if walks.router else np.zeros(0)
        if not likeness.any():
            return told
        seeds = find_top_k(likeness, self._seeds["seeds"])
        return told | {"route": choose_route(likeness, likeness.mean(), seeds, walks.ways)._asdict()}


class SwarmReranker:
    """Reranker with the agents of `Swarm`, on the links among hits; they start at and leap to any hit.

    With `bridges` they may also pass through documents that are linked to a hit; these are never returned. Hits that
    are not in the corpus come last.
    """

    def __init__(  # noqa: PLR0913 - each has a use of its own, and a default
        self,
        terrain: LinkedCorpus,
        *,
        agents: int = 20,
        rounds: int = 10,
        steps: int = 4,
        deposit: float = 1.0,
        decay: float = 0.2,
        explore: float = 0.1,
        alpha: float = 1.0,
        beta: float = 2.0,
        leap: float = 0.0,
        bridges: bool = False,
        router: bool = False,
        weight: float = 0.5,
        prior: str = "",
        prior_weight: float = 1.0,
        most_links: int = 64,
        seed: int = 0,
    ) -> None:
        self._bridges = bridges
        colony = AntColony(agents, rounds, steps, deposit, decay, explore, alpha, beta, leap)
        self._walks = _SwarmWalks(terrain, colony, router, weight, prior, prior_weight, most_links, seed)

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits, best first; ties keep their order.

        The order is unchanged if the query has no vector.
        """
        terrain = self._walks.terrain
        places = np.array([terrain.rows.get(hit.id, NO_POSITION) for hit in hits], np.int64)
        rows = np.unique(places[places >= 0])
        likeness = terrain.likeness(query) if len(rows) else np.zeros(0)
        if not likeness.any():
            return list(hits)
        with stage("walk"):
            order, scores = self._order_hits(query, likeness, rows, places)
        return [hits[place]._replace(score=score) for place, score in zip(order.tolist(), scores.tolist(), strict=True)]

    def _order_hits(self, query: str, likeness: Floats, rows: Ints, places: Ints) -> tuple[Ints, Floats]:
        """Return the positions of the hits, best first, and their scores.

        `rows` are their unique nodes.
        """
        nodes = rows
        if self._bridges:
            linked = self._walks.ways.ends[rows][self._walks.ways.weights[rows] > 0]
            nodes = np.concatenate([rows, np.setdiff1d(linked, rows)])
        ways, starts = self._walks.ways.within(nodes), np.arange(len(rows))
        choice = self._walks.route(likeness[nodes], likeness.mean(), find_top_k(likeness[rows], ROUTING_HITS), ways)
        scores = likeness[rows]
        if choice != "semantic":
            ground = self._walks.ground(likeness, nodes, ways, starts, starts)
            trail = self._walks.forage(query, ground, choice).nodes[starts]
            scores = self._walks.scores(likeness, trail, rows)
        worth = scores.min() - 1.0 - np.arange(len(places))
        known = places >= 0
        worth[known] = scores[np.searchsorted(rows, places[known])]
        order = np.argsort(-worth, kind="stable")
        return order, worth[order]

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same for every query
        """Return the graph, the parameters, and the moves per query."""
        return self._walks.told({"bridges": self._bridges})


class _SwarmWalks:
    """Parts that the retriever and the reranker share."""

    def __init__(
        self,
        terrain: LinkedCorpus,
        colony: AntColony,
        router: bool,
        weight: float,
        prior: str,
        prior_weight: float,
        most_links: int,
        seed: int,
    ) -> None:
        check_range("swarm: prior_weight", prior_weight, 0, MAX_PRIOR_WEIGHT)
        self._parameters = (
            asdict(colony)
            | check_parameters("swarm", {"most_links": most_links}, {"weight": weight})
            | {
                "router": router,
                "prior": prior,
                "prior_weight": prior_weight,
                "seed": check_int("swarm: seed", seed, 0),
            }
        )
        self.terrain, self.colony, self.router = terrain, colony, router
        self.ways = LinkTable.of(terrain.graph, most_links)
        self._heavy = self.ways.raised(colony.beta)
        self._weight, self._seed = weight, seed
        self._preference = compute_preferences(terrain, prior, prior_weight)

    def route(self, likeness: Floats, mean: float, seeds: Ints, ways: LinkTable) -> str:
        """Return the route of a query; empty without a router."""
        return choose_route(likeness, mean, seeds, ways).choice if self.router else ""

    def ground(self, likeness: Floats, rows: Ints, ways: LinkTable, starts: Ints, tops: Ints) -> WalkState:
        """Build the state of a walk on `rows`.

        `starts` and `tops` are positions in `rows`.
        """
        mean, most = likeness.mean(), likeness.max()
        gain = (likeness[rows] - mean) / ((most - mean) or 1.0)
        pull = self.colony.pull(likeness[rows], self._preference[rows])
        heavy = self._heavy if ways is self.ways else ways.raised(self.colony.beta)
        return WalkState(ways, heavy, pull, gain, starts, tops)

    def forage(self, query: str, ground: WalkState, choice: str) -> PheromoneTrail:
        """Run the agents on the chosen route and return their trail."""
        leap = {"walk": 0.0, "leap": self.colony.leap or DEFAULT_LEAP_PROBABILITY}.get(choice, self.colony.leap)
        return self.colony.forage(ground, leap, query_rng(self._seed, query))

    def scores(self, likeness: Floats, trail: Floats, rows: Ints) -> Floats:
        """Compute the scores of nodes from similarity and pheromone."""
        both = self._weight * scale_to_unit(likeness[rows]) + (1 - self._weight) * scale_to_unit(trail)
        return visit_scores(both, likeness[rows], self._preference[rows])

    def told(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return graph, parameters, moves per agent (`length`) and total moves (`steps`)."""
        parameters = {**options, **self._parameters, "length": self.colony.steps, "steps": self.colony.moves}
        return {**self.terrain.about(), **parameters}
