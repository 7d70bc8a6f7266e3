"""Measures of vector search: recall of the true neighbours by id and by distance, and relative distance error."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from ragauge import BadInput, MissingEvidence, evaluate, judgments_from_neighbours, run_from_arrays
from ragauge.store_benchmarks.results import RECALL_MEASURE


def test_recall_of_k_counts_only_k_nearest():
    truth = judgments_from_neighbours([[1, 2, 3, 4]])
    run = run_from_arrays([[1, 4, 2]], [[0.9, 0.8, 0.7]])
    found = evaluate(truth, run, ["recall@2", "recall@3"], "ann").means
    assert found == {"recall(of=k)@2": 0.5, "recall(of=k)@3": pytest.approx(2 / 3)}


def test_recall_of_eps_counts_equally_near_documents():
    """Document 9 is not a true neighbour, but is no farther than the second true neighbour."""
    truth = judgments_from_neighbours([[1, 2]], [[1.0, 2.0]])
    run = ([[1, 9]], [[-1.0, -2.0]])
    found = evaluate(truth, run, ["recall(of=k)@2", "recall(of=eps)@2", "recall(of=eps,eps=0.1)@2"]).means
    assert list(found.values()) == [0.5, 1.0, 1.0]
    farther = evaluate(truth, ([[1, 9]], [[-1.0, -2.1]]), ["recall(of=eps)@2", "recall(of=eps,eps=0.1)@2"]).means
    assert list(farther.values()) == [0.5, 1.0]


def test_recall_of_eps_one_millionth_counts_ties_only():
    truth = judgments_from_neighbours([[1, 2]], [[1.0, 2.0]])
    for distance, value in ((2.0, 1.0), (2.000001, 1.0), (2.0005, 0.5)):
        found = evaluate(truth, ([[1, 9]], [[-1.0, -distance]]), ["recall(of=eps,eps=0.000001)@2"]).means
        assert found == {f"{RECALL_MEASURE}@2": value}, distance


def test_recall_of_eps_distance_zero_tolerates_rounding():
    truth = judgments_from_neighbours([[1, 2]], [[0.0, 0.0]])
    for distance, value in ((2e-16, 1.0), (1e-9, 0.5)):
        assert list(evaluate(truth, ([[1, 9]], [[0.0, -distance]]), [f"{RECALL_MEASURE}@2"]).means.values()) == [
            value
        ], distance


def test_recall_of_eps_negative_distances_by_hand():
    truth = judgments_from_neighbours([[1, 2]], [[-5.0, -4.0]])
    for distance, value in ((-4.0, 1.0), (-3.999, 1.0), (-3.9, 0.5)):
        found = evaluate(truth, ([[1, 9]], [[5.0, -distance]]), ["recall(of=eps)@2"]).means
        assert list(found.values()) == [value], distance


def test_relative_distance_error_by_hand():
    truth = judgments_from_neighbours([[1, 2]], [[1.0, 2.0]])
    assert evaluate(truth, ([[1, 9]], [[-1.0, -3.0]]), ["rde@2"]).means["rde@2"] == pytest.approx((0 + 0.5) / 2)


def test_evaluate_distances_as_scores_raises_error():
    with pytest.raises(BadInput, match="rise down every list, as distances do"):
        evaluate(judgments_from_neighbours([[1, 2]]), ([[1, 2]], [[0.1, 0.2]]), ["recall@2"])


def test_run_from_arrays_ignores_negative_ids():
    run = run_from_arrays([[5, -1, -1]], [[0.5, 0.0, 0.0]])
    assert run.nested == {"0": {"5": 0.5}}


def test_recall_of_eps_without_distances_raises_error():
    with pytest.raises(MissingEvidence, match="distances of the true neighbours"):
        evaluate(judgments_from_neighbours([[1]]), ([[1]], [[1.0]]), ["recall(of=eps)@1"])


def test_neighbour_measures_exact_search_matches_published_neighbours(shared):
    """On BIGANN, exact search with NumPy finds the published neighbours; half of the base has about half of them."""
    folder = shared("ann_bigann10k")

    def read_vectors(name, width, kind):
        raw = np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8)
        return raw.reshape(-1, 4 + width * np.dtype(kind).itemsize)[:, 4:].copy().view(kind)

    base = read_vectors("base.bvecs.gz", 128, np.uint8).astype(np.float64)
    queries = read_vectors("query.bvecs.gz", 128, np.uint8).astype(np.float64)
    truth = read_vectors("groundtruth.ivecs.gz", 100, np.int32)
    distances = (queries**2).sum(1)[:, None] + (base**2).sum(1)[None] - 2 * queries @ base.T
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :100]
    scores = -np.take_along_axis(distances, nearest, axis=1)
    true_distances = np.take_along_axis(distances, truth, axis=1)
    judged = judgments_from_neighbours(truth, true_distances)
    exact = evaluate(judged, (nearest, scores), ["recall@10", "recall(of=eps)@10", "rde@10"], "ann").means
    assert list(exact.values()) == [1.0, 1.0, 0.0]
    half_nearest = np.argsort(np.where(np.arange(10_000) % 2, np.inf, distances), axis=1)[:, :10]
    half_scores = evaluate(
        judged, (half_nearest, -np.take_along_axis(distances, half_nearest, axis=1)), ["recall@10", "rde@10"], "ann"
    ).means
    assert 0.3 < half_scores["recall@10"] < 0.7
    assert half_scores["rde@10"] > 0
