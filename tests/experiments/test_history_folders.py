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
from result_folders import LONG_AGO, made, ranked, settle

GOOD, WORSE = [1] * 30, [2] * 30


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Create two result folders for all tests of the module."""
    folder = tmp_path_factory.mktemp("results")
    made(folder / "a", {"mine": ranked(GOOD)}, day=1)
    made(folder / "b", {"mine": ranked(WORSE)}, day=2)
    return folder


@pytest.fixture
def runs(results, tmp_path):
    """Copy the result folders for a test that changes them; copies keep their modification times."""
    return shutil.copytree(results, tmp_path / "runs")


def means(folder, **how):
    return [one.mean.value for one in history(folder, measures="mrr@10", **how).points]


def test_history_new_system_in_known_folder_is_included(runs):
    means(runs)
    shutil.copytree(runs / "a" / "mine", runs / "a" / "other")
    about = json.loads((runs / "a" / "other" / "manifest.json").read_text())
    about["system"]["name"] = "other"
    (runs / "a" / "other" / "manifest.json").write_text(json.dumps(about))
    found = history(runs, measures="mrr@10")
    assert found.systems == ["mine", "other"]
    assert found.series("other", "mrr@10")[0].mean.value == 1.0  # scored from its run: scores.csv does not contain it


def test_history_manifest_without_time_is_skipped_until_repaired(runs):
    manifest = runs / "b" / "mine" / "manifest.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"finished"', '"finishes"'))
    settle(runs / "b")
    found = history(runs)
    assert found.skipped == {str(manifest.parent): f"{manifest}: has no valid time at which the run finished"}
    manifest.write_text(whole)
    settle(runs / "b")
    assert means(runs) == [1.0, 0.5]


def test_find_experiment_folders_searches_all_depths_except_hidden(runs, tmp_path):
    deep = tmp_path / "one" / "two" / "three"
    shutil.copytree(runs, deep)
    shutil.copytree(runs / "a", tmp_path / "one" / ".hidden" / "a")
    found, skipped = find_experiment_folders([tmp_path / "one"])
    assert set(found) == {str(deep / "a"), str(deep / "b")}
    assert skipped == {}


def test_find_experiment_folders_accepts_nested_results(runs):
    shutil.move(runs / "b", runs / "a" / "later")
    assert set(find_experiment_folders([runs])[0]) == {str(runs / "a"), str(runs / "a" / "later")}


def test_find_experiment_folders_too_deep_folder_is_skipped_with_reason(runs, tmp_path):
    deep = tmp_path / "deep"
    place = deep.joinpath(*["x"] * (MAX_FOLDER_DEPTH + 1))
    shutil.copytree(runs, place)
    found, skipped = find_experiment_folders([deep])
    assert found == {}
    assert list(skipped.values()) == [f"its subfolders are more than {MAX_FOLDER_DEPTH} levels deep"]


def test_find_experiment_folders_ignores_symlink_cycles_and_duplicates(runs):
    (runs / "a" / "back").symlink_to(runs, target_is_directory=True)
    (runs / "again").symlink_to(runs / "b", target_is_directory=True)
    (runs / "nowhere").symlink_to(runs / "nothing")
    found, skipped = find_experiment_folders([runs, runs / "b"])
    assert len(found) == 2
    assert skipped == {}
    assert len(means(runs)) == 2


def test_history_symlink_to_run_is_included(runs):
    """Several experiments can share a baseline that is stored once."""
    (runs / "a" / "base").symlink_to(runs / "b" / "mine", target_is_directory=True)
    assert len(history(runs, measures="mrr@10").points) == 3


def test_find_experiment_folders_unreadable_folder_is_skipped_with_reason(runs):
    open_to_all = Path(tempfile.mkdtemp())
    user = os.geteuid()
    shutil.copytree(runs, open_to_all / "runs")
    for folder in (open_to_all, open_to_all / "runs", open_to_all / "runs" / "a", open_to_all / "runs" / "a" / "mine"):
        folder.chmod(0o755)
    (open_to_all / "runs" / "b").chmod(0)
    try:
        if user == 0:
            os.seteuid(65534)  # root can read every folder
        found, skipped = find_experiment_folders([open_to_all / "runs"])
    finally:
        os.seteuid(user)
        (open_to_all / "runs" / "b").chmod(0o755)
        shutil.rmtree(open_to_all)
    assert set(found) == {str(open_to_all / "runs" / "a")}
    assert skipped == {str(open_to_all / "runs" / "b"): "cannot be read (Permission denied)"}


def test_history_folder_without_judgments_is_skipped_with_reason(runs):
    (runs / "b" / "judgments.parquet").unlink()
    found = history(runs, measures="mrr@10")
    assert [one.mean.value for one in found.points] == [1.0]
    assert "no judgments.parquet" in found.skipped[str(runs / "b")]


@pytest.mark.parametrize(
    ("file", "text", "told"),
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
def test_history_corrupt_folder_is_skipped_with_reason(runs, file, text, told):
    (runs / "b" / file).write_text(text)
    settle(runs / "b")
    found = history(runs, measures="mrr@10")
    assert [one.mean.value for one in found.points] == [1.0]
    assert told in "".join(found.skipped.values())


def test_history_odd_values_and_names_are_accepted(runs):
    (runs / "a" / "experiment.json").write_text('{"measures": 3, "convention": ["x"]}')
    about = json.loads((runs / "b" / "mine" / "manifest.json").read_text())
    about["machine"] = {"memory_bytes": 1e999, "cores": None, "processor": ["x"]}
    about["plan"] = {"k": "ten"}
    about["dataset"] = {"name": None, "documents": "many", "queries": [1]}
    (runs / "b" / "mine" / "manifest.json").write_text(json.dumps(about))
    shutil.move(runs / "a", runs / "[a]*\n")
    os.mkdir(os.fsencode(runs) + b"/\xff")
    settle(runs)
    found = history(runs, measures=["mrr@10", "p95_ms"])
    assert [one.mean.value for one in found.points if one.measure == "mrr@10"] == [1.0, 0.5]
    assert list(found.skipped.values()) == ["its name is not UTF-8"]
    again = history(runs, measures=["mrr@10", "p95_ms"])
    assert again.points == found.points


def test_history_only_unreadable_folders_raises_first_reason(runs):
    (runs / "b" / "scores.csv").write_text("nonsense")
    settle(runs / "b")
    with pytest.raises(
        BadInput, match=r"no readable result of `ragauge run` in .*scores.csv: is corrupt or incomplete"
    ):
        history(runs / "b")


def test_history_rescores_run_newer_than_its_scores(runs):
    """If a run was repeated and interrupted before scoring, scores.csv still has the scores of the previous run."""
    shutil.copy2(runs / "a" / "mine" / "run.parquet", runs / "b" / "mine" / "run.parquet")
    assert means(runs) == [1.0, 0.5]
    later = LONG_AGO + 5 * 10**9
    os.utime(runs / "b" / "mine" / "run.parquet", ns=(later, later))
    assert means(runs) == [1.0, 1.0]


def test_history_corrupt_run_is_skipped_only_when_rescored(runs):
    (runs / "b" / "mine" / "run.parquet").write_text("nonsense")
    settle(runs / "b")
    assert means(runs) == [1.0, 0.5]  # scores.csv has its scores
    found = history(runs, measures="ndcg@3")
    assert len(found.points) == 1
    assert list(found.skipped) == [str(runs / "b" / "mine")]


def test_history_corrupt_timings_do_not_affect_measures(runs):
    (runs / "b" / "mine" / "timings.parquet").write_text("nonsense")
    settle(runs / "b")
    found = history(runs, measures=["p95_ms", "mrr@10"])
    assert [one.measure for one in found.points] == ["p95_ms", "mrr@10", "mrr@10"]
    assert "timings.parquet: cannot be read" in found.skipped[str(runs / "b" / "mine")]


def test_history_scores_of_several_trials_are_averaged(runs):
    table = pl.read_csv(runs / "b" / "scores.csv")
    trials = [table.with_columns(pl.lit(i).alias("trial"), pl.col("value") + i / 10) for i in (0, 1)]
    pl.concat(trials).write_csv(runs / "b" / "scores.csv")
    settle(runs / "b")
    point = history(runs, measures="mrr@10").points[1]
    assert (point.mean.value, point.mean.n) == (pytest.approx(0.55), 30)


def test_history_unknown_convention_adds_note(runs):
    (runs / "b" / "experiment.json").unlink()
    settle(runs / "b")
    found = history(runs, measures="mrr@10")
    assert found.points[1].changed == ""
    assert found.notes == ["unknown convention of the scores in 1 folder"]


def test_history_unknown_convention_is_skipped_only_when_rescored(runs):
    (runs / "b" / "experiment.json").write_text('{"convention": "default(ties=given)", "measures": ["mrr@10"]}')
    settle(runs / "b")
    assert means(runs) == [1.0, 0.5]
    assert "which cannot be reconstructed from its name" in "".join(history(runs, measures="ndcg@3").skipped.values())


def test_history_rescoring_in_blocks_equals_rescoring_at_once(runs, monkeypatch):
    how = {"measures": ["ndcg@3", "map"]}
    at_once = history(runs, **how).points
    monkeypatch.setattr(rescoring, "MAX_WHOLE_READ_BYTES", 0)
    assert history(runs, **how).points == at_once


def test_history_equal_runs_with_different_judgments_are_scored_separately(runs):
    shutil.copytree(runs / "a", runs / "c")
    grades = pl.read_parquet(runs / "c" / "judgments.parquet")
    grades.with_columns(pl.col("relevance") * 0).write_parquet(runs / "c" / "judgments.parquet")
    for path in (runs / "c").glob("*/manifest.json"):
        about = json.loads(path.read_text())
        about["judgments_hash"] = hash_judgments(read_judgments(runs / "c"))
        path.write_text(json.dumps(about))
    settle(runs / "c")
    (runs / "c" / "scores.csv").unlink()
    found = history(runs, measures="ndcg@3")
    values = {os.path.basename(one.folder): one.mean.value for one in found.points}
    assert (values["a"], values["c"]) == (1.0, 0.0)


def test_history_reports_progress_of_each_step(runs):
    seen = []
    history(runs, measures="ndcg@3", progress=seen.append)
    assert [step for step in seen if step.action != "comparing"] == [
        Progress(action, done, 2) for action in ("reading", "scoring") for done in (0, 1, 2)
    ]
    assert {step.total for step in seen if step.action == "comparing"} == {3}


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
    done = subprocess.run([sys.executable, "-c", code], cwd=runs.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.endswith("\nstopped at scoring (0 of 2)\n")
