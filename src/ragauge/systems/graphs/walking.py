"""What all walkers share: links as a table, draws for many walkers at once, and the ranking of what was visited.

Nothing here goes through walkers or nodes one by one: a step of all walkers is a few operations on arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import BadInput
from ragauge.graphs import Graph
from ragauge.records import Floats, Hit, Ints
from ragauge.systems.bm25 import best
from ragauge.systems.graphs.terrain import Terrain
from ragauge.systems.stores.intake import whole

Mask = NDArray[np.bool_]

NOWHERE = -1
"""Where a path has no node, or a move went along no link."""
TIE = 1e-6
"""The part of its likeness that a score is raised by, so that likeness decides between equals."""
STRONGEST = 20.0
"""The greatest weight of a prior: the most has then 500 million times the odds of the least."""


@dataclass(frozen=True, eq=False)
class Ways:
    """The heaviest links of every node as tables with a row for each; all have the same shape."""

    ends: Ints
    """The node at the other end."""
    weights: Floats
    """1 for the heaviest link of all; 0 where a node has no more links."""
    numbers: Ints
    """Which link it is: the same from both of its nodes."""
    links: int
    """How many links there are."""

    @classmethod
    def of(cls, graph: Graph, most: int) -> Ways:
        """Those of a graph; which of equally heavy ones a node keeps, a hash of their ids says.

        Not their places: many a corpus has its documents in order of their kinds, and a whole kind would be missing.

        >>> from ragauge.graphs import Links
        >>> triangle = Links(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([1.0, 4.0, 2.0]))
        >>> ways = Ways.of(Graph.of(["a", "b", "c"], {"side": triangle}), 2)
        >>> ways.ends.tolist(), ways.weights.tolist(), ways.numbers.tolist()
        ([[2, 1], [2, 0], [0, 1]], [[1.0, 0.25], [0.5, 0.25], [1.0, 0.5]], [[1, 0], [2, 0], [1, 2]])
        """
        n, sources = len(graph), graph.sources
        hashes = np.array([crc32(name.encode("utf-8", "surrogatepass")) for name in graph.ids], np.int64)
        order = np.lexsort((graph.ends, hashes[graph.ends], -graph.weights, sources))
        places = np.arange(len(order)) - graph.starts[sources]  # sources stay as they are in this order
        order, rows, places = (one[places < most] for one in (order, sources, places))
        low, high = np.minimum(sources, graph.ends), np.maximum(sources, graph.ends)
        pairs, numbers = np.unique(low * n + high, return_inverse=True)
        shape = (n, max(1, int(places.max(initial=0)) + 1))
        ways = cls(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.int64), len(pairs))
        ways.ends[rows, places] = graph.ends[order]
        ways.weights[rows, places] = graph.weights[order] / graph.weights.max(initial=0.0)
        ways.numbers[rows, places] = numbers[order]
        return ways

    def raised(self, power: float) -> Floats:
        """The weights to a power; where there is no link, there is none whatever the power."""
        return np.where(self.weights > 0, self.weights**power, 0.0)

    def within(self, rows: Ints) -> Ways:
        """The links among some nodes, which are numbered anew as they are given."""
        local = np.full(len(self.ends), NOWHERE)
        local[rows] = np.arange(len(rows))
        ends = local[self.ends[rows]]
        inside = (ends >= 0) & (self.weights[rows] > 0)
        kept, numbers = np.unique(self.numbers[rows][inside], return_inverse=True)
        ways = Ways(
            np.where(inside, ends, 0), np.where(inside, self.weights[rows], 0.0), np.zeros_like(ends), len(kept)
        )
        ways.numbers[inside] = numbers
        return ways


def drawn(worth: Floats, chance: Floats) -> tuple[Ints, Mask]:
    """A place of each row in proportion to what stands there, by a number below 1; and whether there is any."""
    sums = np.cumsum(worth, axis=1)
    marks = chance * sums[:, -1]  # a number below 1 times a sum is below that sum, rounded as well
    return (sums > marks[:, None]).argmax(axis=1), sums[:, -1] > 0


def drawn_from(rows: Ints, worth: Floats, chance: Floats) -> Ints:
    """One of the same rows for each number below 1, in proportion to their worth."""
    sums = np.cumsum(worth)
    return np.asarray(rows[np.searchsorted(sums, chance * sums[-1], side="right")], np.int64)


def once(paths: Ints) -> tuple[Ints, Ints]:
    """What stands on each path, however often, and on which: two columns."""
    ordered = np.sort(paths, axis=1)
    new = ordered >= 0
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return ordered[new], np.nonzero(new)[0]


def spread(values: Floats) -> Floats:
    """From 0 for the least to 1 for the most; 0 where all are alike."""
    low, high = values.min(), values.max()
    return np.asarray((values - low) / ((high - low) or 1.0), np.float64)


def preference(terrain: Terrain, field: str, weight: float) -> Floats:
    """What each node is preferred by: exp(`weight` times its number), where the most is 1; 1 without a field."""
    return np.exp(weight * (terrain.numbers(field) - 1)) if field else np.ones(len(terrain.documents))


def points(worth: Floats, likeness: Floats, preferred: Floats) -> Floats:
    """Scores: of equal worth what is more like the query has a little more."""
    return np.asarray((worth + TIE * likeness) * preferred, np.float64)


def ranked(terrain: Terrain, k: int, likeness: Floats, rows: Ints, scores: Floats) -> list[Hit]:
    """Visited nodes, which are given in their order, by their scores; then all others by likeness, below them."""
    order = np.argsort(-scores, kind="stable")[: max(k, 0)]
    found, reached = rows[order], scores[order]
    if k > len(found):
        others = likeness.copy()
        others[rows] = -np.inf
        more = best(others, min(k, len(likeness)) - len(found))
        found = np.concatenate([found, more])
        reached = np.concatenate([reached, scores.min() - 2 + likeness[more]])
    return terrain.hits(found, reached)


def checked(kind: str, counts: dict[str, int], shares: dict[str, float]) -> dict[str, Any]:
    """Both as one, where counts are whole numbers from 1 and shares numbers from 0 to 1."""
    for name, count in counts.items():
        whole(f"{kind}: {name}", count)
    for name, share in shares.items():
        between(f"{kind}: {name}", share, 0, 1)
    return {**counts, **shares}


def between(name: str, value: float, least: float, most: float = math.inf) -> float:
    """A number in its bounds."""
    if not least <= value <= most or math.isinf(value):
        bounds = f"at least {least:g}" if math.isinf(most) else f"between {least:g} and {most:g}"
        raise BadInput(f"{name} is {value:g}, not {bounds}")
    return value
