"""Cutoffs deeper than a run: undefined if the k of the run is known, computed with a note for a run file."""

from __future__ import annotations

import csv
import io
import json
import math

import polars as pl
import pytest

import ragauge
from command import command_in
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.records import Dataset, Judgments
from ragauge.measures.conventions import PRESETS
from ragauge.measures.judged_ranks import defined_depth

QUERIES = {f"q{i}": f"query {i}" for i in range(6)}
GRADES = {query: {f"d{i}": 1.0, f"d{i + 20}": 1.0} for i, query in enumerate(QUERIES)}


def make_dataset(n_documents=40):
    documents = [Document(f"d{i}", f"text {i}") for i in range(n_documents)]
    return Dataset("depths", documents, QUERIES, Judgments(GRADES))


def make_search(n_hits=1000, start=0):
    """Return a system that ranks d0, d1, … (from number `start`) and returns at most `n_hits` documents."""

    def search(query, k):
        return [Hit(f"d{start + i}", 1 / (i + 1)) for i in range(min(k, n_hits, 40))]

    return search


@pytest.fixture
def folder(tmp_path):
    """Return a folder of runs with k=5: `deep` could return more documents, `short` only has 4."""
    ragauge.run(make_dataset(), {"deep": make_search(), "short": make_search(4)}, k=5, out=tmp_path / "runs")
    return tmp_path / "runs"


def test_evaluate_measure_beyond_k_is_undefined_with_reason():
    run = ragauge.run(make_dataset(), {"deep": make_search()}, k=5).runs["deep"]
    scores = ragauge.evaluate(GRADES, run, ["recall@5", "recall@10", "mrr", "ideal_dcg@10"])
    assert scores.means["recall@5"] == pytest.approx(5 / 12)
    assert math.isnan(scores.means["recall@10"])
    assert scores.n["recall@10"] == 0
    assert set(scores.unscored["recall@10"].values()) == {"recall@10 is undefined: the run was made with k=5"}
    assert scores.notes == ["recall@10 is undefined for runs made with k=5; run again with `-k 10`"]
    assert scores.n["mrr"] == scores.n["ideal_dcg@10"] == 6


@pytest.mark.parametrize(
    ("system", "k", "n_documents"),
    [(make_search(4), 5, 40), (make_search(), 40, 40), (make_search(), 50, 40)],
)
def test_evaluate_measure_beyond_k_is_defined_for_complete_rankings(system, k, n_documents):
    run = ragauge.run(make_dataset(n_documents), {"all": system}, k=k).runs["all"]
    assert defined_depth(run) == math.inf
    scores = ragauge.evaluate(GRADES, run, "recall@100")
    assert scores.n["recall@100"] == 6
    assert not scores.notes


def test_defined_depth_duplicates_do_not_make_ranking_complete():
    def search_chunks(query, k):
        return [Hit(f"d{i // 2}", 1 / (i + 1)) for i in range(k)]

    run = ragauge.run(make_dataset(), {"chunks": search_chunks}, k=6).runs["chunks"]
    assert run.table.height == 6 * 6
    assert defined_depth(run) == 6


def test_defined_depth_ignores_failed_queries():
    def failing_search(query, k):
        if query == "query 3":
            raise RuntimeError("no answer")
        return [Hit("d1", 1.0)]

    assert defined_depth(ragauge.run(make_dataset(), {"fails": failing_search}, k=5).runs["fails"]) == math.inf


def test_defined_depth_is_kept_after_resumed_run(tmp_path):
    failure_flag = tmp_path / "broken"
    failure_flag.touch()

    def search(query, k):
        if query == "query 3" and failure_flag.exists():
            raise RuntimeError("no answer")
        return [Hit("d1", 1.0), Hit("d2", 0.5)]

    first = ragauge.run(make_dataset(), {"own": search}, k=5, out=tmp_path / "runs").runs["own"]
    failure_flag.unlink()
    result = ragauge.run(make_dataset(), {"own": search}, k=5, out=tmp_path / "runs", reuse=True)
    resumed = result.runs["own"]
    assert any("that had failed were run again" in note for note in result.notes)
    assert defined_depth(first) == defined_depth(resumed) == math.inf


def test_evaluate_run_file_beyond_depth_adds_note():
    rankings = {query: {f"d{i}": -float(i) for i in range(3)} for query in QUERIES}
    scores = ragauge.evaluate(GRADES, rankings, ["recall@3", "recall@10", "ndcg@20"])
    assert scores.means["recall@10"] == scores.means["recall@3"]
    assert scores.notes == ["run: at most 3 documents per query, so recall@10, ndcg@20 are computed at depth 3"]


def test_evaluate_tool_presets_compute_measures_beyond_depth(folder):
    computed = {name for name, preset in PRESETS.items() if preset.beyond_depth == "computed"}
    assert computed == {"trec10", "trec9", "beir", "ranx", "torchmetrics", "sklearn"}
    scores = ragauge.evaluate(str(folder), str(folder / "deep"), "recall@10", "trec10")
    assert scores.n["recall@10"] == 6
    assert scores.notes == ["deep: at most 5 documents per query, so recall@10 is computed at depth 5"]


@pytest.mark.slow
def test_outputs_undefined_measures_are_empty(folder):
    run = command_in(folder.parent)
    table = run("evaluate", "runs", "-m", "recall@10", "-m", "recall@5")
    assert [line.split()[1] for line in table.stdout.splitlines()[1:]] == ["-", "0.3333"]
    assert "recall@10 is undefined for runs made with k=5; run again with `-k 10`" in table.stderr
    data = json.loads(run("evaluate", "runs", "-m", "recall@10", "--json").stdout)["runs"]
    assert (data["deep"]["recall@10"]["mean"], data["deep"]["recall@10"]["n"]) == (None, 0)
    assert data["short"]["recall@10"]["n"] == 6
    done = run("report", "runs", "-m", "recall@10,recall@5", "--csv")
    assert "undefined for runs made with k=5" in done.stderr
    rows = [row for row in csv.DictReader(io.StringIO(done.stdout)) if row["name"] == "recall@10"]
    assert {row["system"]: row["value"] == "" for row in rows} == {"deep": True, "short": False}


def test_compare_undefined_measure_has_no_verdict(folder):
    ragauge.run(make_dataset(), {"deep": make_search(), "other": make_search(start=3)}, k=5, out=folder)
    files = [str(folder / "deep"), str(folder / "other")]
    comparison = ragauge.compare(files, measures=["recall@10", "recall@5"])
    assert [(row.measure, row.n) for row in comparison.rows] == [("recall@10", 0), ("recall@5", 6)]
    run = command_in(folder.parent)
    notes = run("compare", *files, "-b", "deep", "-m", "recall@10", "-m", "recall@5").stderr
    assert "recall@10:" not in notes
    assert "recall@10 is undefined" in notes


def test_compare_undefined_measure_affects_only_pairs_of_shallow_run(tmp_path):
    ragauge.run(make_dataset(), {"shallow": make_search()}, k=5, out=tmp_path / "a")
    ragauge.run(make_dataset(), {"deep": make_search(), "other": make_search(start=3)}, k=20, out=tmp_path / "b")
    files = [str(tmp_path / name) for name in ("a/shallow", "b/deep", "b/other")]
    comparison = ragauge.compare(files, measures=["recall@10"])
    pairs = {(row.baseline, row.system): row.n for row in comparison.rows}
    assert pairs == {("shallow", "deep"): 0, ("shallow", "other"): 0, ("deep", "other"): 6}


def test_audit_and_gate_treat_measure_beyond_k_as_undefined(folder):
    report = ragauge.audit(str(folder / "deep"), measures=["recall@10", "recall@5"], checks=["depth"])
    assert [point.message for point in report.findings] == ["recall@10 is undefined: the run was made with k=5"]
    with pytest.raises(MissingEvidence, match="recall@10 cannot be audited"):
        ragauge.audit(str(folder / "deep"), measures=["recall@10"])
    gate = ragauge.gate(str(folder / "deep"), ["recall@10 >= 0.01"])
    assert gate.checks[0].reason == "recall@10 is undefined: the run was made with k=5"
    assert ragauge.gate(str(folder / "short"), ["recall@10 >= 0.01"]).checks[0].passed


def test_run_k_defaults_to_largest_cutoff():
    result = ragauge.run(make_dataset(), {"deep": make_search()}, measures=["recall@25", "ndcg@10"])
    assert result.runs["deep"].manifest["plan"]["k"] == 25
    with pytest.raises(BadInput, match="recall@25 needs 25 documents per query, but -k is 10") as error:
        ragauge.run(make_dataset(), {"deep": make_search()}, measures=["recall@25"], k=10)
    assert error.value.hint == "use `-k 25`, or a cutoff of at most 10"


def test_timings_have_complete_column(folder):
    complete = {
        name: pl.read_parquet(folder / name / "timings.parquet")["complete"].all() for name in ("deep", "short")
    }
    assert complete == {"deep": False, "short": True}
