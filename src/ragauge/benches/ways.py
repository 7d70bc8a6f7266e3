"""Exact neighbours with NumPy, faiss or a GPU, in this process or on an executor."""

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
    """Nearest rows of a set of queries."""

    neighbours: Ints
    distances: Floats
    by: str
    """Backend that found them; several are joined by BACKEND_SEPARATOR."""
    note: str = ""
    """Reason why another backend than the requested one was used; empty if none."""

    def among(self, other: Found, k: int) -> Found:
        """Merge with the nearest rows found among other rows, and keep the `k` nearest."""
        near, far = nearer((self.neighbours, self.distances), (other.neighbours, other.distances), k)
        return Found(near, far, joined([self.by, other.by]), self.note or other.note)


def joined(ways: list[str]) -> str:
    """Combine the backends of several parts into one label.

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
    """Find the nearest rows of each query.

    The backend `torch` uses a GPU, and falls back to NumPy if there is none or it fails; the note then says why.
    """
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
