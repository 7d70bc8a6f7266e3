"""Resampling queries and flipping signs, for many columns of differences at a time.

A resample of n queries is a row of n counts, so the means of all columns over many resamples are one product of
matrices: every measure and every system sees the same resamples, and none costs a pass of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ragauge.records import Floats, Ints

AT_A_TIME = 1 << 21
"""How many counts are in memory at a time."""


def resampled_counts(n: int, rounds: int, rng: np.random.Generator, size: int | None = None) -> Iterator[Floats]:
    """Blocks of rows, each how often every one of n values is drawn when `size` (n) are drawn with replacement.

    The draws are those of scipy.stats.bootstrap with the same generator.
    """
    size = n if size is None else size
    step = max(1, AT_A_TIME // max(n, size))
    for start in range(0, rounds, step):
        rows = min(step, rounds - start)
        drawn: Ints = rng.integers(0, n, (rows, size))
        drawn += np.arange(rows)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def bootstrap_means(columns: Floats, rounds: int, seed: int = 0) -> Floats:
    """The means of each column over resamples of its rows: `rounds` rows, a column for each column.

    >>> bootstrap_means(np.array([[1.0, 10.0], [1.0, 10.0]]), 3).tolist()
    [[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]]
    """
    n = len(columns)
    parts = [counts @ columns for counts in resampled_counts(n, rounds, np.random.default_rng(seed))]
    return np.concatenate(parts) / n


def flipped_sums(columns: Floats, rounds: int, seed: int = 0) -> tuple[Floats, bool]:
    """The sums of each column with signs flipped at random, row by row; and whether they are of all patterns.

    All patterns are gone through where they are no more than `rounds`.
    """
    n = len(columns)
    total = columns.sum(axis=0)
    if n < 63 and 2**n <= rounds:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return total - 2 * (bits.astype(np.float64) @ columns), True
    rng = np.random.default_rng(seed)
    step = max(1, AT_A_TIME // n)
    parts = []
    for start in range(0, rounds, step):
        rows = min(step, rounds - start)
        packed = np.frombuffer(rng.bytes(rows * ((n + 7) // 8)), np.uint8).reshape(rows, -1)
        parts.append(total - 2 * (np.unpackbits(packed, axis=1, count=n).astype(np.float64) @ columns))
    return np.concatenate(parts), False
