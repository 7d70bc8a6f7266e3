"""Benchmark runner: every build in its own process, every result in a file, and reuse of saved results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.compute.workers import WorkerDied, WorkerLimits, WorkerTimeout, call_worker
from ragauge.core.components import is_reproducible
from ragauge.core.errors import BackendFailed, MissingExtra, RagaugeError
from ragauge.core.specs import Spec
from ragauge.files.serialization import write_record
from ragauge.runs.folder import utc_now
from ragauge.store_benchmarks.plan import (
    BenchmarkSettings,
    StoreBuild,
    StoreSpec,
    build_key,
    filter_key,
    search_key,
    stage_key,
)
from ragauge.store_benchmarks.results import SERVER_OPTIONS, Configuration, FailedConfiguration, VectorSet
from ragauge.store_benchmarks.results_folder import BuildFolder, RawResult, write_vectors
from ragauge.stores.store_types import load_store_type


@dataclass(frozen=True)
class BenchmarkWorkerTask:
    """Task of a worker: one stage of one build.

    Stages are `build`, `cold`, `load`, `filters`, `changes` and `remove`.
    """

    stage: str
    store: str
    build: Mapping[str, Any]
    searches: Sequence[Mapping[str, Any]]
    """Search options to measure; the stages `cold`, `load` and `changes` use only the first."""
    results: Sequence[str]
    """Result files, one per entry of `searches`; for `filters` one per filter and entry, empty if it is saved already.
    """
    metric: str
    folder: str
    """Folder of the build."""
    vectors: str
    """Folder of the vectors."""
    plan: BenchmarkSettings

    @property
    def opening(self) -> StoreSpec:
        """Specification of the store in the folder of the build."""
        path = str(self.build_folder.store)
        return StoreSpec(self.store, {**self.build, **self.searches[0]}, self.metric, path, self.plan.threads)

    @property
    def build_folder(self) -> BuildFolder:
        return BuildFolder(Path(self.folder))


MAX_TIMEOUT_S = 1e9
"""Longest time limit in seconds: JSON lacks infinity."""


def run_worker_task(task: BenchmarkWorkerTask, progress: ProgressCallback = no_progress) -> None:
    """Run a task in a new worker process.

    Raises the error that the worker reports, or BackendFailed if it dies or exceeds the time limit.
    """
    log = Path(task.folder) / f"{task.stage}.log"
    limits = WorkerLimits(task.plan.timeout, cores=task.plan.threads)
    last_stage = task.stage

    def report(step: Progress) -> None:
        nonlocal last_stage
        last_stage = step.action
        progress(step)

    try:
        call_worker("ragauge.store_benchmarks.worker:run_task", task, type(None), limits, progress=report, log=log)
    except WorkerTimeout:
        raise BackendFailed(
            f"gave up after {task.plan.timeout:g} seconds while {_describe_stage(last_stage)}",
            hint="increase --timeout",
        ) from None
    except WorkerDied as error:
        last_line = f"; last line of its log: {error.last_line}" if error.last_line else ""
        raise BackendFailed(f"the process {error.end} while {_describe_stage(task.stage)}{last_line}") from None
    log.unlink(missing_ok=True)


def _describe_stage(stage: str) -> str:
    descriptions = {"build": "building", "cold": "opening it again", "load": "under load", "filters": "filtering"}
    descriptions |= {"changes": "changing it", "insert": "inserting", "index": "indexing", "search": "searching"}
    return descriptions.get(stage, stage)


FilterRawResult = tuple[RawResult, dict[str, Any]] | None
"""Result with a filter, and its provenance (`made`, `reused`); None if it could not be measured."""


@dataclass
class BenchmarkRunner:
    """Runner that measures missing results of a benchmark and reads saved ones."""

    data: VectorSet
    plan: BenchmarkSettings
    folder: Path
    progress: ProgressCallback
    failures: list[FailedConfiguration] = field(default_factory=list)
    remeasures_doubtful: bool = False
    """Whether saved results with unreliable times are measured again."""

    def __post_init__(self) -> None:
        self._vectors = self.folder / "vectors" / self.data.hash[:16]
        self._missing: set[str] = set()
        self._made: set[Path] = set()
        write_vectors(self.data, self._vectors)

    def discard(self, jobs: Sequence[StoreBuild], *, all_results: bool) -> None:
        """Remove saved results that may be out of date, so that they are measured again.

        Without `all_results` these are finished results of stores that ragauge cannot identify: the user's own classes,
        plug-ins of other packages, and servers. Results of an interrupted benchmark stay, and it is resumed.
        """
        for job in jobs:
            build = self._build_folder(job)
            is_outdated = not _is_reproducible(job) and build.finished_file.exists()
            if build.path.exists() and (all_results or is_outdated):
                self.clear([job])
                shutil.rmtree(build.path)

    def remove(self, job: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> None:
        """Remove the saved result of one setting: its search, or one of the other stages."""
        self._remove_result(job, self._result_name(search, stage))

    def remove_filtered(self, job: StoreBuild, search: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
        """Remove the saved result of one setting with one of the requested filters."""
        self._remove_result(job, filter_key(search, requested, self.plan))

    def _remove_result(self, job: StoreBuild, name: str) -> None:
        self._build_folder(job).result_file(name).unlink(missing_ok=True)

    def _result_name(self, search: Mapping[str, Any], stage: str | None = None) -> str:
        return search_key(search, self.plan) if stage is None else stage_key(stage, search, self.plan)

    def finish(self, jobs: Sequence[StoreBuild]) -> None:
        """Mark the builds as finished."""
        for job in jobs:
            build = self._build_folder(job)
            if build.path.exists():
                write_record({"made": utc_now()}, build.finished_file)

    def provenance(self, job: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> dict[str, Any]:
        """Return when a result was made and whether it was reused.

        `made` is the time of its oldest part; `reused` is true if an earlier call made any part. Without a stage, the
        result is the search with its build.
        """
        build = self._build_folder(job)
        files = [build.result_file(self._result_name(search, stage)), *([build.costs_file] if stage is None else [])]
        return self._file_provenance(build, files)

    def _file_provenance(self, build: BuildFolder, files: Sequence[Path]) -> dict[str, Any]:
        return {"made": min(map(build.creation_time, files)), "reused": any(file not in self._made for file in files)}

    def ensure_built(self, job: StoreBuild) -> None:
        """Build a store and time its searches, unless all results are saved."""
        if job.configuration.store in self._missing:
            return
        build = self._build_folder(job)
        names = {self._result_name(search): search for search in job.searches}
        missing = {name: search for name, search in names.items() if build.read_result(name) is None}
        if missing:
            self._run_stage(job, "build", list(missing.values()), list(missing))
        cold = self._result_name(job.searches[0], "cold")
        if build.costs_file in self._made:  # the saved time to reopen belongs to an earlier build
            self._remove_result(job, cold)
        if self.can_reopen(job) and build.read_result(cold) is None and self._ensure_store(job):
            self._run_stage(job, "cold", [job.searches[0]], [cold])

    def measure(self, job: StoreBuild, search: Mapping[str, Any], stage: str) -> RawResult | None:
        """Return the result of a load test or of updates; measured now unless it is saved."""
        build, name = self._build_folder(job), self._result_name(search, stage)
        result = build.read_result(name)
        can_measure = result is None and (stage != "load" or self._ensure_store(job))
        if can_measure and self._run_stage(job, stage, [search], [name]):
            result = build.read_result(name)
        return result

    def measure_filtered(self, job: StoreBuild, searches: Sequence[Mapping[str, Any]]) -> list[list[FilterRawResult]]:
        """Return the results of each setting with each filter, and measure missing ones.

        Each result has its provenance. It is saved when its filter is done, so that an interrupted sweep resumes with
        the next filter.
        """
        build = self._build_folder(job)
        names = [
            [filter_key(search, requested_filter, self.plan) for search in searches]
            for requested_filter in self.plan.requested_filters
        ]
        missing = [name if build.read_result(name) is None else "" for row in names for name in row]
        if any(missing):
            self._run_stage(job, "filters", searches, missing)
            self._made |= {build.result_file(name) for name in missing if name}
        results: list[list[FilterRawResult]] = [[] for _ in searches]
        for row in names:
            for search_results, name in zip(results, row, strict=True):
                result = build.read_result(name)
                files = [build.result_file(name)]
                search_results.append((result, self._file_provenance(build, files)) if result is not None else None)
        return results

    def build_costs(self, job: StoreBuild) -> dict[str, Any]:
        """Return the costs of a build; empty if it failed."""
        return self._build_folder(job).read_costs()

    def can_reopen(self, job: StoreBuild) -> bool:
        """Return whether the store of a build can be reopened."""
        return bool(self.build_costs(job).get("kept"))

    def saved_result(self, job: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> RawResult | None:
        """Return the raw result of one search setting, or of another stage; None if missing."""
        return self._build_folder(job).read_result(self._result_name(search, stage))

    def clear(self, jobs: Sequence[StoreBuild]) -> None:
        """Delete the stores, and keep the results."""
        for job in jobs:
            folder = self._build_folder(job).store
            if folder.exists() and load_store_type(job.configuration.store).has_outside_data:
                with suppress(RagaugeError):
                    run_worker_task(self._create_task(job, "remove", job.searches[:1], []))
            shutil.rmtree(folder, ignore_errors=True)

    def _ensure_store(self, job: StoreBuild) -> bool:
        """Rebuild the store if it is missing; return whether it can be opened."""
        return self._build_folder(job).has_store() or self._run_stage(job, "build", [job.searches[0]], [])

    def _build_folder(self, job: StoreBuild) -> BuildFolder:
        return BuildFolder(self.folder / "builds" / build_key(self.data, job, self.plan))

    def _create_task(
        self, job: StoreBuild, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> BenchmarkWorkerTask:
        build = self._build_folder(job)
        build.path.mkdir(parents=True, exist_ok=True)
        configuration = job.configuration
        return BenchmarkWorkerTask(
            stage,
            configuration.store,
            configuration.build,
            list(searches),
            [str(build.result_file(name).absolute()) if name else "" for name in names],
            self.data.metric,
            str(build.path.absolute()),
            str(self._vectors.absolute()),
            replace(self.plan, timeout=min(self.plan.timeout, MAX_TIMEOUT_S)),
        )

    def _run_stage(
        self, job: StoreBuild, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> bool:
        """Run a stage in a worker, record a failure, and return whether it succeeded."""
        configuration, build = job.configuration.shown, self._build_folder(job)
        task = self._create_task(job, stage, searches, names)
        building = stage == "build" and not build.has_store()
        try:
            run_worker_task(task, scoped(self.progress, subject=str(configuration)))
        except RagaugeError as error:
            if isinstance(error, MissingExtra):
                self._missing.add(configuration.store)
                configuration = Configuration(configuration.store)
            elif stage != "build":
                configuration = Configuration(configuration.store, configuration.build, searches[0], configuration.name)
            self.failures.append(FailedConfiguration(configuration, stage, error.message, error.hint, error.exit_code))
            return False
        self._made |= {build.result_file(name) for name in names if name}
        self._made |= {build.costs_file} if building else set()
        return True


def _is_reproducible(job: StoreBuild) -> bool:
    """Return whether options and versions identify a saved result.

    This holds for built-in engines on this machine.
    """
    configuration = job.configuration
    server = SERVER_OPTIONS & configuration.build.keys() or (
        configuration.store == "pgvector" and "RAGAUGE_DSN" in os.environ
    )
    return not server and is_reproducible("stores", Spec(configuration.store, configuration.build))
