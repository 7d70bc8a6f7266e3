"""Terminal output: sparklines, and tables that fit the width of a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-:=+*#"
"""Marks from lowest to highest for outputs that cannot show blocks."""


def sparkline(
    values: Sequence[float | None], low: float | None = None, high: float | None = None, *, marks: str = BLOCKS
) -> str:
    """Render values as one mark each, scaled between `low` and `high`.

    None and NaN are a blank. The default range is that of the values.

    >>> sparkline([0, 1, 2, 3, None, 7]), sparkline([2, 2]), sparkline([0.5], 0, 1), sparkline([0, 7], marks=PLAIN)
    ('▁▂▃▄ █', '▄▄', '▅', '_#')
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    bottom = min(known, default=0.0) if low is None else low
    top = max(known, default=0.0) if high is None else high
    return "".join(" " if value is None or math.isnan(value) else _mark(value, bottom, top, marks) for value in values)


def _mark(value: float, bottom: float, top: float, marks: str) -> str:
    """Choose the mark of a value, clipped to the range.

    If the range is empty, it is the middle mark.
    """
    whole = top / 2 - bottom / 2  # halves, so that the widest range does not overflow
    if not whole > 0:
        return marks[(len(marks) - 1) // 2]
    place = len(marks) * min(1.0, max(0.0, (value / 2 - bottom / 2) / whole))
    return marks[min(len(marks) - 1, int(place))]


def marks_for(encoding: str | None) -> str:
    """Return the marks that an output of this encoding can show.

    >>> marks_for("utf-8") == BLOCKS, marks_for("ascii"), marks_for(None) == PLAIN
    (True, '_.-:=+*#', True)
    """
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return BLOCKS


def thinned(values: Sequence[float], width: int) -> list[float]:
    """Reduce values to at most `width` means of consecutive values.

    >>> thinned([1, 2, 3, 4, 5, 6], 3), thinned([1, 2], 3)
    ([1.5, 3.5, 5.5], [1, 2])
    """
    if len(values) <= width:
        return list(values)
    ends = [round(i * len(values) / width) for i in range(width + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
