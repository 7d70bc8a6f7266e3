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
from typing import Any, Protocol

import numpy as np

from ragauge.executors import lanes, spread
from ragauge.records import Floats, Ints

BLOCKS = 8
"""Maximum number of blocks of rounds per task."""
EACH = 4
"""Minimum number of tasks per worker, if there are enough blocks."""
SPACE = 1 << 32
"""Number of different 32-bit words."""

State = dict[str, Any]
"""State of a generator, its position in the stream."""
Starts = Callable[[Executor, Sequence[int]], Iterator[int]]
"""Function from numbers of rounds to the word of the stream at which each part starts."""


class Rounds(Protocol):
    """Work of one or more rounds; holds the values to resample, and works in blocks of rounds."""

    @property
    def block(self) -> int:
        """Number of rounds per block."""

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        """Compute one row per round."""

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        """Draw exactly what the given number of rounds draws."""


def all_rounds(work: Rounds, rounds: int, seed: int, executor: Executor | None, starts: Starts | None = None) -> Floats:
    """Compute one row per round, with equal results on any executor.

    If the `starts` of the parts are unknown, this process makes the draws of all parts to find them.
    """
    if executor is None:
        return work(np.random.default_rng(seed), rounds)
    size = work.block * min(BLOCKS, max(1, rounds // (work.block * EACH * lanes(executor))))
    sizes = [min(size, rounds - first) for first in range(0, rounds, size)]
    resumed = _Resumed(work)
    state = state_of(np.random.default_rng(seed))
    found: list[Floats] = []
    if starts is not None and state == state_of(at(seed, 0)):
        guessed = (state_of(at(seed, word)) for word in starts(executor, sizes))
        for start, rows, end in spread(executor, resumed, zip(guessed, sizes, strict=False)):
            if start != state:
                break
            found.append(rows)
            state = end
    left = sizes[len(found) :]
    if left:
        found += [rows for _, rows, _ in spread(executor, resumed, _drawn_through(work, state, left))]
    return np.concatenate(found)


def at(seed: int, word: int) -> np.random.Generator:
    """Return the generator of a seed after the given number of words of its stream.

    >>> at(0, 3).bytes(4) == np.random.default_rng(0).bytes(16)[12:]
    True
    """
    bits = np.random.PCG64(seed)
    bits.advance(word // 2)
    rng = np.random.Generator(bits)
    if word % 2:  # words are generated in pairs, and the second is buffered
        rng.bytes(4)
    return rng


def state_of(rng: np.random.Generator) -> State:
    """Return the state of a generator.

    Generators that will yield the same values have equal states.
    """
    state = dict(rng.bit_generator.state)
    if not state.get("has_uint32", True):
        state["uinteger"] = 0  # leftover of a used word
    return state


def starts_below(n: int, seed: int, executor: Executor, rounds: Sequence[int]) -> Iterator[int]:
    """Yield the word at which each part starts.

    Each round draws n integers below n.
    """
    yield 0
    wanted = [n * before for before in itertools.accumulate(rounds[:-1])]
    if not wanted or n >= SPACE:  # larger n use 64-bit words
        return
    share = SPACE % n / SPACE  # share of rejected words
    enough = (wanted[-1] + 10 * math.sqrt(wanted[-1] * share) + 20) / (1 - share)
    length = n * rounds[0] + n * rounds[0] % 2  # words are generated in pairs
    taken = found = 0
    for first, passed in spread(executor, _Passed(n, seed, length), range(0, math.ceil(enough), length)):
        before = passed - np.arange(len(passed))  # number of words accepted before each rejected one
        while found < len(wanted) and wanted[found] - taken <= length - len(passed):
            nth = wanted[found] - taken
            yield first + nth + int(np.searchsorted(before, nth - 1, side="right"))
            found += 1
        taken += length - len(passed)


@dataclass(frozen=True)
class _Passed:
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
        return first, np.flatnonzero(words < np.uint32(SPACE % self.n))


@dataclass(frozen=True, eq=False)
class _Resumed:
    """Computes rounds from a generator state; returns the start state, the rows and the end state."""

    work: Rounds

    def __call__(self, part: tuple[State, int]) -> tuple[State, Floats, State]:
        start, rounds = part
        rng = _resumed(start)
        rows = self.work(rng, rounds)
        return start, rows, state_of(rng)


def _resumed(state: State) -> np.random.Generator:
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


def _drawn_through(work: Rounds, state: State, sizes: Sequence[int]) -> Iterator[tuple[State, int]]:
    rng = _resumed(state)
    for rounds in sizes:
        yield state_of(rng), rounds
        work.skip(rng, rounds)
