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
from ragauge.files.serialization import from_json_data
from ragauge.store_stress.child_process import (
    AFTER_KILL,
    AFTER_REOPENING,
    AFTER_REPLACING,
    AttemptFailure,
    ProgressCallback,
    ScheduledKill,
    StressAttempt,
    run_attempt,
    stage_name,
)
from ragauge.store_stress.plan import StressSettings, StressWorkerTask
from ragauge.store_stress.result_checks import (
    ExactCosines,
    Ranking,
    changed_rankings,
    count_ranking_errors,
    describe_read_back,
    parse_rankings,
    share_of_kept_hits,
)
from ragauge.store_stress.results import ReadBack

ALL_STEPS = ("put", "read", "search")
MAX_RECALL_DROP = 0.05
"""Largest drop of neighbour recall after reopening or replacing that is only noted, not a failure."""
MIN_NEIGHBOUR_RECALL = 0.5
"""Minimum neighbour recall of a store that searches by vectors; below it the search is a failure."""


@dataclass
class FillResult:
    """Results of filling, reading and searching a store, before and after reopening.

    `put`, `commit` and `search` are durations in nanoseconds, `opening` is in seconds, `size` in bytes.
    """

    failure: AttemptFailure | None = None
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
class StressScenario:
    """One store, one ingestion mode and the documents.

    `filled` and `killed` start with a new store in a new folder; `replaced` continues with the store filled last.
    """

    store: str
    way: str
    plan: StressSettings
    data: Path
    """Folder with documents, queries and vectors."""
    ids: Sequence[str]
    vectors: Vectors
    asked: Vectors
    folder: Path
    """Working folder; its content is deleted."""
    tell: ProgressCallback

    @property
    def place(self) -> Path:
        """Folder of the current store."""
        return next((self.folder / "stores").iterdir())

    def filled(self, documents: int, steps: Sequence[str] = ALL_STEPS, *, reopen: bool = True) -> FillResult:
        """Fill a new store with the first documents, read and search it, then reopen it.

        Stops at the first failure.
        """
        reset_folder(self.folder)
        result = FillResult(documents=documents)
        done = self._run_task(self._worker_task(steps, 0, documents), documents, "")
        self._record_attempt(result, done, "at once")
        if result.failure is not None or not reopen:
            return result
        result.size = folder_size_bytes(self.place)
        before = replace(result)
        again = [step for step in steps if step != "put"]
        done = self._run_task(self._worker_task(again, documents, documents), documents, AFTER_REOPENING)
        self._record_attempt(result, done, "reopened")
        if result.failure is None and "search" in steps and before.rankings:
            result.moved = len(changed_rankings(before.rankings, result.rankings))
            result.failure = self._compare_rankings(before, result, AFTER_REOPENING)
        return result

    def killed(
        self, documents: int, kills: Sequence[ScheduledKill], tell: Callable[[ReadBack], None]
    ) -> AttemptFailure | None:
        """Fill a new store, killing it at each point; return the first failure.

        After each kill, the next process reads the store and continues to put documents. Finally the store is filled
        to the end, closed, and read by another process. `tell` receives each read-back.
        """
        reset_folder(self.folder)
        committed = begun = 0
        caught = ""
        for number, kill in enumerate([*kills, None]):
            order = self._task_after_kill(kill, committed, begun, documents, crashed=number > 0)
            again = AFTER_KILL if number else ""
            told = self._stage_progress(again.strip() or "before kill -9")
            done = run_attempt(order, self.ids, timeout=self.plan.timeout, tell=told, kill=kill, again=again)
            reading = _read_back_result(done, f"kill {number} {caught}")
            if reading is not None:
                tell(reading)
            harmed = self._corruption_failure(reading, AFTER_KILL, begun)
            if harmed is not None:
                return replace(harmed, guess=begun)
            # Documents begun before an earlier kill may be stored as well.
            committed, begun = done.committed, max(begun, done.begun)
            if done.failure is not None:
                return replace(done.failure, guess=begun, after=max(done.failure.after, committed))
            caught = done.caught
        done = self._run_task(self._worker_task(["read"], documents, documents), documents, AFTER_KILL)
        reading = _read_back_result(done, "killed, then filled to the end")
        if reading is not None:
            tell(reading)
        return self._corruption_failure(reading, AFTER_KILL, documents) or done.failure

    def _task_after_kill(
        self, kill: ScheduledKill | None, committed: int, begun: int, documents: int, *, crashed: bool
    ) -> StressWorkerTask:
        """Build the next task of a store that is killed while it fills.

        It reads the store if it was killed before, then puts documents until the next kill or the end.
        """
        steps = ["read", "put"] if crashed else ["put"]
        if kill is None:
            return replace(self._worker_task(steps, committed, documents), promised=committed, possible=begun)
        # Even with few documents, some are committed before the kill and some remain to be put.
        every = min(self.plan.commit_every or self.plan.batch, max(1, (kill.at - committed) // 2))
        at = max(kill.at, committed)
        stop = min(documents, at + max(every + 1, min(3 * self.plan.batch, (documents - at) // 2)))
        order = self._worker_task(steps, committed, stop)
        size = min(order.batch, every)
        return replace(order, promised=committed, possible=begun, batch=size, commit_every=every, hold=True)

    def replaced(self, before: FillResult, tell: Callable[[ReadBack], None]) -> AttemptFailure | None:
        """Replace some documents of the store filled last, restore them, and check it.

        `before` has the rankings of a store with the same documents. `tell` receives each read-back.
        """
        documents = before.documents
        steps = ["replace", "read", "search"] if len(self.asked) else ["replace", "read"]
        done = self._run_task(self._worker_task(steps, documents, documents), documents, AFTER_REPLACING)
        for step, when, stage in (
            ("replace", "replaced", "replacing"),
            ("read", "replaced, then as before", stage_name("reading back", AFTER_REPLACING)),
        ):
            reading = _read_back_result(done, when, step)
            if reading is not None:
                tell(reading)
                if not reading.sound:
                    return _failure_from_corruption(reading, stage, documents)
        if "search" in done.found:
            again = FillResult(documents=documents, about={"searches": done.found["open"]["searches"]})
            again.rankings = parse_rankings(done.found["search"]["rankings"])
            wrong = self._check_rankings(again, AFTER_REPLACING, done.found["search"]["others"])
            if wrong is None and before.rankings:
                wrong = self._compare_rankings(before, again, AFTER_REPLACING)
                before.notes += again.notes
            if wrong is not None:
                return wrong
        if done.failure is not None:
            return done.failure
        done = self._run_task(self._worker_task(["read"], documents, documents), documents, AFTER_REPLACING)
        reading = _read_back_result(done, "replaced, then reopened")
        if reading is not None:
            tell(reading)
        return self._corruption_failure(reading, AFTER_REPLACING, documents) or done.failure

    def kills(self, documents: int, put: float, commit: float) -> list[ScheduledKill]:
        """Choose the kill points: spread over the documents with random offsets.

        If there are several, the last kill happens during a commit. `put` and `commit` are the maximum delays in
        seconds.
        """
        chance = random.Random(self.plan.seed)  # noqa: S311 - points, no secret
        number = self.plan.kills
        shares = [(place + 1 + 0.5 * (chance.random() - 0.5)) / (number + 1) for place in range(number)]
        points = sorted(self.plan.kill_at or [max(1, int(share * documents)) for share in shares])
        found = [
            ScheduledKill(min(at, documents), False, put, self.plan.seed + place) for place, at in enumerate(points)
        ]
        if len(found) > 1:
            found[-1] = replace(found[-1], committing=True, wait=commit)
        return found

    def _worker_task(self, steps: Sequence[str], start: int, stop: int) -> StressWorkerTask:
        return StressWorkerTask(
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

    def _run_task(self, order: StressWorkerTask, after: int, again: str) -> StressAttempt:
        done = run_attempt(
            order, self.ids, timeout=self.plan.timeout, tell=self._stage_progress(again.strip()), again=again
        )
        if done.failure is not None and "put" not in order.steps:
            done.failure = replace(done.failure, after=after)
        return done

    def _stage_progress(self, more: str) -> ProgressCallback:
        words = f" {more}" if more else ""
        return lambda stage, done, total: self.tell(f"{self.store} {self.way}: {stage}{words}", done, total)

    def _record_attempt(self, result: FillResult, done: StressAttempt, when: str) -> None:
        """Record the results of an attempt and check them."""
        found, again = done.found, AFTER_REOPENING if when == "reopened" else ""
        if "open" in found:
            result.about = {**found["open"]["about"], "searches": found["open"]["searches"]}
            result.opening = found["open"]["seconds"] if again else result.opening
        result.put = found.get("put", {}).get("put", result.put)
        result.commit = found.get("put", {}).get("commit", result.commit)
        result.failure = done.failure
        reading = _read_back_result(done, when)
        if reading is not None:
            result.readings.append(reading)
        wrong = self._corruption_failure(reading, again, result.documents)
        if "search" in found and wrong is None:
            result.rankings = parse_rankings(found["search"]["rankings"])
            if not again:
                result.search = found["search"]["search"]
            wrong = self._check_rankings(result, again, found["search"]["others"])
        # A wrong result precedes the error that ended the process.
        result.failure = wrong or result.failure

    def _corruption_failure(self, reading: ReadBack | None, again: str, after: int) -> AttemptFailure | None:
        if reading is None or reading.sound:
            return None
        return _failure_from_corruption(reading, stage_name("reading back", again), after)

    def _check_rankings(self, result: FillResult, again: str, others: int) -> AttemptFailure | None:
        """Check rankings and neighbour recall; return the failure, if any.

        `others` is the number of rankings in which a hit has the text of another document.
        """
        n, vectors = result.documents, self.vectors
        of_vectors = result.about.get("searches", "vectors") == "vectors"
        truth = ExactCosines(self.ids[:n], vectors[:n], self.asked, self.plan.k) if of_vectors and n else None
        cosines = truth.cosines(result.rankings) if truth is not None else None
        fewest = truth.fewest() if truth is not None else None
        result.disorder = count_ranking_errors(result.rankings, cosines, frozenset(self.ids[:n]), self.plan.k, fewest)
        if others:
            result.disorder["with a text that is not the document's"] = others
        if truth is not None:
            result.agreement = truth.agreement(result.rankings)
        wrong = [f"{count:,} of {len(result.rankings):,} rankings {what}" for what, count in result.disorder.items()]
        alike = set(result.disorder)
        if result.agreement < MIN_NEIGHBOUR_RECALL:
            wrong.append(f"neighbour recall is {result.agreement:.1%}; expected at least {MIN_NEIGHBOUR_RECALL:.0%}")
            alike.add("neighbours")
        return (
            AttemptFailure(stage_name("searching", again), ", ".join(wrong), frozenset(alike), True, n)
            if wrong
            else None
        )

    def _compare_rankings(self, before: FillResult, after: FillResult, again: str) -> AttemptFailure | None:
        """Return a failure if neighbour recall dropped by more than the tolerance.

        A smaller drop is added to the notes. For a store that ranks by words, the reference is its own earlier
        rankings instead of the exact neighbours.
        """
        changed = len(changed_rankings(before.rankings, after.rankings))
        if not changed:
            return None
        number = len(before.rankings)
        if math.isnan(before.agreement):
            what, old, new = "share of the earlier hits", 1.0, share_of_kept_hits(before.rankings, after.rankings)
        else:
            what, old, new = "neighbour recall", before.agreement, after.agreement
        # One neighbour of one query is the smallest possible difference; with few queries it is not evidence.
        tolerance = max(MAX_RECALL_DROP, 1 / (number * min(self.plan.k, before.documents)))
        drop = f"a drop of {100 * tolerance:.2g} percentage points"
        verb = "differs" if changed == 1 else "differ"
        words = f"{changed:,} of {number:,} rankings {verb}{again}: {what} {new:.2%}, before {old:.2%}"
        if old - new > tolerance + 1e-9:
            words += f" (tolerance: {drop})"
            return AttemptFailure(stage_name("searching", again), words, frozenset({"moved"}), True, before.documents)
        after.notes.append(f"{words} (not a failure; tolerance: {drop})")
        return None


def _read_back_result(done: StressAttempt, when: str, step: str = "read") -> ReadBack | None:
    if step not in done.found:
        return None
    return replace(from_json_data(ReadBack, done.found[step], file="what a store gave back"), when=when)


def _failure_from_corruption(reading: ReadBack, stage: str, after: int) -> AttemptFailure:
    first = reading.harms[0]
    harmed = frozenset(reading.harmed)
    return AttemptFailure(
        stage, describe_read_back(reading), harmed, True, after, first.id, guess=first.place, documents_lost=True
    )


def reset_folder(folder: Path) -> None:
    """Empty a working folder and create a store folder with a unique name in it.

    The name must be new, because a server outside the folder may identify the store by it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "results").mkdir(parents=True)
    (folder / "stores" / uuid4().hex[:12]).mkdir(parents=True)


def folder_size_bytes(folder: Path) -> int | None:
    """Return the size of all files in bytes.

    None if there are no files (the store is elsewhere).
    """
    sizes = [one.stat().st_size for one in folder.rglob("*") if one.is_file()] if folder.exists() else []
    return int(np.sum(sizes)) if sizes else None
