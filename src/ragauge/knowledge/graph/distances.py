"""Distances of documents from the seeds of a query, and the recall within reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ragauge.core.graphs import Graph
from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Mean
from ragauge.knowledge.graph.results import (
    DISTANCE_LABELS,
    MAX_STEPS,
    NEAR_MAX_LINKS,
    LinkRelevance,
    QueryReach,
    Reach,
    ReachableRecall,
)
from ragauge.stats.intervals import mean_intervals

if TYPE_CHECKING:
    from scipy.sparse import csr_array


BEYOND_MAX_STEPS, UNREACHABLE = MAX_STEPS + 1, MAX_STEPS + 2
BLOCK_ROWS = 1024
"""Number of rows per block of a sparse matrix product."""


class RankedQuery(NamedTuple):
    """Query with its relevant documents and all documents ranked by similarity."""

    query: str
    relevant: Ints
    order: Ints
    """Document rows, most similar first; without the query itself if it is a document."""
    seeds: int
    """Number of top documents used as seeds."""


def adjacency_matrix(graph: Graph) -> csr_array[np.int64]:
    """Build the symmetric adjacency matrix of a graph."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(graph.ends), np.int64), graph.ends, graph.starts), shape=(len(graph), len(graph)))


def component_labels(graph: Graph) -> Ints:
    """Return the component number of each node.

    >>> path = Graph(["a", "b", "c"], np.array([0, 1, 2, 2]), np.array([1, 0]), np.ones(2))
    >>> component_labels(path).tolist()
    [0, 0, 1]
    """
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(adjacency_matrix(graph), directed=False)[1], np.int64)


def clustering_coefficient(graph: Graph) -> float:
    """Return the mean local clustering coefficient.

    0 for nodes with fewer than two neighbours.
    """
    whole = adjacency_matrix(graph)
    closed: list[Ints] = [whole[rows].multiply(whole[rows] @ whole).sum(axis=1) for rows in _row_blocks(len(graph))]
    pairs = graph.degrees * (graph.degrees - 1)
    return float(np.mean(np.concatenate(closed) / np.maximum(pairs, 1))) if len(graph) else 0.0


def seed_distances(graph: Graph, parts: Ints, seeds: Ints) -> Ints:
    """Return the number of links from each node to the nearest seed.

    It is BEYOND_MAX_STEPS for more than MAX_STEPS links, and UNREACHABLE without a path. `parts` are the components of
    the graph.

    >>> from ragauge.core.graphs import LinkArrays as Links
    >>> chain = Graph.of(list("abcdefg"), {"next": Links(np.arange(5), np.arange(1, 6), np.ones(5))})
    >>> seed_distances(chain, component_labels(chain), np.array([0])).tolist()
    [0, 1, 2, 3, 4, 4, 5]
    """
    joined = np.zeros(len(graph) + 1, bool)
    joined[parts[seeds]] = True
    distances: Ints = np.where(joined[parts], BEYOND_MAX_STEPS, UNREACHABLE)
    distances[seeds] = 0
    edge = seeds
    for step in range(1, MAX_STEPS + 1):
        met = np.zeros(len(graph), bool)
        met[_linked_nodes(graph, edge)] = True
        edge = np.flatnonzero(met & (distances == BEYOND_MAX_STEPS))
        distances[edge] = step
    return distances


def _linked_nodes(graph: Graph, nodes: Ints) -> Ints:
    """Return the nodes linked to some nodes, once per link."""
    counts = graph.degrees[nodes]
    firsts = graph.starts[nodes] - np.cumsum(counts) + counts  # start of each node's links, minus the links before it
    found: Ints = graph.ends[np.repeat(firsts, counts) + np.arange(counts.sum())]
    return found


def count_by_distance(graphs: Mapping[str, Graph], asked: Iterable[RankedQuery]) -> dict[str, list[QueryReach]]:
    """Count the documents of every query by distance, along the links of each graph."""
    parts = {kind: component_labels(graph) for kind, graph in graphs.items()}
    found: dict[str, list[QueryReach]] = {kind: [] for kind in graphs}
    for query in asked:
        place = np.empty(len(query.order) + 1, np.int64)  # one more, for a query that is itself a document
        place[query.order] = np.arange(len(query.order))
        places = np.sort(place[query.relevant])
        for kind, graph in graphs.items():
            far = seed_distances(graph, parts[kind], query.order[: query.seeds])
            every = np.bincount(far[query.order], minlength=len(DISTANCE_LABELS))
            relevant = np.bincount(far[query.relevant], minlength=len(DISTANCE_LABELS))
            plain = np.searchsorted(places, np.cumsum(every)[: MAX_STEPS + 1])
            rows = (tuple(row.tolist()) for row in (relevant, every - relevant, plain))
            found[kind].append(QueryReach(query.query, *rows))
    return found


def summarise_reach(by_kind: Mapping[str, Sequence[QueryReach]], documents: int, confidence: float) -> list[Reach]:
    """Average over queries, with intervals; all link kinds use the same resamples."""
    columns = {kind: _reach_columns(rows) for kind, rows in by_kind.items()}
    names = [(kind, name) for kind, mine in columns.items() for name in mine]
    table = np.column_stack([columns[kind][name] for kind, name in names])
    ends = mean_intervals(table, confidence)
    known = ~np.isnan(table)
    sums = np.where(known, table, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        values = sums / known.sum(axis=0)
    means = {
        name: Mean(float(values[j]), int(known[:, j].sum()), float(ends[0, j]), float(ends[1, j]))
        for j, name in enumerate(names)
    }
    return [
        _to_reach(kind, {name: means[kind, name] for name in columns[kind]}, rows, documents)
        for kind, rows in by_kind.items()
    ]


def _reach_columns(rows: Sequence[QueryReach]) -> dict[str, Floats]:
    """Compute every value of each query, by name; NaN if undefined."""
    relevant = np.array([row.relevant for row in rows], np.float64)
    others = np.array([row.others for row in rows], np.float64)
    plain = np.array([row.plain for row in rows], np.float64)
    behind = others[:, 1:].sum(axis=1, keepdims=True) - np.cumsum(others[:, 1:], axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = relevant.sum(axis=1, keepdims=True)
        parts, rest = relevant / total, others / others.sum(axis=1, keepdims=True)
        recall, alike = np.cumsum(parts, axis=1), plain / total
        less, rest_less = (counts[:, 1:] / counts[:, 1:].sum(axis=1, keepdims=True) for counts in (relevant, others))
        won = (less * (behind + others[:, 1:] / 2)).sum(axis=1) / others[:, 1:].sum(axis=1)
    within = np.cumsum(relevant + others, axis=1)
    rest_less[np.isnan(less)] = np.nan  # compare values of the same queries
    return {
        "nearer": won,
        "near": less[:, :NEAR_MAX_LINKS].sum(axis=1),
        "near others": rest_less[:, :NEAR_MAX_LINKS].sum(axis=1),
        **{f"relevant {far}": parts[:, far] for far in range(len(DISTANCE_LABELS))},
        **{f"others {far}": rest[:, far] for far in range(len(DISTANCE_LABELS))},
        **{f"documents {far}": within[:, far] for far in range(MAX_STEPS + 1)},
        **{f"recall {far}": recall[:, far] for far in range(MAX_STEPS + 1)},
        **{f"plain {far}": alike[:, far] for far in range(MAX_STEPS + 1)},
        **{f"gap {far}": recall[:, far] - alike[:, far] for far in range(MAX_STEPS + 1)},
    }


def _to_reach(kind: str, means: Mapping[str, Mean], rows: Sequence[QueryReach], documents: int) -> Reach:
    return Reach(
        kind,
        means["nearer"],
        means["near"],
        means["near others"],
        [means[f"relevant {far}"] for far in range(len(DISTANCE_LABELS))],
        [means[f"others {far}"] for far in range(len(DISTANCE_LABELS))],
        [
            ReachableRecall(
                far,
                means[f"documents {far}"].value,
                means[f"documents {far}"].value / documents,
                *(means[f"{name} {far}"] for name in ("recall", "plain", "gap")),
            )
            for far in range(MAX_STEPS + 1)
        ],
        rows,
    )


def link_relevance(graphs: Mapping[str, Graph], relevant: Sequence[Ints]) -> list[LinkRelevance]:
    """Measure how often links connect documents relevant to the same query.

    There is one result per graph.
    """
    pairs, linked = _co_relevant_pairs(graphs, relevant)
    several = [rows for rows in relevant if len(rows) > 1]
    found = []
    for kind, graph in graphs.items():
        alike = np.array([_neighbour_overlap(graph, rows) for rows in several])
        possible = len(graph) * (len(graph) - 1) // 2
        star = float(alike.mean()) if len(alike) else math.nan
        found.append(
            LinkRelevance(kind, graph.links, pairs, linked[kind], possible, len(several), star, int((alike == 1).sum()))
        )
    return found


def _co_relevant_pairs(graphs: Mapping[str, Graph], relevant: Sequence[Ints]) -> tuple[int, dict[str, int]]:
    """Count document pairs relevant to a common query, and those linked.

    The linked pairs are counted for each graph.
    """
    from scipy.sparse import csr_array

    nodes = len(next(iter(graphs.values())))
    sizes = [len(rows) for rows in relevant]
    at = (np.concatenate(relevant), np.repeat(np.arange(len(relevant)), sizes))
    owned = csr_array((np.ones(sum(sizes), np.int64), at), shape=(nodes, len(relevant)))
    wholes = {kind: adjacency_matrix(graph) for kind, graph in graphs.items()}
    pairs, linked = 0, dict.fromkeys(graphs, 0)
    for rows in _row_blocks(nodes):
        both = owned[rows] @ owned.T
        pairs += both.nnz - int((both.diagonal(rows.start) > 0).sum())
        for kind, whole in wholes.items():
            linked[kind] += whole[rows].multiply(both).nnz
    return pairs // 2, {kind: count // 2 for kind, count in linked.items()}


def _neighbour_overlap(graph: Graph, relevant: Ints) -> float:
    """Return the largest Jaccard overlap of documents with a node's neighbours."""
    shared = np.bincount(_linked_nodes(graph, relevant), minlength=len(graph))
    return float(np.max(shared / (graph.degrees + len(relevant) - shared)))


def _row_blocks(nodes: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK_ROWS, nodes)) for first in range(0, nodes, BLOCK_ROWS))
