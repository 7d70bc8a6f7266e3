"""Timing of searches: clocks, garbage collection, order of rounds, and memory and disk space of a store."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from ragauge.compute import resources
from ragauge.core.errors import BackendFailed, BadInput
from ragauge.core.protocols import STORE_CAPABILITIES, FullStore
from ragauge.store_benchmarks import search_loops
from ragauge.stores.reference import NullSettings, NullStore


def make_vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def make_ids(n: int) -> list[str]:
    return [f"d{i}" for i in range(n)]


def make_null_store(n: int = 20, **options) -> NullStore:
    store = NullStore(metric="l2", settings=NullSettings(**options))
    store.add(make_ids(n), make_vectors(n, 4))
    return store


class RecordingStore:
    """Store that records each search and returns an id with the number of its setting."""

    def __init__(self) -> None:
        self.setting = -1
        self.searches: list[tuple[int, float]] = []

    def tune(self, options) -> None:
        self.setting = options["setting"]

    def search(self, vectors, k):
        self.searches.append((self.setting, float(vectors[0, 0])))
        return np.array([[f"d{self.setting}", "stranger"]], dtype=object), np.array([[0.5, 0.7]], dtype=np.float32)


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.engine
def test_without_gc_disables_and_restores_gc_state(is_frozen):
    assert gc.isenabled()
    gc.unfreeze()
    if is_frozen:
        gc.freeze()
    try:
        with resources.without_gc():
            assert not gc.isenabled()
            assert gc.get_freeze_count() > 0
        assert gc.isenabled()
        assert (gc.get_freeze_count() > 0) is is_frozen
        gc.disable()
        with resources.without_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.freeze()


def test_without_gc_exception_enables_gc_again():
    with pytest.raises(ZeroDivisionError), resources.without_gc():
        _ = 1 / 0
    assert gc.isenabled()


def test_take_snapshot_separates_cpu_time_from_waiting():
    before = resources.take_snapshot()
    time.sleep(0.2)
    sleeping = dict(zip(resources.SNAPSHOT_DIFFERENCES, resources.take_snapshot().since(before), strict=True))
    before = resources.take_snapshot()
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    working = dict(zip(resources.SNAPSHOT_DIFFERENCES, resources.take_snapshot().since(before), strict=True))
    assert sleeping["seconds"] >= 0.2
    assert sleeping["cpu_seconds"] < sleeping["seconds"] / 2
    assert working["cpu_seconds"] >= 0.1


def test_take_snapshot_without_proc_stat_returns_nan(monkeypatch):
    monkeypatch.setattr(resources, "PROC_STAT_PATH", "/nowhere/stat")
    reading = resources.take_snapshot()
    assert np.isnan(reading.stolen)
    assert np.isnan(reading.ticks)


def test_pin_to_cores_pins_process_and_keeps_usable_cores():
    code = (
        "import os; from ragauge.compute import resources\n"
        "first = resources.pin_to_cores(1)\n"
        "assert first is None or (os.sched_getaffinity(0) == set(first) and len(first) == 1)\n"
        "other = resources.pin_to_cores(1, first=1)\n"
        "cores = resources.usable_cores()\n"
        "print(len(cores), first is None or other == (cores[1 % len(cores)],))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    core_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert process.stdout.split() == [str(core_count), "True"]


def test_thread_limits_sets_environment_variables():
    limits = resources.thread_limits(3)
    assert {limits[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")} == {"3"}
    assert all(isinstance(value, str) for value in limits.values())


@pytest.mark.parametrize("spin", [True, False])
def test_wait_until_does_not_return_early(spin):
    due = resources.now() + 20_000_000
    resources.wait_until(due, spin=spin)
    assert resources.now() >= due
    resources.wait_until(due - 1_000_000_000, spin=spin)  # a time in the past returns at once


def test_now_is_shared_between_processes():
    before = resources.now()
    process = subprocess.run(
        [sys.executable, "-c", "from ragauge.compute import resources; print(resources.now())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert before < int(process.stdout) < resources.now()


def test_null_store_implements_full_store(tmp_path):
    store = NullStore(metric="cosine", path=str(tmp_path / "null"))
    assert isinstance(store, FullStore)
    assert store.abilities == set(STORE_CAPABILITIES)
    store.add(["a", "b", "c"], np.eye(3), [{"kind": 1}, {"kind": 2}, {"kind": 2}])
    store.build()
    store.update(["a"], np.ones((1, 3)))
    assert store.search(np.ones((2, 3)), 2)[0].tolist() == [["a", "b"]] * 2
    assert store.search(np.ones((1, 3)), 2, {"kind": 2})[0].tolist() == [["b", "c"]]
    store.delete(["b"])
    store.save()
    store.close()
    reopened = NullStore(metric="cosine", path=str(tmp_path / "null"))
    assert reopened.search(np.ones((1, 3)), 4)[0].tolist() == [["a", "c", None, None]]
    assert reopened.describe()["dimension"] == 3


def test_null_store_invalid_input_raises_error():
    store = make_null_store()
    with pytest.raises(BadInput, match="NaN or an infinity"):
        store.search(np.full((1, 4), np.nan), 3)
    with pytest.raises(BadInput, match="duplicate id"):
        store.add(["d0"], np.ones((1, 4)))
    with pytest.raises(BadInput, match="stall_ms must be at least 0, got -1"):
        store.tune({"stall_ms": -1})
    with pytest.raises(BadInput, match="every must be at least 1, got 0"):
        store.tune({"every": 0})


def test_null_store_stalls_every_tenth_search(monkeypatch):
    store, stalls = make_null_store(stall_ms=100, every=10), []
    monkeypatch.setattr(
        "ragauge.stores.reference.time.sleep", lambda seconds: stalls.append((store._searches, seconds))
    )
    search_loops.time_searches(store, make_vectors(40, 4), 3)
    assert stalls == [(10, 0.1), (20, 0.1), (30, 0.1), (40, 0.1)]


def test_null_store_work_ms_sets_minimum_search_time():
    assert search_loops.time_searches(make_null_store(work_ms=5), make_vectors(5, 4), 3).nanoseconds.min() >= 5_000_000


def test_time_searches_returns_results_and_time_per_query():
    result = search_loops.time_searches(make_null_store(2), make_vectors(7, 4), 3)
    assert result.ids.tolist() == [["d0", "d1", None]] * 7
    assert result.distances.tolist() == [[0.0, 0.0, np.inf]] * 7
    assert result.nanoseconds.shape == (7,)
    assert (result.nanoseconds > 0).all()


def test_stack_results_pads_short_and_rejects_long_results():
    ids, distances = search_loops.stack_results([([["a"]], [[1.0]]), ([["b", "c"]], [[1.0, 2.0]])], 2)
    assert ids.tolist() == [["a", None], ["b", "c"]]
    assert distances.tolist() == [[1.0, np.inf], [1.0, 2.0]]
    with pytest.raises(BackendFailed, match="returned too many ids; expected up to 2 ids per query, got 3"):
        search_loops.stack_results([([["b", "c", "d"]], [[1.0, 2.0, 3.0]])], 2)


def test_time_search_rounds_repeats_fast_searches():
    raw = search_loops.time_search_rounds(
        make_null_store(),
        make_vectors(10, 4),
        2,
        [{}],
        index={},
        rounds=search_loops.SearchRounds(floor=make_null_store(), warm_up=make_vectors(5, 4), repeats=2),
    )[0]
    assert raw["nanoseconds"].shape == (2, 10 * search_loops.MAX_PASSES)
    assert raw["positions"].shape == (10, 2)
    slow_store = make_null_store(work_ms=50)
    raw = search_loops.time_search_rounds(
        slow_store,
        make_vectors(10, 4),
        2,
        [{}],
        index={},
        rounds=search_loops.SearchRounds(floor=make_null_store(), warm_up=make_vectors(1, 4), repeats=1),
    )[0]
    assert raw["nanoseconds"].shape == (1, 10)


@pytest.mark.engine
def test_time_search_rounds_warms_up_and_shuffles_settings(monkeypatch):
    monkeypatch.setattr(search_loops, "MAX_PASSES", 1)
    queries, warm_up = np.full((5, 4), 1.0, np.float32), np.full((3, 4), 2.0, np.float32)
    store, settings = RecordingStore(), [{"setting": i} for i in range(6)]
    reports: list[tuple[int, int]] = []
    results = search_loops.time_search_rounds(
        store,
        queries,
        2,
        settings,
        index={name: i for i, name in enumerate(make_ids(6))},
        progress=lambda step: reports.append((step.done, step.total)),
        rounds=search_loops.SearchRounds(floor=make_null_store(), warm_up=warm_up, repeats=3, seed=7),
    )
    turns = [store.searches[start : start + 8] for start in range(0, len(store.searches), 8)]
    assert all([first for _, first in turn] == [2.0] * 3 + [1.0] * 5 for turn in turns)
    orders = [tuple(turn[0][0] for turn in turns[start : start + 6]) for start in (0, 6, 12)]
    assert all(sorted(order) == list(range(6)) for order in orders)
    assert len(set(orders)) == 3
    assert reports[-1] == (18, 18)
    for i, raw in enumerate(results):
        assert raw["positions"].tolist() == [[i, search_loops.UNKNOWN_POSITION]] * 5
        assert raw["nanoseconds"].shape == (3, 5)
        assert raw["floor_ns"].shape == (3, 2)
        assert raw["readings"].shape == (3, len(resources.SNAPSHOT_DIFFERENCES))
        assert raw["changed"].tolist() == [0, 0, 0]
        assert all(values.dtype != object for values in raw.values())


class UnevenStore(RecordingStore):
    """Store that is slow in every other round."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0

    def tune(self, options) -> None:
        super().tune(options)
        self.rounds += 1

    def search(self, vectors, k):
        time.sleep(0.02 * (self.rounds % 2))
        return super().search(vectors, k)


@pytest.mark.parametrize(("max_repeats", "repeats"), [(None, 2), (5, 5)])
@pytest.mark.engine
def test_time_search_rounds_uncertain_mean_adds_rounds(max_repeats, repeats):
    rounds = search_loops.SearchRounds(
        floor=make_null_store(), warm_up=make_vectors(2, 4), repeats=2, max_repeats=max_repeats
    )
    raw = search_loops.time_search_rounds(
        UnevenStore(), make_vectors(2, 4), 2, [{"setting": 0}], index={}, rounds=rounds
    )[0]
    assert raw["nanoseconds"].shape[0] == raw["floor_ns"].shape[0] == repeats


def test_time_search_rounds_counts_changed_results(monkeypatch):
    monkeypatch.setattr(search_loops, "MAX_PASSES", 1)

    class FickleStore(RecordingStore):
        def search(self, vectors, k):
            ids, distances = super().search(vectors, k)
            return (ids, distances) if len(self.searches) % 7 else (ids[:, ::-1], distances)

    raw = search_loops.time_search_rounds(
        FickleStore(),
        make_vectors(10, 4),
        2,
        [{}],
        index={"d-1": 0},
        rounds=search_loops.SearchRounds(floor=make_null_store(), warm_up=make_vectors(1, 4), repeats=2),
    )[0]
    # Each of the 2 rounds has 1 warm-up and 10 measured searches. Every seventh of the 22 has reversed ids: number 7
    # in the first round, 14 and 21 in the second. These are 3 different queries, so 3 results changed.
    assert raw["changed"].tolist() == [0, 3]


@pytest.mark.engine
def test_measure_memory_includes_child_processes():
    before = resources.measure_memory()
    array = np.ones(64 << 20, np.float32)
    code = "import numpy as np; x = np.ones(64 << 20, np.float32); print('there', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        after = resources.measure_memory()
        with_child = resources.measure_memory([child.pid])
    finally:
        child.communicate(b"\n")
    assert after.processes == with_child.processes == before.processes + 1
    assert after.method in ("pss", "rss")
    # Other child processes share pages with this one, so its own share varies by up to 100 MB.
    assert after.bytes - before.bytes > 380 << 20
    assert array.nbytes == 256 << 20


def test_measure_peak_memory_includes_freed_memory():
    # In a new process, because children of this one may end meanwhile and hide the peak. The kernel may reclaim idle
    # pages, so the array is touched until it was sampled, and the limit is below its 100 MiB.
    code = (
        "import time, numpy as np; from ragauge.compute import resources\n"
        "with resources.measure_peak_memory() as peak:\n"
        "    array = np.ones(25 << 20, np.float32)\n"
        "    while peak.n_samples < 3: array += 1; time.sleep(0.01)\n"
        "    del array\n"
        "print(peak.increase)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(process.stdout) > 50 << 20


def test_measure_memory_ignores_ended_process():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert resources.measure_memory([child.pid]).processes == resources.measure_memory().processes


def test_disk_bytes_counts_links_once_and_ignores_file_holes(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one").write_bytes(b"x" * 1000)
    os.link(tmp_path / "inner" / "one", tmp_path / "two")
    (tmp_path / "three").symlink_to(tmp_path / "two")
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(64 << 20)
    used = resources.disk_bytes(tmp_path)
    link_size = len(os.readlink(tmp_path / "three"))
    assert 5096 <= used - link_size < 1 << 20
    assert resources.disk_bytes(tmp_path / "absent") == 0
