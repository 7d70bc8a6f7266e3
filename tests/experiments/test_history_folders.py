"""Result folders of a history: found at any depth, read, or skipped with a reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import pytest

from ragauge.compute.progress import Progress
from ragauge.core.errors import BadInput
from ragauge.core.hashes import hash_judgments
from ragauge.experiments.history import history, rescoring
from ragauge.experiments.history.run_folders import MAX_FOLDER_DEPTH, find_experiment_folders
from ragauge.files.readers import read_judgments
from result_folders import OLD_TIME_NS, make_run_folder, make_system, set_file_times

GOOD, WORSE = [1] * 30, [2] * 30


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Create two result folders for all tests of the module."""
    folder = tmp_path_factory.mktemp("results")
    make_run_folder(folder / "a", {"mine": make_system(GOOD)}, day=1)
    make_run_folder(folder / "b", {"mine": make_system(WORSE)}, day=2)
    return folder


@pytest.fixture
def runs(results, tmp_path):
    """Copy the result folders for a test that changes them; copies keep their modification times."""
    return shutil.copytree(results, tmp_path / "runs")


def list_means(folder, **options):
    return [point.mean.value for point in history(folder, measures="mrr@10", **options).points]


def test_history_new_system_in_known_folder_is_included(runs):
    list_means(runs)
    shutil.copytree(runs / "a" / "mine", runs / "a" / "other")
    manifest = json.loads((runs / "a" / "other" / "manifest.json").read_text())
    manifest["system"]["name"] = "other"
    (runs / "a" / "other" / "manifest.json").write_text(json.dumps(manifest))
    result = history(runs, measures="mrr@10")
    assert result.systems == ["mine", "other"]
    assert result.series("other", "mrr@10")[0].mean.value == 1.0  # scored from its run: scores.csv does not contain it


def test_history_manifest_without_time_is_skipped_until_repaired(runs):
    manifest = runs / "b" / "mine" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"finished"', '"finishes"'))
    set_file_times(runs / "b")
    result = history(runs)
    assert result.skipped == {str(manifest.parent): f"{manifest}: has no valid time at which the run finished"}
    manifest.write_text(text)
    set_file_times(runs / "b")
    assert list_means(runs) == [1.0, 0.5]


def test_find_experiment_folders_searches_all_depths_except_hidden(runs, tmp_path):
    deep = tmp_path / "one" / "two" / "three"
    shutil.copytree(runs, deep)
    shutil.copytree(runs / "a", tmp_path / "one" / ".hidden" / "a")
    folders, skipped = find_experiment_folders([tmp_path / "one"])
    assert set(folders) == {str(deep / "a"), str(deep / "b")}
    assert skipped == {}


def test_find_experiment_folders_accepts_nested_results(runs):
    shutil.move(runs / "b", runs / "a" / "later")
    assert set(find_experiment_folders([runs])[0]) == {str(runs / "a"), str(runs / "a" / "later")}


def test_find_experiment_folders_too_deep_folder_is_skipped_with_reason(runs, tmp_path):
    deep = tmp_path / "deep"
    results_folder = deep.joinpath(*["x"] * (MAX_FOLDER_DEPTH + 1))
    shutil.copytree(runs, results_folder)
    folders, skipped = find_experiment_folders([deep])
    assert folders == {}
    assert list(skipped.values()) == [f"its subfolders are more than {MAX_FOLDER_DEPTH} levels deep"]


def test_find_experiment_folders_ignores_symlink_cycles_and_duplicates(runs):
    (runs / "a" / "back").symlink_to(runs, target_is_directory=True)
    (runs / "again").symlink_to(runs / "b", target_is_directory=True)
    (runs / "nowhere").symlink_to(runs / "nothing")
    folders, skipped = find_experiment_folders([runs, runs / "b"])
    assert len(folders) == 2
    assert skipped == {}
    assert len(list_means(runs)) == 2


def test_history_symlink_to_run_is_included(runs):
    """Several experiments can share a baseline that is stored once."""
    (runs / "a" / "base").symlink_to(runs / "b" / "mine", target_is_directory=True)
    assert len(history(runs, measures="mrr@10").points) == 3


def test_find_experiment_folders_unreadable_folder_is_skipped_with_reason(runs):
    parent = Path(tempfile.mkdtemp())
    user = os.geteuid()
    shutil.copytree(runs, parent / "runs")
    for folder in (parent, parent / "runs", parent / "runs" / "a", parent / "runs" / "a" / "mine"):
        folder.chmod(0o755)
    (parent / "runs" / "b").chmod(0)
    try:
        if user == 0:
            os.seteuid(65534)  # root can read every folder
        folders, skipped = find_experiment_folders([parent / "runs"])
    finally:
        os.seteuid(user)
        (parent / "runs" / "b").chmod(0o755)
        shutil.rmtree(parent)
    assert set(folders) == {str(parent / "runs" / "a")}
    assert skipped == {str(parent / "runs" / "b"): "cannot be read (Permission denied)"}


def test_history_folder_without_judgments_is_skipped_with_reason(runs):
    (runs / "b" / "judgments.parquet").unlink()
    result = history(runs, measures="mrr@10")
    assert [point.mean.value for point in result.points] == [1.0]
    assert "no judgments.parquet" in result.skipped[str(runs / "b")]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("scores.csv", "run,query\n1,2\n", "scores.csv: is corrupt or incomplete"),
        ("scores.csv", "run,query,measure,value\nmine,q0,mrr@10,high\n", "scores.csv: is corrupt or incomplete"),
        (
            "scores.csv",
            "run,query,measure,value\nmine,q0,mrr@10,inf\n",
            "is corrupt or incomplete (mrr@10 of mine is infinite)",
        ),
        ("scores.csv", "run,query,measure,value\nmine,q0,mrr@10,1\nmine,q0,mrr@10,1\n", "has duplicate queries"),
        ("scores.csv", "run,query,measure,value\n,q0,mrr@10,1\n", "a value without run, measure or query"),
        ("scores.csv", "run,query,measure,value,trial\nm,q,mrr,1,1\nm,q,mrr,1,1\n", "duplicate values"),
        ("judgments.parquet", "nonsense", "judgments.parquet: cannot be read"),
        ("experiment.json", "{", "experiment.json: is corrupt or incomplete"),
        ("mine/manifest.json", "[]", "manifest.json: is corrupt or incomplete (expected an object)"),
        ("mine/manifest.json", "{", "manifest.json: is corrupt or incomplete"),
        ("mine/manifest.json", '{"finished": "yesterday"}', "has no valid time at which the run finished"),
        ("mine/manifest.json", '{"finished": "2026-11-01", "plan": 3}', "manifest.json: is corrupt or incomplete"),
    ],
)
def test_history_corrupt_folder_is_skipped_with_reason(runs, file, text, message):
    (runs / "b" / file).write_text(text)
    set_file_times(runs / "b")
    result = history(runs, measures="mrr@10")
    assert [point.mean.value for point in result.points] == [1.0]
    assert message in "".join(result.skipped.values())


def test_history_odd_values_and_names_are_accepted(runs):
    (runs / "a" / "experiment.json").write_text('{"measures": 3, "convention": ["x"]}')
    manifest = json.loads((runs / "b" / "mine" / "manifest.json").read_text())
    manifest["machine"] = {"memory_bytes": 1e999, "cores": None, "processor": ["x"]}
    manifest["plan"] = {"k": "ten"}
    manifest["dataset"] = {"name": None, "documents": "many", "queries": [1]}
    (runs / "b" / "mine" / "manifest.json").write_text(json.dumps(manifest))
    shutil.move(runs / "a", runs / "[a]*\n")
    os.mkdir(os.fsencode(runs) + b"/\xff")
    set_file_times(runs)
    result = history(runs, measures=["mrr@10", "p95_ms"])
    assert [point.mean.value for point in result.points if point.measure == "mrr@10"] == [1.0, 0.5]
    assert list(result.skipped.values()) == ["its name is not UTF-8"]
    second = history(runs, measures=["mrr@10", "p95_ms"])
    assert second.points == result.points


def test_history_only_unreadable_folders_raises_first_reason(runs):
    (runs / "b" / "scores.csv").write_text("nonsense")
    set_file_times(runs / "b")
    with pytest.raises(
        BadInput, match=r"no readable result of `ragauge run` in .*scores.csv: is corrupt or incomplete"
    ):
        history(runs / "b")


def test_history_rescores_run_newer_than_its_scores(runs):
    """If a run was repeated and interrupted before scoring, scores.csv still has the scores of the previous run."""
    shutil.copy2(runs / "a" / "mine" / "run.parquet", runs / "b" / "mine" / "run.parquet")
    assert list_means(runs) == [1.0, 0.5]
    time_ns = OLD_TIME_NS + 5 * 10**9
    os.utime(runs / "b" / "mine" / "run.parquet", ns=(time_ns, time_ns))
    assert list_means(runs) == [1.0, 1.0]


def test_history_corrupt_run_is_skipped_only_when_rescored(runs):
    (runs / "b" / "mine" / "run.parquet").write_text("nonsense")
    set_file_times(runs / "b")
    assert list_means(runs) == [1.0, 0.5]  # scores.csv has its scores
    result = history(runs, measures="ndcg@3")
    assert len(result.points) == 1
    assert list(result.skipped) == [str(runs / "b" / "mine")]


def test_history_corrupt_timings_do_not_affect_measures(runs):
    (runs / "b" / "mine" / "timings.parquet").write_text("nonsense")
    set_file_times(runs / "b")
    result = history(runs, measures=["p95_ms", "mrr@10"])
    assert [point.measure for point in result.points] == ["p95_ms", "mrr@10", "mrr@10"]
    assert "timings.parquet: cannot be read" in result.skipped[str(runs / "b" / "mine")]


def test_history_scores_of_several_trials_are_averaged(runs):
    table = pl.read_csv(runs / "b" / "scores.csv")
    trials = [table.with_columns(pl.lit(i).alias("trial"), pl.col("value") + i / 10) for i in (0, 1)]
    pl.concat(trials).write_csv(runs / "b" / "scores.csv")
    set_file_times(runs / "b")
    point = history(runs, measures="mrr@10").points[1]
    assert (point.mean.value, point.mean.n) == (pytest.approx(0.55), 30)


def test_history_unknown_convention_adds_note(runs):
    (runs / "b" / "experiment.json").unlink()
    set_file_times(runs / "b")
    result = history(runs, measures="mrr@10")
    assert result.points[1].changed == ""
    assert result.notes == ["unknown convention of the scores in 1 folder"]


def test_history_unknown_convention_is_skipped_only_when_rescored(runs):
    (runs / "b" / "experiment.json").write_text('{"convention": "default(ties=given)", "measures": ["mrr@10"]}')
    set_file_times(runs / "b")
    assert list_means(runs) == [1.0, 0.5]
    assert "which cannot be reconstructed from its name" in "".join(history(runs, measures="ndcg@3").skipped.values())


def test_history_rescoring_in_blocks_equals_rescoring_at_once(runs, monkeypatch):
    options = {"measures": ["ndcg@3", "map"]}
    expected = history(runs, **options).points
    monkeypatch.setattr(rescoring, "MAX_WHOLE_READ_BYTES", 0)
    assert history(runs, **options).points == expected


def test_history_equal_runs_with_different_judgments_are_scored_separately(runs):
    shutil.copytree(runs / "a", runs / "c")
    grades = pl.read_parquet(runs / "c" / "judgments.parquet")
    grades.with_columns(pl.col("relevance") * 0).write_parquet(runs / "c" / "judgments.parquet")
    for path in (runs / "c").glob("*/manifest.json"):
        manifest = json.loads(path.read_text())
        manifest["judgments_hash"] = hash_judgments(read_judgments(runs / "c"))
        path.write_text(json.dumps(manifest))
    set_file_times(runs / "c")
    (runs / "c" / "scores.csv").unlink()
    result = history(runs, measures="ndcg@3")
    values = {os.path.basename(point.folder): point.mean.value for point in result.points}
    assert (values["a"], values["c"]) == (1.0, 0.0)


def test_history_reports_progress_of_each_step(runs):
    steps = []
    history(runs, measures="ndcg@3", progress=steps.append)
    assert [step for step in steps if step.action != "comparing"] == [
        Progress(action, done, 2) for action in ("reading", "scoring") for done in (0, 1, 2)
    ]
    assert {step.total for step in steps if step.action == "comparing"} == {3}


def test_cli_interrupted_history_exits_with_130(runs):
    code = (
        "import os, signal, sys, ragauge.experiments.history.rescoring as again\n"
        "from ragauge.cli import main\n"
        "kept = again.score_judged_ranks\n"
        "def score(*how):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return kept(*how)\n"
        "again.score_judged_ranks = score\n"
        "sys.argv = ['ragauge', 'history', 'runs', '-m', 'ndcg@3']\n"
        "main()\n"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=runs.parent, capture_output=True, text=True, check=False)
    assert process.returncode == 130
    assert process.stderr.endswith("\nstopped at scoring (0 of 2)\n")
