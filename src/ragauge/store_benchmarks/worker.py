"""Stages of a worker process: build and search, reopen, load test, filters and updates."""

from __future__ import annotations

import inspect
import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragauge.compute.progress import Progress, ProgressCallback
from ragauge.compute.resources import (
    disk_bytes,
    is_connected_elsewhere,
    measure_memory,
    measure_peak_memory,
    release_free_memory,
)
from ragauge.compute.worker_process import SendEvent
from ragauge.core.errors import BackendFailed, RagaugeError, error_summary
from ragauge.core.protocols import FullStore
from ragauge.files.serialization import write_record
from ragauge.runs.folder import utc_now
from ragauge.store_benchmarks import load_test, updates
from ragauge.store_benchmarks.jobs import BenchmarkWorkerTask
from ragauge.store_benchmarks.results import SERVER_OPTIONS
from ragauge.store_benchmarks.results_folder import SavedVectors, write_raw_result
from ragauge.store_benchmarks.search_loops import (
    FilteredStore,
    RawArrays,
    SearchRounds,
    apply_search_options,
    build_filter_condition,
    build_filter_metadata,
    nested_filters,
    time_search_rounds,
    time_searches,
)
from ragauge.stores.reference import NullStore
from ragauge.stores.store_types import load_store_type

VECTORS_PER_INSERT = 4_096
"""Number of vectors per insert."""
WARM_UP_QUERIES = 100
REHEARSAL_VECTORS = 1_000
NULL_STORE_VECTORS = 100
"""Number of vectors in the null store."""


def run_build_stage(task: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Build the store, or open the saved one, and time searches with every setting."""
    vectors = SavedVectors(task.vectors)
    is_built = task.build_folder.has_store()
    with _open_build_store(task, built=is_built) as store:
        if not is_built:
            write_record(_fill_store(store, vectors, task, progress), task.build_folder.costs_file)
        if not task.results:
            return
        queries = vectors.rows("queries")
        progress(Progress("search", 0, task.settings.repeats * len(task.searches)))
        results = time_search_rounds(
            store,
            queries,
            task.settings.k,
            task.searches,
            index=vectors.index(),
            progress=progress,
            rounds=SearchRounds(
                floor=_build_null_store(vectors, task.metric),
                warm_up=vectors.others(WARM_UP_QUERIES, task.settings.seed),
                repeats=task.settings.repeats,
                max_repeats=task.settings.max_repeats,
                seed=task.settings.seed,
            ),
        )
        for raw, search, name in zip(results, task.searches, task.results, strict=True):
            apply_search_options(store, search)
            write_raw_result(Path(name), {"about": _describe_store(store, queries, task)}, raw)


def run_cold_open_stage(task: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Open the saved store in this new process, and search once.

    The time includes loading the library of the engine.
    """
    vectors = SavedVectors(task.vectors)
    query = vectors.rows("queries", 0, 1)
    progress(Progress("cold"))
    began = time.perf_counter_ns()
    with _open_build_store(task, built=True) as store:
        opened = time.perf_counter_ns()
        first = int(time_searches(store, query, task.settings.k).nanoseconds[0])
    write_raw_result(Path(task.results[0]), {"open_ms": (opened - began) / 1e6, "first_ms": first / 1e6}, {})


def run_load_stage(task: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Load-test the store with several client processes."""
    vectors, settings = SavedVectors(task.vectors), task.settings
    max_clients = max(settings.clients, default=1)
    # Rates relative to the maximum need a closed-loop run first.
    closed = sorted({*settings.clients, *([max_clients] if settings.shares else [])})
    runs: list[tuple[int, float | None, float | None]] = [(n, None, None) for n in closed]
    runs += [(max_clients, rate, None) for rate in settings.rates] + [
        (max_clients, None, share) for share in settings.shares
    ]
    arrays: RawArrays = {}
    notes, top = [], 0.0
    for number, (clients, rate, share) in enumerate(runs):
        progress(Progress("load", number, len(runs)))
        raw, note = load_test.run_load_test(
            task.opening,
            vectors.rows("queries"),
            settings.k,
            warm_up=vectors.others(WARM_UP_QUERIES, settings.seed),
            server=load_store_type(task.store).has_server,
            seed=settings.seed,
            load=load_test.OfferedLoad(
                clients=clients,
                rate=rate if share is None else share * top,
                seconds=settings.seconds,
                poisson=settings.poisson,
                threads=settings.threads,
            ),
        )
        if rate is None and share is None:
            top = len(raw["ended_ns"]) / (float(raw["ended_ns"].max()) - float(raw["began_ns"].min())) * 1e9
        notes.append(note)
        arrays |= {f"{number}_{name}": values for name, values in raw.items()}
    write_raw_result(Path(task.results[0]), {"notes": notes}, arrays)


def run_filter_stage(task: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Fill a store with metadata, and time searches with every setting and filter.

    The results of a filter are written when all settings were timed with it. A setting that the time limit of the
    filter leaves no time for gets a result without arrays.
    """
    vectors, settings = SavedVectors(task.vectors), task.settings
    random_filters = nested_filters(len(vectors), settings.filters, seed=settings.seed)
    conditions = [
        *(build_filter_condition(field) for field in random_filters),
        *(json.loads(text) for text in settings.where),
    ]
    filter_metadata = build_filter_metadata(random_filters) if random_filters else [{} for _ in range(len(vectors))]
    metadata = [
        {**user_fields, **filter_fields}
        for user_fields, filter_fields in zip(vectors.metadata(settings.metadata), filter_metadata, strict=True)
    ]
    queries, index, floor = vectors.rows("queries"), vectors.index(), _build_null_store(vectors, task.metric)
    warm_up = vectors.others(WARM_UP_QUERIES, settings.seed)
    total = settings.repeats * len(task.results)
    with _temporary_filled_store(task, vectors, progress, metadata) as store:
        for number, condition in enumerate(conditions):
            start = number * len(task.searches)
            files = task.results[start : start + len(task.searches)]
            requests = [(search, file) for search, file in zip(task.searches, files, strict=True) if file]
            before = settings.repeats * start
            results = time_search_rounds(
                FilteredStore(store, condition),
                queries,
                settings.k,
                [search for search, _ in requests],
                index=index,
                progress=_count_from(progress, "filters", before, total),
                rounds=SearchRounds(
                    floor=floor,
                    warm_up=warm_up,
                    repeats=settings.repeats,
                    max_repeats=settings.max_repeats,
                    seed=settings.seed,
                    budget_s=settings.filter_seconds,
                ),
            )
            for raw, (search, file) in zip(results, requests, strict=True):
                apply_search_options(store, search)
                write_raw_result(
                    Path(file), _explain_filter(store, queries[0], settings.k, condition) if raw else {}, raw
                )


def run_update_stage(task: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Time searches during inserts, then inserts, updates and deletes.

    Uses a separate store, since the operations change it.
    """
    vectors, settings = SavedVectors(task.vectors), task.settings
    base, queries = vectors.rows("base"), vectors.rows("queries")
    with _temporary_filled_store(task, vectors, progress) as store:
        arrays: RawArrays = {}
        abilities = store.abilities
        if settings.mixed and "insert" in abilities:
            progress(Progress("search while inserting"))
            raw = updates.run_mixed_workload(
                store,
                base,
                queries,
                settings.k,
                index=vectors.index(),
                metric=task.metric,
                inserts=updates.MixedWorkloadSettings(n=settings.mixed, seconds=settings.seconds, seed=settings.seed),
            )
            arrays |= {f"mixed_{name}": values for name, values in raw.items()}
        for number, operation in enumerate(updates.UPDATE_OPERATIONS):
            if settings.changes and operation in abilities:
                progress(Progress(operation, number, len(updates.UPDATE_OPERATIONS)))
                raw = updates.time_updates(
                    store,
                    base,
                    settings.k,
                    operation,
                    ids=vectors.ids(),
                    metric=task.metric,
                    n=settings.changes,
                    seed=settings.seed,
                )
                arrays |= {f"{operation}_{name}": values for name, values in raw.items()}
        write_raw_result(Path(task.results[0]), {}, arrays)


def run_remove_stage(task: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Remove what a store keeps outside of its folder, such as a table of a server."""
    progress(Progress("remove"))
    _remove_store(task.opening.open(), task.build_folder.store)


def _count_from(progress: ProgressCallback, action: str, before: int, total: int) -> ProgressCallback:
    """Return a callback that adds the number of items done before to each report."""
    return lambda step: progress(Progress(action, before + step.done, total))


STAGE_FUNCTIONS: dict[str, Callable[[BenchmarkWorkerTask, ProgressCallback], None]] = {
    "build": run_build_stage,
    "cold": run_cold_open_stage,
    "load": run_load_stage,
    "filters": run_filter_stage,
    "changes": run_update_stage,
    "remove": run_remove_stage,
}


@contextmanager
def _open_build_store(task: BenchmarkWorkerTask, *, built: bool) -> Iterator[FullStore]:
    """Open the store of a build; remains of an unfinished build are deleted first."""
    if not built:
        shutil.rmtree(task.build_folder.store, ignore_errors=True)
    store = task.opening.open()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _temporary_filled_store(
    task: BenchmarkWorkerTask,
    vectors: SavedVectors,
    progress: ProgressCallback,
    metadata: list[dict[str, Any]] | None = None,
) -> Iterator[FullStore]:
    """Fill a second store of the same kind, and remove it when the block is left."""
    folder = Path(task.folder) / f"{task.stage}-store"
    shutil.rmtree(folder, ignore_errors=True)
    store = task.opening.at(str(folder)).open()
    try:
        _insert_vectors(store, vectors, progress, metadata)
        _time_index_build(store)
        apply_search_options(store, task.searches[0])
        yield store
    finally:
        _remove_store(store, folder)


def _fill_store(
    store: FullStore, vectors: SavedVectors, task: BenchmarkWorkerTask, progress: ProgressCallback
) -> dict[str, Any]:
    """Insert, index and save all vectors, and return the times, memory and disk space."""
    pids = store.pids()
    _rehearse_store(task, vectors)
    release_free_memory()
    before = measure_memory(pids)
    with measure_peak_memory(pids) as peak:
        inserting = _insert_vectors(store, vectors, progress, None)
        progress(Progress("index"))
        indexing = _time_index_build(store)
    release_free_memory()
    after = measure_memory(store.pids())
    is_saved = "save" in store.abilities
    if is_saved:
        store.save()
    size = store.disk_bytes()
    is_remote = _is_in_unknown_process(store, task)
    if size is None and is_saved and not is_remote:
        size = disk_bytes(task.build_folder.store)
    return {
        "vectors": len(vectors),
        "insert_seconds": inserting,
        "index_seconds": indexing,
        "memory_bytes": None if is_remote else max(0, after.bytes - before.bytes),
        "memory_peak_bytes": None if is_remote else max(0, peak.increase),
        "memory_by": after.method,
        "disk_bytes": size,
        "kept": is_saved,
        "made": utc_now(),
        "abilities": sorted(store.abilities),
    }


def _is_in_unknown_process(store: FullStore, task: BenchmarkWorkerTask) -> bool:
    """Return whether the vectors are in a server whose processes are unknown.

    What is measured in this process would then be the client alone.
    """
    if store.pids():
        return False
    return bool(
        load_store_type(task.store).has_server
        or SERVER_OPTIONS & task.opening.options.keys()
        or "server" in store.describe()
        or (":" in task.store and is_connected_elsewhere())  # a built-in store may only report its use
    )


def _rehearse_store(task: BenchmarkWorkerTask, vectors: SavedVectors) -> None:
    """Run a few vectors through a store of the same kind.

    Memory of libraries that are loaded on first use is then not counted as memory of the index.
    """
    folder = Path(task.folder) / "rehearsal"
    shutil.rmtree(folder, ignore_errors=True)
    store = task.opening.at(str(folder)).open()
    try:
        store.add(vectors.ids(0, REHEARSAL_VECTORS), vectors.rows("base", 0, REHEARSAL_VECTORS))
        _time_index_build(store)
        time_searches(store, vectors.rows("queries", 0, 3), min(task.settings.k, REHEARSAL_VECTORS, len(vectors)))
    finally:
        _remove_store(store, folder)


def _insert_vectors(
    store: FullStore, vectors: SavedVectors, progress: ProgressCallback, metadata: list[dict[str, Any]] | None
) -> float:
    """Insert all vectors, and return the seconds spent in the store."""
    spent = 0.0
    for start in range(0, len(vectors), VECTORS_PER_INSERT):
        names, rows = vectors.ids(start, VECTORS_PER_INSERT), vectors.rows("base", start, VECTORS_PER_INSERT)
        progress(Progress("insert", start, len(vectors)))
        began = time.perf_counter()
        if metadata is None:
            store.add(names, rows)
        else:
            store.add(names, rows, metadata[start : start + VECTORS_PER_INSERT])
        spent += time.perf_counter() - began
    return spent


def _time_index_build(store: FullStore) -> float:
    began = time.perf_counter()
    store.build()
    return time.perf_counter() - began


def _describe_store(store: FullStore, queries: Any, task: BenchmarkWorkerTask) -> dict[str, Any]:
    """Return the store's own description, and whether it used its index, if known."""
    used = store.index_used(queries[0], task.settings.k)
    return {**store.describe(), **({} if used is None else {"index_used": used})}


def _explain_filter(store: FullStore, query: Any, k: int, condition: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a search with a filter uses the index, if the store can tell."""
    used = store.index_used(query, k, condition)
    return {} if used is None else {"index_used": used}


def _build_null_store(vectors: SavedVectors, metric: str) -> NullStore:
    floor = NullStore(metric=metric)
    floor.add(vectors.ids(0, NULL_STORE_VECTORS), vectors.rows("base", 0, NULL_STORE_VECTORS))
    return floor


def _remove_store(store: FullStore, folder: Path) -> None:
    """Close a store and delete its data."""
    try:
        store.remove()
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)


def run_task(task: BenchmarkWorkerTask, send: SendEvent) -> None:
    """Run one stage of one build; its results are in the files that the task names."""
    try:
        STAGE_FUNCTIONS[task.stage](task, send)
    except RagaugeError:
        raise
    except Exception as error:  # a store may raise anything; its message is reported
        message = error_summary(error, with_class=True, all_lines=True)
        raise BackendFailed(message + _locate_error(error, task.store)) from error


def _locate_error(error: Exception, store: str) -> str:
    """Return the method of the user's store that raised an error, with file and line.

    Empty for other stores.
    """
    if ":" not in store:
        return ""
    home = inspect.getsourcefile(inspect.unwrap(load_store_type(store).factory))
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == home]
    return f" (in `{inside[0].name}`, {Path(inside[-1].filename).name}:{inside[-1].lineno})" if inside else ""
