"""Tie check of the audit: bounds equal those over all orders, also if a convention drops documents or rounds scores."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragauge
from ragauge import PRESETS, Judgments, Run, evaluate
from ragauge.audits import ties
from ragauge.audits.audit import audit
from ragauge.audits.audit_input import AuditInput
from ragauge.measures.names import parse_measure_names
from strategies import runs

MEASURES = ["map", "mrr", "mrr@2", "bpref", "precision@2", "recall@2", "hit_rate@1", "r_precision", "ndcg", "ndcg@3"]
REMOVING_OPTIONS = [
    {"own": "dropped"},
    {"unjudged": "condensed"},
    {"own": "dropped", "unjudged": "condensed"},
    {"depth": 2},
    {"depth": 3, "own": "dropped"},
    {"depth": 2, "unjudged": "condensed"},
]
"""Ways to take documents out of a ranking."""


def make_run(nested, **more):
    rows = [(q, d, float(s)) for q, docs in nested.items() for d, s in docs.items()]
    schema = {"query": pl.String, "doc": pl.String, "score": pl.Float64}
    return Run(pl.DataFrame(rows, schema=schema, orient="row"), **more)


def make_audit_input(qrels, run, convention, measures=MEASURES):
    run = run if isinstance(run, Run) else make_run(run)
    return AuditInput(Judgments(qrels), {"run": run}, parse_measure_names(measures, convention), convention)


def find_ties(qrels, run, convention="default", measures=("mrr",)):
    convention = PRESETS[convention] if isinstance(convention, str) else convention
    return list(ties.check_ties(make_audit_input(qrels, run, convention, measures)))


def get_only(items):
    (item,) = items
    return item


def list_orders(scores):
    """Yield every ranking that the scores allow."""
    levels = sorted(set(scores.values()), reverse=True)
    groups = [[doc for doc, score in scores.items() if score == level] for level in levels]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [doc for part in parts for doc in part]


grades = st.dictionaries(st.sampled_from("abcdq"), st.integers(-1, 2), min_size=1).filter(
    lambda docs: max(docs.values()) >= 0
)
tied_scores = st.dictionaries(st.sampled_from("abcdqxy"), st.integers(0, 1).map(float), min_size=1, max_size=5)


@pytest.mark.parametrize("options", REMOVING_OPTIONS, ids=str)
@settings(max_examples=25)
@given(grades, tied_scores)
@pytest.mark.slow
def test_tie_bounds_with_removed_documents_match_all_orders(options, grades, scores):
    convention = PRESETS["default"].but(**options)
    audit_input = make_audit_input({"q": grades}, {"q": scores}, convention)
    found = ties.compute_tie_sensitivity(audit_input, "run", audit_input.runs["run"].table, convention)
    assert [str(one) for one in found.measures] == MEASURES
    ranked = [{"q": {doc: -float(i) for i, doc in enumerate(order)}} for order in list_orders(scores)]
    scores_by_order = [list(evaluate({"q": grades}, one, MEASURES, convention).means.values()) for one in ranked]
    assert list(found.worst.means.values()) == pytest.approx(np.min(scores_by_order, axis=0))
    assert list(found.best.means.values()) == pytest.approx(np.max(scores_by_order, axis=0))
    exact = [i for i, one in enumerate(found.expected) if one.exact]
    if "depth" not in options:
        assert exact == [i for i, one in enumerate(found.measures) if one.spec.averages_ties]
    assert [found.expected[i].mean for i in exact] == pytest.approx(np.mean(scores_by_order, axis=0)[exact])


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(["q0", "q1", "q2", "d0"]), st.dictionaries(
        st.sampled_from(["q0", "q1", "d0", "d1", "d2", "d3"]), st.integers(-1, 2), min_size=1
    ).filter(lambda docs: max(docs.values()) >= 0), min_size=1),
    runs(docs=6, tied=True),
    st.sampled_from(list(PRESETS)),
    st.sampled_from([{}, *REMOVING_OPTIONS]),
)  # fmt: skip
@pytest.mark.slow
def test_tie_bounds_contain_score_under_every_convention(qrels, nested, name, options):
    nested = {query: {"q0": 1.0, **docs} for query, docs in nested.items()}
    convention, measures = PRESETS[name], MEASURES
    if convention.ties == "expected":
        measures = [str(one) for one in parse_measure_names(MEASURES) if one.spec.averages_ties]
    else:
        convention = convention.but(**options)
    for one in audit(qrels, nested, measures=measures, convention=convention, checks="ties").findings:
        for measure, worst, expected, best, actual in one.table.rows if one.table else ():
            assert worst - 1e-9 <= expected <= best + 1e-9, measure
            assert worst - 1e-9 <= actual <= best + 1e-9, measure


def test_check_ties_own_dropped_ignores_own_document():
    found = get_only(find_ties({"q": {"a": 1, "n": 0}}, {"q": {"q": 9, "a": 5, "n": 5}}, "beir"))
    assert found.table.rows == [["mrr", 0.5, 0.75, 1.0, 0.5]]
    assert "50.0% of the scores are tied (1 of 2)" in found.message


def test_check_ties_condensed_ignores_unjudged_documents():
    convention = PRESETS["default"].but(unjudged="condensed")
    qrels = {f"q{i}": {"a": 1, "n": 0} for i in range(12)}
    found = get_only(find_ties(qrels, {q: {"u1": 9, "u2": 8, "a": 5, "n": 5} for q in qrels}, convention))
    assert found.table.rows == [["mrr", 0.5, 0.75, 1.0, 0.5]]
    found = get_only(find_ties(qrels, {q: {"u1": 5, "a": 5, "u2": 4, "n": 4} for q in qrels}, convention))
    assert (found.count, found.message) == (0, "no two documents of a query have the same score")


def test_check_ties_query_without_remaining_documents_scores_zero():
    qrels = {"a": {"x": 1}, "b": {"x": 1}}
    found = get_only(find_ties(qrels, {"a": {"a": 1}, "b": {"x": 1, "y": 1}}, "beir"))
    assert found.table.rows == [["mrr", 0.25, 0.375, 0.5, 0.25]]


def test_check_ties_across_depth_limit_uses_random_orders():
    convention = PRESETS["default"].but(depth=2)
    qrels = {f"q{i}": {"c": 1} for i in range(400)}
    found = get_only(find_ties(qrels, {q: dict.fromkeys("abc", 1) for q in qrels}, convention))
    (_, worst, expected, best, actual), = found.table.rows  # fmt: skip
    assert (worst, best, actual) == (0, 1, 1)
    assert expected == pytest.approx((1 + 1 / 2) / 3, abs=0.01)
    assert "expected mrr is the mean of 199 random orders" in found.message
    assert not get_only(find_ties(qrels, {q: {"c": 3, "b": 2, "a": 1, "x": 1} for q in qrels}, convention)).problem


def test_check_ties_rel_zero_omits_measure():
    found = get_only(find_ties({"q": {"a": 0, "b": 1}}, {"q": {"a": 1, "b": 1}}, measures=("mrr(rel=0)", "mrr")))
    assert [row[0] for row in found.table.rows] == ["mrr"]
    assert "not computed for mrr(rel=0)" in found.message


def make_near_ties(step):
    """Scores of four queries: `step` for the relevant document, and 1 for another one."""
    return {f"q{i}": {"a": step, "x": 1.0} for i in range(4)}


QRELS = {f"q{i}": {"a": 1} for i in range(4)}
STEP = math.nextafter(1.0, 2.0)


def test_check_ties_32_bit_ties_are_reported_once():
    found = get_only(find_ties(QRELS, make_near_ties(1 + 1e-12), "trec9"))
    assert (found.check, found.problem, found.effect) == ("ties", True, "mrr 0.5000 to 1.0000")
    assert "50.0% of the scores are tied (4 of 8), 4 of them only as 32-bit floats" in found.message
    by_check = {finding.check: finding for finding in find_ties(QRELS, make_near_ties(1 + 1e-12))}
    assert (by_check["ties"].problem, by_check["ties"].count) == (False, 0)
    assert (by_check["score width"].problem, by_check["score width"].effect) == (True, "mrr 1.0000 to 0.5000")
    assert by_check["score width"].table.header[-2:] == ["as doubles", "as 32 bit"]
    assert by_check["score width"].table.rows == [["mrr", 0.5, 0.75, 1.0, 1.0, 0.5]]


def test_check_ties_minimal_score_step_is_a_tie_unless_run_has_manifest():
    found = get_only(find_ties(QRELS, make_near_ties(STEP)))
    assert (found.check, found.problem, found.effect) == ("ties", True, "mrr 0.5000 to 1.0000")
    assert "4 of them except for the smallest step of a double" in found.message
    assert found.table.rows == [["mrr", 0.5, 0.75, 1.0, 1.0]]
    stored_run = make_run(make_near_ties(STEP), manifest={"system": {"name": "mine"}})
    found = get_only(find_ties(QRELS, stored_run))
    assert (found.check, found.problem, found.count) == ("ties", False, 4)
    assert "the run folder preserves the order of return by minimal score steps" in found.message
    assert "(mrr 0.5000 to 1.0000, worst to best)" in found.message
    assert found.table.rows == [["mrr", 0.5, 0.75, 1.0, 1.0]]
    assert get_only(find_ties(QRELS, stored_run, "trec9")).problem  # trec9 orders ties by id, not by order of return


def test_check_ties_run_folder_reports_ties_of_the_system(tmp_path):
    ragauge.run("synthetic:needles(documents=300, queries=40)", "bm25", k=20, out=tmp_path / "out")
    found = audit(tmp_path / "out" / "judgments.parquet", str(tmp_path / "out" / "bm25"), checks="ties")
    finding = get_only(found.findings)
    assert (finding.check, finding.problem, finding.count) == ("ties", False, 17)
    assert "27.8% of the scores are tied (49 of 176) as returned by the system" in finding.message
    assert [round(score, 4) for score in finding.table.rows[0][1:]] == [0.5994, 0.6424, 0.6914, 0.6454]


def test_merge_adjacent_scores_merges_chains_within_a_query():
    chain = [1.0, math.nextafter(1.0, 0), math.nextafter(math.nextafter(1.0, 0), 0), 0.5]
    table = make_run({"q": dict(zip("abcd", chain, strict=True)), "p": {"a": chain[1]}, "z": {"a": 0.0}}).table
    merged_scores = dict(
        zip(*ties.merge_adjacent_scores(table).select(pl.col("query") + pl.col("doc"), "score"), strict=True)
    )
    assert merged_scores == {"qa": 1, "qb": 1, "qc": 1, "qd": 0.5, "pa": chain[1], "za": 0}
    other = table.filter(pl.col("doc") != "b")
    assert ties.merge_adjacent_scores(other) is other
