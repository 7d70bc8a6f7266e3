"""Judged ranks: dictionaries and frames give equal ranks under every convention and order of rows."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import PRESETS, Judgments, Run, evaluate
from ragauge.core.errors import BadInput
from ragauge.files.in_memory import to_run_table
from ragauge.measures import judged_ranks_from_dicts, judged_ranks_from_frames
from strategies import judgments, runs

MEASURES = ["all_trec", "err", "judged@3", "yaap", "f1@3"]
RULES = st.fixed_dictionaries(
    {
        "ties": st.sampled_from(["trec", "ranked"]),
        "width": st.sampled_from(["double", "float32"]),
        "unjudged": st.sampled_from(["nonrelevant", "condensed"]),
        "own": st.sampled_from(["kept", "dropped"]),
        "depth": st.sampled_from([None, 1, 3]),
        "missing": st.sampled_from(["zero", "skip"]),
        "none": st.sampled_from(["zero", "skip", "one"]),
    }
)


@given(judgments(low=-1), runs(), RULES)
@pytest.mark.slow
def test_evaluate_dicts_and_frames_agree_under_every_rule(qrels, run, options):
    # Some documents get the id of their query, for the option `own` (a query's own document).
    qrels = {q: {d.replace("d0", q): g for d, g in docs.items()} for q, docs in qrels.items()}
    run = {q: {d.replace("d0", q): s for d, s in docs.items()} for q, docs in run.items()}
    rules = PRESETS["default"].but(**options)
    by_dictionary = evaluate(qrels, run, MEASURES, rules)
    by_frame = evaluate(qrels, Run(to_run_table(run)), MEASURES, rules)
    assert by_frame.means == pytest.approx(by_dictionary.means, abs=1e-12, nan_ok=True)
    assert by_frame.unscored == by_dictionary.unscored


@given(judgments(), runs(), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_evaluate_row_order_is_ignored(qrels, run, rng):
    rows = list(to_run_table(run).iter_rows())
    rng.shuffle(rows)  # the rows of a query are no longer adjacent
    shuffled = Run(pl.DataFrame(rows, schema=["query", "doc", "score"], orient="row"))
    assert evaluate(qrels, shuffled, MEASURES).means == evaluate(qrels, run, MEASURES).means


@given(judgments(), runs(), st.integers(1, 7))
def test_compute_ranks_from_frames_is_independent_of_frame_size(qrels, run, size):
    table = to_run_table(run)

    class SlicedRun:
        name = "run"

        def frames(self, prepare=lambda frame: frame):
            for begin in range(0, table.height, size):
                yield prepare(table.slice(begin, size))

    rules = PRESETS["default"]
    sliced = judged_ranks_from_frames.compute_ranks_from_frames(Judgments(qrels), SlicedRun(), rules)
    expected = judged_ranks_from_dicts.compute_ranks_from_dicts(Judgments(qrels), run, rules)
    assert sliced.rank.tolist() == expected.rank.tolist()
    assert sliced.row.tolist() == expected.row.tolist()


@given(judgments(), runs())
def test_compute_ranks_from_dicts_is_independent_of_batch_size(qrels, run):
    rules = PRESETS["default"]
    expected = judged_ranks_from_dicts.compute_ranks_from_dicts(Judgments(qrels), run, rules)
    old, judged_ranks_from_dicts.SCORES_PER_BATCH = judged_ranks_from_dicts.SCORES_PER_BATCH, 1
    try:
        batched = judged_ranks_from_dicts.compute_ranks_from_dicts(Judgments(qrels), run, rules)
    finally:
        judged_ranks_from_dicts.SCORES_PER_BATCH = old
    assert batched.rank.tolist() == expected.rank.tolist()
    assert batched.row.tolist() == expected.row.tolist()


def test_evaluate_large_tie_groups_sort_by_id():
    rng = random.Random(5)
    ids = [f"d{i:05}" for i in range(3000)]
    rng.shuffle(ids)
    run = {"q": {d: float(rng.randint(0, 2)) for d in ids}}
    qrels = {"q": {d: rng.randint(0, 2) for d in rng.sample(ids, 500)}}
    expected = {d: r for r, d in enumerate(sorted(ids, key=lambda d: (run["q"][d], d), reverse=True), 1)}
    for returned in (run, Run(to_run_table(run))):
        judged = evaluate(qrels, returned, ["map"]).judged
        found = {
            list(qrels["q"])[row]: rank for row, rank in zip(judged.row.tolist(), judged.rank.tolist(), strict=True)
        }
        assert found == {d: expected[d] for d in qrels["q"]}


def test_evaluate_ties_are_compared_in_blocks(monkeypatch):
    monkeypatch.setattr(judged_ranks_from_frames, "TIED_PAIRS_PER_BLOCK", 3)
    run = {"q": dict.fromkeys("abcdefgh", 1.0)}
    judged = evaluate({"q": dict.fromkeys("aceg", 1)}, Run(to_run_table(run)), ["map"]).judged
    assert judged.rank.tolist() == [2, 4, 6, 8]


def test_evaluate_hash_collision_matches_only_real_ids(monkeypatch):
    """All documents have the same hash, so that only their ids identify the judged one."""
    monkeypatch.setattr(
        judged_ranks_from_frames.JudgmentIndex, "salted", staticmethod(lambda h, q, n: np.zeros(len(h), np.int64))
    )
    table = to_run_table({"q": {"x": 3.0, "a": 2.0, "y": 1.0}})
    assert evaluate({"q": {"a": 1}}, Run(table), ["mrr"]).judged.rank.tolist() == [2]


def test_judgment_index_colliding_judgments_use_another_seed(monkeypatch):
    original, calls = judged_ranks_from_frames.JudgmentIndex.salted, []

    def collide_once(hashes, queries, sizes):
        calls.append(1)
        return np.zeros(len(hashes), np.int64) if len(calls) == 1 else original(hashes, queries, sizes)

    monkeypatch.setattr(judged_ranks_from_frames.JudgmentIndex, "salted", staticmethod(collide_once))
    run = Run(to_run_table({"q": {"x": 3.0, "a": 2.0, "b": 1.0}}))
    assert evaluate({"q": {"a": 1, "b": 1}}, run, ["map"]).judged.rank.tolist() == [2, 3]
    assert len(calls) == 3  # two calls for the judgments, one for the run


def test_evaluate_duplicate_document_raises_error():
    run = {"q": ["a", "b", "a"]}
    with pytest.raises(ValueError, match="document `a` appears more than once in the ranking of query `q`"):
        evaluate({"q": {"b": 1}}, run, ["mrr"])


def test_evaluate_ignores_duplicates_of_unjudged_query():
    run = {"q": ["a"], "other": ["x", "x"]}
    assert evaluate({"q": {"a": 1}}, run, ["mrr"]).means["mrr"] == 1.0


@pytest.mark.parametrize("score", [float("nan"), "high", None])
def test_evaluate_non_numeric_score_error_names_document(score):
    with pytest.raises(ValueError, match="score of document `b` for query `q`"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0, "b": score}}, ["mrr"])


def test_evaluate_does_not_modify_inputs():
    qrels, run = {"q": {"a": 1, "q": 1}}, {"q": {"b": 1.0, "q": 3.0, "a": 2.0}}
    before = (repr(qrels), repr(run))
    evaluate(qrels, run, ["all_trec"], "beir")
    assert (repr(qrels), repr(run)) == before


def test_evaluate_own_document_is_removed_under_beir():
    qrels, run = {"q": {"a": 1}}, {"q": {"q": 3.0, "a": 2.0}}
    assert evaluate(qrels, run, ["mrr"], "trec9").means["mrr"] == 0.5
    assert evaluate(qrels, run, ["mrr", "num_ret"], "beir").means == {"mrr": 1.0, "num_ret": 1.0}


def test_evaluate_infinite_scores_are_ranked():
    run = {"q": {"a": float("-inf"), "b": float("inf"), "c": 0.0}}
    for returned in (run, Run(to_run_table(run))):
        assert evaluate({"q": {"c": 1}}, returned, ["mrr"]).means["mrr"] == 0.5


@pytest.mark.parametrize("ties", ["trec", "ranked"])
@pytest.mark.parametrize(("max_matches", "max_tie_group"), [(0, 64), (32, 64), (32, 2), (0, 2)])
def test_evaluate_unsorted_ties_match_pytrec_eval(monkeypatch, ties, max_matches, max_tie_group):
    monkeypatch.setattr(judged_ranks_from_dicts, "MAX_MATCHES_TO_SCAN", max_matches)
    monkeypatch.setattr(judged_ranks_from_dicts, "MAX_TIE_GROUP_TO_SCAN", max_tie_group)
    rng = random.Random(3)
    run = {f"q{q}": {f"d{rng.randrange(10**6)}": float(rng.randrange(9)) for _ in range(80)} for q in range(20)}
    qrels = {q: {d: rng.randrange(3) for d in rng.sample(sorted(docs), 30)} for q, docs in run.items()}
    found = evaluate(qrels, run, ["map", "ndcg", "mrr"], PRESETS["default"].but(ties=ties))
    if ties == "trec":
        pytrec_eval = pytest.importorskip("pytrec_eval")
        oracle = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg", "recip_rank"}).evaluate(run)
        expected = {"map": "map", "ndcg": "ndcg", "mrr": "recip_rank"}
    else:  # distinct scores that keep the input order of tied documents
        strict = {
            q: {d: -i for i, d in enumerate(sorted(docs, key=lambda d, docs=docs: -docs[d]))} for q, docs in run.items()
        }
        oracle = evaluate(qrels, strict, ["map", "ndcg", "mrr"]).per_query
        oracle = {q: {name: oracle[name][q] for name in ("map", "ndcg", "mrr")} for q in run}
        expected = {name: name for name in ("map", "ndcg", "mrr")}
    for ours, theirs in expected.items():
        assert found.per_query[ours] == pytest.approx({q: values[theirs] for q, values in oracle.items()}, abs=1e-6)


@pytest.mark.parametrize("score", ["0.5", None, float("nan"), 10**400, [1.0]])
def test_evaluate_invalid_score_raises_bad_input(score):
    with pytest.raises(BadInput, match=r"the score of document `b` for query `q` must be a number, got .{0,80}"):
        evaluate({"q": {"a": 1}}, {"q": {"a": 1.0, "b": score}}, ["map"])
