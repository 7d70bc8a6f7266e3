"""Personalised PageRank: where somebody ends up who follows links from the documents most like the query."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.records import Floats, Hit, Ints
from ragauge.stages import stage
from ragauge.systems.bm25 import best
from ragauge.systems.graphs.terrain import Terrain
from ragauge.systems.stores.intake import whole

FINE = 1e-8
"""Shares that differ by less are the same, however early the rounds may end."""


class PageRank:
    """Documents by how often a walk without end is at them that starts over, again and again, near the query.

    It starts at one of the `seeds` documents most like the query, `s_i ∝ exp(likeness_i / temperature)`; then it
    follows a link with probability `damping`, in proportion to the weights, and starts over otherwise, or where there
    is no link: `x = damping · (P'x + (what is at nodes without links) · s) + (1 - damping) · s`, as Brin and Page have
    it with the teleport of Haveliwala (2002), and networkx computes it. Rounds end when `x` changes by less than
    `tolerance` in sum, at the latest after `rounds`; shares are told apart down to that, or to 1e-8.

    The score is `(1 - blend) · x / max x + blend · max(likeness, 0) / max likeness`. Of equal scores, 0 of what no walk
    reaches among them, the document more like the query comes first. Nothing is drawn: every trial is the same.
    """

    def __init__(
        self,
        terrain: Terrain,
        *,
        seeds: int = 10,
        damping: float = 0.5,
        temperature: float = 0.02,
        blend: float = 0.0,
        tolerance: float = 1e-8,
        rounds: int = 200,
    ) -> None:
        from scipy.sparse import csr_array

        whole("pagerank: seeds", seeds)
        whole("pagerank: rounds", rounds)
        for name, value, fits, bounds in (
            ("damping", damping, 0 <= damping < 1, "from 0 to below 1"),
            ("temperature", temperature, temperature > 0, "above 0"),
            ("blend", blend, 0 <= blend <= 1, "from 0 to 1"),
            ("tolerance", tolerance, 0 < tolerance < 1, "between 0 and 1"),
        ):
            if not fits:
                raise BadInput(f"pagerank: {name} is {value}, not a number {bounds}")
        self._terrain = terrain
        self._seeds, self._damping, self._temperature = seeds, damping, temperature
        self._blend, self._tolerance, self._rounds = blend, tolerance, rounds
        graph = terrain.graph
        heavy = np.bincount(graph.sources, graph.weights, len(graph))
        # A link stands at both of its nodes, so that what leaves along a row of the graph arrives along a row here.
        moves = graph.weights / heavy[graph.ends]
        self._moves: Any = csr_array((moves, graph.ends, graph.starts), shape=(len(graph), len(graph)))

    def search(self, query: str, k: int) -> list[Hit]:
        """The best `k`; nothing for a query that has nothing in common with any document."""
        likeness = self._terrain.likeness(query)
        if not likeness.any():
            return []
        with stage("walk"):
            shares, _ = self._walked(likeness)
            near = np.maximum(likeness, 0.0)
            scores = (1 - self._blend) * shares / shares.max() + self._blend * near / (near.max() or 1.0)
            return self._terrain.best(scores, likeness, k)

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the walk does not hang on it
        """The graph, the parameters, and how many rounds this query takes."""
        likeness = self._terrain.likeness(query)
        return {
            **self._terrain.about(),
            "seeds": self._seeds,
            "damping": self._damping,
            "temperature": self._temperature,
            "blend": self._blend,
            "tolerance": self._tolerance,
            "rounds": self._rounds,
            "rounds_needed": self._walked(likeness)[1] if likeness.any() else 0,
        }

    def _walked(self, likeness: Floats) -> tuple[Floats, int]:
        """The share of the walk that each document gets, and after how many rounds."""
        seeds: Ints = best(likeness, self._seeds)
        starts = np.exp((likeness[seeds] - likeness[seeds[0]]) / self._temperature)
        starts /= starts.sum()
        shares = np.zeros(len(likeness))
        shares[seeds] = starts
        needed = 0
        for needed in range(1, self._rounds + 1):  # noqa: B007 - told to whoever asks
            moved: Floats = self._moves @ shares
            moved *= self._damping
            # What was not moved along a link starts over, be it by chance or for want of one.
            moved[seeds] += (1.0 - moved.sum()) * starts
            change = np.abs(moved - shares).sum()
            shares = moved
            if change < self._tolerance:
                break
        # Rounding must not put one of two documents first that have the same place in the graph.
        grain = min(self._tolerance, FINE)
        return np.rint(shares / grain) * grain, needed
