"""Comparability check of the audit: differences between the inputs of runs, read from their manifests."""

from __future__ import annotations

import pytest
from tests.audits.test_run_checks import run_of

import ragauge
from ragauge.audits import audit_files, comparability
from ragauge.audits.checks import AUDIT_CHECKS, audit_evidence
from ragauge.audits.evidence import AuditInput
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


def made(evidence=None, plan=PLAN, data=HASHES):
    """Run whose manifest has this plan, dataset and evidence."""
    bare = run_of(RANKING)
    return Run(bare.table, "run", manifest={"plan": plan, "dataset": data, "evidence": evidence or {}})


def found(**runs):
    rules = PRESETS["default"]
    return audit_evidence(
        AuditInput(QRELS, runs, parse_measure_names(["mrr"], rules), rules), [AUDIT_CHECKS["footing"]]
    )


def only(audit):
    (one,) = audit.findings
    return one


def test_footing_equal_graph_retrievers_have_no_problem():
    one = only(found(flow=made(WALK), swarm=made({**WALK, "agents": 20})))
    assert (one.problem, one.count, one.table) == (False, 0, None)
    told = "documents, queries, depth, repeats, embedder, graph, seeds, links of a node and budget"
    assert one.message == f"all 2 runs have the same {told}"


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
def test_footing_different_graph_retrieval_inputs_are_a_problem(change, name, cells):
    one = only(found(flow=made(WALK), swarm=made({**WALK, **change})))
    assert one.problem
    assert one.message == f"flow, swarm are graph retrievers with different inputs: {name}"
    assert one.table is not None
    assert list(one.table.header) == ["run", name]
    assert [list(row) for row in one.table.rows] == [["flow", cells[0]], ["swarm", cells[1]]]
    assert ("prior" in one.remedy) is (name == "prior")


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        (
            {},
            "run all systems without a prior (a shared prior is fair only if the check `predictors` finds no leak",
        ),
        ({"embedder": "large"}, "give all graph retrievers the same embedder, and run all systems without a prior"),
    ],
)
def test_footing_different_prior_remedy_is_no_prior(change, begins):
    one = only(found(flow=made(WALK), swarm=made({**WALK, "prior": "hidden", **change})))
    assert one.remedy.startswith(begins)
    assert "report it as a comparison of whole systems" in one.remedy


def test_footing_missing_seeds_or_link_limit_is_not_a_difference():
    bare = {name: value for name, value in WALK.items() if name not in ("seeds", "most_links")}
    assert not only(found(flow=made(WALK), rank=made(bare))).problem


def test_footing_compares_graphs_by_fingerprint():
    same = {**GRAPH, "kinds": {"links": 1, "knn(neighbours=8)": 0}}
    assert not only(found(flow=made(WALK), swarm=made({**WALK, "graph": same}))).problem


def test_facts_from_manifest_reads_nested_pipeline_parts():
    whole = {"parts": [{"embedder": "small"}, {"parts": [WALK]}]}
    assert comparability.facts_from_manifest(made(whole).manifest) == comparability.facts_from_manifest(
        made(WALK).manifest
    )
    more = {"parts": [{"embedder": "large"}, WALK]}
    one = only(found(flow=made(WALK), reranked=made(more)))
    assert one.problem
    assert [row[1] for row in one.table.rows] == ["small", "large + small"]
    twice = {"parts": [WALK, WALK]}
    assert comparability.facts_from_manifest(made(twice).manifest)["budget"] == "1,600"


def test_footing_other_differences_are_a_note():
    one = only(
        found(
            words=made(),
            dense=made({"embedder": "small"}),
            flow=made(WALK),
            swarm=made({**WALK, "steps": 400}, {"k": 50, "repeats": 1}),
        )
    )
    assert not one.problem
    told = (
        "all 2 runs of graph retrievers have the same inputs; the runs differ in depth, repeats, embedder, graph "
        "and budget"
    )
    assert one.message == f"{told}, so a difference in scores is the effect of all of these together"
    assert list(one.table.header) == ["run", "depth", "repeats", "embedder", "graph", "budget"]
    assert list(one.table.rows[0]) == ["words", "20", "5", None, None, None]
    assert list(one.table.rows[3]) == ["swarm", "50", "1", "small", "1 link (0123456789)", "400"]


def test_footing_different_documents_are_a_problem():
    other = {**HASHES, "documents_hash": "f" * 32}
    first, *rest = found(one=made(WALK), two=made(WALK, data=other)).findings
    assert (first.check, first.problem, rest) == ("other data", True, [])
    assert first.message == "the runs do not use the same documents"
    assert [row[1] for row in first.table.rows] == ["2 (dddddddddd)", "2 (ffffffffff)"]


def test_footing_needs_two_runs_with_manifest():
    alone = found(one=made(WALK))
    assert (alone.findings, alone.skipped) == ([], {})
    files = found(one=run_of(RANKING), two=made(WALK))
    assert files.findings == []
    assert files.skipped == {
        "footing": "the provenance of the runs is unknown: folders written by `ragauge run` contain it"
    }


def test_footing_of_experiment_folder_reads_manifests(tmp_path):
    documents = [Document(f"d{i}", f"word{i} of the text", metadata={"links": [f"d{(i + 1) % 20}"]}) for i in range(20)]
    queries = {f"q{i}": f"word{i}" for i in range(5)}
    data = Dataset("ring", documents, queries, Judgments({query: {f"d{i}": 1} for i, query in enumerate(queries)}))
    systems = {
        "flow": "graphflow(graph=links)",
        "reranked": "pipeline(of=bm25, reranker=swarm(graph=links), depth=10)",
    }
    ragauge.run(data, systems, measures=["mrr@5"], out=tmp_path / "same")
    same = audit_files([str(tmp_path / "same")], checks=["footing"])
    assert same.problems == []
    ragauge.run(data, {**systems, "other": "swarm(graph=knn)"}, measures=["mrr@5"], out=tmp_path / "unlike")
    (one,) = audit_files([str(tmp_path / "unlike")], checks=["footing"]).problems
    assert one.message == "flow, reranked, other are graph retrievers with different inputs: graph"
    ring, again, near = (row[1] for row in one.table.rows)
    assert ring == again != near
    assert ring.startswith("20 links (")
