"""What each added document has to do with a gain: what is lost without it, what it brings alone, what labels say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragauge.knowledge.gains.changes import NOTHING_LESS, Changes
from ragauge.knowledge.gains.values import Ranking, Rankings, Values
from ragauge.knowledge.gains.weights import NOVELTY
from ragauge.records import Floats, Nested
from ragauge.worths import DocumentWorth


def contenders(ranking: Ranking, added: frozenset[str], depth: int) -> Ranking:
    """As much of a ranking as matters whichever of the added documents are left out: the first `depth` of the others.

    >>> contenders(("new1", "a", "new2", "b", "new3", "c"), frozenset({"new1", "new2", "new3"}), 2)
    ('new1', 'a', 'new2', 'b')
    """
    found: list[str] = []
    others = 0
    for doc in ranking:
        if others == depth:
            break
        found.append(doc)
        others += doc not in added
    return tuple(found)


def with_only(ranking: Ranking, added: frozenset[str], kept: frozenset[str], depth: int) -> Ranking:
    """A ranking with only some of the added documents.

    >>> with_only(("new1", "a", "new2", "b"), frozenset({"new1", "new2"}), frozenset({"new2"}), 2)
    ('a', 'new2')
    """
    return tuple(doc for doc in ranking if doc not in added or doc in kept)[:depth]


def cut_short(rankings: Rankings, added: frozenset[str], depth: int) -> frozenset[str]:
    """The queries whose rankings end before `depth` documents that were not added.

    >>> sorted(cut_short({"p": ("new1", "a"), "q": ("a", "b")}, frozenset({"new1"}), 2))
    ['p']
    """
    return frozenset(query for query, ranking in rankings.items() if sum(doc not in added for doc in ranking) < depth)


@dataclass(frozen=True, eq=False)
class Pool:
    """The added documents, and the rankings that they compete in."""

    added: Sequence[str]
    rankings: Rankings
    """Of each query its contenders."""
    values: Values
    texts: Mapping[str, str]
    changes: Changes
    novelty: Mapping[str, float]
    """Of each document, where it is known."""
    weight: float
    """Of novelty."""
    short: frozenset[str] = frozenset()
    """Queries of which nobody knows what stands below the end of their rankings."""

    @property
    def all(self) -> frozenset[str]:
        """Every added document."""
        return frozenset(self.added)

    @property
    def told(self) -> list[int]:
        """The terms that can be told of each document."""
        return [at for at in self.changes.told if at in self.values.told]

    def kept(self, query: str, some: frozenset[str]) -> Ranking:
        """What a query gets where only some of the added documents are there."""
        return with_only(self.rankings[query], self.all, some, self.values.depth)

    def queries_of(self) -> dict[str, list[str]]:
        """By document, the queries that it is a contender of."""
        found: dict[str, list[str]] = {doc: [] for doc in self.added}
        for query, ranking in self.rankings.items():
            for doc in ranking:
                if doc in found:
                    found[doc].append(query)
        return found

    def gaps(self, better: Floats, worse: Floats) -> Floats:
        """By how much one row of values is better than another, term by term."""
        return np.asarray(self.values.signs * (better - worse))


def dropped(pool: Pool) -> dict[str, dict[str, Ranking]]:
    """By document, the rankings that are other without it: it is left out, and what stood below moves up.

    A document is not here where nobody knows what would move up.
    """
    found: dict[str, dict[str, Ranking]] = {doc: {} for doc in pool.added}
    depth = pool.values.depth
    for query, ranking in pool.rankings.items():
        for doc in ranking[:depth]:
            if doc in found:
                found[doc][query] = tuple(one for one in ranking if one != doc)[:depth]
    unknown = {doc for query in pool.short if len(pool.rankings[query]) <= depth for doc in pool.rankings[query]}
    return {doc: mine for doc, mine in found.items() if doc not in unknown}


def worths(
    pool: Pool, without: Mapping[str, Mapping[str, Ranking]] | None, judged: Nested, rel: float, k: int
) -> list[DocumentWorth]:
    """What each added document is worth, worth most first; `without` holds the rankings that are other without it.

    Of a document that is not in `without` nobody knows the cause.
    """
    labels = _labelled(pool.changes, judged, rel, pool.all)
    alone = _alone(pool)
    causes = {} if without is None else _causes(pool, without)
    entered: dict[str, int] = {}
    for ranking in pool.rankings.values():
        for doc in ranking[:k]:
            entered[doc] = entered.get(doc, 0) + 1
    found = []
    for doc in pool.added:
        causal, changes, helped, harmed = causes.get(doc, (math.nan, {}, (), ()))
        sum_of, relevant = labels.get(doc, (0.0, 0))
        found.append(
            DocumentWorth(
                doc,
                causal,
                sum_of,
                pool.novelty.get(doc, math.nan),
                alone[doc],
                changes,
                helped,
                harmed,
                relevant,
                entered.get(doc, 0),
            )
        )
    return sorted(found, key=_order)


def _order(one: DocumentWorth) -> tuple[bool, float, float, str]:
    unknown = math.isnan(one.causal)
    first = one.alone if unknown else one.causal
    return (unknown, math.inf if math.isnan(first) else -round(first, 12), -round(one.labelled, 12), one.id)


Cause = tuple[float, dict[str, float], list[str], list[str]]


def _causes(pool: Pool, without: Mapping[str, Mapping[str, Ranking]]) -> dict[str, Cause]:
    """By document: its gain, the same by term, and the queries that it helped and harmed."""
    variants = [(query, ranking) for mine in without.values() for query, ranking in mine.items()]
    rows = pool.values.of(variants, pool.texts)
    place = {query: at for at, query in enumerate(pool.changes.queries)}
    found: dict[str, Cause] = {}
    start = 0
    for doc, others in without.items():
        queries = list(others)
        mine = rows[start : start + len(queries)]
        start += len(queries)
        gaps = pool.gaps(pool.changes.after[[place[one] for one in queries]], mine)
        means = pool.changes.mean(gaps)
        gains = pool.changes.weighed(gaps)  # what nobody was asked has no value, and counts for nothing
        changes = {name: float(means[at]) for at, name in enumerate(pool.changes.names) if at in pool.told}
        causal = sum(float(means[at] * pool.changes.weights[at]) for at in pool.told)
        share = novelty_share(pool, doc)
        if share is not None:
            changes[NOVELTY] = share
            causal += pool.weight * share
        helped = [query for query, gain in zip(queries, gains.tolist(), strict=True) if gain > NOTHING_LESS]
        harmed = [query for query, gain in zip(queries, gains.tolist(), strict=True) if gain < -NOTHING_LESS]
        found[doc] = (causal if changes else math.nan, changes, helped, harmed)
    return found


def novelty_share(pool: Pool, doc: str) -> float | None:
    """What a document adds to the novelty of all that was added, which is the mean of theirs."""
    known = [one for one in pool.novelty.values() if not math.isnan(one)]
    mine = pool.novelty.get(doc, math.nan)
    return None if math.isnan(mine) else mine / len(known)


def _labelled(changes: Changes, judged: Nested, rel: float, added: frozenset[str]) -> dict[str, tuple[float, int]]:
    """By document: the sum of grade times the weighted mean of the query's changes, and over how many queries.

    The mean is over the sizes of weights: one below 0 counts against, and never turns the others round.
    """
    found: dict[str, tuple[float, int]] = {}
    for row, query in enumerate(changes.queries):
        known = ~np.isnan(changes.gaps[row])
        weight = float(np.abs(changes.weights[known]).sum())
        gain = float(changes.gaps[row, known] @ changes.weights[known]) / weight if weight else 0.0
        for doc, grade in judged.get(query, {}).items():
            if doc in added and grade >= rel:
                before, n = found.get(doc, (0.0, 0))
                found[doc] = (before + grade * gain, n + 1)
    return found


def _alone(pool: Pool) -> dict[str, float]:
    """By document: its gain where no other is added; its novelty counts whole. NaN where a ranking ends too soon."""
    if pool.short:
        return dict.fromkeys(pool.added, math.nan)
    nobody: frozenset[str] = frozenset()
    pairs = [(doc, query) for doc, queries in pool.queries_of().items() for query in queries]
    with_it = pool.values.of([(query, pool.kept(query, frozenset({doc}))) for doc, query in pairs], pool.texts)
    base = pool.values.of([(query, pool.kept(query, nobody)) for _, query in pairs], pool.texts)
    gaps: dict[str, list[int]] = {}
    for at, (doc, _) in enumerate(pairs):
        gaps.setdefault(doc, []).append(at)
    rows = pool.gaps(with_it, base)
    found = {}
    for doc in pool.added:
        means = pool.changes.mean(rows[gaps.get(doc, [])])
        parts = [float(means[at] * pool.changes.weights[at]) for at in pool.told]
        novelty = pool.novelty.get(doc, math.nan)
        parts += [] if math.isnan(novelty) else [pool.weight * novelty]
        found[doc] = sum(parts) if parts else math.nan
    return found
