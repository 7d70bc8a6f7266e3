"""Graphs of documents: nodes, and weighted links between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput
from ragauge.core.records import Floats, Ints


class LinkArrays(NamedTuple):
    """Undirected links as pairs of node numbers, each with a weight above 0."""

    ones: Ints
    others: Ints
    weights: Floats
    skipped: Mapping[str, int] = EMPTY_MAPPING
    """Number of items that could not be linked, by reason."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Documents and the links between them in compressed rows: those of node `i` are at `starts[i]:starts[i + 1]`.

    A link is stored at both of its nodes; a node is never linked to itself.
    """

    ids: Sequence[str]
    starts: Ints
    ends: Ints
    """Node at the other end of each link."""
    weights: Floats
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Number of links per kind; two kinds may have the same link."""
    skipped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of items that each kind could not link, by reason; kinds without any are left out."""

    @classmethod
    def of(cls, ids: Sequence[str], links: Mapping[str, LinkArrays]) -> Graph:
        """Build a graph from links by kind.

        Of duplicate links of one kind the largest weight counts; weights of different kinds are added.

        >>> knows = LinkArrays(np.array([0, 1, 1]), np.array([1, 0, 1]), np.array([1.0, 0.5, 1.0]))
        >>> like = LinkArrays(np.array([0, 1]), np.array([1, 2]), np.array([0.25, 0.25]))
        >>> graph = Graph.of(["a", "b", "c"], {"knows": knows, "like": like})
        >>> graph.kinds, graph.starts.tolist(), graph.ends.tolist(), graph.weights.tolist()
        ({'knows': 1, 'like': 2}, [0, 1, 3, 4], [1, 0, 2, 1], [1.25, 1.25, 0.25, 0.25])
        """
        n = len(ids)
        kinds: dict[str, int] = {}
        keys, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for kind, link_arrays in links.items():
            first_nodes, second_nodes, link_weights = _check_links(kind, link_arrays, n)
            is_not_loop = first_nodes != second_nodes
            low, high = (
                np.minimum(first_nodes, second_nodes)[is_not_loop],
                np.maximum(first_nodes, second_nodes)[is_not_loop],
            )
            pairs, pair_indices = np.unique(low * n + high, return_inverse=True)
            largest_weights = np.zeros(len(pairs))
            np.maximum.at(largest_weights, pair_indices, link_weights[is_not_loop])
            kinds[kind] = len(pairs)
            keys.append(pairs)
            weights.append(largest_weights)
        pairs, pair_indices = np.unique(np.concatenate(keys), return_inverse=True)
        total_weights = np.bincount(pair_indices, weights=np.concatenate(weights), minlength=len(pairs))
        low, high = np.divmod(pairs, max(n, 1))
        sources, ends = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((ends, sources))
        starts = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))]).astype(np.int64)
        skipped = {kind: dict(link_arrays.skipped) for kind, link_arrays in links.items() if link_arrays.skipped}
        return cls(
            list(ids), starts, ends[order], np.concatenate([total_weights, total_weights])[order], kinds, skipped
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Graph({len(self):,} nodes, {self.links:,} links)"

    @property
    def links(self) -> int:
        """Number of linked pairs of nodes."""
        return len(self.ends) // 2

    @cached_property
    def degrees(self) -> Ints:
        """Number of links per node."""
        return np.diff(self.starts)

    @cached_property
    def sources(self) -> Ints:
        """Node at the near end of each entry of `ends`."""
        return np.repeat(np.arange(len(self)), self.degrees)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of nodes, links and weights, ten hexadecimal digits."""
        hasher = hashlib.blake2b("\n".join(self.ids).encode("utf-8", "surrogatepass"), digest_size=5)
        for part in (self.starts, self.ends, self.weights):
            hasher.update(np.ascontiguousarray(part).tobytes())
        return hasher.hexdigest()

    def about(self) -> dict[str, Any]:
        """Describe the graph for a manifest."""
        counts = {"nodes": len(self), "links": self.links, "kinds": dict(self.kinds), "fingerprint": self.fingerprint}
        return counts | (
            {"skipped": {kind: dict(reasons) for kind, reasons in self.skipped.items()}} if self.skipped else {}
        )


def _check_links(kind: str, links: LinkArrays, nodes: int) -> tuple[Ints, Ints, Floats]:
    """Return the links of a kind as arrays.

    Raise BadInput for invalid nodes or weights.
    """
    try:
        first_nodes, second_nodes = (np.asarray(part, np.int64).reshape(-1) for part in (links.ones, links.others))
        weights = np.asarray(links.weights, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise BadInput(f"the links of `{kind}` must be numbers: {error}") from None
    if not len(first_nodes) == len(second_nodes) == len(weights):
        raise BadInput(f"`{kind}` links {len(first_nodes)} to {len(second_nodes)} nodes with {len(weights)} weights")
    if (
        len(first_nodes)
        and not 0 <= min(first_nodes.min(), second_nodes.min()) <= max(first_nodes.max(), second_nodes.max()) < nodes
    ):
        raise BadInput(f"`{kind}` links a node that does not exist; expected node numbers below {nodes}")
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise BadInput(f"the weights of `{kind}` must be finite numbers above 0")
    return first_nodes, second_nodes, weights
