"""Notes of `evaluate` on inputs that make a score 0 for a reason other than the ranking."""

from __future__ import annotations

import pytest

import ragauge

QRELS = {"q1": {"d1": 1}, "q2": {"d2": 2}}
UNMATCHED_IDS = "run: no returned document is judged; check that judgments and run use the same ids"


def evaluate_notes(run, **options):
    return ragauge.evaluate(QRELS, run, ["mrr"], **options).notes


def test_evaluate_unmatched_document_ids_are_noted():
    assert UNMATCHED_IDS in evaluate_notes({"q1": {"d1.md": 1.0}, "q2": {"d2.md": 1.0}})
    assert UNMATCHED_IDS in evaluate_notes({"q1": {"d1.md": 1.0}})
    assert UNMATCHED_IDS not in evaluate_notes({"q1": {"d1": 1.0}, "q2": {"d9": 1.0}})
    assert UNMATCHED_IDS not in evaluate_notes({"q1": {}, "q2": {}})


def test_evaluate_run_without_judged_query_is_noted():
    notes = evaluate_notes({"d1": {"q1": 1.0}})
    assert "run: has none of the 2 judged queries (q1, q2): check the query ids and the order of columns" in notes
    assert "run: 1 unjudged query is not scored" in notes


@pytest.mark.parametrize(("missing", "fate"), [("zero", "which count 0"), ("skip", "which are left out")])
def test_evaluate_missing_query_is_named(missing, fate):
    notes = evaluate_notes({"q1": {"d1": 1.0}}, convention=f"missing={missing}")
    assert f"run: lacks 1 of 2 judged queries (q2), {fate}" in notes


def test_evaluate_rel_above_every_grade_is_noted():
    run = {"q1": {"d1": 1.0}, "q2": {"d2": 1.0}}
    note = "no document is relevant: no judgment has grade 3 or more (the highest grade is 2)"
    assert note in evaluate_notes(run, convention="rel=3")
    assert note not in evaluate_notes(run, convention="rel=2")


def test_evaluate_condensed_lists_note_measures_of_unjudged_documents():
    run = {"q1": {"x": 2.0, "d1": 1.0}, "q2": {"d2": 1.0}}
    measures = ["mrr", "judged@10", "rbp_resid"]
    condensed = ragauge.evaluate(QRELS, run, measures, "unjudged=condensed")
    note = "unjudged=condensed removes unjudged documents first, so judged@10, rbp_resid do not show their number"
    assert note in condensed.notes
    assert condensed.means["judged@10"] == 1.0
    assert note not in ragauge.evaluate(QRELS, run, measures).notes
    assert note not in ragauge.evaluate(QRELS, run, ["mrr"], "unjudged=condensed").notes
