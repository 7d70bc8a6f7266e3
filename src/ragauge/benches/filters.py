"""Search under conditions that let through less and less: who keeps finding what matches, and at what price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragauge.benches.clocks import undisturbed
from ragauge.benches.loops import Raw, positions, timed
from ragauge.errors import BadInput
from ragauge.sweeps import Matrix

Mask = NDArray[np.bool_]
INSIDE, OUTSIDE = "in", "out"
"""The two values of a rung's field: texts, which every engine can compare."""


def ladder(n: int, selectivities: Sequence[float], seed: int = 0) -> dict[str, Mask]:
    """For each share a field, and which of n rows it lets through: chosen at random, each rung inside the wider ones.

    >>> {name: int(mask.sum()) for name, mask in ladder(1000, [0.5, 0.01]).items()}
    {'rung_0': 500, 'rung_1': 10}
    """
    order = np.random.default_rng([seed, 5]).permutation(n)
    rungs = {}
    for place, share in enumerate(selectivities):
        if not 0 < share <= 1:
            raise BadInput(f"a filter that lets through {share:g} of all is none", hint="a share above 0, at most 1")
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


def searched(
    store: Any, queries: Matrix, k: int, rung: str, *, index: Mapping[str, int], warm_up: Matrix | None = None
) -> Raw:
    """Every query under a rung's condition: `ns` and `positions`."""
    condition = where(rung)
    with undisturbed():
        timed(store, queries[:8] if warm_up is None else warm_up, k, where=condition)
        answers = timed(store, queries, k, where=condition)
    return {"ns": answers.nanoseconds, "positions": positions(answers.ids, index)}
