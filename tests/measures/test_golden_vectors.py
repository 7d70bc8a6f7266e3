"""Golden vectors: hand-computed scores of small examples under several conventions."""

from __future__ import annotations

import pytest

from ragauge import evaluate
from ragauge.core.errors import BadInput

GRADES = {"q": {"d1": 1, "d2": 3, "d3": 2, "d4": 1}}


def compute_means(qrels, run, measures, convention="ann", **options):
    return list(evaluate(qrels, run, measures, convention, **options).means.values())


def test_evaluate_full_list_by_hand():
    run = {"q": ["d1", "x", "d2", "y", "d3"]}
    measures = ["recall@5", "precision@5", "mrr", "map@5", "map(of=found)@5"]
    measures += ["ndcg@5", "ndcg(gain=exp)@5", "ndcg(gain=binary)@5"]
    expected = [0.75, 0.6, 1, 0.566667, 0.755556, 0.630464, 0.576228, 0.736590]
    assert compute_means(GRADES, run, measures, "default") == pytest.approx(expected, abs=1e-6)


def test_evaluate_list_shorter_than_cutoff_by_hand():
    run = {"q": ["d1", "x", "d2"]}
    measures = ["recall@10", "precision@10", "precision(of=retrieved)@10", "map@10"]
    measures += ["ndcg@10", "ndcg(gain=exp)@10", "ndcg(gain=binary)@10"]
    expected = [0.5, 0.2, 0.666667, 0.416667, 0.481460, 0.458087, 0.585570]
    assert compute_means(GRADES, run, measures, "default") == pytest.approx(expected, abs=1e-6)


def test_evaluate_more_relevant_documents_than_cutoff_by_hand():
    qrels, run = {"q": dict.fromkeys(("d1", "d2", "d3", "d4", "d5"), 1)}, {"q": ["d1", "d2", "x"]}
    measures = ["recall@2", "recall(of=capped)@2", "map@2", "map(of=capped)@2", "precision@2", "ndcg@2"]
    assert compute_means(qrels, run, measures, "default") == pytest.approx([0.4, 1, 0.4, 1, 1, 1])


@pytest.mark.parametrize(
    ("duplicates", "expected"), [("first", [1, 0.5, 0.75, 0.877215]), ("count", [2, 1, 2, 1.570642])]
)
def test_evaluate_tripled_document_by_hand(duplicates, expected):
    from ragauge import PRESETS

    rules = PRESETS["default"].but(duplicates=duplicates, ties="ranked")
    run = {"q": ["d1", "d1", "d1", "d2"]}
    measures = ["recall@4", "precision@4", "map@4", "ndcg@4"]
    assert compute_means({"q": {"d1": 1, "d2": 1}}, run, measures, rules) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("duplicates", "expected"), [("first", [1, 0.333333, 1, 1]), ("count", [3, 1, 3, 2.130930])])
def test_evaluate_single_repeated_document_by_hand(duplicates, expected):
    from ragauge import PRESETS

    rules = PRESETS["default"].but(duplicates=duplicates, ties="ranked")
    measures = ["recall@3", "precision@3", "map@3", "ndcg@3"]
    assert compute_means({"q": {"d1": 1}}, {"q": ["d1"] * 3}, measures, rules) == pytest.approx(expected, abs=1e-6)


def test_evaluate_tokenization_convention_by_hand():
    run = {"q": ["doc0", "doc5", "doc99", "doc1", "doc42"]}
    measures = ["recall@5", "precision@5", "mrr", "map@5", "ndcg@5"]
    expected = [1, 0.4, 1, 0.75, 0.877215]
    assert compute_means({"q": {"doc0": 1, "doc1": 1}}, run, measures, "tokenization") == pytest.approx(
        expected, abs=1e-6
    )


def test_mrr_first_relevant_at_one_three_and_missing_by_hand():
    qrels = {q: {"a": 1} for q in ("q1", "q2", "q3")}
    run = {"q1": ["a"], "q2": ["x", "y", "a"], "q3": ["x"]}
    assert compute_means(qrels, run, ["mrr"]) == pytest.approx([0.444444], abs=1e-6)


PG_RUN = {"a": ["1", "3", "7", "2", "5"], "b": ["4", "6", "1", "8", "2"], "c": ["2", "1", "9", "3", "4"]}
PG_TRUTH = {"a": ["1", "2", "3"], "b": ["4", "6"], "c": ["2", "9", "10"]}


def test_evaluate_pgvectordb_convention_at_five_by_hand():
    measures = ["precision@5", "recall@5", "f1@5", "f1(of=queries)@5", "map@5", "mrr@5", "ndcg@5", "hit_rate@5"]
    expected = [0.4667, 0.8889, 0.6120, 0.6071, 0.8241, 1, 0.8905, 1]
    assert compute_means(PG_TRUTH, PG_RUN, measures, "pgvectordb") == pytest.approx(expected, abs=5e-5)


def test_evaluate_pgvectordb_convention_over_range_of_k_by_hand():
    ks = (1, 2, 3, 5, 10)
    precision = compute_means(PG_TRUTH, PG_RUN, [f"precision@{k}" for k in ks], "pgvectordb")
    recall = compute_means(PG_TRUTH, PG_RUN, [f"recall@{k}" for k in ks], "pgvectordb")
    assert precision == pytest.approx([1, 0.833, 0.667, 0.467, 0.233], abs=5e-4)
    assert recall == pytest.approx([0.389, 0.667, 0.778, 0.889, 0.889], abs=5e-4)


def test_evaluate_ragdbeval_recall_divides_by_all_neighbours():
    truth = {"q": [str(i) for i in range(100)]}
    run = {"q": [str(i) for i in range(100)]}
    assert compute_means(truth, run, ["recall@10"], "ragdbeval") == [0.1]
    assert compute_means(truth, run, ["recall@10"], "ragdbeval-capped") == [1.0]
    assert compute_means(truth, run, ["recall@10"], "ann") == [1.0]


def test_evaluate_ann_recall_counts_only_k_nearest_neighbours():
    """Neighbours 90 to 99 are not among the ten nearest, but RAGdbEval counts them."""
    truth, run = {"q": [str(i) for i in range(100)]}, {"q": [str(i) for i in range(90, 100)]}
    assert compute_means(truth, run, ["recall@10"], "ann") == [0.0]
    assert compute_means(truth, run, ["recall@10"], "ragdbeval-capped") == [1.0]


def test_evaluate_rig_query_without_relevant_documents_by_hand():
    qrels, run = {"q": {"a": 0}}, {"q": {"a": 1.0}}
    measures = ["recall@5", "hit_rate@5", "mrr", "map@5", "ndcg@5", "precision@5"]
    assert compute_means(qrels, run, measures, "rig-code") == [1, 1, 1, 1, 1, 0]
    assert compute_means(qrels, run, measures, "rig") == [1, 0, 0, 0, 0, 0]
    assert compute_means(qrels, run, measures, "default") == [0, 0, 0, 0, 0, 0]


def test_evaluate_rig_precision_at_zero_is_zero():
    qrels, run = {"q": {"a": 1}, "r": {"b": 0}}, {"q": {"a": 1.0}, "r": {"b": 1.0}}
    assert compute_means(qrels, run, ["precision@0", "precision@1"], "rig") == [0, 0.5]
    for measure, convention in (("precision@0", "rig-code"), ("precision@0", "default"), ("recall@0", "rig")):
        with pytest.raises(BadInput, match="must be a whole number of at least 1, got 0"):
            compute_means(qrels, run, [measure], convention)
