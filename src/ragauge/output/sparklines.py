"""Sparklines: values as one character each, for text columns of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_SPARKLINE_MARKS = "_.-:=+*#"
"""Marks from lowest to highest for outputs that cannot show blocks."""
NO_VALUE_MARK = "·"
"""Mark of a value that is left out, in texts where blanks would be collapsed."""
_TO_ASCII = str.maketrans(SPARKLINE_BLOCKS + NO_VALUE_MARK, ASCII_SPARKLINE_MARKS + " ")


def sparkline(
    values: Sequence[float | None],
    low: float | None = None,
    high: float | None = None,
    *,
    marks: str = SPARKLINE_BLOCKS,
) -> str:
    """Render values as one mark each, scaled between `low` and `high`.

    None and NaN are a blank. The default range is that of the values.

    >>> (sparkline([0, 1, 2, 3, None, 7]), sparkline([2, 2]), sparkline([0.5], 0, 1), sparkline([0, 7],
    ...  marks=ASCII_SPARKLINE_MARKS))
    ('▁▂▃▄ █', '▄▄', '▅', '_#')
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    bottom = min(finite, default=0.0) if low is None else low
    top = max(finite, default=0.0) if high is None else high
    return "".join(
        " " if value is None or math.isnan(value) else _choose_mark(value, bottom, top, marks) for value in values
    )


def _choose_mark(value: float, bottom: float, top: float, marks: str) -> str:
    """Choose the mark of a value, clipped to the range.

    If the range is empty, it is the middle mark.
    """
    half_range = top / 2 - bottom / 2  # halves, so that the widest range does not overflow
    if not half_range > 0:
        return marks[(len(marks) - 1) // 2]
    position = len(marks) * min(1.0, max(0.0, (value / 2 - bottom / 2) / half_range))
    return marks[min(len(marks) - 1, int(position))]


def sparkline_characters(encoding: str | None) -> str:
    """Return the marks that an output of this encoding can show.

    >>> (sparkline_characters("utf-8") == SPARKLINE_BLOCKS, sparkline_characters("ascii"),
    ...  sparkline_characters(None) == ASCII_SPARKLINE_MARKS)
    (True, '_.-:=+*#', True)
    """
    try:
        SPARKLINE_BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII_SPARKLINE_MARKS
    return SPARKLINE_BLOCKS


def downsample(values: Sequence[float], width: int) -> list[float]:
    """Reduce values to at most `width` means of consecutive values.

    >>> downsample([1, 2, 3, 4, 5, 6], 3), downsample([1, 2], 3)
    ([1.5, 3.5, 5.5], [1, 2])
    """
    if len(values) <= width:
        return list(values)
    ends = [round(i * len(values) / width) for i in range(width + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(ends)]


def encode_sparklines(text: str, encoding: str | None) -> str:
    """Replace the blocks of sparklines in a text if the encoding of the output lacks them.

    >>> encode_sparklines("▁·█", "ascii"), encode_sparklines("▁·█", "utf-8")
    ('_ #', '▁·█')
    """
    return text if sparkline_characters(encoding) == SPARKLINE_BLOCKS else text.translate(_TO_ASCII)
