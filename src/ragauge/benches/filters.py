"""Search under filters that match fewer and fewer vectors: rows returned, recall and latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import BadInput

Mask = NDArray[np.bool_]
INSIDE, OUTSIDE = "in", "out"
"""The two values of a rung's field: texts, which every engine can compare."""


def ladder(n: int, selectivities: Sequence[float], seed: int = 0) -> dict[str, Mask]:
    """Return a field per share, and which of n rows match it: chosen at random, each rung inside the wider ones.

    >>> {name: int(mask.sum()) for name, mask in ladder(1000, [0.5, 0.01]).items()}
    {'rung_0': 500, 'rung_1': 10}
    """
    order = np.random.default_rng([seed, 5]).permutation(n)
    rungs = {}
    for place, share in enumerate(selectivities):
        if not 0 < share <= 1:
            raise BadInput(f"selectivity must be above 0 and at most 1, got {share:g}", hint="--selectivity 0.5,0.01")
        rungs[f"rung_{place}"] = order < max(1, round(share * n))
    return rungs


def metadata(rungs: Mapping[str, Mask], start: int = 0, count: int | None = None) -> list[dict[str, str]]:
    """What each row is added with, so that every rung can be asked for; of some rows where not of all.

    >>> metadata({"rung_0": np.array([True, False])})
    [{'rung_0': 'in'}, {'rung_0': 'out'}]
    """
    some = {name: mask[start : None if count is None else start + count].tolist() for name, mask in rungs.items()}
    length = len(next(iter(some.values()), []))
    return [{name: INSIDE if mask[row] else OUTSIDE for name, mask in some.items()} for row in range(length)]


def where(rung: str) -> dict[str, str]:
    """The condition of a rung."""
    return {rung: INSIDE}


class FilteredStore:
    """A store whose searches all use the same filter, so that they are timed in the same loop as other searches."""

    def __init__(self, store: Any, where: Mapping[str, Any]) -> None:
        self.search = partial(store.search, where=where)
        self.tune = getattr(store, "tune", None)
