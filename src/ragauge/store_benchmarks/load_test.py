"""Load tests with several client processes: closed loop, or open loop at a target rate.

A closed-loop client waits for a result before it sends the next query. If the store stalls, nothing is sent, and the
stall counts as one slow query among thousands. Real users do not wait. In an open loop, queries follow a schedule, and
their latency counts from the scheduled time (Gil Tene's "coordinated omission").
"""

from __future__ import annotations

import os
import shutil
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.compute.resources import now, pin_to_cores, take_snapshot, usable_cores, wait_until, without_gc
from ragauge.compute.workers import describe_exit
from ragauge.core import protocols
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError
from ragauge.core.records import Ints
from ragauge.files.workspace import temporary_folder
from ragauge.store_benchmarks.plan import StoreSpec
from ragauge.store_benchmarks.results import Matrix
from ragauge.store_benchmarks.search_loops import RawArrays, split_rows, time_searches

START_DELAY_NS = 50_000_000
"""Delay between the last client being ready and the common start."""


def run_load_test(  # noqa: PLR0913 - each is one choice of the experiment
    opening: StoreSpec,
    queries: Matrix,
    k: int,
    *,
    clients: int = 1,
    rate: float | None = None,
    seconds: float = 5.0,
    poisson: bool = False,
    threads: int = 1,
    warm_up: Matrix | None = None,
    server: bool = False,
    patience: float = 1.0,
    opening_seconds: float = 120.0,
    seed: int = 0,
) -> tuple[RawArrays, str]:
    """Run several clients against a saved store.

    Returns the times of every query on one clock, and a note for the user (may be empty). Without a `rate`, each client
    sends its next query after each result, for `seconds`. With a `rate`, queries are due evenly, or with `poisson` at
    random as from independent users; a free client takes the next one. Queries not sent within `patience` times
    `seconds` after the end are dropped. A client may take `opening_seconds` to open the store and warm up, and again to
    end.

    `due_ns`, `began_ns`, `ended_ns` (-1: dropped) count from the common start, with `client` for each query. In
    addition: `clients`, `rate` (NaN: closed loop), `copies` (1: each client had its own copy of the folder), `empty`
    (number of empty results), `stopped_ns` (end of the last client), `readings` (clients, SNAPSHOT_DIFFERENCES),
    `server`, and `cores` (number of clients that can have their own CPU cores).

    No other process may have the store open. If processes cannot share its folder, each client gets a copy. `server`
    means that the store runs in a separate process, which needs a CPU core too. Each client gets `threads` CPU cores.
    """
    if clients < 1:
        raise BadInput(f"{clients} clients cannot ask anything")
    known = usable_cores()
    # A busy wait needs a CPU core. If there are too few, clients sleep and start slightly late.
    spin = clients * threads < len(known) + (not server)
    work = _LoadSettings(k, clients, rate, seconds, threads, patience, known, spin)
    due = (
        compute_arrival_times(rate, seconds, poisson=poisson, seed=seed)
        if rate is not None
        else np.empty(0, dtype=np.int64)
    )
    context = get_context("spawn")
    counter = context.Value("q", 0)
    # Next to the store: copies may be large, and leftovers of a killed process are deleted with the store.
    beside = None if opening.path is None else Path(opening.path).parent
    with temporary_folder("load", beside) as folder:
        openings, copies = _client_store_specs(opening, clients, folder)
        told = [(one, queries, warm_up, work, due, place) for place, one in enumerate(openings)]
        with _start_clients(context, told, counter) as running:
            _collect_messages(running, "ready", opening_seconds)
            start = now() + START_DELAY_NS
            for one in running:
                one.pipe.send(start)
            parts = _collect_messages(running, "done", seconds * (1 + patience) + opening_seconds)
    note = "each client had a copy of the store: it cannot be opened by several at once" if copies else ""
    raw = _merge_client_results(parts, work, due, copies=copies)
    return raw | {"server": np.array(int(server)), "cores": np.array(len(known) // threads)}, note


def compute_arrival_times(rate: float, seconds: float, *, poisson: bool = False, seed: int = 0) -> Ints:
    """Compute the scheduled times of queries, in nanoseconds from the start.

    >>> compute_arrival_times(4, 1).tolist()
    [0, 250000000, 500000000, 750000000]
    """
    if not rate > 0 or not seconds > 0:
        raise BadInput(f"{rate:g} queries a second for {seconds:g} seconds are none")
    count = max(1, round(rate * seconds))
    if not poisson:
        return np.asarray(np.arange(count) * (1e9 / rate), dtype=np.int64)
    gaps = np.random.default_rng([seed, 3]).exponential(1e9 / rate, size=count)
    return np.asarray(np.cumsum(gaps) - gaps[0], dtype=np.int64)


@dataclass(frozen=True)
class _LoadSettings:
    """Settings common to all clients."""

    k: int
    clients: int
    rate: float | None
    seconds: float
    threads: int
    patience: float
    cores: tuple[int, ...]
    spin: bool


@dataclass(frozen=True)
class _ClientProcess:
    process: Any
    pipe: Any


@contextmanager
def _start_clients(context: Any, told: list[Any], counter: Any) -> Iterator[list[_ClientProcess]]:
    """Start client processes, and end them when the block is left."""
    running: list[_ClientProcess] = []
    try:
        for arguments in told:
            ours, theirs = context.Pipe()
            process = context.Process(target=_run_client, args=(theirs, counter, arguments))
            process.start()
            theirs.close()
            running.append(_ClientProcess(process, ours))
        yield running
    finally:
        for one in running:
            one.pipe.close()
        until = time.monotonic() + 2
        for one in running:
            one.process.join(max(0.0, until - time.monotonic()))
            if one.process.is_alive():
                one.process.kill()
                one.process.join()
            one.process.close()


def _collect_messages(running: list[_ClientProcess], what: str, seconds: float) -> list[Any]:
    """Return the next message of each client.

    Raises BackendFailed for the first client that fails, dies or exceeds the time limit.
    """
    until = time.monotonic() + seconds
    found: dict[int, Any] = {}
    while len(found) < len(running):
        waiting = {one.pipe: place for place, one in enumerate(running) if place not in found}
        ready = connection.wait(list(waiting), timeout=max(0.0, until - time.monotonic()))
        if not ready:
            raise BackendFailed(f"gave up waiting for client {min(waiting.values()) + 1} of {len(running)} under load")
        for pipe in ready:
            place = waiting[pipe]
            try:
                said, content = running[place].pipe.recv()
            except (EOFError, ConnectionError) as error:
                process = running[place].process
                process.join(5)
                raise BackendFailed(
                    f"client {place + 1} of {len(running)} {describe_exit(process.exitcode)}"
                ) from error
            if said == "failed":
                message, hint = content
                raise BackendFailed(f"client {place + 1} of {len(running)}: {message}", hint=hint)
            if said == what:
                found[place] = content
    return [found[place] for place in range(len(running))]


def _run_client(pipe: Any, counter: Any, told: tuple[Any, ...]) -> None:
    """Open the store in a client process, run its loop and send the results."""
    opening, queries, warm_up, work, due, place = told
    os.dup2(2, 1)  # output of an engine must not reach stdout
    try:
        pin_to_cores(work.threads, first=place * work.threads, among=work.cores)
        store = opening.open()
        try:
            time_searches(store, queries[:32] if warm_up is None else warm_up, work.k)
            rows = split_rows(queries)
            with without_gc():
                pipe.send(("ready", None))
                start = pipe.recv()
                wait_until(start, spin=work.spin)
                before = take_snapshot()
                if len(due):
                    found = _open_loop(store, rows, work, due, counter, start)
                else:
                    found = _closed_loop(store, rows, work, place, start)
                readings = take_snapshot().since(before)
            pipe.send(("done", (found, readings, now() - start)))
        finally:
            protocols.close_if_possible(store)
    except (EOFError, ConnectionError):
        return  # the parent closed the pipe
    except RagaugeError as error:
        pipe.send(("failed", (error.message, error.hint)))
    except Exception as error:  # an engine may raise anything
        pipe.send(("failed", (" ".join(f"{type(error).__name__}: {error}".split()), None)))


def _closed_loop(store: Any, rows: list[Matrix], work: _LoadSettings, place: int, start: int) -> RawArrays:
    """Send each query after the previous result; each client starts at another query."""
    began, ended = array("q"), array("q")
    search, k, n, empty = store.search, work.k, len(rows), 0
    at = place * n // work.clients
    until = start + round(work.seconds * 1e9)
    while True:
        first = now()
        if first >= until:
            break
        answer = search(rows[at], k)
        last = now()
        began.append(first)
        ended.append(last)
        empty += len(answer[0][0]) == 0 or answer[0][0][0] is None
        at = at + 1 if at + 1 < n else 0
    return _build_time_arrays(began, began, ended, array("q"), start, empty)


def _open_loop(store: Any, rows: list[Matrix], work: _LoadSettings, due: Ints, counter: Any, start: int) -> RawArrays:
    """Take the next query from the shared schedule, wait until it is due, and run it."""
    planned, began, ended, taken = array("q"), array("q"), array("q"), array("q")
    search, k, n, empty = store.search, work.k, len(rows), 0
    moments = [start + moment for moment in due.tolist()]
    until = start + round(work.seconds * (1 + work.patience) * 1e9)
    lock = counter.get_lock()
    while True:
        with lock:
            mine = counter.value
            counter.value = mine + 1
        if mine >= len(moments):
            break
        wait_until(moments[mine], spin=work.spin)
        first = now()
        if first >= until:
            break
        answer = search(rows[mine % n], k)
        last = now()
        planned.append(moments[mine])
        began.append(first)
        ended.append(last)
        taken.append(mine)
        empty += len(answer[0][0]) == 0 or answer[0][0][0] is None
    return _build_time_arrays(planned, began, ended, taken, start, empty)


def _build_time_arrays(planned: Any, began: Any, ended: Any, taken: Any, start: int, empty: int) -> RawArrays:
    moments = {"due_ns": planned, "began_ns": began, "ended_ns": ended}
    found: RawArrays = {name: np.array(values, dtype=np.int64) - start for name, values in moments.items()}
    return found | {"query": np.array(taken, dtype=np.int64), "empty": np.array(empty)}


def _merge_client_results(parts: list[Any], work: _LoadSettings, due: Ints, *, copies: bool) -> RawArrays:
    """Merge the times of all clients; open-loop queries are sorted by scheduled time."""
    found: RawArrays = {
        name: np.concatenate([part[name] for part, _, _ in parts]) for name in ("due_ns", "began_ns", "ended_ns")
    }
    found["client"] = np.repeat(np.arange(len(parts)), [len(part["due_ns"]) for part, _, _ in parts])
    if len(due):
        asked = np.concatenate([part["query"] for part, _, _ in parts])
        whole: RawArrays = {"due_ns": due}
        for name in ("began_ns", "ended_ns", "client"):
            whole[name] = np.full(len(due), -1, dtype=np.int64)
            whole[name][asked] = found[name]
        found = whole
    return found | {
        "clients": np.array(work.clients),
        "rate": np.array(np.nan if work.rate is None else work.rate),
        "seconds": np.array(work.seconds),
        "copies": np.array(int(copies)),
        "empty": np.array(sum(int(part["empty"]) for part, _, _ in parts)),
        "stopped_ns": np.array(max(ended for _, _, ended in parts)),
        "readings": np.array([readings for _, readings, _ in parts]),
    }


def _client_store_specs(opening: StoreSpec, clients: int, folder: Path) -> tuple[list[StoreSpec], bool]:
    """Return one store specification per client, and whether the store was copied."""
    if opening.path is None or clients == 1 or not Path(opening.path).is_dir():
        return [opening] * clients, False
    store = opening.open()
    try:
        share = "share" in protocols.get_capabilities(store)
    finally:
        protocols.close_if_possible(store)
    if share:
        return [opening] * clients, False
    found = [opening]
    for place in range(1, clients):
        shutil.copytree(opening.path, folder / str(place))
        found.append(replace(opening, path=str(folder / str(place))))
    return found, True
