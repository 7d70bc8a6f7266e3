"""Latency of inserts, updates and deletes, and of searches while vectors are inserted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ragauge.compute.resources import now, wait_until, without_gc
from ragauge.core.protocols import FullStore
from ragauge.store_benchmarks.measures import compute_distances
from ragauge.store_benchmarks.results import Matrix
from ragauge.store_benchmarks.search_loops import RawArrays, find_positions, split_rows, stack_results

UPDATE_OPERATIONS = ("insert", "update", "delete")
INSERTED_ID_PREFIX = "ragauge-new-"
NEW_VECTOR_JITTER = 0.05
"""Standard deviation of the noise added to new vectors, in standard deviations of the stored vectors."""
MAX_SEARCHES_PER_SECOND = 1000.0
"""Maximum search rate during inserts if none is given; high enough to observe every insert."""
THREAD_SWITCH_S = 0.0002
"""Switch interval of Python threads while one inserts and one searches, in seconds; the default is 0.005."""


def generate_new_vectors(base: Matrix, count: int, metric: str, *, seed: int = 0, kind: int = 0) -> Matrix:
    """Generate new vectors: random rows of the base with a little noise.

    By inner product the longest vector wins, not the vector itself. For that metric the new vectors are made slightly
    longer than all others, so that a search can tell whether the store has them. `kind` selects another random stream.
    """
    random = np.random.default_rng([seed, 4, kind])
    rows = base[random.integers(len(base), size=count)]
    moved = rows + random.normal(scale=NEW_VECTOR_JITTER * (float(rows.std()) or 1.0), size=rows.shape)
    if metric == "ip":
        longest = float(np.sqrt(np.einsum("ij,ij->i", base, base, dtype=np.float64).max())) or 1.0
        moved *= 1.01 * longest / np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved, dtype=np.float32)


def time_updates(
    store: FullStore,
    base: Matrix,
    k: int,
    operation: str,
    *,
    ids: Sequence[str],
    metric: str,
    n: int = 100,
    seed: int = 0,
) -> RawArrays:
    """Insert, update or delete vectors one at a time, and search for each afterwards.

    Inserts use new vectors; updates and deletes use different rows of the base. `ns` is the time of the operation, and
    `search_ns` that of the search after it, which includes work that a store defers. `seen` is 1 if that search found
    the inserted or updated vector or no longer found the deleted one, else 0. It is NaN if a deleted vector was not
    found before either. An updated vector must also be gone from its old position, which is checked by another search.
    """
    rows = np.random.default_rng([seed, 6]).permutation(len(base))
    chosen = {"insert": rows[:0], "update": rows[: len(base) // 2][:n], "delete": rows[len(base) // 2 :][:n]}
    names = [ids[row] for row in chosen[operation].tolist()]
    if operation == "insert":
        names = [f"{INSERTED_ID_PREFIX}{row}" for row in range(n)]
    vectors = base[chosen[operation]]
    if operation != "delete":
        vectors = generate_new_vectors(base, len(names), metric, seed=seed, kind=UPDATE_OPERATIONS.index(operation))
    moved = _build_updated_vectors(base[chosen[operation]], vectors, metric) if operation == "update" else None
    change = {"insert": store.add, "update": store.update, "delete": lambda names, _: store.delete(names)}[operation]
    return _time_each_update(change, store, names, vectors, k, gone=operation == "delete", moved=moved)


@dataclass(frozen=True)
class MixedWorkloadSettings:
    """Inserts during searches, and the rate of the searches."""

    n: int = 1000
    """Number of vectors that are inserted."""
    rate: float | None = None
    """Searches per second; None: half the throughput of the store, at most 1,000 per second."""
    seconds: float = 3.0
    """Seconds over which the inserts are spread evenly."""
    seed: int = 0


def run_mixed_workload(
    store: FullStore,
    base: Matrix,
    queries: Matrix,
    k: int,
    *,
    index: Mapping[str, int],
    metric: str,
    inserts: MixedWorkloadSettings = MixedWorkloadSettings(),
) -> RawArrays:
    """Search at a fixed rate, first alone, then while vectors are inserted.

    If the engine supports it, one thread inserts while another searches. Otherwise the
    operations alternate, and a search waits for an insert in progress. Searches continue until all vectors are
    inserted, for at most three times the planned seconds.

    The arrays are `alone_due_ns`, `alone_began_ns`, `alone_ended_ns`; `due_ns`, `began_ns`, `ended_ns`, `query`, and
    `positions` (new vectors are numbered after the base); `before`, the number of inserts completed when a search
    began, and `after`, the number of inserts begun by its end; `newcomers`, the new vectors; `inserted`,
    `insert_seconds`, `together`.
    """
    together = "concurrent" in store.abilities
    rows, names = split_rows(queries), [f"{INSERTED_ID_PREFIX}mixed-{number}" for number in range(inserts.n)]
    positions_by_id = {**index, **{name: len(index) + number for number, name in enumerate(names)}}
    new_vectors = generate_new_vectors(base, inserts.n, metric, seed=inserts.seed, kind=len(UPDATE_OPERATIONS))
    insert_schedule = _InsertSchedule(store, names, split_rows(new_vectors), 1e9 * inserts.seconds / inserts.n)
    with without_gc(), _short_thread_switches():
        searches = _SearchSchedule(
            store, rows, k, 1e9 / (inserts.rate or measure_half_throughput(store, rows, k)), spin=not together
        )
        searches.begin()
        searches.all(insert_schedule, inserts.seconds)
        alone_times = searches.times("alone_")
        insert_schedule.start = searches.begin()
        if together:
            thread = threading.Thread(target=insert_schedule.all, name="inserts", daemon=True)
            thread.start()
            searches.all(insert_schedule, 3 * inserts.seconds, until_in=True)
            insert_schedule.over.set()
            thread.join()
        else:
            _alternate_operations(searches, insert_schedule, 3 * inserts.seconds)
    if insert_schedule.failed is not None:
        raise insert_schedule.failed
    ids, _ = stack_results(searches.answers, k)
    return (
        alone_times
        | searches.times("")
        | {
            "query": np.arange(len(ids)) % len(rows),
            "positions": find_positions(ids, positions_by_id),
            "before": np.array(searches.before, dtype=np.int64),
            "after": np.array(searches.after, dtype=np.int64),
            "newcomers": new_vectors,
            "inserted": np.array(insert_schedule.done),
            "insert_seconds": np.array(max(insert_schedule.ended - insert_schedule.start, 0) / 1e9),
            "together": np.array(int(together)),
        }
    )


def measure_half_throughput(store: FullStore, rows: Sequence[Matrix], k: int, seconds: float = 0.5) -> float:
    """Return half the throughput of a store in queries per second, at most 1,000.

    The queries run one at a time without a pause.
    """
    began, n_queries = now(), 0
    while n_queries < 20 or now() - began < seconds * 1e9:
        store.search(rows[n_queries % len(rows)], k)
        n_queries += 1
    return min(MAX_SEARCHES_PER_SECOND, 0.5e9 * n_queries / (now() - began))


class _InsertSchedule:
    """Inserts on a schedule; other threads read the counts `begun` and `done`."""

    def __init__(self, store: Any, names: Sequence[str], rows: Sequence[Matrix], gap: float) -> None:
        self._store, self._names, self._rows, self._gap = store, names, rows, gap
        self.begun = self.done = self.start = self.ended = 0
        self.over = threading.Event()
        self.failed: BaseException | None = None

    @property
    def due_ns(self) -> int | None:
        """Scheduled time of the next insert, in ns; None after the last."""
        return self.start + int(self.done * self._gap) if self.done < len(self._names) else None

    def one(self) -> None:
        index = self.begun
        self.begun += 1
        self._store.add([self._names[index]], self._rows[index])
        self.done += 1
        self.ended = now()

    def all(self) -> None:
        try:
            while (due := self.due_ns) is not None and not self.over.is_set():
                wait_until(due, spin=False)
                if not self.over.is_set():
                    self.one()
        except BaseException as error:  # re-raised by the thread that joins this one
            self.failed = error


class _SearchSchedule:
    """Searches on a schedule, with the number of inserts around each."""

    def __init__(self, store: Any, rows: Sequence[Matrix], k: int, gap: float, *, spin: bool) -> None:
        self._search, self._rows, self._k, self._gap = store.search, rows, k, gap
        # A busy wait would keep the other thread from inserting.
        self._spin = spin
        self.begin()

    def begin(self) -> int:
        """Discard all results and return the start time of the next run, in ns."""
        self.answers: list[Any] = []
        self.began: list[int] = []
        self.ended: list[int] = []
        self.before: list[int] = []
        self.after: list[int] = []
        self.start = now() + 1_000_000
        return self.start

    @property
    def due_ns(self) -> int:
        """Scheduled time of the next search, in ns."""
        return self.start + int(len(self.answers) * self._gap)

    def wait(self) -> None:
        """Wait until the next search is due."""
        wait_until(self.due_ns, spin=self._spin)

    def one(self, inserts: _InsertSchedule) -> None:
        row = self._rows[len(self.answers) % len(self._rows)]
        self.before.append(inserts.done)
        began = now()
        answer = self._search(row, self._k)
        ended = now()
        self.after.append(inserts.begun)
        self.began.append(began)
        self.ended.append(ended)
        self.answers.append(answer)

    def all(self, inserts: _InsertSchedule, seconds: float, *, until_in: bool = False) -> None:
        """Search for `seconds`, or until all vectors are inserted if `until_in` is true."""
        until = self.start + round(seconds * 1e9)
        while self.due_ns < until and inserts.failed is None and not (until_in and inserts.due_ns is None):
            self.wait()
            self.one(inserts)

    def times(self, prefix: str) -> RawArrays:
        due = [self.start + int(number * self._gap) for number in range(len(self.answers))]
        moments = {"due_ns": due, "began_ns": self.began, "ended_ns": self.ended}
        return {prefix + name: np.array(values, dtype=np.int64) - self.start for name, values in moments.items()}


def _alternate_operations(searches: _SearchSchedule, inserts: _InsertSchedule, seconds: float) -> None:
    """Run searches as soon as they are due, and inserts in between, in one thread."""
    until = searches.start + round(seconds * 1e9)
    while (insert := inserts.due_ns) is not None and searches.due_ns < until:
        if searches.due_ns <= max(insert, now()):
            searches.wait()
            searches.one(inserts)
        else:
            wait_until(insert, spin=False)
            inserts.one()


class _UpdatedVector(NamedTuple):
    """Old vector of an update, and its distances to itself and to the new vector."""

    old: Matrix
    before: float
    after: float

    def left(self, name: str, answer: Any) -> bool:
        """Return whether the store no longer has the vector at its old position.

        A result at that position counts only if its reported distance is closer to the old one.
        """
        claims = [float(claim) for found_id, claim in zip(answer[0][0], answer[1][0], strict=False) if found_id == name]
        return not any(abs(claim - self.before) < abs(claim - self.after) for claim in claims)


def _build_updated_vectors(old: Matrix, new: Matrix, metric: str) -> list[_UpdatedVector]:
    position_pairs = np.arange(2 * len(old)).reshape(2, -1).T
    distances = compute_distances(np.concatenate([old, new]), old, position_pairs, metric)
    return [_UpdatedVector(row, *pair) for row, pair in zip(split_rows(old), distances.tolist(), strict=True)]


def _time_each_update(
    change: Any,
    store: FullStore,
    names: Sequence[str],
    vectors: Matrix,
    k: int,
    *,
    gone: bool,
    moved: Sequence[_UpdatedVector] | None = None,
) -> RawArrays:
    change_times: list[int] = []
    search_times: list[int] = []
    outcomes: list[float] = []
    with without_gc():
        for index, (name, row) in enumerate(zip(names, split_rows(vectors), strict=True)):
            was_missing = gone and name not in list(store.search(row, k)[0][0])
            began = now()
            change([name], row)
            changed = now()
            answer = store.search(row, k)
            ended = now()
            change_times.append(changed - began)
            search_times.append(ended - changed)
            is_right = (name in list(answer[0][0])) is not gone
            if is_right and moved is not None:
                is_right = moved[index].left(name, store.search(moved[index].old, k))
            outcomes.append(np.nan if was_missing else float(is_right))
    return {
        "ns": np.array(change_times, dtype=np.int64),
        "search_ns": np.array(search_times, dtype=np.int64),
        "seen": np.array(outcomes, dtype=np.float64),
    }


@contextmanager
def _short_thread_switches() -> Iterator[None]:
    """Shorten the switch interval of Python threads within the block."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
