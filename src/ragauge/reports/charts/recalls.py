"""The axis of recall: what is missing to 1 on a logarithmic scale, since between 0.9 and 1 is where stores differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

ROUND = (0.9, 0.99, 0.999, 0.9999, 0.5, 0.95, 0.995, 0.8, 0.98, 0.7, 0.2, 0.0)
"""Recalls that stand below the axis, the most wanted first."""
MOST = 11
"""So many of them at most, about."""
FINEST, FARTHEST = 1e-7, 0.05
"""Less than the first is missing by rounding alone; 1 stands no nearer than what is missing at the second."""


class Axis(NamedTuple):
    """Where recalls stand: 0.9 at 1, 0.99 at 2, 0.999 at 3, and 1 a little beyond the nearest to it."""

    end: float
    """Where a recall of 1 stands."""
    low: float
    high: float

    def place(self, recall: float) -> float:
        """Where a recall stands."""
        return min(self.end, -math.log10(max(1 - recall, 10**-self.end)))

    @property
    def ticks(self) -> list[float]:
        """The places with a number: round ones, not too near to each other, and 1 where it is reached."""
        gap = (self.high - self.low) / MOST
        found: list[float] = [self.end] if self.end <= self.high else []
        for recall in ROUND:
            at = self.place(recall)
            if self.low <= at <= self.high and all(abs(at - other) >= gap for other in found):
                found.append(at)
        return sorted(found)

    def x(self, alt: Any, title: str) -> Any:
        """The encoding of the field `at`."""
        ends = alt.Scale(domain=[round(self.low, 5), round(self.high, 5)], nice=False, zero=False)
        # Numbers only: nothing that a file says.
        label = f"datum.value > {self.end - 1e-3:.5f} ? '1' : format(1 - pow(10, -datum.value), '.5~f')"
        axis = alt.Axis(
            values=[round(one, 5) for one in self.ticks], labelExpr=label, labelOverlap="greedy", labelSeparation=5
        )
        return alt.X("at:Q", title=title, scale=ends, axis=axis)


def axis(recalls: Sequence[float]) -> Axis:
    """The axis of some recalls; 1 stands as far beyond the nearest to it as halving what is missing would be.

    >>> [round(axis([0.5, 0.999, 1.0]).place(one), 2) for one in (0.5, 0.9, 0.999, 1.0)]
    [0.3, 1.0, 3.0, 3.3]
    """
    nearest = min([1 - one for one in recalls if one < 1 - FINEST], default=FARTHEST)
    end = -math.log10(min(nearest, FARTHEST)) + math.log10(2)
    whole = Axis(round(end, 5), 0.0, 0.0)
    places = [whole.place(one) for one in recalls]
    pad = max(0.04 * (max(places) - min(places)), 0.05)
    return whole._replace(low=max(0.0, min(places) - pad), high=max(places) + pad)
