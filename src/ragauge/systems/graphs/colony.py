"""Agents that walk with pheromone: rounds of walks, each of which changes the odds of the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.systems.graphs.walking import NOWHERE, Mask, Ways, between, checked, drawn, drawn_from, once

FLOOR = 0.01
"""What a likeness counts at least as, so that no node is out of reach."""
LEAST = 0.01
"""The pheromone that a link never falls below, as in the MAX-MIN Ant System; it starts with 1."""


class Ground(NamedTuple):
    """Where agents walk for one query: the whole graph, or the part of it that is reranked."""

    ways: Ways
    heavy: Floats
    """The weights of the ways to the power of `beta`."""
    pull: Floats
    """What draws agents to each node, whatever the link."""
    gain: Floats
    """How much more like the query each node is than all documents are: 1 for the most, 0 for the mean."""
    starts: Ints
    """Where agents begin."""
    tops: Ints
    """Where agents leap to."""


class Trail(NamedTuple):
    """What agents have left behind."""

    nodes: Floats
    """Pheromone at each node."""
    links: Floats
    """Pheromone on each link, by its number."""
    visited: Mask


@dataclass(frozen=True)
class Colony:
    """How agents walk, and what they leave: an Ant System (Dorigo and Stützle, 2004) with a floor."""

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
        # With more, what is small would become nothing, and what is great no number.
        between("swarm: deposit", self.deposit, 0, 1000)
        between("swarm: alpha", self.alpha, 0, 10)
        between("swarm: beta", self.beta, 0, 10)

    @property
    def moves(self) -> int:
        """How many moves a query takes."""
        return self.agents * self.rounds * self.steps

    def pull(self, likeness: Floats, preference: Floats) -> Floats:
        """What draws agents to each node."""
        return np.asarray(np.maximum(likeness, FLOOR) ** self.beta * preference, np.float64)

    def forage(self, ground: Ground, leap: float, rng: np.random.Generator) -> Trail:
        """All rounds; what an agent leaves is left on each node and each link of its path, however often it passed."""
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
        """One round: a row of nodes for each agent, and one of links; who leaps or cannot move passes no link."""
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
