"""Rank documents by personalised PageRank, restarted at the documents most similar to the query."""

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
"""Maximum step to which shares are rounded; a smaller tolerance gives a smaller step."""


class PageRank:
    """Retriever by PageRank of a random walk that restarts near the query.

    The walk starts at one of the `seeds` documents most similar to the query, `s_i ∝ exp(similarity_i / temperature)`.
    It follows a link with probability `damping`, in proportion to the weights; otherwise, or at a node without links,
    it restarts: `x = damping · (P'x + (share at nodes without links) · s) + (1 - damping) · s`. This is the PageRank of
    Brin and Page with the teleport of Haveliwala (2002), as networkx computes it. The iteration ends when `x` changes
    by less than `tolerance` in sum, at the latest after `rounds`. Shares are rounded to steps of `tolerance`, at most
    1e-8.

    The score is `(1 - blend) · x / max x + blend · max(similarity, 0) / max similarity`. Ties, including scores of 0,
    are broken by similarity to the query. The result is deterministic: all trials are equal.
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
        # Links are symmetric, so that outgoing links of a row are also its incoming ones.
        moves = graph.weights / heavy[graph.ends]
        self._moves: Any = csr_array((moves, graph.ends, graph.starts), shape=(len(graph), len(graph)))

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k`; none if the query is similar to no document."""
        likeness = self._terrain.likeness(query)
        if not likeness.any():
            return []
        with stage("walk"):
            shares, _ = self._walked(likeness)
            near = np.maximum(likeness, 0.0)
            scores = (1 - self._blend) * shares / shares.max() + self._blend * near / (near.max() or 1.0)
            return self._terrain.best(scores, likeness, k)

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the walk does not hang on it
        """Return the graph, the parameters, and the number of rounds for this query."""
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
        """Compute each document's share of the walk, and the number of rounds."""
        seeds: Ints = best(likeness, self._seeds)
        starts = np.exp((likeness[seeds] - likeness[seeds[0]]) / self._temperature)
        starts /= starts.sum()
        shares = np.zeros(len(likeness))
        shares[seeds] = starts
        needed = 0
        for needed in range(1, self._rounds + 1):  # noqa: B007 - told to whoever asks
            moved: Floats = self._moves @ shares
            moved *= self._damping
            # The share that did not follow a link restarts, by chance or because there is no link.
            moved[seeds] += (1.0 - moved.sum()) * starts
            change = np.abs(moved - shares).sum()
            shares = moved
            if change < self._tolerance:
                break
        # Rounding errors must not order documents with equal positions in the graph.
        grain = min(self._tolerance, FINE)
        return np.rint(shares / grain) * grain, needed
