"""Run folders: fewer queries do not overwrite a finished run, and folders with inconsistent files are rejected."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import polars as pl
import pytest

import ragauge
from command import typed as typed_in
from ragauge.core.errors import BadInput, InputWarning
from ragauge.core.records import Judgments
from ragauge.experiments import run
from ragauge.runs.inputs import Inputs
from ragauge.runs.journal import _decode_result
from result_folders import DATA, ranked

GOOD, BAD = ranked([1] * 30), ranked([1] * 5 + [4] * 25)


def typed(line, cwd):
    return typed_in(line, cwd, {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"})


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "F"
    run(DATA, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=place, warmup=0)
    return place


def commands(folder):
    """List every command that reads a run folder, for the whole folder or one of its runs."""
    return [
        f"ragauge evaluate {folder}",
        f"ragauge compare {folder}",
        f"ragauge gate {folder}/bad -r 'mrr@10 >= 0.1'",
        f"ragauge gate {folder}/good -b {folder}/bad -r 'mrr@10 not worse'",
        f"ragauge report {folder}",
        f"ragauge audit {folder}",
        f"ragauge history {folder.parent}",
    ]


def refused(folder, message, only=slice(None)):
    for command in commands(folder)[only]:
        done = typed(command, folder.parent)
        assert done.returncode == 2, (command, done.stdout, done.stderr)
        assert message in " ".join(done.stderr.split()), command


@pytest.mark.parametrize("systems", [{"new": GOOD}, {"good": GOOD, "new": GOOD}], ids=["another", "both"])
def test_run_fewer_queries_keeps_finished_folder(folder, systems):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not ragauge.gate(folder / "bad", "mrr@10 >= 0.9")
    with pytest.raises(BadInput, match="finished run of other queries; expected 5 queries of `small`, got 30") as error:
        run(DATA, systems, measures=["mrr@10"], out=folder, warmup=0, max_queries=5)
    assert "--out" in str(error.value)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert not ragauge.gate(folder / "bad", "mrr@10 >= 0.9")


def test_run_fresh_replaces_only_named_runs(folder):
    with pytest.raises(BadInput, match="bad: holds a finished run of other queries"):
        run(DATA, {"good": GOOD}, out=folder, warmup=0, max_queries=5, fresh=True)
    found = run(DATA, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=folder, warmup=0, max_queries=5, fresh=True)
    assert found.scores["bad"].means["mrr@10"] == 1.0
    assert "missing" in {check.rule.figure.name for check in ragauge.gate(folder / "bad", "mrr@10 >= 0.9").failed}


def test_run_other_judgments_next_to_other_runs_raise(folder):
    graded = {query: dict.fromkeys(docs, 2) for query, docs in DATA.judgments.nested.items()}
    data = replace(DATA, judgments=Judgments(graded))
    with pytest.raises(BadInput, match="bad: holds a finished run with other judgments than those of `small`"):
        run(data, {"good": GOOD}, out=folder, warmup=0)
    # Accepted: all runs of the folder are judged again.
    run(data, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=folder, warmup=0)
    assert Inputs.resolve(folder).qrels.nested == graded
    fewer = replace(DATA, judgments=Judgments(dict(list(graded.items())[:10])))
    with pytest.raises(BadInput, match="judgments of 30 queries, 20 of which `small` lacks"):
        run(fewer, {"good": GOOD, "bad": BAD}, measures=["mrr@10"], out=folder, warmup=0)


@pytest.mark.slow
def test_run_folder_changed_judgments_are_rejected(folder):
    grades = pl.read_parquet(folder / "judgments.parquet")
    grades.head(5).write_parquet(folder / "judgments.parquet")
    refused(folder, "made with other judgments")
    (folder.parent / "other.run").write_text("q1 Q0 d1 1 1 other\n")
    done = typed(f"ragauge evaluate {folder} other.run", folder.parent)
    assert (done.returncode, "made with other judgments" in done.stderr) == (2, True)
    qrels = folder.parent / "qrels.parquet"
    grades.write_parquet(qrels)
    assert typed(f"ragauge evaluate {qrels} {folder}/bad", folder.parent).returncode == 0


@pytest.mark.slow
def test_run_folder_truncated_manifest_is_rejected(folder):
    manifest = folder / "bad" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:200])
    refused(folder, "manifest.json: is corrupt or incomplete", slice(0, 6))
    done = typed(f"ragauge history {folder.parent} --json", folder.parent)
    assert "manifest.json" in json.dumps(json.loads(done.stdout)["skipped"])


@pytest.mark.parametrize("name", ["manifest.json", "run.parquet"])
@pytest.mark.slow
def test_run_folder_missing_file_is_rejected(folder, name):
    (folder / "bad" / name).unlink()
    refused(folder, f"{name} of the finished run is missing", slice(0, 6))
    assert "bad" in typed(f"ragauge history {folder.parent} --json", folder.parent).stdout


@pytest.mark.slow
def test_run_folder_missing_or_truncated_judgments_are_rejected(folder):
    judgments = folder / "judgments.parquet"
    judgments.write_bytes(judgments.read_bytes()[:-20])
    for command in commands(folder):
        assert typed(command, folder.parent).returncode == 2, command
    judgments.unlink()
    for command in commands(folder):
        assert typed(command, folder.parent).returncode == 2, command


@pytest.mark.slow
def test_commands_note_unfinished_run(folder):
    def stop(query, k):
        if query.strip() == "word15":
            raise KeyboardInterrupt
        return GOOD(query, k)

    with pytest.raises(KeyboardInterrupt):
        run(DATA, {"half": stop}, measures=["mrr@10"], out=folder, warmup=0)
    told = "1 run is not finished and not included: half; repeat the command that started it to finish"
    with pytest.warns(InputWarning, match=told):
        assert sorted(Inputs.resolve(folder).run_sources) == ["bad", "good"]
    for command in ("evaluate", "compare", "report"):
        done = typed(f"ragauge {command} {folder}", folder.parent)
        assert told in " ".join(done.stderr.split()), command


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("build_seconds", {}, "`build_seconds` of the manifest must be a number, got an object"),
        ("cold_ms", "fast", "`cold_ms` of the manifest must be a number, got a text"),
        ("plan", {"k": True}, "`plan.k` of the manifest must be an integer, got a truth value"),
        ("notes", "slow", "`notes` of the manifest must be a list, got a text"),
        ("notes", [1], "`notes` of the manifest are not texts"),
    ],
)
@pytest.mark.slow
def test_run_folder_manifest_with_wrong_type_is_rejected(folder, part, value, told):
    path = folder / "good" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: value}))
    refused(folder, told, slice(4, 5))


@pytest.mark.parametrize(("part", "value"), [("systems", 3), ("measures", "mrr"), ("failures", [])])
@pytest.mark.slow
def test_experiment_file_with_wrong_type_is_rejected(folder, part, value):
    path = folder / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), part: value}))
    refused(folder, "experiment.json: corrupt or incomplete", slice(0, 2))


@pytest.mark.parametrize("row", [["\ud800", 0, [], "", "ok"], ["q1", 0, [], "", "\ud800"]])
def test_decode_result_unpaired_surrogate_raises(row):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        _decode_result(row)
