"""Hostile ids and cells: formulas and terminal escapes are neutralised, ids round-trip, and errors stay short."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command import command_in
from ragauge.core.csv_cells import neutralise_cell, restore_cell
from ragauge.core.errors import BadInput
from ragauge.files.scores import read_scores
from ragauge.files.table_files import numbered_cells

FORMULAS = ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "\t=1", "'=1", "''=1"]
PLAIN_CELLS = ["q1", "-5", "+1.5", "-0.5", "1e-5", "-id", "'tis", "a=b", ""]


@pytest.mark.parametrize("text", FORMULAS)
def test_neutralise_cell_formula_gets_apostrophe(text):
    assert neutralise_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", PLAIN_CELLS)
def test_neutralise_cell_keeps_numbers_and_plain_ids(text):
    assert neutralise_cell(text) == restore_cell(text) == text


@given(st.text(alphabet="'=+-@\t\r(|!ab1", max_size=8))
def test_restore_cell_inverts_neutralise_cell(text):
    assert restore_cell(neutralise_cell(text)) == text


def test_cli_evaluate_csv_neutralises_formulas_and_is_readable(tmp_path):
    (tmp_path / "qrels.txt").write_text("=1+1 0 d 1\n-5 0 d 1\n")
    (tmp_path / "a.run").write_text("=1+1 Q0 d 1 1 a\n-5 Q0 x 1 1 a\n")
    ragauge = command_in(tmp_path)
    output = ragauge("evaluate", "qrels.txt", "a.run", "-m", "mrr", "--csv", "-q").stdout
    assert [line.split(",")[1] for line in output.splitlines()] == ["query", "'=1+1", "-5"]
    (tmp_path / "scores.csv").write_text(output)
    scores, _ = read_scores(str(tmp_path / "scores.csv"))
    assert scores["a"].queries == ["=1+1", "-5"]


def run_in_terminal(arguments: list[str], cwd) -> bytes:
    """Run a command whose standard output is a terminal."""
    parent_end, child_end = pty.openpty()
    code = "from ragauge.cli import main; main()"
    env = {**os.environ, "NO_COLOR": "1", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=child_end, stderr=child_end, cwd=cwd, env=env
    )
    os.close(child_end)
    output = b""
    while True:
        try:
            data = os.read(parent_end, 4096)
        except OSError:  # the terminal is closed when the process ends
            break
        if not data:
            break
        output += data
    os.close(parent_end)
    assert process.wait() == 0, output
    return output


@pytest.mark.parametrize("option", ["--csv", "--format=trec_eval", "--json"])
@pytest.mark.slow
def test_cli_evaluate_terminal_output_escapes_ids(option, tmp_path):
    (tmp_path / "qrels.txt").write_bytes(b"q\x1b]0;title\x07\xc2\x9b31m 0 d 1\n")
    (tmp_path / "a.run").write_bytes(b"q\x1b]0;title\x07\xc2\x9b31m Q0 d 1 1 a\n")
    output = run_in_terminal(["evaluate", "qrels.txt", "a.run", "-m", "map", "-q", option], tmp_path)
    assert b"\x1b]0;" not in output
    assert b"\xc2\x9b" not in output
    piped = command_in(tmp_path)("evaluate", "qrels.txt", "a.run", "-m", "map", "-q", option).stdout
    if option != "--json":
        assert "\x1b]0;title\x07\x9b31m" in piped  # a pipe gets the unchanged ids


QUOTED_IDS = ['q"1"', '"q2"', "it's", '""', 'a"b', "d,4", "=1", "-x"]


@pytest.mark.parametrize("extension", ["tsv", "csv", "jsonl", "json", "parquet", "beir/"])
@pytest.mark.slow
def test_cli_convert_quoted_ids_round_trip(extension, tmp_path):
    ragauge = command_in(tmp_path)
    rows = [f"{query} 0 {doc} 1\n" for query in QUOTED_IDS for doc in QUOTED_IDS]
    (tmp_path / "qrels.txt").write_text("".join(rows))
    out = extension if extension.endswith("/") else f"out.{extension}"
    ragauge("convert", "qrels.txt", out, "--kind", "qrels")
    ragauge("convert", out, "back.txt", "--kind", "qrels")
    assert sorted((tmp_path / "back.txt").read_text().splitlines(keepends=True)) == sorted(rows)
    if extension.endswith("/"):
        return
    runs = [f"{query} Q0 {doc} {i + 1} {10.5 - i} t\n" for query in QUOTED_IDS for i, doc in enumerate(QUOTED_IDS)]
    (tmp_path / "a.run").write_text("".join(runs))
    ragauge("convert", "a.run", f"run.{extension}", "--kind", "run")
    ragauge("convert", f"run.{extension}", "back.run", "--kind", "run")
    converted = [line.rsplit(" ", 1)[0] for line in (tmp_path / "back.run").read_text().splitlines()]
    assert sorted(converted) == sorted(line.rsplit(" ", 1)[0] for line in runs)


def test_bad_input_message_truncates_quoted_value():
    error = BadInput(f"the grade must be a number, got `{'x' * 1_000_000}`", file="a.txt", line=3)
    assert error.message == f"a.txt:3: the grade must be a number, got `{'x' * 79}…`"
    assert len(str(BadInput("unquoted " + "y" * 1_000_000))) < 200
    path = "/folder" * 100
    assert BadInput("is missing", file=path).message == f"{path}: is missing"


@pytest.mark.parametrize("name", ["qrels.txt", "qrels.csv", "qrels.jsonl", "qrels.json"])
def test_cli_evaluate_unreadable_file_prints_short_error(name, tmp_path):
    (tmp_path / name).write_text("q 0 d " + "x" * 200_000 + "\n")
    (tmp_path / "a.run").write_text("q Q0 d 1 1 a\n")
    assert len(command_in(tmp_path)("evaluate", name, "a.run", code=2).stderr) < 500


def test_numbered_cells_interleaved_readers_read_long_cells():
    long_cell = "x" * 200_000  # more than the default limit of the csv module
    rows = ["id,text\n", f"a,{long_cell}\n"]
    first, second = (numbered_cells(iter(rows), "csv", "a.csv") for _ in range(2))
    assert next(first) == next(second) == (1, ["id", "text"])
    assert list(first) == list(second) == [(2, ["a", long_cell])]
