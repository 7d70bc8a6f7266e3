"""Comparability check of the audit: differences between the inputs of runs, read from their manifests."""

from __future__ import annotations

import pytest
from tests.audits.test_run_checks import make_run

import ragauge
from ragauge.audits import comparability
from ragauge.audits.audit import audit_files
from ragauge.audits.audit_input import AuditInput
from ragauge.audits.checks import AUDIT_CHECKS, run_audit_checks
from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.measures.conventions import PRESETS
from ragauge.measures.names import parse_measure_names

QRELS = Judgments({"q1": {"a": 1}, "q2": {"b": 1}})
RANKING = {"q1": {"a": 2.0, "b": 1.0}, "q2": {"a": 2.0, "b": 1.0}}
PLAN = {"k": 20, "repeats": 5}
HASHES = {"documents": 2, "queries": 2, "documents_hash": "d" * 32, "queries_hash": "e" * 32}
GRAPH = {"nodes": 2, "links": 1, "kinds": {"links": 1}, "fingerprint": "0123456789"}
WALK = {"embedder": "small", "graph": GRAPH, "steps": 800, "prior": "", "seeds": 10, "most_links": 64}


def make_manifest_run(evidence=None, plan=PLAN, data=HASHES):
    """Run whose manifest has this plan, dataset and evidence."""
    run = make_run(RANKING)
    return Run(run.table, "run", manifest={"plan": plan, "dataset": data, "evidence": evidence or {}})


def audit_runs(**runs):
    convention = PRESETS["default"]
    return run_audit_checks(
        AuditInput(QRELS, runs, parse_measure_names(["mrr"], convention), convention), [AUDIT_CHECKS["comparability"]]
    )


def get_only(audit):
    (finding,) = audit.findings
    return finding


def test_comparability_equal_graph_retrievers_have_no_problem():
    finding = get_only(audit_runs(flow=make_manifest_run(WALK), swarm=make_manifest_run({**WALK, "agents": 20})))
    assert (finding.problem, finding.count, finding.table) == (False, 0, None)
    inputs = "documents, queries, depth, repeats, embedder, graph, seeds, links of a node and budget"
    assert finding.message == f"all 2 runs have the same {inputs}"


@pytest.mark.parametrize(
    ("change", "name", "cells"),
    [
        ({"embedder": "large"}, "embedder", ["small", "large"]),
        (
            {"graph": {**GRAPH, "links": 3, "fingerprint": "abcdefabcd"}},
            "graph",
            ["1 link (0123456789)", "3 links (abcdefabcd)"],
        ),
        ({"prior": "hidden"}, "prior", [None, "hidden"]),
        ({"seeds": 150}, "seeds", ["10", "150"]),
        ({"most_links": 1}, "links of a node", ["64", "1"]),
    ],
)
def test_comparability_different_graph_retrieval_inputs_are_a_problem(change, name, cells):
    finding = get_only(audit_runs(flow=make_manifest_run(WALK), swarm=make_manifest_run({**WALK, **change})))
    assert finding.problem
    assert finding.message == f"flow, swarm are graph retrievers with different inputs: {name}"
    assert finding.table is not None
    assert list(finding.table.header) == ["run", name]
    assert [list(row) for row in finding.table.rows] == [["flow", cells[0]], ["swarm", cells[1]]]
    assert ("prior" in finding.remedy) is (name == "prior")


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (
            {},
            "run all systems without a prior (a shared prior is fair only if the check `predictors` finds no leak",
        ),
        ({"embedder": "large"}, "give all graph retrievers the same embedder, and run all systems without a prior"),
    ],
)
def test_comparability_different_prior_remedy_is_no_prior(change, remedy):
    finding = get_only(
        audit_runs(flow=make_manifest_run(WALK), swarm=make_manifest_run({**WALK, "prior": "hidden", **change}))
    )
    assert finding.remedy.startswith(remedy)
    assert "report it as a comparison of whole systems" in finding.remedy


def test_comparability_missing_seeds_or_link_limit_is_not_a_difference():
    without_limits = {name: value for name, value in WALK.items() if name not in ("seeds", "most_links")}
    assert not get_only(audit_runs(flow=make_manifest_run(WALK), rank=make_manifest_run(without_limits))).problem


def test_comparability_compares_graphs_by_fingerprint():
    same_graph = {**GRAPH, "kinds": {"links": 1, "knn(neighbours=8)": 0}}
    assert not get_only(
        audit_runs(flow=make_manifest_run(WALK), swarm=make_manifest_run({**WALK, "graph": same_graph}))
    ).problem


def test_facts_from_manifest_reads_nested_pipeline_parts():
    nested = {"parts": [{"embedder": "small"}, {"parts": [WALK]}]}
    assert comparability.facts_from_manifest(make_manifest_run(nested).manifest) == comparability.facts_from_manifest(
        make_manifest_run(WALK).manifest
    )
    two_embedders = {"parts": [{"embedder": "large"}, WALK]}
    finding = get_only(audit_runs(flow=make_manifest_run(WALK), reranked=make_manifest_run(two_embedders)))
    assert finding.problem
    assert [row[1] for row in finding.table.rows] == ["small", "large + small"]
    two_walks = {"parts": [WALK, WALK]}
    assert comparability.facts_from_manifest(make_manifest_run(two_walks).manifest)["budget"] == "1,600"


def test_comparability_other_differences_are_a_note():
    finding = get_only(
        audit_runs(
            words=make_manifest_run(),
            dense=make_manifest_run({"embedder": "small"}),
            flow=make_manifest_run(WALK),
            swarm=make_manifest_run({**WALK, "steps": 400}, {"k": 50, "repeats": 1}),
        )
    )
    assert not finding.problem
    message = (
        "all 2 runs of graph retrievers have the same inputs; the runs differ in depth, repeats, embedder, graph "
        "and budget"
    )
    assert finding.message == f"{message}, so a difference in scores is the effect of all of these together"
    assert list(finding.table.header) == ["run", "depth", "repeats", "embedder", "graph", "budget"]
    assert list(finding.table.rows[0]) == ["words", "20", "5", None, None, None]
    assert list(finding.table.rows[3]) == ["swarm", "50", "1", "small", "1 link (0123456789)", "400"]


def test_comparability_different_documents_are_a_problem():
    other_hashes = {**HASHES, "documents_hash": "f" * 32}
    first, *rest = audit_runs(one=make_manifest_run(WALK), two=make_manifest_run(WALK, data=other_hashes)).findings
    assert (first.check, first.problem, rest) == ("other data", True, [])
    assert first.message == "the runs do not use the same documents"
    assert [row[1] for row in first.table.rows] == ["2 (dddddddddd)", "2 (ffffffffff)"]


def test_comparability_needs_two_runs_with_manifest():
    single_run = audit_runs(one=make_manifest_run(WALK))
    assert (single_run.findings, single_run.skipped) == ([], {})
    with_file = audit_runs(one=make_run(RANKING), two=make_manifest_run(WALK))
    assert with_file.findings == []
    assert with_file.skipped == {
        "comparability": "the provenance of the runs is unknown: folders written by `ragauge run` contain it"
    }


def test_comparability_of_experiment_folder_reads_manifests(tmp_path):
    documents = [Document(f"d{i}", f"word{i} of the text", metadata={"links": [f"d{(i + 1) % 20}"]}) for i in range(20)]
    queries = {f"q{i}": f"word{i}" for i in range(5)}
    data = Dataset("ring", documents, queries, Judgments({query: {f"d{i}": 1} for i, query in enumerate(queries)}))
    systems = {
        "flow": "graphflow(graph=links)",
        "reranked": "pipeline(of=bm25, reranker=swarm(graph=links), depth=10)",
    }
    ragauge.run(data, systems, measures=["mrr@5"], out=tmp_path / "same")
    report = audit_files([str(tmp_path / "same")], checks=["comparability"])
    assert report.problems == []
    ragauge.run(data, {**systems, "other": "swarm(graph=knn)"}, measures=["mrr@5"], out=tmp_path / "unlike")
    (finding,) = audit_files([str(tmp_path / "unlike")], checks=["comparability"]).problems
    assert finding.message == "flow, reranked, other are graph retrievers with different inputs: graph"
    flow_graph, reranked_graph, other_graph = (row[1] for row in finding.table.rows)
    assert flow_graph == reranked_graph != other_graph
    assert flow_graph.startswith("20 links (")
