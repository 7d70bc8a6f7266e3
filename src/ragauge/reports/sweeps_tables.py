"""Tables of a benchmark: cells, a table with its legend, and the column of reused results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ragauge.reports.sweeps_provenance import LEGEND, Result, format_reused

EXPLAINED = ("frontier", "every")
"""Ids of the tables whose legend explains the column of reused results."""


class Figure(NamedTuple):
    """Table cell: text, sort value, and whether it is the best of its column."""

    text: str
    value: float = math.nan
    best: bool = False


@dataclass(frozen=True)
class Part:
    """Table with its title and legend."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Figure]]
    legend: Sequence[str] = ()
    goes: Sequence[int] = ()
    """Columns that are dropped on a narrow terminal, in this order."""
    groups: Sequence[str] = ()
    """Store of each row, if a store has several rows; the first cell then omits it."""

    @property
    def texts(self) -> list[list[str]]:
        """Texts of the cells."""
        return [[one.text for one in row] for row in self.rows]


def mark_reused(part: Part, results: Sequence[Sequence[Result]]) -> Part:
    """Add a column with the dates of reused results, if there are any.

    `results` are the results of each row.
    """
    if not any(one.reused for row in results for one in row):
        return part
    rows = [[*row, Figure(format_reused(own))] for row, own in zip(part.rows, results, strict=True)]
    legend = [*part.legend, *([LEGEND] if part.id in EXPLAINED else [])]
    return replace(part, header=[*part.header, "reused"], rows=rows, legend=legend)
