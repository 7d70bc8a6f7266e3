"""Tables of a benchmark: cells, a table with its legend, and the column that marks reused results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragauge.reports.sweeps_provenance import LEGEND, Result, format_reused

EXPLAINED = ("frontier", "every")
"""The tables whose legends explain the column of reused results; the others have the same column."""


class Figure(NamedTuple):
    """A cell: how it is shown, what it is sorted by, and whether it is the best of its column."""

    text: str
    value: float = math.nan
    best: bool = False


@dataclass(frozen=True)
class Part:
    """A table with what is said of it."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Figure]]
    legend: Sequence[str] = ()
    goes: Sequence[int] = ()
    """Which columns a narrow terminal does without, the first first."""
    groups: Sequence[str] = ()
    """For each row the store that it belongs to, where several rows do; a row's first cell then lacks it."""

    @property
    def texts(self) -> list[list[str]]:
        """The cells without what is known of them."""
        return [[one.text for one in row] for row in self.rows]


def mark_reused(part: Part, results: Sequence[Sequence[Result]]) -> Part:
    """Add a column that says when reused results were made, if any is; `results` are those of each row."""
    if not any(one.reused for row in results for one in row):
        return part
    rows = [[*row, Figure(format_reused(own))] for row, own in zip(part.rows, results, strict=True)]
    legend = [*part.legend, *([LEGEND] if part.id in EXPLAINED else [])]
    return replace(part, header=[*part.header, "reused"], rows=rows, legend=legend)
