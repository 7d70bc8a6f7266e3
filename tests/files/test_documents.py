"""Reading of a corpus: formats, field names, and flaws, which are reported while all other documents are read."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest
import zstandard

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.datasets import load
from ragauge.datasets.folders import read_documents
from ragauge.evaluation.validation import read_corpus_ids
from ragauge.files.document_rows import DOCUMENT_FIELDS, CorpusFlaw, FieldNames, custom_fields
from ragauge.files.documents import LoadedCorpus, read_corpus
from ragauge.files.json_files import DOCUMENT_ID_FIELDS, TEXT_FIELDS


def read_lenient(path, text: str | bytes, names: FieldNames | None = None) -> LoadedCorpus:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_corpus(path, names or DOCUMENT_FIELDS, lenient=True)


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t")])
def test_read_corpus_row_with_extra_cells_is_flaw(ending, separator, tmp_path):
    rows = [["id", "text"], ["a", "Hello", " world"], ["b", "plain"], ["c", "with an empty cell", ""]]
    result = read_lenient(tmp_path / f"c.{ending}", "".join(separator.join(row) + "\n" for row in rows))
    assert result.flaws == [CorpusFlaw("unreadable", f"c.{ending}:2", "3 cells, the header has 2")]
    assert (result.ids, result.texts) == (["b", "c"], ["plain", "with an empty cell"])


def test_read_corpus_short_row_is_flaw_only_without_text(tmp_path):
    result = read_lenient(tmp_path / "c.csv", "id,text,source\na,one\nb\nc,two,here\n")
    assert result.flaws == [CorpusFlaw("unreadable", "c.csv:3", "1 cell, the header has 3")]
    assert result.texts == ["one", "two"]


def test_read_corpus_without_header_uses_cells_of_first_line(tmp_path):
    result = read_lenient(tmp_path / "c.csv", "a,one\nb,two, and more\nc,three\n")
    assert result.flaws == [CorpusFlaw("unreadable", "c.csv:2", "3 cells, the first line has 2")]
    assert result.ids == ["a", "c"]


OPEN_QUOTE_ERROR = "a quote opens here and is not closed"
BROKEN_QUOTES = {
    "closed by the quotes of the next row": ('a,"one\nb,"two"\nc,three\n', 2, OPEN_QUOTE_ERROR, ["b", "c"]),
    "never closed": ('a,one\nb,"two\nc,three\nd,four\n', 3, OPEN_QUOTE_ERROR, ["a", "c", "d"]),
    "closed by an inch": (
        'a,"one\nb,two\nc,three\nd,a pipe of 6"\ne,five\n',
        2,
        OPEN_QUOTE_ERROR,
        ["b", "c", "d", "e"],
    ),
    "not doubled": ('a,"one "two" three"\nb,two\n', 2, "a quote within a cell is not doubled", ["b"]),
}


@pytest.mark.parametrize("case", BROKEN_QUOTES)
def test_read_corpus_open_quote_loses_only_its_row(case, tmp_path):
    text, line, message, ids = BROKEN_QUOTES[case]
    result = read_lenient(tmp_path / "c.csv", f"id,text\n{text}")
    assert result.flaws == [CorpusFlaw("unreadable", f"c.csv:{line}", message)]
    assert result.ids == ids
    assert result.locations[-1].startswith("c.csv:")


def test_read_corpus_multiline_cell_is_one_text(tmp_path):
    poem = "Roses, they say, are red\nViolets are blue\nSugar, too\nAnd so on, and on"
    result = read_lenient(tmp_path / "c.csv", f'id,text\na,"{poem}"\nb,"one ""two"" three"\n')
    assert result.flaws == []
    assert result.texts == [poem, 'one "two" three']
    assert result.locations == ["c.csv:2", "c.csv:6"]


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_read_corpus_column_names_ignore_case(form, tmp_path):
    path = tmp_path / f"c.{form}"
    if form == "parquet":
        pl.DataFrame({"ID": ["a"], "Text": ["one"], "TITLE": ["First"]}).write_parquet(path)
        result = read_corpus(path, lenient=True)
    else:
        separator = "," if form == "csv" else "\t"
        result = read_lenient(path, f"ID{separator}Text{separator}TITLE\na{separator}one{separator}First\n")
    assert (result.ids, result.texts, result.flaws) == (["a"], ["First one"], [])


def test_read_corpus_custom_field_names_ignore_case(tmp_path):
    assert read_lenient(tmp_path / "c.csv", "Key,Words\na,one\n", custom_fields("key", "words")).ids == ["a"]


@pytest.mark.parametrize(("separator", "name"), [(";", "`;`"), ("\t", "tabs"), ("|", "`|`")])
def test_read_corpus_other_separator_is_flaw_and_table_is_read(separator, name, tmp_path):
    result = read_lenient(tmp_path / "c.csv", f'id{separator}text\na{separator}"one, two"\n')
    assert result.flaws == [CorpusFlaw("separator", "c.csv:1", f"the cells are separated by {name}, not by commas")]
    assert (result.ids, result.texts) == (["a"], ["one, two"])


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.csv.gz", "c.gz"])
def test_read_corpus_truncated_archive_is_flaw(name, tmp_path):
    archive = gzip.compress(json.dumps({"id": "a", "text": "one"}).encode())
    result = read_lenient(tmp_path / name, archive[:-9])
    assert [flaw.kind for flaw in result.flaws] == ["unreadable"]
    assert "ended before the end-of-stream marker" in result.flaws[0].detail


def test_read_corpus_missing_file_raises_error(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_corpus(tmp_path / "c.jsonl", lenient=True)


def test_read_corpus_and_read_documents_use_same_field_names(tmp_path):
    rows = [{name: f"d{i}", "text": "words"} for i, name in enumerate(DOCUMENT_ID_FIELDS)]
    rows += [{"id": name, name: "words"} for name in TEXT_FIELDS]
    path = tmp_path / "c.jsonl"
    result = read_lenient(path, "".join(json.dumps(row) + "\n" for row in rows))
    documents = read_documents(path)
    assert result.flaws == []
    assert [document.id for document in documents] == result.ids
    assert [document.text for document in documents] == result.texts == ["words"] * len(rows)


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
def test_read_corpus_every_format_strict_equals_lenient(name, tmp_path):
    path = write_rows(tmp_path / name)
    expected = [Document("a", "the first text", "One"), Document("b", "another", "Two")]
    assert read_corpus(path).documents == expected
    lenient = read_corpus(path, lenient=True)
    assert (lenient.documents, lenient.flaws) == (expected, [])
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
        for lenient in (False, True):
            assert read_corpus(source, lenient=lenient).documents == expected
    assert [flaw.location for flaw in read_corpus(tmp_path).flaws if flaw.kind == "unread"] == ["scan.pdf"]


STRICT_ERRORS = {
    "an entry without an id": ("c.jsonl", '{"_id": "a", "text": "x"}\n{"text": "y"}\n', r"c.jsonl:2: expected an id"),
    "a duplicate id": ("c.csv", "id,text\na,x\na,y\n", r"c.csv:3: the id `a` appears more than once"),
    "broken JSON": ("c.jsonl", "{", r"c.jsonl:1: the JSON is invalid"),
    "a text that is a list": ("c.json", '[{"id": "a", "text": ["x"]}]', r"entry 1: `text` must be a text, got a list"),
    "bytes that are not UTF-8": ("c.tsv", b"a\tcaf\xe9\n", r"c.tsv:1: not UTF-8 text: byte 0xe9"),
    "a cell too many": ("c.csv", "id,text\na,x,y\n", r"c.csv:2: 3 cells, the header has 2"),
}


@pytest.mark.parametrize("case", STRICT_ERRORS)
def test_read_corpus_strict_raises_for_flaws(case, tmp_path):
    name, text, message = STRICT_ERRORS[case]
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=message):
        read_corpus(path)
    read_corpus(path, lenient=True)


def test_load_dataset_folder_with_corpus_in_any_format(tmp_path):
    for form in FORMATS[:-1]:
        folder = tmp_path / form
        folder.mkdir()
        write_rows(folder / f"corpus.{form}")
        (folder / "queries.csv").write_text("id,text\nq,what is first?\n")
        (folder / "qrels.txt").write_text("q 0 a 1\n")
        result = load(folder)
        assert ([document.id for document in result.documents], result.queries) == (["a", "b"], {"q": "what is first?"})
        assert [document.id for document in read_corpus(folder, lenient=True).documents] == ["a", "b"]
