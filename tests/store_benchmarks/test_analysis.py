"""Recall-QPS frontiers: dominated points, interpolated QPS at a recall level, and cost per million queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.store_benchmarks.analysis import compute_cost_per_million
from ragauge.store_benchmarks.frontiers import (
    compute_qps_at_recall,
    find_frontier,
    find_pareto_indices,
    find_series_frontiers,
)
from store_benchmark_builder import RECALL, point, sweep


def make_points(*pairs, store="hnswlib"):
    """Build points of one store from pairs of recall and QPS."""
    return [point(store, recall, 1000 / qps, search={"ef": i}) for i, (recall, qps) in enumerate(pairs)]


def qps_at_level(points, level):
    [result] = compute_qps_at_recall(points, RECALL, [level])
    return result


def test_find_frontier_drops_dominated_points_and_sorts_by_recall():
    points = make_points((0.9, 1000), (0.8, 900), (0.99, 100), (0.95, 100), (0.7, 5000))
    assert find_frontier(points, RECALL) == [4, 0, 2]


def test_find_frontier_equal_points_keeps_first():
    assert find_frontier(make_points((0.9, 1000), (0.9, 1000), (0.9, 999)), RECALL) == [0]


def test_find_frontier_ignores_points_without_recall_or_speed():
    points = [*make_points((math.nan, 1000), (0.9, math.inf), (0.8, 10)), point("x", 0.99, math.nan)]
    assert find_frontier(points, RECALL) == [2]
    assert find_frontier(points, "recall(of=k)@100") == []


def test_find_frontier_ignores_null_store():
    points = [point("null", 1.0, 0.001), *make_points((0.9, 100))]
    assert find_frontier(points, RECALL) == [1]
    assert list(find_series_frontiers(points, RECALL)) == ["hnswlib"]
    assert [result.store for result in compute_qps_at_recall(points, RECALL, [0.9])] == ["hnswlib"]


def test_find_series_frontiers_returns_indices_among_all_points():
    points = [
        *make_points((0.9, 1000), (0.5, 10)),
        point("faiss", 0.9, 2.0, build={"kind": "hnsw"}),
        point("faiss", 0.9, 3.0, build={"kind": "ivf"}),
    ]
    assert find_series_frontiers(points, RECALL) == {"hnswlib": [0], "faiss hnsw": [2], "faiss ivf": [3]}
    assert find_frontier(points, RECALL) == [0]


def test_find_frontier_by_p99_uses_percentile():
    first, second = make_points((0.9, 1000), (0.9, 900))
    slow_tail = type(first.latency)(**{**vars(first.latency), "p99": 50.0})
    points = [type(first)(**{**vars(first), "latency": slow_tail}), second]
    assert find_frontier(points, RECALL) == [0]
    assert find_frontier(points, RECALL, by="p99") == [1]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 1e6)), max_size=30))
def test_find_pareto_indices_matches_pairwise_check(pairs):
    recalls, speeds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def is_dominated(i):
        return any(
            recalls[j] >= recalls[i] and speeds[j] >= speeds[i] and ((recalls[j], speeds[j]) != pairs[i] or j < i)
            for j in range(len(pairs))
            if j != i
        )

    frontier = find_pareto_indices(recalls, speeds)
    assert sorted(frontier) == [i for i in range(len(pairs)) if not is_dominated(i)]
    assert [recalls[i] for i in frontier] == sorted(recalls[i] for i in frontier)


def test_compute_qps_at_recall_interpolates_logarithmically():
    points = make_points((0.9, 1000), (1.0, 10))
    assert qps_at_level(points, 0.95).qps == pytest.approx(100)  # logarithmic: halfway between 10^3 and 10^1 is 10^2
    assert qps_at_level(points, 0.925).qps == pytest.approx(10**2.5)
    assert qps_at_level(points, 0.95).p50_ms == pytest.approx(10)  # logarithmic: halfway between 1 ms and 100 ms
    assert qps_at_level(points, 0.95).by == "hnswlib:ef=1"


def test_compute_qps_at_recall_matches_numpy_interp():
    points = make_points((0.5, 8000), (0.81, 3000), (0.93, 700), (0.991, 90))
    recalls, speeds = [0.5, 0.81, 0.93, 0.991], np.log([8000, 3000, 700, 90])
    for level in (0.55, 0.81, 0.9, 0.95, 0.99):
        assert qps_at_level(points, level).qps == pytest.approx(float(np.exp(np.interp(level, recalls, speeds))))


def test_compute_qps_at_recall_ignores_dominated_points():
    points = make_points((0.9, 1000), (1.0, 10))
    assert qps_at_level([*points, *make_points((0.94, 5))], 0.95).qps == qps_at_level(points, 0.95).qps


def test_compute_qps_at_recall_does_not_extrapolate():
    points = make_points((0.93, 500), (0.97, 50))
    below, above = qps_at_level(points, 0.9), qps_at_level(points, 0.99)
    assert (below.qps, below.by) == (pytest.approx(500), "hnswlib:ef=0")
    assert (above.qps, above.p50_ms, above.by) == (None, None, "")


def test_compute_qps_at_recall_tolerates_rounding_of_recall():
    rounded = 0.8999999999999999  # 0.9 as a mean of rounded numbers
    assert rounded < 0.9
    assert qps_at_level(make_points((rounded, 70)), 0.9).qps == pytest.approx(70)


def test_compute_cost_per_million_matches_values_by_hand():
    assert compute_cost_per_million(250, 1.8) == pytest.approx(1.8 * 1e6 / 250 / 3600)
    assert math.isnan(compute_cost_per_million(0, 1.0))
    assert math.isnan(compute_cost_per_million(math.nan, 1.0))


def test_store_benchmark_has_frontiers_and_qps_at_recall_levels():
    benchmark = sweep(*make_points((0.9, 1000), (0.8, 10), (1.0, 10)))
    assert benchmark.frontier == [0, 2]
    assert benchmark.frontiers == {"hnswlib": [0, 2]}
    assert [(level.recall, round(level.qps)) for level in benchmark.reached] == [(0.9, 1000), (0.95, 100), (0.99, 16)]
