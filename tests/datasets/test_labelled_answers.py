"""Datasets of labelled answers: a constructed example of each published format, and the real datasets."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from ragauge.core.errors import BadInput
from ragauge.datasets.labelled_answers import LabelledDataset, load_labelled

BEGIN = "model_name\tdata_source\tknowledge\tmessage\tresponse\tbegin_label\r\n"


def write_file(path, text):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_bytes(text.encode())
    return str(path)


def to_json_lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_load_labelled_begin_reads_three_classes_and_untidy_labels(tmp_path):
    text = (
        BEGIN
        + 't5\twow\tIt is "red.\tWhat colour?\tIt is red\tFully attributable \r\n'
        + "t5\twow\tIt is red.\tWhy?\tI like it\tNot fully attributable\r\n"
        + "gpt2\twow\tIt is red.\tOh\thaha\tGeneric\n"
    )
    found = load_labelled(write_file(tmp_path / "tiny.tsv.gz", text))
    assert (found.name, found.measure, found.people, len(found.samples)) == ("tiny", "faithfulness", True, 3)
    assert found.easy
    assert [sample.labels["faithfulness"] for sample in found.samples] == [1.0, 0.0, 0.0]
    assert [sample.metadata["class"] for sample in found.samples] == [
        "Fully attributable",
        "Not fully attributable",
        "Generic",
    ]
    first = found.samples[0]
    assert (first.id, first.question, first.answer, first.contexts) == (
        "tiny-1",
        "What colour?",
        "It is red",
        ('It is "red.',),
    )
    assert (first.metadata["system"], first.metadata["source"]) == ("t5", "wow")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a\tb\tc\td\te\tPerhaps\n", "tiny.tsv:2: `Perhaps` is not a label of BEGIN"),
        ("a\tb\tc\n", "tiny.tsv:2: expected 6 columns, found 3"),
    ],
)
def test_load_labelled_begin_invalid_row_error_names_line(tmp_path, row, message):
    with pytest.raises(BadInput) as caught:
        load_labelled(write_file(tmp_path / "tiny.tsv", BEGIN + row))
    assert message in str(caught.value)


def test_load_labelled_halueval_returns_two_samples_per_line(tmp_path):
    row = {"knowledge": "Delhi.", "question": "Where?", "right_answer": "Delhi", "hallucinated_answer": "In Mumbai."}
    found = load_labelled(write_file(tmp_path / "qa.jsonl", to_json_lines(row)))
    assert not found.people
    assert ".92" in found.easy
    assert [(sample.id, sample.answer, sample.labels["faithfulness"]) for sample in found.samples] == [
        ("qa-1-right", "Delhi", 1.0),
        ("qa-1-hallucinated", "In Mumbai.", 0.0),
    ]
    assert {(sample.question, sample.contexts, sample.reference) for sample in found.samples} == {
        ("Where?", ("Delhi.",), "Delhi")
    }


def test_load_labelled_halueval_missing_text_raises_error(tmp_path):
    good = {"knowledge": "k", "question": "q", "right_answer": "r", "hallucinated_answer": "h"}
    with pytest.raises(BadInput, match=r"qa.jsonl:2: expected a text named `question`"):
        load_labelled(write_file(tmp_path / "qa.jsonl", to_json_lines(good, good | {"question": None})))


def test_load_labelled_clap_nq_reads_passage_and_sentence_labels(tmp_path):
    passage = {"title": "T", "text": "One. Two. Three.", "sentences": ["One.", "Two.", "Three."]}
    answerable = {
        "id": 7,
        "input": "q",
        "passages": [passage],
        "output": [{"answer": "A", "selected_sentences": ["Three.", "One."]}],
    }
    unanswerable = {"id": 8, "input": "p", "passages": [passage], "output": [{"answer": "", "selected_sentences": []}]}
    write_file(tmp_path / "answerable.jsonl", to_json_lines(answerable))
    write_file(tmp_path / "unanswerable.jsonl.gz", to_json_lines(unanswerable))
    (tmp_path / "NOTE.txt").write_text("not data")
    found = load_labelled(str(tmp_path))
    assert (found.name, found.measure) == (tmp_path.name, "context_precision")
    first, second = found.samples
    assert (first.id, first.question, first.answer, first.reference, first.contexts) == (
        "7",
        "q",
        "A",
        "A",
        ("One. Two. Three.",),
    )
    assert dict(first.labels) == {"context_precision": 1.0, "faithfulness": 1.0}
    assert first.metadata["useful"] == [0, 2]
    assert (second.answer, second.reference, dict(second.labels)) == (None, None, {"context_precision": 0.0})
    assert second.metadata["useful"] == []


def make_mtrag(**changed):
    turns = [
        {"speaker": "user", "text": "Hi"},
        {"speaker": "agent", "text": "Hello"},
        {"speaker": "user", "text": "Why?"},
    ]
    votes = {"ann": {"value": 4}, "bob": {"value": "3"}, "eve": {"value": 2}}
    record = {
        "models": [{"model_id": "m"}],
        "metrics": [],
        "documents": [{"document_id": "d1", "text": "One."}, {"document_id": "d2", "text": "Two."}],
        "tasks": [
            {
                "task_id": "t",
                "input": turns,
                "contexts": [{"document_id": "d2"}, {"document_id": "d1"}],
                "targets": [{"text": "So."}],
            }
        ],
        "evaluations": [
            {
                "task_id": "t",
                "model_id": "m",
                "model_response": "Because.",
                "annotations": {
                    "faithfulness": votes,
                    "rl_f": {"system": {"value": 0.5}},
                    "win": {"ann": {"value": "tie"}},
                },
            }
        ],
    }
    return record | changed


@pytest.mark.parametrize("indent", [None, 2])
def test_load_labelled_mtrag_averages_annotators_and_keeps_votes(tmp_path, indent):
    found = load_labelled(write_file(tmp_path / "human.json.gz", json.dumps(make_mtrag(), indent=indent)))
    assert (found.measure, found.people, found.easy) == ("faithfulness", True, "")
    assert found.threshold == pytest.approx((3.5 - 1) / 3)
    (sample,) = found.samples
    assert (sample.id, sample.question, sample.history, sample.answer) == ("t/m", "Why?", ("Hi", "Hello"), "Because.")
    assert (sample.contexts, sample.context_ids, sample.reference) == (("Two.", "One."), ("d2", "d1"), "So.")
    assert sample.labels["faithfulness"] == pytest.approx(2 / 3)
    assert sample.metadata["votes"] == {"faithfulness": pytest.approx({"ann": 1.0, "bob": 2 / 3, "eve": 1 / 3})}
    assert sample.metadata["annotations"] == {"rl_f": {"system": 0.5}}


def test_load_labelled_mtrag_missing_references_raise_error(tmp_path):
    with pytest.raises(BadInput, match="the document `d2`, which is missing"):
        load_labelled(
            write_file(tmp_path / "a.json", json.dumps(make_mtrag(documents=[{"document_id": "d1", "text": "One."}])))
        )
    with pytest.raises(BadInput, match="evaluation 1 is of the task `t`, which is missing"):
        load_labelled(write_file(tmp_path / "b.json", json.dumps(make_mtrag(tasks=[]))))


def test_load_labelled_mtrag_un_labels_only_answerable_tasks(tmp_path):
    def make_task(name, kind):
        return {
            "task_id": name,
            "input": [{"speaker": "user", "text": "Hi"}, {"speaker": "user", "text": "Why?"}],
            "contexts": [{"document_id": "d", "text": "One."}],
            "targets": [{"text": "So."}],
            "answerability": [kind],
            "Collection": "govt",
        }

    found = load_labelled(
        write_file(
            tmp_path / "un.jsonl.gz", to_json_lines(make_task("a", "ANSWERABLE"), make_task("b", "UNANSWERABLE"))
        )
    )
    answerable, unanswerable = found.samples
    assert (answerable.question, answerable.history, answerable.answer, answerable.contexts) == (
        "Why?",
        ("Hi",),
        "So.",
        ("One.",),
    )
    assert (dict(answerable.labels), dict(unanswerable.labels)) == ({"faithfulness": 1.0}, {})
    assert unanswerable.metadata == {"answerability": "unanswerable", "collection": "govt"}
    assert "too strict" in found.easy


def test_load_labelled_reads_samples_with_labels(tmp_path):
    row = {"question": "q", "answer": "a", "contexts": ["c"]}
    path = write_file(
        tmp_path / "own.jsonl", to_json_lines({**row, "id": 1, "labels": {"faithfulness": 0.5}}, {**row, "id": 2})
    )
    found = load_labelled(path)
    assert (found.name, found.measure, found.people, found.easy) == ("own", "faithfulness", True, "")
    assert [dict(sample.labels) for sample in found.samples] == [{"faithfulness": 0.5}, {}]
    assert repr(found) == "Labelled('own', 2 samples, faithfulness)"


def test_load_labelled_samples_without_labels_raises_error_with_hint(tmp_path):
    with pytest.raises(BadInput, match="no sample has a label") as caught:
        load_labelled(
            write_file(tmp_path / "own.jsonl", to_json_lines({"question": "q", "answer": "a", "contexts": ["c"]}))
        )
    assert "labels" in caught.value.hint


def test_load_labelled_empty_mixed_or_duplicate_folder_raises_error(tmp_path):
    with pytest.raises(BadInput, match="no labelled answers found"):
        load_labelled(str(tmp_path))
    row = {"id": 1, "question": "q", "answer": "a", "labels": {"faithfulness": 1}}
    write_file(tmp_path / "a.jsonl", to_json_lines(row))
    write_file(tmp_path / "b.jsonl", to_json_lines(row))
    with pytest.raises(BadInput, match="the id `1` appears more than once"):
        load_labelled(str(tmp_path))
    write_file(
        tmp_path / "b.jsonl",
        to_json_lines({"knowledge": "k", "question": "q", "right_answer": "r", "hallucinated_answer": "h"}),
    )
    with pytest.raises(BadInput, match="several kinds") as caught:
        load_labelled(str(tmp_path))
    assert caught.value.hint == "name one of the files"


def test_load_labelled_missing_or_invalid_file_raises_error(tmp_path):
    with pytest.raises(BadInput):
        load_labelled(str(tmp_path / "absent.jsonl"))
    with pytest.raises(BadInput):
        load_labelled(write_file(tmp_path / "odd.jsonl", to_json_lines({"a": 1})))
    with pytest.raises(BadInput):
        load_labelled(write_file(tmp_path / "broken.json", "{"))


def test_labelled_dataset_defaults_to_human_labels_and_no_samples():
    assert LabelledDataset("mine").people
    assert list(LabelledDataset("mine").samples) == []


# Real datasets, with their published counts


@pytest.mark.parametrize(
    ("name", "n", "n_faithful", "n_generic"), [("wow", 430, 180, 0), ("tc", 383, 74, 2), ("cmu", 416, 59, 79)]
)
def test_load_labelled_begin_matches_published_counts(shared, name, n, n_faithful, n_generic):
    found = load_labelled(str(shared("rag_begin") / f"begin_dev_{name}.tsv.gz"))
    assert len(found.samples) == n
    assert sum(sample.labels["faithfulness"] for sample in found.samples) == n_faithful
    assert Counter(sample.metadata["class"] for sample in found.samples)["Generic"] == n_generic


def test_load_labelled_begin_folder_is_one_dataset(shared):
    assert len(load_labelled(str(shared("rag_begin"))).samples) == 430 + 383 + 416


def test_load_labelled_halueval_matches_published_counts(shared):
    found = load_labelled(str(shared("rag_halueval_qa")))
    assert Counter(sample.labels["faithfulness"] for sample in found.samples) == {1.0: 1000, 0.0: 1000}


def test_load_labelled_clap_nq_matches_published_counts(shared):
    found = load_labelled(str(shared("rag_clapnq_dev")))
    assert Counter(sample.labels["context_precision"] for sample in found.samples) == {1.0: 300, 0.0: 300}
    assert {len(sample.metadata["answers"]) for sample in found.samples if sample.answer} == {1, 2, 7}
    assert sum(bool(sample.metadata["useful"]) for sample in found.samples if sample.answer) == 299, (
        "one answer has no selected sentence"
    )


def test_load_labelled_mtrag_un_matches_published_counts(shared):
    found = load_labelled(str(shared("rag_mtrag_un") / "mtragun_reference.jsonl.gz"))
    kinds = Counter(sample.metadata["answerability"] for sample in found.samples)
    assert kinds == {"answerable": 285, "unanswerable": 97, "underspecified": 78, "partial": 47}


def test_load_labelled_mtrag_matches_published_counts(shared):
    found = load_labelled(str(shared("rag_mtrag_un/reference_subset_with_human_evaluations.json.gz")))
    assert len(found.samples) == 477
    votes_by_sample = [one.metadata["votes"]["faithfulness"] for one in found.samples]
    assert Counter(len(one) for one in votes_by_sample) == {3: 465, 2: 12}
    assert Counter(round(1 + 3 * vote) for one in votes_by_sample for vote in one.values()) == {
        4: 890,
        3: 261,
        2: 159,
        1: 109,
    }
