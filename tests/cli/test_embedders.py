"""`ragauge embedders`: tables, files and invalid input."""

from __future__ import annotations

import json

import pytest

from command import command_in

DATA = "synthetic:needles(documents=60, queries=8)"
SMALL = "small=words(dimensions=32)"


@pytest.fixture
def ragauge(tmp_path):
    return command_in(tmp_path, RAGAUGE_CACHE=str(tmp_path / "cache"))


def test_embedders_prints_tables_and_writes_run_folder(ragauge, tmp_path):
    done = ragauge("embedders", DATA, "-e", SMALL, "-e", "words(dimensions=256)", "-o", "out", "-o", "all.json")
    for expected in ("bm25", "small", "words(dimensions=256)", "recall@1", "Embedders", "1.02 kB"):
        assert expected in done.stdout
    assert json.loads((tmp_path / "all.json").read_text())["schema"].startswith("ragauge-report/")
    shown = ragauge("report", "out", "--format", "wide").stdout.splitlines()
    assert "bytes_per_vector" in shown[0].split(",")
    assert "differ" in ragauge("compare", "out", "-b", "bm25").stdout.lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-e", "wordlama"], "did you mean `wordllama`"),
        (["-e", "minilm", "-e", "minilm"], "appears more than once"),
        (["-e", "words", "-b", "dense"], "unknown system `dense`"),
        (["-e", "words", "--store", "fais"], "did you mean `faiss`"),
        (["-e", "words", "--fresh", "--reuse"], "mutually exclusive"),
    ],
)
def test_embedders_invalid_input_prints_one_line_error(ragauge, arguments, message):
    assert message in ragauge("embedders", DATA, *arguments, code=2).stderr
