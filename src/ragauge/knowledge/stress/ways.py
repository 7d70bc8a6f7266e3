"""One way of filling a store, from the first document to the verdict; and, where it broke, the least that breaks it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ragauge.knowledge.stress.attempts import AGAIN, KILLED, REPLACED, Failure, Kill, named
from ragauge.knowledge.stress.bisecting import Shortest, shortest
from ragauge.knowledge.stress.courses import ALL, Course
from ragauge.knowledge.stress.rankings import Ranking
from ragauge.ordeals import Broken, Pace, ReadBack, Timing, Way

Scored = Callable[[Sequence[Ranking]], tuple[Mapping[str, float], int]]
"""Measures of rankings, and of how many queries they are means."""
Reproduce = Callable[[Broken, int, Mapping[str, Any]], Broken]
"""Lays down the first so many documents, with what the store said of itself, and says so."""
NEEDED = {"putting": 1, "committing": 1, "reading back": 2}
"""So many steps have to be taken to see a stage again."""
STRETCHES = 40
"""So many points the pace of putting is drawn with."""


@dataclass(frozen=True)
class Outcome:
    """A way, and what the store said of itself on it."""

    way: Way
    about: Mapping[str, Any]


def gone(course: Course, scored: Scored, reproduce: Reproduce) -> Outcome:
    """Put a store through everything, in one way."""
    n, plan = len(course.ids), course.plan
    filled = course.filled(n)
    failure, readings = filled.failure, list(filled.readings)
    kills = course.kills(n, *(_typical(one) for one in (filled.put, filled.commit)))
    if failure is None and kills:
        failure = course.killed(n, kills, readings.append)
    if failure is None:
        failure = course.replaced(n, readings.append)  # last: nothing else is spoilt where a store takes it ill
    measures, judged = scored(filled.rankings) if filled.rankings and n else ({}, 0)
    way = Way(
        name=course.way,
        documents=failure.after if failure is not None and not filled.put else n,
        put=timing(filled.put),
        commit=timing(filled.commit),
        search=timing(filled.search),
        pace=pace(filled.put, plan.size(course.way), n),
        opening=filled.opening,
        bytes_on_disk=filled.size,
        read_back=readings,
        measures=measures,
        judged=judged,
        queries=len(filled.rankings),
        disorder=filled.disorder,
        agreement=filled.agreement,
        moved=filled.moved,
    )
    if failure is not None:
        way = replace(way, broken=_broken(course, failure, filled.about, reproduce))
    shutil.rmtree(course.folder, ignore_errors=True)
    return Outcome(way, filled.about)


def _broken(course: Course, failure: Failure, about: Mapping[str, Any], reproduce: Reproduce) -> Broken:
    broken = Broken(course.way, failure.stage, failure.error, failure.silent, failure.after, failure.document)
    if not course.plan.bisect:
        return replace(broken, doubt="nobody looked for a shorter prefix")
    found = least(course, failure)
    broken = replace(broken, prefix=found.prefix, tried=found.tried, steady=found.steady, doubt=found.doubt)
    return reproduce(broken, failure.after if found.prefix is None else found.prefix, about)


def least(course: Course, failure: Failure) -> Shortest:
    """The shortest prefix of the documents with which a new store fails in the same way."""
    times = 0

    def fails(documents: int) -> bool:
        nonlocal times
        times += 1
        told = f"{course.store} {course.way}: shortest prefix, try {times}: {documents:,} documents"
        quiet = replace(course, tell=lambda _, done, total: course.tell(told, done, total))
        return failure.same(_once(quiet, failure.stage, documents))

    return shortest(fails, len(course.ids), guess=failure.guess)


def _once(course: Course, stage: str, documents: int) -> Failure | None:
    """How a new store fails with the first documents, if it is taken as far as this stage."""
    if KILLED in stage:
        # Killed once, as soon as the last document is at hand.
        return course.killed(documents, [Kill(max(0, documents - 1), False, 0.0, course.plan.seed)], _unheard)
    if stage == named("replacing", REPLACED) or stage.endswith(REPLACED):
        filled = course.filled(documents, ALL[:1], reopen=False)
        return filled.failure or course.replaced(documents, _unheard)
    needed = next((n for name, n in NEEDED.items() if stage.startswith(name)), len(ALL))
    reopen = stage == named("opening", AGAIN) or stage.endswith(AGAIN)
    return course.filled(documents, ALL[:needed], reopen=reopen).failure


def _unheard(reading: ReadBack) -> None:
    """Nobody wants to know."""


def _typical(nanoseconds: Sequence[int]) -> float:
    return float(np.median(nanoseconds)) / 1e9 if nanoseconds else 0.0


def timing(nanoseconds: Sequence[int]) -> Timing | None:
    """The figures of some calls; None where there were none.

    >>> timing([1_000_000, 3_000_000]).p50
    2.0
    """
    if not nanoseconds:
        return None
    each = np.asarray(nanoseconds, np.float64) / 1e6
    p50, p95, p99 = (float(value) for value in np.percentile(each, (50, 95, 99)))
    return Timing(len(each), float(each.sum()) / 1e3, float(each.mean()), p50, p95, p99, float(each.max()))


def pace(nanoseconds: Sequence[int], batch: int, documents: int) -> list[Pace]:
    """How long a document took, stretch by stretch.

    >>> pace([1_000_000, 3_000_000], 2, 3)
    [Pace(documents=2, milliseconds=0.5), Pace(documents=3, milliseconds=3.0)]
    """
    ends = [min((call + 1) * batch, documents) for call in range(len(nanoseconds))]
    sizes = np.diff([0, *ends])
    each = np.asarray(nanoseconds, np.float64) / 1e6 / np.maximum(sizes, 1)
    return [Pace(ends[stop - 1], float(np.median(each[start:stop]))) for start, stop in _stretches(len(ends))]


def _stretches(calls: int) -> list[tuple[int, int]]:
    edges = [math.ceil(calls * one / STRETCHES) for one in range(STRETCHES + 1)]
    return [(low, high) for low, high in pairwise(edges) if high > low]
