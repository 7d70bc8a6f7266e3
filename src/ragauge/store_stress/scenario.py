"""Stress scenario of one store and ingestion mode: fill, reopen, kill, replace."""

from __future__ import annotations

import math
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from ragauge.core.protocols import Vectors
from ragauge.files.serialization import from_data
from ragauge.store_stress.child_process import AGAIN, KILLED, REPLACED, Attempt, Failure, Kill, Progress, attempt, named
from ragauge.store_stress.plan import Order, Plan
from ragauge.store_stress.result_checks import Ranking, Truth, disorder, kept_share, moved, pairs, told
from ragauge.store_stress.results import ReadBack

ALL = ("put", "read", "search")
TOLERANCE = 0.05
"""Largest drop of neighbour recall after reopening or replacing that is only noted, not a failure."""
FLOOR = 0.5
"""Minimum neighbour recall of a store that searches by vectors; below it the search is a failure."""


@dataclass
class Filled:
    """Results of filling, reading and searching a store, before and after reopening.

    `put`, `commit` and `search` are durations in nanoseconds, `opening` is in seconds, `size` in bytes.
    """

    failure: Failure | None = None
    put: list[int] = field(default_factory=list)
    commit: list[int] = field(default_factory=list)
    search: list[int] = field(default_factory=list)
    readings: list[ReadBack] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)
    disorder: dict[str, int] = field(default_factory=dict)
    agreement: float = float("nan")
    moved: int | None = None
    opening: float = float("nan")
    size: int | None = None
    about: dict[str, Any] = field(default_factory=dict)
    documents: int = 0
    notes: list[str] = field(default_factory=list)
    """Differences within the tolerance."""


@dataclass(frozen=True)
class Course:
    """One store, one ingestion mode and the documents.

    `filled` and `killed` start with a new store in a new folder; `replaced` continues with the store filled last.
    """

    store: str
    way: str
    plan: Plan
    data: Path
    """Folder with documents, queries and vectors."""
    ids: Sequence[str]
    vectors: Vectors
    asked: Vectors
    folder: Path
    """Working folder; its content is deleted."""
    tell: Progress

    @property
    def place(self) -> Path:
        """Folder of the current store."""
        return next((self.folder / "stores").iterdir())

    def filled(self, documents: int, steps: Sequence[str] = ALL, *, reopen: bool = True) -> Filled:
        """Fill a new store with the first documents, read and search it, then reopen it.

        Stops at the first failure.
        """
        fresh(self.folder)
        result = Filled(documents=documents)
        done = self._attempt(self._order(steps, 0, documents), documents, "")
        self._take(result, done, "at once")
        if result.failure is not None or not reopen:
            return result
        result.size = size_of(self.place)
        before = replace(result)
        again = [step for step in steps if step != "put"]
        done = self._attempt(self._order(again, documents, documents), documents, AGAIN)
        self._take(result, done, "reopened")
        if result.failure is None and "search" in steps and before.rankings:
            result.moved = len(moved(before.rankings, result.rankings))
            result.failure = self._compare(before, result, AGAIN)
        return result

    def killed(self, documents: int, kills: Sequence[Kill], tell: Callable[[ReadBack], None]) -> Failure | None:
        """Fill a new store, killing it at each point; return the first failure.

        After each kill, the next process reads the store and continues to put documents. Finally the store is filled
        to the end, closed, and read by another process. `tell` receives each read-back.
        """
        fresh(self.folder)
        committed = begun = 0
        caught = ""
        for number, kill in enumerate([*kills, None]):
            order = self._going_on(kill, committed, begun, documents, crashed=number > 0)
            again = KILLED if number else ""
            told = self._told(again.strip() or "before kill -9")
            done = attempt(order, self.ids, timeout=self.plan.timeout, tell=told, kill=kill, again=again)
            reading = _reading(done, f"kill {number} {caught}")
            if reading is not None:
                tell(reading)
            harmed = self._harmed(reading, KILLED, begun)
            if harmed is not None:
                return replace(harmed, guess=begun)
            # Documents begun before an earlier kill may be stored as well.
            committed, begun = done.committed, max(begun, done.begun)
            if done.failure is not None:
                return replace(done.failure, guess=begun, after=max(done.failure.after, committed))
            caught = done.caught
        done = self._attempt(self._order(["read"], documents, documents), documents, KILLED)
        reading = _reading(done, "killed, then filled to the end")
        if reading is not None:
            tell(reading)
        return self._harmed(reading, KILLED, documents) or done.failure

    def _going_on(self, kill: Kill | None, committed: int, begun: int, documents: int, *, crashed: bool) -> Order:
        """Build the next task of a store that is killed while it fills.

        It reads the store if it was killed before, then puts documents until the next kill or the end.
        """
        steps = ["read", "put"] if crashed else ["put"]
        if kill is None:
            return replace(self._order(steps, committed, documents), promised=committed, possible=begun)
        # Even with few documents, some are committed before the kill and some remain to be put.
        every = min(self.plan.commit_every or self.plan.batch, max(1, (kill.at - committed) // 2))
        at = max(kill.at, committed)
        stop = min(documents, at + max(every + 1, min(3 * self.plan.batch, (documents - at) // 2)))
        order = self._order(steps, committed, stop)
        size = min(order.batch, every)
        return replace(order, promised=committed, possible=begun, batch=size, commit_every=every, hold=True)

    def replaced(self, before: Filled, tell: Callable[[ReadBack], None]) -> Failure | None:
        """Replace some documents of the store filled last, restore them, and check it.

        `before` has the rankings of a store with the same documents. `tell` receives each read-back.
        """
        documents = before.documents
        steps = ["replace", "read", "search"] if len(self.asked) else ["replace", "read"]
        done = self._attempt(self._order(steps, documents, documents), documents, REPLACED)
        for step, when, stage in (
            ("replace", "replaced", "replacing"),
            ("read", "replaced, then as before", named("reading back", REPLACED)),
        ):
            reading = _reading(done, when, step)
            if reading is not None:
                tell(reading)
                if not reading.sound:
                    return _harm(reading, stage, documents)
        if "search" in done.found:
            again = Filled(documents=documents, about={"searches": done.found["open"]["searches"]})
            again.rankings = pairs(done.found["search"]["rankings"])
            wrong = self._ordered(again, REPLACED, done.found["search"]["others"])
            if wrong is None and before.rankings:
                wrong = self._compare(before, again, REPLACED)
                before.notes += again.notes
            if wrong is not None:
                return wrong
        if done.failure is not None:
            return done.failure
        done = self._attempt(self._order(["read"], documents, documents), documents, REPLACED)
        reading = _reading(done, "replaced, then reopened")
        if reading is not None:
            tell(reading)
        return self._harmed(reading, REPLACED, documents) or done.failure

    def kills(self, documents: int, put: float, commit: float) -> list[Kill]:
        """Choose the kill points: spread over the documents with random offsets.

        If there are several, the last kill happens during a commit. `put` and `commit` are the maximum delays in
        seconds.
        """
        chance = random.Random(self.plan.seed)  # noqa: S311 - points, no secret
        number = self.plan.kills
        shares = [(place + 1 + 0.5 * (chance.random() - 0.5)) / (number + 1) for place in range(number)]
        points = sorted(self.plan.kill_at or [max(1, int(share * documents)) for share in shares])
        found = [Kill(min(at, documents), False, put, self.plan.seed + place) for place, at in enumerate(points)]
        if len(found) > 1:
            found[-1] = replace(found[-1], committing=True, wait=commit)
        return found

    def _order(self, steps: Sequence[str], start: int, stop: int) -> Order:
        return Order(
            store=self.store,
            path=[one for one in sys.path if one],
            place=str(self.place),
            data=str(self.data),
            results=str(self.folder / "results"),
            steps=list(steps),
            start=start,
            stop=stop,
            promised=stop,
            possible=stop,
            batch=self.plan.size(self.way),
            commit_every=self.plan.commit_every,
            k=self.plan.k,
            seed=self.plan.seed,
        )

    def _attempt(self, order: Order, after: int, again: str) -> Attempt:
        done = attempt(order, self.ids, timeout=self.plan.timeout, tell=self._told(again.strip()), again=again)
        if done.failure is not None and "put" not in order.steps:
            done.failure = replace(done.failure, after=after)
        return done

    def _told(self, more: str) -> Progress:
        words = f" {more}" if more else ""
        return lambda stage, done, total: self.tell(f"{self.store} {self.way}: {stage}{words}", done, total)

    def _take(self, result: Filled, done: Attempt, when: str) -> None:
        """Record the results of an attempt and check them."""
        found, again = done.found, AGAIN if when == "reopened" else ""
        if "open" in found:
            result.about = {**found["open"]["about"], "searches": found["open"]["searches"]}
            result.opening = found["open"]["seconds"] if again else result.opening
        result.put = found.get("put", {}).get("put", result.put)
        result.commit = found.get("put", {}).get("commit", result.commit)
        result.failure = done.failure
        reading = _reading(done, when)
        if reading is not None:
            result.readings.append(reading)
        wrong = self._harmed(reading, again, result.documents)
        if "search" in found and wrong is None:
            result.rankings = pairs(found["search"]["rankings"])
            if not again:
                result.search = found["search"]["search"]
            wrong = self._ordered(result, again, found["search"]["others"])
        # A wrong result precedes the error that ended the process.
        result.failure = wrong or result.failure

    def _harmed(self, reading: ReadBack | None, again: str, after: int) -> Failure | None:
        if reading is None or reading.sound:
            return None
        return _harm(reading, named("reading back", again), after)

    def _ordered(self, result: Filled, again: str, others: int) -> Failure | None:
        """Check rankings and neighbour recall; return the failure, if any.

        `others` is the number of rankings in which a hit has the text of another document.
        """
        n, vectors = result.documents, self.vectors
        of_vectors = result.about.get("searches", "vectors") == "vectors"
        truth = Truth(self.ids[:n], vectors[:n], self.asked, self.plan.k) if of_vectors and n else None
        cosines = truth.cosines(result.rankings) if truth is not None else None
        fewest = truth.fewest() if truth is not None else None
        result.disorder = disorder(result.rankings, cosines, frozenset(self.ids[:n]), self.plan.k, fewest)
        if others:
            result.disorder["with a text that is not the document's"] = others
        if truth is not None:
            result.agreement = truth.agreement(result.rankings)
        wrong = [f"{count:,} of {len(result.rankings):,} rankings {what}" for what, count in result.disorder.items()]
        alike = set(result.disorder)
        if result.agreement < FLOOR:
            wrong.append(f"neighbour recall is {result.agreement:.1%}; expected at least {FLOOR:.0%}")
            alike.add("neighbours")
        return Failure(named("searching", again), ", ".join(wrong), frozenset(alike), True, n) if wrong else None

    def _compare(self, before: Filled, after: Filled, again: str) -> Failure | None:
        """Return a failure if neighbour recall dropped by more than the tolerance.

        A smaller drop is added to the notes. For a store that ranks by words, the reference is its own earlier
        rankings instead of the exact neighbours.
        """
        changed = len(moved(before.rankings, after.rankings))
        if not changed:
            return None
        number = len(before.rankings)
        if math.isnan(before.agreement):
            what, old, new = "share of the earlier hits", 1.0, kept_share(before.rankings, after.rankings)
        else:
            what, old, new = "neighbour recall", before.agreement, after.agreement
        # One neighbour of one query is the smallest possible difference; with few queries it is not evidence.
        tolerance = max(TOLERANCE, 1 / (number * min(self.plan.k, before.documents)))
        drop = f"a drop of {100 * tolerance:.2g} percentage points"
        verb = "differs" if changed == 1 else "differ"
        words = f"{changed:,} of {number:,} rankings {verb}{again}: {what} {new:.2%}, before {old:.2%}"
        if old - new > tolerance + 1e-9:
            words += f" (tolerance: {drop})"
            return Failure(named("searching", again), words, frozenset({"moved"}), True, before.documents)
        after.notes.append(f"{words} (not a failure; tolerance: {drop})")
        return None


def _reading(done: Attempt, when: str, step: str = "read") -> ReadBack | None:
    if step not in done.found:
        return None
    return replace(from_data(ReadBack, done.found[step], file="what a store gave back"), when=when)


def _harm(reading: ReadBack, stage: str, after: int) -> Failure:
    first = reading.harms[0]
    harmed = frozenset(reading.harmed)
    return Failure(stage, told(reading), harmed, True, after, first.id, guess=first.place, documents_lost=True)


def fresh(folder: Path) -> None:
    """Empty a working folder and create a store folder with a unique name in it.

    The name must be new, because a server outside the folder may identify the store by it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "results").mkdir(parents=True)
    (folder / "stores" / uuid4().hex[:12]).mkdir(parents=True)


def size_of(folder: Path) -> int | None:
    """Return the size of all files in bytes.

    None if there are no files (the store is elsewhere).
    """
    sizes = [one.stat().st_size for one in folder.rglob("*") if one.is_file()] if folder.exists() else []
    return int(np.sum(sizes)) if sizes else None
