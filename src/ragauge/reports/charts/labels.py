"""Placement of labels next to the marks of a chart, with few overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ragauge.reports.charts.sketches import Rows

LETTER = 6.0
"""Approximate width of a letter in pixels."""
WIDEST = 150
"""Maximum width of a label in pixels; longer names are cut."""
TALL = 13.0
NEAR = 9
"""Distance from the centre of a mark to its label in pixels."""


class Box(NamedTuple):
    """A rectangle in a plot, in pixels; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return whether two boxes overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


class Mark(NamedTuple):
    """A point with its name and its vertical interval."""

    name: str
    x: float
    y: float
    top: float
    bottom: float

    @property
    def boxes(self) -> list[tuple[Box, float]]:
        """Boxes that other labels should avoid, and the cost of an overlap.

        The box of the point is wider than the point, since a label next to it would seem to be its own.
        """
        point = Box(self.x - 13, self.y - 7, self.x + 13, self.y + 7)
        return [(point, 6.0), (Box(self.x - 2, self.top, self.x + 2, self.bottom), 3.0)]


class Spot(NamedTuple):
    """Position of a label relative to its mark."""

    align: str
    dx: float
    dy: float

    def box(self, mark: Mark) -> Box:
        """Return the box that the label covers."""
        wide = min(float(WIDEST), LETTER * len(mark.name))
        left = mark.x + self.dx - {"left": 0.0, "center": wide / 2, "right": wide}[self.align]
        return Box(left, mark.y + self.dy - TALL / 2, left + wide, mark.y + self.dy + TALL / 2)


def spots(marks: Sequence[Mark], lines: Sequence[Box], width: float, height: float) -> list[Spot]:
    """Choose a position for each label with the fewest overlaps, then the nearest.

    Positions are those of the narrowest plot; in a wider one marks are further apart.
    """
    chosen: list[Spot | None] = [None] * len(marks)
    for _ in range(3):  # repeat, because later labels may overlap earlier ones
        for i, mark in enumerate(marks):
            taken = [(line, 2.0) for line in lines]
            for other, spot in (pair for j, pair in enumerate(zip(marks, chosen, strict=True)) if j != i):
                taken += [*other.boxes, *([(spot.box(other), 10.0)] if spot is not None else [])]
            costs = {spot: far + _cost(spot.box(mark), taken, width, height) for spot, far in _tried(mark).items()}
            chosen[i] = min(costs, key=costs.__getitem__)
    return [spot for spot in chosen if spot is not None]


def _tried(mark: Mark) -> dict[Spot, float]:
    """Return the candidate positions of a label and the cost of their distance.

    They are left and right of the mark at several heights, and at the ends of its interval.
    """
    found = {
        Spot(align, dx, dy): far
        for dy, far in ((-9, 0.0), (9, 0.1), (0, 0.2), (-17, 0.6), (17, 0.7))
        for align, dx in (("left", NEAR), ("right", -NEAR))
    }
    for dy, far in ((mark.top - mark.y - NEAR, 0.9), (mark.bottom - mark.y + NEAR, 1.0)):
        found |= {Spot("center", 0, dy): far, Spot("left", -5, dy): far + 0.2, Spot("right", 5, dy): far + 0.3}
    return found


def _cost(box: Box, taken: Sequence[tuple[Box, float]], width: float, height: float) -> float:
    # The axis labels are on the left; on the right and above, the plot can grow.
    outside = 20.0 * (box.left < 0) + 8.0 * (box.right > width or box.top < 0 or box.bottom > height)
    return outside + sum(cost for other, cost in taken if box.meets(other))


def named(alt: Any, rows: Rows, limit: int = WIDEST) -> list[Any]:
    """Build text layers for labels: a halo in the background colour, then the text.

    Each row has its position in the fields of a `LabelPosition`.
    """
    chart = alt.Chart(alt.Data(values=rows))
    stands = {field: alt.ExprRef(f"datum.{field}") for field in Spot._fields}
    return [chart.mark_text(style=style, limit=limit, **stands) for style in ("halo", "words")]
