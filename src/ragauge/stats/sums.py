"""Sums of columns that are the same to the last bit wherever they are taken, in whatever order and on how many threads.

A product of matrices adds up in an order that hangs on the processor, the library and the number of threads, and the
last bits of its sums with it. Sums of whole numbers below 2^53 are exact, so they do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats

EXACT = 52
"""Whole numbers of so many bits, and sums of them that have no more, are exact."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Columns as whole numbers, of which n, drawn with replacement, are added up."""

    parts: Floats
    """Two columns for each: its values in steps of a power of two, and what is left of them in finer steps."""
    bits: int
    """A step of the second is so many times halved a step of the first."""
    steps: NDArray[np.int32]
    """The powers of two of the first, for each column."""

    @classmethod
    def of(cls, columns: Floats) -> Sums:
        """So fine that n values of a column fit, and that no more is left than the rounding of its largest value.

        >>> Sums.of(np.array([[0.1], [0.2]])).parts.shape
        (2, 2)
        """
        bits = EXACT - len(columns).bit_length()
        steps = np.frexp(np.abs(columns).max(axis=0))[1] - bits
        scaled = np.ldexp(columns, -steps)
        high = np.rint(scaled)
        low = np.rint(np.ldexp(scaled - high, bits))
        return cls(np.concatenate([high, low], axis=1), bits, steps)

    def __len__(self) -> int:
        return len(self.parts)

    def taken(self, counts: Floats) -> Floats:
        """The sums of each column when each of its rows is taken so often, for each row of counts.

        >>> Sums.of(np.array([[0.1, 1.0], [0.2, 0.0], [0.3, 0.0]])).taken(np.array([[1.0, 1.0, 0.0]])).tolist()
        [[0.30000000000000004, 1.0]]
        """
        high, low = np.hsplit(counts @ self.parts, 2)
        return np.asarray(np.ldexp(high + np.ldexp(low, -self.bits), self.steps))
