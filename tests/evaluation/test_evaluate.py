"""`evaluate` and `evaluate_runs`: accepted types of judgments and runs, results, notes, and errors."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import ragauge
from ragauge import PRESETS, BadInput, UnknownName, evaluate

QRELS = {"q1": {"a": 2, "b": 1}, "q2": {"c": 1}, "q3": {"d": 0}}
RUN = {"q1": {"a": 3.0, "x": 2.0, "b": 1.0}, "q2": {"x": 2.0, "c": 1.0}}


def test_evaluate_returns_means_counts_and_unscored_reasons():
    rules = PRESETS["default"].but(missing="skip", none="skip")
    found = evaluate(QRELS, RUN, ["ndcg@10", "mrr"], rules)
    assert found.n == {"ndcg@10": 2, "mrr": 2}
    assert found.unscored == {m: {"q3": "the run does not have the query"} for m in ("ndcg@10", "mrr")}
    assert found.means["mrr"] == 0.75
    assert found.per_query["mrr"] == {"q1": 1.0, "q2": 0.5}


def test_evaluate_mean_of_no_queries_is_nan():
    rules = PRESETS["default"].but(none="skip")
    found = evaluate({"q": {"a": 0}}, {"q": {"a": 1.0}}, ["map"], rules)
    assert math.isnan(found.means["map"])
    assert found.n["map"] == 0


def test_scores_lookup_accepts_measure_aliases():
    found = evaluate(QRELS, RUN, ["nDCG@10"], "rig")
    assert list(found.means) == ["ndcg(gain=exp)@10"]
    assert found.means["ndcg@10"] == found.means["NDCG@10"] == found.means["ndcg(gain=exp)@10"]
    assert found.per_query["nDCG@10"].keys() == set(QRELS)
    assert "ndcg_cut_10" in found.means
    assert found.means.get("map") is None
    with pytest.raises(KeyError):
        found.means["map"]


def test_evaluate_several_runs_returns_scores_by_name():
    found = evaluate(QRELS, {"one": RUN, "two": {"q2": {"c": 1.0}}}, ["mrr"])
    assert {name: scores.means["mrr"] for name, scores in found.items()} == {"one": 0.5, "two": pytest.approx(1 / 3)}
    assert found["two"].run == "two"


def test_scores_frames_have_null_for_unscored():
    found = evaluate(QRELS, RUN, ["mrr"], PRESETS["default"].but(missing="skip"))
    assert found.to_polars().rows() == [
        ("run", "q1", "mrr", 1.0, False),
        ("run", "q2", "mrr", 0.5, False),
        ("run", "q3", "mrr", None, False),
    ]
    assert found.to_pandas()["value"].isna().tolist() == [False, False, True]


def list_rows(nested):
    return [(q, d, v) for q, docs in nested.items() for d, v in docs.items()]


def yield_judgment_types():
    table = {"query_id": [r[0] for r in list_rows(QRELS)], "doc_id": [r[1] for r in list_rows(QRELS)]}
    table["relevance"] = [r[2] for r in list_rows(QRELS)]
    yield "nested", QRELS
    yield "tuples", list_rows(QRELS)
    yield "polars", pl.DataFrame(table)
    yield "lazy", pl.LazyFrame(table)
    yield "pandas", pd.DataFrame(table)
    yield "record", ragauge.read_judgments(QRELS)


def yield_run_types():
    table = {
        "qid": [r[0] for r in list_rows(RUN)],
        "docno": [r[1] for r in list_rows(RUN)],
        "score": [r[2] for r in list_rows(RUN)],
    }
    yield "nested", RUN
    yield "tuples", list_rows(RUN)
    yield "polars", pl.DataFrame(table)
    yield "pandas", pd.DataFrame(table)
    yield "record", ragauge.read_run(RUN)
    yield "ranked ids", {q: list(docs) for q, docs in RUN.items()}
    yield "pairs", {q: list(docs.items()) for q, docs in RUN.items()}
    yield (
        "distances",
        pl.DataFrame({**{k: table[k] for k in ("qid", "docno")}, "distance": [-s for s in table["score"]]}),
    )


@pytest.mark.parametrize(("shape", "qrels"), list(yield_judgment_types()))
def test_evaluate_judgment_types_give_equal_means(shape, qrels):
    assert evaluate(qrels, RUN, ["ndcg@10"]).means == evaluate(QRELS, RUN, ["ndcg@10"]).means


@pytest.mark.parametrize(("shape", "run"), list(yield_run_types()))
def test_evaluate_run_types_give_equal_means(shape, run):
    assert evaluate(QRELS, run, ["ndcg@10", "map"]).means == evaluate(QRELS, RUN, ["ndcg@10", "map"]).means


def test_evaluate_accepts_query_document_pairs_as_judgments():
    assert (
        evaluate([("how?", "d1"), ("why?", "d2")], {"how?": ["d1"], "why?": ["x", "d2"]}, ["mrr"]).means["mrr"] == 0.75
    )


def test_evaluate_numeric_ids_equal_text_ids():
    assert evaluate({1: {7: 1}}, ([[7, 8]], [[0.9, 0.1]], ["1"]), ["mrr"]).means["mrr"] == 1.0


def test_evaluate_accepts_numpy_scores():
    run = {"q1": {"a": np.float32(1.0), "b": np.float64(2.0)}}
    assert evaluate({"q1": {"b": 1}}, run, ["mrr"]).means["mrr"] == 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # numba warns while it compiles
def test_evaluate_accepts_ranx_objects():
    import ranx

    qrels = {q: g for q, g in QRELS.items() if q in RUN}
    assert evaluate(ranx.Qrels(qrels), ranx.Run(RUN), ["mrr"]).means["mrr"] == 0.75


def test_evaluate_is_independent_of_query_order():
    """A perfect run with its queries in another order is still perfect."""
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    assert evaluate(qrels, {"q2": {"b": 1.0}, "q1": {"a": 1.0}}, ["mrr"]).means["mrr"] == 1.0


def test_evaluate_accepts_function_as_measure():
    def judged_in_the_first_two(query):
        return sum(rank <= 2 for rank in query.ranks) / 2

    found = evaluate(QRELS, RUN, ["mrr", judged_in_the_first_two])
    assert found.per_query["judged_in_the_first_two"] == {"q1": 0.5, "q2": 0.5, "q3": 0.0}

    def score_except_q1(query):
        assert query.query in QRELS
        assert query.judged == sorted(QRELS[query.query].values(), reverse=True)
        assert query.retrieved == len(RUN.get(query.query, {}))
        return float("nan") if query.query == "q1" else 1.0

    assert evaluate(QRELS, RUN, score_except_q1).unscored["score_except_q1"] == {"q1": "the measure returned no number"}


def test_evaluate_fractional_grades_follow_gain_with_note():
    found = evaluate({"q": {"a": 0.5, "b": 1.0}}, {"q": {"a": 2.0, "b": 1.0}}, ["dcg", "dcg(gain=exp)", "recall@5"])
    assert found.means["dcg"] == pytest.approx(0.5 + 1 / math.log2(3))
    assert found.means["dcg(gain=exp)"] == pytest.approx(2**0.5 - 1 + 1 / math.log2(3))
    assert found.means["recall@5"] == 1.0
    assert any("grades are fractions" in note for note in found.notes)


def test_evaluate_missing_and_unjudged_queries_are_noted():
    notes = evaluate(QRELS, {**RUN, "q9": {"z": 1.0}}, ["mrr"]).notes
    assert notes == [
        "run: lacks 1 of 3 judged queries (q3), which count 0",
        "run: 1 unjudged query is not scored (q9)",
        "no document is relevant for 1 of 3 judged queries (q3), which count 0",
        "grades go up to 2, and mrr counts grade 1 as relevant; `--rel 2` counts from grade 2",
    ]


def test_evaluate_graded_judgments_without_rel_are_noted():
    run, measures = {"q": {"a": 2.0, "b": 1.0}}, ["ndcg@10", "map@10", "recall@10"]
    note = "grades go up to 3, and map@10, recall@10 count grade 1 as relevant; `--rel 2` counts from grade 2"
    graded = {"q": {"a": 1, "b": 2, "c": 3, "d": 0}}
    assert note in evaluate(graded, run, measures).notes
    default = PRESETS["default"]
    for rules, requested, judged in (
        (default.but(rel=2), measures, graded),
        (default.but(rel=1), measures, graded),
        (default, ["ndcg@10"], graded),
        (default, measures, {"q": {"a": 1, "b": 0}}),
        (default, measures, {"q": {"a": 3, "b": 0}}),
    ):
        assert not [note_text for note_text in evaluate(judged, run, requested, rules).notes if "grade" in note_text]
    assert default.but(rel=1) == default
    assert default.but(rel=1).name == "default"


def test_evaluate_map_of_truncated_run_is_noted():
    run = {query: {f"d{i}": -float(i) for i in range(100)} for query in ("q1", "q2")}
    judged = {"q1": {"d5": 1, "far": 1}, "q2": {"d3": 1}}
    note = "run: at most 100 documents per query, so map is computed at depth 100"
    assert evaluate(judged, run, ["map", "map@20", "mrr"]).notes == [note]
    assert evaluate(judged, run, ["map"], PRESETS["default"].but(depth=100)).notes == []
    assert evaluate({"q1": {"d5": 1}, "q2": {"d3": 1}}, run, ["map"]).notes == []  # every relevant document is returned
    uneven = {**run, "q1": {"d5": 1.0}, "q3": {"d1": 1.0}, "q4": {"d1": 1.0}}
    graded = {**judged, "q3": {"d1": 1}, "q4": {"d1": 1, "far": 1}}
    assert evaluate(graded, uneven, ["map"]).notes == []  # most rankings are shorter than the longest


def test_evaluate_expected_ties_unsupported_measure_raises_error():
    with pytest.raises(BadInput, match="bpref is not defined as a mean over the orders of ties"):
        evaluate(QRELS, RUN, ["bpref"], "sklearn")
    with pytest.raises(BadInput, match="ties=expected cannot be combined"):
        PRESETS["sklearn"].but(own="dropped")


def test_evaluate_unknown_convention_or_option_raises_error():
    with pytest.raises(UnknownName, match="unknown convention `trec8`"):
        evaluate(QRELS, RUN, ["mrr"], "trec8")
    with pytest.raises(UnknownName, match="unknown option `tie`"):
        PRESETS["default"].but(tie="trec")
    with pytest.raises(BadInput, match="ties must be one of trec, ranked, expected, got `random`"):
        PRESETS["default"].but(ties="random")


@pytest.mark.parametrize("value", [42, object()])
def test_evaluate_unsupported_types_raise_error(value):
    with pytest.raises(BadInput, match="judgments cannot be read from"):
        evaluate(value, RUN, ["mrr"])
    with pytest.raises(BadInput, match="a run cannot be read from"):
        evaluate(QRELS, value, ["mrr"])


def test_evaluate_empty_judgments_raises_error():
    with pytest.raises(BadInput, match="the judgments contain no query"):
        evaluate({}, RUN, ["mrr"])


NAMED_RUNS = {"good": {"q1": {"a": 0.9, "b": 0.4}, "q2": {"c": 1.0}}, "bad": {"q1": {"b": 0.9, "a": 0.4}}}
NAMED_GRADES = {"q1": {"a": 1}, "q2": {"c": 1}}


def test_evaluate_runs_returns_mapping_with_score_attributes():
    found = ragauge.evaluate_runs(NAMED_GRADES, NAMED_RUNS, ["mrr", "recall@1"])
    assert isinstance(found, ragauge.ScoresByRun)
    assert list(found) == ["good", "bad"]
    assert found["good"].run == "good"
    assert found.measures == ["mrr", "recall@1"]
    assert (found.convention, found.queries, found.lower_is_better) == ("default", ["q1", "q2"], frozenset())
    assert found.means == {"good": {"mrr": 1.0, "recall@1": 1.0}, "bad": {"mrr": 0.25, "recall@1": 0.0}}
    assert found.means["bad"]["MRR"] == 0.25
    assert found.n["bad"] == {"mrr": 2, "recall@1": 2}
    assert found.per_query["bad"]["mrr"] == {"q1": 0.5, "q2": 0.0}
    assert found.is_lower_better("mrr") is False
    frame = found.to_polars()
    assert frame.height == 8
    assert frame["run"].unique(maintain_order=True).to_list() == ["good", "bad"]
    assert pickle.loads(pickle.dumps(found)).means == found.means
    assert repr(found).startswith("ScoresByRun(Scores('good', default: mrr 1.0000 (n=2)")


def test_evaluate_of_named_runs_equals_evaluate_runs():
    by_run = ragauge.evaluate(NAMED_GRADES, NAMED_RUNS, ["mrr"])
    assert isinstance(by_run, ragauge.ScoresByRun)
    assert by_run.means == ragauge.evaluate_runs(NAMED_GRADES, NAMED_RUNS, ["mrr"]).means
    scores = ragauge.evaluate(NAMED_GRADES, NAMED_RUNS["bad"], ["mrr"])
    assert isinstance(scores, ragauge.Scores)
    assert scores.means == by_run["bad"].means


def test_evaluate_runs_invalid_runs_raises_error():
    with pytest.raises(BadInput, match="runs must be a mapping from names to runs, got str"):
        ragauge.evaluate_runs(NAMED_GRADES, "a.run")
    with pytest.raises(BadInput, match="no runs to score"):
        ragauge.evaluate_runs(NAMED_GRADES, {})


def test_evaluate_unknown_keyword_raises_error():
    with pytest.raises(UnknownName, match=r"unknown argument `target` of evaluate\nhint: did you mean `targets`"):
        ragauge.evaluate(NAMED_GRADES, NAMED_RUNS, target={"a": ["x"]})
