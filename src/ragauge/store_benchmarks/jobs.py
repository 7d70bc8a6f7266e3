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
    settings: BenchmarkSettings

    @property
    def opening(self) -> StoreSpec:
        """Specification of the store in the folder of the build."""
        path = str(self.build_folder.store)
        return StoreSpec(self.store, {**self.build, **self.searches[0]}, self.metric, path, self.settings.threads)

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
    limits = WorkerLimits(task.settings.timeout, cores=task.settings.threads)
    last_stage = task.stage

    def report(step: Progress) -> None:
        nonlocal last_stage
        last_stage = step.action
        progress(step)

    try:
        call_worker("ragauge.store_benchmarks.worker:run_task", task, type(None), limits, progress=report, log=log)
    except WorkerTimeout:
        raise BackendFailed(
            f"gave up after {task.settings.timeout:g} seconds while {_describe_stage(last_stage)}",
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
    settings: BenchmarkSettings
    folder: Path
    progress: ProgressCallback
    failures: list[FailedConfiguration] = field(default_factory=list)
    remeasures_doubtful: bool = False
    """Whether saved results with unreliable times are measured again."""

    def __post_init__(self) -> None:
        self._vectors = self.folder / "vectors" / self.data.hash[:16]
        self._folders: dict[str, BuildFolder] = {}
        self._missing: set[str] = set()
        self._made: set[Path] = set()
        write_vectors(self.data, self._vectors)

    def discard(self, builds: Sequence[StoreBuild], *, all_results: bool) -> None:
        """Remove saved results that may be out of date, so that they are measured again.

        Without `all_results` these are finished results of stores that ragauge cannot identify: the user's own classes,
        plug-ins of other packages, and servers. Results of an interrupted benchmark stay, and it is resumed.
        """
        for build in builds:
            folder = self._build_folder(build)
            is_outdated = not _is_reproducible(build) and folder.finished_file.exists()
            if folder.path.exists() and (all_results or is_outdated):
                self.clear([build])
                shutil.rmtree(folder.path)

    def remove(self, build: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> None:
        """Remove the saved result of one setting: its search, or one of the other stages."""
        self._remove_result(build, self._result_name(search, stage))

    def remove_filtered(self, build: StoreBuild, search: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
        """Remove the saved result of one setting with one of the requested filters."""
        self._remove_result(build, filter_key(search, requested, self.settings))

    def _remove_result(self, build: StoreBuild, name: str) -> None:
        self._build_folder(build).result_file(name).unlink(missing_ok=True)

    def _result_name(self, search: Mapping[str, Any], stage: str | None = None) -> str:
        return search_key(search, self.settings) if stage is None else stage_key(stage, search, self.settings)

    def finish(self, builds: Sequence[StoreBuild]) -> None:
        """Mark the builds as finished."""
        for build in builds:
            folder = self._build_folder(build)
            if folder.path.exists():
                write_record({"made": utc_now()}, folder.finished_file)

    def provenance(self, build: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> dict[str, Any]:
        """Return when a result was made and whether it was reused.

        `made` is the time of its oldest part; `reused` is true if an earlier call made any part. Without a stage, the
        result is the search with its build.
        """
        folder = self._build_folder(build)
        files = [folder.result_file(self._result_name(search, stage)), *([folder.costs_file] if stage is None else [])]
        return self._file_provenance(folder, files)

    def _file_provenance(self, folder: BuildFolder, files: Sequence[Path]) -> dict[str, Any]:
        return {"made": min(map(folder.creation_time, files)), "reused": any(file not in self._made for file in files)}

    def ensure_built(self, build: StoreBuild) -> None:
        """Build a store and time its searches, unless all results are saved."""
        if build.configuration.store in self._missing:
            return
        folder = self._build_folder(build)
        names = {self._result_name(search): search for search in build.searches}
        missing = {name: search for name, search in names.items() if folder.read_result(name) is None}
        if missing:
            self._run_stage(build, "build", list(missing.values()), list(missing))
        cold = self._result_name(build.searches[0], "cold")
        if folder.costs_file in self._made:  # the saved time to reopen belongs to an earlier build
            self._remove_result(build, cold)
        if self.can_reopen(build) and folder.read_result(cold) is None and self._ensure_store(build):
            self._run_stage(build, "cold", [build.searches[0]], [cold])

    def measure(self, build: StoreBuild, search: Mapping[str, Any], stage: str) -> RawResult | None:
        """Return the result of a load test or of updates; measured now unless it is saved."""
        folder, name = self._build_folder(build), self._result_name(search, stage)
        result = folder.read_result(name)
        can_measure = result is None and (stage != "load" or self._ensure_store(build))
        if can_measure and self._run_stage(build, stage, [search], [name]):
            result = folder.read_result(name)
        return result

    def measure_filtered(self, build: StoreBuild, searches: Sequence[Mapping[str, Any]]) -> list[list[FilterRawResult]]:
        """Return the results of each setting with each filter, and measure missing ones.

        Each result has its provenance. It is saved when its filter is done, so that an interrupted sweep resumes with
        the next filter.
        """
        folder = self._build_folder(build)
        names = [
            [filter_key(search, requested_filter, self.settings) for search in searches]
            for requested_filter in self.settings.requested_filters
        ]
        missing = [name if folder.read_result(name) is None else "" for row in names for name in row]
        if any(missing):
            self._run_stage(build, "filters", searches, missing)
            self._made |= {folder.result_file(name) for name in missing if name}
        results: list[list[FilterRawResult]] = [[] for _ in searches]
        for row in names:
            for search_results, name in zip(results, row, strict=True):
                result = folder.read_result(name)
                files = [folder.result_file(name)]
                search_results.append((result, self._file_provenance(folder, files)) if result is not None else None)
        return results

    def build_costs(self, build: StoreBuild) -> dict[str, Any]:
        """Return the costs of a build; empty if it failed."""
        return self._build_folder(build).read_costs()

    def can_reopen(self, build: StoreBuild) -> bool:
        """Return whether the store of a build can be reopened."""
        return bool(self.build_costs(build).get("kept"))

    def saved_result(self, build: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> RawResult | None:
        """Return the raw result of one search setting, or of another stage; None if missing."""
        return self._build_folder(build).read_result(self._result_name(search, stage))

    def clear(self, builds: Sequence[StoreBuild]) -> None:
        """Delete the stores, and keep the results."""
        for build in builds:
            store_folder = self._build_folder(build).store
            if store_folder.exists() and load_store_type(build.configuration.store).has_outside_data:
                with suppress(RagaugeError):
                    run_worker_task(self._create_task(build, "remove", build.searches[:1], []))
            shutil.rmtree(store_folder, ignore_errors=True)

    def _ensure_store(self, build: StoreBuild) -> bool:
        """Rebuild the store if it is missing; return whether it can be opened."""
        return self._build_folder(build).has_store() or self._run_stage(build, "build", [build.searches[0]], [])

    def _build_folder(self, build: StoreBuild) -> BuildFolder:
        # Computed once: the key hashes all ids and versions.
        configuration = repr((build.configuration.store, build.configuration.build))
        if configuration not in self._folders:
            key = build_key(self.data, build, self.settings)
            self._folders[configuration] = BuildFolder(self.folder / "builds" / key)
        return self._folders[configuration]

    def _create_task(
        self, build: StoreBuild, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> BenchmarkWorkerTask:
        folder = self._build_folder(build)
        folder.path.mkdir(parents=True, exist_ok=True)
        configuration = build.configuration
        return BenchmarkWorkerTask(
            stage,
            configuration.store,
            configuration.build,
            list(searches),
            [str(folder.result_file(name).absolute()) if name else "" for name in names],
            self.data.metric,
            str(folder.path.absolute()),
            str(self._vectors.absolute()),
            replace(self.settings, timeout=min(self.settings.timeout, MAX_TIMEOUT_S)),
        )

    def _run_stage(
        self, build: StoreBuild, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> bool:
        """Run a stage in a worker, record a failure, and return whether it succeeded."""
        configuration, folder = build.configuration.shown, self._build_folder(build)
        task = self._create_task(build, stage, searches, names)
        is_building = stage == "build" and not folder.has_store()
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
        self._made |= {folder.result_file(name) for name in names if name}
        self._made |= {folder.costs_file} if is_building else set()
        return True


def _is_reproducible(build: StoreBuild) -> bool:
    """Return whether options and versions identify a saved result.

    This holds for built-in engines on this machine.
    """
    configuration = build.configuration
    server = SERVER_OPTIONS & configuration.build.keys() or (
        configuration.store == "pgvector" and "RAGAUGE_DSN" in os.environ
    )
    return not server and is_reproducible("stores", Spec(configuration.store, configuration.build))
