"""Paired tests for statistics other than means, such as latency percentiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ragauge.records import Floats
from ragauge.stats.intervals import percentile_interval
from ragauge.stats.resampling import rounds_at_a_time

ROUNDS = 9_999
MOST = 50_000_000
"""Maximum number of values processed in all rounds, to limit the run time; there are at least 999 rounds."""

Figure = Callable[[Floats], Floats]
"""Function from one row of values per round to one statistic per round."""


def rounds_for(values: int) -> int:
    """Return the number of rounds for a number of values.

    >>> rounds_for(100), rounds_for(10_000), rounds_for(1_000_000)
    (9999, 5000, 999)
    """
    return int(np.clip(MOST // max(1, values), 999, ROUNDS))


def swap_test(mine: Floats, base: Floats, figure: Figure, seed: int = 0) -> tuple[float, float]:
    """Test by permutation whether a statistic differs from the baseline's.

    Returns both one-sided p-values. `mine` and `base` have one row per query and one column per trial. If the
    systems are equal, the values of a query are exchangeable: they are swapped at random, query by query, and the
    statistic of both is computed again. A p-value is (1 + count) / (1 + rounds), so it is never 0.

    >>> mine, base = np.arange(10.0)[:, None] + 1, np.arange(10.0)[:, None]
    >>> higher, lower = swap_test(mine, base, lambda rows: rows.mean(axis=1))
    >>> higher < 0.01, lower
    (True, 1.0)
    """
    observed = float(figure(mine.reshape(1, -1))[0] - figure(base.reshape(1, -1))[0])
    near = 1e-12 * float(max(np.abs(mine).max(), np.abs(base).max()))
    rounds = rounds_for(mine.size)
    rng = np.random.default_rng(seed)
    above = below = 0
    for rows in _blocks(rounds, mine.size):
        swapped = rng.random((rows, len(mine), 1)) < 0.5
        one = figure(np.where(swapped, base, mine).reshape(rows, -1))
        gaps = one - figure(np.where(swapped, mine, base).reshape(rows, -1))
        above += int((gaps >= observed - near).sum())
        below += int((gaps <= observed + near).sum())
    return (1 + above) / (1 + rounds), (1 + below) / (1 + rounds)


def gap_interval(mine: Floats, base: Floats, figure: Figure, confidence: float, seed: int = 0) -> tuple[float, float]:
    """Compute a percentile bootstrap interval of the difference of a statistic.

    Resamples whole queries.

    >>> gap_interval(np.ones((5, 1)), np.zeros((5, 1)), lambda rows: rows.max(axis=1), 0.9)
    (1.0, 1.0)
    """
    rounds = rounds_for(mine.size)
    rng = np.random.default_rng(seed)
    gaps = []
    for rows in _blocks(rounds, mine.size):
        drawn = rng.integers(0, len(mine), (rows, len(mine)))
        gaps.append(figure(mine[drawn].reshape(rows, -1)) - figure(base[drawn].reshape(rows, -1)))
    low, high = percentile_interval(np.concatenate(gaps)[:, None], confidence)[:, 0].tolist()
    return low, high


def _blocks(rounds: int, values: int) -> list[int]:
    step = rounds_at_a_time(values)
    return [min(step, rounds - start) for start in range(0, rounds, step)]
