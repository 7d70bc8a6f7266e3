"""Retrieval by walks on a graph: personalised PageRank and trajectories."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from ragauge.core.documents import Hit
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import Part
from ragauge.core.randomness import query_rng
from ragauge.core.records import Floats, Ints
from ragauge.core.settings import AtLeast, AtMost, check_int, check_settings
from ragauge.core.stages import stage
from ragauge.systems.bm25 import find_top_k
from ragauge.systems.graph_corpus import (
    MAX_PRIOR_WEIGHT,
    NO_POSITION,
    LinkedCorpus,
    LinkTable,
    compute_preferences,
    draw_columns,
    draw_rows,
    rank_visited,
    unique_visits,
    visit_scores,
)


@dataclass(frozen=True)
class GraphFlowSettings:
    seeds: Annotated[int, AtLeast(1)] = 10
    trajectories: Annotated[int, AtLeast(1)] = 200
    steps: Annotated[int, AtLeast(1)] = 4
    # Below 0.01 the ratio of two exponentials could overflow.
    temperature: Annotated[float, AtLeast(0.01)] = 0.05
    stop: Annotated[float, AtLeast(0), AtMost(1)] = 0.0
    prior: str = ""
    prior_weight: Annotated[float, AtLeast(0), AtMost(MAX_PRIOR_WEIGHT)] = 1.0
    most_links: Annotated[int, AtLeast(1)] = 64
    seed: Annotated[int, AtLeast(0)] = 0

    def __post_init__(self) -> None:
        check_settings(self, "graphflow: ")


class GraphFlow:
    """Retriever by stochastic trajectories, ranked by visits; untrained, similarity replaces GraphFlow's policy.

    A trajectory starts at one of the `seeds` documents most similar to the query and makes up to `steps` moves. The
    start, and each next node among the `most_links` heaviest links, is drawn in proportion to
    `link weight * exp(similarity / temperature) * exp(prior_weight * number)`, at the start without the link weight.
    The number is the metadata field `prior`, scaled to 0 to 1. A trajectory ends with probability `stop` before each
    move, and at a node without links. A document's score is the share of the `trajectories` that visit it, times
    `exp(prior_weight * number)`; ties are broken by similarity to the query.
    """

    def __init__(
        self, corpus: Annotated[LinkedCorpus, Part()], settings: GraphFlowSettings = GraphFlowSettings()
    ) -> None:
        self._corpus = corpus
        self._settings = settings
        self._preference = compute_preferences(corpus, settings.prior, settings.prior_weight)
        self._links = LinkTable.of(corpus.graph, settings.most_links)

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the `k` most visited documents, completed by similarity."""
        similarity = self._corpus.similarities(query)
        if not similarity.any():
            return []
        with stage("walk"):
            visits = np.bincount(
                unique_visits(self._walk_trajectories(query, similarity))[0], minlength=len(similarity)
            )
            visited = np.flatnonzero(visits)
            scores = visit_scores(
                visits[visited] / self._settings.trajectories, similarity[visited], self._preference[visited]
            )
            return rank_visited(self._corpus, k, similarity, visited, scores)

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same for every query
        """Return graph and parameters.

        `length` is the number of moves per trajectory, `steps` that of all trajectories.
        """
        parameters = asdict(self._settings) | {
            "length": self._settings.steps,
            "steps": self._settings.trajectories * self._settings.steps,
        }
        return {**self._corpus.about(), **parameters}

    def _walk_trajectories(self, query: str, similarity: Floats) -> Ints:
        """Return the nodes of each trajectory, one row each.

        After its end a row is filled with `NO_POSITION`.
        """
        random_numbers = query_rng(self._settings.seed, query).random(
            (self._settings.steps + 1, 2, self._settings.trajectories)
        )
        pull = np.exp((similarity - similarity.max()) / self._settings.temperature) * self._preference
        seeds = find_top_k(similarity, self._settings.seeds)
        current = draw_rows(seeds, pull[seeds], random_numbers[-1, 0])
        paths = np.full((self._settings.trajectories, self._settings.steps + 1), NO_POSITION)
        paths[:, 0] = current
        is_moving = np.ones(self._settings.trajectories, bool)
        for step in range(self._settings.steps):
            targets = self._links.ends[current]
            columns, has_link = draw_columns(self._links.weights[current] * pull[targets], random_numbers[step, 0])
            is_moving &= has_link & (random_numbers[step, 1] >= self._settings.stop)
            current = np.where(is_moving, targets[np.arange(len(current)), columns], current)
            paths[is_moving, step + 1] = current[is_moving]
        return paths


MAX_SHARE_GRAIN = 1e-8
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
        corpus: Annotated[LinkedCorpus, Part()],
        *,
        seeds: int = 10,
        damping: float = 0.5,
        temperature: float = 0.02,
        blend: float = 0.0,
        tolerance: float = 1e-8,
        rounds: int = 200,
    ) -> None:
        from scipy.sparse import csr_array

        check_int("pagerank: seeds", seeds)
        check_int("pagerank: rounds", rounds)
        for name, value, fits, bounds in (
            ("damping", damping, 0 <= damping < 1, "from 0 to below 1"),
            ("temperature", temperature, temperature > 0, "above 0"),
            ("blend", blend, 0 <= blend <= 1, "from 0 to 1"),
            ("tolerance", tolerance, 0 < tolerance < 1, "between 0 and 1"),
        ):
            if not fits:
                raise BadInput(f"pagerank: {name} must be a number {bounds}, got {value}")
        self._corpus = corpus
        self._seeds, self._damping, self._temperature = seeds, damping, temperature
        self._blend, self._tolerance, self._rounds = blend, tolerance, rounds
        graph = corpus.graph
        heavy = np.bincount(graph.sources, graph.weights, len(graph))
        # Links are symmetric, so that outgoing links of a row are also its incoming ones.
        moves = graph.weights / heavy[graph.ends]
        self._moves: Any = csr_array((moves, graph.ends, graph.starts), shape=(len(graph), len(graph)))

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k`; none if the query is similar to no document."""
        similarity = self._corpus.similarities(query)
        if not similarity.any():
            return []
        with stage("walk"):
            shares, _ = self._compute_shares(similarity)
            positive_similarity = np.maximum(similarity, 0.0)
            scores = (1 - self._blend) * shares / shares.max() + self._blend * positive_similarity / (
                positive_similarity.max() or 1.0
            )
            return self._corpus.best(scores, similarity, k)

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the walk does not depend on it
        """Return the graph, the parameters, and the number of rounds for this query."""
        similarity = self._corpus.similarities(query)
        return {
            **self._corpus.about(),
            "seeds": self._seeds,
            "damping": self._damping,
            "temperature": self._temperature,
            "blend": self._blend,
            "tolerance": self._tolerance,
            "rounds": self._rounds,
            "rounds_needed": self._compute_shares(similarity)[1] if similarity.any() else 0,
        }

    def _compute_shares(self, similarity: Floats) -> tuple[Floats, int]:
        """Compute each document's share of the walk, and the number of rounds."""
        seeds: Ints = find_top_k(similarity, self._seeds)
        starts = np.exp((similarity[seeds] - similarity[seeds[0]]) / self._temperature)
        starts /= starts.sum()
        shares = np.zeros(len(similarity))
        shares[seeds] = starts
        needed = 0
        for needed in range(1, self._rounds + 1):  # noqa: B007 - read after the loop
            new_shares: Floats = self._moves @ shares
            new_shares *= self._damping
            # The share that did not follow a link restarts, by chance or because there is no link.
            new_shares[seeds] += (1.0 - new_shares.sum()) * starts
            change = np.abs(new_shares - shares).sum()
            shares = new_shares
            if change < self._tolerance:
                break
        # Rounding errors must not order documents with equal positions in the graph.
        grain = min(self._tolerance, MAX_SHARE_GRAIN)
        return np.rint(shares / grain) * grain, needed
