"""The course that a store is put through in one way: fill, read, ask, close, open again; and, afresh, kill."""

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

from ragauge.formats.nouns import from_data
from ragauge.knowledge.stress.attempts import Attempt, Failure, Kill, Progress, attempt
from ragauge.knowledge.stress.plan import Order, Plan
from ragauge.knowledge.stress.rankings import Ranking, Truth, disorder, moved, pairs
from ragauge.knowledge.stress.reading import told
from ragauge.ordeals import ReadBack
from ragauge.seams import Vectors

ALL = ("put", "read", "search")
FALLEN = 0.01
"""Rankings may change on reopening where the engine searches approximately, but they must not get worse by more."""
AGAIN = " after reopening"
KILLED = " after kill -9"


@dataclass
class Filled:
    """What came of filling a store, reading it and asking it, and of doing so again once it was opened anew."""

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


@dataclass(frozen=True)
class Course:
    """One store, one way, and the documents; each time it begins in a new folder."""

    store: str
    way: str
    plan: Plan
    data: Path
    """The folder of documents, queries and vectors."""
    ids: Sequence[str]
    vectors: Vectors
    asked: Vectors
    folder: Path
    """For whatever it needs."""
    tell: Progress

    @property
    def place(self) -> Path:
        """The folder of the store that is being tried."""
        return next((self.folder / "stores").iterdir())

    def filled(self, documents: int, steps: Sequence[str] = ALL, *, reopen: bool = True) -> Filled:
        """Fill a new store with the first documents, and go on from there until it breaks."""
        fresh(self.folder)
        result = Filled(documents=documents)
        done = self._attempt(self._order(steps, 0, documents), documents, "")
        self._take(result, done, "at once")
        if result.failure is not None or not reopen:
            return result
        result.size = size_of(self.place)
        before, agreed = result.rankings, result.agreement
        again = [step for step in steps if step != "put"]
        done = self._attempt(self._order(again, documents, documents), documents, AGAIN)
        self._take(result, done, "reopened")
        if result.failure is None and "search" in steps and before:
            self._compare(result, before, agreed)
        return result

    def killed(self, documents: int, kills: Sequence[Kill], tell: Callable[[ReadBack], None]) -> Failure | None:
        """Fill a new store, kill it on the way, and read it after each time; then fill it to the end."""
        fresh(self.folder)
        start = 0
        for number, kill in enumerate(kills):
            stop = min(documents, kill.at + 3 * self.plan.batch)
            order = self._order(["put"], start, stop, hold=True)
            again = KILLED if number else ""
            done = attempt(order, self.ids, timeout=self.plan.timeout, tell=self._told("kill"), kill=kill, again=again)
            if done.failure is not None:
                return done.failure
            order = replace(
                self._order(["read"], done.committed, done.committed), promised=done.committed, possible=done.begun
            )
            looked = self._attempt(order, done.begun, KILLED)
            reading = _reading(looked, f"kill {number + 1} {done.caught}")
            if reading is not None:
                tell(reading)
            failure = looked.failure or self._harmed(reading, KILLED, done.begun)
            if failure is not None:
                return replace(failure, guess=done.begun, after=done.begun)
            start = done.committed
        if not kills or documents == 0:
            return None
        done = self._attempt(self._order(["put", "read"], start, documents), documents, KILLED)
        reading = _reading(done, "killed, then filled to the end")
        if reading is not None:
            tell(reading)
        return done.failure or self._harmed(reading, KILLED, documents)

    def kills(self, documents: int, put: float, commit: float) -> list[Kill]:
        """When to kill: at points that divide the documents, moved by chance; the last one while it commits."""
        chance = random.Random(self.plan.seed)  # noqa: S311 - points, no secret
        number = self.plan.kills
        shares = [(place + 1 + 0.5 * (chance.random() - 0.5)) / (number + 1) for place in range(number)]
        points = self.plan.kill_at or [int(share * documents) for share in shares]
        found = [Kill(min(at, documents), False, put, self.plan.seed + place) for place, at in enumerate(points)]
        if len(found) > 1:
            found[-1] = replace(found[-1], committing=True, wait=commit)
        return found

    def _order(self, steps: Sequence[str], start: int, stop: int, *, hold: bool = False) -> Order:
        size = self.plan.size(self.way)
        every = self.plan.commit_every or (max(size, self.plan.batch) if hold else None)
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
            batch=size,
            commit_every=every,
            k=self.plan.k,
            seed=self.plan.seed,
            hold=hold,
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
        """Keep what was found, and see whether it is right."""
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
            wrong = self._ordered(result, again)
        # What was wrong before it broke comes first.
        result.failure = wrong or result.failure

    def _harmed(self, reading: ReadBack | None, again: str, after: int) -> Failure | None:
        if reading is None or reading.sound:
            return None
        first = reading.harms[0]
        guess = first.place
        return Failure(
            f"reading back{again}", told(reading), frozenset(reading.harmed), True, after, first.id, guess=guess
        )

    def _ordered(self, result: Filled, again: str) -> Failure | None:
        n, vectors = result.documents, self.vectors
        of_vectors = result.about.get("searches", "vectors") == "vectors"
        truth = Truth(self.ids[:n], vectors[:n], self.asked, self.plan.k) if of_vectors and n else None
        cosines = truth.cosines(result.rankings) if truth is not None else None
        result.disorder = disorder(result.rankings, cosines, frozenset(self.ids[:n]), self.plan.k)
        if truth is not None:
            result.agreement = truth.agreement(result.rankings)
        if not result.disorder:
            return None
        words = ", ".join(
            f"{count:,} of {len(result.rankings):,} rankings {what}" for what, count in result.disorder.items()
        )
        return Failure(f"searching{again}", words, frozenset(result.disorder), True, n)

    def _compare(self, result: Filled, before: Sequence[Ranking], agreed: float) -> None:
        places = moved(before, result.rankings)
        result.moved = len(places)
        # What found every true neighbour has no reason to find others; the approximate may, but none that are worse.
        allowed = FALLEN if agreed < 1 else -1.0
        if places and not result.agreement >= agreed - allowed:
            words = f"{len(places):,} of {len(before):,} rankings are others than before it was closed"
            if not math.isnan(agreed):
                words += f", and have {result.agreement:.2%} of the true neighbours instead of {agreed:.2%}"
            result.failure = Failure(f"searching{AGAIN}", words, frozenset({"moved"}), True, result.documents)


def _reading(done: Attempt, when: str) -> ReadBack | None:
    if "read" not in done.found:
        return None
    return replace(from_data(ReadBack, done.found["read"], file="what a store gave back"), when=when)


def fresh(folder: Path) -> None:
    """An empty folder, and in it one for a store that no other ever had: servers elsewhere go by its name."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "results").mkdir(parents=True)
    (folder / "stores" / uuid4().hex[:12]).mkdir(parents=True)


def size_of(folder: Path) -> int | None:
    """The bytes of all files; None where there are none: the store lives elsewhere."""
    sizes = [one.stat().st_size for one in folder.rglob("*") if one.is_file()] if folder.exists() else []
    return int(np.sum(sizes)) if sizes else None
