"""`RAGEvaluator` on functions, databases and retrievers; test_pgvector covers a real database."""

from __future__ import annotations

import asyncio
import json

import pytest

from command import run_python
from ragauge import RAGEvaluator
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BackendFailed, BadInput, MissingEvidence
from ragauge.datasets.query_sets import parse_ground_truth
from ragauge.systems.bm25 import BM25

RANKINGS = {"one": ["a", "b", "c", "d", "e"], "two": ["x", "b", "y", "b", "z"], "three": ["p", "q", "r", "s", "t"]}
GROUND_TRUTH = [("one", "a"), ("two", "b"), ("three", "nowhere")]


class Database:
    """A database with the methods of a typical user class."""

    def __init__(self):
        self.asked = []

    async def semantic_search(self, query, k=5, where=None):
        self.asked.append((query, k))
        await asyncio.sleep(0)
        return [Hit(name, 1.0 - i / 10, "w" * 40) for i, name in enumerate(RANKINGS[query][:k])]

    async def hybrid_search(self, query, k=5, weights=(0.5, 0.5)):
        return [hit.id for hit in reversed(await self.semantic_search(query, k))]


def test_evaluator_metrics_by_hand():
    metrics = asyncio.run(RAGEvaluator(Database()).evaluate(ground_truth=GROUND_TRUTH, k=5))
    assert metrics["hit_rate"] == pytest.approx(2 / 3)
    assert metrics["mrr"] == pytest.approx((1 + 1 / 2) / 3)
    assert metrics["ndcg"] == pytest.approx((1 + 0.6309297535714575) / 3)  # 1 / log2(3)
    assert metrics["recall"] == pytest.approx(2 / 3)
    assert metrics["precision"] == pytest.approx(2 / 15)  # b is returned twice and counts once
    assert metrics["n"] == 3
    assert metrics["failed"] == 0
    assert metrics["latency_ms"] > 0


def test_evaluator_uses_given_retrieval_function():
    db = Database()

    async def hybrid_retriever(query: str, k: int):
        return await db.hybrid_search(query, k=k, weights=(0.7, 0.3))

    metrics = asyncio.run(RAGEvaluator(db).evaluate(GROUND_TRUTH, k=5, retrieval_fn=hybrid_retriever))
    assert metrics["mrr"] == pytest.approx((1 / 5 + 1 / 2) / 3)


def test_evaluate_k_range_nested_rankings_use_one_retrieval():
    db = Database()
    db.nested_rankings = True
    results = asyncio.run(RAGEvaluator(db).evaluate_k_range(GROUND_TRUTH, k_values=[1, 3, 5]))
    assert [result["k"] for result in results] == [1, 3, 5]
    assert [result["metrics"]["hit_rate"] for result in results] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert sorted(db.asked) == [("one", 5), ("three", 5), ("two", 5)]


def test_evaluator_accepts_sync_functions_and_databases():
    class Plain:
        def semantic_search(self, query, k):
            return RANKINGS[query][:k]

    assert asyncio.run(RAGEvaluator(Plain()).evaluate(GROUND_TRUTH))["hit_rate"] == pytest.approx(2 / 3)
    result = asyncio.run(RAGEvaluator().evaluate(GROUND_TRUTH, retrieval_fn=lambda query, k: RANKINGS[query][:k]))
    assert result["hit_rate"] == pytest.approx(2 / 3)


def test_evaluator_accepts_multiple_and_graded_answers():
    truth = [("one", {"a": 1, "c": 2}), ("two", ["b", "z"])]
    metrics = asyncio.run(RAGEvaluator(Database()).evaluate(truth, k=3))
    assert metrics["recall"] == pytest.approx((2 / 2 + 1 / 2) / 2)
    ideal = 2 + 1 / 1.584962500721156
    second = (1 / 1.584962500721156) / (1 + 1 / 1.584962500721156)
    assert metrics["ndcg"] == pytest.approx(((1 + 2 / 2) / ideal + second) / 2)
    assert parse_ground_truth({"How?": "a", "Why?": ["b", "c"]})[1] == {"q1": {"a": 1.0}, "q2": {"b": 1.0, "c": 1.0}}


def test_evaluator_failed_queries_count_as_empty_rankings():
    async def broken(query, k):
        if query == "two":
            raise ConnectionError("gone")
        return RANKINGS[query][:k]

    metrics = asyncio.run(RAGEvaluator().evaluate(GROUND_TRUTH, retrieval_fn=broken))
    assert metrics["failed"] == 1
    assert metrics["n"] == 3
    assert metrics["hit_rate"] == pytest.approx(1 / 3)
    assert metrics.failures == {"two": "ConnectionError: gone"}
    assert "1 of 3 queries failed and count as empty rankings; first: two: ConnectionError: gone" in repr(metrics)


def test_evaluator_all_queries_failed_raises_error_unless_allowed():
    async def broken(query, k):
        raise ConnectionError("gone")

    for method in ("evaluate", "recommend_k"):
        with pytest.raises(BackendFailed, match="3 of 3 queries failed; first: one: ConnectionError: gone"):
            asyncio.run(getattr(RAGEvaluator(), method)(GROUND_TRUTH, retrieval_fn=broken))
    metrics = asyncio.run(RAGEvaluator(allow_failures=True).evaluate(GROUND_TRUTH, retrieval_fn=broken))
    assert (metrics["failed"], len(metrics.failures), metrics["hit_rate"]) == (3, 3, 0.0)


class _WithoutReturn:
    def semantic_search(self, query, filters=None, k=5):
        RANKINGS[query][:k]


def test_evaluator_function_returning_none_raises_error():
    def return_none(query, k):
        RANKINGS[query][:k]

    async def return_none_async(query, k):
        RANKINGS[query][:k]

    expected = "returned None; expected a list of ids, of \\(id, score\\) pairs or of hits"
    for function in (return_none, return_none_async):
        with pytest.raises(
            BackendFailed, match=rf"3 of 3 queries failed; first: one: .*{function.__name__} {expected}"
        ):
            asyncio.run(RAGEvaluator().evaluate(GROUND_TRUTH, retrieval_fn=function))
    with pytest.raises(BackendFailed, match=f"semantic_search {expected}"):
        asyncio.run(RAGEvaluator(_WithoutReturn()).evaluate(GROUND_TRUTH))
    metrics = asyncio.run(
        RAGEvaluator().evaluate(GROUND_TRUTH, retrieval_fn=lambda q, k: None if q == "two" else RANKINGS[q])
    )
    assert list(metrics.failures) == ["two"]
    assert asyncio.run(RAGEvaluator().evaluate(GROUND_TRUTH, retrieval_fn=lambda q, k: []))["failed"] == 0


def test_evaluator_wrong_signature_raises_error_before_any_query():
    def lacks_k(query):
        return ["a"]

    class LacksK:
        def semantic_search(self, query, limit=5):
            return ["a"]

    with pytest.raises(BadInput, match=r"lacks_k\(query\) cannot search: too many positional arguments; expected"):
        asyncio.run(RAGEvaluator(allow_failures=True).evaluate(GROUND_TRUTH, retrieval_fn=lacks_k))
    with pytest.raises(BadInput, match=r"semantic_search\(query, limit=5\) cannot search: got an unexpected keyword"):
        asyncio.run(RAGEvaluator(LacksK()).evaluate(GROUND_TRUTH))


def test_recommend_k_reports_failed_queries():
    def broken(query, k):
        if query == "two":
            raise ConnectionError("gone")
        return RANKINGS[query][:k]

    advice = asyncio.run(RAGEvaluator().recommend_k(GROUND_TRUTH, [1, 3], broken))
    assert "1 of 3 queries failed and count as empty rankings; first: two: ConnectionError: gone" in str(advice)


def test_evaluator_unknown_relevant_ids_are_noted():
    documents = [Document("a", "one"), Document("b", "two")]
    truth = [("one", "a"), ("two", "b"), ("three", "nowhere"), ("one two", {"b": 1, "elsewhere": 0})]
    note = "1 of 3 relevant ids is not in the database: `nowhere`"
    metrics = asyncio.run(RAGEvaluator(BM25(documents)).evaluate(truth, k=1))
    assert metrics.notes == [note]
    assert note in repr(metrics)
    assert note in str(asyncio.run(RAGEvaluator(BM25(documents)).recommend_k(truth, [1, 2])))
    assert asyncio.run(RAGEvaluator(BM25(documents)).evaluate(truth[:2], k=1)).notes == []
    metrics = asyncio.run(RAGEvaluator(Database()).evaluate(GROUND_TRUTH))
    assert not any("not in the database" in note for note in metrics.notes)  # this database does not list its ids


class DepthDependent:
    """A hybrid whose ranking depends on the requested k, like one that fuses k candidates of each retriever."""

    def __init__(self):
        self.asked = []

    def semantic_search(self, query, k=5):
        self.asked.append(k)
        ranking = ["a", "b", "c"] if k < 3 else ["c", "b", "a"]
        return [Hit(name, 1 / rank) for rank, name in enumerate(ranking[:k], 1)]


def test_evaluate_k_range_retrieves_for_each_k():
    db = DepthDependent()
    results = asyncio.run(RAGEvaluator(db).evaluate_k_range(GROUND_TRUTH, [1, 3]))
    assert sorted(set(db.asked)) == [1, 3]
    for result in results:
        assert result["retrieved_k"] == result["k"]
        expected = asyncio.run(RAGEvaluator(DepthDependent()).evaluate(GROUND_TRUTH, k=result["k"]))
        assert {name: result["metrics"][name] for name in ("hit_rate", "mrr", "ndcg")} == {
            name: expected[name] for name in ("hit_rate", "mrr", "ndcg")
        }
    assert not any("one retrieval" in note for result in results for note in result["metrics"].notes)


def test_evaluate_k_range_retrieves_once_for_nested_rankings():
    db = DepthDependent()
    db.nested_rankings = True
    results = asyncio.run(RAGEvaluator(db).evaluate_k_range(GROUND_TRUTH, [1, 3]))
    assert set(db.asked) == {3}
    assert [result["retrieved_k"] for result in results] == [3, 3]
    note = "computed from one retrieval at k=3, because the system declares nested rankings"
    assert note in results[0]["metrics"].notes


def test_recommend_k_rising_curve_returns_none():
    truth = [(str(i), "right") for i in range(400)]

    def search(query, k):
        return [Hit("right" if rank == int(query) % 12 else f"n{rank}", -float(rank)) for rank in range(k)]

    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 3, 6], search))
    assert advice.k is None
    assert str(advice) == "no tried k is enough: hit_rate still rises from 0.2550 at k=3 to 0.5050 at k=6"
    assert asyncio.run(RAGEvaluator().recommend_k(truth, [1, 3, 12, 20], search)).k == 12


def make_search(interval):
    """Return a search with the relevant document at rank 1, or at rank 9 for one in `interval` queries."""

    async def search(query, k):
        number = int(query)
        ranking = [f"n{i}" for i in range(20)]
        ranking[8 if number % interval == 0 else 0] = "right"
        return [Hit(name, -float(i), "four" * 25) for i, name in enumerate(ranking[:k])]

    return search


def test_recommend_k_returns_smallest_k_within_tolerance():
    truth = [(str(i), "right") for i in range(400)]
    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 3, 10, 20], make_search(100), tolerance=0.03))
    assert advice.k == 1  # a loss of 1%, and its upper bound is below 3%
    rows = {row["k"]: row for row in advice.table}
    assert rows[1]["loss"] == pytest.approx(0.01)
    assert 0.01 < rows[1]["loss_at_most"] < 0.03
    assert [rows[k]["tokens"] for k in (1, 3, 10, 20)] == [25, 75, 250, 500]  # 100 bytes per document, 4 per token
    assert rows[10]["tokens_more"] == 175
    strict = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 3, 10, 20], make_search(100), tolerance=0.008))
    assert strict.k == 10
    assert "k=10" in str(strict)


def test_recommend_k_few_queries_returns_larger_k():
    truth = [(str(i), "right") for i in range(1, 11)]
    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 10], make_search(10), tolerance=0.1))
    assert advice.k == 10  # the loss of 0.1 is within the tolerance, but its upper bound is not


def test_recommend_k_few_queries_without_loss_returns_largest_k():
    def first(query, k):
        return [Hit("right" if rank == 0 else f"n{rank}", -float(rank)) for rank in range(k)]

    def advise(n, ks):
        return asyncio.run(RAGEvaluator().recommend_k([(str(i), "right") for i in range(n)], ks, first))

    advice = advise(4, [1, 3, 5])
    assert advice.k == 5
    rows = {row["k"]: row for row in advice.table}
    assert rows[1]["loss"] == 0
    assert rows[1]["loss_at_most"] == rows[3]["loss_at_most"] > 0.4
    assert rows[5]["loss_at_most"] == 0
    assert str(advice).startswith(
        "k=5: hit_rate 1.0000, the best; k=1 scores the same, but 4 queries cannot exclude a loss of up to 0.5271"
    )
    assert advise(200, [1, 3, 5]).k == 1


def test_recommend_k_flat_curve_is_not_reported_as_rising():
    def half(query, k):
        return [Hit("right" if rank == 0 and int(query) % 2 else f"n{rank}", -float(rank)) for rank in range(k)]

    advice = asyncio.run(RAGEvaluator().recommend_k([(str(i), "right") for i in range(10)], [1, 3, 5], half))
    assert advice.k == 5
    assert "still rises" not in str(advice)


def test_recommend_k_uses_given_token_counter():
    truth = [(str(i), "right") for i in range(1, 30)]
    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [2], make_search(100), count_tokens=lambda text: 7))
    assert advice.table[0]["tokens"] == 14


def test_evaluator_invalid_input_raises_error():
    for truth in ([], [("q",)], [(3, "a")], ["ab"]):
        with pytest.raises(BadInput):
            asyncio.run(RAGEvaluator(Database()).evaluate(truth))
    with pytest.raises(BadInput, match="no database or retrieval function given"):
        asyncio.run(RAGEvaluator().evaluate(GROUND_TRUTH))
    with pytest.raises(BadInput, match="k cannot be"):
        asyncio.run(RAGEvaluator(Database()).evaluate_k_range(GROUND_TRUTH, []))
    with pytest.raises(MissingEvidence):
        asyncio.run(RAGEvaluator(Database()).recommend_k(GROUND_TRUTH[:1]))


def test_cli_k_range_recommends_k_and_rejects_invalid_options(tmp_path):
    qrels = "".join(f"q{i} 0 right 1\n" for i in range(60))
    rows = "".join(
        f"q{i} Q0 {'right' if rank == (4 if i % 6 == 0 else 1) else f'n{rank}'} {rank} {10 - rank} t\n"
        for i in range(60)
        for rank in range(1, 6)
    )
    (tmp_path / "qrels").write_text(qrels)
    (tmp_path / "run").write_text(rows)

    def run_k_range(*options):
        return run_python(["-m", "ragauge", "k-range", "qrels", "run", *options], tmp_path)

    result = json.loads(run_k_range("-k", "1,2,5", "--json").stdout)
    assert result["k"] == 5
    assert [row["hit_rate"] for row in result["rows"]] == pytest.approx([5 / 6, 5 / 6, 1])
    assert json.loads(run_k_range("-k", "1,2,5", "--tolerance", "0.3", "--json").stdout)["k"] == 1
    assert "the run returns at most 5 documents per query: no results for k=10, 20" in run_k_range().stderr
    (tmp_path / "other").write_text(rows)
    single = run_python(["-m", "ragauge", "k-range", "qrels", "run", "other", "-k", "1"], tmp_path)
    assert "none: only one k could be tried (run, other)" in single.stderr
    for arguments in (["-k", "x"], ["-k", "0"], ["-k", "9"], ["--confidence", "2"], ["-m", "hitrate@5"]):
        process = run_k_range(*arguments)
        assert (process.returncode, "Traceback" in process.stderr) == (2, False), arguments
