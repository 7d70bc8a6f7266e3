"""The ways to exact neighbours, all to the same end: what a card cannot do the processor does, and that is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.benches import accelerated, cards
from ragauge.errors import BackendFailed
from ragauge.records import Floats, Ints
from ragauge.systems.stores.nearest import nearer, nearest

WAYS = ("auto", "numpy", "faiss", "torch")
BOTH = " and "


class Found(NamedTuple):
    """The nearest rows of some queries."""

    neighbours: Ints
    distances: Floats
    by: str
    """What found them, joined by BOTH where one part was found in another way."""
    note: str = ""
    """Why it was not what was asked for."""

    def among(self, other: Found, k: int) -> Found:
        """The nearest of these and of those among other rows."""
        near, far = nearer((self.neighbours, self.distances), (other.neighbours, other.distances), k)
        return Found(near, far, joined([self.by, other.by]), self.note or other.note)


def joined(ways: list[str]) -> str:
    """What found the parts, as what found the whole.

    >>> joined(["torch", "numpy", "torch"])
    'numpy and torch'
    """
    return BOTH.join(sorted({one for way in ways for one in way.split(BOTH)}))


def find(
    base: NDArray[np.float32],
    queries: NDArray[np.float32],
    k: int,
    metric: str,
    way: str,
    progress: Callable[[float], None] | None = None,
) -> Found:
    """The nearest rows of some queries; `torch` is a card, and the processor where there is none or where it fails."""
    if way == "faiss":
        return Found(*accelerated.by_faiss(base, queries, k, metric), way)
    why = cards.no_card() if way == "torch" else ""
    if way == "torch" and not why:
        try:
            return Found(*cards.by_torch(base, queries, k, metric), way)
        except BackendFailed as error:
            why = f"the graphics card failed ({error.message})"
    note = f"{why}: exact neighbours on the processor" if why else ""
    return Found(*nearest(base, queries, k, metric, progress=progress), "numpy", note)
