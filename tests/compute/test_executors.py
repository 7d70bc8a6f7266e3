"""Executors: ordered results from threads, processes and a Dask cluster, also if workers are killed."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import ragauge
from ragauge.compute import executors
from ragauge.compute.executors import map_ordered, worker_count
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, UnknownName
from waiting import PATIENCE_S
from worker_tasks import SumNumbers, get_pid, kill_on_two, raise_on_three, touch


def compute_sums(size: int, parts: int) -> list[float]:
    return [size * (size - 1) / 2 + part for part in range(parts)]


def test_map_ordered_threads_return_ordered_results_and_share_task():
    task = SumNumbers(10)
    task_ids = set()

    def add_and_note(part: int) -> float:
        task_ids.add(id(task))
        return task(part)

    with ThreadPoolExecutor(3) as pool:
        assert list(map_ordered(pool, add_and_note, range(50))) == compute_sums(10, 50)
    assert task_ids == {id(task)}


def test_map_ordered_processes_return_ordered_results():
    with ProcessPoolExecutor(2) as pool:
        assert list(map_ordered(pool, SumNumbers(1000), range(20))) == compute_sums(1000, 20)
        assert os.getpid() not in set(map_ordered(pool, get_pid, range(8)))


def test_map_ordered_ahead_limits_consumed_items():
    consumed = []
    started = threading.Event()

    def generate_parts():
        for part in range(100):
            consumed.append(part)
            yield part

    def wait_for_start(part: int) -> int:
        started.wait(10)
        return part

    with ThreadPoolExecutor(2) as pool:
        results = map_ordered(pool, wait_for_start, generate_parts(), ahead=3)
        threading.Timer(0.2, started.set).start()
        assert next(results) == 0
        assert len(consumed) == 6
        results.close()


def test_map_ordered_error_of_item_is_raised_unchanged():
    with ProcessPoolExecutor(2) as pool:
        results = map_ordered(pool, raise_on_three, range(1000))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(BadInput, match=r"run\.txt:7: no good") as caught:
            next(results)
    assert (caught.value.file, caught.value.line, caught.value.hint) == ("run.txt", 7, "a better one")


@pytest.mark.parametrize(
    "error",
    [
        UnknownName("measure", "ncdg", ["ndcg"]),
        MissingExtra("a cluster", "cluster"),
        BackendFailed("busy", is_temporary=True, retry_after_s=2.0, is_overload=True),
    ],
)
def test_errors_survive_pickling(error):
    unpickled = pickle.loads(pickle.dumps(error))
    assert type(unpickled) is type(error)
    assert (str(unpickled), unpickled.__dict__) == (str(error), error.__dict__)


def test_map_ordered_lost_process_raises_backend_failed():
    with (
        ProcessPoolExecutor(2) as pool,
        pytest.raises(BackendFailed, match="a process of the executor ended") as caught,
    ):
        list(map_ordered(pool, kill_on_two, range(5)))
    assert "Dask" in str(caught.value.hint)


def test_map_ordered_unpicklable_function_raises():
    with ProcessPoolExecutor(1) as pool, pytest.raises(BadInput, match="cannot be sent"):
        list(map_ordered(pool, lambda part: part, range(2)))


def test_map_ordered_cluster_returns_ordered_results(workers):
    assert worker_count(workers.executor) == 2
    assert list(map_ordered(workers.executor, SumNumbers(1000), range(30))) == compute_sums(1000, 30)
    assert len(set(map_ordered(workers.executor, get_pid, range(20)))) == 2


def test_map_ordered_cluster_accepts_large_arrays(workers):
    parts = [np.full(100_000, float(n)) for n in range(6)]
    assert list(map_ordered(workers.executor, np.sum, parts, heavy=True)) == [100_000.0 * n for n in range(6)]


@pytest.mark.parametrize("victims", [1, 2])
def test_map_ordered_cluster_killed_workers_lose_no_results(workers, victims):
    results = map_ordered(workers.executor, SumNumbers(1000, seconds=0.02), range(60))
    sums = [next(results) for _ in range(4)]
    assert workers.kill(victims) == victims
    sums += list(results)
    assert sums == compute_sums(1000, 60)


def test_map_ordered_cluster_item_that_kills_workers_raises(workers):
    with pytest.raises(BackendFailed, match=r"a task crashed every worker that ran it|was lost"):
        list(map_ordered(workers.executor, kill_on_two, [2]))


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("nowhere", BadInput, "not a cluster address"),
        ("local:0", BadInput, "at least 1 worker"),
        ("tcp://127.0.0.1:1", BackendFailed, r"no cluster responds at tcp://127\.0\.0\.1:1"),
    ],
)
def test_dask_cluster_invalid_address_raises(monkeypatch, address, error, words):
    monkeypatch.setattr("ragauge.compute.dask_cluster.CONNECT_TIMEOUT_S", 1)
    with pytest.raises(error, match=words), ragauge.dask_cluster(address):
        pass


def test_dask_cluster_connects_by_address(workers):
    with ragauge.dask_cluster(workers.address) as executor:
        assert list(map_ordered(executor, abs, [-1, 2])) == [1, 2]


def test_dask_cluster_other_versions_raise(workers, monkeypatch):
    import polars as pl

    monkeypatch.setattr(pl, "__version__", "0.0.1")
    with pytest.raises(BackendFailed, match=r"polars [\d.]+, not 0\.0\.1"), ragauge.dask_cluster(workers.address):
        pass


def test_map_ordered_shut_down_executor_raises():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(BackendFailed, match="the executor was shut down"):
        list(map_ordered(pool, abs, [1]))


def test_map_ordered_large_task_uses_private_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    observed = []
    with ProcessPoolExecutor(2) as pool:
        for result in map_ordered(pool, SumNumbers(300_000), range(12)):
            observed.append((result, [file.stat().st_mode & 0o777 for file in tmp_path.glob("ragauge-*")]))
    assert [result for result, _ in observed] == compute_sums(300_000, 12)
    assert observed[0][1] == [0o600]
    gc.collect()
    assert not list(tmp_path.glob("ragauge-*"))


def test_pickle_task_cache_keeps_latest_tasks():
    tasks = [executors.pickle_task(SumNumbers(n)) for n in (2, 3, 4, 5)]
    assert [task(0) for task in [*tasks, tasks[0]]] == [1.0, 3.0, 6.0, 10.0, 1.0]
    assert list(executors._UNPICKLED_TASKS)[-2:] == [tasks[3].name, tasks[0].name]
    assert len(executors._UNPICKLED_TASKS) == executors.MAX_UNPICKLED_TASKS


def test_map_ordered_spawned_pool_shuts_down_with_original(tmp_path):
    ready_file = tmp_path / "ready"
    with ProcessPoolExecutor(2, initializer=touch, initargs=(str(ready_file),)) as pool:
        assert list(map_ordered(pool, abs, [-1, -2])) == [1, 2]
        spawned_pool = executors._SPAWNED_POOLS[pool]
    assert ready_file.exists()
    assert spawned_pool._shutdown_thread
    with pytest.raises(BackendFailed, match="shut down"):
        list(map_ordered(pool, abs, [-1]))


def test_map_ordered_invalid_executor_raises():
    with pytest.raises(BadInput, match="not an executor"):
        list(map_ordered("tcp://127.0.0.1:8786", abs, [-1]))


def test_map_ordered_accepts_dask_client(workers):
    assert worker_count(workers.client) == 2
    assert list(map_ordered(workers.client, abs, [-1, 2])) == [1, 2]


@pytest.mark.cluster
def test_dask_cluster_interrupt_prints_one_traceback(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import ragauge\nfrom worker_tasks import SumNumbers\nfrom ragauge.compute.executors import map_ordered\n"
        "if __name__ == '__main__':\n    with ragauge.dask_cluster('local:2') as executor:\n"
        "        for value in map_ordered(executor, SumNumbers(10, 0.2), range(10_000)):\n"
        "            print(value, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}
    process = subprocess.Popen(
        [sys.executable, script],
        env=environment,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "45.0\n"  # the first result; the workers still compute the others
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert stderr.count("Traceback") == 1  # the traceback of the script; the workers print none
    assert stderr.rstrip().endswith("KeyboardInterrupt")
