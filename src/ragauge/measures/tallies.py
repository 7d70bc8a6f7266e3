"""What parts of a run come to, each counted by itself, and the one table that they make together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranks import Matches, assemble
from ragauge.records import Floats, Ints, Judgments

First = tuple[Sequence[str], Floats]
"""The first documents of a query, and their scores."""


@dataclass
class Tally:
    """What some whole queries come to. Parts may come from anywhere: they are put together in the order of the run."""

    matches: Matches = field(default_factory=Matches.none)
    judged: list[Ints] = field(default_factory=list)
    """The judged queries among them, as indexes into the pool."""
    lengths: list[Ints] = field(default_factory=list)
    """How many documents each of those got."""
    firsts: list[First] = field(default_factory=list)
    """And the first of them, where a measure looks at more than judged ranks."""
    others: list[str] = field(default_factory=list)
    """The queries that nobody judged."""
    rows: int = 0
    """How many rows were counted."""
    scattered: bool = False
    """Whether the rows of a query do not stand together: nothing else here counts then."""


def put_together(
    judgments: Judgments, rules: Convention, tallies: Iterable[Tally], *, name: str, top: bool
) -> JudgedRanks | None:
    """The judged ranks of a whole run; None where a query is in two places, so that neither is the whole of it."""
    n = len(judgments.pool.queries)
    matches = Matches.none()
    lengths, answered = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    firsts: list[Sequence[str]] = [()] * n if top else []
    first_scores: list[Floats] = [np.zeros(0)] * n if top else []
    others: set[str] = set()
    for tally in tallies:
        if tally.scattered:
            return None
        matches.extend(tally.matches)
        for queries, sizes in zip(tally.judged, tally.lengths, strict=True):
            if answered[queries].any():
                return None
            lengths[queries], answered[queries] = sizes, True
        if top:
            for query, first in zip(np.concatenate([*tally.judged, []]).tolist(), tally.firsts, strict=True):
                firsts[int(query)], first_scores[int(query)] = first
        if not others.isdisjoint(tally.others):
            return None
        others.update(tally.others)
    return assemble(
        judgments,
        rules,
        matches,
        lengths,
        answered,
        name=name,
        extra_queries=len(others),
        top=(firsts, first_scores) if top else None,
    )
