"""Timed searches of one client, with and without filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.errors import BadInput

Mask = NDArray[np.bool_]
INSIDE, OUTSIDE = "in", "out"
"""Metadata values of matching and other rows; every engine can compare strings."""


def ladder(n: int, selectivities: Sequence[float], seed: int = 0) -> dict[str, Mask]:
    """Select random rows per selectivity, each selection a subset of the larger ones.

    The keys are the names of metadata fields, the values which of `n` rows match.

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
    """Build the metadata of each row for the given filters.

    With `start` or `count`, only those rows are included.

    >>> metadata({"rung_0": np.array([True, False])})
    [{'rung_0': 'in'}, {'rung_0': 'out'}]
    """
    some = {name: mask[start : None if count is None else start + count].tolist() for name, mask in rungs.items()}
    length = len(next(iter(some.values()), []))
    return [{name: INSIDE if mask[row] else OUTSIDE for name, mask in some.items()} for row in range(length)]


def where(rung: str) -> dict[str, str]:
    """Return the filter condition of a random filter."""
    return {rung: INSIDE}


class FilteredStore:
    """A store whose searches all use one filter, so that the usual loop can time them."""

    def __init__(self, store: Any, where: Mapping[str, Any]) -> None:
        self.search = partial(store.search, where=where)
        self.tune = getattr(store, "tune", None)
