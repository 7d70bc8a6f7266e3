"""Stress test of one ingestion mode, with the search for the failing prefix."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ragauge.compute.progress import scoped
from ragauge.core.summaries import percentiles
from ragauge.store_stress.attempts import AttemptFailure, ScheduledKill
from ragauge.store_stress.minimal_failure import NOT_REPRODUCED, MinimalPrefix, find_minimal_prefix
from ragauge.store_stress.result_checks import Ranking
from ragauge.store_stress.results import (
    FillRate,
    IngestionResult,
    OperationTiming,
    ReadBack,
    Stage,
    StoreFailure,
    StoreState,
)
from ragauge.store_stress.scenario import ALL_STEPS, FillResult, StressScenario

ModeScorer = Callable[[Sequence[Ranking]], tuple[Mapping[str, float], int]]
"""Computes measures of rankings and the number of queries that they average."""
ReproducerWriter = Callable[[StoreFailure, int, Mapping[str, Any]], StoreFailure]
"""Writes a reproducer with the first n documents and the store's description, and returns the failure with its path."""
PhaseRepeater = Callable[[StressScenario, Stage, int], AttemptFailure | None]
"""Repeats a phase of the test up to a stage with the first n documents, and returns its failure."""
STEPS_BY_ACTION = {"putting": 1, "committing": 1, "reading back": 2}
"""Number of steps needed to reach an action again."""
MAX_RATE_POINTS = 40
"""Maximum number of points of the fill rate."""


@dataclass(frozen=True)
class IngestionOutcome:
    """Result of one ingestion mode, and the store's description of itself."""

    result: IngestionResult
    description: Mapping[str, Any]
    notes: Sequence[str] = ()
    """Differences that are not failures."""


def run_ingestion_mode(
    scenario: StressScenario, score_rankings: ModeScorer, reproduce: ReproducerWriter
) -> IngestionOutcome:
    """Run the whole stress test in one ingestion mode."""
    n, settings = len(scenario.ids), scenario.settings
    fill_result = FillResult()
    kills: list[ScheduledKill] = []
    kill_read_backs: list[ReadBack] = []
    replace_read_backs: list[ReadBack] = []

    def fill() -> AttemptFailure | None:
        nonlocal fill_result, kills
        fill_result = scenario.fill(n)
        kills = scenario.plan_kills(
            n, *(_median_seconds(calls_ns) for calls_ns in (fill_result.put, fill_result.commit))
        )
        return fill_result.failure

    def kill() -> AttemptFailure | None:
        kill_read_backs.clear()
        return scenario.fill_with_kills(n, kills, kill_read_backs.append) if kills else None

    def replace_documents() -> AttemptFailure | None:
        replace_read_backs.clear()
        return scenario.replace_documents(fill_result, replace_read_backs.append)

    def replace_again() -> AttemptFailure | None:
        # The store filled last is one of an attempt: fill a new one with the same kills.
        replace_read_backs.clear()
        return _repeat_phase(
            scenario, Stage("replacing", "replaced"), n, phase="replaced", kills=kills, record=replace_read_backs.append
        )

    def investigate(phase: StoreState, failure: AttemptFailure) -> StoreFailure:
        repeat = partial(_repeat_phase, phase=phase, kills=kills)
        return _investigate_failure(scenario, failure, repeat, fill_result.description, reproduce)

    broken: StoreFailure | None = None
    unreproduced: list[StoreFailure] = []
    # Replacing is last because it changes the documents of the store.
    phases: dict[StoreState, Sequence[Callable[[], AttemptFailure | None]]] = {
        "new": (fill, fill),
        "killed": (kill, kill),
        "replaced": (replace_documents, replace_again),
    }
    for phase, runs in phases.items():
        broken = _check_stage(runs, n, partial(investigate, phase), unreproduced)
        if broken is not None:
            break
    measures, judged = score_rankings(fill_result.rankings) if fill_result.rankings and n else ({}, 0)
    result = IngestionResult(
        name=scenario.mode,
        documents=broken.after if broken is not None and not fill_result.put else n,
        put=time_operations(fill_result.put),
        commit=time_operations(fill_result.commit),
        search=time_operations(fill_result.search),
        fill_rates=compute_fill_rates(fill_result.put, settings.size(scenario.mode), n),
        opening_seconds=fill_result.opening_seconds,
        bytes_on_disk=fill_result.size,
        read_back=[*fill_result.read_backs, *kill_read_backs, *replace_read_backs],
        measures=measures,
        judged_queries=judged,
        queries=len(fill_result.rankings),
        ranking_errors=fill_result.ranking_errors,
        neighbour_recall=fill_result.neighbour_recall,
        changed_rankings=fill_result.changed_rankings,
        broken=broken,
        not_reproduced=unreproduced,
    )
    shutil.rmtree(scenario.folder, ignore_errors=True)
    return IngestionOutcome(result, fill_result.description, fill_result.notes)


def _check_stage(
    runs: Sequence[Callable[[], AttemptFailure | None]],
    documents: int,
    investigate: Callable[[AttemptFailure], StoreFailure],
    unreproduced: list[StoreFailure],
) -> StoreFailure | None:
    """Run a stage and return its failure, or None.

    A failure that was not reproduced and lost no document is retried once, by the second of `runs`. If the retry fails
    in the same way, the failure counts as reproduced, with the retry as the last try with all documents. If it fails
    in another way, that is a failure too, because the stage never passed. Otherwise the failure goes to `unreproduced`.
    """
    earlier: list[StoreFailure] = []
    previous: AttemptFailure | None = None
    for run in runs:
        failure = run()
        if failure is None:
            break
        if failure.is_same_failure(previous):
            n_passed = len(earlier[-1].tried)
            doubt = (
                f"it failed in 2 of {n_passed + 2} attempts: in the first run and when the stage was repeated "
                f"(the last attempt), but not in the other {n_passed} attempts"
            )
            attempts = [*earlier[-1].tried, (documents, True)]
            return replace(earlier[-1], reproduced=True, tried=attempts, doubt=doubt)
        broken = investigate(failure)
        if earlier and broken.doubt == NOT_REPRODUCED:
            broken = replace(broken, doubt="the stage failed in both of its runs, each time in another way")
        if broken.reproduced is not False or broken.documents_lost or broken.doubt != NOT_REPRODUCED:
            return broken
        earlier.append(broken)
        previous = failure
    unreproduced += earlier
    return None


def _investigate_failure(
    scenario: StressScenario,
    failure: AttemptFailure,
    repeat: PhaseRepeater,
    description: Mapping[str, Any],
    reproduce: ReproducerWriter,
) -> StoreFailure:
    broken = StoreFailure(
        scenario.mode,
        failure.stage,
        failure.error,
        failure.silent,
        failure.after,
        failure.document,
        documents_lost=failure.documents_lost,
    )
    if not scenario.settings.bisect:
        return replace(broken, doubt="no attempt was made to reproduce it or to find a shorter prefix (--no-bisect)")
    failing_prefix = find_failing_prefix(scenario, failure, repeat)
    reproduced = failing_prefix.prefix is not None
    broken = replace(
        broken,
        prefix=failing_prefix.prefix,
        tried=failing_prefix.tried,
        steady=failing_prefix.steady,
        doubt=failing_prefix.doubt,
        reproduced=reproduced,
    )
    if not reproduced and not failure.documents_lost:
        return broken
    prefix = failing_prefix.prefix
    return reproduce(broken, len(scenario.ids) if prefix is None else prefix, description)


def find_failing_prefix(scenario: StressScenario, failure: AttemptFailure, repeat: PhaseRepeater) -> MinimalPrefix:
    """Find the shortest prefix of the documents that reproduces a failure."""
    times = 0
    other_failures: list[str] = []

    def fails(documents: int) -> bool:
        nonlocal times
        times += 1
        action = f"shortest prefix, attempt {times}: {documents:,} documents"
        quiet = replace(scenario, progress=scoped(scenario.progress, action=action))
        repeated = repeat(quiet, failure.stage, documents)
        is_same = failure.is_same_failure(repeated)
        if repeated is not None and not is_same and documents == len(scenario.ids):
            other_failures.append(f"while {repeated.stage}: {repeated.error.strip().partition(chr(10))[0]}")
        return is_same

    found = find_minimal_prefix(fails, len(scenario.ids), guess=failure.suspected_prefix)
    if found.prefix is None and other_failures:
        found = found._replace(
            doubt=f"{len(other_failures)} of {len(found.tried)} attempts failed in another way, {other_failures[0]}"
        )
    return found


def _ignore_read_back(read_back: ReadBack) -> None:
    """Ignore a read-back."""


def _repeat_phase(
    scenario: StressScenario,
    stage: Stage,
    documents: int,
    *,
    phase: StoreState,
    kills: Sequence[ScheduledKill],
    record: Callable[[ReadBack], None] = _ignore_read_back,
) -> AttemptFailure | None:
    """Repeat a phase up to a stage with a new store and the first documents, and return its failure.

    The new store has the same history, because a failure may depend on it. With all documents the original kills are
    repeated; with a prefix there is one kill at its last document.
    """
    if kills and documents < len(scenario.ids):
        kills = [ScheduledKill(max(0, documents - 1), False, 0.0, scenario.settings.seed)]
    if phase == "killed":
        return scenario.fill_with_kills(documents, kills, _ignore_read_back)
    if phase == "replaced":
        fill_result = scenario.fill(documents)
        failure = fill_result.failure
        if failure is None and kills:
            failure = scenario.fill_with_kills(documents, kills, _ignore_read_back)
        return failure or scenario.replace_documents(fill_result, record)
    if stage.state == "reopened":
        return scenario.fill(documents).failure
    number = STEPS_BY_ACTION.get(stage.action, len(ALL_STEPS))
    return scenario.fill(documents, ALL_STEPS[:number], reopen=False).failure


def _median_seconds(nanoseconds: Sequence[int]) -> float:
    return float(np.median(nanoseconds)) / 1e9 if nanoseconds else 0.0


def time_operations(nanoseconds: Sequence[int]) -> OperationTiming | None:
    """Summarise call durations; None without calls.

    >>> time_operations([1_000_000, 3_000_000]).p50
    2.0
    """
    if not nanoseconds:
        return None
    milliseconds = np.asarray(nanoseconds, np.float64) / 1e6
    p50, p95, p99 = percentiles(milliseconds, (50, 95, 99))
    return OperationTiming(
        len(milliseconds),
        float(milliseconds.sum()) / 1e3,
        float(milliseconds.mean()),
        p50,
        p95,
        p99,
        float(milliseconds.max()),
    )


def compute_fill_rates(nanoseconds: Sequence[int], batch: int, documents: int) -> list[FillRate]:
    """Compute the median time per document over successive groups of puts.

    >>> compute_fill_rates([1_000_000, 3_000_000], 2, 3)
    [FillRate(documents=2, milliseconds=0.5), FillRate(documents=3, milliseconds=3.0)]
    """
    ends = [min((call + 1) * batch, documents) for call in range(len(nanoseconds))]
    sizes = np.diff([0, *ends])
    milliseconds = np.asarray(nanoseconds, np.float64) / 1e6 / np.maximum(sizes, 1)
    return [
        FillRate(ends[stop - 1], float(np.median(milliseconds[start:stop]))) for start, stop in _split_calls(len(ends))
    ]


def _split_calls(calls: int) -> list[tuple[int, int]]:
    edges = [math.ceil(calls * index / MAX_RATE_POINTS) for index in range(MAX_RATE_POINTS + 1)]
    return [(low, high) for low, high in pairwise(edges) if high > low]
