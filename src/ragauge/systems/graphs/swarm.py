"""The swarm: agents that search the graph together, by themselves or over what another retriever has found."""

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
"""How many hits a reranker's route is decided by; a retriever's by its seeds, which are as many."""


class Swarm:
    """Agents that walk in rounds and leave pheromone, on links for the next round and at nodes for the ranking.

    An agent begins at one of the `seeds` documents most like the query and makes `steps` moves. With the probability
    `leap` a move goes to one of the `top` documents most like the query, wherever they lie; else with the probability
    `explore` along any of its node's `most_links` heaviest links; else along one that is drawn in proportion to
    `pheromone ** alpha * (link weight * likeness) ** beta * exp(prior_weight * number)`. A likeness counts as at least
    0.01; the number is that of `prior`, a field of the metadata, brought to 0 up to 1. After each of `rounds` pheromone
    loses `decay` of itself, and each agent leaves `deposit` times what it has found: how much more like the query its
    path is than all documents are, from 0 up to 1. A document's score is `weight` times its likeness and `1 - weight`
    times the pheromone at it, both from 0 to 1 among visited documents and seeds, times `exp(prior_weight * number)`.
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
        """The best `k`; where agents visit fewer, the rest by likeness."""
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
        """The graph, the parameters, how many moves a query takes, and which way a router sends this one."""
        told, walks = self._walks.told(self._seeds), self._walks
        likeness = walks.terrain.likeness(query) if walks.router else np.zeros(0)
        if not likeness.any():
            return told
        seeds = best(likeness, self._seeds["seeds"])
        return told | {"route": route(likeness, likeness.mean(), seeds, walks.ways)._asdict()}


class SwarmReranker:
    """The same agents on the links among hits: they begin at any of them and leap to any of them.

    With `bridges` they may also pass through documents that are linked to a hit; these are never returned. A hit that
    is no document of the corpus comes after all others.
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
        """The same hits, best first; of equals the one that came first. As they were, where the query says nothing."""
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
        """The places of the hits, best first, and their scores; `rows` are their nodes, each once."""
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
        """The graph, the parameters, and how many moves a query takes."""
        return self._walks.told({"bridges": self._bridges})


class _Walks:
    """What a swarm has in common, whether it retrieves or reranks."""

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
        """What a router chooses; nothing without one."""
        return route(likeness, mean, seeds, ways).choice if self.router else ""

    def ground(self, likeness: Floats, rows: Ints, ways: Ways, starts: Ints, tops: Ints) -> Ground:
        """Where agents walk: on `rows`, of which `starts` and `tops` are places."""
        mean, most = likeness.mean(), likeness.max()
        gain = (likeness[rows] - mean) / ((most - mean) or 1.0)
        pull = self.colony.pull(likeness[rows], self._preference[rows])
        heavy = self._heavy if ways is self.ways else ways.raised(self.colony.beta)
        return Ground(ways, heavy, pull, gain, starts, tops)

    def forage(self, query: str, ground: Ground, choice: str) -> Trail:
        """What agents leave, on the way that was chosen."""
        leap = {"walk": 0.0, "leap": self.colony.leap or LEAP}.get(choice, self.colony.leap)
        return self.colony.forage(ground, leap, generator(self._seed, query))

    def scores(self, likeness: Floats, trail: Floats, rows: Ints) -> Floats:
        """What these nodes are worth among themselves."""
        both = self._weight * spread(likeness[rows]) + (1 - self._weight) * spread(trail)
        return points(both, likeness[rows], self._preference[rows])

    def told(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The graph, the parameters, how long a walk is (`length`), and how many moves all agents make (`steps`)."""
        parameters = {**options, **self._parameters, "length": self.colony.steps, "steps": self.colony.moves}
        return {**self.terrain.about(), **parameters}
