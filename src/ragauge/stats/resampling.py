"""Parallel resampling from one random stream: each part of the rounds starts where the previous one ends.

NumPy's generator yields 32-bit words. An integer below n is drawn by accepting a word or rejecting it (Lemire 2019).
Whether a word is rejected depends on the word alone, so any part of the stream can be scanned independently, and the
start of a round follows from the number of words rejected before it. This relies on how NumPy draws. It is checked
for each part; if it does not hold, the draws are made and discarded in this process.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.executors import map_ordered, worker_count
from ragauge.core.records import Floats, Ints

MAX_BLOCKS_PER_TASK = 8
"""Maximum number of blocks of rounds per task."""
TASKS_PER_WORKER = 4
"""Minimum number of tasks per worker, if there are enough blocks."""
WORD_VALUES = 1 << 32
"""Number of different 32-bit words."""

GeneratorState = dict[str, Any]
"""State of a generator, its position in the stream."""
StreamStarts = Callable[[Executor, Sequence[int]], Iterator[int]]
"""Function from numbers of rounds to the word of the stream at which each part starts."""


class RoundFunction(Protocol):
    """Work of one or more rounds; holds the values to resample, and works in blocks of rounds."""

    @property
    def block(self) -> int:
        """Number of rounds per block."""

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        """Compute one row per round."""

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        """Draw exactly what the given number of rounds draws."""


def map_rounds(
    work: RoundFunction, rounds: int, seed: int, executor: Executor | None, starts: StreamStarts | None = None
) -> Floats:
    """Compute one row per round, with equal results on any executor.

    If the `starts` of the parts are unknown, this process makes the draws of all parts to find them.
    """
    if executor is None:
        return work(np.random.default_rng(seed), rounds)
    size = work.block * min(
        MAX_BLOCKS_PER_TASK, max(1, rounds // (work.block * TASKS_PER_WORKER * worker_count(executor)))
    )
    sizes = [min(size, rounds - first) for first in range(0, rounds, size)]
    resumed = _ResumedRounds(work)
    state = generator_state(np.random.default_rng(seed))
    found: list[Floats] = []
    if starts is not None and state == generator_state(generator_at(seed, 0)):
        guessed = (generator_state(generator_at(seed, word)) for word in starts(executor, sizes))
        for start, rows, end in map_ordered(executor, resumed, zip(guessed, sizes, strict=False)):
            if start != state:
                break
            found.append(rows)
            state = end
    left = sizes[len(found) :]
    if left:
        found += [rows for _, rows, _ in map_ordered(executor, resumed, _draw_starts(work, state, left))]
    return np.concatenate(found)


def generator_at(seed: int, word: int) -> np.random.Generator:
    """Return the generator of a seed after the given number of words of its stream.

    >>> generator_at(0, 3).bytes(4) == np.random.default_rng(0).bytes(16)[12:]
    True
    """
    bits = np.random.PCG64(seed)
    bits.advance(word // 2)
    rng = np.random.Generator(bits)
    if word % 2:  # words are generated in pairs, and the second is buffered
        rng.bytes(4)
    return rng


def generator_state(rng: np.random.Generator) -> GeneratorState:
    """Return the state of a generator.

    Generators that will yield the same values have equal states.
    """
    state = dict(rng.bit_generator.state)
    if not state.get("has_uint32", True):
        state["uinteger"] = 0  # leftover of a used word
    return state


def stream_starts(n: int, seed: int, executor: Executor, rounds: Sequence[int]) -> Iterator[int]:
    """Yield the word at which each part starts.

    Each round draws n integers below n.
    """
    yield 0
    wanted = [n * before for before in itertools.accumulate(rounds[:-1])]
    if not wanted or n >= WORD_VALUES:  # larger n use 64-bit words
        return
    share = WORD_VALUES % n / WORD_VALUES  # share of rejected words
    enough = (wanted[-1] + 10 * math.sqrt(wanted[-1] * share) + 20) / (1 - share)
    length = n * rounds[0] + n * rounds[0] % 2  # words are generated in pairs
    taken = found = 0
    for first, passed in map_ordered(executor, _RejectedWords(n, seed, length), range(0, math.ceil(enough), length)):
        before = passed - np.arange(len(passed))  # number of words accepted before each rejected one
        while found < len(wanted) and wanted[found] - taken <= length - len(passed):
            nth = wanted[found] - taken
            yield first + nth + int(np.searchsorted(before, nth - 1, side="right"))
            found += 1
        taken += length - len(passed)


@dataclass(frozen=True)
class _RejectedWords:
    """Finds the rejected words from a given word on, for integers below n."""

    n: int
    seed: int
    length: int
    """Number of words to scan."""

    def __call__(self, first: int) -> tuple[int, Ints]:
        bits = np.random.PCG64(self.seed)
        bits.advance(first // 2)
        words = bits.random_raw(self.length // 2).astype("<u8", copy=False).view("<u4")
        words *= np.uint32(self.n)
        return first, np.flatnonzero(words < np.uint32(WORD_VALUES % self.n))


@dataclass(frozen=True, eq=False)
class _ResumedRounds:
    """Computes rounds from a generator state; returns the start state, the rows and the end state."""

    work: RoundFunction

    def __call__(self, part: tuple[GeneratorState, int]) -> tuple[GeneratorState, Floats, GeneratorState]:
        start, rounds = part
        rng = _resume_generator(start)
        rows = self.work(rng, rounds)
        return start, rows, generator_state(rng)


def _resume_generator(state: GeneratorState) -> np.random.Generator:
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


def _draw_starts(
    work: RoundFunction, state: GeneratorState, sizes: Sequence[int]
) -> Iterator[tuple[GeneratorState, int]]:
    rng = _resume_generator(state)
    for rounds in sizes:
        yield generator_state(rng), rounds
        work.skip(rng, rounds)


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

    def taken(self, counts: Floats) -> Floats:
        """Compute the weighted sum of the rows of each column, for each row of counts.

        >>> ExactSums.of(np.array([[0.1, 1.0], [0.2, 0.0], [0.3, 0.0]])).taken(np.array([[1.0, 1.0, 0.0]])).tolist()
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
    for drawn in draw_indices(n, rounds, rng, size):
        rows = len(drawn)
        np.add(drawn, np.arange(rows)[:, None] * n, out=drawn)
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def bootstrap_means(columns: Floats, rounds: int, seed: int = 0, executor: Executor | None = None) -> Floats:
    """Compute the means of each column over resamples of its rows, one row per round.

    >>> bootstrap_means(np.array([[1.0, 10.0], [1.0, 10.0]]), 3).tolist()
    [[1.0, 10.0], [1.0, 10.0], [1.0, 10.0]]
    """
    return map_rounds(
        _ResampledMeans(ExactSums.of(columns)), rounds, seed, executor, partial(stream_starts, len(columns), seed)
    )


def sign_flipped_sums(
    columns: Floats, rounds: int, seed: int = 0, executor: Executor | None = None
) -> tuple[Floats, bool]:
    """Compute the sums of each column with random signs per row.

    Returns the sums, and whether they cover all sign patterns. All patterns are enumerated if there are at most
    `rounds`.
    """
    n = len(columns)
    flips = _SignFlips(ExactSums.of(columns), columns.sum(axis=0))
    if n < 63 and 2**n <= rounds:
        return flips.sums((np.arange(2**n)[:, None] >> np.arange(n)) & 1), True
    return map_rounds(flips, rounds, seed, executor, flips.starts), False


@dataclass(frozen=True, eq=False)
class _ResampledMeans:
    """Round function: means of columns over a resample of their rows."""

    columns: ExactSums

    @property
    def block(self) -> int:
        return rounds_per_block(len(self.columns))

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        n = len(self.columns)
        return np.concatenate([self.columns.taken(counts) for counts in draw_counts(n, rounds, rng)]) / n

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        for _ in draw_indices(len(self.columns), rounds, rng):
            pass


@dataclass(frozen=True, eq=False)
class _SignFlips:
    """Round function: sums of columns with random signs per row."""

    columns: ExactSums
    total: Floats

    @property
    def block(self) -> int:
        return rounds_per_block(len(self.columns))

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        n = len(self.columns)
        parts = []
        for rows, length in self._block_sizes(rounds):
            packed = np.frombuffer(rng.bytes(length), np.uint8).reshape(rows, -1)
            parts.append(self.sums(np.unpackbits(packed, axis=1, count=n)))
        return np.concatenate(parts)

    def sums(self, flipped: NDArray[np.integer]) -> Floats:
        """Compute the sums with the signs of the given rows flipped."""
        return np.asarray(self.total - 2 * self.columns.taken(flipped.astype(np.float64)))

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        for _, length in self._block_sizes(rounds):
            rng.bytes(length)

    def starts(self, _: Executor, rounds: Sequence[int]) -> Iterator[int]:
        """Yield the word of the stream at which each part of `rounds` rounds starts."""
        word = 0
        for one in rounds:
            yield word
            word += sum((length + 3) // 4 for _, length in self._block_sizes(one))  # the rest of a word is discarded

    def _block_sizes(self, rounds: int) -> list[tuple[int, int]]:
        """Return the number of rounds and of bytes of each block."""
        rows = [min(self.block, rounds - first) for first in range(0, rounds, self.block)]
        return [(one, one * ((len(self.columns) + 7) // 8)) for one in rows]
