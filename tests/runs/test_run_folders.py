"""Run folders: fewer queries do not overwrite a finished run, and folders with inconsistent files are rejected."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import replace
from importlib.metadata import packages_distributions, version
from pathlib import Path

import polars as pl
import pytest

import ragauge
from command import run_shell
from ragauge.core.errors import BadInput, InputWarning
from ragauge.core.records import Judgments
from ragauge.experiments.run import run
from ragauge.runs.folder import provenance
from ragauge.runs.inputs import Inputs
from ragauge.runs.journal import _decode_result
from result_folders import DATA, make_system

GOOD, BAD = make_system([1] * 30), make_system([1] * 5 + [4] * 25)


def run_line(line, cwd):
    return run_shell(line, cwd, {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"})


@pytest.fixture
def run_folder(tmp_path):
    path = tmp_path / "F"
    run(DATA, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=path, warmup=0)
    return path


def test_provenance_has_versions_of_every_declared_library():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [names for extra, names in project["optional-dependencies"].items() if extra != "dev"]
    declared = {re.match(r"[\w.-]+", text)[0].lower() for names in [project["dependencies"], *extras] for text in names}
    installed = {name.lower() for names in packages_distributions().values() for name in names}
    versions = provenance()["versions"]
    assert declared & installed <= {name.lower() for name in versions} | {"ragauge"}
    assert versions["faiss-cpu"] == version("faiss-cpu")
    assert "pytest" not in versions


def list_commands(run_folder):
    """List every command that reads a run folder, for the whole folder or one of its runs."""
    return [
        f"ragauge evaluate {run_folder}",
        f"ragauge compare {run_folder}",
        f"ragauge gate {run_folder}/bad -r 'mrr@10 >= 0.1'",
        f"ragauge gate {run_folder}/good -b {run_folder}/bad -r 'mrr@10 not worse'",
        f"ragauge report {run_folder}",
        f"ragauge audit {run_folder}",
    ]


def check_rejected(run_folder, message, selection=slice(None)):
    for command in list_commands(run_folder)[selection]:
        process = run_line(command, run_folder.parent)
        assert process.returncode == 2, (command, process.stdout, process.stderr)
        assert message in " ".join(process.stderr.split()), command


@pytest.mark.parametrize("systems", [{"new": GOOD}, {"good": GOOD, "new": GOOD}], ids=["new system", "both systems"])
def test_run_fewer_queries_keeps_finished_folder(run_folder, systems):
    before = {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
    assert not ragauge.gate(run_folder / "bad", "mrr@10 >= 0.9")
    with pytest.raises(BadInput, match="finished run of other queries; expected 5 queries of `small`, got 30") as error:
        run(DATA, systems, measures=["mrr@10"], out=run_folder, warmup=0, max_queries=5)
    assert "--out" in str(error.value)
    assert {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()} == before
    assert not ragauge.gate(run_folder / "bad", "mrr@10 >= 0.9")


def test_run_fresh_replaces_only_named_runs(run_folder):
    with pytest.raises(BadInput, match="bad: holds a finished run of other queries"):
        run(DATA, {"good": GOOD}, out=run_folder, warmup=0, max_queries=5, fresh=True)
    result = run(
        DATA, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=run_folder, warmup=0, max_queries=5, fresh=True
    )
    assert result.scores["bad"].means["mrr@10"] == 1.0
    failed = ragauge.gate(run_folder / "bad", "mrr@10 >= 0.9").failed
    assert "missing" in {check.rule.indicator.name for check in failed}


def test_run_other_judgments_next_to_other_runs_raise(run_folder):
    graded = {query: dict.fromkeys(docs, 2) for query, docs in DATA.judgments.nested.items()}
    data = replace(DATA, judgments=Judgments(graded))
    with pytest.raises(BadInput, match="bad: holds a finished run with other judgments than those of `small`"):
        run(data, {"good": GOOD}, out=run_folder, warmup=0)
    # Accepted: all runs of the folder are judged again.
    run(data, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=run_folder, warmup=0)
    assert Inputs.resolve(run_folder).qrels.nested == graded
    fewer = replace(DATA, judgments=Judgments(dict(list(graded.items())[:10])))
    with pytest.raises(BadInput, match="judgments of 30 queries, 20 of which `small` lacks"):
        run(fewer, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=run_folder, warmup=0)


@pytest.mark.slow
def test_run_folder_changed_judgments_are_rejected(run_folder):
    grades = pl.read_parquet(run_folder / "judgments.parquet")
    grades.head(5).write_parquet(run_folder / "judgments.parquet")
    check_rejected(run_folder, "made with other judgments")
    (run_folder.parent / "other.run").write_text("q1 Q0 d1 1 1 other\n")
    process = run_line(f"ragauge evaluate {run_folder} other.run", run_folder.parent)
    assert (process.returncode, "made with other judgments" in process.stderr) == (2, True)
    qrels = run_folder.parent / "qrels.parquet"
    grades.write_parquet(qrels)
    assert run_line(f"ragauge evaluate {qrels} {run_folder}/bad", run_folder.parent).returncode == 0


@pytest.mark.slow
def test_run_folder_truncated_manifest_is_rejected(run_folder):
    manifest = run_folder / "bad" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:200])
    check_rejected(run_folder, "manifest.json: is corrupt or incomplete")


@pytest.mark.parametrize("name", ["manifest.json", "run.parquet"])
@pytest.mark.slow
def test_run_folder_missing_file_is_rejected(run_folder, name):
    (run_folder / "bad" / name).unlink()
    check_rejected(run_folder, f"{name} of the finished run is missing")


@pytest.mark.slow
def test_run_folder_missing_or_truncated_judgments_are_rejected(run_folder):
    judgments = run_folder / "judgments.parquet"
    judgments.write_bytes(judgments.read_bytes()[:-20])
    for command in list_commands(run_folder):
        assert run_line(command, run_folder.parent).returncode == 2, command
    judgments.unlink()
    for command in list_commands(run_folder):
        assert run_line(command, run_folder.parent).returncode == 2, command


@pytest.mark.slow
def test_commands_note_unfinished_run(run_folder):
    def interrupted(query, k):
        if query.strip() == "word15":
            raise KeyboardInterrupt
        return GOOD(query, k)

    with pytest.raises(KeyboardInterrupt):
        run(DATA, {"half": interrupted}, measures=["mrr@10"], out=run_folder, warmup=0)
    message = "1 run is not finished and not included: half; repeat the command that started it to finish"
    with pytest.warns(InputWarning, match=message):
        assert sorted(Inputs.resolve(run_folder).run_sources) == ["bad", "good"]
    for command in ("evaluate", "compare", "report"):
        process = run_line(f"ragauge {command} {run_folder}", run_folder.parent)
        assert message in " ".join(process.stderr.split()), command


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("build_seconds", {}, "`build_seconds` of the manifest must be a number, got an object"),
        ("cold_ms", "fast", "`cold_ms` of the manifest must be a number, got a text"),
        ("plan", {"k": True}, "`plan.k` of the manifest must be an integer, got a truth value"),
        ("notes", "slow", "`notes` of the manifest must be a list, got a text"),
        ("notes", [1], "`notes` of the manifest are not texts"),
    ],
)
@pytest.mark.slow
def test_run_folder_manifest_with_wrong_type_is_rejected(run_folder, field, value, message):
    path = run_folder / "good" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    check_rejected(run_folder, message, slice(4, 5))


@pytest.mark.parametrize(("field", "value"), [("systems", 3), ("measures", "mrr"), ("failures", [])])
@pytest.mark.slow
def test_experiment_file_with_wrong_type_is_rejected(run_folder, field, value):
    path = run_folder / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    check_rejected(run_folder, "experiment.json: corrupt or incomplete", slice(0, 2))


@pytest.mark.parametrize("row", [["\ud800", 0, [], "", "ok"], ["q1", 0, [], "", "\ud800"]])
def test_decode_result_unpaired_surrogate_raises(row):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        _decode_result(row)
