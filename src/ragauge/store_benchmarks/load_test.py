"""Load tests with several client processes: closed loop, or open loop at a target rate.

A closed-loop client waits for a result before it sends the next query. If the store stalls, nothing is sent, and the
stall counts as one slow query among thousands. Real users do not wait. In an open loop, queries follow a schedule, and
their latency counts from the scheduled time (Gil Tene's "coordinated omission").
"""

from __future__ import annotations

import shutil
from array import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.compute.resources import now, pin_to_cores, take_snapshot, usable_cores, wait_until, without_gc
from ragauge.compute.worker_process import SendEvent, take_number, wait_for_start
from ragauge.compute.workers import GroupFailure, WorkerDied, WorkerLimits, WorkerTimeout, gather_results, worker_group
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.protocols import FullStore
from ragauge.core.records import Ints
from ragauge.files.workspace import temporary_folder
from ragauge.store_benchmarks.plan import StoreSpec
from ragauge.store_benchmarks.results import Matrix
from ragauge.store_benchmarks.search_loops import RawArrays, split_rows, time_searches

STOP_WAIT_S = 2.0
"""Seconds that a finished client has to exit."""
QUERIES_FILE, WARM_UP_FILE, SCHEDULE_FILE = "queries.npy", "warm-up.npy", "schedule.npy"
"""Files in the folder of a load test that all clients read."""


@dataclass(frozen=True)
class OfferedLoad:
    """Queries that the clients of a load test send."""

    clients: int = 1
    rate: float | None = None
    """Queries per second of all clients together; None: each client sends its next query after each result."""
    seconds: float = 5.0
    poisson: bool = False
    """Whether queries are due at random, as from independent users, and not evenly."""
    threads: int = 1
    """Number of CPU cores of each client."""
    patience: float = 1.0
    """Queries not sent within `patience` times `seconds` after the end are dropped."""


def run_load_test(
    opening: StoreSpec,
    queries: Matrix,
    k: int,
    load: OfferedLoad = OfferedLoad(),
    *,
    warm_up: Matrix | None = None,
    server: bool = False,
    opening_seconds: float = 120.0,
    seed: int = 0,
) -> tuple[RawArrays, str]:
    """Run several clients against a saved store.

    Returns the times of every query on one clock, and a note for the user (may be empty). With a rate, a free client
    takes the next query that is due. A client may take `opening_seconds` to open the store and warm up, and again to
    end.

    `due_ns`, `began_ns`, `ended_ns` (-1: dropped) count from the common start, with `client` for each query. In
    addition: `clients`, `rate` (NaN: closed loop), `copies` (1: each client had its own copy of the folder), `empty`
    (number of empty results), `stopped_ns` (end of the last client), `readings` (clients, SNAPSHOT_DIFFERENCES),
    `server`, and `cores` (number of clients that can have their own CPU cores).

    No other process may have the store open. If processes cannot share its folder, each client gets a copy. `server`
    means that the store runs in a separate process, which needs a CPU core too.
    """
    if load.clients < 1:
        raise BadInput(f"clients must be at least 1, got {load.clients}")
    cores = usable_cores()
    # A busy wait needs a CPU core. If there are too few, clients sleep and start slightly late.
    spin = load.clients * load.threads < len(cores) + (not server)
    settings = LoadSettings(k, load, cores, spin)
    due = (
        compute_arrival_times(load.rate, load.seconds, poisson=load.poisson, seed=seed)
        if load.rate is not None
        else np.empty(0, dtype=np.int64)
    )
    # Next to the store: copies may be large, and leftovers of a killed process are deleted with the store.
    parent_folder = None if opening.path is None else Path(opening.path).parent
    with temporary_folder("load", parent_folder) as folder:
        openings, copies = _client_store_specs(opening, load.clients, folder)
        np.save(folder / QUERIES_FILE, queries, allow_pickle=False)
        np.save(folder / WARM_UP_FILE, queries[:32] if warm_up is None else warm_up, allow_pickle=False)
        np.save(folder / SCHEDULE_FILE, due, allow_pickle=False)
        tasks = [ClientTask(store, str(folder), number, settings) for number, store in enumerate(openings)]
        parts = _run_clients(tasks, len(due), opening_seconds)
    note = "each client had a copy of the store, because only one process can open it" if copies else ""
    raw = _merge_client_results(parts, settings, due, copies=copies)
    return raw | {"server": np.array(int(server)), "cores": np.array(len(cores) // load.threads)}, note


def compute_arrival_times(rate: float, seconds: float, *, poisson: bool = False, seed: int = 0) -> Ints:
    """Compute the scheduled times of queries, in nanoseconds from the start.

    >>> compute_arrival_times(4, 1).tolist()
    [0, 250000000, 500000000, 750000000]
    """
    if not rate > 0 or not seconds > 0:
        raise BadInput(f"{rate:g} queries per second for {seconds:g} seconds schedule no query")
    count = max(1, round(rate * seconds))
    if not poisson:
        return np.asarray(np.arange(count) * (1e9 / rate), dtype=np.int64)
    gaps = np.random.default_rng([seed, 3]).exponential(1e9 / rate, size=count)
    return np.asarray(np.cumsum(gaps) - gaps[0], dtype=np.int64)


@dataclass(frozen=True)
class LoadSettings:
    """Settings common to all clients."""

    k: int
    load: OfferedLoad
    cores: tuple[int, ...]
    spin: bool


@dataclass(frozen=True)
class ClientTask:
    store: StoreSpec
    folder: str
    """Folder with the queries and the schedule, and for the times of each client."""
    index: int
    """Number of the client, from 0."""
    settings: LoadSettings

    @property
    def times_file(self) -> Path:
        return Path(self.folder) / f"times-{self.index}.npz"


class ClientResult(NamedTuple):
    """Result of one client process, next to its file of times."""

    readings: list[float]
    """Differences between two snapshots of the machine, as SNAPSHOT_DIFFERENCES."""
    stopped_ns: int
    """End of the client in nanoseconds from the common start."""


ClientPart = tuple[RawArrays, ClientResult]


def _run_clients(tasks: list[ClientTask], n_due: int, opening_seconds: float) -> list[ClientPart]:
    """Run all clients, and return their times; raise BackendFailed for the first one that fails."""
    settings = tasks[0].settings
    limits = WorkerLimits(opening_seconds, stop_wait_s=STOP_WAIT_S)
    try:
        with worker_group(
            "ragauge.store_benchmarks.load_test:run_client",
            tasks,
            limits,
            duration_s=settings.load.seconds * (1 + settings.load.patience),
            shared_numbers=n_due,
        ) as workers:
            results = gather_results(workers, ClientResult)
    except GroupFailure as failure:
        client, error = f"client {failure.index + 1} of {len(tasks)}", failure.__cause__
        if isinstance(error, WorkerTimeout):
            raise BackendFailed(f"gave up waiting for {client} under load") from None
        if isinstance(error, WorkerDied):
            raise BackendFailed(f"{client} {error.end}") from None
        raise BackendFailed(f"{client}: {failure.message}", hint=failure.hint) from None
    parts: list[ClientPart] = []
    for task, result in zip(tasks, results, strict=True):
        with np.load(task.times_file, allow_pickle=False) as arrays:
            parts.append(({name: arrays[name] for name in arrays.files}, result))
    return parts


def run_client(task: ClientTask, send: SendEvent) -> ClientResult:
    """Open the store in a client process, run its loop, and write the times of its queries."""
    settings, folder = task.settings, Path(task.folder)
    pin_to_cores(settings.load.threads, first=task.index * settings.load.threads, among=settings.cores)
    queries, warm_up, due = (
        np.load(folder / name, allow_pickle=False) for name in (QUERIES_FILE, WARM_UP_FILE, SCHEDULE_FILE)
    )
    store = task.store.open()
    try:
        time_searches(store, warm_up, settings.k)
        rows = split_rows(queries)
        with without_gc():
            start = wait_for_start(send)
            wait_until(start, spin=settings.spin)
            before = take_snapshot()
            if len(due):
                times = _open_loop(store, rows, settings, due, start)
            else:
                times = _closed_loop(store, rows, settings, task.index, start)
            readings = take_snapshot().since(before)
        stopped_ns = now() - start
        np.savez(task.times_file, allow_pickle=False, **times)
    finally:
        store.close()
    return ClientResult(readings.tolist(), stopped_ns)


def _closed_loop(store: FullStore, rows: list[Matrix], settings: LoadSettings, client: int, start: int) -> RawArrays:
    """Send each query after the previous result; each client starts at another query."""
    began, ended = array("q"), array("q")
    search, k, n, empty = store.search, settings.k, len(rows), 0
    index = client * n // settings.load.clients
    until = start + round(settings.load.seconds * 1e9)
    while True:
        first = now()
        if first >= until:
            break
        answer = search(rows[index], k)
        last = now()
        began.append(first)
        ended.append(last)
        empty += len(answer[0][0]) == 0 or answer[0][0][0] is None
        index = index + 1 if index + 1 < n else 0
    return _build_time_arrays(began, began, ended, array("q"), start, empty)


def _open_loop(store: FullStore, rows: list[Matrix], settings: LoadSettings, due: Ints, start: int) -> RawArrays:
    """Take the next query from the shared schedule, wait until it is due, and run it."""
    planned, began, ended, query_numbers = array("q"), array("q"), array("q"), array("q")
    search, k, n, empty = store.search, settings.k, len(rows), 0
    moments = [start + moment for moment in due.tolist()]
    until = start + round(settings.load.seconds * (1 + settings.load.patience) * 1e9)
    while (number := take_number()) is not None:
        wait_until(moments[number], spin=settings.spin)
        first = now()
        if first >= until:
            break
        answer = search(rows[number % n], k)
        last = now()
        planned.append(moments[number])
        began.append(first)
        ended.append(last)
        query_numbers.append(number)
        empty += len(answer[0][0]) == 0 or answer[0][0][0] is None
    return _build_time_arrays(planned, began, ended, query_numbers, start, empty)


def _build_time_arrays(planned: Any, began: Any, ended: Any, query_numbers: Any, start: int, empty: int) -> RawArrays:
    moments = {"due_ns": planned, "began_ns": began, "ended_ns": ended}
    arrays: RawArrays = {name: np.array(values, dtype=np.int64) - start for name, values in moments.items()}
    return arrays | {"query": np.array(query_numbers, dtype=np.int64), "empty": np.array(empty)}


def _merge_client_results(parts: list[ClientPart], settings: LoadSettings, due: Ints, *, copies: bool) -> RawArrays:
    """Merge the times of all clients; open-loop queries are sorted by scheduled time."""
    arrays: RawArrays = {
        name: np.concatenate([part[name] for part, _ in parts]) for name in ("due_ns", "began_ns", "ended_ns")
    }
    arrays["client"] = np.repeat(np.arange(len(parts)), [len(part["due_ns"]) for part, _ in parts])
    if len(due):
        results = np.concatenate([part["query"] for part, _ in parts])
        scheduled: RawArrays = {"due_ns": due}
        for name in ("began_ns", "ended_ns", "client"):
            scheduled[name] = np.full(len(due), -1, dtype=np.int64)
            scheduled[name][results] = arrays[name]
        arrays = scheduled
    return arrays | {
        "clients": np.array(settings.load.clients),
        "rate": np.array(np.nan if settings.load.rate is None else settings.load.rate),
        "seconds": np.array(settings.load.seconds),
        "copies": np.array(int(copies)),
        "empty": np.array(sum(int(part["empty"]) for part, _ in parts)),
        "stopped_ns": np.array(max(result.stopped_ns for _, result in parts)),
        "readings": np.array([result.readings for _, result in parts]),
    }


def _client_store_specs(opening: StoreSpec, clients: int, folder: Path) -> tuple[list[StoreSpec], bool]:
    """Return one store specification per client, and whether the store was copied."""
    if opening.path is None or clients == 1 or not Path(opening.path).is_dir():
        return [opening] * clients, False
    store = opening.open()
    try:
        share = "share" in store.abilities
    finally:
        store.close()
    if share:
        return [opening] * clients, False
    specs = [opening]
    for number in range(1, clients):
        shutil.copytree(opening.path, folder / str(number))
        specs.append(replace(opening, path=str(folder / str(number))))
    return specs, True
