"""Samples: field names of other tools, formats that round-trip, errors for invalid samples, and findings."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections import namedtuple
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from ragauge.cli.app import build_app
from ragauge.core.errors import BadInput, UnknownName
from ragauge.core.samples import Sample
from ragauge.evaluation.validation import sample_findings
from ragauge.files.samples import SAMPLE_ROW_BUILDERS, is_samples_file, read_samples, samples_from, write_samples

COMPLETE = Sample(
    "s1",
    "When was it begun?",
    "In 1887 [1].",
    ("It was begun in 1887.", "Café, «naïve»; it's [odd]\nand long"),
    "1887",
    ("d1", "d2"),
    ("user: hello", "assistant: hello"),
    {"faithfulness": 1.0},
    {"topic": "towers", "reference_contexts": ["It was begun in 1887."]},
)
MINIMAL = Sample("s2", "Who?", contexts=())


def write_text(tmp_path, text, name="samples.jsonl"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


# Field names


@pytest.mark.parametrize(
    "names",
    [
        "id question answer contexts reference",
        "id user_input response retrieved_contexts reference",
        "id question answer contexts ground_truth",
        "name input actual_output retrieval_context expected_output",
        "name input actualOutput retrievalContext expectedOutput",
        "query_id query output chunks expected_answer",
        "Sample-ID Question Answer Contexts Reference-Answer",
    ],
)
def test_samples_field_names_of_other_tools_are_accepted(names):
    row = dict(zip(names.split(), ("x", "When?", "1887.", ["a", "b"], "In 1887."), strict=True))
    assert samples_from([row]) == [Sample("x", "When?", "1887.", ("a", "b"), "In 1887.")]


def test_samples_list_of_one_reference_is_reference():
    assert samples_from([{"question": "?", "ground_truths": ["In 1887."]}])[0].reference == "In 1887."


def test_samples_unknown_fields_are_kept_as_metadata():
    (sample,) = samples_from(
        [{"question": "?", "answer": "!", "topic": "t", "reference_contexts": ["r"], "metadata": {"a": 1}}]
    )
    assert sample.metadata == {"topic": "t", "reference_contexts": ["r"], "a": 1}


def test_samples_deepeval_context_is_not_retrieved_context():
    """DeepEval's `context` is the ideal context; as retrieved context, it would make any retriever perfect."""
    (from_golden,) = samples_from([{"input": "?", "expected_output": "!", "context": ["ideal"]}])
    assert from_golden.contexts is None
    assert from_golden.metadata == {"context": ["ideal"]}
    (from_text,) = samples_from([{"question": "?", "answer": "!", "context": "given"}])
    assert from_text.contexts == ("given",)


def test_samples_contexts_as_objects_with_ids():
    chunks = [{"page_content": "one", "id": 7}, {"text": "two", "document_id": "d2", "title": "Title"}]
    (sample,) = samples_from([{"question": "?", "contexts": chunks}])
    assert (sample.contexts, sample.context_ids) == (("one", "Title two"), ("7", "d2"))
    document = SimpleNamespace(page_content="three", metadata={})
    (sample,) = samples_from([{"question": "?", "contexts": [document]}])
    assert (sample.contexts, sample.context_ids) == (("three",), ())


def test_read_samples_empty_contexts_are_not_missing(tmp_path):
    path = write_text(
        tmp_path, '{"question": "?", "answer": "!", "contexts": []}\n{"question": "?", "answer": "!", "contexts": null}'
    )
    assert [sample.contexts for sample in read_samples(path)] == [(), None]
    table = write_text(tmp_path, "question,answer,contexts\n?,!,[]\n?,!,\n", "samples.csv")
    assert [sample.contexts for sample in read_samples(table)] == [(), None]


def test_samples_conversation_becomes_history_and_question():
    turns = [
        {"content": "hi", "type": "human"},
        {"content": "hello", "type": "ai"},
        {"content": "When?", "type": "human"},
    ]
    (sample,) = samples_from([{"user_input": turns, "response": "1887."}])
    assert (sample.history, sample.question, sample.answer) == (("user: hi", "assistant: hello"), "When?", "1887.")
    (sample,) = samples_from([{"user_input": [*turns, {"content": "1887.", "type": "ai"}], "reference": "1887"}])
    assert (sample.question, sample.answer) == ("When?", "1887.")
    other_turns = [
        {"speaker": "user", "text": "hi"},
        {"speaker": "agent", "text": "hello"},
        {"speaker": "user", "text": "When?"},
    ]
    (sample,) = samples_from([{"input": other_turns}])
    assert (sample.history, sample.question) == (("user: hi", "assistant: hello"), "When?")


def test_samples_label_defaults_to_faithfulness():
    default, named = samples_from(
        [
            {"question": "?", "answer": "!", "label": 1},
            {"question": "?", "answer": "!", "labels": {"context_recall": 0.5}},
        ]
    )
    assert (default.labels, named.labels) == ({"faithfulness": 1.0}, {"context_recall": 0.5})


# Files


@pytest.mark.parametrize("name", ["s.jsonl", "s.json", "s.csv", "s.tsv", "s.parquet", "s.jsonl.gz", "s.ndjson", "s"])
@pytest.mark.parametrize("form", SAMPLE_ROW_BUILDERS)
def test_write_samples_every_format_round_trip(name, form, tmp_path):
    path = str(tmp_path / name)
    if form == "deepeval" and name in ("s.csv", "s.tsv"):
        with pytest.raises(BadInput, match="semicolon"):
            write_samples([COMPLETE, MINIMAL], path, form)
        return
    write_samples([COMPLETE, MINIMAL], path, form)
    assert read_samples(path) == [COMPLETE, MINIMAL]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
samples_strategy = st.builds(
    Sample,
    st.text("abc-_0", min_size=1, max_size=4),
    texts,
    texts | st.none(),
    st.none() | st.lists(texts, max_size=3).map(tuple),
    texts,
    history=st.lists(texts, max_size=2).map(tuple),
    labels=st.dictionaries(st.sampled_from(["faithfulness", "context_recall"]), st.floats(0, 1)),
    metadata=st.dictionaries(st.sampled_from(["topic", "reference_contexts"]), texts),
)


@given(
    st.lists(samples_strategy, min_size=1, max_size=3, unique_by=lambda sample: sample.id),
    st.sampled_from(sorted(SAMPLE_ROW_BUILDERS)),
)
def test_samples_random_text_round_trip(samples, form):
    rows = [json.loads(json.dumps(SAMPLE_ROW_BUILDERS[form](sample))) for sample in samples]
    assert samples_from(rows) == samples


def test_write_samples_ragas_has_names_of_single_turn_sample(tmp_path):
    """Names and types of SingleTurnSample in ragas 0.4.3, whose `from_jsonl` was verified to read them."""
    path = tmp_path / "samples.jsonl"
    write_samples([COMPLETE, MINIMAL], str(path), "ragas")
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["user_input"] == COMPLETE.question
    assert first["retrieved_contexts"] == list(COMPLETE.contexts)
    assert (first["response"], first["reference"]) == (COMPLETE.answer, COMPLETE.reference)
    assert first["reference_contexts"] == ["It was begun in 1887."]
    assert second == {"id": "s2", "user_input": "Who?", "retrieved_contexts": []}


def test_write_samples_deepeval_has_names_of_llm_test_case(tmp_path):
    """Names of LLMTestCase in DeepEval 4.3.1; `add_test_cases_from_json_file` requires `actual_output` in every row."""
    path = tmp_path / "samples.json"
    write_samples([COMPLETE, MINIMAL], str(path), "deepeval")
    first, second = json.loads(path.read_text())
    assert (first["input"], first["actual_output"]) == (COMPLETE.question, COMPLETE.answer)
    assert (first["expected_output"], first["retrieval_context"]) == (COMPLETE.reference, list(COMPLETE.contexts))
    assert second == {"name": "s2", "input": "Who?", "retrieval_context": [], "actual_output": None}


def test_read_samples_csv_cells_with_json_or_python_lists(tmp_path):
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["user_input", "retrieved_contexts", "response"])
    writer.writerow(["When?", str(["it's 1887", 'a "b"']), "1887"])  # format of to_csv in ragas
    writer.writerow(["When?", json.dumps(["it's 1887", 'a "b"']), "1887"])
    writer.writerow(["When?", "one plain text", "1887"])
    path = write_text(tmp_path, out.getvalue(), "samples.csv")
    assert [sample.contexts for sample in read_samples(path)] == [
        ("it's 1887", 'a "b"'),
        ("it's 1887", 'a "b"'),
        ("one plain text",),
    ]


@pytest.mark.parametrize(
    "content",
    [
        [{"question": "When?", "answer": "1887."}],
        {"samples": [{"question": "When?", "answer": "1887."}]},
        {"test_cases": [{"input": "When?", "actual_output": "1887."}], "goldens": []},
        {"test_cases": [], "goldens": [{"input": "When?", "actual_output": "1887."}]},
        {"question": ["When?"], "answer": ["1887."]},
        {"question": "When?", "answer": "1887."},
    ],
)
def test_read_samples_json_accepts_lists_objects_and_columns(content, tmp_path):
    path = write_text(tmp_path, json.dumps(content), "samples.json")
    assert read_samples(path) == samples_from(content) == [Sample("1", "When?", "1887.")]


def test_read_samples_missing_ids_default_to_line_numbers(tmp_path):
    path = write_text(tmp_path, '\n{"question": "?", "answer": "!"}\n\n{"question": "?", "answer": "!"}\n')
    assert [sample.id for sample in read_samples(path)] == ["2", "4"]


@pytest.mark.parametrize(
    "text",
    [
        '{"question": "When?", "answer": "1887."}\n',
        '[{"question": "When?", "answer": "1887."}]',
        '{\n "samples": [{"question": "When?", "answer": "1887."}]}',
        "question,answer\nWhen?,1887.\n",
        "question\tanswer\nWhen?\t1887.\n",
    ],
)
def test_read_samples_stdin_detects_format(text, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(gzip.compress(text.encode()))))
    assert [(sample.question, sample.answer) for sample in read_samples("-")] == [("When?", "1887.")]


# Objects


@dataclass
class Row:
    question: str
    answer: str


class Model:
    """Stand-in for a pydantic model."""

    model_fields = MappingProxyType(dict.fromkeys(["user_input", "response", "retrieved_contexts", "flaky"]))

    def __init__(self, **values):
        self.__dict__ |= dict.fromkeys(self.model_fields) | {"flaky": False} | values

    def model_dump(self):
        raise AssertionError("model_dump must not be called: it can change values")


def test_samples_from_objects_of_other_libraries():
    expected = [Sample("1", "When?", "1887.")]
    assert samples_from([Row("When?", "1887.")]) == expected
    assert samples_from([namedtuple("Pair", "question answer")("When?", "1887.")]) == expected
    model = Model(user_input="When?", response="1887.")
    assert samples_from(model) == samples_from([model]) == samples_from(iter([model])) == expected
    assert samples_from(SimpleNamespace(samples=[model])) == expected
    assert samples_from(SimpleNamespace(test_cases=[], goldens=[model])) == expected
    assert samples_from(expected) == samples_from(expected[0]) == expected


def test_samples_from_polars_and_pandas_frames():
    frame = {"question": ["When?", "Who?"], "answer": ["1887.", None], "contexts": [["a"], []]}
    expected = [Sample("1", "When?", "1887.", ("a",)), Sample("2", "Who?", None, ())]
    assert samples_from(pl.DataFrame(frame)) == expected
    assert samples_from(pl.DataFrame(frame).lazy()) == expected
    assert samples_from(pd.DataFrame(frame)) == expected
    assert samples_from(pd.DataFrame({"question": ["When?"], "answer": [float("nan")], "contexts": ["['a']"]})) == [
        Sample("1", "When?", None, ("a",))
    ]


# Invalid input


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"question": "?", "answer": "a", "response": "b"}',
            "`answer` and `response` have different values for the answer",
        ),
        ('{"question": "?", "answer": true}', "the answer must be a text, got `true`"),
        ('{"question": "?", "answer": ["a"]}', "must be a text"),
        ('{"question": "?", "contexts": {"a": 1}}', "must be a list of texts"),
        ('{"question": "?", "contexts": ["a", 7]}', "context 2 must be a text, got `7`"),
        ('{"question": "?", "contexts": ["a", null]}', "context 2 must be a text, got `null`"),
        ('{"question": "?", "contexts": ["a"], "context_ids": ["x", "y"]}', "2 context_ids and 1 contexts"),
        ('{"question": "?", "answer": "!", "context_ids": ["x"]}', "1 context_ids and none contexts"),
        ('{"question": "?", "ground_truths": ["a", "b"]}', "expected one reference, got 2"),
        ('{"question": "?", "answer": "!", "labels": {"faithfulness": 3}}', "the label of faithfulness is `3`"),
        ('{"question": "?", "answer": "!", "label": "yes"}', "the label of faithfulness is"),
        ('{"question": "?", "answer": "!", "labels": 1}', "labels must be an object, got `1`"),
        ('{"question": "?", "answer": "!", "id": ["x"]}', "the id must be a text or a number"),
        ('{"question": "?", "answer": "!", "id": " "}', "the id is empty"),
        ('{"user_input": [{"content": "hi", "type": "ai"}], "reference": "x"}', "does not end with a question"),
        ('{"user_input": [7], "reference": "x"}', "a turn of the conversation must be a text"),
        ('{"question": "?", "answer": "!", "id": "first"}', "the id `first` appears more than once"),
        ('{"documents": ["a"]}', "not a sample: it has documents"),
        ('["question"]', "expected an object"),
        ('{"question": "?"', "the JSON cannot be read"),
    ],
)
def test_read_samples_invalid_line_raises_with_line(line, message, tmp_path):
    path = write_text(tmp_path, f'{{"id": "first", "question": "?", "answer": "!"}}\n\n{line}\n')
    with pytest.raises(BadInput) as caught:
        read_samples(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"), [("", "is empty"), (" ", "is ' '"), (" a", "begins or ends"), (7, "is 7")]
)
def test_samples_invalid_id_raises_error(name, message):
    with pytest.raises(BadInput, match=rf"sample 2: the id .*{message}"):
        samples_from([Sample("a", "When?", "Now."), Sample(name, "When?", "Now.")])


def test_samples_two_names_with_equal_values_are_accepted():
    assert samples_from([{"question": "?", "query": "?", "answer": "!"}]) == [Sample("1", "?", "!")]


def test_read_samples_truncated_json_cell_raises_with_line(tmp_path):
    path = write_text(tmp_path, 'question,contexts\n?,"[""one"", ""tw"\n', "samples.csv")
    with pytest.raises(BadInput, match=r"samples.csv:2: .* cannot be read as JSON"):
        read_samples(path)


def test_read_samples_missing_file_raises_error(tmp_path):
    for ending in ("jsonl", "json", "csv", "parquet"):
        with pytest.raises(BadInput, match=rf"^{tmp_path}/none.{ending}: .*(cannot be read|no such file)"):
            read_samples(str(tmp_path / f"none.{ending}"))


def test_samples_empty_or_invalid_input_raises_error(tmp_path):
    for name, text in (("a.jsonl", "\n"), ("a.json", "[]"), ("a.csv", "question,answer\n")):
        with pytest.raises(BadInput, match="no samples found"):
            read_samples(write_text(tmp_path, text, name))
    with pytest.raises(BadInput, match="no samples found"):
        read_samples(write_text(tmp_path, "q1 0 a 1\n", "qrels.txt"))
    with pytest.raises(BadInput, match="samples cannot be read from int"):
        samples_from(7)
    with pytest.raises(BadInput, match="sample 1: a int is not a sample"):
        samples_from([7])
    with pytest.raises(UnknownName, match="sample format"):
        write_samples([MINIMAL], str(tmp_path / "x"), "trulens")


def test_read_samples_json_columns_of_different_lengths_raises_error(tmp_path):
    path = write_text(tmp_path, '{"question": ["a", "b"], "answer": ["c"]}', "samples.json")
    with pytest.raises(BadInput, match="different lengths"):
        read_samples(path)


def test_is_samples_file_rejects_judgments_and_runs(tmp_path):
    assert is_samples_file(write_text(tmp_path, '{"question": "?", "answer": "!"}'))
    for text in (
        '{"query_id": "q", "doc_id": "d", "score": 1}',
        '{"query": "q", "query_id": "1", "relevant_docs": {}, "reference_answer": "x"}',
    ):
        assert not is_samples_file(write_text(tmp_path, text))
    assert not is_samples_file(write_text(tmp_path, "query_id,doc_id,label\nq,d,1\n", "qrels.csv"))
    assert not is_samples_file(write_text(tmp_path, "q1 0 a 1\n", "qrels.txt"))
    assert not is_samples_file(str(tmp_path))


# Real samples


def test_samples_from_mtrag_tasks_round_trip(shared, tmp_path):
    path = shared("rag_mtrag_un") / "mtragun_reference.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        tasks = [json.loads(line) for line in lines][:50]
    rows = [{"id": task["task_id"], "input": task["input"], "contexts": task["contexts"]} for task in tasks]
    samples = samples_from(rows)
    assert len(samples) == 50
    assert any(sample.history for sample in samples)
    assert all(sample.question for sample in samples)
    write_samples(samples, str(tmp_path / "s.csv"))
    restored = read_samples(str(tmp_path / "s.csv"))
    assert [restored_sample.context_ids for restored_sample in restored] == [sample.context_ids for sample in samples]


# Command line and findings


def test_cli_convert_samples_by_format_or_file_ending(tmp_path):
    path = str(tmp_path / "samples.jsonl")
    write_samples([COMPLETE, MINIMAL], path)
    for target, more in (("a.jsonl", ["--format", "ragas"]), ("a.json", ["--format", "deepeval"]), ("a.csv", [])):
        result = CliRunner().invoke(build_app(), ["convert", path, str(tmp_path / target), *more])
        assert result.exit_code == 0, result.output
        assert read_samples(str(tmp_path / target)) == [COMPLETE, MINIMAL]
    assert '"user_input"' in (tmp_path / "a.jsonl").read_text()
    refused = CliRunner().invoke(build_app(), ["convert", path, "-", "--format", "csv"])
    assert "--format for samples must be one of ragauge, ragas, deepeval, got `csv`" in str(refused.exception)


def test_cli_measures_lists_and_explains_answer_measures():
    listed = json.loads(CliRunner().invoke(build_app(), ["measures", "--json"]).output)
    assert {"name": "faithfulness", "of": "answers"}.items() <= next(
        r for r in listed if r["name"] == "faithfulness"
    ).items()
    text = CliRunner().invoke(build_app(), ["measures", "answer_relevancy"]).output
    assert text.startswith("answer_relevance\n")
    assert "needs: question, answer" in text
    assert "map(of=found)" in CliRunner().invoke(build_app(), ["measures", "context_precision@5"]).output
    assert "faithfulness" in CliRunner().invoke(build_app(), ["measures"]).output
    unknown = CliRunner().invoke(build_app(), ["measures", "faithfulnes"])
    assert "did you mean `faithfulness`" in str(unknown.exception)


def test_sample_findings_unread_fields_are_problem_if_contexts_missing():
    rows = [{"query": "How high?", "response": "High.", "retrieved": ["It is high."], "topic": "size"}]
    rows.append({"query": "How old?", "response": "Old.", "retrieved": ["It is old."], "reference_contexts": ["x"]})
    (finding,) = (item for item in sample_findings("x", samples_from(rows)) if item.check == "unread fields")
    assert finding.problem
    beginning = "unknown fields, read as metadata: retrieved, topic (1); contexts may be called contexts, "
    assert finding.message.startswith(beginning)
    row = {
        "question": "How high?",
        "answer": "High.",
        "contexts": ["It is high."],
        "reference": "High.",
        "topic": "x",
    }
    (finding,) = (item for item in sample_findings("x", samples_from([row])) if item.check == "unread fields")
    assert (finding.problem, finding.message) == (False, "unknown fields, read as metadata: topic")


def test_sample_findings_lists_every_problem(tmp_path):
    samples = [
        COMPLETE,
        MINIMAL,
        Sample("s3", "What?", "", ("a", "a", " ")),
        Sample("s4", "What?", "See [4].", ("a",), "See [4]."),
        Sample("s5", "What?", "See [4].", ("a",)),
    ]
    actual = {finding.check: (finding.problem, finding.count) for finding in sample_findings("x", samples)}
    assert actual == {
        "samples": (False, 5),
        "contexts": (False, 7),
        "unread fields": (False, 1),
        "labels": (False, 1),
        "without answers": (True, 1),
        "without references": (True, 3),
        "empty answers": (True, 1),
        "empty contexts": (True, 1),
        "blank contexts": (True, 1),
        "repeated contexts": (True, 1),
        "repeated samples": (True, 2),
        "dangling citations": (True, 2),
        "answers that are references": (False, 1),
    }
    (empty,) = (
        finding
        for finding in sample_findings("x", [Sample("s", "What?", "So.", ())])
        if finding.check == "empty contexts"
    )
    assert empty.message == "samples with an empty list of contexts: 1"
    path = str(tmp_path / "samples.jsonl")
    write_samples(samples, path)
    result = CliRunner().invoke(build_app(), ["validate", path, "--strict"])
    assert result.exit_code == 1
    assert "answers that cite a missing chunk: 2 (s4, s5)" in result.output


def test_sample_findings_valid_samples_have_no_problem():
    samples = [Sample(str(i), f"{i}?", f"{i}!", ("a", "b"), "r") for i in range(3)]
    assert not [finding for finding in sample_findings("x", samples) if finding.problem]
