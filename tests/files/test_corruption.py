"""Corrupt and ambiguous input: refused with file and line, never scored as something else."""

from __future__ import annotations

import io
import json
import random

import polars as pl
import pytest

import ragauge
from ragauge.core.errors import BadInput
from ragauge.experiments.run import run
from ragauge.files.parquet import read_parquet, write_parquet
from ragauge.files.readers import read_judgments, read_run
from ragauge.files.samples import read_samples
from ragauge.files.table_rows import read_tags
from ragauge.runs import folder
from result_folders import DATA, make_system

N_FLIPS = 2_000


def write_text(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("run.json", '{\n"q1": {"a": 1},\n"q1": {"b": 1}}', 3),
        ("run.json", '{"q1": {"a": 1,\n "b": [{"x": 1}, 2],\n "a": 2}}', 3),
        (
            "run.jsonl",
            '{"query": "q1", "doc": "a", "score": 1}\n{"query": "q1", "doc": "a", "doc": "b", "score": 1}\n',
            2,
        ),
        (
            "run.jsonl",
            '{"query": "q1", "doc": "a", "score": 1}\n{"query": "q1", "d\\u006fc": "a", "doc": "b", "score": 1}\n',
            2,
        ),
    ],
)
def test_read_run_duplicate_key_raises_with_line(tmp_path, name, text, line):
    with pytest.raises(BadInput, match=rf"{name}:{line}: .*duplicate key `"):
        read_run(write_text(tmp_path / name, text))


def test_read_judgments_and_samples_duplicate_key_raises_with_line(tmp_path):
    rig = '{"query_id": "q1", "relevant_docs": ["a"]}\n{"query_id": "q2", "relevant_docs": {"a": 1, "a": 0}}\n'
    with pytest.raises(BadInput, match=r"rig.jsonl:2: .*duplicate key `a`"):
        read_judgments(write_text(tmp_path / "rig.jsonl", rig))
    samples = '{"question": "Why?", "answer": "So.", "answer": "Not so."}\n'
    with pytest.raises(BadInput, match=r"samples.jsonl:1: .*duplicate key `answer`"):
        read_samples(write_text(tmp_path / "samples.jsonl", samples))


def test_read_run_value_equal_to_key_name_is_accepted(tmp_path):
    text = '{"query": "doc", "doc": "query", "score": 1}\n{"query": "doc", "doc": "score", "score": 0.5}\n'
    assert read_run(write_text(tmp_path / "run.jsonl", text)).nested == {"doc": {"query": 1.0, "score": 0.5}}


@pytest.mark.parametrize("header", ["query,doc,score,score", "query,doc,score,Score", "query,doc, score ,score"])
def test_read_run_duplicate_column_raises_error(tmp_path, header):
    with pytest.raises(BadInput, match=r"run.csv:1: duplicate column `"):
        read_run(write_text(tmp_path / "run.csv", f"{header}\nq1,a,1,2\n"))


def test_read_tags_and_judgments_duplicate_column_raises_error(tmp_path):
    for name, separator in (("t.csv", ","), ("t.tsv", "\t")):
        with pytest.raises(BadInput, match=rf"{name}:1: duplicate column `topic`"):
            read_tags(
                write_text(
                    tmp_path / name, separator.join(["query", "topic", "topic"]) + "\n" + separator.join("qab") + "\n"
                )
            )
    (tmp_path / "qrels").mkdir()
    beir = "query-id\tcorpus-id\tcorpus-id\tscore\nq1\ta\tb\t1\n"
    with pytest.raises(BadInput, match=r"test.tsv:1: duplicate column `corpus-id`"):
        read_judgments(write_text(tmp_path / "qrels" / "test.tsv", beir))


def test_read_parquet_flipped_bit_raises_or_reads_same_table():
    table = pl.DataFrame(
        {
            "query": [f"q{i // 9}" for i in range(900)],
            "doc": [f"d{i % 70}" for i in range(900)],
            "score": [i / 7 for i in range(900)],
        }
    )
    buffer = io.BytesIO()
    write_parquet(table, buffer)
    assert read_parquet(buffer.getvalue()).equals(table)
    rng = random.Random(1)
    refused = 0
    for _ in range(N_FLIPS):
        bit = rng.randrange(8 * len(buffer.getvalue()))
        corrupt = bytearray(buffer.getvalue())
        corrupt[bit // 8] ^= 1 << (bit % 8)
        try:
            assert read_parquet(bytes(corrupt)).equals(table), f"bit {bit}"  # this bit stores no data
        except BadInput:
            refused += 1
    assert refused > 0.9 * N_FLIPS


def test_gate_run_folder_corrupt_parquet_raises_checksum_error(tmp_path):
    run(DATA, {"good": make_system([1] * 30)}, measures=["mrr@10"], out=tmp_path, warmup=0)
    for name in ("good/run.parquet", "good/timings.parquet", "judgments.parquet", "queries.parquet"):
        path = tmp_path / name
        before = path.read_bytes()
        corrupt = bytearray(before)
        corrupt[40] ^= 1
        path.write_bytes(bytes(corrupt))
        with pytest.raises(BadInput, match=rf"{path.name}.*checksum does not match"):
            ragauge.gate(tmp_path / "good", "mrr@10 >= 0.5")
        path.write_bytes(before)
    assert ragauge.gate(tmp_path / "good", "mrr@10 >= 0.5")


def make_recording_system(calls, stop=None):
    """Return a system that records its queries, finds the relevant document, and is interrupted at the query `stop`."""
    find_relevant = make_system([1] * 30)

    def search(query, k):
        calls.append(query.strip())
        if query.strip() == stop:
            raise KeyboardInterrupt
        return find_relevant(query, k)

    return search


def interrupt_run(folder):
    """Run half of the queries, and return the path of the journal."""
    with pytest.raises(KeyboardInterrupt):
        run(DATA, {"mine": make_recording_system([], "word15")}, out=folder, warmup=0)
    return folder / "mine" / "journal.jsonl"


@pytest.mark.parametrize("first", ["{broken\n", "[1]\n", '{"purpose": 5}\n', ""])
def test_run_corrupt_first_journal_line_raises_and_keeps_journal(tmp_path, first):
    journal = interrupt_run(tmp_path)
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join([first, *lines[1:]]))
    before = journal.read_bytes()
    with pytest.raises(BadInput, match=r"journal.jsonl:1: .* is corrupt or missing, and 15 results follow it"):
        run(DATA, {"mine": make_recording_system([])}, out=tmp_path, warmup=0)
    assert journal.read_bytes() == before
    assert (
        run(DATA, {"mine": make_recording_system([])}, out=tmp_path, warmup=0, fresh=True).scores["mine"].n["ndcg@10"]
        == 30
    )


def test_run_corrupt_later_journal_line_is_run_again_with_note(tmp_path):
    journal = interrupt_run(tmp_path)
    lines = journal.read_text().splitlines(keepends=True)
    lines[4] = lines[4][:20] + "\n"
    journal.write_text("".join(lines))
    calls = []
    result = run(DATA, {"mine": make_recording_system(calls)}, out=tmp_path, warmup=0)
    assert len(calls) == 16
    assert any("corrupt lines in journal.jsonl (5); their queries were run again" in note for note in result.notes)
    assert result.scores["mine"].n["ndcg@10"] == 30


@pytest.mark.parametrize("plan", [7, "text", ["k", 10]])
def test_run_journal_with_invalid_plan_raises_error(tmp_path, plan):
    journal = interrupt_run(tmp_path)
    lines = journal.read_text().splitlines(keepends=True)
    purpose = json.loads(lines[0])
    purpose["purpose"]["plan"] = plan
    journal.write_text("".join([json.dumps(purpose) + "\n", *lines[1:]]))
    before = journal.read_bytes()
    with pytest.raises(BadInput, match="an unfinished run"):
        run(DATA, {"mine": make_recording_system([])}, out=tmp_path, warmup=0)
    assert journal.read_bytes() == before


def test_read_run_folder_timings_without_column_raises_error(tmp_path):
    run(DATA, {"mine": make_recording_system([])}, out=tmp_path, warmup=0)
    path = tmp_path / "mine" / "timings.parquet"
    pl.read_parquet(path).drop("error").write_parquet(path)
    with pytest.raises(BadInput, match="error"):
        folder.read_run_folder(tmp_path / "mine")
