"""Files of judgments and runs: round trips in every format, valid variants of TREC files, and errors."""

from __future__ import annotations

import gzip
import io
import json

import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from command import run_python
from ragauge import BadInput, evaluate, read_judgments, read_run
from ragauge.evaluation.validation import validate_files
from ragauge.files import trec
from ragauge.files.readers import read_targets
from ragauge.files.source import InputFile
from ragauge.files.workspace import atomic_write
from ragauge.files.writers import write_judgments, write_run

QRELS = {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d#3": 1.0}}
RUN = {"q1": {"d2": 2.5, "d1": 1.0}, "q2": {"d#3": -0.5}}
QRELS_TEXT = "q1 0 d1 2\nq1 0 d2 0\nq2 0 d#3 1\n"
RUN_TEXT = "q1 Q0 d2 1 2.5 tag\nq1 Q0 d1 2 1.0 tag\nq2 Q0 d#3 1 -0.5 tag\n"


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t,
        lambda t: t.replace(" ", "\t"),
        lambda t: t.replace(" ", "   "),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.replace("\n", " \n"),
        lambda t: "  " + t.replace("\n", "\n \t"),
        lambda t: "# a comment\n" + t.replace("\n", "\n# another\n", 1),
        lambda t: t.replace("\n", "\n\n"),
        lambda t: t.removesuffix("\n"),
    ],
    ids=["plain", "tabs", "runs of spaces", "CRLF", "trailing", "leading", "comments", "blank lines", "no last end"],
)
def test_read_trec_files_accepts_white_space_and_comments(tmp_path, change):
    assert read_judgments(write(tmp_path / "q.txt", change(QRELS_TEXT))).nested == QRELS
    assert read_run(write(tmp_path / "r.txt", change(RUN_TEXT))).nested == RUN


def test_read_run_ignores_fields_after_tag(tmp_path):
    assert read_run(write(tmp_path / "r", RUN_TEXT.replace("tag\n", "tag and more\n"))).nested == RUN


def test_read_run_ignores_rank_column(tmp_path):
    assert read_run(write(tmp_path / "r", "q1 Q0 d1 first 0.5 t\n")).nested == {"q1": {"d1": 0.5}}


@pytest.mark.parametrize("score", ["1e-3", "+2.5", "-.5", "3.", "1E5", "inf", "-inf", "0001"])
def test_read_run_accepts_c_number_formats(tmp_path, score):
    assert read_run(write(tmp_path / "r", f"q Q0 d 1 {score} t\n")).nested == {"q": {"d": float(score)}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 0.5 t\nq Q0 e 2 high t\n", r"r\.txt:2: the score must be a number, got `high`"),
        ("q Q0 d 1 0.5 t\n\n# x\nq\tQ0\te\t2\tnan\tt\n", r"r\.txt:4: the score must be a number, got `nan`"),
        ("q Q0 d 1 0.5 t\nq Q0 e 2\n", r"r\.txt:2: expected 6 fields .* found 4"),
        ("q Q0 d 1 0.5 t\nq Q0 \xe9 2 0.1 t\n".encode("latin-1"), r"r\.txt:2: the line is not UTF-8|r\.txt:2"),
        ("", r"r\.txt: no rows"),
        ("# nothing\n", r"r\.txt: no rows"),
    ],
)
def test_evaluate_invalid_run_line_raises_with_line(tmp_path, text, message):
    path = write(tmp_path / "r.txt", text)
    with pytest.raises(BadInput, match=message):
        evaluate({"q": {"d": 1}}, path, ["mrr"])


def test_evaluate_invalid_line_in_large_file_raises_with_line(tmp_path, monkeypatch):
    rows = [f"q{i // 10} Q0 d{i} 1 {i / 7:.4f} t\n" for i in range(5000)]
    rows[4321] = "q432 Q0 d4321 1 x t\n"
    path = write(tmp_path / "r.txt", "".join(rows))
    monkeypatch.setattr(InputFile.blocks, "__defaults__", (1000,))
    with pytest.raises(BadInput, match=r"r\.txt:4322: the score must be a number, got `x`") as error:
        evaluate({"q1": {"d1": 1}}, path, ["mrr"])
    assert (error.value.file, error.value.line) == (str(path), 4322)


def test_evaluate_is_independent_of_block_size(tmp_path, monkeypatch):
    rows = "".join(f"q{i // 37} Q0 d{i} 1 {(i * 7) % 11} t\n" for i in range(500))
    path = write(tmp_path / "r.txt", rows)
    qrels = {f"q{q}": {f"d{q * 37 + i}": 1 for i in range(0, 37, 5)} for q in range(13)}
    expected = evaluate(qrels, path, ["all_trec"]).means
    for size in (1, 100, 1111):
        monkeypatch.setattr(InputFile.blocks, "__defaults__", (size,))
        assert evaluate(qrels, path, ["all_trec"]).means == expected


LINES = st.lists(
    st.one_of(
        st.just("q 0 d 1"),
        st.lists(st.sampled_from(["a", "b", "1", "0.5", "#", " ", "\t", ""]), max_size=7).map(" ".join),
    ),
    max_size=5,
)


@given(LINES, st.sampled_from(["", "\n"]))
def test_read_qrels_matches_splitting_lines(tmp_path_factory, lines, end):
    """The rows are those of the split lines; a file with an invalid line is refused."""
    path = tmp_path_factory.mktemp("trec") / "qrels.txt"
    path.write_text("\n".join(lines) + end)
    rows = [line.split() for line in lines if line.split() and not line.split()[0].startswith("#")]
    is_valid = bool(rows) and all(len(row) == 4 and row[3] in ("1", "0.5") for row in rows)
    try:
        result = trec.read_qrels(InputFile(str(path)))
    except BadInput:
        assert not is_valid
        return
    assert is_valid
    assert result.select("query", "doc").rows() == [(row[0], row[2]) for row in rows]
    assert result["grade"].to_list() == [float(row[3]) for row in rows]


def test_read_run_detects_compression_by_content(tmp_path):
    assert read_run(write(tmp_path / "r.gz", gzip.compress(RUN_TEXT.encode()))).nested == RUN
    assert read_run(write(tmp_path / "r.trec.zst", zstandard.compress(RUN_TEXT.encode()))).nested == RUN
    assert read_run(write(tmp_path / "plain.name", gzip.compress(RUN_TEXT.encode()))).nested == RUN


def test_evaluate_truncated_archive_raises_error(tmp_path):
    truncated = gzip.compress((RUN_TEXT * 1000).encode())[:-20]
    with pytest.raises(BadInput, match="cannot be read to its end"):
        evaluate(QRELS, write(tmp_path / "r.gz", truncated), ["mrr"])


def test_read_run_dash_reads_stdin(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(RUN_TEXT.encode())))
    assert read_run("-").nested == RUN


def test_read_run_missing_file_suggests_similar_name(tmp_path):
    write(tmp_path / "run.txt", RUN_TEXT)
    with pytest.raises(BadInput, match="no such file") as error:
        read_run(tmp_path / "runs.txt")
    assert "run.txt" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td#3\t1\n",
        "q1\td1\t2\nq1\td2\t0\nq2\td#3\t1\n",
        "q1\t0\td1\t2\nq1\t0\td2\t0\nq2\t0\td#3\t1\n",
        "query-id\tQ0\tcorpus-id\tscore\nq1\tQ0\td1\t2\nq1\tQ0\td2\t0\nq2\tQ0\td#3\t1\n",
    ],
    ids=["3 with header", "3 without", "4 without", "4 with header"],
)
def test_read_judgments_beir_with_3_or_4_columns(tmp_path, text):
    (tmp_path / "qrels").mkdir()
    write(tmp_path / "qrels" / "test.tsv", text)
    assert read_judgments(tmp_path).nested == QRELS
    assert read_judgments(tmp_path / "qrels" / "test.tsv").nested == QRELS


def test_read_judgments_folder_without_split_lists_splits(tmp_path):
    (tmp_path / "qrels").mkdir()
    write(tmp_path / "qrels" / "train.tsv", "q\td\t1\n")
    write(tmp_path / "qrels" / "other.tsv", "q\td\t1\n")
    with pytest.raises(BadInput, match=r"no qrels/test.tsv") as error:
        read_judgments(tmp_path)
    assert "other, train" in str(error.value)
    assert read_judgments(tmp_path, split="train").nested == {"q": {"d": 1.0}}


def test_read_judgments_rig_with_grades_or_lists(tmp_path):
    lines = [
        {"query_id": "q1", "query": "?", "relevant_docs": {"d1": 2, "d2": 0}, "reference_answer": "!"},
        {"query_id": "q2", "query": "?", "relevant_docs": ["d#3"]},
    ]
    path = write(tmp_path / "q.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert read_judgments(path).nested == QRELS
    write(path, '{"query_id": "q1", "relevant_docs": {"a": 1}}\n{"query_id": "q2", "relevant_docs": 7}\n')
    with pytest.raises(BadInput, match=r"q\.jsonl:2: relevant_docs must be a list"):
        read_judgments(path)
    write(path, '{"query_id": "q1", "relevant_docs": {"a": 1}}\n{oops\n')
    with pytest.raises(BadInput, match=r"q\.jsonl:2: the JSON cannot be read"):
        read_judgments(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "query_id,doc_id,score\nq1,d2,2.5\nq1,d1,1.0\nq2,d#3,-0.5\n"),
        ("r.tsv", "qid\tdocno\tsim\nq1\td2\t2.5\nq1\td1\t1.0\nq2\td#3\t-0.5\n"),
        (
            "r.jsonl",
            '{"qid":"q1","docid":"d2","score":2.5}\n{"qid":"q1","docid":"d1","score":1}\n{"qid":"q2","docid":"d#3","score":-0.5}\n',
        ),
        ("r.json", '{"q1": {"d2": 2.5, "d1": 1.0}, "q2": {"d#3": -0.5}}'),
        ("r.csv", "query_id,doc_id,distance\nq1,d2,-2.5\nq1,d1,-1.0\nq2,d#3,0.5\n"),
    ],
)
def test_read_run_with_named_columns(tmp_path, name, text):
    assert read_run(write(tmp_path / name, text)).nested == RUN


def test_read_run_invalid_table_raises_error(tmp_path):
    path = write(tmp_path / "r.csv", "query_id,doc_id,score\nq1,d2,2.5\nq1,d1,much\n")
    with pytest.raises(BadInput, match=r"r\.csv:3: the score of row 2 is not a number"):
        read_run(path)
    with pytest.raises(BadInput, match="a run needs a query, a document, and a score"):
        read_run(write(tmp_path / "s.csv", "query_id,doc_id,title\nq1,d2,x\n"))


def test_read_ranked_lists_and_pgvectordb_json(tmp_path):
    path = write(tmp_path / "p.json", '{"q1": ["d2", "d1", "d2"]}')
    assert read_run(path).table["doc"].to_list() == ["d2", "d1", "d2"]
    path = write(tmp_path / "t.json", '{"queries": ["how?"], "ground_truth": [["1", "2", "2"]], "metadata": {}}')
    assert read_judgments(path).nested == {"how?": {"1": 1, "2": 1}}


def test_read_judgments_duplicate_is_one_unless_grades_differ(tmp_path):
    path = write(tmp_path / "q.txt", "q 0 a 1\nq 0 b 1\nq 0 a 1\n")
    assert read_judgments(path).nested == {"q": {"a": 1.0, "b": 1.0}}
    with pytest.raises(BadInput, match="document `a` of query `q` has the grades 1, 0"):
        read_judgments(write(path, "q 0 a 1\nq 0 a 0\n"))


def test_read_judgments_groups_interleaved_queries(tmp_path):
    path = write(tmp_path / "q.txt", "q1 0 a 1\nq2 0 b 1\nq1 0 c 2\n")
    assert read_judgments(path).nested == {"q1": {"a": 1.0, "c": 2.0}, "q2": {"b": 1.0}}
    assert evaluate(path, {"q1": ["c"], "q2": ["b"]}, ["num_rel"]).means["num_rel"] == 3


ids = st.text(alphabet="abcXYZ019-_.:#é", min_size=1, max_size=6).filter(lambda t: not t.startswith("#"))
numbers = st.floats(-1e9, 1e9, allow_nan=False).map(lambda x: round(x, 6))
WRITTEN = ["trec", "csv", "tsv", "jsonl", "json", "parquet"]


@pytest.mark.parametrize("form", [*WRITTEN, "beir", "rig"])
@given(
    nested=st.dictionaries(
        ids, st.dictionaries(ids, st.integers(-2, 5), min_size=1, max_size=5), min_size=1, max_size=5
    )
)
@pytest.mark.slow
def test_write_judgments_round_trip(tmp_path_factory, form, nested):
    path = tmp_path_factory.mktemp("out") / ("q.jsonl" if form == "rig" else f"q.{form}")
    write_judgments(read_judgments(nested), str(path), form)
    assert read_judgments(path, format=form).nested == nested


@pytest.mark.parametrize("form", WRITTEN)
@given(nested=st.dictionaries(ids, st.dictionaries(ids, numbers, min_size=1, max_size=5), min_size=1, max_size=5))
@pytest.mark.slow
def test_write_run_round_trip(tmp_path_factory, form, nested):
    path = tmp_path_factory.mktemp("out") / f"r.{form}"
    write_run(read_run(nested), str(path), form)
    assert read_run(path, format=form).nested == nested


def test_write_judgments_failure_leaves_no_file(tmp_path):
    with pytest.raises(BadInput, match="these judgments have no subtopics"):
        write_judgments(read_judgments(QRELS), str(tmp_path / "q.txt"), "subtopics")
    assert list(tmp_path.iterdir()) == []


def test_write_run_compressed_round_trip(tmp_path):
    for name in ("r.trec.gz", "r.csv.zst"):
        write_run(read_run(RUN), str(tmp_path / name))
        assert read_run(tmp_path / name).nested == RUN


def test_evaluate_parquet_run_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("ragauge.files.table_files.ROWS_PER_WRITE", 2)
    frame = pl.DataFrame({"query_id": [1, 1, 1, 2], "doc_id": [10, 11, 12, 10], "score": [0.3, 0.2, 0.1, 0.9]})
    frame.write_parquet(tmp_path / "r.parquet")
    result = evaluate({"1": {"12": 1}, "2": {"10": 1}}, tmp_path / "r.parquet", ["mrr"])
    assert result.means["mrr"] == pytest.approx((1 / 3 + 1) / 2)


def test_read_targets_from_text_and_json(tmp_path):
    assert read_targets(write(tmp_path / "t.tsv", "doc target\na A\na B\n# x\nb\tB\n")) == {"a": ["A", "B"], "b": ["B"]}
    assert read_targets(write(tmp_path / "t.json", '{"a": ["A", "B"], "b": "B"}')) == {"a": ["A", "B"], "b": ["B"]}
    with pytest.raises(BadInput, match=r"u\.tsv:1: expected a document and its targets"):
        read_targets(write(tmp_path / "u.tsv", "alone\n"))


def test_read_run_unknown_format_raises_error():
    with pytest.raises(LookupError, match="unknown format `trek`"):
        read_run("x", format="trek")


@pytest.mark.parametrize(
    ("read", "text", "hint"),
    [
        (read_judgments, "q1 Q0 d1 1 0.5 t\n", "this looks like a run"),
        (read_run, "q1 0 d1 1\n", "these look like judgments"),
        (read_run, "model,score,set\n", "this looks like a CSV"),
    ],
)
def test_read_wrong_file_type_hints_at_detected_type(tmp_path, read, text, hint):
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        read(str(path))
    assert hint in str(error.value.hint)


@pytest.mark.parametrize("place", [".", "file.txt/x.xml"])
def test_atomic_write_unwritable_path_raises_error(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(BadInput, match=r"is a folder|cannot be written"), atomic_write(place):
        pass


def test_read_targets_carriage_return_raises_with_line(tmp_path):
    (tmp_path / "targets.csv").write_bytes(b"d0,A\nd1,A\rd2,B\r")
    with pytest.raises(BadInput, match=r"targets\.csv:2: the line contains a carriage return"):
        read_targets(tmp_path / "targets.csv")


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (("query_id", "doc_id", "relevance"), ("qid", "docno", "label")),
        (("qid", "docno", "grade"), ("qid", "doc_id", "grade")),
        (("qid", "docno", "grade"), ("topic", "text", "value")),
        (("qid", "docno", "grade"), ("a", "b", "c")),
    ],
)
def test_read_jsonl_with_other_names_raises_with_line(tmp_path, first, later):
    rows = [dict(zip(first, ("q1", "a", 1), strict=True)), {}, dict(zip(later, ("q1", "b", 1), strict=True))]
    path = write(tmp_path / "q.jsonl", "\n\n".join(json.dumps(row) for row in rows))
    message = f"q.jsonl:5: the columns differ from those of the first row: expected {', '.join(first)}, got "
    for read in (read_judgments, read_run):
        with pytest.raises(BadInput) as error:
            read(path)
        assert message + ", ".join(later) in str(error.value) or "a run needs" in str(error.value)


def test_read_jsonl_later_subtopics_raise_with_line(tmp_path):
    rows = [{"qid": "q", "docno": "a", "grade": 1}, {"qid": "q", "docno": "b", "grade": 1, "subtopic": "2"}]
    path = write(tmp_path / "q.jsonl", "\n".join(json.dumps(row) for row in rows))
    with pytest.raises(BadInput, match=r"q\.jsonl:2: the columns differ"):
        read_judgments(path)
    path = write(tmp_path / "q.jsonl", "\n".join(json.dumps(row) for row in reversed(rows)))
    with pytest.raises(BadInput, match=r"q\.jsonl:2: the subtopic of row 2 is missing"):
        read_judgments(path)


@pytest.mark.parametrize(
    ("name", "text", "read", "message", "hint"),
    [
        ("a.jsonl", '{"a": {"b": 1}}\n', read_judgments, "found no column of texts or numbers", "query_id, doc_id"),
        ("r.tsv", "11\t0\t1\n11\t5\t2\n", read_run, "needs a header", "query_id<tab>doc_id<tab>rank"),
        ("r.txt", "11\t0\t1\n11\t5\t2\n", read_run, "expected 6 fields", "query_id<tab>doc_id<tab>rank"),
        ("q.txt", "11\t0\t1\n11\t5\t2\n", read_judgments, "expected 4 fields", "end in .tsv"),
        ("s.json", '{"task_name": "t", "scores": {"test": [{"a": 1}]}}', read_judgments, "of MTEB", "predictions"),
        ("s.json", '{"task_name": "t", "scores": {"test": [{"a": 1}]}}', read_run, "scores of a task of MTEB", ""),
        ("v.npz", b"PK\x03\x04", read_judgments, "a .npz archive holds several arrays", "numpy.save("),
        ("v.npz", b"PK\x03\x04", read_run, "a .npz archive holds several arrays", "numpy.save("),
    ],
)
def test_read_files_of_other_tools_raises_with_their_kind(tmp_path, name, text, read, message, hint):
    with pytest.raises(BadInput) as error:
        read(write(tmp_path / name, text))
    assert message in error.value.message
    assert hint in str(error.value.hint)


def test_validate_subtopic_judgments_names_the_format(tmp_path):
    path = write(tmp_path / "q.txt", "1 1 a 1\n1 2 a 1\n1 1 b 0\n1 2 b 1\n")
    found = {finding.check: finding.message for finding in validate_files(str(path))}
    assert found["duplicate rows"].endswith("add `--qrels-format subtopics` if it is the subtopic")
    assert "subtopics" not in found["conflicting grades"]
    assert "duplicate rows" not in {f.check for f in validate_files(str(path), qrels_format="subtopics")}
    write(path, "1 0 a 1\n1 0 a 1\n1 0 b 1\n")
    assert validate_files(str(path))[2].message == "duplicate rows: 1"


def test_convert_otlp_lines_raises_with_their_fields(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "otlp.jsonl", '{"resourceSpans": []}\n')
    done = run_python(
        ["-m", "ragauge", "convert", "otlp.jsonl", "o.json", "--kind", "samples", "--from", "otlp"], tmp_path
    )
    assert "not a sample: it has resourceSpans" in done.stderr
