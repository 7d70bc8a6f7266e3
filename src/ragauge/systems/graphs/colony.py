"""Simulate agents that walk on a graph in rounds and leave pheromone, which guides the next round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.systems.graphs.walking import NOWHERE, Mask, Ways, between, checked, drawn, drawn_from, once

FLOOR = 0.01
"""Minimum similarity in the move probability, so that every node can be reached."""
LEAST = 0.01
"""Minimum pheromone of a link, as in the MAX-MIN Ant System; it starts at 1."""


class Ground(NamedTuple):
    """Graph and start points of the walks for one query: the whole graph, or the part to rerank."""

    ways: Ways
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


class Trail(NamedTuple):
    """Pheromone that agents left, and the nodes that they visited."""

    nodes: Floats
    """Pheromone per node."""
    links: Floats
    """Pheromone per link, by link number."""
    visited: Mask


@dataclass(frozen=True)
class Colony:
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
        checked("swarm", counts, {"decay": self.decay, "explore": self.explore, "leap": self.leap})
        # Larger values could underflow or overflow.
        between("swarm: deposit", self.deposit, 0, 1000)
        between("swarm: alpha", self.alpha, 0, 10)
        between("swarm: beta", self.beta, 0, 10)

    @property
    def moves(self) -> int:
        """Number of moves per query."""
        return self.agents * self.rounds * self.steps

    def pull(self, likeness: Floats, preference: Floats) -> Floats:
        """Compute the attraction of each node from its similarity and preference."""
        return np.asarray(np.maximum(likeness, FLOOR) ** self.beta * preference, np.float64)

    def forage(self, ground: Ground, leap: float, rng: np.random.Generator) -> Trail:
        """Run all rounds and return the pheromone.

        An agent leaves pheromone once on each node and link of its path.
        """
        trail = np.zeros(len(ground.pull))
        pheromone = np.ones(ground.ways.links)
        visited = np.zeros(len(ground.pull), bool)
        for _ in range(self.rounds):
            nodes, moves = self.walk(ground, pheromone, leap, rng)
            rows, agents = once(nodes)
            found = np.bincount(agents, ground.gain[rows]) / np.bincount(agents)
            left = self.deposit * np.maximum(found, 0)
            visited[rows] = True
            trail *= 1 - self.decay
            trail += np.bincount(rows, left[agents], minlength=len(trail))
            numbers, agents = once(moves)
            pheromone *= 1 - self.decay
            np.add.at(pheromone, numbers, left[agents])
            np.maximum(pheromone, LEAST, out=pheromone)
        return Trail(trail, pheromone, visited)

    def walk(self, ground: Ground, pheromone: Floats, leap: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Run one round and return the nodes and links of each agent, one row per agent.

        The link is `NO_POSITION` if the agent leaps or cannot move.
        """
        ways = ground.ways
        chance = rng.random((self.steps + 1, 4, self.agents))
        at = drawn_from(ground.starts, ground.pull[ground.starts], chance[-1, 0])
        nodes, moves = np.empty((self.agents, self.steps + 1), np.int64), np.empty((self.agents, self.steps), np.int64)
        nodes[:, 0] = at
        each = np.arange(self.agents)
        for step in range(self.steps):
            ends, numbers = ways.ends[at], ways.numbers[at]
            trails = pheromone[numbers] if ways.links else np.ones(numbers.shape)
            worth = ground.heavy[at] * ground.pull[ends] * (trails if self.alpha == 1 else trails**self.alpha)
            if self.explore:
                worth = np.where((chance[step, 1] < self.explore)[:, None], ways.weights[at] > 0, worth)
            places, going = drawn(worth, chance[step, 0])
            to = np.where(going, ends[each, places], at)
            if leap:
                leaping = chance[step, 2] < leap
                to = np.where(leaping, drawn_from(ground.tops, ground.pull[ground.tops], chance[step, 3]), to)
                going &= ~leaping
            moves[:, step] = np.where(going, numbers[each, places], NOWHERE)
            nodes[:, step + 1] = at = to
        return nodes, moves
