"""The road from nested dictionaries: no frame, no copy of an id, one NumPy kernel for many queries at a time.

Judged ids are looked up in each query's dictionary; only the scores of a query are copied, because a rank is one plus
the number of scores above it. Ids are compared only where a judged document is really tied.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

import numpy as np

from ragauge.errors import BadInput
from ragauge.measures.conventions import Convention
from ragauge.measures.judged import JudgedRanks
from ragauge.measures.ranks import OWN, Matches, Standing, assemble, leading, standing
from ragauge.records import Floats, Ints, Judgments, Nested

BATCH = 1 << 17
"""Scores per kernel call: few enough to stay in the cache, many enough to hide the cost of a call."""
SMALL = 64
"""Up to this many equal scores that stand together, comparing ids one by one costs less than sorting them."""


def judged_ranks(
    judgments: Judgments, run: Nested, rules: Convention, *, top: int = 0, name: str = "run"
) -> JudgedRanks:
    """The ranks of the judged documents in `run`; `top` asks for that many first documents of each query as well."""
    pool = judgments.pool
    matches = Matches.none()
    lengths = np.zeros(len(pool.queries), np.int64)
    answered = np.zeros(len(pool.queries), np.bool_)
    firsts: list[Sequence[str]] = [()] * len(pool.queries)
    first_scores: list[Floats] = [np.zeros(0)] * len(pool.queries)
    for batch in _batches(judgments.nested, run):
        queries = np.array(batch.queries)
        sizes = np.array([len(docs) for docs in batch.docs])
        lengths[queries], answered[queries] = sizes, True
        starts = np.concatenate([[0], np.cumsum(sizes)])
        scores, looked_up = _scores(batch, int(starts[-1]), rules)
        segment, row, score = _found(batch, looked_up, pool.starts, rules)
        stands = standing(scores, starts, segment, score)
        place = np.zeros(len(row), np.int64)
        if len(stands.tied):
            place[stands.tied] = _places(
                batch, segment, row - pool.starts[queries[segment]], scores, starts, stands, rules
            )
        matches.add(queries[segment], row, place, stands)
        if top:
            for i, query in enumerate(batch.queries):
                mine = scores[starts[i] : starts[i + 1]]
                firsts[query], first_scores[query] = leading(
                    list(batch.docs[i]), mine, None, top, rules, query=batch.names[i], judged=batch.grades[i]
                )
    return assemble(
        judgments,
        rules,
        matches,
        lengths,
        answered,
        name=name,
        extra_queries=len(run) - int(answered.sum()),
        top=(firsts, first_scores) if top else None,
    )


@dataclass
class Batch:
    """Some queries that are judged and answered."""

    names: list[str] = field(default_factory=list)
    queries: list[int] = field(default_factory=list)
    docs: list[Mapping[str, float]] = field(default_factory=list)
    grades: list[Mapping[str, float]] = field(default_factory=list)


def _batches(judged: Nested, run: Nested) -> Iterator[Batch]:
    """The judged and answered queries, some hundred thousand scores at a time."""
    batch, size = Batch(), 0
    for index, (query, grades) in enumerate(judged.items()):
        docs = run.get(query)
        if docs is None:
            continue
        batch.names.append(query)
        batch.queries.append(index)
        batch.docs.append(docs)
        batch.grades.append(grades)
        size += len(docs)
        if size >= BATCH:
            yield batch
            batch, size = Batch(), 0
    if batch.names:
        yield batch


def _scores(batch: Batch, total: int, rules: Convention) -> tuple[Floats, list[float]]:
    """All scores of a batch, one query after the other, and those of the judged documents (NaN where not returned).

    A query's judged documents are looked up while its dictionary is being read and lies in the cache: one walk through
    memory instead of two. A score that is no number is named.
    """
    looked_up: list[float] = []
    absent = repeat(math.nan)

    def walk() -> Iterator[Iterable[float]]:
        for docs, grades in zip(batch.docs, batch.grades, strict=True):
            looked_up.extend(map(docs.get, grades, absent))
            yield docs.values()

    walking = walk()
    try:
        scores = np.fromiter(chain.from_iterable(walking), np.float64, total)
        for _ in walking:  # NumPy stops at the last score; queries without any may follow
            pass
    except (TypeError, ValueError):
        scores = np.full(1, np.nan)
    if np.isnan(scores).any():
        for query, docs in zip(batch.names, batch.docs, strict=True):
            for doc, score in docs.items():
                if not isinstance(score, int | float | np.number) or math.isnan(score):
                    raise BadInput(f"the score of document `{doc}` for query `{query}` is {score!r}, not a number")
    return _rounded(scores, rules), looked_up


def _rounded(scores: Floats, rules: Convention) -> Floats:
    if rules.width == "double":
        return scores
    with np.errstate(over="ignore"):
        return scores.astype(np.float32).astype(np.float64)


def _found(batch: Batch, looked_up: list[float], pool_starts: Ints, rules: Convention) -> tuple[Ints, Ints, Floats]:
    """The judged documents that were returned: the place of their query in the batch, their pool row, their score."""
    scores = np.fromiter(looked_up, np.float64, len(looked_up))
    sizes = np.array([len(grades) for grades in batch.grades])
    segment = np.repeat(np.arange(len(sizes)), sizes)
    row = np.arange(len(scores)) + (pool_starts[batch.queries] - (np.cumsum(sizes) - sizes))[segment]
    found = ~np.isnan(scores)
    segment, row, scores = segment[found], row[found], scores[found]
    if rules.own == "dropped":
        own = [(i, docs[q]) for i, (q, docs) in enumerate(zip(batch.names, batch.docs, strict=True)) if q in docs]
        judged = {(i, list(batch.grades[i]).index(q)) for i, q in enumerate(batch.names) if q in batch.grades[i]}
        offset = row - pool_starts[np.array(batch.queries)[segment]]
        keep = np.array(
            [(i, j) not in judged for i, j in zip(segment.tolist(), offset.tolist(), strict=True)], np.bool_
        )
        segment = np.concatenate([segment[keep], np.array([i for i, _ in own], np.int64)])
        row = np.concatenate([row[keep], np.full(len(own), OWN)])
        scores = np.concatenate([scores[keep], np.array([s for _, s in own], np.float64)])
    return segment, row, _rounded(scores, rules)


def _places(
    batch: Batch, segment: Ints, offset: Ints, scores: Floats, starts: Ints, stands: Standing, rules: Convention
) -> list[int]:
    """How many documents of equal score stand before each tied match; one look at a query, however many are tied."""
    tied = stands.tied
    by_id = rules.ties != "ranked"
    columns = (
        segment[tied].tolist(),
        offset[tied].tolist(),
        stands.above[tied].tolist(),
        stands.through[tied].tolist(),
    )
    places: list[int] = []
    at, keys, judged, groups = -1, [""], [""], dict[int, list[str]]()
    for query, which, low, high in zip(*columns, strict=True):
        if query != at:
            at, keys, judged, groups = query, list(batch.docs[query]), list(batch.grades[query]), {}
            if not stands.in_order[query]:
                best_first = np.argsort(-scores[starts[query] : starts[query + 1]], kind="stable")
                keys = [keys[i] for i in best_first.tolist()]
        doc = judged[which] if which >= 0 else batch.names[query]
        if not by_id:
            places.append(keys.index(doc, low) - low)
        elif high - low <= SMALL:
            place = 0
            for other in keys[low:high]:
                if other > doc:
                    place += 1
            places.append(place)
        else:
            if low not in groups:
                groups[low] = sorted(keys[low:high])
            places.append(high - low - bisect_right(groups[low], doc))
    return places
