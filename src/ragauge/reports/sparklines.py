"""Numbers as a line of small blocks, for a terminal: how something goes, not how much it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-:=+*#"
"""For an output that has no blocks: the lowest to the highest, as well as ASCII can tell."""


def sparkline(
    values: Sequence[float | None], low: float | None = None, high: float | None = None, *, marks: str = BLOCKS
) -> str:
    """A mark for each value between `low` and `high`, else between the least and the greatest; a gap for none.

    >>> sparkline([0, 1, 2, 3, None, 7]), sparkline([2, 2]), sparkline([0.5], 0, 1), sparkline([0, 7], marks=PLAIN)
    ('▁▂▃▄ █', '▄▄', '▅', '_#')
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    bottom = min(known, default=0.0) if low is None else low
    top = max(known, default=0.0) if high is None else high
    return "".join(" " if value is None or math.isnan(value) else _mark(value, bottom, top, marks) for value in values)


def _mark(value: float, bottom: float, top: float, marks: str) -> str:
    """What is beyond an end stands at it; where there is nothing between the ends, all stand in the middle."""
    whole = top / 2 - bottom / 2  # halves, so that the widest range is still a number
    if not whole > 0:
        return marks[(len(marks) - 1) // 2]
    place = len(marks) * min(1.0, max(0.0, (value / 2 - bottom / 2) / whole))
    return marks[min(len(marks) - 1, int(place))]


def marks_for(encoding: str | None) -> str:
    """The blocks, or what an output of this encoding can show instead.

    >>> marks_for("utf-8") == BLOCKS, marks_for("ascii"), marks_for(None) == PLAIN
    (True, '_.-:=+*#', True)
    """
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return BLOCKS


def thinned(values: Sequence[float], width: int) -> list[float]:
    """At most so many values: each the mean of its share of them, in order.

    >>> thinned([1, 2, 3, 4, 5, 6], 3), thinned([1, 2], 3)
    ([1.5, 3.5, 5.5], [1, 2])
    """
    if len(values) <= width:
        return list(values)
    ends = [round(i * len(values) / width) for i in range(width + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
