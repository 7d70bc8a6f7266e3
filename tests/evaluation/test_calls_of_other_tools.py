"""Calls as users of other libraries type them: they work, or the error names the right one."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

import ragauge
from ragauge.core.errors import BadInput, UnknownName

QRELS = {"q1": {"a": 1, "b": 2}, "q2": {"c": 1, "d": 0}}
RUN = {"q1": {"a": 0.9, "x": 0.5, "b": 0.31}, "q2": {"x": 12.5, "c": 3.25}}
OTHER_RUN = {"q1": {"x": 0.9, "a": 0.5}, "q2": {"x": 12.5, "c": 3.25, "d": 0.2}}
SAMPLES = [{"question": "What?", "answer": "It is y.", "contexts": ["It is y."]}]


def to_rows(nested, name):
    return [{"query": q, "doc": d, name: value} for q, docs in nested.items() for d, value in docs.items()]


def test_compare_qrels_and_runs_equals_compare_of_scores():
    runs = {"a": RUN, "b": OTHER_RUN}
    expected = ragauge.compare(ragauge.evaluate_runs(QRELS, runs, ["mrr"]), "a").find("b")
    for given in (runs, {"a": ragauge.read_run(RUN), "b": pl.DataFrame(to_rows(OTHER_RUN, "score"))}):
        row = ragauge.compare(QRELS, given, baseline="a", measures=["mrr"]).find("b")
        assert (row.difference, row.ci, row.p_t) == (expected.difference, expected.ci, expected.p_t)
    with pytest.raises(BadInput, match="runs must be a mapping from names to runs, got list"):
        ragauge.compare(QRELS, [RUN, OTHER_RUN])


def test_compare_qrels_and_run_with_trials_pairs_seeds():
    run = ragauge.read_run(RUN)
    table = pl.DataFrame(to_rows(RUN, "score"))
    repeats = pl.DataFrame(to_rows(OTHER_RUN, "score")).with_columns(repeat=pl.lit(1))
    varied = ragauge.Run(table, "varied", repeats=repeats)
    found = ragauge.compare(QRELS, {"fixed": run, "varied": varied}, baseline="fixed", measures="mrr")
    assert found.find("varied").seeds is not None


def test_scores_item_is_mean_by_any_name():
    scores = ragauge.evaluate(QRELS, RUN, ["ndcg@10", "mrr"])
    assert scores["ndcg@10"] == scores["nDCG@10"] == scores.means["ndcg@10"]
    with pytest.raises(UnknownName, match="unknown measure `ndcg@3` of the scores of run"):
        scores["ndcg@3"]
    assert ragauge.evaluate_runs(QRELS, {"a": RUN}, ["mrr"])["a"]["mrr"] == scores["mrr"]


@pytest.mark.parametrize(
    "samples", [SAMPLES, [ragauge.Sample("1", "What?", "It is y.")], pl.DataFrame(SAMPLES), pd.DataFrame(SAMPLES)]
)
def test_evaluate_samples_names_judge(samples):
    with pytest.raises(BadInput, match=r"got samples\nhint: answers are scored by `ragauge.judge\(samples\)`"):
        ragauge.evaluate(samples, ["faithfulness"])
    with pytest.raises(BadInput, match=r"no run given.*\n.*`ragauge.judge\(samples\)`"):
        ragauge.evaluate(samples)


def test_evaluate_swapped_types_raises_error():
    judgments, run = ragauge.read_judgments(QRELS), ragauge.read_run(pl.DataFrame(to_rows(RUN, "score")))
    with pytest.raises(BadInput, match="a run was given as judgments"):
        ragauge.evaluate(run, judgments)
    with pytest.raises(BadInput, match="judgments were given as a run"):
        ragauge.evaluate(QRELS, judgments)


def test_evaluate_swapped_ranx_and_ir_measures_raises_error():
    ranx, ir_measures = pytest.importorskip("ranx"), pytest.importorskip("ir_measures")
    with pytest.raises(BadInput, match="a run was given as judgments"):
        ragauge.evaluate(ranx.Run(RUN), QRELS)
    with pytest.raises(BadInput, match="judgments were given as a run"):
        ragauge.evaluate(QRELS, ranx.Qrels(QRELS))
    with pytest.raises(BadInput, match="a run was given as judgments"):
        ragauge.evaluate([ir_measures.ScoredDoc("q1", "a", 0.5)], QRELS)
    with pytest.raises(BadInput, match="judgments were given as a run"):
        ragauge.evaluate(QRELS, [ir_measures.Qrel("q1", "a", 1)])


@pytest.mark.parametrize(
    ("qrels", "run", "is_noted"),
    [
        (RUN, QRELS, True),
        (QRELS, RUN, False),
        (QRELS, QRELS, False),
        ({"q1": {"a": 0.5, "b": 1}}, {"q1": {"a": 0.5, "b": 1}}, False),
        ({"q1": {"a": 0.5, "b": 0.3}}, {"q1": {"a": 20, "b": 19}}, False),
    ],
)
def test_evaluate_swapped_dictionaries_is_noted(qrels, run, is_noted):
    notes = ragauge.evaluate(qrels, run, ["ndcg@10"]).notes
    assert any("judgments come first, then the run" in note for note in notes) is is_noted


def test_run_single_function_or_retriever_is_a_system():
    def search(query, k):
        return ["a", "b"][:k]

    class Retriever:
        def search(self, query, k):
            return ["a", "b"][:k]

    data = ragauge.Dataset("d", [("a", "one"), ("b", "two")], ["one"], {"q1": {"a": 1}})
    assert list(ragauge.run(data, search).scores) == ["search"]
    assert list(ragauge.run(data, Retriever()).scores) == ["Retriever"]
    with pytest.raises(ragauge.RagaugeError, match="int cannot search"):
        ragauge.run(data, 7)


def test_report_runs_in_memory_works_or_names_the_call(tmp_path):
    runs = {"a": RUN, "b": OTHER_RUN}
    found = ragauge.report([QRELS, runs], tmp_path / "report.html", measures=["mrr"])
    assert found.entries["a"].means["mrr"].value == ragauge.evaluate(QRELS, RUN, ["mrr"])["mrr"]
    assert (tmp_path / "report.html").exists()
    hint = r'hint: use `report\(\[qrels, {"bm25": run}\], "report.html"\)`'
    for arguments in ((runs,), (ragauge.evaluate_runs(QRELS, runs),), (QRELS, runs)):
        with pytest.raises(BadInput, match=hint):
            ragauge.report(*arguments)


def test_arrow_tables_equal_frames():
    pa = pytest.importorskip("pyarrow")
    qrels, run = pa.Table.from_pylist(to_rows(QRELS, "grade")), pa.Table.from_pylist(to_rows(RUN, "score"))
    assert ragauge.evaluate(qrels, run).means == ragauge.evaluate(QRELS, RUN).means
    assert ragauge.evaluate_runs(qrels, {"a": run})["a"].means == ragauge.evaluate(QRELS, RUN).means
    assert ragauge.judge(pa.Table.from_pylist(SAMPLES)).scores.means == ragauge.judge(SAMPLES).scores.means
