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
from ragauge.compute.resources import disk_bytes, measure_memory, measure_peak_memory, release_free_memory
from ragauge.compute.worker_process import SendEvent
from ragauge.core.errors import BackendFailed, RagaugeError, error_summary
from ragauge.core.protocols import FullStore
from ragauge.files.serialization import write_record
from ragauge.runs.folder import utc_now
from ragauge.store_benchmarks import load_test, updates
from ragauge.store_benchmarks.jobs import BenchmarkWorkerTask
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


def run_build_stage(order: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Build the store, or open the saved one, and time searches with every setting."""
    vectors = SavedVectors(order.vectors)
    is_built = order.build_folder.has_store()
    with _open_build_store(order, built=is_built) as store:
        if not is_built:
            write_record(_fill_store(store, vectors, order, progress), order.build_folder.costs_file)
        if not order.results:
            return
        queries = vectors.rows("queries")
        progress(Progress("search", 0, order.plan.repeats * len(order.searches)))
        results = time_search_rounds(
            store,
            queries,
            order.plan.k,
            order.searches,
            index=vectors.index(),
            progress=progress,
            rounds=SearchRounds(
                floor=_build_null_store(vectors, order.metric),
                warm_up=vectors.others(WARM_UP_QUERIES, order.plan.seed),
                repeats=order.plan.repeats,
                max_repeats=order.plan.max_repeats,
                seed=order.plan.seed,
            ),
        )
        for raw, search, name in zip(results, order.searches, order.results, strict=True):
            apply_search_options(store, search)
            write_raw_result(Path(name), {"about": _describe_store(store, queries, order)}, raw)


def run_cold_open_stage(order: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Open the saved store in this new process, and search once.

    The time includes loading the library of the engine.
    """
    vectors = SavedVectors(order.vectors)
    query = vectors.rows("queries", 0, 1)
    progress(Progress("cold"))
    began = time.perf_counter_ns()
    with _open_build_store(order, built=True) as store:
        opened = time.perf_counter_ns()
        first = int(time_searches(store, query, order.plan.k).nanoseconds[0])
    write_raw_result(Path(order.results[0]), {"open_ms": (opened - began) / 1e6, "first_ms": first / 1e6}, {})


def run_load_stage(order: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Load-test the store with several client processes."""
    vectors, plan = SavedVectors(order.vectors), order.plan
    max_clients = max(plan.clients, default=1)
    # Rates relative to the maximum need a closed-loop run first.
    closed = sorted({*plan.clients, *([max_clients] if plan.shares else [])})
    runs: list[tuple[int, float | None, float | None]] = [(n, None, None) for n in closed]
    runs += [(max_clients, rate, None) for rate in plan.rates] + [(max_clients, None, share) for share in plan.shares]
    arrays: RawArrays = {}
    notes, top = [], 0.0
    for number, (clients, rate, share) in enumerate(runs):
        progress(Progress("load", number, len(runs)))
        raw, note = load_test.run_load_test(
            order.opening,
            vectors.rows("queries"),
            plan.k,
            warm_up=vectors.others(WARM_UP_QUERIES, plan.seed),
            server=load_store_type(order.store).has_server,
            seed=plan.seed,
            load=load_test.OfferedLoad(
                clients=clients,
                rate=rate if share is None else share * top,
                seconds=plan.seconds,
                poisson=plan.poisson,
                threads=plan.threads,
            ),
        )
        if rate is None and share is None:
            top = len(raw["ended_ns"]) / (float(raw["ended_ns"].max()) - float(raw["began_ns"].min())) * 1e9
        notes.append(note)
        arrays |= {f"{number}_{name}": values for name, values in raw.items()}
    write_raw_result(Path(order.results[0]), {"notes": notes}, arrays)


def run_filter_stage(order: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Fill a store with metadata, and time searches with every setting and filter.

    The results of a filter are written when all settings were timed with it. A setting that the time limit of the
    filter leaves no time for gets a result without arrays.
    """
    vectors, plan = SavedVectors(order.vectors), order.plan
    rungs = nested_filters(len(vectors), plan.filters, seed=plan.seed)
    conditions = [*(build_filter_condition(rung) for rung in rungs), *(json.loads(text) for text in plan.where)]
    random = build_filter_metadata(rungs) if rungs else [{} for _ in range(len(vectors))]
    about = [{**user_fields, **rung} for user_fields, rung in zip(vectors.metadata(plan.metadata), random, strict=True)]
    queries, index, floor = vectors.rows("queries"), vectors.index(), _build_null_store(vectors, order.metric)
    warm_up = vectors.others(WARM_UP_QUERIES, plan.seed)
    total = plan.repeats * len(order.results)
    with _temporary_filled_store(order, vectors, progress, about) as store:
        for number, condition in enumerate(conditions):
            start = number * len(order.searches)
            files = order.results[start : start + len(order.searches)]
            requests = [(search, file) for search, file in zip(order.searches, files, strict=True) if file]
            before = plan.repeats * start
            results = time_search_rounds(
                FilteredStore(store, condition),
                queries,
                plan.k,
                [search for search, _ in requests],
                index=index,
                progress=_count_from(progress, "filters", before, total),
                rounds=SearchRounds(
                    floor=floor,
                    warm_up=warm_up,
                    repeats=plan.repeats,
                    max_repeats=plan.max_repeats,
                    seed=plan.seed,
                    budget_s=plan.filter_seconds,
                ),
            )
            for raw, (search, file) in zip(results, requests, strict=True):
                apply_search_options(store, search)
                write_raw_result(Path(file), _explain_filter(store, queries[0], plan.k, condition) if raw else {}, raw)


def run_update_stage(order: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Time searches during inserts, then inserts, updates and deletes.

    Uses a separate store, since the operations change it.
    """
    vectors, plan = SavedVectors(order.vectors), order.plan
    base, queries = vectors.rows("base"), vectors.rows("queries")
    with _temporary_filled_store(order, vectors, progress) as store:
        arrays: RawArrays = {}
        able = store.abilities
        if plan.mixed and "insert" in able:
            progress(Progress("search while inserting"))
            raw = updates.run_mixed_workload(
                store,
                base,
                queries,
                plan.k,
                index=vectors.index(),
                metric=order.metric,
                inserts=updates.MixedWorkloadSettings(n=plan.mixed, seconds=plan.seconds, seed=plan.seed),
            )
            arrays |= {f"mixed_{name}": values for name, values in raw.items()}
        for number, operation in enumerate(updates.UPDATE_OPERATIONS):
            if plan.changes and operation in able:
                progress(Progress(operation, number, len(updates.UPDATE_OPERATIONS)))
                raw = updates.time_updates(
                    store,
                    base,
                    plan.k,
                    operation,
                    ids=vectors.ids(),
                    metric=order.metric,
                    n=plan.changes,
                    seed=plan.seed,
                )
                arrays |= {f"{operation}_{name}": values for name, values in raw.items()}
        write_raw_result(Path(order.results[0]), {}, arrays)


def run_remove_stage(order: BenchmarkWorkerTask, progress: ProgressCallback) -> None:
    """Remove what a store keeps outside of its folder, such as a table of a server."""
    progress(Progress("remove"))
    _remove_store(order.opening.open(), order.build_folder.store)


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
def _open_build_store(order: BenchmarkWorkerTask, *, built: bool) -> Iterator[FullStore]:
    """Open the store of a build; remains of an unfinished build are deleted first."""
    if not built:
        shutil.rmtree(order.build_folder.store, ignore_errors=True)
    store = order.opening.open()
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _temporary_filled_store(
    order: BenchmarkWorkerTask,
    vectors: SavedVectors,
    progress: ProgressCallback,
    about: list[dict[str, Any]] | None = None,
) -> Iterator[FullStore]:
    """Fill a second store of the same kind, and remove it when the block is left."""
    folder = Path(order.folder) / f"{order.stage}-store"
    shutil.rmtree(folder, ignore_errors=True)
    store = order.opening.at(str(folder)).open()
    try:
        _insert_vectors(store, vectors, progress, about)
        _time_index_build(store)
        apply_search_options(store, order.searches[0])
        yield store
    finally:
        _remove_store(store, folder)


def _fill_store(
    store: FullStore, vectors: SavedVectors, order: BenchmarkWorkerTask, progress: ProgressCallback
) -> dict[str, Any]:
    """Insert, index and save all vectors, and return the times, memory and disk space."""
    pids = store.pids()
    _rehearse_store(order, vectors)
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
    if size is None and is_saved:
        size = disk_bytes(order.build_folder.store)
    return {
        "vectors": len(vectors),
        "insert_seconds": inserting,
        "index_seconds": indexing,
        "memory_bytes": max(0, after.bytes - before.bytes),
        "memory_peak_bytes": max(0, peak.increase),
        "memory_by": after.method,
        "disk_bytes": size,
        "kept": is_saved,
        "made": utc_now(),
        "abilities": sorted(store.abilities),
    }


def _rehearse_store(order: BenchmarkWorkerTask, vectors: SavedVectors) -> None:
    """Run a few vectors through a store of the same kind.

    Memory of libraries that are loaded on first use is then not counted as memory of the index.
    """
    folder = Path(order.folder) / "rehearsal"
    shutil.rmtree(folder, ignore_errors=True)
    store = order.opening.at(str(folder)).open()
    try:
        store.add(vectors.ids(0, REHEARSAL_VECTORS), vectors.rows("base", 0, REHEARSAL_VECTORS))
        _time_index_build(store)
        time_searches(store, vectors.rows("queries", 0, 3), min(order.plan.k, REHEARSAL_VECTORS, len(vectors)))
    finally:
        _remove_store(store, folder)


def _insert_vectors(
    store: FullStore, vectors: SavedVectors, progress: ProgressCallback, about: list[dict[str, Any]] | None
) -> float:
    """Insert all vectors, and return the seconds spent in the store."""
    spent = 0.0
    for start in range(0, len(vectors), VECTORS_PER_INSERT):
        names, rows = vectors.ids(start, VECTORS_PER_INSERT), vectors.rows("base", start, VECTORS_PER_INSERT)
        progress(Progress("insert", start, len(vectors)))
        began = time.perf_counter()
        if about is None:
            store.add(names, rows)
        else:
            store.add(names, rows, about[start : start + VECTORS_PER_INSERT])
        spent += time.perf_counter() - began
    return spent


def _time_index_build(store: FullStore) -> float:
    began = time.perf_counter()
    store.build()
    return time.perf_counter() - began


def _describe_store(store: FullStore, queries: Any, order: BenchmarkWorkerTask) -> dict[str, Any]:
    """Return the store's own description, and whether it used its index, if known."""
    used = store.index_used(queries[0], order.plan.k)
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
