"""Choose how the swarm handles a query, from the results of dense search only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.systems.graphs.walking import Ways

PEAKED = 0.4
"""Minimum peak at which documents are ranked by similarity alone."""
LINKED = 0.7
"""Minimum share of linked seeds at which agents only follow links."""
LEAP = 0.25
"""Leap probability for scattered seeds if none is set."""


class Route(NamedTuple):
    """Chosen route, and the two values that determine it."""

    choice: str
    """`semantic`: ranking by similarity, without a walk; `walk`: along links only; `leap`: with leaps."""
    peak: float
    """Lead of the first seed over the mean of the seeds, relative to its lead over all documents."""
    linked: float
    """Share of the seeds with a link to another seed."""


def route(likeness: Floats, mean: float, seeds: Ints, ways: Ways) -> Route:
    """Choose the route of a query from its seeds.

    It is `semantic` if one document stands out, `walk` if the seeds are linked, else `leap`. If one seed is far ahead
    of the others, a walk could only make the ranking worse. Linked seeds are in one region, which a walk can explore;
    scattered ones need leaps between them. `mean` is the mean similarity of all documents, not only of those given.
    """
    first = likeness[seeds].max()
    above = first - mean
    peak = float((first - likeness[seeds].mean()) / above) if above > 0 else 0.0
    near = (ways.weights[seeds] > 0) & np.isin(ways.ends[seeds], seeds)
    linked = float(near.any(axis=1).mean())
    return Route("semantic" if peak >= PEAKED else "walk" if linked >= LINKED else "leap", peak, linked)
