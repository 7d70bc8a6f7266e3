"""Greedy choice of the best batch of documents."""

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
    """Novelty of documents, which decreases as similar documents are taken."""

    def now(self) -> Mapping[str, float]:
        """Return each document's novelty against the corpus and the documents taken.

        NaN if undefined.
        """
        ...

    def take(self, doc: str) -> None:
        """Add a document to those that are known."""
        ...


class Fixed:
    """Novelty that stays constant."""

    def __init__(self, novelty: Mapping[str, float]) -> None:
        self._novelty = novelty

    def now(self) -> Mapping[str, float]:
        """Return the novelty of each document."""
        return self._novelty

    def take(self, doc: str) -> None:
        """Do nothing; the novelty stays constant."""


def greedy(pool: Pool, size: int, fading: Fading) -> list[Choice]:
    """Choose the best batch of up to `size` documents greedily.

    Stop if none adds anything. Ties are broken by id, so that the order of the added documents does not matter.
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
    """Return the weighted gain by term that a document adds to those taken.

    Its novelty is divided by the number of documents with a known novelty.
    """
    changes = pool.changes
    rows = np.array(list(gaps.values())) if gaps else np.zeros((0, len(changes.names)))
    means = changes.mean(rows)
    found = {changes.names[at]: float(means[at] * changes.weights[at]) for at in pool.told}
    if not math.isnan(novelty):
        found[NOVELTY] = pool.weight * novelty / told
    return found
