"""Load tests and updates: latency from the scheduled send time, failing clients, filters, search during inserts."""

from __future__ import annotations

import os
import time
from itertools import pairwise

import numpy as np
import pytest

from ragauge.core.errors import BackendFailed, BadInput
from ragauge.store_benchmarks import load_test, measures, search_loops, updates
from ragauge.store_benchmarks.plan import StoreSpec
from ragauge.store_benchmarks.results import ExactNeighbours, VectorSet
from ragauge.store_benchmarks.search_loops import SearchRounds, time_search_rounds
from ragauge.stores.nearest_neighbours import find_nearest
from ragauge.stores.reference import ExactStore, NullStore

FAULTY_STORES = """
import os, signal, time
from ragauge.stores.reference import NullStore

class FailingStore(NullStore):
    def search(self, vectors, k, where=None):
        raise OSError("disk failure")

class KilledStore(NullStore):
    def search(self, vectors, k, where=None):
        os.kill(os.getpid(), signal.SIGKILL)

class HangingStore(NullStore):
    def search(self, vectors, k, where=None):
        time.sleep(600)

class ExclusiveStore(NullStore):
    capabilities = NullStore.capabilities - {"share"}
    def __init__(self, *, metric="l2", path=None):
        super().__init__(metric=metric, path=path)
        os.mkdir(os.path.join(path, "lock"))  # a second store in the same folder fails
    def close(self):
        os.rmdir(os.path.join(self._path, "lock"))
"""


@pytest.fixture
def faulty_stores(tmp_path, monkeypatch):
    """Write a module with user-defined stores into the working directory, and return its name."""
    (tmp_path / "faulty_stores.py").write_text(FAULTY_STORES)
    monkeypatch.chdir(tmp_path)
    return "faulty_stores"


def make_vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def compute_end_times(due: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Compute when each query ends at a server that handles one query at a time (Lindley's recursion)."""
    ended, last = np.empty(len(due)), -np.inf
    for i, (due_ns, service_ns) in enumerate(zip(due, service, strict=True)):
        last = max(due_ns, last) + service_ns
        ended[i] = last
    return ended


@pytest.mark.engine
def test_load_test_open_loop_latency_shows_stalls():
    """Every 300th search sleeps for 300 ms; in a closed loop one query in 300 is slow, which p99 does not show."""
    stalling_store = StoreSpec("null", {"stall_ms": 300, "every": 300})
    queries = make_vectors(50, 8)
    closed_loop = measures.summarise_load(
        load_test.run_load_test(stalling_store, queries, 3, load=load_test.OfferedLoad(seconds=1.5))[0]
    )
    open_loop = measures.summarise_load(
        load_test.run_load_test(stalling_store, queries, 3, load=load_test.OfferedLoad(seconds=2.4, rate=250))[0]
    )
    assert closed_loop.rate is None
    assert closed_loop.latency.max >= 300
    assert closed_loop.latency.p99 < 100
    assert open_loop.latency.max >= 300
    # At 250 queries per second, about 75 of every 300 queries were due while the store slept.
    assert open_loop.latency.p99 > 200
    assert open_loop.latency.p90 > 20 * closed_loop.latency.p90
    assert open_loop.late > 0.1
    # Both times include the stall, but only latency from the scheduled time includes the wait of other queries.
    assert open_loop.service.p99 < 100
    assert open_loop.latency.n == 600


@pytest.mark.engine
def test_load_test_overload_latency_grows_per_query():
    """A server that takes s = 20 ms per query gets a query every 10 ms.

    Query i ends at (i + 1) s, which is (i + 1) s - 10 i ms after it was due.
    """
    slow_store = StoreSpec("null", {"stall_ms": 20, "every": 1})
    raw, _ = load_test.run_load_test(
        slow_store, make_vectors(10, 4), 3, load=load_test.OfferedLoad(seconds=0.8, rate=100, patience=10)
    )
    service = raw["ended_ns"] - raw["began_ns"]
    latency = raw["ended_ns"] - raw["due_ns"]
    assert len(latency) == 80
    assert service.min() >= 20e6
    # Latency is never below the formula, and the recursion holds for the measured service times.
    assert (latency >= 20e6 * np.arange(1, 81) - 10e6 * np.arange(80)).all()
    assert (raw["ended_ns"] >= compute_end_times(raw["due_ns"], service) - 1).all()
    assert np.median(raw["ended_ns"] - compute_end_times(raw["due_ns"], service)) < 0.1 * latency.max()
    result = measures.summarise_load(raw)
    assert result.qps <= 50
    assert not result.kept_up


@pytest.mark.engine
def test_load_test_poisson_mean_wait_matches_md1_queue():
    """With Poisson arrivals, a constant service time s and 50% load, the mean wait is s / 2 (M/D/1 queue)."""
    due = load_test.compute_arrival_times(50, 4000, poisson=True, seed=5).astype(np.float64)
    assert len(due) == 200_000
    waits = compute_end_times(due, np.full(len(due), 10e6)) - due - 10e6
    assert waits.mean() == pytest.approx(5e6, rel=0.05)
    raw, _ = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 10, "every": 1}),
        make_vectors(10, 4),
        3,
        load=load_test.OfferedLoad(seconds=2, rate=50, poisson=True),
    )
    expected = compute_end_times(raw["due_ns"], raw["ended_ns"] - raw["began_ns"])
    assert (raw["ended_ns"] >= expected - 1).all()
    assert (raw["began_ns"] - raw["due_ns"]).max() > 1e6  # a query was due while another was served


@pytest.mark.engine
def test_load_test_dropped_queries_count_in_latency():
    raw, _ = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 50, "every": 1}),
        make_vectors(10, 4),
        3,
        load=load_test.OfferedLoad(seconds=0.5, rate=100, patience=0.5),
    )
    result = measures.summarise_load(raw)
    assert 5 <= (raw["began_ns"] >= 0).sum() <= 16
    assert (raw["ended_ns"][raw["began_ns"] < 0] == -1).all()
    assert result.latency.n == 50
    assert result.service.n == (raw["began_ns"] >= 0).sum()
    assert "queries were dropped before they could be sent" in result.note
    # Query 30 was due at 300 ms and never sent: it waited at least until 750 ms, which is 450 ms.
    assert result.latency.max >= 440


@pytest.mark.engine
def test_load_test_clients_start_together_on_one_clock():
    raw, note = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 5, "every": 1}),
        make_vectors(20, 4),
        3,
        load=load_test.OfferedLoad(clients=3, seconds=0.5),
    )
    assert note == ""
    assert sorted(set(raw["client"].tolist())) == [0, 1, 2]
    first_starts = [raw["began_ns"][raw["client"] == client].min() for client in range(3)]
    assert min(first_starts) >= 0
    assert max(first_starts) < 500e6
    result = measures.summarise_load(raw)
    assert result.clients == 3
    seconds = (raw["ended_ns"].max() - raw["began_ns"].min()) / 1e9
    assert result.qps == pytest.approx(len(raw["ended_ns"]) / seconds)
    # One client that sleeps for 5 ms per query reaches at most 200 QPS; three together exceed it.
    assert result.qps > 200


@pytest.mark.engine
def test_load_test_fixed_rate_sends_each_query_once():
    raw, _ = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 10, "every": 1}),
        make_vectors(20, 4),
        3,
        load=load_test.OfferedLoad(clients=2, seconds=0.6, rate=150),
    )
    assert len(raw["due_ns"]) == 90
    assert (raw["began_ns"] >= raw["due_ns"]).all()
    assert set(raw["client"].tolist()) == {0, 1}
    for client in range(2):
        of_client = raw["client"] == client
        assert (raw["began_ns"][of_client][1:] >= raw["ended_ns"][of_client][:-1]).all()


def test_compute_arrival_times_even_or_poisson_is_reproducible():
    even, random = (
        load_test.compute_arrival_times(100, 2),
        load_test.compute_arrival_times(100, 2, poisson=True, seed=3),
    )
    assert set(np.diff(even).tolist()) == {10_000_000}
    assert len(random) == 200
    assert random.tolist() == load_test.compute_arrival_times(100, 2, poisson=True, seed=3).tolist()
    assert random.tolist() != load_test.compute_arrival_times(100, 2, poisson=True, seed=4).tolist()
    assert np.diff(load_test.compute_arrival_times(100, 100, poisson=True)).std() == pytest.approx(10e6, rel=0.05)
    with pytest.raises(BadInput, match="0 queries per second"):
        load_test.compute_arrival_times(0, 2)
    with pytest.raises(BadInput, match="clients must be at least 1, got 0"):
        load_test.run_load_test(StoreSpec("null"), make_vectors(2, 4), 3, load=load_test.OfferedLoad(clients=0))


def test_load_test_failing_client_raises_error_with_message(faulty_stores):
    with pytest.raises(BackendFailed, match=r"client [12] of 2: OSError: disk failure"):
        load_test.run_load_test(
            StoreSpec(f"{faulty_stores}:FailingStore"), make_vectors(2, 4), 3, load=load_test.OfferedLoad(clients=2)
        )


def test_load_test_killed_client_raises_error_without_waiting(faulty_stores):
    began = time.monotonic()
    with pytest.raises(BackendFailed, match=r"client [12] of 2 was ended by SIGKILL"):
        load_test.run_load_test(
            StoreSpec(f"{faulty_stores}:KilledStore"), make_vectors(2, 4), 3, load=load_test.OfferedLoad(clients=2)
        )
    assert time.monotonic() - began < 60


@pytest.mark.engine
def test_load_test_hanging_client_raises_error(faulty_stores):
    with pytest.raises(BackendFailed, match=r"gave up waiting for client 1 of 1"):
        load_test.run_load_test(StoreSpec(f"{faulty_stores}:HangingStore"), make_vectors(2, 4), 3, opening_seconds=2)


def test_load_test_exclusive_store_is_copied_with_note(faulty_stores, tmp_path):
    folder = tmp_path / "kept"
    store = NullStore(metric="l2", path=str(folder))
    store.add(["a"], np.ones((1, 4)))
    store.save()
    raw, note = load_test.run_load_test(
        StoreSpec(f"{faulty_stores}:ExclusiveStore", path=str(folder)),
        make_vectors(2, 4),
        3,
        load=load_test.OfferedLoad(clients=2, seconds=0.2),
    )
    assert int(raw["copies"]) == 1
    assert int(raw["empty"]) == 0
    assert "a copy of the store" in note
    assert measures.summarise_load(raw, note).note.startswith(note)
    assert os.listdir(folder) == [name for name in os.listdir(folder) if name != "lock"]


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.engine
def test_time_updates_exact_store_sees_every_change(metric):
    base = make_vectors(300, 8)
    ids = [str(i) for i in range(300)]
    store = ExactStore(metric=metric)
    store.add(ids, base)
    for operation in updates.UPDATE_OPERATIONS:
        raw = updates.time_updates(store, base, 5, operation, ids=ids, metric=metric, n=20)
        result = measures.summarise_updates(operation, raw)
        assert result.visible == 1.0
        assert result.latency.n == 20
        assert (raw["search_ns"] > 0).all()
    assert len(store) == 300 + 20 - 20


def test_time_updates_null_store_sees_no_inserts():
    base = make_vectors(300, 8)
    ids = [str(i) for i in range(300)]
    store = NullStore(metric="l2")
    store.add(ids, base)
    assert (
        measures.summarise_updates(
            "insert", updates.time_updates(store, base, 5, "insert", ids=ids, metric="l2", n=9)
        ).visible
        == 0.0
    )
    raw = updates.time_updates(store, base, 5, "delete", ids=ids, metric="l2", n=9)
    # The null store finds only the first five ids, so most deleted vectors were not found before (NaN).
    assert np.isnan(raw["seen"]).sum() >= 4


def test_generate_new_vectors_are_new_and_nearest_to_themselves():
    base = make_vectors(200, 6)
    first, second = updates.generate_new_vectors(base, 50, "l2"), updates.generate_new_vectors(base, 50, "l2", kind=1)
    assert first.tolist() == updates.generate_new_vectors(base, 50, "l2").tolist()
    assert first.tolist() != second.tolist()
    assert find_nearest(base, first, 1, "l2")[1].max() < 1.0
    assert find_nearest(base, first, 1, "l2")[1].min() > 0.0
    longest = updates.generate_new_vectors(base, 50, "ip")
    positions, _ = find_nearest(np.concatenate([base, longest]), longest, 1, "ip")
    assert positions.ravel().tolist() == list(range(200, 250))


class SequentialExactStore(ExactStore):
    """Exact store that does not support concurrent calls."""

    abilities = ExactStore(metric="l2").abilities - {"concurrent"}


@pytest.mark.parametrize("store_class", [ExactStore, SequentialExactStore])
@pytest.mark.engine
def test_run_mixed_workload_exact_store_has_full_recall(store_class):
    base, queries = make_vectors(400, 8), make_vectors(30, 8, 1)
    data = VectorSet("random", base, queries, "l2")
    truth = ExactNeighbours(*find_nearest(base, queries, 10, "l2"), "l2", "numpy")
    ids = [str(i) for i in range(400)]
    store = store_class(metric="l2")
    store.add(ids, base)
    raw = updates.run_mixed_workload(
        store,
        base,
        queries,
        5,
        index={name: i for i, name in enumerate(ids)},
        metric="l2",
        inserts=updates.MixedWorkloadSettings(n=200, rate=200, seconds=0.7),
    )
    result = measures.summarise_mixed_workload(raw, truth, data, 5)
    assert result.together is (store_class is ExactStore)
    assert result.recall == 1.0
    assert result.inserted == 200
    assert (raw["before"] <= raw["after"]).all()
    assert raw["before"][0] < raw["before"][-1]
    assert (raw["positions"] >= 400).any()
    assert result.latency.n == len(raw["due_ns"])
    assert result.alone.n == 140
    if store_class is SequentialExactStore:
        assert (raw["before"] == raw["after"]).all()


def test_run_mixed_workload_failing_insert_raises_error():
    class LimitedStore(NullStore):
        def add(self, ids, vectors, metadata=None):
            if len(self) >= 110:
                raise OSError("no space left")
            super().add(ids, vectors, metadata)

    store = LimitedStore(metric="l2")
    base = make_vectors(100, 4)
    store.add([str(i) for i in range(100)], base)
    with pytest.raises(OSError, match="no space left"):
        updates.run_mixed_workload(
            store,
            base,
            make_vectors(5, 4),
            3,
            index={},
            metric="l2",
            inserts=updates.MixedWorkloadSettings(n=50, rate=100, seconds=0.5),
        )


def test_nested_filters_are_exact_nested_and_reproducible():
    filters = search_loops.nested_filters(10_000, [0.5, 0.1, 0.001, 0.00001], 3)
    assert [int(mask.sum()) for mask in filters.values()] == [5000, 1000, 10, 1]
    masks = list(filters.values())
    assert all((wide | narrow).sum() == wide.sum() for wide, narrow in pairwise(masks))
    again = search_loops.nested_filters(10_000, [0.5, 0.1, 0.001, 0.00001], 3)
    assert all((again[name] == mask).all() for name, mask in filters.items())
    assert search_loops.build_filter_metadata(filters, 5, 2) == search_loops.build_filter_metadata(filters)[5:7]
    assert all(name.isidentifier() for name in filters)
    with pytest.raises(BadInput, match="selectivity must be above 0 and at most 1, got 0"):
        search_loops.nested_filters(10, [0.0])


@pytest.mark.engine
def test_filtered_search_exact_store_has_full_recall():
    base, queries = make_vectors(500, 8), make_vectors(20, 8, 1)
    ids = [str(i) for i in range(500)]
    filters = search_loops.nested_filters(500, [1.0, 0.2, 0.008])
    store = ExactStore(metric="cosine")
    store.add(ids, base, search_loops.build_filter_metadata(filters))
    data = VectorSet("random", base, queries, "cosine")
    index = {name: i for i, name in enumerate(ids)}
    floor = NullStore(metric="cosine")
    floor.add(ids, base)
    for filter_name, mask in filters.items():
        filtered_store = search_loops.FilteredStore(store, search_loops.build_filter_condition(filter_name))
        (raw,) = time_search_rounds(
            filtered_store,
            queries,
            10,
            [{}],
            index=index,
            rounds=SearchRounds(floor=floor, warm_up=queries[:3], repeats=2),
        )
        true_rows, _ = find_nearest(base, queries, 10, "cosine", allowed=mask)
        result = measures.summarise_filtered_search(raw, mask, data, 10, true_rows)
        assert (result.recall, result.returned, result.wrong) == (1.0, 1.0, 0)
        assert result.matching == mask.sum()
        assert result.latency.n % (2 * 20) == 0
        assert result.repeats == 2
