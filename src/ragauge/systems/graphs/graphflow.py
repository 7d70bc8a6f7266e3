"""Rank documents by random trajectories that start near the query and follow links to similar documents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.chances import generator
from ragauge.records import Floats, Hit, Ints
from ragauge.stages import stage
from ragauge.systems.bm25 import best
from ragauge.systems.graphs.terrain import Terrain
from ragauge.systems.graphs.walking import (
    NOWHERE,
    STRONGEST,
    Ways,
    between,
    checked,
    drawn,
    drawn_from,
    once,
    points,
    preference,
    ranked,
)
from ragauge.systems.stores.intake import whole


class GraphFlow:
    """Retriever by stochastic trajectories, ranked by visits; untrained, similarity replaces GraphFlow's policy.

    A trajectory starts at one of the `seeds` documents most similar to the query and makes up to `steps` moves. The
    start, and each next node among the `most_links` heaviest links, is drawn in proportion to
    `link weight * exp(similarity / temperature) * exp(prior_weight * number)`, at the start without the link weight.
    The number is the metadata field `prior`, scaled to 0 to 1. A trajectory ends with probability `stop` before each
    move, and at a node without links. A document's score is the share of the `trajectories` that visit it, times
    `exp(prior_weight * number)`; ties are broken by similarity to the query.
    """

    def __init__(  # noqa: PLR0913 - each has a use of its own, and a default
        self,
        terrain: Terrain,
        *,
        seeds: int = 10,
        trajectories: int = 200,
        steps: int = 4,
        temperature: float = 0.05,
        stop: float = 0.0,
        prior: str = "",
        prior_weight: float = 1.0,
        most_links: int = 64,
        seed: int = 0,
    ) -> None:
        counts = {"seeds": seeds, "trajectories": trajectories, "steps": steps, "most_links": most_links}
        self._parameters = checked("graphflow", counts, {"stop": stop}) | {
            # Below 0.01 the ratio of two exponentials could overflow.
            "temperature": between("graphflow: temperature", temperature, 0.01),
            "prior": prior,
            "prior_weight": between("graphflow: prior_weight", prior_weight, 0, STRONGEST),
            "seed": whole("graphflow: seed", seed, 0),
        }
        self._terrain = terrain
        self._seeds, self._trajectories, self._steps = seeds, trajectories, steps
        self._temperature, self._stop, self._seed = temperature, stop, seed
        self._preference = preference(terrain, prior, prior_weight)
        self._ways = Ways.of(terrain.graph, most_links)

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the `k` most visited documents, completed by similarity."""
        likeness = self._terrain.likeness(query)
        if not likeness.any():
            return []
        with stage("walk"):
            visits = np.bincount(once(self._walk(query, likeness))[0], minlength=len(likeness))
            visited = np.flatnonzero(visits)
            scores = points(visits[visited] / self._trajectories, likeness[visited], self._preference[visited])
            return ranked(self._terrain, k, likeness, visited, scores)

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same for every query
        """Return graph and parameters.

        `length` is the number of moves per trajectory, `steps` that of all trajectories.
        """
        told = self._parameters | {"length": self._steps, "steps": self._trajectories * self._steps}
        return {**self._terrain.about(), **told}

    def _walk(self, query: str, likeness: Floats) -> Ints:
        """Return the nodes of each trajectory, one row each.

        After its end a row is filled with `NO_POSITION`.
        """
        chance = generator(self._seed, query).random((self._steps + 1, 2, self._trajectories))
        pull = np.exp((likeness - likeness.max()) / self._temperature) * self._preference
        seeds = best(likeness, self._seeds)
        at = drawn_from(seeds, pull[seeds], chance[-1, 0])
        paths = np.full((self._trajectories, self._steps + 1), NOWHERE)
        paths[:, 0] = at
        going = np.ones(self._trajectories, bool)
        for step in range(self._steps):
            ends = self._ways.ends[at]
            places, some = drawn(self._ways.weights[at] * pull[ends], chance[step, 0])
            going &= some & (chance[step, 1] >= self._stop)
            at = np.where(going, ends[np.arange(len(at)), places], at)
            paths[going, step + 1] = at[going]
        return paths
