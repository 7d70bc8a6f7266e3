"""One stream of random numbers drawn from in several places: each stretch of rounds begins where the last one ends.

NumPy's generator gives words of 32 bits, and a whole number below n is drawn by taking a word, or by passing it over
(Lemire 2019). Whether it is passed over is to be seen from the word alone, so any stretch of the stream can be looked
at by itself, and where a round begins follows from how many words were passed over before it. That is a guess at what
NumPy does: it is checked stretch by stretch, and where it is wrong the draws are made here, and thrown away.
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
"""So many blocks of rounds are at most given out together."""
EACH = 4
"""So many parts each lane is to have, where there are enough blocks."""
SPACE = 1 << 32
"""How many words there are."""

State = dict[str, Any]
"""Where in its stream a generator is."""
Starts = Callable[[Executor, Sequence[int]], Iterator[int]]
"""After how many words of the stream each of several parts begins, by how many rounds they have."""


class Rounds(Protocol):
    """What is to be done in each round; it holds the values that are resampled, and works in blocks of rounds."""

    @property
    def block(self) -> int:
        """How many rounds are in a block."""

    def __call__(self, rng: np.random.Generator, rounds: int) -> Floats:
        """A row for each round."""

    def skip(self, rng: np.random.Generator, rounds: int) -> None:
        """Draw what so many rounds draw, and no more."""


def all_rounds(work: Rounds, rounds: int, seed: int, executor: Executor | None, starts: Starts | None = None) -> Floats:
    """A row for each round, the same wherever it is worked out.

    Where nobody knows the `starts` of the parts, this process draws what the parts draw, to see where they begin.
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
    """The generator of this seed after so many words of its stream.

    >>> at(0, 3).bytes(4) == np.random.default_rng(0).bytes(16)[12:]
    True
    """
    bits = np.random.PCG64(seed)
    bits.advance(word // 2)
    rng = np.random.Generator(bits)
    if word % 2:  # words come in pairs, and the second waits
        rng.bytes(4)
    return rng


def state_of(rng: np.random.Generator) -> State:
    """Where a generator is; generators that will go on alike are in the same place."""
    state = dict(rng.bit_generator.state)
    if not state.get("has_uint32", True):
        state["uinteger"] = 0  # what is left of a word that was used
    return state


def starts_below(n: int, seed: int, executor: Executor, rounds: Sequence[int]) -> Iterator[int]:
    """After how many words each of several parts begins, where each round draws n numbers below n."""
    yield 0
    wanted = [n * before for before in itertools.accumulate(rounds[:-1])]
    if not wanted or n >= SPACE:  # beyond that words of 64 bits are drawn
        return
    share = SPACE % n / SPACE  # of the words is passed over
    enough = (wanted[-1] + 10 * math.sqrt(wanted[-1] * share) + 20) / (1 - share)
    length = n * rounds[0] + n * rounds[0] % 2  # words come in pairs
    taken = found = 0
    for first, passed in spread(executor, _Passed(n, seed, length), range(0, math.ceil(enough), length)):
        before = passed - np.arange(len(passed))  # how many words were taken before each that was passed over
        while found < len(wanted) and wanted[found] - taken <= length - len(passed):
            nth = wanted[found] - taken
            yield first + nth + int(np.searchsorted(before, nth - 1, side="right"))
            found += 1
        taken += length - len(passed)


@dataclass(frozen=True)
class _Passed:
    """Looks from a word on for words that are passed over where numbers below n are drawn."""

    n: int
    seed: int
    length: int
    """How many words it looks at."""

    def __call__(self, first: int) -> tuple[int, Ints]:
        bits = np.random.PCG64(self.seed)
        bits.advance(first // 2)
        words = bits.random_raw(self.length // 2).astype("<u8", copy=False).view("<u4")
        words *= np.uint32(self.n)
        return first, np.flatnonzero(words < np.uint32(SPACE % self.n))


@dataclass(frozen=True, eq=False)
class _Resumed:
    """Rounds from a place in the stream on; with the place, and the one where they end."""

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
