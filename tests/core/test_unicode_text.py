"""Unpaired surrogates: replaced in texts with a warning, and refused in ids with the line number."""

from __future__ import annotations

import json

import pytest

import ragauge
from command import command_in
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments
from ragauge.core.text import TextWarning, replace_lone_surrogates
from ragauge.files.json_files import read_json, read_json_lines
from ragauge.files.serialization import write_record
from ragauge.files.source import InputFile


@pytest.fixture
def data_folder(tmp_path):
    """Write a dataset in which a document and a query contain an unpaired surrogate; a valid pair is a character."""
    (tmp_path / "kb" / "qrels").mkdir(parents=True)
    rows = [{"_id": "d1", "text": "some \ud800 words"}, {"_id": "d2", "text": "other \U0001f600 words"}]
    rows += [{"_id": f"d{i}", "text": f"filler {i}"} for i in range(3, 9)]
    (tmp_path / "kb" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "kb" / "queries.jsonl").write_text('{"_id": "q1", "text": "words \\udfff"}\n')
    (tmp_path / "kb" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return tmp_path


def test_load_replaces_lone_surrogates_and_warns(data_folder):
    with pytest.warns(TextWarning) as warnings:
        data = ragauge.load(data_folder / "kb")
    messages = " ".join(str(warning.message) for warning in warnings)
    assert "corpus.jsonl: 1 text contains unpaired surrogates, replaced by U+FFFD" in messages
    assert [document.text for document in data.documents][:2] == ["some \ufffd words", "other \U0001f600 words"]
    assert data.queries == {"q1": "words \ufffd"}


@pytest.mark.parametrize(
    "command",
    [
        "run kb -s bm25 --out out --warmup 0",
        "audit kb",
        "tokenizers kb -t bytes",
        "novelty kb --known kb/corpus.jsonl --embedder words",
        "evaluate kb kb.run",
        "stress --store memory --corpus kb/corpus.jsonl",
    ],
)
@pytest.mark.slow
def test_cli_warns_about_replaced_surrogates(command, data_folder):
    (data_folder / "kb.run").write_text("q1 Q0 d1 1 1 a\n")
    done = command_in(data_folder)(*command.split())
    if not command.startswith("evaluate"):  # `evaluate` reads no text
        assert "unpaired surrogates, replaced by U+FFFD" in done.stderr
    assert "Error" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "location"),
    [
        ("a.json", '{"q1": {"d1": 1},\n "q\\ud800": {"d1": 1}}', r"a.json:2: the key `q\ud800`"),
        ("a.json", '{"q1": {"d1": 1,\n"d\\uDFFF": 1}}', r"a.json:2: the key `d\udfff`"),
        ("a.json", '{"q1": ["d1",\n"d\\ud800"]}', r"a.json:2: the id `d\ud800`"),
        ("a.jsonl", '{"query_id": "q1", "doc_id": "d1", "score": 1.0}\n{"query_id": "q1", "doc_id": "d\\ud800"}\n',
         r"a.jsonl:2: the doc_id `d\ud800`"),
        ("a.jsonl", '{"query": "q1", "doc": "d1", "score": 1.0}\n{"query": "q\\ud800", "doc": "d1", "score": 1}\n',
         r"a.jsonl:2: the query `q\ud800`"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_cli_ids_with_surrogates_print_error_with_line(name, content, location, tmp_path):
    (tmp_path / name).write_text(content)
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    for command in ("evaluate qrels.txt {}", "evaluate {} qrels.txt", "convert {} out.csv", "compare qrels.txt {} x"):
        done = command_in(tmp_path)(*command.format(name).split(), code=2)
        if "compare" not in command:
            assert done.stderr.startswith(f"error: {location} contains an unpaired surrogate"), command


def test_load_document_id_with_surrogate_raises_with_line(data_folder):
    with (data_folder / "kb" / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "d\\ud9ab", "text": "x"}\n')
    with pytest.raises(BadInput, match=r"corpus\.jsonl:9: the id `d\\ud9ab` contains an unpaired surrogate"):
        ragauge.load(data_folder / "kb")


def test_read_judgments_rig_checks_surrogates(tmp_path):
    (tmp_path / "rig.jsonl").write_text('{"query_id": "q", "query": "x\\ud800", "relevant_docs": {"d": 1}}\n')
    with pytest.warns(TextWarning, match="1 text"):
        assert ragauge.read_judgments(tmp_path / "rig.jsonl").nested == {"q": {"d": 1}}
    (tmp_path / "rig.jsonl").write_text('{"query_id": "q", "query": "x", "relevant_docs": ["d\\ud800"]}\n')
    with pytest.raises(BadInput, match=r"rig\.jsonl:1: the id"):
        ragauge.read_judgments(tmp_path / "rig.jsonl")


def test_load_dataset_object_replaces_or_rejects_surrogates():
    documents = [Document("d1", "some \ud800 words"), Document("d2", "x", "title \udc00")]
    data = Dataset("mine", documents, {"q": "words \udfff"}, Judgments({"q": {"d1": 1}}))
    with pytest.warns(TextWarning, match="mine: 3 texts contain"):
        clean = ragauge.load(data)
    assert [document.whole for document in clean.documents] == ["some \ufffd words", "title \ufffd x"]
    assert clean.queries == {"q": "words \ufffd"}
    assert ragauge.load(clean) is clean
    with pytest.raises(BadInput, match=r"the id `d\\ud800` contains an unpaired surrogate"):
        ragauge.load(Dataset("mine", [Document("d\ud800", "x")], {}, Judgments({"q": {"d1": 1}})))


def test_read_run_and_judgments_reject_surrogate_ids():
    run = {"q": {"d\ud800": 1.0}}
    for read in (ragauge.read_run, lambda grades: ragauge.read_judgments(grades).frame):
        with pytest.raises(BadInput, match="unpaired surrogate"):
            read(run)


def test_read_json_keeps_valid_surrogate_pairs(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "\\ud83d\\ude00", "text": "\\u00e9"}\n')
    assert list(read_json_lines(InputFile(str(tmp_path / "a.jsonl")))) == [(1, {"id": "\U0001f600", "text": "é"})]
    assert read_json(InputFile(str(tmp_path / "a.jsonl"))) == {"id": "\U0001f600", "text": "é"}
    assert replace_lone_surrogates("é\U0001f600") == "é\U0001f600"


def test_write_record_replaces_lone_surrogates(tmp_path):
    write_record({"system": "a\udfff"}, tmp_path / "manifest.json")
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"system": "a\ufffd"}
