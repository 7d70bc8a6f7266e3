"""Compatibility with trec_eval: output of its own test files, names of measures, and rules of versions 9 and 10."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import run_python
from ragauge import evaluate


def print_trec_eval(*arguments) -> str:
    done = run_python(["-m", "ragauge", "evaluate", "--format", "trec_eval", *map(str, arguments)], Path.cwd())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_evaluate_trec_eval_format_official_measures_match_output(shared):
    folder = shared("trec_eval_test")
    assert print_trec_eval(folder / "qrels.test", folder / "results.test") == (folder / "out.test").read_text()


def test_evaluate_trec_eval_format_all_trec_matches_output(shared):
    folder = shared("trec_eval_test")
    printed = print_trec_eval(folder / "qrels.test", folder / "results.test", "-m", "all_trec")
    assert printed == (folder / "out.test.a").read_text()


def test_evaluate_trec_eval_format_prints_queries_before_means(tmp_path):
    (tmp_path / "q").write_text("2 0 a 1\n1 0 a 3\n1 0 b -1\n1 0 c 12\n")
    (tmp_path / "r").write_text("1 Q0 a 1 9 t\n1 Q0 b 2 8 t\n1 Q0 c 3 7 t\n1 Q0 x 4 6 t\n2 Q0 x 1 2 t\n")
    lines = print_trec_eval(
        tmp_path / "q", tmp_path / "r", "-m", "P.1", "-m", "relstring.4", "-m", "map", "-q"
    ).splitlines()
    assert [line.split() for line in lines] == [
        ["map", "1", "0.8333"],
        ["P_1", "1", "1.0000"],
        ["relstring_4", "1", "'3.>-'"],
        ["map", "2", "0.0000"],
        ["P_1", "2", "0.0000"],
        ["relstring_4", "2", "'-'"],
        ["map", "all", "0.4167"],
        ["P_1", "all", "0.5000"],
    ]


def test_evaluate_trec_eval_format_parameters_match_names(shared):
    folder = shared("trec_eval_test")
    requested = "iprec_at_recall..10,.20,.25,.75,.50 P.5,7,3 recall.20,2000 Rprec_mult.5.0,0.2,0.35 utility.2,-1,0,0"
    requested += " 11pt_avg..25,.5,.75 ndcg.1=3,2=9,4=4.5 ndcg_cut.10,20,23.4 success.2,5,20"
    measures = [word for name in requested.split() for word in ("-m", name)]
    names = [
        line.split()[0]
        for line in print_trec_eval(folder / "qrels.test", folder / "results.test", *measures).splitlines()
    ]
    assert names == [
        *(f"iprec_at_recall_{level}" for level in ("0.10", "0.20", "0.25", "0.50", "0.75")),
        *("P_3", "P_5", "P_7", "recall_20", "recall_2000"),
        *("Rprec_mult_0.20", "Rprec_mult_0.35", "Rprec_mult_5.00"),
        *("utility_2,-1,0,0", "11pt_avg_.25,.5,.75", "ndcg_1=3,2=9,4=4.5"),
        *("ndcg_cut_10", "ndcg_cut_20", "ndcg_cut_23", "success_2", "success_5", "success_20"),
    ]


def test_dcg_gain_table_keeps_other_grades_linear():
    qrels, run = {"q": {"a": 1, "b": 2, "c": 3}}, {"q": {"c": 3.0, "b": 2.0, "a": 1.0}}
    found = evaluate(qrels, run, ["dcg(gain=1:5/2:0)"]).means
    assert found["dcg(gain=1:5/2:0)"] == pytest.approx(3 / 1 + 0 + 5 / 2)


def test_iprec_at_recall_trec9_and_trec10_round_differently():
    """Recall 0.6 of 4 relevant documents: trec_eval 9 requires floor(2.4 + 0.9) = 3, trec_eval 10 round(2.4) = 2."""
    qrels = {"q": dict.fromkeys("abcd", 1)}
    run = {"q": {"a": 6.0, "b": 5.0, "x": 4.0, "c": 3.0}}
    assert evaluate(qrels, run, ["iprec_at_recall@0.6"], "trec10").means["iprec_at_recall@0.6"] == 1.0
    assert evaluate(qrels, run, ["iprec_at_recall@0.6"], "trec9").means["iprec_at_recall@0.6"] == 0.75


def test_evaluate_float32_equal_scores_tie_in_trec9_only():
    qrels, run = {"q": {"a": 1}}, {"q": {"a": 1.0 + 1e-9, "b": 1.0}}
    assert evaluate(qrels, run, ["mrr"], "default").means["mrr"] == 1.0
    assert evaluate(qrels, run, ["mrr"], "trec9").means["mrr"] == 0.5


def test_evaluate_missing_query_follows_convention():
    qrels, run = {"q1": {"a": 1}, "q2": {"a": 1}}, {"q1": {"a": 1.0}}
    assert evaluate(qrels, run, ["mrr"], "default").means["mrr"] == 0.5
    dropped = evaluate(qrels, run, ["mrr"], "trec9")
    assert (dropped.means["mrr"], dropped.n["mrr"]) == (1.0, 1)
    assert dropped.unscored["mrr"] == {"q2": "the run does not have the query"}
    with pytest.raises(ValueError, match="no ranking for 1 of 2 judged queries"):
        evaluate(qrels, run, ["mrr"], "trec10")


def test_evaluate_missing_query_is_zero_except_num_rel():
    found = evaluate({"q1": {"a": 1}, "q2": {"a": 1}}, {"q1": {"a": 1.0}}, ["all_trec", "yaap"]).per_query
    assert {name for name in found if found[name]["q2"] != 0} == {"num_rel"}
