"""`ragauge embedders`: tables, files, invalid input, failing embedders, and resuming after a kill."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from command import command_in
from ragauge.cli.app import build_app
from ragauge.core.errors import RagaugeError
from waiting import wait_while_running

DATA = "synthetic:needles(documents=60, queries=8)"
SMALL = "small=words(dimensions=32)"
LARGE = "words(dimensions=256)"


@pytest.fixture
def ragauge(tmp_path):
    """Run the command in a separate process."""
    return command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "cache"))


@pytest.fixture
def run_in_process(tmp_path, monkeypatch):
    """Run the command in this process, where the libraries are already imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "cache"))

    def invoke(*arguments):
        done = CliRunner().invoke(build_app(), list(map(str, arguments)))
        if done.exception is not None:
            raise done.exception
        return done

    return invoke


@pytest.mark.torch
def test_embedders_prints_table_and_writes_files(ragauge, tmp_path):
    done = ragauge("embedders", DATA, "-e", SMALL, "-e", LARGE, "--quick", "-o", "page.html", "-o", "all.json")
    assert max(map(len, done.stdout.splitlines())) <= 1000
    assert "small" in done.stdout
    assert "bm25" in done.stdout
    assert "wrote page.html" in done.stderr
    assert "small: opening" in done.stderr
    assert "<script" in (tmp_path / "page.html").read_text()
    assert json.loads((tmp_path / "all.json").read_text())["schema"] == "ragauge-embedders/2"


def test_embedders_json_has_every_part_without_nan(run_in_process):
    data = json.loads(
        run_in_process(
            "embedders", DATA, "-e", SMALL, "--quick", "--sizes", "20,40", "--perturb", "drop,upper-case", "--json"
        ).stdout,
        parse_constant=lambda name: pytest.fail(f"{name} is not valid JSON"),
    )
    names = [one["name"] for one in data["embedders"]]
    assert names == ["small", "bm25", "chance"]
    small = data["embedders"][0]
    assert [one["documents"] for one in small["corpus_sizes"]] == [20, 40, 60]
    assert [one["name"] for one in small["perturbed"]] == ["drop", "upper case"]
    assert small["compressed"] == []
    assert small["memory_bytes"] is None
    assert [one["store"] for one in small["stores"]] == ["exact"]
    assert (data["context"], data["baseline"], data["queries"]) == (512, "bm25", 8)
    assert data["provenance"]["plan"]["seed"] == 0


def test_embedders_csv_has_row_per_embedder_or_study_columns(run_in_process, tmp_path):
    rows = list(csv.DictReader(io.StringIO(run_in_process("embedders", DATA, "-e", SMALL, "--quick", "--csv").stdout)))
    assert [row["embedder"] for row in rows] == ["small", "bm25", "chance"]
    run_in_process("embedders", DATA, "-e", SMALL, "--quick", "--format", "tokenization", "-o", "study.csv")
    with (tmp_path / "study.csv").open() as file:
        study = list(csv.DictReader(file))
    assert {row["model"] for row in study} >= {"small"}
    small_row = next(row for row in study if row["model"] == "small")
    assert small_row["num_queries"] == "8"
    assert 0 <= float(small_row["mrr"]) <= 1
    assert float(small_row["avg_total_ms"]) >= float(small_row["avg_embedding_ms"]) > 0
    assert small_row["recall@15"] != ""


def test_embedders_out_folder_is_read_by_compare_and_report(run_in_process, tmp_path):
    run_in_process("embedders", DATA, "-e", SMALL, "--quick", "--out", "study")
    assert {one.name for one in (tmp_path / "study").iterdir()} == {
        "small", "bm25", "chance", "measurements", "study.json", "report.html", "judgments.parquet", "queries.parquet",
        "experiment.json", "targets.json",
    }  # fmt: skip
    assert "<script" in (tmp_path / "study" / "report.html").read_text()
    again = run_in_process("embedders", DATA, "-e", SMALL, "--quick", "--out", "study")
    assert "study has report.html, study.json, and the rankings as runs" in again.stderr
    assert "small: reused; made 20" in again.stderr
    assert "small" in run_in_process("compare", "study").stdout
    shown = run_in_process("report", "study/study.json", "-o", "page.html")
    assert (tmp_path / "page.html").exists(), shown.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-e", "minilmm"], "unknown embedder `minilmm`"),
        (["-e", "words", "--perturb", "keybord"], "unknown perturbation `keybord`"),
        (["-e", "words", "--sizes", "many"], "--sizes must be numbers separated by commas, or none, got `many`"),
        (["-e", "words", "--store", "exakt"], "unknown store `exakt`"),
        (["-e", "words", "-m", "ndgc@10"], "unknown measure `ndgc@10`"),
        (["-e", "words", "--context", "-1"], "--context must be at least 0, got -1"),
        (["-e", "words", "-o", "page.xyz"], "page.xyz"),
        (["-e", "words", "--json", "--csv"], "are mutually exclusive"),
        (["-e", "words", "--part", "titel"], "unknown part `titel` of a document"),
        (["-e", "words(size=3)"], "size"),
    ],
)
def test_embedders_invalid_input_raises_one_line_error(run_in_process, arguments, message):
    with pytest.raises(RagaugeError) as error:
        run_in_process("embedders", DATA, *arguments)
    assert message in error.value.message
    assert error.value.exit_code == 2
    assert "\n" not in error.value.message


def test_embedders_failing_embedder_is_reported_and_others_are_kept(run_in_process, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run_in_process("embedders", DATA, "-e", SMALL, "-e", "bad=openai", "--quick", "--json")
    data = json.loads(done.stdout)
    assert "OPENAI_API_KEY" in data["failures"]["bad"]
    assert [one["name"] for one in data["embedders"]] == ["small", "bm25", "chance"]


@pytest.mark.crash
def test_embedders_killed_process_resumes(ragauge, tmp_path):
    arguments = ["embedders", "synthetic:needles(documents=400, queries=20)", "-e", SMALL, "-e", LARGE]
    arguments += ["--store", "exact", "--out", "study", "--perturb", "drop", "--no-memory"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ragauge", *arguments],
        cwd=tmp_path,
        env={**os.environ, "RAGAUGE_CACHE": str(tmp_path / "cache")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        measurements = tmp_path / "study" / "measurements"
        wait_while_running(process, lambda: list(measurements.glob("*.json")), "the first embedder is done")
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    finished = len(list(measurements.glob("*.json")))
    assert finished >= 1
    done = ragauge(*arguments, "--json", "--verbose")
    assert done.stderr.count(": reused; made ") == finished
    assert [one["name"] for one in json.loads(done.stdout)["embedders"]] == ["small", LARGE, "bm25", "chance"]
    assert ragauge(*arguments, "--json", "--verbose").stderr.count(": reused; made ") == 4
