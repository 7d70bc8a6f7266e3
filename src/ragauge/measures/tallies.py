"""Partial ranks of parts of a run, and their merge into the judged ranks of the whole run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranks import Matches, assemble
from ragauge.records import Floats, Ints, Judgments

First = tuple[Sequence[str], Floats]
"""First documents of a query, and their scores."""


@dataclass
class Tally:
    """Judged ranks of some whole queries; the parts of a run are merged in its order."""

    matches: Matches = field(default_factory=Matches.none)
    judged: list[Ints] = field(default_factory=list)
    """Judged queries in this part, as indexes into the pool."""
    lengths: list[Ints] = field(default_factory=list)
    """Number of documents of each of these queries."""
    firsts: list[First] = field(default_factory=list)
    """First documents of each of these queries; empty unless a measure needs them."""
    others: list[str] = field(default_factory=list)
    """Queries that are unjudged."""
    rows: int = 0
    """Number of rows processed."""
    scattered: bool = False
    """Whether the rows of a query are not adjacent; if True, the other fields are not valid."""


def put_together(
    judgments: Judgments, rules: Convention, tallies: Iterable[Tally], *, name: str, top: bool
) -> JudgedRanks | None:
    """Merge partial ranks into those of a whole run.

    None if a query is in several parts.
    """
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
