"""Ids: the same rule in every format and for objects of Python."""

from __future__ import annotations

import json

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import BadInput, Dataset, evaluate, read_judgments, read_run
from ragauge.core.documents import Document
from ragauge.core.ids import with_text_ids
from ragauge.core.records import Judgments
from ragauge.files.readers import read_targets
from ragauge.files.writers import write_judgments, write_run

PADDED = {" q1": {"d1 ": 1, "d2": 0}, "q2\t": {"d1 ": 2}}
CLEAN = {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}}


def write_table(path, rows, names=("query_id", "doc_id", "score")):
    """Write rows without any change of their ids."""
    frame = pl.DataFrame(rows, schema=dict(zip(names, (pl.String, pl.String, pl.Float64), strict=True)), orient="row")
    writers = {
        ".csv": lambda: frame.write_csv(path),
        ".tsv": lambda: frame.write_csv(path, separator="\t"),
        ".jsonl": lambda: frame.write_ndjson(path),
        ".parquet": lambda: frame.write_parquet(path),
    }
    writers[path.suffix]()
    return path


def table_rows(nested):
    return [(query, doc, float(value)) for query, docs in nested.items() for doc, value in docs.items()]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet", ".json"])
def test_read_padded_ids_strips_blanks_in_every_format(tmp_path, ending):
    padded = {"\u2009q0": {"d0\u2009": 1}} | {"q1 ": {"d1": 1, " d2": 0}, "\tq2": {"d1": 2}}
    path = tmp_path / f"file{ending}"
    if ending == ".json":
        path.write_text(json.dumps(padded))
    else:
        write_table(path, table_rows(padded))
    expected = {"\u2009q0": {"d0\u2009": 1.0}} | CLEAN  # only the blanks that separate fields in TREC files
    assert read_judgments(path).nested == expected
    assert read_run(path).nested == expected


def test_evaluate_padded_ids_in_python_match_clean_ids():
    assert with_text_ids(PADDED) == CLEAN
    assert evaluate(PADDED, CLEAN, ["ndcg"]).means == evaluate(CLEAN, CLEAN, ["ndcg"]).means
    assert evaluate(CLEAN, PADDED, ["ndcg"]).means == evaluate(CLEAN, CLEAN, ["ndcg"]).means
    assert Judgments(PADDED).nested == CLEAN


def test_evaluate_int_ids_match_text_ids():
    judged = {1: {10: 1, 11: 1}}
    for run in (
        {"1": {"10": 0.9, "11": 0.1}},
        {1: {"10": 0.9, 11: 0.1}},
        {1: ["10", 11]},
        [(1, 10, 0.9), (1, "11", 0.1)],
    ):
        assert evaluate(judged, run, ["recall@2"]).means["recall@2"] == 1.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: {"a": 1}, "1": {"b": 1}}, "the query id `1` has two forms: the number 1 and '1'"),
        ({"q": {1: 0.9, "1": 0.1}}, "the document id `1` has two forms: the number 1 and '1'"),
        ({"q": {"a": 1}, "p": {"a ": 1}}, "the document id `a` has two forms: 'a' and 'a '"),
        ({"q": ["a", " a"]}, "the document id `a` has two forms: 'a' and ' a'"),
        ({"q": {" ": 1}}, "a document id is missing"),
        ({"q": {None: 1}}, "a document id is missing"),
        ({"q": {"": 1}}, "a document id is missing"),
    ],
)
def test_evaluate_two_forms_of_an_id_are_refused(value, message):
    with pytest.raises(BadInput) as error:
        read_judgments(value)
    assert message in str(error.value)
    with pytest.raises(BadInput) as error:
        evaluate({"x": {"y": 1}}, value, ["mrr"])
    assert message in str(error.value)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_read_two_forms_in_a_table_names_both_rows(tmp_path, ending):
    path = write_table(tmp_path / f"file{ending}", [("q", "b", 2.0), ("q", "a", 1.0), ("p", "a ", 1.0)])
    at, unit = {".csv": ((3, 4), "line"), ".tsv": ((3, 4), "line"), ".jsonl": ((2, 3), "line")}.get(
        ending, ((2, 3), "row")
    )
    message = f"the document id `a` has two forms: 'a' in {unit} {at[0]} and 'a ' in {unit} {at[1]}"
    for read in (read_judgments, read_run):
        with pytest.raises(BadInput) as error:
            read(path)
        assert message in str(error.value)


def test_read_two_forms_in_json_names_both_lines(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"q1": {"a": 1},\n "q2": {\n"b": 1, " a": 2}}')
    with pytest.raises(BadInput, match=r"run.json:3: the document id `a` .* 'a' in line 1 and ' a' in line 3"):
        read_run(path)
    with pytest.raises(BadInput, match=r"run.json:3: the document id `a` .* 'a' in line 1 and ' a' in line 3"):
        read_judgments(path)
    path.write_text('{"q1": ["a",\n"1", 1]}')
    with pytest.raises(BadInput, match=r"run.json:2: the document id `1` .* '1' in line 2 and the number 1 in line 2"):
        read_run(path)


def test_read_two_forms_in_rig_names_both_lines(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"query_id": "q1", "relevant_docs": {"a": 1}}\n{"query_id": 2, "relevant_docs": ["b", "a "]}\n')
    with pytest.raises(BadInput, match=r"q.jsonl:2: the document id `a` .* 'a' in line 1 and 'a ' in line 2"):
        read_judgments(path)


def test_read_jsonl_numbers_and_texts(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"qid": 1, "docno": "7", "score": 2}\n\n{"qid": 1, "docno": 8, "score": 1}\n')
    assert read_run(path).nested == {"1": {"7": 2.0, "8": 1.0}}
    path.write_text('{"qid": 1, "docno": "7", "score": 2}\n{"qid": 1.0, "docno": "8", "score": 1}\n')
    assert read_run(path).nested == {"1": {"7": 2.0, "8": 1.0}}
    path.write_text('{"qid": 1, "docno": "7", "score": 2}\n\n{"qid": "1", "docno": "8", "score": 1}\n')
    with pytest.raises(BadInput, match=r"run.jsonl:3: the query id `1` .* the number 1 in line 1 and '1' in line 3"):
        read_run(path)


def test_read_targets_strips_ids(tmp_path):
    path = tmp_path / "targets.json"
    path.write_text('{" d1": ["A ", "B"]}')
    assert read_targets(path) == {"d1": ["A", "B"]}
    with pytest.raises(BadInput, match="the document id `d1` has two forms"):
        read_targets({"d1": "A", "d1 ": "B"})


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_read_frames_with_padded_ids(kind):
    frame = {"query": pd.Categorical([" q", " q"]), "doc": ["a ", "b"], "score": [2.0, 1.0]}
    made = pd.DataFrame(frame) if kind == "pandas" else pl.from_pandas(pd.DataFrame(frame))
    assert read_run(made).nested == {"q": {"a": 2.0, "b": 1.0}}


def test_read_padded_queries_across_parquet_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr("ragauge.files.parquet_runs.ROWS_PER_GROUP", 2)
    monkeypatch.setattr("ragauge.files.parquet_runs.SINGLE_GROUP_BYTES", 0)
    path = write_table(tmp_path / "r.parquet", [(" q", f"d{i}", 5.0 - i) for i in range(5)])
    assert evaluate({"q": {"d4": 1}}, path, ["mrr"]).means["mrr"] == 0.2


def test_dataset_ids_are_texts_without_blanks():
    data = Dataset(
        "x", {1: "one", "b ": "two"}, {1: "how?", " q2": "why?"}, {"1": {1: 1}}, {1: "so"}, {"q2 ": {"t": "a"}}
    )
    assert [document.id for document in data.documents] == ["1", "b"]
    assert data.queries == {"1": "how?", "q2": "why?"}
    assert data.judgments.nested == {"1": {"1": 1}}
    assert (data.answers, data.tags) == ({"1": "so"}, {"q2": {"t": "a"}})
    with pytest.raises(BadInput, match="the document id `1` has two forms"):
        Dataset("x", [Document("1", "one"), (1, "two")], {"q": "how?"}, {})


def test_dataset_queries_without_ids_are_numbered():
    data = Dataset("x", {"d": "one"}, ["how?", "why?"], {"q1": {"d": 1}})
    assert data.queries == {"q1": "how?", "q2": "why?"}
    with pytest.raises(BadInput, match="queries must be a mapping of texts by id or a list of texts, got how"):
        Dataset("x", {"d": "one"}, "how?", {})


@given(
    nested=st.dictionaries(
        st.text(alphabet="ab \t", min_size=1, max_size=3).filter(str.strip),
        st.dictionaries(
            st.text(alphabet="ab \t", min_size=1, max_size=3).filter(str.strip), st.integers(0, 3), min_size=1
        ),
        min_size=1,
    )
)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_convert_padded_ids_keeps_scores(tmp_path_factory, ending, nested):
    folder = tmp_path_factory.mktemp("ids")
    try:
        expected = read_judgments(nested).nested
    except BadInput:
        return
    write_judgments(Judgments(nested), str(folder / f"q.{ending}"))
    write_run(read_run(nested), str(folder / f"r.{ending}"))
    assert read_judgments(folder / f"q.{ending}").nested == expected
    assert read_run(folder / f"r.{ending}").nested == expected


def test_read_pandas_ids_of_mixed_types():
    frame = pd.DataFrame({"query": ["q", "q"], "doc": pd.Series([1, "b"], dtype=object), "score": [2.0, 1.0]})
    assert read_run(frame).nested == {"q": {"1": 2.0, "b": 1.0}}
    frame["doc"] = pd.Series([1, "1"], dtype=object)
    with pytest.raises(BadInput, match="the document id `1` has two forms: the number 1 and '1'"):
        read_run(frame)
