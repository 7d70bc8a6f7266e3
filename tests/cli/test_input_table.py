"""Every kind of input in every command: accepted, or rejected with a one-sentence error and an exit code.

The table states what each command accepts. Change it only together with the code.
"""

from __future__ import annotations

import shlex
import shutil
import sys

import pytest

from input_cases import COMMANDS, CORPUS_INPUTS, INPUTS, write_inputs
from ragauge.cli import main

CORPORA = (
    "run.json qrels.txt beir corpus.jsonl corpus.ndjson corpus.csv corpus.tsv corpus.json corpus.parquet "
    "texts_md texts_rst texts_txt page.md queries.jsonl samples.jsonl judged empty.txt"
)
"""Read by every command that takes a corpus. An entry needs an id; a text file is one document."""
ACCEPTED = {
    "evaluate RUN": "bm25.run run.json experiment/bm25",
    "evaluate QRELS": "run.json experiment qrels.txt beir",
    "evaluate ALL": "experiment/bm25 experiment",
    "compare": "experiment",
    "compare RUN": "bm25.run run.json experiment/bm25",
    "k-range": "experiment/bm25 experiment",
    "gate QRELS": "run.json experiment qrels.txt beir",
    "gate": "experiment/bm25 scores.csv",
    "audit": "run.json experiment/bm25 experiment qrels.txt beir corpus.jsonl corpus.ndjson corpus.csv "
    "corpus.parquet texts_md texts_rst texts_txt",
    "audit RUN": "bm25.run run.json experiment/bm25",
    "audit CORPUS": CORPORA,
    "fuse": "bm25.run run.json experiment/bm25",
    "report": "experiment/bm25 experiment scores.csv judged result.json",
    "validate": "run.json experiment qrels.txt beir samples.jsonl judged",
    "validate CORPUS": f"{CORPORA} bm25.run vectors.npy",
    "convert": "bm25.run run.json experiment/bm25 experiment qrels.txt beir samples.jsonl",
    "judge": "samples.jsonl judged",
    "novelty": CORPORA,
    "novelty KNOWN": CORPORA,
    "gain BEFORE": CORPORA,
    "gain ADD": CORPORA,
    "tokenizers": " ".join({*CORPORA.split()} - {"run.json", "samples.jsonl", "empty.txt"}),
    "run": "beir",
    "calibrate": "samples.jsonl",
}
"""Inputs that a slot accepts; all others are refused."""
REFUSAL_CODES = {"validate": 1}
"""Exit code for other inputs if it is not 2; a flaw is a result of `validate`."""
OTHER_CODES = {
    ("gate", "judged"): 1,  # Accepted, but without the measure of the rule.
    ("novelty KNOWN", "vectors.npy"): 4,  # Accepted, but computed with another embedder.
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize("slot", COMMANDS)
@pytest.mark.slow
def test_command_accepts_or_rejects_every_input(slot, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    accepted = ACCEPTED[slot].split()
    differing = []
    for name in INPUTS:
        for output in (folder / "out", folder / "out.json", folder / "out.run", folder / "out.jsonl"):
            shutil.rmtree(output) if output.is_dir() else output.unlink(missing_ok=True)
        monkeypatch.setattr(sys, "argv", ["ragauge", *shlex.split(COMMANDS[slot].format(name))])
        with pytest.raises(SystemExit) as stopped:
            main()
        errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        expected = OTHER_CODES.get((slot, name), 0 if name in accepted else REFUSAL_CODES.get(slot, 2))
        one_error = len(errors) == (1 if expected not in (0, 1) else 0)
        if stopped.value.code != expected or not one_error:
            differing.append((name, stopped.value.code, expected, errors))
    assert not differing


def test_input_table_names_existing_inputs(folder):
    names = {name for accepted in ACCEPTED.values() for name in accepted.split()}
    assert names <= {*INPUTS}
    assert {*ACCEPTED} == {*COMMANDS}
    assert {*CORPUS_INPUTS} <= {*INPUTS}
    assert [name for name in INPUTS if not (folder / name).exists()] == ["missing.run"]
