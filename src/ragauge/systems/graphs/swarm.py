"""Swarm retrieval: agents search the graph together, on their own or to rerank the hits of another retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ragauge.chances import generator
from ragauge.records import Floats, Hit, Ints
from ragauge.stages import stage
from ragauge.systems.bm25 import best
from ragauge.systems.graphs.colony import Colony, Ground, Trail
from ragauge.systems.graphs.routing import LEAP, route
from ragauge.systems.graphs.terrain import Terrain
from ragauge.systems.graphs.walking import (
    NOWHERE,
    STRONGEST,
    Ways,
    between,
    checked,
    points,
    preference,
    ranked,
    spread,
)
from ragauge.systems.stores.intake import whole

ROUTED = 10
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
        terrain: Terrain,
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
        self._seeds = checked("swarm", {"seeds": seeds, "top": top}, {})
        colony = Colony(agents, rounds, steps, deposit, decay, explore, alpha, beta, leap)
        self._walks = _Walks(terrain, colony, router, weight, prior, prior_weight, most_links, seed)

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k`, completed by similarity if agents visit fewer."""
        terrain = self._walks.terrain
        likeness = terrain.likeness(query)
        if not likeness.any():
            return []
        with stage("walk"):
            seeds, tops = (best(likeness, many) for many in self._seeds.values())
            walks = self._walks
            choice = walks.route(likeness, likeness.mean(), seeds, walks.ways)
            if choice == "semantic":
                rows = best(likeness, k)
                return terrain.hits(rows, likeness[rows])
            ground = walks.ground(likeness, np.arange(len(likeness)), walks.ways, seeds, tops)
            trail = walks.forage(query, ground, choice)
            trail.visited[seeds] = True
            found = np.flatnonzero(trail.visited)
            return ranked(terrain, k, likeness, found, walks.scores(likeness, trail.nodes[found], found))

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same however many
        """Return graph, parameters, moves per query, and the route of this query."""
        told, walks = self._walks.told(self._seeds), self._walks
        likeness = walks.terrain.likeness(query) if walks.router else np.zeros(0)
        if not likeness.any():
            return told
        seeds = best(likeness, self._seeds["seeds"])
        return told | {"route": route(likeness, likeness.mean(), seeds, walks.ways)._asdict()}


class SwarmReranker:
    """Reranker with the agents of `Swarm`, on the links among hits; they start at and leap to any hit.

    With `bridges` they may also pass through documents that are linked to a hit; these are never returned. Hits that
    are not in the corpus come last.
    """

    def __init__(  # noqa: PLR0913 - each has a use of its own, and a default
        self,
        terrain: Terrain,
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
        colony = Colony(agents, rounds, steps, deposit, decay, explore, alpha, beta, leap)
        self._walks = _Walks(terrain, colony, router, weight, prior, prior_weight, most_links, seed)

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits, best first; ties keep their order.

        The order is unchanged if the query has no vector.
        """
        terrain = self._walks.terrain
        places = np.array([terrain.rows.get(hit.id, NOWHERE) for hit in hits], np.int64)
        rows = np.unique(places[places >= 0])
        likeness = terrain.likeness(query) if len(rows) else np.zeros(0)
        if not likeness.any():
            return list(hits)
        with stage("walk"):
            order, scores = self._order(query, likeness, rows, places)
        return [hits[place]._replace(score=score) for place, score in zip(order.tolist(), scores.tolist(), strict=True)]

    def _order(self, query: str, likeness: Floats, rows: Ints, places: Ints) -> tuple[Ints, Floats]:
        """Return the positions of the hits, best first, and their scores.

        `rows` are their unique nodes.
        """
        nodes = rows
        if self._bridges:
            linked = self._walks.ways.ends[rows][self._walks.ways.weights[rows] > 0]
            nodes = np.concatenate([rows, np.setdiff1d(linked, rows)])
        ways, starts = self._walks.ways.within(nodes), np.arange(len(rows))
        choice = self._walks.route(likeness[nodes], likeness.mean(), best(likeness[rows], ROUTED), ways)
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


class _Walks:
    """Parts that the retriever and the reranker share."""

    def __init__(
        self,
        terrain: Terrain,
        colony: Colony,
        router: bool,
        weight: float,
        prior: str,
        prior_weight: float,
        most_links: int,
        seed: int,
    ) -> None:
        between("swarm: prior_weight", prior_weight, 0, STRONGEST)
        self._parameters = (
            asdict(colony)
            | checked("swarm", {"most_links": most_links}, {"weight": weight})
            | {"router": router, "prior": prior, "prior_weight": prior_weight, "seed": whole("swarm: seed", seed, 0)}
        )
        self.terrain, self.colony, self.router = terrain, colony, router
        self.ways = Ways.of(terrain.graph, most_links)
        self._heavy = self.ways.raised(colony.beta)
        self._weight, self._seed = weight, seed
        self._preference = preference(terrain, prior, prior_weight)

    def route(self, likeness: Floats, mean: float, seeds: Ints, ways: Ways) -> str:
        """Return the route of a query; empty without a router."""
        return route(likeness, mean, seeds, ways).choice if self.router else ""

    def ground(self, likeness: Floats, rows: Ints, ways: Ways, starts: Ints, tops: Ints) -> Ground:
        """Build the state of a walk on `rows`.

        `starts` and `tops` are positions in `rows`.
        """
        mean, most = likeness.mean(), likeness.max()
        gain = (likeness[rows] - mean) / ((most - mean) or 1.0)
        pull = self.colony.pull(likeness[rows], self._preference[rows])
        heavy = self._heavy if ways is self.ways else ways.raised(self.colony.beta)
        return Ground(ways, heavy, pull, gain, starts, tops)

    def forage(self, query: str, ground: Ground, choice: str) -> Trail:
        """Run the agents on the chosen route and return their trail."""
        leap = {"walk": 0.0, "leap": self.colony.leap or LEAP}.get(choice, self.colony.leap)
        return self.colony.forage(ground, leap, generator(self._seed, query))

    def scores(self, likeness: Floats, trail: Floats, rows: Ints) -> Floats:
        """Compute the scores of nodes from similarity and pheromone."""
        both = self._weight * spread(likeness[rows]) + (1 - self._weight) * spread(trail)
        return points(both, likeness[rows], self._preference[rows])

    def told(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return graph, parameters, moves per agent (`length`) and total moves (`steps`)."""
        parameters = {**options, **self._parameters, "length": self.colony.steps, "steps": self.colony.moves}
        return {**self.terrain.about(), **parameters}
