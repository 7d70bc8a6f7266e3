"""Saved baselines: the folder contains everything that a gate needs."""

from __future__ import annotations

import json
import re
import shutil

import pytest

import ragauge
from command import command_in
from ragauge import BadInput

SMALL = "synthetic:needles(documents=30, queries=10)"


@pytest.fixture(scope="module")
def saved_baseline(tmp_path_factory):
    """Run a system and save a baseline; return the folder and the command result."""
    folder = tmp_path_factory.mktemp("saved")
    process = command_in(folder)(
        "run", SMALL, "-s", "mine=bm25", "-m", "recall@5", "-o", "runs", "--save-baseline", "base"
    )
    return folder, process


@pytest.mark.slow
def test_save_baseline_copied_folder_is_accepted_by_gate(saved_baseline, tmp_path):
    folder, process = saved_baseline
    assert "saved the baseline base/ (mine); use it with `ragauge gate RUN --baseline base/mine …`" in process.stderr
    files = {str(file.relative_to(folder / "base")) for file in (folder / "base").rglob("*") if file.is_file()}
    runs = {"mine/manifest.json", "mine/run.parquet", "mine/timings.parquet"}
    assert files == {"experiment.json", "judgments.parquet", "queries.parquet", "targets.json", *runs}
    shutil.copytree(folder / "base", tmp_path / "copied")
    for baseline in ("copied/mine", "copied"):
        gate_result = command_in(tmp_path)(
            "gate", folder / "runs" / "mine", "-b", baseline, "-r", "recall@5 drop <= 0.01"
        )
        assert re.search(r"1\.0000 +\+0\.0000", gate_result.stdout)


def test_gate_run_folder_without_judgments_suggests_save_baseline(saved_baseline, tmp_path):
    folder, _ = saved_baseline
    shutil.copytree(folder / "runs" / "mine", tmp_path / "copied" / "mine")
    process = command_in(tmp_path)(
        "gate", folder / "runs" / "mine", "-b", "copied/mine", "-r", "recall@5 drop <= 0", code=2
    )
    assert "no judgments.parquet in " in process.stderr
    assert "--save-baseline FOLDER" in process.stderr


def test_run_save_baseline_existing_folder_raises_error_before_run(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import pathlib\n\ndef search(query, k):\n    pathlib.Path('calls').touch()\n    return ['d1']\n"
    )
    arguments = ["run", SMALL, "-s", "mine=mine:search", "-m", "recall@5", "--save-baseline", "base"]
    ragauge.save_baseline(ragauge.run(SMALL, {"mine": "bm25"}, measures=["recall@5"]), tmp_path / "base")
    process = command_in(tmp_path)(*arguments, code=2)
    assert "base: a baseline is saved here already; expected a new folder" in process.stderr
    assert "hint: to replace the baseline, delete its folder first" in process.stderr
    assert not (tmp_path / "calls").exists()


def test_save_baseline_existing_files_raises_error(saved_baseline, tmp_path):
    result = ragauge.run(SMALL, {"a": "bm25", "b": "bm25(b=0)"}, measures=["recall@5"])
    ragauge.save_baseline(result, tmp_path / "base")
    other = ragauge.run(SMALL, {"b": "bm25"}, measures=["recall@5"], out=tmp_path / "runs")
    with pytest.raises(BadInput, match="a baseline is saved here already"):
        ragauge.save_baseline(other, tmp_path / "base")
    assert sorted(path.name for path in (tmp_path / "base").iterdir() if path.is_dir()) == ["a", "b"]
    manifest = json.loads((tmp_path / "base" / "b" / "manifest.json").read_text())
    assert manifest["system"]["description"] == "bm25(b=0)"
    gate = ragauge.gate(result, "recall@5 not worse", system="b", baseline=tmp_path / "base" / "b")
    assert gate.passed
    with pytest.raises(BadInput, match="folder of its own"):
        ragauge.save_baseline(other, tmp_path / "runs")
    folder, _ = saved_baseline
    with pytest.raises(BadInput, match="holds other files"):
        ragauge.save_baseline(other, folder / "runs")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds other files"):
        ragauge.save_baseline(other, tmp_path)


def test_save_baseline_failed_system_raises_error(tmp_path):
    def failing(query, k):
        raise ConnectionError("down")

    (tmp_path / "mine.py").write_text("def search(query, k):\n    raise ConnectionError('down')\n")
    arguments = ["run", SMALL, "-s", "mine=mine:search", "-m", "recall@5", "--save-baseline", "base"]
    process = command_in(tmp_path)(*arguments, code=3)
    assert "10 of 10 queries failed" in process.stderr
    assert not (tmp_path / "base").exists()
    result = ragauge.run(SMALL, {"mine": failing, "bm25": "bm25"}, measures=["recall@5"], allow_failures=True)
    with pytest.raises(BadInput, match="the baseline was not saved: mine: 10 of 10 queries failed"):
        ragauge.save_baseline(result, tmp_path / "base")


def test_gate_markdown_failed_rows_have_reasons(saved_baseline, tmp_path):
    folder, _ = saved_baseline
    command_in(tmp_path)(
        "gate", folder / "runs" / "mine", "-r", "mrr > 0.9999999", "-r", "queries >= 300", "-o", "m.md", code=1
    )
    text = (tmp_path / "m.md").read_text()
    failed = [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| **FAIL**")]
    reasons = re.findall(r"^\| (.+?) \| (.+) \|$", text.partition("## Reasons")[2].partition("## Notes")[0], re.M)
    assert failed
    assert [rule for rule, reason in reasons[1:] if reason.strip()] == failed
