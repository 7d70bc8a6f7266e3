"""Stress scenario of one store and ingestion mode: fill, reopen, kill, replace."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from ragauge.compute.progress import ProgressCallback
from ragauge.core.protocols import Vectors
from ragauge.files.serialization import from_json_data
from ragauge.store_stress.attempts import AttemptFailure, ScheduledKill, StressAttempt, run_attempt
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
from ragauge.store_stress.results import STATE_SUFFIXES, ReadBack, Stage, StoreState

ALL_STEPS = ("put", "read", "search")
MAX_RECALL_DROP = 0.05
"""Largest drop of neighbour recall after reopening or replacing that is only noted, not a failure."""
MIN_NEIGHBOUR_RECALL = 0.5
"""Minimum neighbour recall of a store that searches by vectors; below it the search is a failure."""


@dataclass
class FillResult:
    """Results of filling, reading and searching a store, before and after reopening.

    `put`, `commit` and `search` are durations in nanoseconds, `size` is in bytes.
    """

    failure: AttemptFailure | None = None
    put: list[int] = field(default_factory=list)
    commit: list[int] = field(default_factory=list)
    search: list[int] = field(default_factory=list)
    read_backs: list[ReadBack] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)
    ranking_errors: dict[str, int] = field(default_factory=dict)
    neighbour_recall: float = float("nan")
    changed_rankings: int | None = None
    opening_seconds: float = float("nan")
    size: int | None = None
    description: dict[str, Any] = field(default_factory=dict)
    documents: int = 0
    notes: list[str] = field(default_factory=list)
    """Differences within the tolerance."""


@dataclass(frozen=True)
class StressScenario:
    """One store, one ingestion mode and the documents.

    `fill` and `fill_with_kills` start with a new store in a new folder. `replace_documents` continues with the store
    filled last.
    """

    store: str
    mode: str
    settings: StressSettings
    data: Path
    """Folder with documents, queries and vectors."""
    ids: Sequence[str]
    vectors: Vectors
    query_vectors: Vectors
    folder: Path
    """Working folder; its content is deleted."""
    progress: ProgressCallback

    @property
    def store_folder(self) -> Path:
        return next((self.folder / "stores").iterdir())

    def fill(self, documents: int, steps: Sequence[str] = ALL_STEPS, *, reopen: bool = True) -> FillResult:
        """Fill a new store with the first documents, read and search it, then reopen it.

        Stops at the first failure.
        """
        reset_folder(self.folder)
        result = FillResult(documents=documents)
        attempt = self._run_task(self._worker_task(steps, 0, documents), documents)
        self._record_attempt(result, attempt, "new")
        if result.failure is not None or not reopen:
            return result
        result.size = folder_size_bytes(self.store_folder)
        before = replace(result)
        reopen_steps = [step for step in steps if step != "put"]
        attempt = self._run_task(self._worker_task(reopen_steps, documents, documents), documents, "reopened")
        self._record_attempt(result, attempt, "reopened")
        if result.failure is None and "search" in steps and before.rankings:
            result.changed_rankings = len(changed_rankings(before.rankings, result.rankings))
            result.failure = self._compare_rankings(before, result, "reopened")
        return result

    def fill_with_kills(
        self, documents: int, kills: Sequence[ScheduledKill], record: Callable[[ReadBack], None]
    ) -> AttemptFailure | None:
        """Fill a new store, killing it at each point; return the first failure.

        After each kill, the next process reads the store and continues to put documents. Finally the store is filled
        to the end, closed, and read by another process. `record` receives each read-back.
        """
        reset_folder(self.folder)
        n_committed = n_begun = 0
        last_activity = ""
        for number, kill in enumerate([*kills, None]):
            task = self._task_after_kill(kill, n_committed, n_begun, documents, was_killed=number > 0)
            state: StoreState = "killed" if number else "new"
            report = self._stage_progress(STATE_SUFFIXES[state].strip() or "before kill -9")
            attempt = run_attempt(
                task, self.ids, timeout=self.settings.timeout, progress=report, kill=kill, state=state
            )
            read_back = _read_back_result(attempt, f"kill {number} {last_activity}", state, kill=number)
            if read_back is not None:
                record(read_back)
            corruption = _corruption_failure(read_back, state, n_begun)
            if corruption is not None:
                return replace(corruption, suspected_prefix=n_begun)
            # Documents begun before an earlier kill may be stored as well.
            n_committed, n_begun = attempt.n_committed, max(n_begun, attempt.n_begun)
            if attempt.failure is not None:
                return replace(attempt.failure, suspected_prefix=n_begun, after=max(attempt.failure.after, n_committed))
            last_activity = attempt.activity
        attempt = self._run_task(self._worker_task(["read"], documents, documents), documents, "killed")
        read_back = _read_back_result(attempt, "killed, then filled to the end", "killed")
        if read_back is not None:
            record(read_back)
        return _corruption_failure(read_back, "killed", documents) or attempt.failure

    def _task_after_kill(
        self, kill: ScheduledKill | None, n_committed: int, n_begun: int, documents: int, *, was_killed: bool
    ) -> StressWorkerTask:
        """Build the next task of a store that is killed while it fills.

        It reads the store if it was killed before, then puts documents until the next kill or the end.
        """
        steps = ["read", "put"] if was_killed else ["put"]
        if kill is None:
            return replace(self._worker_task(steps, n_committed, documents), n_required=n_committed, n_allowed=n_begun)
        # Even with few documents, some are committed before the kill and some remain to be put.
        interval = min(self.settings.commit_every or self.settings.batch, max(1, (kill.at - n_committed) // 2))
        at = max(kill.at, n_committed)
        stop = min(documents, at + max(interval + 1, min(3 * self.settings.batch, (documents - at) // 2)))
        task = self._worker_task(steps, n_committed, stop)
        size = min(task.batch, interval)
        return replace(
            task, n_required=n_committed, n_allowed=n_begun, batch=size, commit_every=interval, wait_for_kill=True
        )

    def replace_documents(self, before: FillResult, record: Callable[[ReadBack], None]) -> AttemptFailure | None:
        """Replace some documents of the store filled last, restore them, and check it.

        `before` has the rankings of a store with the same documents. `record` receives each read-back.
        """
        documents = before.documents
        steps = ["replace", "read", "search"] if len(self.query_vectors) else ["replace", "read"]
        attempt = self._run_task(self._worker_task(steps, documents, documents), documents, "replaced")
        for step, when, action in (
            ("replace", "replaced", "replacing"),
            ("read", "replaced, then as before", "reading back"),
        ):
            read_back = _read_back_result(attempt, when, "replaced", step)
            if read_back is not None:
                record(read_back)
                if not read_back.is_intact:
                    return _failure_from_corruption(read_back, Stage(action, "replaced"), documents)
        if "search" in attempt.results:
            after = FillResult(documents=documents, description={"searches": attempt.results["open"]["searches"]})
            after.rankings = parse_rankings(attempt.results["search"]["rankings"])
            failure = self._check_rankings(after, "replaced", attempt.results["search"]["others"])
            if failure is None and before.rankings:
                failure = self._compare_rankings(before, after, "replaced")
                before.notes += after.notes
            if failure is not None:
                return failure
        if attempt.failure is not None:
            return attempt.failure
        attempt = self._run_task(self._worker_task(["read"], documents, documents), documents, "replaced")
        read_back = _read_back_result(attempt, "replaced, then reopened", "replaced")
        if read_back is not None:
            record(read_back)
        return _corruption_failure(read_back, "replaced", documents) or attempt.failure

    def plan_kills(self, documents: int, put_s: float, commit_s: float) -> list[ScheduledKill]:
        """Choose the kill points: spread over the documents with random offsets.

        If there are several, the last kill happens during a commit. `put_s` and `commit_s` are the maximum delays in
        seconds.
        """
        rng = random.Random(self.settings.seed)  # noqa: S311 - points, no secret
        number = self.settings.kills
        shares = [(index + 1 + 0.5 * (rng.random() - 0.5)) / (number + 1) for index in range(number)]
        points = sorted(self.settings.kill_at or [max(1, int(share * documents)) for share in shares])
        kills = [
            ScheduledKill(min(point, documents), False, put_s, self.settings.seed + index)
            for index, point in enumerate(points)
        ]
        if len(kills) > 1:
            kills[-1] = replace(kills[-1], committing=True, wait=commit_s)
        return kills

    def _worker_task(self, steps: Sequence[str], start: int, stop: int) -> StressWorkerTask:
        return StressWorkerTask(
            store=self.store,
            folder=str(self.store_folder),
            data=str(self.data),
            steps=list(steps),
            start=start,
            stop=stop,
            n_required=stop,
            n_allowed=stop,
            batch=self.settings.size(self.mode),
            commit_every=self.settings.commit_every,
            k=self.settings.k,
            seed=self.settings.seed,
        )

    def _run_task(self, task: StressWorkerTask, after: int, state: StoreState = "new") -> StressAttempt:
        progress = self._stage_progress(STATE_SUFFIXES[state].strip())
        attempt = run_attempt(task, self.ids, timeout=self.settings.timeout, progress=progress, state=state)
        if attempt.failure is not None and "put" not in task.steps:
            attempt.failure = replace(attempt.failure, after=after)
        return attempt

    def _stage_progress(self, suffix: str) -> ProgressCallback:
        """Return a callback that adds the state of the store to the action."""
        if not suffix:
            return self.progress
        return lambda step: self.progress(step._replace(action=f"{step.action} {suffix}"))

    def _record_attempt(self, result: FillResult, attempt: StressAttempt, state: StoreState) -> None:
        """Record the results of an attempt and check them."""
        step_results, is_new = attempt.results, state == "new"
        if "open" in step_results:
            result.description = {**step_results["open"]["description"], "searches": step_results["open"]["searches"]}
            result.opening_seconds = result.opening_seconds if is_new else step_results["open"]["seconds"]
        result.put = step_results.get("put", {}).get("put", result.put)
        result.commit = step_results.get("put", {}).get("commit", result.commit)
        result.failure = attempt.failure
        read_back = _read_back_result(attempt, "at once" if is_new else "reopened", state)
        if read_back is not None:
            result.read_backs.append(read_back)
        wrong_result = _corruption_failure(read_back, state, result.documents)
        if "search" in step_results and wrong_result is None:
            result.rankings = parse_rankings(step_results["search"]["rankings"])
            if is_new:
                result.search = step_results["search"]["search"]
            wrong_result = self._check_rankings(result, state, step_results["search"]["others"])
        # A wrong result precedes the error that ended the process.
        result.failure = wrong_result or result.failure

    def _check_rankings(self, result: FillResult, state: StoreState, n_foreign_texts: int) -> AttemptFailure | None:
        """Check rankings and neighbour recall; return the failure, if any.

        `n_foreign_texts` is the number of rankings in which a hit has the text of another document.
        """
        n, vectors = result.documents, self.vectors
        of_vectors = result.description.get("searches", "vectors") == "vectors"
        truth = (
            ExactCosines(self.ids[:n], vectors[:n], self.query_vectors, self.settings.k) if of_vectors and n else None
        )
        cosines = truth.cosines(result.rankings) if truth is not None else None
        fewest = truth.fewest() if truth is not None else None
        errors = count_ranking_errors(result.rankings, cosines, frozenset(self.ids[:n]), self.settings.k, fewest)
        if n_foreign_texts:
            errors["with a text that is not the document's"] = n_foreign_texts
        result.ranking_errors = errors
        if truth is not None:
            result.neighbour_recall = truth.neighbour_recall(result.rankings)
        problems = [f"{count:,} of {len(result.rankings):,} rankings {error}" for error, count in errors.items()]
        signatures = set(errors)
        if result.neighbour_recall < MIN_NEIGHBOUR_RECALL:
            recall = f"{result.neighbour_recall:.1%}"
            problems.append(f"neighbour recall is {recall}; expected at least {MIN_NEIGHBOUR_RECALL:.0%}")
            signatures.add("neighbours")
        if not problems:
            return None
        return AttemptFailure(Stage("searching", state), ", ".join(problems), frozenset(signatures), True, n)

    def _compare_rankings(self, before: FillResult, after: FillResult, state: StoreState) -> AttemptFailure | None:
        """Return a failure if neighbour recall dropped by more than the tolerance.

        A smaller drop is added to the notes. For a store that ranks by words, the reference is its own earlier
        rankings instead of the exact neighbours.
        """
        changed = len(changed_rankings(before.rankings, after.rankings))
        if not changed:
            return None
        number = len(before.rankings)
        if math.isnan(before.neighbour_recall):
            measure, old, new = "share of the earlier hits", 1.0, share_of_kept_hits(before.rankings, after.rankings)
        else:
            measure, old, new = "neighbour recall", before.neighbour_recall, after.neighbour_recall
        # One neighbour of one query is the smallest possible difference; with few queries it is not evidence.
        tolerance = max(MAX_RECALL_DROP, 1 / (number * min(self.settings.k, before.documents)))
        drop = f"a drop of {100 * tolerance:.2g} percentage points"
        verb = "differs" if changed == 1 else "differ"
        difference = (
            f"{changed:,} of {number:,} rankings {verb}{STATE_SUFFIXES[state]}: {measure} {new:.2%}, before {old:.2%}"
        )
        if old - new > tolerance + 1e-9:
            message = f"{difference} (tolerance: {drop})"
            signatures = frozenset({"changed rankings"})
            return AttemptFailure(Stage("searching", state), message, signatures, True, before.documents)
        after.notes.append(f"{difference} (not a failure; tolerance: {drop})")
        return None


def _read_back_result(
    attempt: StressAttempt, when: str, state: StoreState, step: str = "read", *, kill: int | None = None
) -> ReadBack | None:
    if step not in attempt.results:
        return None
    read_back = from_json_data(ReadBack, attempt.results[step], source="the read-back of a store")
    return replace(read_back, when=when, state=state, kill=kill)


def _corruption_failure(read_back: ReadBack | None, state: StoreState, after: int) -> AttemptFailure | None:
    if read_back is None or read_back.is_intact:
        return None
    return _failure_from_corruption(read_back, Stage("reading back", state), after)


def _failure_from_corruption(read_back: ReadBack, stage: Stage, after: int) -> AttemptFailure:
    first = read_back.corrupt[0]
    return AttemptFailure(
        stage,
        describe_read_back(read_back),
        frozenset(read_back.corrupt_counts),
        True,
        after,
        first.id,
        suspected_prefix=first.position,
        documents_lost=True,
    )


def reset_folder(folder: Path) -> None:
    """Empty a working folder and create a store folder with a unique name in it.

    The name must be new, because a server outside the folder may identify the store by it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "stores" / uuid4().hex[:12]).mkdir(parents=True)


def folder_size_bytes(folder: Path) -> int | None:
    """Return the size of all files in bytes.

    None if there are no files (the store is elsewhere).
    """
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return int(np.sum(sizes)) if sizes else None
