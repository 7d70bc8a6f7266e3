"""Output of commands: data and tables do not need the chart library, and tables have JSON and CSV forms."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragauge.cli.app import build_app
from ragauge.core.errors import BadInput

INPUTS = Path(__file__).parents[1] / "goldens/inputs"
COMMANDS = {
    "novelty": ["novelty", INPUTS / "new.jsonl", "--known", INPUTS / "known.jsonl", "--embedder", "words"],
    "gain": ["gain", "--before", INPUTS / "kb", "--add", INPUTS / "new.jsonl", "-k", "3", "-w", "recall@3=1"],
    "stress": ["stress", "--store", "sqlite-vec", "--corpus", INPUTS / "known.jsonl", "--mode", "one by one"],
    "tokenizers": ["tokenizers", INPUTS / "known.jsonl", "-t", "bytes", "-t", "words"],
}
"""One short call of each command whose report has charts."""


@pytest.mark.parametrize("output", ["--json", "--csv", "table"])
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.slow
def test_command_without_altair_prints_data_and_tables(command, output, tmp_path, monkeypatch):
    if command == "stress":
        pytest.importorskip("sqlite_vec")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "altair", None)
    arguments = [*map(str, COMMANDS[command]), *([output] if output != "table" else [])]
    done = CliRunner().invoke(build_app(), arguments)
    if done.exception is not None:
        raise done.exception
    assert done.stdout.strip()
    if output == "--json":
        assert json.loads(done.stdout)


LISTS = {
    "datasets": (["datasets"], ["name", "kind", "about"]),
    "dataset": (["datasets", "synthetic:needles"], ["name", "value"]),
    "judged": (["datasets", "synthetic:needles", "--query", "q001"], ["grade", "document", "text"]),
    "systems": (["systems"], ["family", "name", "options"]),
    "measures": (["measures"], ["name", "of", "cutoff", "options", "aliases"]),
    "validate": (
        ["validate", INPUTS / "qrels.txt", INPUTS / "bm25.run"],
        ["subject", "check", "problem", "count", "message", "examples"],
    ),
    "k-range": (["k-range", INPUTS / "qrels.txt", INPUTS / "bm25.run", "-k", "1,5"], ["system", "k", "hit_rate"]),
}
"""Commands that print a table, with the first columns of their CSV."""


@pytest.mark.parametrize("name", LISTS)
def test_command_prints_its_table_as_json_and_csv(name):
    arguments, columns = LISTS[name]

    def output(*options):
        done = CliRunner().invoke(build_app(), [*map(str, arguments), *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    header, *rows = csv.reader(io.StringIO(output("--csv")))
    assert header[: len(columns)] == columns
    assert rows
    assert all(len(row) == len(header) for row in rows)
    assert json.loads(output("--json"))
    assert output()
    refused = CliRunner().invoke(build_app(), [*map(str, arguments), "--json", "--csv"])
    assert isinstance(refused.exception, BadInput)
