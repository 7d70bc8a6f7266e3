"""Benchmark runner: every build in its own process, every result in a file, and reuse of saved results."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ragauge.compute.progress import Progress, ProgressCallback, no_progress, scoped
from ragauge.compute.workers import WorkerDied, WorkerLimits, WorkerTimeout, call_worker
from ragauge.core.components import is_reproducible
from ragauge.core.errors import BackendFailed, MissingExtra, RagaugeError
from ragauge.core.specs import Spec
from ragauge.core.structured_text import parse_json
from ragauge.core.text import replace_lone_surrogates
from ragauge.files.workspace import atomic_write
from ragauge.runs.folder import format_timestamp, utc_now
from ragauge.store_benchmarks.metadata_filters import metadata_hash
from ragauge.store_benchmarks.plan import (
    BenchmarkSettings,
    StoreBuild,
    StoreSpec,
    build_key,
    filter_key,
    search_key,
    stage_key,
)
from ragauge.store_benchmarks.results import SERVER_OPTIONS, Configuration, FailedConfiguration, Matrix, VectorSet
from ragauge.stores.store_types import load_store_type

ResultArrays = Mapping[str, NDArray[Any]]
BUILD_FILE = "build.json"
"""Name of the file with the costs of a build, in the folder of the build."""


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
        place = str(Path(self.folder) / "store")
        return StoreSpec(self.store, {**self.build, **self.searches[0]}, self.metric, place, self.plan.threads)


def read_build_costs(folder: Path) -> dict[str, Any]:
    """Read the costs of a build from its folder; empty if the build did not finish."""
    try:
        told: dict[str, Any] = parse_json((folder / BUILD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told


def has_openable_store(folder: Path) -> bool:
    """Return whether the store of a build is finished, saved and still on disk."""
    return bool(read_build_costs(folder).get("kept")) and (folder / "store").exists()


def write_json(data: Any, path: Path) -> None:
    """Write data to a JSON file atomically."""
    with atomic_write(path) as out:
        text = json.dumps(data, ensure_ascii=False, indent=1, default=_to_json_value)
        out.write(replace_lone_surrogates(text).encode())


def write_raw_result(path: Path, told: Mapping[str, Any], arrays: ResultArrays) -> None:
    """Write one result: raw arrays, details about them, and the current time."""
    words = np.frombuffer(json.dumps({**told, "made": utc_now()}, default=_to_json_value).encode(), dtype=np.uint8)
    with atomic_write(path) as out:
        np.savez_compressed(out, allow_pickle=False, told=words, **arrays)


def read_raw_result(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Read a result as details and arrays; None if it is missing or incomplete."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return parse_json(arrays.pop("told").tobytes()), arrays
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def read_creation_time(path: Path) -> str:
    """Return when a result was made, as ISO 8601 in UTC.

    If the result does not say, it is the modification time of the file.
    """
    told = read_build_costs(path.parent) if path.name == BUILD_FILE else (read_raw_result(path) or ({}, {}))[0]
    made = told.get("made")
    return made if isinstance(made, str) else format_timestamp(path.stat().st_mtime)


def write_vectors(data: VectorSet, folder: Path) -> None:
    """Write the vectors as plain 32-bit floats.

    A process can then read only the rows it needs, without mapping them into its memory.
    """
    shapes = {}
    for name, matrix in (("base", data.base), ("queries", data.queries)):
        path = folder / f"{name}.f32"
        shapes[name] = list(matrix.shape)
        if not path.exists() or path.stat().st_size != matrix.size * 4:
            with atomic_write(path) as out:
                for start in range(0, len(matrix), 65_536):
                    out.write(np.ascontiguousarray(matrix[start : start + 65_536], dtype="<f4").tobytes())
    write_json({"shapes": shapes, "ids": list(data.ids) or None}, folder / "vectors.json")
    if data.metadata:
        write_json(list(data.metadata), folder / f"metadata-{metadata_hash(data.metadata)}.json")


class SavedVectors:
    """Reader of the vectors saved by `write_vectors`, which loads only requested rows."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        told = parse_json((self._folder / "vectors.json").read_text(encoding="utf-8"))
        self._shapes: dict[str, list[int]] = told["shapes"]
        self._ids: list[str] | None = told["ids"]

    def __len__(self) -> int:
        return self._shapes["base"][0]

    def rows(self, name: str, start: int = 0, count: int = -1) -> Matrix:
        """Return a copy of `count` rows of `base` or `queries` from `start`; -1 means all."""
        n, d = self._shapes[name]
        count = n - start if count < 0 else min(count, n - start)
        flat = np.fromfile(self._folder / f"{name}.f32", dtype="<f4", count=count * d, offset=4 * d * start)
        return flat.reshape(count, d).astype(np.float32, copy=False)

    def ids(self, start: int = 0, count: int = -1) -> list[str]:
        """Return the ids of some rows of the base."""
        count = len(self) - start if count < 0 else min(count, len(self) - start)
        return [str(i) for i in range(start, start + count)] if self._ids is None else self._ids[start : start + count]

    def index(self) -> dict[str, int]:
        """Map each id to its row."""
        return {name: place for place, name in enumerate(self.ids())}

    def metadata(self, which: str) -> list[dict[str, Any]]:
        """Return the metadata of every row by their hash; empty mappings if it is empty."""
        if not which:
            return [{} for _ in range(len(self))]
        found: list[dict[str, Any]] = json.loads((self._folder / f"metadata-{which}.json").read_text(encoding="utf-8"))
        return found

    def others(self, n: int, seed: int) -> Matrix:
        """Return warm-up queries: random rows of the base with a little noise."""
        random = np.random.default_rng([seed, 1])
        places = np.sort(random.choice(len(self), size=min(n, len(self)), replace=False))
        found = np.concatenate([self.rows("base", int(place), 1) for place in places])
        spread = float(found.std()) or 1.0
        moved = found + random.normal(scale=0.05 * spread, size=found.shape)
        return np.asarray(moved, dtype=np.float32)


def _to_json_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return dict(value) if isinstance(value, Mapping) else str(value)


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
            hint="--timeout gives it longer",
        ) from None
    except WorkerDied as error:
        last_line = f"; last line of its log: {error.last_line}" if error.last_line else ""
        raise BackendFailed(f"the process {error.end} while {_describe_stage(task.stage)}{last_line}") from None
    log.unlink(missing_ok=True)


def _describe_stage(stage: str) -> str:
    words = {"build": "building", "cold": "opening it again", "load": "under load", "filters": "filtering"}
    words |= {"changes": "changing it", "insert": "inserting", "index": "indexing", "search": "searching"}
    return words.get(stage, stage)


RawResult = tuple[dict[str, Any], dict[str, Any]]
FilterRawResult = tuple[RawResult, dict[str, Any]] | None
"""Result with a filter, and its provenance (`made`, `reused`); None if it could not be measured."""
FINISHED_FILE = "finished.json"
"""Name of the file that marks a build whose benchmark finished; an interrupted one lacks it, and is resumed."""


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
            place = self._build_folder(job)
            if place.exists() and (all_results or (not _is_reproducible(job) and (place / FINISHED_FILE).exists())):
                self.clear([job])
                shutil.rmtree(place)

    def remove(self, job: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> None:
        """Remove the saved result of one setting: its search, or one of the other stages."""
        name = search_key(search, self.plan) if stage is None else stage_key(stage, search, self.plan)
        (self._build_folder(job) / f"{name}.npz").unlink(missing_ok=True)

    def remove_filtered(self, job: StoreBuild, search: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
        """Remove the saved result of one setting with one of the requested filters."""
        (self._build_folder(job) / f"{filter_key(search, requested, self.plan)}.npz").unlink(missing_ok=True)

    def finish(self, jobs: Sequence[StoreBuild]) -> None:
        """Mark the builds as finished."""
        for job in jobs:
            if self._build_folder(job).exists():
                write_json({"made": utc_now()}, self._build_folder(job) / FINISHED_FILE)

    def provenance(self, job: StoreBuild, search: Mapping[str, Any], stage: str | None = None) -> dict[str, Any]:
        """Return when a result was made and whether it was reused.

        `made` is the time of its oldest part; `reused` is true if an earlier call made any part. Without a stage, the
        result is the search with its build.
        """
        place = self._build_folder(job)
        name = search_key(search, self.plan) if stage is None else stage_key(stage, search, self.plan)
        return self._file_provenance([place / f"{name}.npz", *([place / BUILD_FILE] if stage is None else [])])

    def _file_provenance(self, files: Sequence[Path]) -> dict[str, Any]:
        return {"made": min(map(read_creation_time, files)), "reused": any(file not in self._made for file in files)}

    def built(self, job: StoreBuild) -> None:
        """Build a store and time its searches, unless all results are saved."""
        if job.configuration.store in self._missing:
            return
        files = {search_key(one, self.plan): one for one in job.searches}
        left = {
            name: one for name, one in files.items() if read_raw_result(self._build_folder(job) / f"{name}.npz") is None
        }
        if left:
            self._run_stage(job, "build", list(left.values()), list(left))
        cold = stage_key("cold", job.searches[0], self.plan)
        if self._build_folder(job) / BUILD_FILE in self._made:  # the saved time to reopen belongs to an earlier build
            (self._build_folder(job) / f"{cold}.npz").unlink(missing_ok=True)
        if (
            self.kept(job)
            and read_raw_result(self._build_folder(job) / f"{cold}.npz") is None
            and self._ensure_store(job)
        ):
            self._run_stage(job, "cold", [job.searches[0]], [cold])

    def more(self, job: StoreBuild, search: Mapping[str, Any], stage: str) -> RawResult | None:
        """Return the result of a load test or of updates; measured now unless it is saved."""
        name = stage_key(stage, search, self.plan)
        place = self._build_folder(job) / f"{name}.npz"
        piece = read_raw_result(place)
        if (
            piece is None
            and (stage != "load" or self._ensure_store(job))
            and self._run_stage(job, stage, [search], [name])
        ):
            piece = read_raw_result(place)
        return piece

    def filtered(self, job: StoreBuild, searches: Sequence[Mapping[str, Any]]) -> list[list[FilterRawResult]]:
        """Return the results of each setting with each filter, and measure missing ones.

        Each result has its provenance. It is saved when its filter is done, so that an interrupted sweep resumes with
        the next filter.
        """
        place, requested = self._build_folder(job), self.plan.requested_filters
        names = [[filter_key(search, one, self.plan) for search in searches] for one in requested]
        left = [name if read_raw_result(place / f"{name}.npz") is None else "" for row in names for name in row]
        if any(left):
            self._run_stage(job, "filters", searches, left)
            self._made |= {place / f"{name}.npz" for name in left if name}
        found: list[list[FilterRawResult]] = [[] for _ in searches]
        for row in names:
            for mine, file in zip(found, (place / f"{name}.npz" for name in row), strict=True):
                piece = read_raw_result(file)
                mine.append((piece, self._file_provenance([file])) if piece is not None else None)
        return found

    def about(self, job: StoreBuild) -> dict[str, Any]:
        """Return the costs of a build; empty if it failed."""
        return read_build_costs(self._build_folder(job))

    def kept(self, job: StoreBuild) -> bool:
        """Return whether the store of a build can be reopened."""
        return bool(self.about(job).get("kept"))

    def searched(self, job: StoreBuild, search: Mapping[str, Any]) -> RawResult | None:
        """Return the raw measurements of one search setting; None if missing."""
        return read_raw_result(self._build_folder(job) / f"{search_key(search, self.plan)}.npz")

    def opened_cold(self, job: StoreBuild) -> RawResult | None:
        """Return the times to reopen the store; None if missing."""
        return read_raw_result(self._build_folder(job) / f"{stage_key('cold', job.searches[0], self.plan)}.npz")

    def clear(self, jobs: Sequence[StoreBuild]) -> None:
        """Delete the stores, and keep the results."""
        for job in jobs:
            place = self._build_folder(job) / "store"
            if place.exists() and load_store_type(job.configuration.store).has_outside_data:
                with suppress(RagaugeError):
                    run_worker_task(self._create_task(job, "remove", job.searches[:1], []))
            shutil.rmtree(place, ignore_errors=True)

    def _ensure_store(self, job: StoreBuild) -> bool:
        """Rebuild the store if it is missing; return whether it can be opened."""
        return has_openable_store(self._build_folder(job)) or self._run_stage(job, "build", [job.searches[0]], [])

    def _build_folder(self, job: StoreBuild) -> Path:
        return self.folder / "builds" / build_key(self.data, job, self.plan)

    def _create_task(
        self, job: StoreBuild, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> BenchmarkWorkerTask:
        place = self._build_folder(job)
        place.mkdir(parents=True, exist_ok=True)
        one = job.configuration
        return BenchmarkWorkerTask(
            stage,
            one.store,
            one.build,
            list(searches),
            [str((place / f"{name}.npz").absolute()) if name else "" for name in names],
            self.data.metric,
            str(place.absolute()),
            str(self._vectors.absolute()),
            replace(self.plan, timeout=min(self.plan.timeout, MAX_TIMEOUT_S)),
        )

    def _run_stage(
        self, job: StoreBuild, stage: str, searches: Sequence[Mapping[str, Any]], names: Sequence[str]
    ) -> bool:
        """Run a stage in a worker, record a failure, and return whether it succeeded."""
        told = job.configuration.shown
        order = self._create_task(job, stage, searches, names)
        building = stage == "build" and not has_openable_store(Path(order.folder))

        try:
            run_worker_task(order, scoped(self.progress, subject=str(told)))
        except RagaugeError as error:
            if isinstance(error, MissingExtra):
                self._missing.add(told.store)
                told = Configuration(told.store)
            elif stage != "build":
                told = Configuration(told.store, told.build, searches[0], told.name)
            self.failures.append(FailedConfiguration(told, stage, error.message, error.hint, error.exit_code))
            return False
        self._made |= {self._build_folder(job) / f"{name}.npz" for name in names if name}
        self._made |= {self._build_folder(job) / BUILD_FILE} if building else set()
        return True


def _is_reproducible(job: StoreBuild) -> bool:
    """Return whether options and versions identify a saved result.

    This holds for built-in engines on this machine.
    """
    one = job.configuration
    server = SERVER_OPTIONS & one.build.keys() or (one.store == "pgvector" and "RAGAUGE_DSN" in os.environ)
    return not server and is_reproducible("stores", Spec(one.store, one.build))
