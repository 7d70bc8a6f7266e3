"""Which documents to take where not all can be taken: greedily, each the best after those before it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ragauge.knowledge.gains.attribution import Pool
from ragauge.knowledge.gains.changes import NOTHING_LESS
from ragauge.knowledge.gains.weights import NOVELTY
from ragauge.records import Floats
from ragauge.worths import Choice


class Fading(Protocol):
    """How new documents are, which fades as others that are like them are taken."""

    def now(self) -> Mapping[str, float]:
        """Of each document how new it is to what was known and to those taken; NaN where that cannot be told."""
        ...

    def take(self, doc: str) -> None:
        """It is known from now on."""
        ...


class Fixed:
    """Novelty that does not fade."""

    def __init__(self, novelty: Mapping[str, float]) -> None:
        self._novelty = novelty

    def now(self) -> Mapping[str, float]:
        """What it was."""
        return self._novelty

    def take(self, doc: str) -> None:
        """Nothing becomes less new."""


def greedy(pool: Pool, size: int, fading: Fading) -> list[Choice]:
    """The best batch of up to `size` documents, found one by one; it ends where no document adds anything.

    Of equal ones the first by id is taken, so that the order in which they were given does not matter.
    """
    left = sorted(pool.added)
    where = pool.queries_of()
    queries = list(pool.rankings)
    place = {query: at for at, query in enumerate(queries)}
    taken: frozenset[str] = frozenset()
    now = pool.values.of([(query, pool.kept(query, taken)) for query in queries], pool.texts)
    adds: dict[str, dict[str, Floats]] = {doc: {} for doc in left}
    stale = {doc: list(where[doc]) for doc in left}
    told = sum(not math.isnan(one) for one in pool.novelty.values())
    chosen: list[Choice] = []
    total = 0.0
    while left and len(chosen) < size:
        pairs = [(doc, query) for doc in left for query in stale[doc]]
        rows = pool.values.of([(query, pool.kept(query, taken | {doc})) for doc, query in pairs], pool.texts)
        for (doc, query), row in zip(pairs, rows, strict=True):
            adds[doc][query] = pool.gaps(row, now[place[query]])
        stale = {doc: [] for doc in left}
        novelty = fading.now()
        options = [_marginal(pool, adds[doc], novelty.get(doc, math.nan), told) for doc in left]
        best = max(range(len(left)), key=lambda at: (round(sum(options[at].values()), 12), -at))
        marginal = sum(options[best].values())
        if marginal <= NOTHING_LESS:
            break
        doc = left.pop(best)
        total += marginal
        chosen.append(Choice(doc, marginal, total, options[best]))
        taken |= {doc}
        fading.take(doc)
        touched = set(where[doc])
        fresh = sorted(touched)
        now[[place[query] for query in fresh]] = pool.values.of(
            [(query, pool.kept(query, taken)) for query in fresh], pool.texts
        )
        stale = {one: [query for query in where[one] if query in touched] for one in left}
    return chosen


def _marginal(pool: Pool, gaps: Mapping[str, Floats], novelty: float, told: int) -> dict[str, float]:
    """What a document adds to those taken, by term and by weight; its novelty counts as its share of all offered."""
    changes = pool.changes
    rows = np.array(list(gaps.values())) if gaps else np.zeros((0, len(changes.names)))
    means = changes.mean(rows)
    found = {changes.names[at]: float(means[at] * changes.weights[at]) for at in pool.told}
    if not math.isnan(novelty):
        found[NOVELTY] = pool.weight * novelty / told
    return found
