"""Two systems on the same queries: by how much they differ, and whether chance would do the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ragauge.errors import MissingEvidence
from ragauge.outcomes import Difference
from ragauge.records import Floats, Scores

ROUNDS = 9999


def randomization_test(mine: Floats, base: Floats, *, rounds: int = ROUNDS, seed: int = 0) -> float:
    """The p-value of Fisher's randomization test for paired values, two-sided; exact where 2^n is within `rounds`.

    Formula: over sign patterns s, twice the smaller of the shares with sum s_i d_i >= sum d_i and <= sum d_i, at most
    1; where patterns are sampled, a share is (1 + count) / (1 + rounds).
    Paper: Smucker, Allan and Carterette, CIKM 2007.

    >>> randomization_test(np.array([1.0, 2.0, 3.0]), np.zeros(3))
    0.25
    """
    from scipy.stats import permutation_test

    if len(mine) < 2:
        raise MissingEvidence("a paired test needs at least two queries")
    if not (mine != base).any():
        return 1.0
    found = permutation_test(
        (mine, base),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=rounds,
        vectorized=True,
        batch=1000,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def differences(scores: Mapping[str, Scores], baseline: str, measure: str) -> dict[str, Difference]:
    """Every other system against the baseline, corrected for their number."""
    base = scores[baseline].values[measure]
    found: dict[str, Difference] = {}
    for name, one in scores.items():
        if name == baseline:
            continue
        mine = one.values[measure]
        both = ~(np.isnan(mine) | np.isnan(base))
        gap = mine[both] - base[both]
        p = randomization_test(mine[both], base[both]) if len(gap) > 1 else math.nan
        found[name] = Difference(
            float(gap.mean()) if len(gap) else math.nan,
            p,
            p,
            int((gap > 0).sum()),
            int((gap < 0).sum()),
            int((gap == 0).sum()),
        )
    adjusted = holm({name: one.p for name, one in found.items()})
    return {name: replace(one, p_adjusted=adjusted[name]) for name, one in found.items()}


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down correction: the smallest of m values times m, the next times m - 1, never falling, at most 1.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    ordered = sorted((name for name in p_values if p_values[name] == p_values[name]), key=lambda name: p_values[name])
    adjusted: dict[str, float] = {}
    floor = 0.0
    for place, name in enumerate(ordered):
        floor = max(floor, min(1.0, (len(ordered) - place) * p_values[name]))
        adjusted[name] = floor
    return {name: adjusted.get(name, math.nan) for name in p_values}
