"""Notes of `evaluate` on inputs that make a score 0 for a reason other than the ranking."""

from __future__ import annotations

import os

import polars as pl
import pytest

import ragauge
from command import run_shell
from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments, Run

QRELS = {"q1": {"d1": 1}, "q2": {"d2": 2}}
UNMATCHED_IDS = "run: no returned document is judged; check that judgments and run use the same ids"


def make_frame(rankings):
    rows = [(query, doc, score) for query, docs in rankings.items() for doc, score in docs.items()]
    return Run(pl.DataFrame(rows, schema=["query", "doc", "score"], orient="row"))


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
    assert "run: 1 unjudged query is not scored (d1)" in notes


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


JUDGMENTS = {"q1": {"d1": 1}, "q2": {"d2": 0}, "q3": {"d3": 1}, "q4": {"d4": 0}}
RANKINGS = {query: {f"d{query[1]}": 1.0} for query in [*JUDGMENTS, *(f"u{i}" for i in range(10))]}
UNJUDGED = "10 unjudged queries are not scored (u0, u1, u2 and 7 more)"


@pytest.mark.parametrize(
    ("none", "fate"),
    [
        ("zero", "count 0"),
        ("skip", "are left out"),
        ("one", "count 1 (precision 0)"),
        ("recall-one", "count 1 in recall and 0 in other measures"),
    ],
)
def test_evaluate_queries_without_relevant_documents_are_named(none, fate):
    for run in (RANKINGS, make_frame(RANKINGS)):
        notes = ragauge.evaluate(JUDGMENTS, run, ["mrr", "recall@1"], f"none={none}").notes
        assert notes == [
            f"run: {UNJUDGED}",
            f"no document is relevant for 2 of 4 judged queries (q2, q4), which {fate}",
        ]


def test_evaluate_queries_without_relevant_documents_depend_on_rel():
    judgments = {"q1": {"d1": 2}, "q2": {"d2": 1}, "q3": {"d3": 0}}
    notes = ragauge.evaluate(judgments, {"q1": {"d1": 1.0}, "q2": {}, "q3": {}}, ["mrr", "ndcg@1"], "rel=2").notes
    assert notes == [
        "mrr(rel=2): no document is relevant for 2 of 3 judged queries (q2, q3), which count 0",
        "ndcg@1: no document is relevant for 1 of 3 judged queries (q3), which count 0",
    ]


def test_commands_name_queries_that_are_not_scored(tmp_path):
    queries = {query: query for query in RANKINGS}
    documents = [Document(f"d{i}", "text") for i in range(1, 5)]
    data = Dataset("some", documents, queries, Judgments(JUDGMENTS))
    systems = {name: lambda query, k: list(RANKINGS[query]) for name in ("mine", "other")}
    result = ragauge.run(data, systems, measures=["mrr"], k=1, out=tmp_path)
    without_relevant = "no document is relevant for 2 of 4 judged queries (q2, q4), which count 0"
    assert result.notes[:2] == [f"mine, other: {UNJUDGED}", without_relevant]
    for line in (
        "evaluate .",
        "compare .",
        "report .",
        "k-range . -k 1",
        "gate mine -r 'mrr >= 0.1'",
        "audit . --check ties",
    ):
        done = run_shell(f"ragauge {line}", tmp_path, {**os.environ, "NO_COLOR": "1", "COLUMNS": "300"})
        assert UNJUDGED in done.stderr + done.stdout, (line, done)
        assert without_relevant in done.stderr + done.stdout, line
