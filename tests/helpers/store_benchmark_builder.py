"""Builder of store benchmarks for tests: all values are invented, none was measured."""

from __future__ import annotations

import math
from dataclasses import replace

from ragauge.compute.observation import ClockCheck
from ragauge.core.summaries import Latency
from ragauge.store_benchmarks.results import (
    Backlog,
    BuildCost,
    Configuration,
    FailedConfiguration,
    FilteredSearch,
    LoadResult,
    MeasuredConfiguration,
    MixedWorkload,
    OperationLatency,
    StoreBenchmark,
)

RECALL = "recall(of=eps,eps=1e-06)@10"
CALM = ClockCheck(0.002, 0, 0.0)


def latency(mean, n=300, p99=None):
    """Return a latency distribution in ms with a few slow queries; `p99` is twice the mean by default."""
    slow = 2 * mean if p99 is None else p99
    return Latency(n, mean, mean, 1.2 * mean, 1.5 * mean, slow, 0.1 * mean, 0.5 * mean, 2 * slow)


def point(store, recall, ms, *, build=None, search=None, name="", seconds=1.0, memory=6_000_000, disk=None, **more):
    """Return a measured configuration with a recall and a mean latency in ms; `more` sets other fields."""
    build_cost = BuildCost(
        10_000, 0.2 * seconds, 0.8 * seconds, disk, memory, 12.0, 3.0, {"version": "1.2.3", "threads": 1}
    )
    quality = {RECALL: recall, "recall(of=k)@10": recall, "recall@10": recall / 10, "precision@10": recall}
    quality |= {"precision(of=retrieved)@10": recall, "mrr@10": 0.9}
    clock = more.pop("clock", CALM)
    configuration = Configuration(store, build or {}, search or {}, name)
    return MeasuredConfiguration(configuration, build_cost, quality, latency(ms), clock, qps_spread=0.04, **more)


def load(rate, p99, service, *, clients=1, qps=None):
    times = latency(0.3, 500, p99), latency(0.2, 500, service)
    grows = qps is not None and rate is not None
    backlog = None if rate is None else Backlog(48.0 * grows, 47.0 * grows, 49.0 * grows, 241.0 * grows, 10.0, grows)
    return LoadResult(clients, rate, rate if qps is None else qps, *times, 0.1, backlog, doubts=[])


def sweep(*points, **more):
    """Return a benchmark of these configurations."""
    return StoreBenchmark("toy", 10_000, 128, 100, "l2", 10, points, RECALL, truth="numpy", repeats=3, **more)


def make_full_benchmark(*, relevance=True):
    """Return a benchmark with all parts filled in: nine configurations, and two that failed."""
    graph = {"m": 16, "ef_construction": 200}

    def relevance_fields(value):
        return {"relevance": {"ndcg@10": value, "hit_rate@10": min(1.0, value + 0.3)}} if relevance else {}

    busy = ClockCheck(0.002, 341, 0.04, ("341 involuntary switches", "4% of the time was stolen"))
    points = [
        point("exact", 1.0, 0.9, seconds=0.02, memory=5_120_000, **relevance_fields(0.412)),
        point("hnswlib", 0.82, 0.03, build=graph, search={"ef_search": 10}, seconds=2.0, **relevance_fields(0.371)),
        point(
            "hnswlib", 0.955, 0.06, build=graph, search={"ef_search": 40}, seconds=2.0, disk=6_800_000,
            **relevance_fields(0.409),
            loads=[load(None, 0.3, 0.3, qps=11_800.0), load(500.0, 0.5, 0.4), load(5000.0, 48.0, 0.5, qps=4100.0)],
            filters=[
                FilteredSearch(0.5, 5_000, 1.0, 0.95, 0, latency(0.08)),
                FilteredSearch(0.01, 100, 0.42, 0.38, 0, latency(0.2)),
            ],
            changes=[
                OperationLatency("insert", latency(0.4, 200), latency(0.5, 200), 1.0),
                OperationLatency("delete", latency(0.01, 200), latency(0.2, 200), 0.5),
            ],
            mixed=MixedWorkload(500, 830.0, False, 0.93, latency(0.5), latency(0.06)),
        ),
        point("hnswlib", 0.995, 0.17, build=graph, search={"ef_search": 160}, seconds=2.0, clock=busy,
              **relevance_fields(0.411)),
        point("hnswlib", 0.94, 0.2, build={**graph, "m": 32}, search={"ef_search": 80}, seconds=3.0,
              **relevance_fields(0.405)),
        point("faiss", 0.71, 0.05, build={"kind": "ivf", "lists": 100}, search={"probes": 2}, memory=4_900_000,
              **relevance_fields(0.33)),
        point("faiss", 0.97, 0.12, build={"kind": "ivf", "lists": 100}, search={"probes": 16}, memory=4_900_000,
              **relevance_fields(0.41)),
        point("duckdb", 0.88, 0.3, build={"trees": 10}, search={"search_k": 1000}, memory=None, disk=9_000_000,
              seconds=0.5, notes=["duckdb cannot delete"], **relevance_fields(0.39)),
        point("null", 0.0, 0.002, seconds=0.001, memory=0, **({} if not relevance else relevance_fields(math.nan))),
    ]  # fmt: skip
    failed = FailedConfiguration(
        Configuration("chroma"), "insert", "Batch size 10000 exceeds <b>maximum</b>", "fewer at a time"
    )
    missing = FailedConfiguration(
        Configuration("scann"), "opening", "scann needs an optional library", "pip install x", 2
    )
    provenance = {
        "made": "2026-11-15T12:00:00+00:00", "python": "3.11.7", "versions": {"faiss-cpu": "1.13.0", "numpy": "2.3"},
        "machine": {"processor": "Some CPU", "cores": 2}, "data_hash": "abc", "seed": 0,
    }  # fmt: skip
    return sweep(*points, failures=[failed, missing], provenance=provenance, notes=["the first 100 queries only"])


def with_unreliable_times(benchmark):
    """Return a copy of a benchmark in which the times of every configuration are unreliable."""
    clock = ClockCheck(0.002, 900, 0.2, ("900 involuntary switches",))
    return replace(benchmark, points=[replace(measured, clock=clock) for measured in benchmark.points])
