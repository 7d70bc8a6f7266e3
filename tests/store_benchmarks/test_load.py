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

OWN = """
import os, signal, time
from ragauge.stores.reference import NullStore

class Broken(NullStore):
    def search(self, vectors, k, where=None):
        raise OSError("the disk is on fire")

class Killed(NullStore):
    def search(self, vectors, k, where=None):
        os.kill(os.getpid(), signal.SIGKILL)

class Hanging(NullStore):
    def search(self, vectors, k, where=None):
        time.sleep(600)

class Alone(NullStore):
    capabilities = NullStore.capabilities - {"share"}
    def __init__(self, *, metric="l2", path=None):
        super().__init__(metric=metric, path=path)
        os.mkdir(os.path.join(path, "lock"))  # a second one in the same folder fails
    def close(self):
        os.rmdir(os.path.join(self._path, "lock"))
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write a module with user-defined stores into the working directory, and return its name."""
    (tmp_path / "stores_of_mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return "stores_of_mine"


def vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def lindley(due: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Compute when each query ends at a server that handles one query at a time (Lindley's recursion)."""
    ended, last = np.empty(len(due)), -np.inf
    for place, (moment, taken) in enumerate(zip(due, service, strict=True)):
        last = max(moment, last) + taken
        ended[place] = last
    return ended


@pytest.mark.engine
def test_load_test_open_loop_latency_shows_stalls():
    """Every 300th search sleeps for 300 ms; in a closed loop one query in 300 is slow, which p99 does not show."""
    stalling = StoreSpec("null", {"stall_ms": 300, "every": 300})
    queries = vectors(50, 8)
    closed = measures.summarise_load(
        load_test.run_load_test(stalling, queries, 3, load=load_test.OfferedLoad(seconds=1.5))[0]
    )
    steady = measures.summarise_load(
        load_test.run_load_test(stalling, queries, 3, load=load_test.OfferedLoad(seconds=2.4, rate=250))[0]
    )
    assert closed.rate is None
    assert closed.latency.max >= 300
    assert closed.latency.p99 < 100
    assert steady.latency.max >= 300
    # At 250 queries per second, about 75 of every 300 queries were due while the store slept.
    assert steady.latency.p99 > 200
    assert steady.latency.p90 > 20 * closed.latency.p90
    assert steady.late > 0.1
    # Both times include the stall, but only latency from the scheduled time includes the wait of other queries.
    assert steady.service.p99 < 100
    assert steady.latency.n == 600


@pytest.mark.engine
def test_load_test_overload_latency_grows_per_query():
    """A server that takes s = 20 ms per query gets a query every 10 ms.

    Query i ends at (i + 1) s, which is (i + 1) s - 10 i ms after it was due.
    """
    slow = StoreSpec("null", {"stall_ms": 20, "every": 1})
    raw, _ = load_test.run_load_test(
        slow, vectors(10, 4), 3, load=load_test.OfferedLoad(seconds=0.8, rate=100, patience=10)
    )
    service = raw["ended_ns"] - raw["began_ns"]
    latency = raw["ended_ns"] - raw["due_ns"]
    assert len(latency) == 80
    assert service.min() >= 20e6
    # Latency is never below the formula, and the recursion holds for the measured service times.
    assert (latency >= 20e6 * np.arange(1, 81) - 10e6 * np.arange(80)).all()
    assert (raw["ended_ns"] >= lindley(raw["due_ns"], service) - 1).all()
    assert np.median(raw["ended_ns"] - lindley(raw["due_ns"], service)) < 0.1 * latency.max()
    found = measures.summarise_load(raw)
    assert found.qps <= 50
    assert not found.kept_up


@pytest.mark.engine
def test_load_test_poisson_mean_wait_matches_md1_queue():
    """With Poisson arrivals, a constant service time s and 50% load, the mean wait is s / 2 (M/D/1 queue)."""
    due = load_test.compute_arrival_times(50, 4000, poisson=True, seed=5).astype(np.float64)
    assert len(due) == 200_000
    waits = lindley(due, np.full(len(due), 10e6)) - due - 10e6
    assert waits.mean() == pytest.approx(5e6, rel=0.05)
    raw, _ = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 10, "every": 1}),
        vectors(10, 4),
        3,
        load=load_test.OfferedLoad(seconds=2, rate=50, poisson=True),
    )
    expected = lindley(raw["due_ns"], raw["ended_ns"] - raw["began_ns"])
    assert (raw["ended_ns"] >= expected - 1).all()
    assert (raw["began_ns"] - raw["due_ns"]).max() > 1e6  # a query was due while another was served


@pytest.mark.engine
def test_load_test_dropped_queries_count_in_latency():
    raw, _ = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 50, "every": 1}),
        vectors(10, 4),
        3,
        load=load_test.OfferedLoad(seconds=0.5, rate=100, patience=0.5),
    )
    found = measures.summarise_load(raw)
    assert 5 <= (raw["began_ns"] >= 0).sum() <= 16
    assert (raw["ended_ns"][raw["began_ns"] < 0] == -1).all()
    assert found.latency.n == 50
    assert found.service.n == (raw["began_ns"] >= 0).sum()
    assert "queries were dropped before they could be sent" in found.note
    # Query 30 was due at 300 ms and never sent: it waited at least until 750 ms, which is 450 ms.
    assert found.latency.max >= 440


@pytest.mark.engine
def test_load_test_clients_start_together_on_one_clock():
    raw, note = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 5, "every": 1}),
        vectors(20, 4),
        3,
        load=load_test.OfferedLoad(clients=3, seconds=0.5),
    )
    assert note == ""
    assert sorted(set(raw["client"].tolist())) == [0, 1, 2]
    firsts = [raw["began_ns"][raw["client"] == one].min() for one in range(3)]
    assert min(firsts) >= 0
    assert max(firsts) < 500e6
    found = measures.summarise_load(raw)
    assert found.clients == 3
    seconds = (raw["ended_ns"].max() - raw["began_ns"].min()) / 1e9
    assert found.qps == pytest.approx(len(raw["ended_ns"]) / seconds)
    # One client that sleeps for 5 ms per query reaches at most 200 QPS; three together exceed it.
    assert found.qps > 200


@pytest.mark.engine
def test_load_test_fixed_rate_sends_each_query_once():
    raw, _ = load_test.run_load_test(
        StoreSpec("null", {"stall_ms": 10, "every": 1}),
        vectors(20, 4),
        3,
        load=load_test.OfferedLoad(clients=2, seconds=0.6, rate=150),
    )
    assert len(raw["due_ns"]) == 90
    assert (raw["began_ns"] >= raw["due_ns"]).all()
    assert set(raw["client"].tolist()) == {0, 1}
    for one in range(2):
        mine = raw["client"] == one
        assert (raw["began_ns"][mine][1:] >= raw["ended_ns"][mine][:-1]).all()


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
        load_test.run_load_test(StoreSpec("null"), vectors(2, 4), 3, load=load_test.OfferedLoad(clients=0))


def test_load_test_failing_client_raises_error_with_message(own):
    with pytest.raises(BackendFailed, match=r"client [12] of 2: OSError: the disk is on fire"):
        load_test.run_load_test(StoreSpec(f"{own}:Broken"), vectors(2, 4), 3, load=load_test.OfferedLoad(clients=2))


def test_load_test_killed_client_raises_error_without_waiting(own):
    began = time.monotonic()
    with pytest.raises(BackendFailed, match=r"client [12] of 2 was ended by SIGKILL"):
        load_test.run_load_test(StoreSpec(f"{own}:Killed"), vectors(2, 4), 3, load=load_test.OfferedLoad(clients=2))
    assert time.monotonic() - began < 60


@pytest.mark.engine
def test_load_test_hanging_client_raises_error(own):
    with pytest.raises(BackendFailed, match=r"gave up waiting for client 1 of 1"):
        load_test.run_load_test(StoreSpec(f"{own}:Hanging"), vectors(2, 4), 3, opening_seconds=2)


def test_load_test_exclusive_store_is_copied_with_note(own, tmp_path):
    folder = tmp_path / "kept"
    store = NullStore(metric="l2", path=str(folder))
    store.add(["a"], np.ones((1, 4)))
    store.save()
    raw, note = load_test.run_load_test(
        StoreSpec(f"{own}:Alone", path=str(folder)),
        vectors(2, 4),
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
    base = vectors(300, 8)
    ids = [str(place) for place in range(300)]
    store = ExactStore(metric=metric)
    store.add(ids, base)
    for operation in updates.UPDATE_OPERATIONS:
        raw = updates.time_updates(store, base, 5, operation, ids=ids, metric=metric, n=20)
        found = measures.summarise_updates(operation, raw)
        assert found.visible == 1.0
        assert found.latency.n == 20
        assert (raw["search_ns"] > 0).all()
    assert len(store) == 300 + 20 - 20


def test_time_updates_null_store_sees_no_inserts():
    base = vectors(300, 8)
    ids = [str(place) for place in range(300)]
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
    base = vectors(200, 6)
    some, others = updates.generate_new_vectors(base, 50, "l2"), updates.generate_new_vectors(base, 50, "l2", kind=1)
    assert some.tolist() == updates.generate_new_vectors(base, 50, "l2").tolist()
    assert some.tolist() != others.tolist()
    assert find_nearest(base, some, 1, "l2")[1].max() < 1.0
    assert find_nearest(base, some, 1, "l2")[1].min() > 0.0
    longest = updates.generate_new_vectors(base, 50, "ip")
    places, _ = find_nearest(np.concatenate([base, longest]), longest, 1, "ip")
    assert places.ravel().tolist() == list(range(200, 250))


class OneThing(ExactStore):
    """Exact store that does not support concurrent calls."""

    abilities = ExactStore(metric="l2").abilities - {"concurrent"}


@pytest.mark.parametrize("kind", [ExactStore, OneThing])
@pytest.mark.engine
def test_run_mixed_workload_exact_store_has_full_recall(kind):
    base, queries = vectors(400, 8), vectors(30, 8, 1)
    data = VectorSet("mine", base, queries, "l2")
    truth = ExactNeighbours(*find_nearest(base, queries, 10, "l2"), "l2", "numpy")
    ids = [str(place) for place in range(400)]
    store = kind(metric="l2")
    store.add(ids, base)
    raw = updates.run_mixed_workload(
        store,
        base,
        queries,
        5,
        index={name: place for place, name in enumerate(ids)},
        metric="l2",
        inserts=updates.MixedWorkloadSettings(n=200, rate=200, seconds=0.7),
    )
    found = measures.summarise_mixed_workload(raw, truth, data, 5)
    assert found.together is (kind is ExactStore)
    assert found.recall == 1.0
    assert found.inserted == 200
    assert (raw["before"] <= raw["after"]).all()
    assert raw["before"][0] < raw["before"][-1]
    assert (raw["positions"] >= 400).any()
    assert found.latency.n == len(raw["due_ns"])
    assert found.alone.n == 140
    if kind is OneThing:
        assert (raw["before"] == raw["after"]).all()


def test_run_mixed_workload_failing_insert_raises_error():
    class Full(NullStore):
        def add(self, ids, vectors, metadata=None):
            if len(self) >= 110:
                raise OSError("no space left")
            super().add(ids, vectors, metadata)

    store = Full(metric="l2")
    base = vectors(100, 4)
    store.add([str(place) for place in range(100)], base)
    with pytest.raises(OSError, match="no space left"):
        updates.run_mixed_workload(
            store,
            base,
            vectors(5, 4),
            3,
            index={},
            metric="l2",
            inserts=updates.MixedWorkloadSettings(n=50, rate=100, seconds=0.5),
        )


def test_nested_filters_are_exact_nested_and_reproducible():
    rungs = search_loops.nested_filters(10_000, [0.5, 0.1, 0.001, 0.00001], 3)
    assert [int(mask.sum()) for mask in rungs.values()] == [5000, 1000, 10, 1]
    masks = list(rungs.values())
    assert all((wide | narrow).sum() == wide.sum() for wide, narrow in pairwise(masks))
    again = search_loops.nested_filters(10_000, [0.5, 0.1, 0.001, 0.00001], 3)
    assert all((again[name] == mask).all() for name, mask in rungs.items())
    assert search_loops.build_filter_metadata(rungs, 5, 2) == search_loops.build_filter_metadata(rungs)[5:7]
    assert all(name.isidentifier() for name in rungs)
    with pytest.raises(BadInput, match="selectivity must be above 0 and at most 1, got 0"):
        search_loops.nested_filters(10, [0.0])


@pytest.mark.engine
def test_filtered_search_exact_store_has_full_recall():
    base, queries = vectors(500, 8), vectors(20, 8, 1)
    ids = [str(place) for place in range(500)]
    rungs = search_loops.nested_filters(500, [1.0, 0.2, 0.008])
    store = ExactStore(metric="cosine")
    store.add(ids, base, search_loops.build_filter_metadata(rungs))
    data = VectorSet("mine", base, queries, "cosine")
    index = {name: place for place, name in enumerate(ids)}
    floor = NullStore(metric="cosine")
    floor.add(ids, base)
    for rung, mask in rungs.items():
        narrowed = search_loops.FilteredStore(store, search_loops.build_filter_condition(rung))
        (raw,) = time_search_rounds(
            narrowed, queries, 10, [{}], index=index, rounds=SearchRounds(floor=floor, warm_up=queries[:3], repeats=2)
        )
        true, _ = find_nearest(base, queries, 10, "cosine", allowed=mask)
        found = measures.summarise_filtered_search(raw, mask, data, 10, true)
        assert (found.recall, found.returned, found.wrong) == (1.0, 1.0, 0)
        assert found.matching == mask.sum()
        assert found.latency.n % (2 * 20) == 0
        assert found.repeats == 2
