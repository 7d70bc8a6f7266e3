"""Swarm retrieval: agents search the graph together, on their own or to rerank the hits of another retriever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from ragauge.core.documents import Hit
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
    Mask,
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

    links: LinkTable
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

    agents: Annotated[int, AtLeast(1)] = 20
    rounds: Annotated[int, AtLeast(1)] = 10
    steps: Annotated[int, AtLeast(1)] = 4
    # Larger values of deposit, alpha and beta could underflow or overflow.
    deposit: Annotated[float, AtLeast(0), AtMost(1000)] = 1.0
    decay: Annotated[float, AtLeast(0), AtMost(1)] = 0.2
    explore: Annotated[float, AtLeast(0), AtMost(1)] = 0.1
    alpha: Annotated[float, AtLeast(0), AtMost(10)] = 1.0
    beta: Annotated[float, AtLeast(0), AtMost(10)] = 2.0
    leap: Annotated[float, AtLeast(0), AtMost(1)] = 0.0

    def __post_init__(self) -> None:
        check_settings(self, "swarm: ")

    @property
    def moves(self) -> int:
        """Number of moves per query."""
        return self.agents * self.rounds * self.steps

    def pull(self, similarity: Floats, preference: Floats) -> Floats:
        """Compute the attraction of each node from its similarity and preference."""
        return np.asarray(np.maximum(similarity, MIN_SIMILARITY) ** self.beta * preference, np.float64)

    def run_rounds(self, state: WalkState, leap: float, rng: np.random.Generator) -> PheromoneTrail:
        """Run all rounds and return the pheromone.

        An agent leaves pheromone once on each node and link of its path.
        """
        trail = np.zeros(len(state.pull))
        pheromone = np.ones(state.links.n_links)
        visited = np.zeros(len(state.pull), bool)
        for _ in range(self.rounds):
            nodes, moves = self.walk(state, pheromone, leap, rng)
            rows, agents = unique_visits(nodes)
            agent_gains = np.bincount(agents, state.gain[rows]) / np.bincount(agents)
            deposits = self.deposit * np.maximum(agent_gains, 0)
            visited[rows] = True
            trail *= 1 - self.decay
            trail += np.bincount(rows, deposits[agents], minlength=len(trail))
            numbers, agents = unique_visits(moves)
            pheromone *= 1 - self.decay
            np.add.at(pheromone, numbers, deposits[agents])
            np.maximum(pheromone, MIN_PHEROMONE, out=pheromone)
        return PheromoneTrail(trail, pheromone, visited)

    def walk(self, state: WalkState, pheromone: Floats, leap: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Run one round and return the nodes and links of each agent, one row per agent.

        The link is `NO_POSITION` if the agent leaps or cannot move.
        """
        links = state.links
        random_numbers = rng.random((self.steps + 1, 4, self.agents))
        current = draw_rows(state.starts, state.pull[state.starts], random_numbers[-1, 0])
        nodes, moves = np.empty((self.agents, self.steps + 1), np.int64), np.empty((self.agents, self.steps), np.int64)
        nodes[:, 0] = current
        agents = np.arange(self.agents)
        for step in range(self.steps):
            targets, numbers = links.ends[current], links.numbers[current]
            trails = pheromone[numbers] if links.n_links else np.ones(numbers.shape)
            attraction = (
                state.heavy[current] * state.pull[targets] * (trails if self.alpha == 1 else trails**self.alpha)
            )
            if self.explore:
                attraction = np.where(
                    (random_numbers[step, 1] < self.explore)[:, None], links.weights[current] > 0, attraction
                )
            columns, moves_on = draw_columns(attraction, random_numbers[step, 0])
            next_nodes = np.where(moves_on, targets[agents, columns], current)
            if leap:
                leaping = random_numbers[step, 2] < leap
                next_nodes = np.where(
                    leaping, draw_rows(state.tops, state.pull[state.tops], random_numbers[step, 3]), next_nodes
                )
                moves_on &= ~leaping
            moves[:, step] = np.where(moves_on, numbers[agents, columns], NO_POSITION)
            nodes[:, step + 1] = current = next_nodes
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


def choose_route(similarity: Floats, mean: float, seeds: Ints, links: LinkTable) -> SwarmRoute:
    """Choose the route of a query from its seeds.

    It is `semantic` if one document stands out, `walk` if the seeds are linked, else `leap`. If one seed is far ahead
    of the others, a walk could only make the ranking worse. Linked seeds are in one region, which a walk can explore;
    scattered ones need leaps between them. `mean` is the mean similarity of all documents, not only of those given.
    """
    best = similarity[seeds].max()
    above = best - mean
    peak = float((best - similarity[seeds].mean()) / above) if above > 0 else 0.0
    is_seed_link = (links.weights[seeds] > 0) & np.isin(links.ends[seeds], seeds)
    linked = float(is_seed_link.any(axis=1).mean())
    return SwarmRoute(
        "semantic" if peak >= MIN_SEMANTIC_PEAK else "walk" if linked >= MIN_LINKED_SHARE else "leap", peak, linked
    )


@dataclass(frozen=True)
class SwarmSettings:
    """Settings that the retriever and the reranker share, in addition to those of the walks."""

    router: bool = False
    weight: Annotated[float, AtLeast(0), AtMost(1)] = 0.5
    prior: str = ""
    prior_weight: Annotated[float, AtLeast(0), AtMost(MAX_PRIOR_WEIGHT)] = 1.0
    most_links: Annotated[int, AtLeast(1)] = 64
    seed: Annotated[int, AtLeast(0)] = 0

    def __post_init__(self) -> None:
        check_settings(self, "swarm: ")


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

    def __init__(
        self,
        corpus: Annotated[LinkedCorpus, Part()],
        *,
        seeds: int = 10,
        top: int = 50,
        colony: AntColony = AntColony(),
        settings: SwarmSettings = SwarmSettings(),
    ) -> None:
        self._seeds = {"seeds": check_int("swarm: seeds", seeds), "top": check_int("swarm: top", top)}
        self._walks = _SwarmWalks(corpus, colony, settings)

    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best `k`, completed by similarity if agents visit fewer."""
        corpus = self._walks.corpus
        similarity = corpus.similarities(query)
        if not similarity.any():
            return []
        with stage("walk"):
            seeds, tops = (find_top_k(similarity, n_nodes) for n_nodes in self._seeds.values())
            walks = self._walks
            choice = walks.route(similarity, similarity.mean(), seeds, walks.links)
            if choice == "semantic":
                rows = find_top_k(similarity, k)
                return corpus.hits(rows, similarity[rows])
            state = walks.build_state(similarity, np.arange(len(similarity)), walks.links, seeds, tops)
            trail = walks.run_rounds(query, state, choice)
            trail.visited[seeds] = True
            visited = np.flatnonzero(trail.visited)
            return rank_visited(corpus, k, similarity, visited, walks.scores(similarity, trail.nodes[visited], visited))

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same however many
        """Return graph, parameters, moves per query, and the route of this query."""
        evidence, walks = self._walks.describe(self._seeds), self._walks
        similarity = walks.corpus.similarities(query) if walks.router else np.zeros(0)
        if not similarity.any():
            return evidence
        seeds = find_top_k(similarity, self._seeds["seeds"])
        return evidence | {"route": choose_route(similarity, similarity.mean(), seeds, walks.links)._asdict()}


class SwarmReranker:
    """Reranker with the agents of `Swarm`, on the links among hits; they start at and leap to any hit.

    With `bridges` they may also pass through documents that are linked to a hit; these are never returned. Hits that
    are not in the corpus come last.
    """

    def __init__(
        self,
        corpus: Annotated[LinkedCorpus, Part()],
        *,
        bridges: bool = False,
        colony: AntColony = AntColony(),
        settings: SwarmSettings = SwarmSettings(),
    ) -> None:
        self._bridges = bridges
        self._walks = _SwarmWalks(corpus, colony, settings)

    def rerank(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits, best first; ties keep their order.

        The order is unchanged if the query has no vector.
        """
        corpus = self._walks.corpus
        hit_rows = np.array([corpus.rows.get(hit.id, NO_POSITION) for hit in hits], np.int64)
        rows = np.unique(hit_rows[hit_rows >= 0])
        similarity = corpus.similarities(query) if len(rows) else np.zeros(0)
        if not similarity.any():
            return list(hits)
        with stage("walk"):
            order, scores = self._order_hits(query, similarity, rows, hit_rows)
        return [
            hits[position]._replace(score=score)
            for position, score in zip(order.tolist(), scores.tolist(), strict=True)
        ]

    def _order_hits(self, query: str, similarity: Floats, rows: Ints, hit_rows: Ints) -> tuple[Ints, Floats]:
        """Return the positions of the hits, best first, and their scores.

        `rows` are their unique nodes.
        """
        nodes = rows
        if self._bridges:
            linked = self._walks.links.ends[rows][self._walks.links.weights[rows] > 0]
            nodes = np.concatenate([rows, np.setdiff1d(linked, rows)])
        links, starts = self._walks.links.restrict_to(nodes), np.arange(len(rows))
        choice = self._walks.route(
            similarity[nodes], similarity.mean(), find_top_k(similarity[rows], ROUTING_HITS), links
        )
        scores = similarity[rows]
        if choice != "semantic":
            state = self._walks.build_state(similarity, nodes, links, starts, starts)
            trail = self._walks.run_rounds(query, state, choice).nodes[starts]
            scores = self._walks.scores(similarity, trail, rows)
        hit_scores = scores.min() - 1.0 - np.arange(len(hit_rows))
        is_known = hit_rows >= 0
        hit_scores[is_known] = scores[np.searchsorted(rows, hit_rows[is_known])]
        order = np.argsort(-hit_scores, kind="stable")
        return order, hit_scores[order]

    def evidence(self, query: str, k: int) -> dict[str, Any]:  # noqa: ARG002 - the same for every query
        """Return the graph, the parameters, and the moves per query."""
        return self._walks.describe({"bridges": self._bridges})


class _SwarmWalks:
    """Parts that the retriever and the reranker share."""

    def __init__(self, corpus: LinkedCorpus, colony: AntColony, settings: SwarmSettings) -> None:
        self._parameters = {**asdict(colony), **asdict(settings)}
        self.corpus, self.colony, self.router = corpus, colony, settings.router
        self.links = LinkTable.of(corpus.graph, settings.most_links)
        self._heavy = self.links.to_power(colony.beta)
        self._weight, self._seed = settings.weight, settings.seed
        self._preference = compute_preferences(corpus, settings.prior, settings.prior_weight)

    def route(self, similarity: Floats, mean: float, seeds: Ints, links: LinkTable) -> str:
        """Return the route of a query; empty without a router."""
        return choose_route(similarity, mean, seeds, links).choice if self.router else ""

    def build_state(self, similarity: Floats, rows: Ints, links: LinkTable, starts: Ints, tops: Ints) -> WalkState:
        """Build the state of a walk on `rows`.

        `starts` and `tops` are positions in `rows`.
        """
        mean, highest = similarity.mean(), similarity.max()
        gain = (similarity[rows] - mean) / ((highest - mean) or 1.0)
        pull = self.colony.pull(similarity[rows], self._preference[rows])
        heavy = self._heavy if links is self.links else links.to_power(self.colony.beta)
        return WalkState(links, heavy, pull, gain, starts, tops)

    def run_rounds(self, query: str, state: WalkState, choice: str) -> PheromoneTrail:
        """Run the agents on the chosen route and return their trail."""
        leap = {"walk": 0.0, "leap": self.colony.leap or DEFAULT_LEAP_PROBABILITY}.get(choice, self.colony.leap)
        return self.colony.run_rounds(state, leap, query_rng(self._seed, query))

    def scores(self, similarity: Floats, trail: Floats, rows: Ints) -> Floats:
        """Compute the scores of nodes from similarity and pheromone."""
        combined = self._weight * scale_to_unit(similarity[rows]) + (1 - self._weight) * scale_to_unit(trail)
        return visit_scores(combined, similarity[rows], self._preference[rows])

    def describe(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return graph, parameters, moves per agent (`length`) and total moves (`steps`)."""
        parameters = {**options, **self._parameters, "length": self.colony.steps, "steps": self.colony.moves}
        return {**self.corpus.about(), **parameters}
