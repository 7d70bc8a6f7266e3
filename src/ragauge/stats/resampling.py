"""Resampling from one random stream: bootstrap means, and sums with random signs, in blocks of rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragauge.core.records import Floats, Ints

EXACT_INTEGER_BITS = 52
"""Number of bits of integers, and of their sums, that are exact in double precision."""


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Columns as integers, for exact sums of n rows drawn with replacement."""

    parts: Floats
    """Two columns for each column: multiples of a power of two, and the remainder in finer steps."""
    bits: int
    """Binary logarithm of the ratio of the two step sizes."""
    steps: NDArray[np.int32]
    """Exponent of the first step size, for each column."""

    @classmethod
    def of(cls, columns: Floats) -> ExactSums:
        """Convert columns.

        N values of a column fit, and the error is at most the rounding of its largest value.

        >>> ExactSums.of(np.array([[0.1], [0.2]])).parts.shape
        (2, 2)
        """
        bits = EXACT_INTEGER_BITS - len(columns).bit_length()
        steps = np.frexp(np.abs(columns).max(axis=0))[1] - bits
        scaled = np.ldexp(columns, -steps)
        high = np.rint(scaled)
        low = np.rint(np.ldexp(scaled - high, bits))
        return cls(np.concatenate([high, low], axis=1), bits, steps)

    def __len__(self) -> int:
        return len(self.parts)

    def weighted_sums(self, counts: Floats) -> Floats:
        """Compute the weighted sum of the rows of each column, for each row of counts.

        >>> sums = ExactSums.of(np.array([[0.1, 1.0], [0.2, 0.0], [0.3, 0.0]]))
        >>> sums.weighted_sums(np.array([[1.0, 1.0, 0.0]])).tolist()
        [[0.30000000000000004, 1.0]]
        """
        high, low = np.hsplit(counts @ self.parts, 2)
        return np.asarray(np.ldexp(high + np.ldexp(low, -self.bits), self.steps))


MAX_COUNTS_IN_MEMORY = 1 << 21
"""Maximum number of counts in memory at a time."""


def rounds_per_block(values: int) -> int:
    """Return the number of rounds with `values` values each per block.

    >>> rounds_per_block(1000), rounds_per_block(10_000_000)
    (2097, 1)
    """
    return max(1, MAX_COUNTS_IN_MEMORY // max(1, values))


def draw_indices(n: int, rounds: int, rng: np.random.Generator, size: int | None = None) -> Iterator[Ints]:
    """Yield blocks of rows of indexes below n, drawn with replacement.

    Each row has `size` indexes, n by default. The draws are those of scipy.stats.bootstrap with the same generator.
    """
    size = n if size is None else size
    step = rounds_per_block(max(n, size))
    for start in range(0, rounds, step):
        yield rng.integers(0, n, (min(step, rounds - start), size))


def draw_counts(n: int, rounds: int, rng: np.random.Generator, size: int | None = None) -> Iterator[Floats]:
    """Yield blocks of resamples as counts of each of the n indexes.

    Draws as in `draw_indices`.
    """
    for indices in draw_indices(n, rounds, rng, size):
        rows = len(indices)
        np.add(indices, np.arange(rows)[:, None] * n, out=indices)
        yield np.bincount(indices.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def bootstrap_means(columns: Floats, rounds: int, seed: int = 0) -> Floats:
    """Compute the means of each column over resamples of its rows, one row per round.

    >>> bootstrap_means(np.array([[1.0, 10.0], [1.0, 10.0]]), 3).tolist()
    [[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]]
    """
    n = len(columns)
    exact_sums = ExactSums.of(columns)
    rng = np.random.default_rng(seed)
    return np.concatenate([exact_sums.weighted_sums(counts) for counts in draw_counts(n, rounds, rng)]) / n


def sign_flipped_sums(columns: Floats, rounds: int, seed: int = 0) -> tuple[Floats, bool]:
    """Compute the sums of each column with random signs per row.

    Returns the sums, and whether they cover all sign patterns. All patterns are enumerated if there are at most
    `rounds`.
    """
    n = len(columns)
    exact_sums, total = ExactSums.of(columns), columns.sum(axis=0)

    def flip(flipped: NDArray[np.integer]) -> Floats:
        return np.asarray(total - 2 * exact_sums.weighted_sums(flipped.astype(np.float64)))

    if n < 63 and 2**n <= rounds:
        return flip((np.arange(2**n)[:, None] >> np.arange(n)) & 1), True
    rng = np.random.default_rng(seed)
    block = rounds_per_block(n)
    parts = []
    for first in range(0, rounds, block):
        rows = min(block, rounds - first)
        packed = np.frombuffer(rng.bytes(rows * ((n + 7) // 8)), np.uint8).reshape(rows, -1)
        parts.append(flip(np.unpackbits(packed, axis=1, count=n)))
    return np.concatenate(parts), False
