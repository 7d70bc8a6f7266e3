"""Reading of a corpus: formats, field names, and flaws, which are refused."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest
import zstandard

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.datasets import load
from ragauge.evaluation.validation import read_corpus_ids
from ragauge.files.documents import find_corpus_files, read_corpus
from ragauge.files.json_files import DOCUMENT_ID_FIELDS, TEXT_FIELDS


def read_text(path, text: str | bytes) -> list[Document]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_corpus(path).documents


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t")])
def test_read_corpus_empty_extra_cell_is_allowed(ending, separator, tmp_path):
    rows = [["id", "text"], ["b", "plain"], ["c", "with an empty cell", ""]]
    documents = read_text(tmp_path / f"c.{ending}", "".join(separator.join(row) + "\n" for row in rows))
    assert [document.text for document in documents] == ["plain", "with an empty cell"]


def test_read_corpus_row_may_end_after_its_text(tmp_path):
    documents = read_text(tmp_path / "c.csv", "id,text,source\na,one\nc,two,here\n")
    assert [document.text for document in documents] == ["one", "two"]


def test_read_corpus_multiline_cell_is_one_text(tmp_path):
    poem = "Roses, they say, are red\nViolets are blue\nSugar, too\nAnd so on, and on"
    documents = read_text(tmp_path / "c.csv", f'id,text\na,"{poem}"\nb,"one ""two"" three"\n')
    assert [document.text for document in documents] == [poem, 'one "two" three']


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_read_corpus_column_names_ignore_case(form, tmp_path):
    path = tmp_path / f"c.{form}"
    if form == "parquet":
        pl.DataFrame({"ID": ["a"], "Text": ["one"], "TITLE": ["First"]}).write_parquet(path)
        documents = read_corpus(path).documents
    else:
        separator = "," if form == "csv" else "\t"
        documents = read_text(path, f"ID{separator}Text{separator}TITLE\na{separator}one{separator}First\n")
    assert [(document.id, document.whole) for document in documents] == [("a", "First one")]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_read_corpus_csv_with_other_separator_is_read(separator, tmp_path):
    documents = read_text(tmp_path / "c.csv", f'id{separator}text\na{separator}"one, two"\n')
    assert [(document.id, document.text) for document in documents] == [("a", "one, two")]


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.csv.gz", "c.gz"])
def test_read_corpus_truncated_archive_raises_error(name, tmp_path):
    archive = gzip.compress(json.dumps({"id": "a", "text": "one"}).encode())
    with pytest.raises(BadInput, match="ended before the end-of-stream marker"):
        read_text(tmp_path / name, archive[:-9])


def test_read_corpus_missing_file_raises_error(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_corpus(tmp_path / "c.jsonl")


def test_read_corpus_accepts_every_field_name(tmp_path):
    rows = [{name: f"d{i}", "text": "words"} for i, name in enumerate(DOCUMENT_ID_FIELDS)]
    rows += [{"id": name, name: "words"} for name in TEXT_FIELDS]
    documents = read_text(tmp_path / "c.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [document.id for document in documents] == [*(f"d{i}" for i in range(len(DOCUMENT_ID_FIELDS))), *TEXT_FIELDS]
    assert [document.text for document in documents] == ["words"] * len(rows)


CORPUS_ROWS = [{"_id": "a", "title": "One", "text": "the first text"}, {"_id": "b", "title": "Two", "text": "another"}]


def write_rows(path):
    """Write a corpus of two documents in the format of the file ending."""
    if path.suffix == ".parquet":
        pl.DataFrame(CORPUS_ROWS).write_parquet(path)
        return path
    form = path.name.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
    text = {
        "json": json.dumps(CORPUS_ROWS),
        "csv": pl.DataFrame(CORPUS_ROWS).write_csv(),
        "tsv": pl.DataFrame(CORPUS_ROWS).write_csv(separator="\t"),
    }.get(form, "".join(json.dumps(row) + "\n" for row in CORPUS_ROWS))
    compressed = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix, bytes)
    path.write_bytes(compressed(text.encode()))
    return path


FORMATS = ["jsonl", "ndjson", "json", "csv", "tsv", "parquet", "txt"]
FILE_NAMES = [*(f"c.{form}" for form in FORMATS), *(f"c.{form}{p}" for form in FORMATS[:5] for p in (".gz", ".zst"))]


@pytest.mark.parametrize("name", FILE_NAMES)
def test_read_corpus_every_format_has_same_documents(name, tmp_path):
    path = write_rows(tmp_path / name)
    expected = [Document("a", "the first text", "One"), Document("b", "another", "Two")]
    assert read_corpus(path).documents == expected
    assert read_corpus_ids(str(path)).to_list() == ["a", "b"] or name == "c.txt"


@pytest.mark.parametrize("ending", [".txt", ".md", ".markdown", ".rst", ".MD", ".md.gz"])
def test_read_corpus_text_file_is_one_document(ending, tmp_path):
    path = tmp_path / f"page{ending}"
    path.write_bytes((gzip.compress if ending.endswith(".gz") else bytes)(b"A line.\r\nAnother one.\n"))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "notes.md").write_text("hidden")
    (tmp_path / "scan.pdf").write_text("%PDF")
    expected = [Document(f"page{ending}", "A line.\nAnother one.\n")]
    for source in (path, tmp_path):
        assert read_corpus(source).documents == expected
    assert [file.name for file in find_corpus_files(tmp_path).unread] == ["scan.pdf"]


OPEN_QUOTE_ERROR = "a quote opens here and is not closed"
FLAWS = {
    "an entry without an id": ("c.jsonl", '{"_id": "a", "text": "x"}\n{"text": "y"}\n', r"c.jsonl:2: expected an id"),
    "a duplicate id": ("c.csv", "id,text\na,x\na,y\n", r"c.csv:3: the id `a` appears more than once"),
    "broken JSON": ("c.jsonl", "{", r"c.jsonl:1: the JSON is invalid"),
    "a text that is a list": ("c.json", '[{"id": "a", "text": ["x"]}]', r"entry 1: `text` must be a text, got a list"),
    "bytes that are not UTF-8": ("c.tsv", b"a\tcaf\xe9\n", r"c.tsv:1: not UTF-8 text: byte 0xe9"),
    "UTF-16": ("c.jsonl", "{}".encode("utf-16"), r"c.jsonl:1: not UTF-8 text: the file is in UTF-16"),
    "a row without its text": ("c.csv", "id,text,source\na,one\nb\n", r"c.csv:3: 1 cell, the header has 3"),
    "a cell too many without header": ("c.csv", "a,one\nb,two, and\n", r"c.csv:2: 3 cells, the first line has 2"),
    "a quote closed by the next row": ("c.csv", 'id,text\na,"one\nb,"two"\nc,three\n', rf"c.csv:2: {OPEN_QUOTE_ERROR}"),
    "a quote that is never closed": ("c.csv", 'id,text\na,one\nb,"two\nc,three\n', rf"c.csv:3: {OPEN_QUOTE_ERROR}"),
    "a quote closed by an inch": (
        "c.csv",
        'id,text\na,"one\nb,two\nc,three\nd,a pipe of 6"\ne,five\n',
        rf"c.csv:2: {OPEN_QUOTE_ERROR}",
    ),
    "a quote that is not doubled": (
        "c.csv",
        'id,text\na,"one "two" three"\nb,two\n',
        r"c.csv:2: a quote within a cell is not doubled",
    ),
    "a cell too many": ("c.csv", "id,text\na,x,y\n", r"c.csv:2: 3 cells, the header has 2"),
}


@pytest.mark.parametrize("case", FLAWS)
def test_read_corpus_flaw_raises_error_with_its_line(case, tmp_path):
    name, text, message = FLAWS[case]
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=message):
        read_corpus(path)


def test_load_dataset_folder_with_corpus_in_any_format(tmp_path):
    for form in FORMATS[:-1]:
        folder = tmp_path / form
        folder.mkdir()
        write_rows(folder / f"corpus.{form}")
        (folder / "queries.csv").write_text("id,text\nq,what is first?\n")
        (folder / "qrels.txt").write_text("q 0 a 1\n")
        result = load(folder)
        assert ([document.id for document in result.documents], result.queries) == (["a", "b"], {"q": "what is first?"})
        assert [document.id for document in read_corpus(folder).documents] == ["a", "b"]
