"""How far a mean may be off."""

from __future__ import annotations

import math

import numpy as np

from ragauge.records import Floats

ROUNDS = 10_000


def bootstrap_upper(values: Floats, confidence: float = 0.95, *, rounds: int = ROUNDS, seed: int = 0) -> float:
    """The upper end of a one-sided percentile bootstrap interval for the mean.

    Formula: the confidence quantile of the means of `rounds` samples of n values drawn with replacement. Where all
    values are equal the bootstrap sees no spread; then 1 - (1 - confidence)^(1/n) of a difference of 1, the exact bound
    for an event that n queries did not show, is added (the rule of three).

    >>> bootstrap_upper(np.array([0.0] * 100)) < 0.03
    True
    """
    n = len(values)
    mean = float(values.mean())
    if n > 0 and not (values != values[0]).any():
        return mean + 1 - math.pow(1 - confidence, 1 / n)
    rng = np.random.default_rng(seed)
    means = np.empty(rounds)
    for start in range(0, rounds, 500):
        part = values[rng.integers(0, n, (min(500, rounds - start), n))]
        means[start : start + len(part)] = part.mean(axis=1)
    return float(np.quantile(means, confidence))
