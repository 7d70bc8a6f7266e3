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
    matrix = adjacency_matrix(graph)
    closed: list[Ints] = [matrix[rows].multiply(matrix[rows] @ matrix).sum(axis=1) for rows in _row_blocks(len(graph))]
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
    neighbours: Ints = graph.ends[np.repeat(firsts, counts) + np.arange(counts.sum())]
    return neighbours


def count_by_distance(graphs: Mapping[str, Graph], queries: Iterable[RankedQuery]) -> dict[str, list[QueryReach]]:
    """Count the documents of every query by distance, along the links of each graph."""
    parts = {kind: component_labels(graph) for kind, graph in graphs.items()}
    reaches: dict[str, list[QueryReach]] = {kind: [] for kind in graphs}
    for query in queries:
        ranks = np.empty(len(query.order) + 1, np.int64)  # one more, for a query that is itself a document
        ranks[query.order] = np.arange(len(query.order))
        relevant_ranks = np.sort(ranks[query.relevant])
        for kind, graph in graphs.items():
            distances = seed_distances(graph, parts[kind], query.order[: query.seeds])
            all_counts = np.bincount(distances[query.order], minlength=len(DISTANCE_LABELS))
            relevant_counts = np.bincount(distances[query.relevant], minlength=len(DISTANCE_LABELS))
            plain = np.searchsorted(relevant_ranks, np.cumsum(all_counts)[: MAX_STEPS + 1])
            rows = (tuple(row.tolist()) for row in (relevant_counts, all_counts - relevant_counts, plain))
            reaches[kind].append(QueryReach(query.query, *rows))
    return reaches


def summarise_reach(by_kind: Mapping[str, Sequence[QueryReach]], documents: int, confidence: float) -> list[Reach]:
    """Average over queries, with intervals; all link kinds use the same resamples."""
    columns = {kind: _reach_columns(rows) for kind, rows in by_kind.items()}
    names = [(kind, name) for kind, kind_columns in columns.items() for name in kind_columns]
    table = np.column_stack([columns[kind][name] for kind, name in names])
    intervals = mean_intervals(table, confidence)
    has_value = ~np.isnan(table)
    sums = np.where(has_value, table, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        values = sums / has_value.sum(axis=0)
    means = {
        name: Mean(float(values[j]), int(has_value[:, j].sum()), float(intervals[0, j]), float(intervals[1, j]))
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
        relevant_shares, other_shares = relevant / total, others / others.sum(axis=1, keepdims=True)
        recall, plain_recall = np.cumsum(relevant_shares, axis=1), plain / total
        less, rest_less = (counts[:, 1:] / counts[:, 1:].sum(axis=1, keepdims=True) for counts in (relevant, others))
        nearer = (less * (behind + others[:, 1:] / 2)).sum(axis=1) / others[:, 1:].sum(axis=1)
    within = np.cumsum(relevant + others, axis=1)
    rest_less[np.isnan(less)] = np.nan  # compare values of the same queries
    return {
        "nearer": nearer,
        "near": less[:, :NEAR_MAX_LINKS].sum(axis=1),
        "near others": rest_less[:, :NEAR_MAX_LINKS].sum(axis=1),
        **{f"relevant {distance}": relevant_shares[:, distance] for distance in range(len(DISTANCE_LABELS))},
        **{f"others {distance}": other_shares[:, distance] for distance in range(len(DISTANCE_LABELS))},
        **{f"documents {distance}": within[:, distance] for distance in range(MAX_STEPS + 1)},
        **{f"recall {distance}": recall[:, distance] for distance in range(MAX_STEPS + 1)},
        **{f"plain {distance}": plain_recall[:, distance] for distance in range(MAX_STEPS + 1)},
        **{f"gap {distance}": recall[:, distance] - plain_recall[:, distance] for distance in range(MAX_STEPS + 1)},
    }


def _to_reach(kind: str, means: Mapping[str, Mean], rows: Sequence[QueryReach], documents: int) -> Reach:
    return Reach(
        kind,
        means["nearer"],
        means["near"],
        means["near others"],
        [means[f"relevant {distance}"] for distance in range(len(DISTANCE_LABELS))],
        [means[f"others {distance}"] for distance in range(len(DISTANCE_LABELS))],
        [
            ReachableRecall(
                distance,
                means[f"documents {distance}"].value,
                means[f"documents {distance}"].value / documents,
                *(means[f"{name} {distance}"] for name in ("recall", "plain", "gap")),
            )
            for distance in range(MAX_STEPS + 1)
        ],
        rows,
    )


def link_relevance(graphs: Mapping[str, Graph], relevant: Sequence[Ints]) -> list[LinkRelevance]:
    """Measure how often links connect documents relevant to the same query.

    There is one result per graph.
    """
    pairs, linked = _co_relevant_pairs(graphs, relevant)
    several = [rows for rows in relevant if len(rows) > 1]
    results = []
    for kind, graph in graphs.items():
        overlaps = np.array([_neighbour_overlap(graph, rows) for rows in several])
        possible = len(graph) * (len(graph) - 1) // 2
        mean_overlap = float(overlaps.mean()) if len(overlaps) else math.nan
        results.append(
            LinkRelevance(
                kind, graph.links, pairs, linked[kind], possible, len(several), mean_overlap, int((overlaps == 1).sum())
            )
        )
    return results


def _co_relevant_pairs(graphs: Mapping[str, Graph], relevant: Sequence[Ints]) -> tuple[int, dict[str, int]]:
    """Count document pairs relevant to a common query, and those linked.

    The linked pairs are counted for each graph.
    """
    from scipy.sparse import csr_array

    nodes = len(next(iter(graphs.values())))
    sizes = [len(rows) for rows in relevant]
    indices = (np.concatenate(relevant), np.repeat(np.arange(len(relevant)), sizes))
    membership = csr_array((np.ones(sum(sizes), np.int64), indices), shape=(nodes, len(relevant)))
    matrices = {kind: adjacency_matrix(graph) for kind, graph in graphs.items()}
    pairs, linked = 0, dict.fromkeys(graphs, 0)
    for rows in _row_blocks(nodes):
        shared = membership[rows] @ membership.T
        pairs += shared.nnz - int((shared.diagonal(rows.start) > 0).sum())
        for kind, adjacency in matrices.items():
            linked[kind] += adjacency[rows].multiply(shared).nnz
    return pairs // 2, {kind: count // 2 for kind, count in linked.items()}


def _neighbour_overlap(graph: Graph, relevant: Ints) -> float:
    """Return the largest Jaccard overlap of documents with a node's neighbours."""
    shared = np.bincount(_linked_nodes(graph, relevant), minlength=len(graph))
    return float(np.max(shared / (graph.degrees + len(relevant) - shared)))


def _row_blocks(nodes: int) -> Iterator[slice]:
    return (slice(first, min(first + BLOCK_ROWS, nodes)) for first in range(0, nodes, BLOCK_ROWS))
