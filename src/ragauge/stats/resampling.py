"""Bootstrap resamples and random sign flips, for many columns of differences at a time.

A resample of n queries is a row of n counts, so the means of all columns over many resamples are one matrix product.
All measures and systems share the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats, Ints
from ragauge.stats.streams import all_rounds, starts_below
from ragauge.stats.sums import Sums

AT_A_TIME = 1 << 21
"""Maximum number of counts in memory at a time."""


def rounds_at_a_time(values: int) -> int:
    """Return the number of rounds with `values` values each per block.

    >>> rounds_at_a_time(1000), rounds_at_a_time(10_000_000)
    (2097, 1)
    """
    return max(1, AT_A_TIME // max(1, values))


def draws(n: int, rounds: int, rng: np.random.Generator, size: int | None = None) -> Iterator[Ints]:
    """Yield blocks of rows of indexes below n, drawn with replacement.

    Each row has `size` indexes, n by default. The draws are those of scipy.stats.bootstrap with the same generator.
    """
    size = n if size is None else size
    step = rounds_at_a_time(max(n, size))
    for start in range(0, rounds, step):
        yield rng.integers(0, n, (min(step, rounds - start), size))


def resampled_counts(n: int, rounds: int, rng: np.random.Generator, size: int | None = None) -> Iterator[Floats]:
    """Yield blocks of resamples as counts of each of the n indexes.

    Draws as in `draw_indices`.
    """
    for drawn in draws(n, rounds, rng, size):
        rows = len(drawn)
        np.add(drawn, np.arange(rows)[:, None] * n, out=drawn)
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def bootstrap_means(columns: Floats, rounds: int, seed: int = 0, executor: Executor | None = None) -> Floats:
    """Compute the means of each column over resamples of its rows, one row per round.

    >>> bootstrap_means(np.array([[1.0, 10.0], [1.0, 10.0]]), 3).tolist()
    [[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]]
    """
    return all_rounds(_Means(Sums.of(columns)), rounds, seed, executor, partial(starts_below, len(columns), seed))


def flipped_sums(columns: Floats, rounds: int, seed: int = 0, executor: Executor | None = None) -> tuple[Floats, bool]:
    """Compute the sums of each column with random signs per row.

    Returns the sums, and whether they cover all sign patterns. All patterns are enumerated if there are at most
    `rounds`.
    """
    n = len(columns)
    flips = _Flips(Sums.of(columns), columns.sum(axis=0))
    if n < 63 and 2**n <= rounds:
        return flips.sums((np.arange(2**n)[:, None] >> np.arange(n)) & 1), True
    return all_rounds(flips, rounds, seed, executor, flips.starts), False


@dataclass(frozen=True, eq=False)
class _Means:
    """Round function: means of columns over a resample of their rows."""

    columns: Sums

    @property
    def block(self) -> int:
        return rounds_at_a_time(len(self.columns))

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        n = len(self.columns)
        return np.concatenate([self.columns.taken(counts) for counts in resampled_counts(n, rounds, rng)]) / n

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        for _ in draws(len(self.columns), rounds, rng):
            pass


@dataclass(frozen=True, eq=False)
class _Flips:
    """Round function: sums of columns with random signs per row."""

    columns: Sums
    total: Floats

    @property
    def block(self) -> int:
        return rounds_at_a_time(len(self.columns))

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        n = len(self.columns)
        parts = []
        for rows, length in self._blocks(rounds):
            packed = np.frombuffer(rng.bytes(length), np.uint8).reshape(rows, -1)
            parts.append(self.sums(np.unpackbits(packed, axis=1, count=n)))
        return np.concatenate(parts)

    def sums(self, flipped: NDArray[np.integer]) -> Floats:
        """Compute the sums with the signs of the given rows flipped."""
        return np.asarray(self.total - 2 * self.columns.taken(flipped.astype(np.float64)))

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        for _, length in self._blocks(rounds):
            rng.bytes(length)

    def starts(self, _: Executor, rounds: Sequence[int]) -> Iterator[int]:
        """Yield the word of the stream at which each part of `rounds` rounds starts."""
        word = 0
        for one in rounds:
            yield word
            word += sum((length + 3) // 4 for _, length in self._blocks(one))  # the rest of a word is discarded

    def _blocks(self, rounds: int) -> list[tuple[int, int]]:
        """Return the number of rounds and of bytes of each block."""
        rows = [min(self.block, rounds - first) for first in range(0, rounds, self.block)]
        return [(one, one * ((len(self.columns) + 7) // 8)) for one in rows]
