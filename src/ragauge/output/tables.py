"""Tables of text cells, before they are rendered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ragauge.core.findings import FindingTable
from ragauge.core.text import one_line


class TextTable(NamedTuple):
    """A table before it is rendered; `goes` are the columns that a narrow terminal drops, in this order."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: bool = True
    """Whether all columns but the first are numbers; otherwise texts are wrapped."""
    goes: Sequence[int] = ()
    links: Sequence[str] = ()
    """Link of each row's name on an HTML page; empty for none."""


def format_grid_cells(grid: FindingTable) -> list[list[str]]:
    """Format the cells of a grid as texts.

    Floats have four decimals, counts none; a missing value is a dash.
    """
    return [
        [_format_grid_cell(value, title) for value, title in zip(row, grid.header, strict=True)] for row in grid.rows
    ]


def _format_grid_cell(value: str | float | None, title: str) -> str:
    if isinstance(value, str):
        return one_line(value)
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.0f}" if isinstance(value, int) or title == "n" else f"{value:.4f}"
