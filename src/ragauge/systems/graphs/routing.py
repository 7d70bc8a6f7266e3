"""Which way a query is answered, from what plain search sees of it: no label, and no chance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ragauge.records import Floats, Ints
from ragauge.systems.graphs.walking import Ways

PEAKED = 0.4
"""From this peak on likeness alone decides."""
LINKED = 0.7
"""From this share of linked seeds on agents keep to links."""
LEAP = 0.25
"""How often agents leap where seeds are scattered, if no greater probability is given."""


class Route(NamedTuple):
    """What is done, and the two numbers that decide it."""

    choice: str
    """`semantic`: the order of likeness, without a walk; `walk`: along links alone; `leap`: with leaps."""
    peak: float
    """How far the first seed stands above all seeds, as a share of how far it stands above all documents."""
    linked: float
    """The share of the seeds that have a link to another one."""


def route(likeness: Floats, mean: float, seeds: Ints, ways: Ways) -> Route:
    """`semantic` where one document stands out; else `walk` where the seeds hang together, and `leap` where not.

    Where one seed is far ahead of the others, it is the answer or nothing is, and a walk could only blur that. Seeds
    that are linked lie in one region, which a walk can go through; scattered ones need leaps between them. `mean` is
    that of the likeness of all documents, also where `likeness` has only some of them.
    """
    first = likeness[seeds].max()
    above = first - mean
    peak = float((first - likeness[seeds].mean()) / above) if above > 0 else 0.0
    near = (ways.weights[seeds] > 0) & np.isin(ways.ends[seeds], seeds)
    linked = float(near.any(axis=1).mean())
    return Route("semantic" if peak >= PEAKED else "walk" if linked >= LINKED else "leap", peak, linked)
