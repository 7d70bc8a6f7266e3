"""Target maps: read with a dataset folder, given in Python or on the command line, and used by every command."""

from __future__ import annotations

import json

import pytest
from scipy import stats
from tests.helpers.command import run_python

import ragauge
from ragauge.files import readers

QUERIES = [f"q{i}" for i in range(8)]
TARGETS = {"paper": ["the paper"], "preprint": ["the paper"], "reply": ["the reply"]}
GRADES = {query: dict.fromkeys(TARGETS, 1) for query in QUERIES}
NARROW = {query: {"paper": 3.0, "preprint": 2.0} for query in QUERIES}
WIDE = {
    query: {"paper": 3.0, "reply" if i < 6 else "wasps" if i < 7 else "preprint": 2.0}
    for i, query in enumerate(QUERIES)
}
EXPECTED = {"narrow": [0.5] * 8, "wide": [1.0] * 6 + [0.5] * 2}
"""Values of dr@2: found targets divided by the two that exist."""


@pytest.fixture
def folder(tmp_path):
    """Write a BEIR folder with a target map, and two runs next to it."""
    data = tmp_path / "papers"
    (data / "qrels").mkdir(parents=True)
    texts = {"paper": "bees make honey", "preprint": "honey of bees", "reply": "no honey", "wasps": "wasps make nests"}
    rows = [json.dumps({"_id": name, "text": text}) for name, text in texts.items()]
    (data / "corpus.jsonl").write_text("\n".join(rows))
    (data / "queries.jsonl").write_text("\n".join(json.dumps({"_id": query, "text": "honey"}) for query in QUERIES))
    lines = [f"{query}\t{doc}\t1" for query, docs in GRADES.items() for doc in docs]
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines))
    (data / "targets.tsv").write_text("".join(f"{doc}\t{target}\n" for doc, [target] in TARGETS.items()))
    for name, run in (("narrow", NARROW), ("wide", WIDE)):
        lines = [f"{query} Q0 {doc} 0 {score} t" for query, docs in run.items() for doc, score in docs.items()]
        (tmp_path / f"{name}.run").write_text("\n".join(lines))
    return tmp_path


def run_ragauge(folder, *arguments):
    return run_python(["-m", "ragauge", *arguments], folder)


COMMANDS = {
    "evaluate": ["evaluate", "QRELS", "wide.run", "-m", "dr@2"],
    "compare": ["compare", "QRELS", "narrow.run", "wide.run", "-m", "dr@2"],
    "gate": ["gate", "QRELS", "wide.run", "-r", "dr@2 >= 0.5"],
    "audit": ["audit", "QRELS", "wide.run", "-m", "dr@2", "--check", "conventions"],
    "k-range": ["k-range", "QRELS", "wide.run", "-m", "dr", "-k", "2"],
    "report": ["report", "QRELS", "narrow.run", "wide.run", "-m", "dr@2", "--no-audit"],
    "fuse": ["fuse", "wide.run", "--tune", "--qrels", "QRELS", "-m", "dr@2", "-o", "fused.run", "--verbose"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_uses_target_map_of_dataset_or_option(command, folder):
    for qrels, options in (("papers", []), ("qrels.tsv", ["--targets", "papers/targets.tsv"])):
        (folder / "qrels.tsv").write_bytes((folder / "papers/qrels/test.tsv").read_bytes())
        result = run_ragauge(folder, *(qrels if word == "QRELS" else word for word in COMMANDS[command]), *options)
        assert result.returncode == 0, result.stderr
        assert f"{sum(EXPECTED['wide']) / 8:.4f}" in result.stdout + result.stderr
    result = run_ragauge(folder, *("qrels.tsv" if word == "QRELS" else word for word in COMMANDS[command]))
    assert result.returncode != 0 or "needs a target map" in result.stdout
    assert "add `--targets FILE`" in result.stderr or command in ("gate", "audit")


def test_compare_dr_has_t_test_of_seeds(folder):
    result = run_ragauge(folder, "compare", "papers", "narrow.run", "wide.run", "-m", "dr@2", "-C", "swarm", "--json")
    row = json.loads(result.stdout)["comparisons"][0]
    assert row["p_t"] == pytest.approx(stats.ttest_rel(EXPECTED["wide"], EXPECTED["narrow"]).pvalue)


@pytest.mark.parametrize("convention", ["swarm", "graphflow"])
def test_evaluate_swarm_uses_target_map_unless_identity_is_stated(convention, folder):
    data = str(folder / "papers")
    used = ragauge.evaluate(data, NARROW, ["dr@2"], convention)
    assert (used.means, used.convention) == ({"dr@2": 0.5}, f"{convention}, targets=map")
    assert ragauge.evaluate(GRADES, NARROW, ["dr@2"], convention, targets=TARGETS).means == {"dr@2": 0.5}
    for judgments, name in ((data, f"{convention},targets=identity"), (GRADES, convention)):
        assert ragauge.evaluate(judgments, NARROW, ["dr@2"], name).means == {
            "dr(targets=identity)@2": pytest.approx(2 / 3)
        }


def test_dataset_targets_argument_belongs_to_judgments(folder):
    loaded = ragauge.load(folder / "papers")
    assert loaded.targets == loaded.judgments.targets == TARGETS
    data = ragauge.Dataset("papers", loaded.documents, loaded.queries, GRADES, targets={"paper": "A", "preprint": "A"})
    assert data.judgments.targets == {"paper": ["A"], "preprint": ["A"]}
    experiment = ragauge.run(loaded, {"wide": lambda q, k: ["paper", "reply"][:k]}, measures=["dr@2"], out=folder / "r")
    assert experiment.scores["wide"].means == {"dr@2": 1.0}
    assert readers.read_judgments(folder / "r").targets == TARGETS
    with pytest.raises(ragauge.BadInput, match="a target map must be a mapping, got list"):
        ragauge.Dataset("papers", loaded.documents, loaded.queries, GRADES, targets=["A"])


def test_run_targets_option_is_saved_with_the_runs(folder):
    (folder / "papers" / "targets.tsv").rename(folder / "map.tsv")
    options = ["-m", "dr@2", "-C", "swarm", "--targets", "map.tsv", "-o", "runs/papers"]
    assert run_ragauge(folder, "run", "papers", "-s", "bm25", *options).returncode == 0
    assert json.loads((folder / "runs/papers/targets.json").read_text()) == TARGETS
    result = run_ragauge(folder, "evaluate", "runs/papers", "-m", "dr@2", "-C", "swarm")
    assert "convention swarm, targets=map" in result.stderr


def test_read_judgments_folder_with_two_target_maps_is_refused(folder):
    (folder / "papers" / "targets.json").write_text("{}")
    with pytest.raises(ragauge.BadInput, match=r"two target maps: targets\.json and targets\.tsv"):
        readers.read_judgments(folder / "papers")


def test_compare_targets_of_computed_scores_raise_error(folder):
    scores = ragauge.evaluate_runs(GRADES, {"a": NARROW, "b": WIDE}, ["mrr"])
    with pytest.raises(ragauge.BadInput, match="a target map has no effect on scores that are computed already"):
        ragauge.compare(scores, targets=TARGETS)
    (folder / "s.csv").write_text("query,mrr\nq1,0.5\n")
    result = run_ragauge(folder, "compare", "s.csv", "s.csv", "--targets", "papers/targets.tsv")
    assert "a target map does not apply to scores that are computed already" in result.stderr


@pytest.mark.parametrize("doc", [{"a": 1}, ["d1"]])
def test_read_targets_jsonl_id_that_is_no_text_raises(tmp_path, doc):
    path = tmp_path / "targets.jsonl"
    path.write_text(json.dumps({"doc_id": doc, "targets": ["x"]}) + "\n")
    with pytest.raises(ragauge.BadInput, match=r"targets\.jsonl:1: doc_id must be a text or a number"):
        readers.read_targets(str(path))
