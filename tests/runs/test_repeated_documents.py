"""Repeated documents: k counts hits as returned, in every way of scoring a run that ragauge made."""

from __future__ import annotations

import asyncio
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import polars as pl
import pytest

import ragauge
from command import run_shell
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, InputWarning
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.files.writers import write_run
from ragauge.runs.folder import build_run
from ragauge.runs.results import QueryResult

HITS = {"q1": list("aaaab"), "q2": list("cdcde"), "q3": list("fghij")}
GRADES = {"q1": {"b": 1, "a": 0}, "q2": {"d": 1, "e": 1}, "q3": {"h": 1}}
DATA = Dataset("hits", [Document(doc, f"text {doc}") for doc in "abcdefghij"], {q: q for q in HITS}, Judgments(GRADES))
MEASURES = ["mrr", "hit_rate@3", "ndcg@5", "recall@3", "map", "precision@5", "bpref", "err@5", "num_ret"]
RULE = "k counts hits, and a document scores once, at its first rank (`-C unit=document` counts documents)"


def retrieve(query, k):
    return HITS[query][:k]


def make_run(hits=HITS, **manifest):
    results = [QueryResult(query, 0, docs, [1.0] * len(docs)) for query, docs in hits.items()]
    return build_run("mine", results, {"plan": {"k": 5}, **manifest})


def score_distinct_ids(measures, convention="default"):
    """Score rankings in which every repeat is a document of its own, which no judgment names."""
    rankings = {
        query: {doc if doc not in docs[:i] else f"other {i}": -i for i, doc in enumerate(docs)}
        for query, docs in HITS.items()
    }
    return ragauge.evaluate(GRADES, rankings, measures, convention)


@pytest.mark.parametrize("convention", ["default", "trec9", "ranx", "rig", "duplicates=count", "depth=4"])
def test_evaluate_repeated_hits_score_once_and_keep_ranks(convention):
    scores = ragauge.evaluate(GRADES, make_run(), MEASURES, convention)
    assert dict(scores.means) == pytest.approx(dict(score_distinct_ids(MEASURES, convention).means))
    assert f"mine: 5 hits repeat a document of the same ranking in 2 queries (q1, q2): {RULE}" in scores.notes


def test_evaluate_unit_document_counts_distinct_documents():
    distinct = {query: {doc: -i for i, doc in enumerate(dict.fromkeys(docs))} for query, docs in HITS.items()}
    expected = ragauge.evaluate(GRADES, distinct, MEASURES)
    scores = ragauge.evaluate(GRADES, make_run(), MEASURES, "unit=document")
    assert dict(scores.means) == pytest.approx(dict(expected.means))
    assert scores.notes[0].endswith("ranks count distinct documents (unit=document)")
    shuffled = Run(make_run().table.sample(fraction=1, shuffle=True, seed=3), "file")
    by_file = ragauge.evaluate(GRADES, shuffled, MEASURES, "duplicates=first,unit=document")
    assert dict(by_file.means) == pytest.approx(dict(expected.means))


def test_evaluate_repeats_of_judged_documents_are_judged_hits():
    measures = ["judged@5", "unjudged@5", "rbp_resid", "unique_ratio@5"]
    scores = ragauge.evaluate(GRADES, make_run(), measures)
    assert scores.per_query["judged@5"] == {"q1": 1.0, "q2": 0.6, "q3": 0.2}
    assert scores.per_query["unjudged@5"] == {"q1": 0.0, "q2": 0.4, "q3": 0.8}
    assert scores.per_query["rbp_resid"]["q1"] == 0
    assert scores.per_query["unique_ratio@5"] == {"q1": 0.4, "q2": 0.6, "q3": 1.0}
    condensed = ragauge.evaluate(GRADES, make_run(), ["mrr"], "unjudged=condensed")
    assert condensed.per_query["mrr"] == {"q1": 0.2, "q2": 1.0, "q3": 1.0}


def test_evaluate_repeated_hits_add_no_subtopic_gain():
    judgments = Judgments({"q1": {"a": 1}}, subtopics={"q1": {"1\ta": 1, "2\tb": 1}})
    measures = ["alpha_ndcg@5", "err_ia@5"]
    once = ragauge.evaluate(judgments, {"q1": {doc: -i for i, doc in enumerate("axyzb")}}, measures)
    assert ragauge.evaluate(judgments, make_run({"q1": HITS["q1"]}), measures).means == once.means


def test_evaluate_repeats_in_file_of_another_tool_are_refused():
    with pytest.raises(BadInput, match="appears more than once"):
        ragauge.evaluate(GRADES, Run(make_run().table), ["mrr"])
    scores = ragauge.evaluate(GRADES, Run(make_run().table), ["mrr"], "ann")
    assert "5 hits repeat a document" in scores.notes[0]


def test_evaluate_executor_scores_repeats_equally():
    file_run = {"q1": {"b": 1.0}, "q2": {"d": 1.0}, "q3": {"x": 2.0, "h": 1.0}}
    with ThreadPoolExecutor(1) as executor:
        scores = ragauge.evaluate(GRADES, {"file": file_run, "mine": make_run()}, MEASURES, executor=executor)
    expected = ragauge.evaluate(GRADES, {"file": file_run, "mine": make_run()}, MEASURES)
    assert list(scores) == ["file", "mine"]
    for name in scores:
        assert scores[name].means == expected[name].means
        assert scores[name].notes == expected[name].notes


def test_run_repeated_hits_score_as_in_evaluator(tmp_path):
    measures = [f"{name}@3" for name in ("hit_rate", "mrr", "ndcg", "recall", "precision", "f1", "map")]
    for k in (3, 5):
        result = ragauge.run(DATA, {"mine": retrieve}, measures=measures, k=k, out=tmp_path / str(k))
        means = dict(result.scores["mine"].means)
        assert means["hit_rate@3"] == pytest.approx(2 / 3)
        assert means["mrr@3"] == pytest.approx((1 / 2 + 1 / 3) / 3)
        n_repeats = 3 if k == 3 else 5
        assert any(note.startswith(f"mine: {n_repeats} hits repeat a document") for note in result.notes)
        for source in (tmp_path / str(k) / "mine", tmp_path / str(k) / "mine" / "run.parquet"):
            assert ragauge.evaluate(tmp_path / str(k), source, measures).means == means
            assert ragauge.evaluate(tmp_path / str(k), ragauge.read_run(source), measures).means == means
    database = SimpleNamespace(semantic_search=retrieve)
    metrics = asyncio.run(ragauge.RAGEvaluator(database).evaluate(list(GRADES.items()), k=3))
    assert {f"{name}@3": metrics[name] for name in ("hit_rate", "mrr", "ndcg", "recall", "map")} == pytest.approx(
        {name: means[name] for name in measures if not name.startswith(("precision", "f1"))}
    )
    assert any("3 hits repeat a document" in note for note in metrics.notes)
    by_document = ragauge.RAGEvaluator(database, convention="unit=document")
    metrics = asyncio.run(by_document.evaluate(list(GRADES.items()), k=5))
    assert metrics["mrr"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3)


def test_run_resumed_and_reused_folders_keep_repeated_hits(tmp_path):
    failing = {"q2"}

    def search(query, k):
        if query in failing:
            raise RuntimeError("down")
        return HITS[query][:k]

    def execute():
        return ragauge.run(DATA, {"mine": search}, measures=["mrr"], k=5, out=tmp_path, reuse=True, allow_failures=True)

    execute()
    failing.clear()
    resumed = execute()
    assert resumed.scores["mine"].per_query["mrr"] == pytest.approx({"q1": 0.2, "q2": 0.5, "q3": 1 / 3})
    reused = execute()
    assert any("reused" in note for note in reused.notes)
    assert reused.runs["mine"].table.equals(resumed.runs["mine"].table)
    assert reused.runs["mine"].table.filter(pl.col("query") == "q2")["doc"].to_list() == HITS["q2"]


@pytest.mark.parametrize("name", ["out.run", "out.json", "out.csv", "out.parquet"])
def test_write_run_repeated_hits_keep_later_ranks(tmp_path, name):
    path = str(tmp_path / name)
    with pytest.warns(InputWarning, match=r"repeated hits \(5\) are written as `ID~repeatN`"):
        write_run(make_run(), path)
    assert ragauge.evaluate(GRADES, path, MEASURES).means == score_distinct_ids(MEASURES).means
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_run(make_run({"q3": HITS["q3"]}), path)


def test_commands_read_run_folder_with_repeated_hits(tmp_path):
    ragauge.run(
        DATA, {"mine": retrieve, "other": lambda query, k: HITS[query][::-1]}, measures=["mrr"], k=5, out=tmp_path / "o"
    )

    def run_line(line):
        return run_shell(f"ragauge {line}", tmp_path, {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"})

    converted = run_line("convert o/mine mine.run")
    assert (converted.returncode, "repeated hits (5) are written" in converted.stderr) == (0, True), converted
    assert "q1 Q0 a~repeat2 2 " in (tmp_path / "mine.run").read_text()
    for line in ("evaluate o", "compare o", "report o -o page.html", "gate o/mine -r 'mrr >= 0.1'"):
        done = run_line(line)
        assert (done.returncode, "hits repeat a document" in done.stdout + done.stderr) == (0, True), (line, done)
    for line in ("fuse o/mine o/other -o fused.run", "validate o/judgments.parquet o/mine", "k-range o/mine -k 1,3"):
        assert run_line(line).returncode == 0, line
    audited = run_line("audit o/mine --check repeated-documents")
    assert "5 documents are repeated in the ranking of 2 of 3 judged queries" in " ".join(audited.stdout.split())
    published = ragauge.evaluate(GRADES, make_run(), ["mrr"], "unit=document").means["mrr"]
    explained = run_line(f"audit o/mine -m mrr --expect mrr={published:.6f}")
    assert "k counts distinct documents" in " ".join(explained.stdout.split())
