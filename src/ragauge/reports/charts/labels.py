"""Where names stand beside marks: off bars, lines and each other, as far as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ragauge.reports.charts.sketches import Rows

LETTER = 6.0
"""Pixels of a letter, about."""
WIDEST = 150
"""Pixels after which a name is cut."""
TALL = 13.0
NEAR = 9
"""Pixels from the middle of a mark to its name."""


class Box(NamedTuple):
    """A part of a plot, in pixels; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Whether they have a part in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


class Mark(NamedTuple):
    """A point with its name, and its interval upright through it."""

    name: str
    x: float
    y: float
    top: float
    bottom: float

    @property
    def boxes(self) -> list[tuple[Box, float]]:
        """Where no other name should stand, and how bad it would be; beside the point it would seem to be its own."""
        point = Box(self.x - 13, self.y - 7, self.x + 13, self.y + 7)
        return [(point, 6.0), (Box(self.x - 2, self.top, self.x + 2, self.bottom), 3.0)]


class Spot(NamedTuple):
    """Where a name stands, from its mark."""

    align: str
    dx: float
    dy: float

    def box(self, mark: Mark) -> Box:
        """What the name covers."""
        wide = min(float(WIDEST), LETTER * len(mark.name))
        left = mark.x + self.dx - {"left": 0.0, "center": wide / 2, "right": wide}[self.align]
        return Box(left, mark.y + self.dy - TALL / 2, left + wide, mark.y + self.dy + TALL / 2)


def spots(marks: Sequence[Mark], lines: Sequence[Box], width: float, height: float) -> list[Spot]:
    """A place for each name: the one in whose way least is, the nearest of several.

    Distances from mark to mark are those of the narrowest plot: in a wider one there is only more room.
    """
    chosen: list[Spot | None] = [None] * len(marks)
    for _ in range(3):  # names that came later may be in the way of earlier ones
        for i, mark in enumerate(marks):
            taken = [(line, 2.0) for line in lines]
            for other, spot in (pair for j, pair in enumerate(zip(marks, chosen, strict=True)) if j != i):
                taken += [*other.boxes, *([(spot.box(other), 10.0)] if spot is not None else [])]
            costs = {spot: far + _cost(spot.box(mark), taken, width, height) for spot, far in _tried(mark).items()}
            chosen[i] = min(costs, key=costs.__getitem__)
    return [spot for spot in chosen if spot is not None]


def _tried(mark: Mark) -> dict[Spot, float]:
    """Beside the mark, a little above or below that, or at the ends of its interval; and how far that seems."""
    found = {
        Spot(align, dx, dy): far
        for dy, far in ((-9, 0.0), (9, 0.1), (0, 0.2), (-17, 0.6), (17, 0.7))
        for align, dx in (("left", NEAR), ("right", -NEAR))
    }
    for dy, far in ((mark.top - mark.y - NEAR, 0.9), (mark.bottom - mark.y + NEAR, 1.0)):
        found |= {Spot("center", 0, dy): far, Spot("left", -5, dy): far + 0.2, Spot("right", 5, dy): far + 0.3}
    return found


def _cost(box: Box, taken: Sequence[tuple[Box, float]], width: float, height: float) -> float:
    # On the left stand the figures of the axis; on the right and above a plot makes room.
    outside = 20.0 * (box.left < 0) + 8.0 * (box.right > width or box.top < 0 or box.bottom > height)
    return outside + sum(cost for other, cost in taken if box.meets(other))


def named(alt: Any, rows: Rows, limit: int = WIDEST) -> list[Any]:
    """Words over what is behind them: the same twice, the first in the colour of the page and a little thicker.

    Where they stand is in the rows: the fields of a `Spot`.
    """
    chart = alt.Chart(alt.Data(values=rows))
    stands = {field: alt.ExprRef(f"datum.{field}") for field in Spot._fields}
    return [chart.mark_text(style=style, limit=limit, **stands) for style in ("halo", "words")]
