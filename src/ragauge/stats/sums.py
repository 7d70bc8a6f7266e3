"""Sums of columns that are bitwise reproducible on any machine and number of threads.

The summation order of a matrix product depends on the CPU, the library and the number of threads, and so do the last
bits. Sums of integers below 2^53 are exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragauge.records import Floats

EXACT = 52
"""Number of bits of integers, and of their sums, that are exact in double precision."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Columns as integers, for exact sums of n rows drawn with replacement."""

    parts: Floats
    """Two columns for each column: multiples of a power of two, and the remainder in finer steps."""
    bits: int
    """Binary logarithm of the ratio of the two step sizes."""
    steps: NDArray[np.int32]
    """Exponent of the first step size, for each column."""

    @classmethod
    def of(cls, columns: Floats) -> Sums:
        """Convert columns.

        N values of a column fit, and the error is at most the rounding of its largest value.

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
        """Compute the weighted sum of the rows of each column, for each row of counts.

        >>> Sums.of(np.array([[0.1, 1.0], [0.2, 0.0], [0.3, 0.0]])).taken(np.array([[1.0, 1.0, 0.0]])).tolist()
        [[0.30000000000000004, 1.0]]
        """
        high, low = np.hsplit(counts @ self.parts, 2)
        return np.asarray(np.ldexp(high + np.ldexp(low, -self.bits), self.steps))
