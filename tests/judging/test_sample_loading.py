"""Samples from run folders: questions, contexts, answers and references of the queries of a run."""

from __future__ import annotations

import json
import shutil

import pytest

import ragauge
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.judging.sample_loading import load_samples, samples_from_run

DOCUMENTS = {
    "d1": ("Tower", "It was begun in 1887."),
    "d2": ("", "It stands in Paris."),
    "d3": ("", "Rome is old."),
}
QUERIES = {"q1": "When was it begun?", "q2": "Where does it stand?", "q3": "Who broke it?", "q4": "What is old?"}
HITS = {"When was it begun?": ["d1", "d3", "d2"], "Where does it stand?": ["d2", "d1", "d3"], "What is old?": []}


def search(query, k):
    """Return the hits of a system that fails on q3 and finds nothing for q4."""
    return HITS[query][:k]


@pytest.fixture
def experiment(tmp_path):
    """Experiment folder written by `run`, on a dataset with reference answers for q1 and q2 only."""
    data = tmp_path / "towers"
    (data / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "title": title, "text": text} for name, (title, text) in DOCUMENTS.items()]
    (data / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = {"q1": {"reference": "In 1887."}, "q2": {"metadata": {"answer": "in Paris"}}}
    query_rows = [{"_id": name, "text": text, **answers.get(name, {})} for name, text in QUERIES.items()]
    (data / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in query_rows))
    judgment_rows = "".join(f"{query}\td1\t1\n" for query in QUERIES)
    (data / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judgment_rows)
    ragauge.run(str(data), {"finder": search}, out=tmp_path / "runs", k=3, measures=["mrr"], warmup=0)
    return tmp_path / "runs"


def test_samples_from_run_returns_one_sample_per_query(experiment):
    samples = {sample.id: sample for sample in samples_from_run(str(experiment / "finder"))}
    assert list(samples) == list(QUERIES)
    sample = samples["q1"]
    assert (sample.question, sample.answer, sample.reference) == ("When was it begun?", None, "In 1887.")
    assert sample.context_ids == ("d1", "d3", "d2")
    assert sample.contexts == ("Tower It was begun in 1887.", "Rome is old.", "It stands in Paris.")
    assert sample.metadata == {"system": "finder"}
    assert samples["q2"].reference is None


def test_samples_from_run_failed_or_empty_query_has_no_contexts(experiment):
    samples = {sample.id: sample for sample in samples_from_run(str(experiment / "finder"))}
    assert samples["q3"].contexts == samples["q4"].contexts == ()


def test_samples_from_run_k_limits_contexts(experiment):
    assert samples_from_run(str(experiment / "finder"), k=2)[0].context_ids == ("d1", "d3")
    with pytest.raises(BadInput, match="k must be at least 1, got 0"):
        load_samples(str(experiment / "finder"), k=0)


def test_judge_run_folder_notes_median_length_of_documents(experiment):
    lengths = [25, 12, 19, 19, 25, 12]  # characters of the contexts of q1 and q2
    note = f"contexts are whole documents (median {sorted(lengths)[2]} characters), because a run folder has no texts"
    judged = ragauge.judge(str(experiment / "finder"), ["context_recall"])
    assert any(found.startswith(note) for found in judged.notes)
    assert not any("whole documents" in found for found in ragauge.judge(judged.samples, ["context_recall"]).notes)


def test_samples_from_run_repeated_document_is_one_context(experiment, tmp_path):
    def chunks(query, k):
        return ["d1", "d1", "d2", "d3"][:k]

    folder = str(tmp_path / "chunks")
    ragauge.run(str(experiment.parent / "towers"), {"chunks": chunks}, out=folder, k=4, measures=["mrr"], warmup=0)
    assert samples_from_run(folder, k=3)[0].context_ids == ("d1", "d2")


def test_samples_from_run_experiment_folder_needs_single_run(experiment):
    assert samples_from_run(str(experiment)) == samples_from_run(str(experiment / "finder"))
    shutil.copytree(experiment / "finder", experiment / "other")
    with pytest.raises(BadInput, match="2 runs found; expected one") as caught:
        samples_from_run(str(experiment))
    assert "finder" in str(caught.value)
    with pytest.raises(BadInput, match="no finished run found"):
        samples_from_run(str(experiment.parent / "towers"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("answers.jsonl", '{"query_id": "q1", "answer": "In 1887 [1]."}\n{"query_id": "q2", "answer": null}\n'),
        ("answers.csv", "query,response\nq1,In 1887 [1].\nq2,\n"),
        ("answers.tsv", "id\tanswer\nq1\tIn 1887 [1].\nelsewhere\tyes\n"),
    ],
)
def test_samples_from_run_reads_answers_file(experiment, name, text):
    (experiment / "finder" / name).write_text(text)
    answers = {sample.id: sample.answer for sample in samples_from_run(str(experiment / "finder"))}
    assert answers == {"q1": "In 1887 [1].", "q2": None, "q3": None, "q4": None}
    moved_file = experiment.parent / name
    (experiment / "finder" / name).rename(moved_file)
    assert samples_from_run(str(experiment / "finder"), answers=str(moved_file))[0].answer == "In 1887 [1]."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"query_id": "q1", "text": "x"}\n', "answers need a query and an answer; found query_id, text"),
        (
            '{"query_id": "q1", "answer": "x"}\n{"query_id": "q1", "answer": "y"}\n',
            ":2: the query `q1` has more than one answer",
        ),
        ('{"query": "When was it begun?", "answer": "x"}\n', "identify queries by the ids that the run uses"),
        ('{"query": "q1", "answer": "x"}\n{"query": " ", "answer": "x"}\n', ":2: the query is missing"),
    ],
)
def test_samples_from_run_invalid_answers_raise(experiment, text, message):
    path = experiment / "finder" / "answers.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        samples_from_run(str(experiment / "finder"))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_samples_from_run_missing_documents_raise_unless_dataset_given(experiment):
    data = experiment.parent / "towers"
    moved = data.rename(data.with_name("moved"))
    with pytest.raises(MissingEvidence, match="no longer exists"):
        samples_from_run(str(experiment / "finder"))
    samples = samples_from_run(str(experiment / "finder"), dataset=str(moved))
    assert samples[0].contexts[0] == "Tower It was begun in 1887."
    corpus = moved / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("1887", "1888"))
    with pytest.raises(MissingEvidence, match="are not those that the runs were made on"):
        samples_from_run(str(experiment / "finder"), dataset=str(moved))


@pytest.mark.slow
def test_samples_from_run_pydocs_has_reference_answers(tmp_path):
    ragauge.run("pydocs", ["bm25"], out=tmp_path, k=2, max_queries=3, measures=["mrr"], warmup=0)
    samples = samples_from_run(str(tmp_path / "bm25"))
    assert len(samples) == 3
    assert all(sample.reference and len(sample.contexts) == 2 and all(sample.contexts) for sample in samples)
