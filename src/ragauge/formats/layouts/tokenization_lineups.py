"""Embedders side by side as the tokenization study's table: a row for each."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

from ragauge.errors import BadInput
from ragauge.formats.layouts import tokenization
from ragauge.lineups import Entrant, Lineup
from ragauge.outcomes import Mean, Speed
from ragauge.overviews import Entry, Overview

TIMED = "timed_queries"
"""A column of ours beside the study's, where not all queries have a time."""


def write(lineup: Lineup) -> str:
    """The table; what was not measured is empty.

    Where some queries have no time, because they have no vector or nobody timed them, a column `timed_queries` beside
    the study's own says how many have one.
    """
    found = overview(lineup)
    try:
        text = tokenization.write(found)
    except BadInput as error:  # what is measured cannot be chosen any more
        again = "the same `ragauge embedders` with --as tokenization, and without -m and -C, measures what it wants"
        raise BadInput(error.message, hint=again) from None
    timed = {name: one.speed.asked for name, one in found.entries.items() if one.speed is not None}
    return _timed(text, list(found.entries), timed) if any(n < lineup.queries for n in timed.values()) else text


def _timed(text: str, names: list[str], timed: Mapping[str, int]) -> str:
    """The same table with how many queries have a time; the rows are in the order of the names."""
    header, *rows = csv.reader(io.StringIO(text))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, TIMED])
    for name, row in zip(names, rows, strict=True):
        writer.writerow([*row, timed.get(name, "")])
    return out.getvalue()


def check(measures: Sequence[str], convention: str) -> None:
    """Refuse measures that the table has no place for, or a convention that is not its own, before they are taken."""
    planned = Entry("planned", {name: Mean(math.nan, 0) for name in measures})
    tokenization.WANTED.check(Overview("planned", {"planned": planned}, measures, convention))


def overview(lineup: Lineup) -> Overview:
    """The lineup as what its layout is written from.

    Times are those of the first store. Queries without a vector count in `num_queries` and as misses in the means,
    where the study's own table left them out of the means.
    """
    entries = {one.name: Entry(one.name, dict(one.means), speed=_speed(one)) for one in lineup.entrants}
    measures = [name for name in tokenization.WANTED.measures if any(name in one.means for one in entries.values())]
    return Overview(
        lineup.dataset, entries, measures, lineup.convention, dataset=lineup.dataset, failures=dict(lineup.failures)
    )


def _speed(one: Entrant) -> Speed | None:
    """How fast it was in the first store."""
    shelf = next((shelf for shelf in one.shelves if shelf.stages), None)
    if shelf is None:
        return None
    n = max(stage.n for stage in shelf.stages.values())
    return Speed(dict(shelf.stages), float("nan"), n, 0, 0)
