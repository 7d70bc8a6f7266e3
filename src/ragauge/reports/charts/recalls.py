"""Logarithmic axis of recall: it shows 1 - recall, since stores differ mostly between 0.9 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

ROUND = (0.9, 0.99, 0.999, 0.9999, 0.5, 0.95, 0.995, 0.8, 0.98, 0.7, 0.2, 0.0)
"""Recall values with a tick, by priority."""
MOST = 11
"""Approximate maximum number of ticks."""
FINEST, FARTHEST = 1e-7, 0.05
"""Smaller differences from 1 are rounding; the position of recall 1 is computed from at most the second."""


class Axis(NamedTuple):
    """Axis that maps recall 0.9 to 1, 0.99 to 2 and 0.999 to 3.

    Recall 1 is placed just beyond the highest recall below it.
    """

    end: float
    """Position of recall 1."""
    low: float
    high: float

    def place(self, recall: float) -> float:
        """Return the position of a recall value."""
        return min(self.end, -math.log10(max(1 - recall, 10**-self.end)))

    @property
    def ticks(self) -> list[float]:
        """Positions of the ticks: round values with a minimum distance, and 1 if reached."""
        gap = (self.high - self.low) / MOST
        found: list[float] = [self.end] if self.end <= self.high else []
        for recall in ROUND:
            at = self.place(recall)
            if self.low <= at <= self.high and all(abs(at - other) >= gap for other in found):
                found.append(at)
        return sorted(found)

    def x(self, alt: Any, title: str) -> Any:
        """Return the encoding of the field `at`."""
        ends = alt.Scale(domain=[round(self.low, 5), round(self.high, 5)], nice=False, zero=False)
        # Only numbers go into the expression, never text from a file.
        label = f"datum.value > {self.end - 1e-3:.5f} ? '1' : format(1 - pow(10, -datum.value), '.5~f')"
        axis = alt.Axis(
            values=[round(one, 5) for one in self.ticks], labelExpr=label, labelOverlap="greedy", labelSeparation=5
        )
        return alt.X("at:Q", title=title, scale=ends, axis=axis)


def axis(recalls: Sequence[float]) -> Axis:
    """Build the axis for the given recall values.

    Recall 1 is placed one halving of the missing recall beyond the highest value below 1.

    >>> [round(axis([0.5, 0.999, 1.0]).place(one), 2) for one in (0.5, 0.9, 0.999, 1.0)]
    [0.3, 1.0, 3.0, 3.3]
    """
    nearest = min([1 - one for one in recalls if one < 1 - FINEST], default=FARTHEST)
    end = -math.log10(min(nearest, FARTHEST)) + math.log10(2)
    whole = Axis(round(end, 5), 0.0, 0.0)
    places = [whole.place(one) for one in recalls]
    pad = max(0.04 * (max(places) - min(places)), 0.05)
    return whole._replace(low=max(0.0, min(places) - pad), high=max(places) + pad)
