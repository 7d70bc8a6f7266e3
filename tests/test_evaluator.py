"""The promised evaluator: on anything that searches; the real database is in test_pgvector."""

from __future__ import annotations

import asyncio
import json

import pytest

from command import forked
from ragauge import RAGEvaluator
from ragauge.errors import BadInput, MissingEvidence
from ragauge.evaluator import read_ground_truth
from ragauge.records import Hit

RANKINGS = {"one": ["a", "b", "c", "d", "e"], "two": ["x", "b", "y", "b", "z"], "three": ["p", "q", "r", "s", "t"]}
TRUTH = [("one", "a"), ("two", "b"), ("three", "nowhere")]


class Database:
    """A database as users have it."""

    def __init__(self):
        self.asked = []

    async def semantic_search(self, query, k=5, where=None):
        self.asked.append((query, k))
        await asyncio.sleep(0)
        return [Hit(name, 1.0 - i / 10, "w" * 40) for i, name in enumerate(RANKINGS[query][:k])]

    async def hybrid_search(self, query, k=5, weights=(0.5, 0.5)):
        return [hit.id for hit in reversed(await self.semantic_search(query, k))]


def test_it_does_what_its_document_says():
    metrics = asyncio.run(RAGEvaluator(Database()).evaluate(ground_truth=TRUTH, k=5))
    assert metrics["hit_rate"] == pytest.approx(2 / 3)
    assert metrics["mrr"] == pytest.approx((1 + 1 / 2) / 3)
    assert metrics["ndcg"] == pytest.approx((1 + 0.6309297535714575) / 3)  # 1 / log2(3)
    assert metrics["recall"] == pytest.approx(2 / 3)
    assert metrics["precision"] == pytest.approx(2 / 15)  # b came twice and counts once
    assert metrics["n"] == 3
    assert metrics["failed"] == 0
    assert metrics["latency_ms"] > 0


def test_a_function_of_ones_own_is_measured_instead():
    db = Database()

    async def hybrid_retriever(query: str, k: int):
        return await db.hybrid_search(query, k=k, weights=(0.7, 0.3))

    metrics = asyncio.run(RAGEvaluator(db).evaluate(TRUTH, k=5, retrieval_fn=hybrid_retriever))
    assert metrics["mrr"] == pytest.approx((1 / 5 + 1 / 2) / 3)


def test_one_retrieval_serves_every_k():
    db = Database()
    results = asyncio.run(RAGEvaluator(db).evaluate_k_range(TRUTH, k_values=[1, 3, 5]))
    assert [one["k"] for one in results] == [1, 3, 5]
    assert [one["metrics"]["hit_rate"] for one in results] == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert sorted(db.asked) == [("one", 5), ("three", 5), ("two", 5)]


def test_plain_functions_and_plain_databases_work_too():
    class Plain:
        def semantic_search(self, query, k):
            return RANKINGS[query][:k]

    assert asyncio.run(RAGEvaluator(Plain()).evaluate(TRUTH))["hit_rate"] == pytest.approx(2 / 3)
    found = asyncio.run(RAGEvaluator().evaluate(TRUTH, retrieval_fn=lambda query, k: RANKINGS[query][:k]))
    assert found["hit_rate"] == pytest.approx(2 / 3)


def test_several_and_graded_answers():
    truth = [("one", {"a": 1, "c": 2}), ("two", ["b", "z"])]
    metrics = asyncio.run(RAGEvaluator(Database()).evaluate(truth, k=3))
    assert metrics["recall"] == pytest.approx((2 / 2 + 1 / 2) / 2)
    ideal = 2 + 1 / 1.584962500721156
    second = (1 / 1.584962500721156) / (1 + 1 / 1.584962500721156)
    assert metrics["ndcg"] == pytest.approx(((1 + 2 / 2) / ideal + second) / 2)
    assert read_ground_truth({"How?": "a", "Why?": ["b", "c"]})[1] == {"q1": {"a": 1.0}, "q2": {"b": 1.0, "c": 1.0}}


def test_failures_count_as_nothing_found():
    async def broken(query, k):
        if query == "two":
            raise ConnectionError("gone")
        return RANKINGS[query][:k]

    metrics = asyncio.run(RAGEvaluator().evaluate(TRUTH, retrieval_fn=broken))
    assert metrics["failed"] == 1
    assert metrics["n"] == 3
    assert metrics["hit_rate"] == pytest.approx(1 / 3)


def ladder(deep_share):
    """A database whose right answer is first, but for one query in `deep_share` where it is ninth."""

    async def search(query, k):
        number = int(query)
        ranking = [f"n{i}" for i in range(20)]
        ranking[8 if number % deep_share == 0 else 0] = "right"
        return [Hit(name, -float(i), "four" * 25) for i, name in enumerate(ranking[:k])]

    return search


def test_the_smallest_k_that_is_good_enough_is_recommended_with_what_it_saves():
    truth = [(str(i), "right") for i in range(400)]
    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 3, 10, 20], ladder(100), tolerance=0.03))
    assert advice.k == 1  # one query in a hundred is lost: within three percent, with confidence
    rows = {row["k"]: row for row in advice.table}
    assert rows[1]["loss"] == pytest.approx(0.01)
    assert 0.01 < rows[1]["loss_at_most"] < 0.03
    assert [rows[k]["tokens"] for k in (1, 3, 10, 20)] == [25, 75, 250, 500]  # a hundred bytes each, four to a token
    assert rows[10]["tokens_more"] == 175
    strict = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 3, 10, 20], ladder(100), tolerance=0.005))
    assert strict.k == 10
    assert "k=10" in str(strict)


def test_few_queries_ask_for_more_documents_not_for_fewer():
    truth = [(str(i), "right") for i in range(1, 11)]
    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [1, 10], ladder(10), tolerance=0.1))
    assert advice.k == 10  # a loss of 1 in 10 is within the tolerance, but not with confidence


def test_tokens_are_counted_as_one_likes():
    truth = [(str(i), "right") for i in range(1, 30)]
    advice = asyncio.run(RAGEvaluator().recommend_k(truth, [2], ladder(100), count_tokens=lambda text: 7))
    assert advice.table[0]["tokens"] == 14


def test_mistakes_are_told():
    for truth in ([], [("q",)], [(3, "a")], ["ab"]):
        with pytest.raises(BadInput):
            asyncio.run(RAGEvaluator(Database()).evaluate(truth))
    with pytest.raises(BadInput, match="nothing to search"):
        asyncio.run(RAGEvaluator().evaluate(TRUTH))
    with pytest.raises(BadInput, match="k cannot be"):
        asyncio.run(RAGEvaluator(Database()).evaluate_k_range(TRUTH, []))
    with pytest.raises(MissingEvidence):
        asyncio.run(RAGEvaluator(Database()).recommend_k(TRUTH[:1]))


def test_the_command_line_has_the_range_too(tmp_path):
    qrels = "".join(f"q{i} 0 right 1\n" for i in range(60))
    rows = "".join(
        f"q{i} Q0 {'right' if rank == (4 if i % 6 == 0 else 1) else f'n{rank}'} {rank} {10 - rank} t\n"
        for i in range(60)
        for rank in range(1, 6)
    )
    (tmp_path / "qrels").write_text(qrels)
    (tmp_path / "run").write_text(rows)

    def called(*more):
        return forked(["-m", "ragauge", "k-range", "qrels", "run", *more], tmp_path)

    found = json.loads(called("-k", "1,2,5", "--json").stdout)
    assert found["k"] == 5
    assert [row["hit_rate"] for row in found["rows"]] == pytest.approx([5 / 6, 5 / 6, 1])
    assert json.loads(called("-k", "1,2,5", "--tolerance", "0.3", "--json").stdout)["k"] == 1
    assert "the run is 5 deep, and says nothing about k=10, 20" in called().stderr
    for wrong in (["-k", "x"], ["-k", "0"], ["-k", "9"], ["--confidence", "2"], ["-m", "hitrate@5"]):
        done = called(*wrong)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), wrong
