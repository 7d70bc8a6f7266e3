"""Datasets without a corpus: pairs in Python, JSONL files of rig, and folders with only queries and judgments."""

from __future__ import annotations

import asyncio
import json

import pytest

import ragauge
from command import command_in
from ragauge.core.errors import BadInput

RIG = [
    {"query_id": "q1", "query": "apples", "relevant_docs": {"d1": 2, "d2": 1}, "reference_answer": "They are red."},
    {"query_id": "q2", "query": "pears", "relevant_docs": ["d7"]},
]
PAIRS = [("apples", {"d1": 2, "d2": 1}), ("pears", "d7")]


def search(query, k):
    return ["d1", "d9"] if query == "apples" else ["d5", "d7"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RIG))
    (tmp_path / "beirlike" / "qrels").mkdir(parents=True)
    queries = "".join(json.dumps({"_id": row["query_id"], "text": row["query"]}) + "\n" for row in RIG)
    (tmp_path / "beirlike" / "queries.jsonl").write_text(queries)
    grades = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t1\nq2\td7\t1\n"
    (tmp_path / "beirlike" / "qrels" / "test.tsv").write_text(grades)
    (tmp_path / "mine.py").write_text(
        "def search(query, k):\n    return ['d1', 'd9'] if query == 'apples' else ['d5', 'd7']\n"
    )
    return tmp_path


def test_run_pairs_file_and_folder_without_corpus_return_equal_scores(folder):
    for dataset in (PAIRS, dict(PAIRS), iter(PAIRS), folder / "q.jsonl", str(folder / "beirlike")):
        found = ragauge.run(dataset, {"mine": search}, measures=["recall@5", "mrr"])
        assert found.scores["mine"].means == {"recall@5": 0.75, "mrr": 0.75}
        assert found.notes == ["mine: returned at most 2 documents per query; 10 were requested"]
        assert ragauge.overview(found).documents_known is None
    assert ragauge.load(folder / "q.jsonl").answers == {"q1": "They are red."}


@pytest.mark.parametrize("system", ["bm25", "hybrid", "pipeline(of=bm25, reranker=mmr)", "pgvector", "pagerank"])
def test_run_without_corpus_rejects_systems_that_need_one(system):
    with pytest.raises(BadInput, match="is built over a corpus, and the dataset queries has none"):
        ragauge.run(PAIRS, {"mine": search, "other": system})


def test_run_without_corpus_accepts_http_retriever():
    settings = {"measures": ["mrr"], "allow_failures": True}
    found = ragauge.run(PAIRS, {"service": "http(url=http://127.0.0.1:9/dense)"}, **settings)
    assert len(found.scores["service"].failures) == 2


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (5, "ground truth cannot be read from int"),
        ([], "the ground truth is empty"),
        ([("apples", "d1", 3)], r"ground truth 1: expected \(query, id\)"),
        (["apples"], r"ground truth 1: expected \(query, id\)"),
    ],
)
def test_run_invalid_pairs_raise_error(pairs, message):
    with pytest.raises(BadInput, match=message):
        ragauge.run(pairs, {"mine": search})


def test_run_tuples_of_same_query_are_merged_with_note():
    pairs = [("apples", "d1"), ("apples", "d2"), ("pears", "d7")]
    note = "3 tuples are 2 queries: tuples with the same query are scored as one query with all their documents"
    found = ragauge.run(pairs, {"mine": search}, measures=["recall@5"])
    assert found.notes[0] == f"{note} (`apples`)"
    metrics = asyncio.run(ragauge.RAGEvaluator().evaluate(iter(pairs), retrieval_fn=search))
    assert (metrics["n"], metrics.notes) == (2, [f"{note} (`apples`)"])
    assert note in repr(metrics)


@pytest.mark.slow
def test_cli_run_accepts_jsonl_and_folder_without_corpus(folder):
    run_command = command_in(folder)
    done = run_command("run", "q.jsonl", "-s", "mine:search", "-m", "recall@5")
    assert "0.7500" in done.stdout
    assert done.stdout.startswith("q: 1 system, 2 queries, convention default")
    shown = run_command("report", "runs/q")
    assert "cannot be loaded" not in shown.stderr
    assert "0.7500" in run_command("run", "beirlike", "-s", "mine:search", "-m", "recall@5").stdout
    refused = run_command("run", "beirlike", "-s", "bm25", code=2)
    assert "hint: give a folder with corpus.jsonl" in refused.stderr
    (folder / "q.jsonl").write_text(json.dumps({**RIG[0], "query": ""}) + "\n")
    empty = run_command("run", "q.jsonl", "-s", "mine:search", code=2)
    assert "q.jsonl:1: query `q1` has no text" in empty.stderr
    assert "mine.py: not a dataset" in run_command("run", "mine.py", "-s", "mine:search", code=2).stderr
    assert "gone.jsonl: no such file" in run_command("run", "gone.jsonl", "-s", "mine:search", code=2).stderr


def test_query_complexity_is_alias_of_complexity_tag(folder):
    run_command = command_in(folder)
    arguments = ("beirlike", "-s", "mine:search", "-s", "other=mine:search", "-b", "other", "-m", "mrr")
    output = run_command("run", *arguments, "--by", "query_complexity").stdout
    assert "mrr by complexity" in output
    output = run_command("compare", "runs/beirlike", "--by", "query_complexity").stdout
    assert "complexity  mrr" not in output
    assert ["mrr", "simple", "2"] in [line.split()[:3] for line in output.splitlines()]
    found = ragauge.run(PAIRS, {"mine": search}, measures=["mrr"])
    assert found.strata("query_complexity") == found.strata("complexity")


def test_pgvectordb_is_importable_under_both_spellings():
    assert ragauge.pgVectorDB is ragauge.PgVectorDB
