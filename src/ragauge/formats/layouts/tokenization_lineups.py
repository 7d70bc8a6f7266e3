"""Write an embedder study as the tokenization study's table: one row per embedder."""

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
"""Extra column of ragauge, written if not all queries were timed."""


def write(lineup: Lineup) -> str:
    """Format an embedder study as the table. Values that were not measured are empty.

    If some queries were not timed, the extra column `timed_queries` has the number of timed ones.
    """
    found = overview(lineup)
    try:
        text = tokenization.write(found)
    except BadInput as error:  # The measures of a finished study cannot be changed.
        again = "the same `ragauge embedders` with --as tokenization, and without -m and -C, measures what it wants"
        raise BadInput(error.message, hint=again) from None
    timed = {name: one.speed.asked for name, one in found.entries.items() if one.speed is not None}
    return _timed(text, list(found.entries), timed) if any(n < lineup.queries for n in timed.values()) else text


def _timed(text: str, names: list[str], timed: Mapping[str, int]) -> str:
    """Add the number of timed queries to the table. Rows are in the order of `names`."""
    header, *rows = csv.reader(io.StringIO(text))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*header, TIMED])
    for name, row in zip(names, rows, strict=True):
        writer.writerow([*row, timed.get(name, "")])
    return out.getvalue()


def check(measures: Sequence[str], convention: str) -> None:
    """Raise BadInput if the table cannot contain the measures."""
    planned = Entry("planned", {name: Mean(math.nan, 0) for name in measures})
    tokenization.WANTED.check(Overview("planned", {"planned": planned}, measures, convention))


def overview(lineup: Lineup) -> Overview:
    """Return the overview of an embedder study that the layout is written from.

    Latencies are those of the first store. Queries without a vector count in `num_queries` and score 0. The
    tokenization study's own table excluded them from the means.
    """
    entries = {one.name: Entry(one.name, dict(one.means), speed=_speed(one)) for one in lineup.entrants}
    measures = [name for name in tokenization.WANTED.measures if any(name in one.means for one in entries.values())]
    return Overview(
        lineup.dataset, entries, measures, lineup.convention, dataset=lineup.dataset, failures=dict(lineup.failures)
    )


def _speed(one: Entrant) -> Speed | None:
    """Return the latencies in the first store that was timed, or None."""
    shelf = next((shelf for shelf in one.shelves if shelf.stages), None)
    if shelf is None:
        return None
    n = max(stage.n for stage in shelf.stages.values())
    return Speed(dict(shelf.stages), float("nan"), n, 0, 0)
