"""Measures of vector stores from raw results: against `evaluate`, against brute force, and by hand."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import evaluate, judgments_from_neighbours, run_from_arrays
from ragauge.compute import observation
from ragauge.core.errors import MissingEvidence
from ragauge.store_benchmarks import measures, updates
from ragauge.store_benchmarks.load_test import compute_arrival_times
from ragauge.store_benchmarks.results import RECALL_MEASURE, ExactNeighbours, VectorSet
from ragauge.stores.nearest_neighbours import find_nearest
from ragauge.stores.reference import ExactStore


def make_vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def brute_force_distances(base: np.ndarray, queries: np.ndarray, metric: str) -> np.ndarray:
    """Compute all distances directly, in double precision."""
    a, b = queries.astype(np.float64)[:, None, :], base.astype(np.float64)[None, :, :]
    if metric == "l2":
        return np.sqrt(((a - b) ** 2).sum(axis=2))
    products = (a * b).sum(axis=2)
    return -products if metric == "ip" else 1 - products / np.sqrt((a**2).sum(axis=2) * (b**2).sum(axis=2))


def find_truth(base: np.ndarray, queries: np.ndarray, metric: str, depth: int) -> ExactNeighbours:
    return ExactNeighbours(*find_nearest(base, queries, depth, metric), metric, "numpy")


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_compute_distances_matches_brute_force(metric):
    base, queries = make_vectors(50, 7), make_vectors(9, 7, 1)
    positions = np.random.default_rng(2).integers(-2, 50, size=(9, 6))
    distances = measures.compute_distances(base, queries, positions, metric)
    expected = np.take_along_axis(brute_force_distances(base, queries, metric), np.maximum(positions, 0), axis=1)
    np.testing.assert_allclose(distances[positions >= 0], expected[positions >= 0], rtol=1e-12, atol=1e-12)
    assert np.isinf(distances[positions < 0]).all()


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 8),
    depth=st.integers(8, 30),
    metric=st.sampled_from(["l2", "cosine"]),
    missing=st.floats(0, 1),
)
def test_compute_quality_matches_evaluate(seed, k, depth, metric, missing):
    random = np.random.default_rng(seed)
    base, queries = random.normal(size=(40, 3)).astype(np.float32), random.normal(size=(6, 3)).astype(np.float32)
    truth = find_truth(base, queries, metric, depth)
    # Results as stores return them: exact neighbours and random rows, nearest first, sometimes fewer than k.
    candidates = np.array(
        [random.permutation(np.r_[row[: k + 2], random.permutation(40)])[: 3 * k] for row in truth.neighbours]
    )
    positions = np.full((6, k), -1)
    for row in range(6):
        unique = np.array(list(dict.fromkeys(candidates[row].tolist()))[:k])
        order = np.argsort(
            measures.compute_distances(base, queries[row : row + 1], unique[None], metric)[0], kind="stable"
        )
        returned = unique[order][: k - int(missing * random.integers(0, k))]
        positions[row, : len(returned)] = returned
    quality = measures.compute_quality(truth, positions, VectorSet("x", base, queries, metric), k)
    true_distances = measures.compute_distances(base, queries, truth.neighbours, metric)
    run = run_from_arrays(
        positions, -np.where(positions >= 0, measures.compute_distances(base, queries, positions, metric), 1e9)
    )
    judgments = judgments_from_neighbours(truth.neighbours, true_distances)
    expected = evaluate(judgments, run, list(quality)).means
    assert list(expected) == list(quality)
    assert quality == pytest.approx(expected, abs=1e-12)


def test_compute_quality_with_tied_neighbour_by_hand():
    """Query at 0, vectors at 1, -1, 2, 5 on a line. Rows 0 and 1 are nearest (tied); the store returns rows 1 and 3."""
    base = np.array([[1.0], [-1.0], [2.0], [5.0]], np.float32)
    data = VectorSet("line", base, np.zeros((1, 1), np.float32), "l2")
    truth = ExactNeighbours(np.array([[0, 1, 2]]), np.array([[1.0, 1.0, 2.0]]), "l2", "given")
    assert measures.compute_quality(truth, np.array([[1, 3]]), data, 2) == {
        "recall(of=eps,eps=1e-06)@2": 0.5,
        "recall(of=eps)@2": 0.5,
        "recall(of=k)@2": 0.5,
        "recall@2": pytest.approx(1 / 3),
        "precision@2": 0.5,
        "precision(of=retrieved)@2": 0.5,
        "mrr@2": 1.0,
        "ndcg@2": pytest.approx(1 / (1 + 1 / np.log2(3))),
        "map@2": pytest.approx(1 / 3),
        "map(of=capped)@2": 0.5,
        "hit_rate@2": 1.0,
        "f1@2": pytest.approx(0.4),
        "f1(precision_of=retrieved,recall_of=capped)@2": 0.5,
    }
    # The first exact neighbour is row 0, but row 1 is as near: it counts by distance, not by id.
    assert measures.compute_quality(truth, np.array([[1]]), data, 1) == {
        "recall(of=eps,eps=1e-06)@1": 1.0,
        "recall(of=eps)@1": 1.0,
        "recall(of=k)@1": 0.0,
        "recall@1": pytest.approx(1 / 3),
        "precision@1": 1.0,
        "precision(of=retrieved)@1": 1.0,
        "mrr@1": 1.0,
        "ndcg@1": 1.0,
        "map@1": pytest.approx(1 / 3),
        "map(of=capped)@1": 1.0,
        "hit_rate@1": 1.0,
        "f1@1": pytest.approx(0.5),
        "f1(precision_of=retrieved,recall_of=capped)@1": 1.0,
    }


@pytest.mark.parametrize(
    ("distance", "tie_recall", "eps_recall"),
    [(2.0, 1.0, 1.0), (2.000001, 1.0, 1.0), (2.0005, 0.5, 1.0), (2.003, 0.5, 0.5)],
)
def test_compute_quality_recall_tolerances_by_hand(distance, tie_recall, eps_recall):
    """Query at 0 on a line, exact neighbours at 1 and 2; the store returns rows at distances 1 and `distance`."""
    base = np.array([[1.0], [2.0], [-distance]], np.float32)
    data = VectorSet("line", base, np.zeros((1, 1), np.float32), "l2")
    truth = ExactNeighbours(np.array([[0, 1]]), np.array([[1.0, 2.0]]), "l2", "given")
    quality = measures.compute_quality(truth, np.array([[0, 2]]), data, 2)
    assert (quality[f"{RECALL_MEASURE}@2"], quality["recall(of=eps)@2"], quality["recall(of=k)@2"]) == (
        tie_recall,
        eps_recall,
        0.5,
    )


def test_compute_quality_high_dimension_rejects_near_misses():
    """In 1,536 dimensions, neighbours 11 to 20 are hardly farther than the 10th, but none is among the first ten."""
    base, queries = make_vectors(2000, 1536), make_vectors(10, 1536, 1)
    truth = find_truth(base, queries, "l2", 20)
    quality = measures.compute_quality(truth, truth.neighbours[:, 10:], VectorSet("x", base, queries, "l2"), 10)
    assert quality[f"{RECALL_MEASURE}@10"] == quality["recall(of=k)@10"] == 0.0
    assert quality["recall(of=eps)@10"] > 0.1


def test_compute_quality_cosine_scaled_copies_are_ties():
    """Distances near 0 differ by double-precision rounding, about 1e-16, which no relative tolerance covers."""
    random = np.random.default_rng(0)
    vector = random.normal(size=16)
    copies = vector * random.uniform(0.1, 10, size=(50, 1))
    base = np.concatenate([copies, random.normal(size=(100, 16))]).astype(np.float32)
    data = VectorSet("copies", base, vector[None].astype(np.float32), "cosine")
    truth = find_truth(base, data.queries, "cosine", 100)
    distances = measures.compute_distances(base, data.queries, np.arange(50)[None], "cosine")[0]
    farthest = np.argsort(-distances)[None, :10]
    assert distances[farthest[0, -1]] > distances[truth.neighbours[0, 9]]
    assert measures.compute_quality(truth, farthest, data, 10)[f"{RECALL_MEASURE}@10"] == 1.0
    assert measures.compute_quality(truth, np.arange(60, 70)[None], data, 10)[f"{RECALL_MEASURE}@10"] == 0.0


def test_compute_quality_negative_distances_have_full_recall():
    base, queries = make_vectors(300, 5), make_vectors(20, 5, 1)
    truth = find_truth(base, queries, "ip", 100)
    assert (truth.distances[:, 9] < 0).all()
    quality = measures.compute_quality(truth, truth.neighbours[:, :10], VectorSet("x", base, queries, "ip"), 10)
    assert (
        quality[f"{RECALL_MEASURE}@10"]
        == quality["recall(of=k)@10"]
        == quality["precision@10"]
        == quality["mrr@10"]
        == 1.0
    )
    assert quality["recall@10"] == pytest.approx(0.1)


def test_compute_quality_counts_duplicates_once_and_ignores_unknown():
    base, queries = make_vectors(50, 4), make_vectors(1, 4, 1)
    data = VectorSet("x", base, queries, "l2")
    truth = find_truth(base, queries, "l2", 4)
    nearest = int(truth.neighbours[0, 0])
    quality = measures.compute_quality(truth, np.array([[-2, nearest, nearest, nearest]]), data, 4)
    assert (
        quality["recall(of=k)@4"]
        == quality[f"{RECALL_MEASURE}@4"]
        == quality["recall@4"]
        == quality["precision@4"]
        == 0.25
    )
    assert quality["mrr@4"] == 0.5


def test_compute_quality_k_beyond_truth_depth_raises_error():
    base, queries = make_vectors(50, 4), make_vectors(2, 4, 1)
    data = VectorSet("x", base, queries, "l2")
    with pytest.raises(
        MissingEvidence, match="10 neighbours requested, but only 5 exact neighbours per query are known"
    ):
        measures.compute_quality(find_truth(base, queries, "l2", 5), np.zeros((2, 10), np.int64), data, 10)


def test_compute_quality_fewer_vectors_than_k_has_full_recall():
    base, queries = make_vectors(3, 4), make_vectors(2, 4, 1)
    truth = find_truth(base, queries, "l2", 10)
    positions = np.concatenate([truth.neighbours, np.full((2, 2), -1)], axis=1)
    quality = measures.compute_quality(truth, positions, VectorSet("x", base, queries, "l2"), 5)
    assert quality["recall@5"] == 1.0
    assert quality["recall(of=k)@5"] == quality[f"{RECALL_MEASURE}@5"] == 0.6


def test_compute_quality_published_neighbours_have_full_recall(shared):
    folder = shared("ann_bigann10k")

    def read(name, width, kind):
        raw = np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8)
        return raw.reshape(-1, 4 + width * np.dtype(kind).itemsize)[:, 4:].copy().view(kind)

    base = read("base.bvecs.gz", 128, np.uint8).astype(np.float32)
    queries = read("query.bvecs.gz", 128, np.uint8).astype(np.float32)
    published = read("groundtruth.ivecs.gz", 100, np.int32).astype(np.int64)
    data = VectorSet("bigann", base, queries, "l2")
    quality = measures.compute_quality(find_truth(base, queries, "l2", 100), published[:, :10], data, 10)
    assert quality[f"{RECALL_MEASURE}@10"] == 1.0
    assert quality["recall(of=k)@10"] == 1.0
    assert quality["recall@10"] == pytest.approx(0.1)
    assert quality["precision@10"] == quality["mrr@10"] == 1.0


def test_distance_errors_correct_distances_returns_empty():
    base, queries = make_vectors(200, 16), make_vectors(10, 16, 1)
    for metric in ("l2", "cosine", "ip"):
        truth = find_truth(base, queries, metric, 10)
        data = VectorSet("x", base, queries, metric)
        assert measures.distance_errors(truth.neighbours, truth.distances.astype(np.float32), data) == []
        half = truth.distances.astype(np.float16).astype(np.float32)
        assert measures.distance_errors(truth.neighbours, half, data) == []


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_distance_errors_ignores_float32_rounding_near_zero(metric):
    """With k = 1, the result of each query is the query itself or, for inner product, orthogonal: distance 0."""
    base = make_vectors(50, 16) + 3
    queries, positions = base[:10].copy(), np.arange(10)[:, None]
    if metric == "ip":
        queries = np.stack([base[:, 1], -base[:, 0], *np.zeros((14, 50), np.float32)], axis=1)[:10]
    data = VectorSet("x", base, queries, metric)
    first, second = queries, base[:10]
    products = (first * second).sum(axis=1, dtype=np.float32)
    sizes = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    # Distances as engines compute them in float32; l2 is the root of the small difference of large squares.
    squares = (first**2).sum(axis=1) + (second**2).sum(axis=1) - 2 * np.nextafter(products, np.float32(0))
    reported = {"l2": np.sqrt(np.abs(squares)), "cosine": 1 - products / sizes, "ip": -products + 1e-6 * sizes / 2}
    assert measures.distance_errors(positions, reported[metric][:, None], data) == []
    errors = measures.distance_errors(positions, np.full((10, 1), 2.0), data)
    (error,) = errors
    assert error.startswith("100% of the reported distances are wrong: their median error is 2, and the mean true ")


def test_distance_errors_scaled_or_squared_distances_are_named():
    base = np.array([[3.0, 4.0], [6.0, 8.0]], np.float32)
    data = VectorSet("x", base, np.zeros((1, 2), np.float32), "l2")
    assert measures.distance_errors(np.array([[0, 1]]), np.array([[10.0, 20.0]]), data) == [
        "100% of the reported distances are wrong: they are 2 times the true ones"
    ]
    assert measures.distance_errors(np.array([[0, 1]]), np.array([[25.0, 100.0]]), data) == [
        "100% of the reported distances are wrong: they are the squares of the true ones"
    ]


def test_distance_errors_that_cancel_out_have_a_size():
    """Three of ten distances are wrong by 0.2, in both directions: none of them is a multiple of the true one."""
    base = np.arange(1.0, 11.0, dtype=np.float32)[:, None] * np.ones(1, np.float32)
    data = VectorSet("x", base, np.zeros((1, 1), np.float32), "l2")
    true = np.arange(1.0, 11.0)
    reported = true + np.array([0, 0, 0, 0, 0, 0, 0, 0.2, -0.2, 0.2])
    assert measures.distance_errors(np.arange(10)[None], reported[None], data) == [
        "30% of the reported distances are wrong: their median error is 0.2, and the mean true distance is 5.5"
    ]


def test_distance_errors_small_common_factor_is_named():
    base, queries = make_vectors(200, 16), make_vectors(10, 16, 1)
    truth = find_truth(base, queries, "l2", 10)
    errors = measures.distance_errors(truth.neighbours, truth.distances * 1.02, VectorSet("x", base, queries, "l2"))
    assert errors == ["100% of the reported distances are wrong: they are 1.02 times the true ones"]


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("k", [1, 10])
def test_distance_errors_similarities_are_named(metric, k):
    base, queries = make_vectors(200, 16), make_vectors(10, 16, 1)
    data = VectorSet("x", base, queries, metric)
    truth = find_truth(base, queries, metric, k)
    similarities = {"l2": 1 / (1 + truth.distances), "cosine": 1 - truth.distances, "ip": -truth.distances}[metric]
    (note,) = measures.distance_errors(truth.neighbours, similarities, data)
    assert "did you return similarities?" in note


def test_distance_errors_ignores_missing_results():
    base, queries = make_vectors(5, 4), make_vectors(2, 4, 1)
    truth = find_truth(base, queries, "l2", 5)
    positions = np.concatenate([truth.neighbours, np.full((2, 3), -1)], axis=1)
    reported = np.concatenate([truth.distances, np.full((2, 3), np.inf)], axis=1)
    assert measures.distance_errors(positions, reported, VectorSet("x", base, queries, "l2")) == []


def test_distance_errors_finds_each_kind_of_error():
    base, queries = make_vectors(200, 16), make_vectors(10, 16, 1)
    data = VectorSet("x", base, queries, "l2")
    truth = find_truth(base, queries, "l2", 10)
    squared = measures.distance_errors(truth.neighbours, truth.distances**2, data)
    assert squared[0].startswith("100% of the reported distances are wrong: ")
    unknown = truth.neighbours.copy()
    unknown[3, 4] = -2
    assert measures.distance_errors(unknown, truth.distances, data) == ["1 results are ids that were never added"]
    repeated, reported = truth.neighbours.copy(), truth.distances.copy()
    repeated[5, 1], reported[5, 1] = repeated[5, 0], reported[5, 0]
    assert measures.distance_errors(repeated, reported, data) == ["1 of 10 queries returned a vector more than once"]
    backwards = measures.distance_errors(truth.neighbours[:, ::-1], truth.distances[:, ::-1], data)
    assert backwards == ["10 of 10 results are not in the order of the reported distances"]
    missing = np.full(truth.distances.shape, np.nan)
    assert measures.distance_errors(truth.neighbours, missing, data) == ["100% of the results have no distance"]


def test_summarise_search_latency_pools_repeats():
    raw = np.array([[1e6] * 99 + [100e6], [1e6] * 100])
    latency = measures.summarise_search_latency(raw)
    assert latency.n == 200
    assert latency.max == 100.0
    assert latency.p50 == 1.0
    assert np.isnan(measures.qps_spread(raw[:1]))


def make_idle_rounds(**changes):
    """Return the arrays of three undisturbed rounds of 1 s, with the given changes."""
    raw = {
        "nanoseconds": np.full((3, 10), 1e6),
        "floor_ns": np.full((3, 2), 9000.0),
        "readings": np.tile([1.0, 0.999, 4.0, 0.0, 0.0, 100.0], (3, 1)),
    }
    return raw | changes


def make_readings(**changes):
    names = ("seconds", "cpu_seconds", "switches", "faults", "stolen", "ticks")
    values = dict(zip(names, [1.0, 0.999, 4.0, 0.0, 0.0, 100.0], strict=True)) | changes
    return np.tile([values[name] for name in names], (3, 1))


def test_assess_clock_idle_machine_has_no_doubts():
    check = observation.assess_clock(make_idle_rounds())
    assert check.doubts == []
    assert check.floor_ms == pytest.approx(0.009)
    assert check.switches == 12
    assert check.steal == 0.0


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        (
            {"nanoseconds": np.array([[1e6], [1e6], [2e6]])},
            "QPS is uncertain by ±25% (standard error over the repeats)",
        ),
        ({"floor_ns": np.full((3, 2), 18e3)}, "the harness itself took 2.0 times as long as usual"),
        ({"readings": make_readings(cpu_seconds=0.5, switches=125)}, "other processes had the CPU for 50% of the time"),
        ({"readings": make_readings(stolen=5)}, "the host took 5% of the CPU time"),
    ],
)
def test_assess_clock_disturbed_measurement_is_doubtful(changes, doubt):
    assert observation.assess_clock(make_idle_rounds(**changes), usual_floor_ns=9e3).doubts == [doubt]


@pytest.mark.parametrize(
    "changes",
    [
        {"nanoseconds": np.array([[1e6], [1e6], [1.3e6]])},  # one slow repeat of three: QPS is 9% lower
        {"floor_ns": np.array([[9e3, 9e3], [18e3, 19e3], [9e3, 9e3]])},  # around one repeat of three
        {"floor_ns": np.array([[9e3, 30e3], [9e3, 9e3], [25e3, 9e3]])},  # on one side of two repeats
        {"readings": make_readings(cpu_seconds=0.5)},  # the store waits: few involuntary switches
        {"readings": make_readings(cpu_seconds=0.5, faults=3)},  # the store waits for a disk
        {"readings": make_readings(switches=125)},  # many switches, but the process ran almost all the time
        {"readings": make_readings(stolen=0.6, ticks=2)},  # one or two stolen ticks
    ],
)
def test_assess_clock_normal_jitter_is_not_doubtful(changes):
    assert observation.assess_clock(make_idle_rounds(**changes), usual_floor_ns=9e3).doubts == []


def test_assess_clock_idle_machine_has_few_false_doubts():
    """Simulate rounds as measured by CPU time, and count how many are doubtful.

    They have 5% noise, 2 interruptions per second of 5 ms on average, and 2% slow rounds.
    """
    random = np.random.default_rng(11)
    doubtful = 0
    for _ in range(500):
        search_ms = np.exp(random.uniform(np.log(0.02), np.log(1.0)))
        n = int(200 / search_ms)
        rounds = random.normal(search_ms, 0.05 * search_ms, size=3)
        delays = [random.exponential(5, size=random.poisson(2 * 0.2)).sum() for _ in range(3)]
        slowdown = np.where(random.random(3) < 0.02, 1.6, 1.0)
        times = (rounds * slowdown + np.array(delays) / n) * 1e6
        floors = 7e3 * slowdown[:, None] * random.normal(1, 0.03, size=(3, 2))
        raw = {"nanoseconds": times[:, None], "floor_ns": floors, "readings": make_readings()}
        doubtful += bool(observation.assess_clock(raw, usual_floor_ns=7e3).doubts)
    assert doubtful < 0.1 * 500


def test_assess_clock_ignores_server_waits_and_detects_slow_floor():
    server_wait = make_readings(cpu_seconds=0.1, switches=500)
    assert observation.assess_clock(make_idle_rounds(readings=server_wait), in_process=False).doubts == []
    assert "1.8 times as long" in observation.assess_clock(make_idle_rounds(), usual_floor_ns=5000).doubts[0]


def test_assess_clock_nan_readings_has_no_doubts():
    check = observation.assess_clock(
        make_idle_rounds(readings=make_readings(switches=np.nan, faults=np.nan, stolen=np.nan, ticks=np.nan))
    )
    assert check.doubts == []
    assert np.isnan(check.steal)


def make_load(due, began, ended, **changes):
    raw = {"due_ns": due, "began_ns": began, "ended_ns": ended, "clients": 2, "rate": 100.0, "copies": 0, "empty": 0}
    raw |= {"stopped_ns": max(ended), "readings": np.zeros((2, 6)), "server": 0, "cores": 2} | changes
    return {name: np.array(value) for name, value in raw.items()}


def test_summarise_load_by_hand():
    """Queries are due at 0, 10 and 20 ms. The first takes 30 ms; the others begin at 30 and 31 ms and take 1 ms."""
    ms = 1_000_000
    result = measures.summarise_load(
        make_load([0, 10 * ms, 20 * ms], [0, 30 * ms, 31 * ms], [30 * ms, 31 * ms, 32 * ms])
    )
    assert result.latency.p50 == 21.0
    assert result.latency.max == 30.0
    assert result.service.p50 == 1.0
    assert result.qps == pytest.approx(3 / 0.032)
    assert result.late == pytest.approx(2 / 3)
    assert result.note.startswith("send delay 11.0 ms in the last tenth, slope 550 ms/s (95% CI ")
    assert not result.kept_up


def simulate_load(rate, service_ms, *, seconds=5, poisson=False, jitter=0.0, stall_ms=0.0, every=1, seed=0):
    """Simulate a store that handles one query at a time (Lindley's recursion)."""
    due = compute_arrival_times(rate, seconds, poisson=poisson, seed=seed)
    rng = np.random.default_rng(seed)
    service = service_ms * (rng.gamma(1 / jitter**2, jitter**2, len(due)) if jitter else np.ones(len(due)))
    service[every - 1 :: every] += stall_ms
    began, free = np.empty(len(due)), 0.0
    for i in range(len(due)):
        began[i] = max(due[i], free)
        free = began[i] + service[i] * 1e6
    return make_load(due, began.astype(np.int64), (began + service * 1e6).astype(np.int64), rate=rate, clients=1)


@pytest.mark.parametrize(
    ("rate", "service_ms", "options", "kept_up"),
    [
        (520.0, 1000 / 495, {"jitter": 0.3}, False),  # a rate of 95.2% of the target, and a backlog that only grows
        (505.0, 2.0, {"jitter": 0.3}, False),
        (520.0, 1000 / 495, {"poisson": True, "jitter": 0.3}, False),
        (50.0, 21.0, {}, False),
        (450.0, 2.0, {"jitter": 0.3}, True),
        (400.0, 2.0, {"poisson": True, "jitter": 0.3}, True),
        (5000.0, 0.02, {}, True),
        (200.0, 0.1, {"stall_ms": 300.0, "every": 500, "seconds": 10}, True),  # every stall is made up for
        (0.5, 1000.0, {"seconds": 4}, True),
        (2.0, 1000.0, {"seconds": 10}, False),
    ],
)
def test_summarise_load_growing_backlog_is_not_sustained(rate, service_ms, options, kept_up):
    result = measures.summarise_load(simulate_load(rate, service_ms, **options))
    assert result.kept_up is kept_up
    assert ("send delay" in result.note) is not kept_up
    if kept_up or options.get("poisson"):
        return
    # A store whose searches take longer than their interval falls behind by the difference per query.
    expected = rate * service_ms - 1000
    assert result.backlog.growth == pytest.approx(expected, abs=8)
    assert result.backlog.growth_low <= result.backlog.growth <= result.backlog.growth_high


def test_measure_backlog_interval_matches_scipy():
    from scipy.stats import linregress, t

    rng = np.random.default_rng(2)
    due, delays = np.arange(100) * 10_000_000, rng.integers(0, 5_000_000, 100)
    backlog = measures.measure_backlog(due, delays, 1.0)
    fit = linregress(due.reshape(10, 10).mean(axis=1) / 1e9, delays.reshape(10, 10).mean(axis=1) / 1e6)
    reach = t.ppf(0.975, 8) * fit.stderr
    assert (backlog.growth, backlog.growth_low, backlog.growth_high) == pytest.approx(
        (fit.slope, fit.slope - reach, fit.slope + reach)
    )
    assert backlog.last_ms == pytest.approx(np.median(delays[90:]) / 1e6)


@pytest.mark.parametrize("utilisation", [0.5, 0.8])
def test_measure_backlog_stable_queue_is_rarely_called_growing(utilisation):
    loads = [
        simulate_load(500.0, 2 * utilisation, poisson=True, jitter=0.5, seconds=2, seed=seed) for seed in range(100)
    ]
    assert sum(not measures.summarise_load(raw).kept_up for raw in loads) <= 5


def test_summarise_load_low_rate_qps_equals_rate():
    """Three queries in ten seconds take 1 ms each; then a test with a single query, after which no other is due."""
    s, ms = 1_000_000_000, 1_000_000
    due = np.array([0, 10 * s // 3, 20 * s // 3])
    result = measures.summarise_load(make_load(due, due, due + ms, rate=0.3))
    assert result.qps == pytest.approx(0.3)
    assert result.kept_up
    assert measures.summarise_load(make_load([0], [0], [ms], rate=0.3)).qps == pytest.approx(0.3)
    # In a closed loop no query is scheduled, so the time runs from the first start to the last end.
    assert measures.summarise_load(make_load([0], [0], [ms], rate=np.nan)).qps == pytest.approx(1000)


def test_summarise_load_dropped_queries_wait_until_end():
    ms = 1_000_000
    raw = make_load([0, 10 * ms, 20 * ms], [0, 30 * ms, -1], [30 * ms, 31 * ms, -1], stopped_ns=50 * ms, empty=1)
    result = measures.summarise_load(raw, "each had a copy")
    assert result.latency.n == 3
    assert result.latency.p50 == 30.0
    assert result.service.n == 2
    assert result.qps == pytest.approx(2 / 0.031)
    assert result.note == "each had a copy; 1 of 3 queries were dropped before they could be sent; 1 results were empty"


def test_summarise_load_busy_cpu_is_doubtful_in_closed_loop_only():
    ms = 1_000_000
    times = [0, ms], [0, ms], [ms, 2 * ms]
    busy_readings = np.tile([1.0, 0.5, 100, 0, 0, 0], (2, 1))
    result = measures.summarise_load(make_load(*times, rate=np.nan, readings=busy_readings))
    assert (result.note, result.doubts) == ("", ["other processes had the CPU for 50% of the time"])
    # Clients wait at a fixed rate, for a server, and if they share CPU cores.
    for changes in ({"rate": 10.0}, {"rate": np.nan, "server": 1}, {"rate": np.nan, "cores": 1}):
        assert measures.summarise_load(make_load(*times, readings=busy_readings, **changes)).doubts == []


def test_summarise_filtered_search_by_hand():
    """Vectors at 0 … 9 on a line; the even ones match. The query is at 0, and the store returns 0, 1, 4."""
    base = np.arange(10, dtype=np.float32)[:, None]
    data = VectorSet("line", base, np.zeros((1, 1), np.float32), "l2")
    mask = np.arange(10) % 2 == 0
    raw = {"nanoseconds": np.array([[2_000_000], [4_000_000]]), "positions": np.array([[0, 1, 4]])}
    result = measures.summarise_filtered_search(raw, mask, data, 3, np.array([[0, 2, 4]]))
    assert (result.selectivity, result.matching, result.wrong) == (0.5, 5, 1)
    assert result.returned == result.recall == pytest.approx(2 / 3)
    assert (result.latency.p50, result.qps, result.repeats) == (3.0, pytest.approx(1000 / 3), 2)
    assert result.qps_spread == pytest.approx((500 - 250) / 375)
    two_rows = np.arange(10) < 2
    complete = measures.summarise_filtered_search(
        {**raw, "positions": np.array([[1, 0, -1]])}, two_rows, data, 3, np.array([[0, 1]])
    )
    assert (complete.recall, complete.returned, complete.wrong) == (1.0, 1.0, 0)


def test_summarise_mixed_workload_by_hand():
    """Base vectors at 10 and 20 on a line, inserted vectors at 1 and 2, the query at 0, k = 1.

    Search 1 begins before any insert and finds 10: correct. Search 2 begins after the insert of 1 and finds 10: wrong.
    Search 3 begins before any insert and finds 2, which was inserted meanwhile: correct.
    Search 4 finds 2 before its insert began: wrong.
    """
    base = np.array([[10.0], [20.0]], np.float32)
    data = VectorSet("line", base, np.zeros((1, 1), np.float32), "l2")
    truth = ExactNeighbours(np.array([[0, 1]]), np.array([[10.0, 20.0]]), "l2", "given")
    raw = {
        "query": np.zeros(4, np.int64),
        "positions": np.array([[0], [0], [3], [3]]),
        "before": np.array([0, 1, 0, 0]),
        "after": np.array([0, 1, 2, 1]),
        "newcomers": np.array([[1.0], [2.0]], np.float32),
        "inserted": np.array(2),
        "insert_seconds": np.array(0.5),
        "together": np.array(1),
        "due_ns": np.zeros(4, np.int64),
        "ended_ns": np.full(4, 3_000_000),
        "alone_due_ns": np.zeros(1, np.int64),
        "alone_ended_ns": np.full(1, 1_000_000),
    }
    result = measures.summarise_mixed_workload(raw, truth, data, 1)
    assert result.recall == 0.5
    assert (result.inserted, result.inserts_per_second, result.together) == (2, 4.0, True)
    assert (result.latency.p50, result.alone.p50) == (3.0, 1.0)


def test_summarise_updates_ignores_nan():
    raw = {"ns": np.array([1e6, 3e6, 5e6]), "search_ns": np.array([2e6] * 3), "seen": np.array([1.0, 0.0, np.nan])}
    result = measures.summarise_updates("delete", raw)
    assert (result.visible, result.latency.mean, result.latency.n) == (0.5, 3.0, 3)
    assert result.next_search.mean == 2.0
    assert np.isnan(measures.summarise_updates("delete", raw | {"seen": np.full(3, np.nan)}).visible)


class HoardingStore:
    """Store that adds an updated vector at its new position, but keeps the old one too."""

    def __init__(self) -> None:
        self.store = ExactStore(metric="l2")
        self.add = self.store.add

    def update(self, ids, vectors):
        self.store.add([f"new {name}" for name in ids], vectors)

    def search(self, vectors, k):
        ids, distances = self.store.search(vectors, k)
        return [[name.removeprefix("new ") for name in row] for row in ids], distances


@pytest.mark.parametrize(("make_store", "visible"), [(lambda: ExactStore(metric="l2"), 1.0), (HoardingStore, 0.0)])
def test_time_updates_update_is_visible_only_if_old_vector_is_gone(make_store, visible):
    base = make_vectors(60, 4)
    ids = [str(i) for i in range(60)]
    store = make_store()
    store.add(ids, base)
    # With k = 20 of 60, a search at the old position often finds the updated id too, at the new vector's distance.
    raw = updates.time_updates(store, base, 20, "update", ids=ids, metric="l2", n=20)
    assert measures.summarise_updates("update", raw).visible == visible


def test_compute_quality_incomplete_results_match_evaluate():
    """Two of three queries miss some of the 12 exact neighbours, and one of them returns fewer rows than k."""
    random = np.random.default_rng(3)
    base = random.normal(size=(40, 4)).astype(np.float32)
    data = VectorSet("random", base, random.normal(size=(3, 4)).astype(np.float32), "l2")
    true_rows, true_distances = find_nearest(base, data.queries, 12, "l2")
    returned = true_rows[:, :10].copy()
    outside = [next(i for i in range(40) if i not in row) for row in true_rows]
    returned[0, 2], returned[1, [0, 5]], returned[1, 7:] = outside[0], outside[1], -1
    returned[1, 5] = next(i for i in range(39, 0, -1) if i not in true_rows[1] and i != outside[1])
    scores = measures.compute_quality(ExactNeighbours(true_rows, true_distances, "l2", "numpy"), returned, data, 10)
    judgments = {f"q{i}": {str(p): 1 for p in row} for i, row in enumerate(true_rows)}
    run = {f"q{i}": {str(p): -float(rank) for rank, p in enumerate(row) if p >= 0} for i, row in enumerate(returned)}
    names = ["ndcg@10", "map@10", "map(of=capped)@10", "hit_rate@10", "f1@10"]
    names.append("f1(precision_of=retrieved,recall_of=capped)@10")
    for name, value in evaluate(judgments, run, names).means.items():
        assert scores[name] == pytest.approx(value), name
        assert name == "hit_rate@10" or value < 1
