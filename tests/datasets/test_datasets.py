"""Datasets: the built-in dataset is valid, folders are read, and synthetic datasets leak no labels."""

from __future__ import annotations

import gzip
import json
import random
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

import ragauge
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, MissingEvidence, UnknownName
from ragauge.datasets import list_datasets, load, python_docs, python_docs_worker, synthetic
from ragauge.datasets.queries import classify_overlap, content_words
from ragauge.datasets.synthetic_vocabulary import SYLLABLES, invent_name
from ragauge.experiments.run import run
from ragauge.runs.texts import load_documents


@pytest.fixture(scope="module")
def pydocs():
    return load("pydocs")


def test_pydocs_has_expected_documents_and_queries(pydocs):
    assert len(pydocs.documents) > 4500
    assert len(pydocs.queries) >= 150
    assert len({document.id for document in pydocs.documents}) == len(pydocs.documents)
    assert {document.metadata["kind"] for document in pydocs.documents} == {
        "module", "class", "function", "method", "reference"
    }  # fmt: skip


def test_pydocs_relevant_documents_exist_with_valid_grades(pydocs):
    for query, grades in pydocs.judgments.nested.items():
        assert set(grades) <= set(pydocs.texts), (query, set(grades) - set(pydocs.texts))
        assert 2 in grades.values(), query
        assert set(grades.values()) <= {1, 2}


def test_pydocs_documents_link_to_parent_and_related_documents(pydocs):
    links = {document.id: document.metadata["links"] for document in pydocs.documents}
    for document, by_relation in links.items():
        assert set(by_relation) <= {"part of", "related"}
        for others in by_relation.values():
            assert others
            assert set(others) <= set(links) - {document}
    assert links["str.split"] == {"part of": ["str"]}
    assert links["str"] == links["len"] == {"part of": ["builtins"]}
    assert links["pathlib.Path.cwd"] == {"part of": ["pathlib.Path"]}
    assert links["json.dumps"] == {"part of": ["json"]}
    assert {"reference:numbers", "inspect"} <= set(links["reference:types"]["related"])
    assert sum(map(bool, links.values())) > 0.9 * len(links)


def test_pydocs_queries_have_answers_and_tags(pydocs):
    assert set(pydocs.answers) == set(pydocs.queries)
    assert len(set(pydocs.queries.values())) == len(pydocs.queries)
    for tags in pydocs.tags.values():
        assert set(tags) == {"topic", "answers", "complexity", "overlap"}
    for tag, values in (("answers", {"one", "few", "many"}), ("overlap", {"none", "some", "most"})):
        assert {tags[tag] for tags in pydocs.tags.values()} == values


@pytest.mark.slow
def test_pydocs_documents_are_equal_in_every_process():
    code = "from ragauge.datasets import load; from ragauge.runs.folder import dataset_fingerprint as fingerprint; "
    code += "print(fingerprint(load('pydocs')))"
    side_effects = "import inspect, pdb, sys; sys.excepthook = inspect.getfile = pdb.set_trace = print; "
    output, other_output = (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
        for text in (code, side_effects + code)
    )
    assert output == other_output
    assert "documents_hash" in output


def test_pydocs_documents_do_not_contain_python_folder(pydocs):
    leaking = [
        document.id for document in pydocs.documents if sys.prefix in document.text or sys.base_prefix in document.text
    ]
    assert leaking == []


def test_pydocs_loading_prints_nothing_and_skips_side_effect_modules():
    assert not {"antigravity", "this", "idlelib", "turtle", "tkinter"} & set(
        python_docs_worker.DOCUMENTED_MODULES.split()
    )
    code = "import sys; from ragauge.datasets import load; load('pydocs'); assert 'xmlrpc' not in sys.modules"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_pydocs_loads_when_docstrings_are_stripped():
    code = "import ragauge; print(len(ragauge.load('pydocs').documents) > 4500)"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_pydocs_reader_timeout_raises_missing_evidence(monkeypatch):
    monkeypatch.setattr(python_docs, "READ_TIMEOUT_S", 0.001)
    with pytest.raises(MissingEvidence, match="cannot be read") as caught:
        load("pydocs")
    assert caught.value.hint == "the process gave no result within 0.001 s"


def test_pydocs_without_docstrings_raises_missing_evidence(monkeypatch):
    monkeypatch.setattr(python_docs, "MIN_DOCUMENTS", 10**6)
    with pytest.raises(MissingEvidence, match="cannot be read") as caught:
        load("pydocs")
    assert caught.value.hint == "it has no docstrings"


def test_classify_overlap_uses_only_highest_grade():
    documents = {"a": Document("a", "sort a list in place"), "b": Document("b", "nothing alike")}
    assert classify_overlap("sort the list", {"a": 1, "b": 2}, documents) == "none"
    assert classify_overlap("sort the list", {"a": 2, "b": 1}, documents) == "most"
    assert classify_overlap("sort this quickly now", {"a": 2}, documents) == "some"


def write_beir(folder, *, corpus, queries, qrels, zipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in corpus)
    if zipped:
        (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "corpus.jsonl").write_text(text)
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels").mkdir(exist_ok=True)
    for split, rows in qrels.items():
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(row) for row in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


CORPUS = [
    {"_id": "d1", "title": "T", "text": "one", "metadata": {"year": 1}},
    {"_id": "d2", "title": "", "text": "two"},
    {"_id": 3, "text": "three"},
]
QUERIES = [{"_id": "q1", "text": "first?"}, {"_id": "q2", "text": "second?"}]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("subfolder", ["", "beir"])
def test_load_beir_folder_drops_queries_without_judgments(tmp_path, zipped, subfolder):
    write_beir(tmp_path / subfolder, corpus=CORPUS, queries=QUERIES, qrels={"test": [("q1", "d1", "2")]}, zipped=zipped)
    data = load(tmp_path)
    assert [document.id for document in data.documents] == ["d1", "d2", "3"]
    assert data.documents[0] == Document("d1", "one", "T", {"year": 1})
    assert data.queries == {"q1": "first?"}
    assert data.judgments.nested == {"q1": {"d1": 2}}


def test_load_folder_reads_text_files_of_corpus_folder(tmp_path, monkeypatch):
    data = tmp_path / "manual"
    (data / "corpus" / "guide").mkdir(parents=True)
    (data / "corpus" / "guide" / "install.md").write_text("# Install\n\nUse make.")
    (data / "corpus" / "faq.txt").write_text("No, it does not.")
    (data / "README.md").write_text("About this dataset.")
    (data / "queries.jsonl").write_text('{"_id": "q", "text": "how do I install it"}\n')
    (data / "qrels.txt").write_text("q 0 guide/install.md 1\n")
    loaded = load(data)
    assert {document.id for document in loaded.documents} == {"faq.txt", "guide/install.md"}
    assert [document.id for document in load_documents(data)] == [document.id for document in loaded.documents]
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path))
    assert [dataset.name for dataset in list_datasets() if dataset.kind == "folder"] == ["manual"]


def test_load_folder_named_beir_has_its_own_name(tmp_path, monkeypatch):
    qrels = {"test": [("q1", "d1", "1")]}
    write_beir(tmp_path / "project" / "beir", corpus=CORPUS, queries=QUERIES, qrels=qrels)
    monkeypatch.delenv("RAGAUGE_DATA", raising=False)
    assert load(tmp_path / "project" / "beir").name == "beir"
    assert load(tmp_path / "project").name == "project"
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path))
    assert load(tmp_path / "project" / "beir").name == load("project").name == "project"


def test_load_beir_folder_split_selects_qrels(tmp_path):
    qrels = {"test": [("q1", "d1", "1")], "dev": [("q2", "d2", "1")]}
    write_beir(tmp_path, corpus=CORPUS, queries=QUERIES, qrels=qrels)
    assert list(load(tmp_path, split="dev").queries) == ["q2"]
    with pytest.raises(BadInput, match=r"no qrels/train\.tsv"):
        load(tmp_path, split="train")


def test_load_reads_tsv_texts_with_trec_judgments(tmp_path):
    (tmp_path / "corpus.tsv").write_text("d1\ta text\twith a tab\nd2\tanother\n")
    (tmp_path / "queries.tsv").write_text("7\twhat?\n")
    (tmp_path / "qrels.txt").write_text("7 0 d1 2\n")
    data = load(tmp_path)
    assert data.texts["d1"] == "a text\twith a tab"
    assert data.judgments.nested == {"7": {"d1": 2}}


def test_load_invalid_folder_error_names_line(tmp_path):
    with pytest.raises(BadInput, match="not a dataset; expected corpus"):
        load(tmp_path)
    write_beir(
        tmp_path, corpus=[*CORPUS, {"_id": "d1", "text": "again"}], queries=QUERIES, qrels={"test": [("q1", "d1", "1")]}
    )
    with pytest.raises(BadInput, match=r"corpus\.jsonl:4: the id `d1` appears more than once"):
        load(tmp_path)


def test_load_collection_folder_is_listed_and_loaded_by_name(tmp_path, monkeypatch):
    write_beir(tmp_path / "mine", corpus=CORPUS, queries=QUERIES, qrels={"test": [("q1", "d1", "1")]})
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path))
    assert [dataset.name for dataset in list_datasets() if dataset.kind == "folder"] == ["mine"]
    assert load("mine").name == "mine"
    with pytest.raises(UnknownName, match="unknown dataset `mines`") as caught:
        load("mines")
    assert "did you mean `mine`" in str(caught.value.hint)
    with pytest.raises((BadInput, UnknownName)):
        load("../" + tmp_path.name + "x")


def test_invent_name_returns_unique_names():
    taken: set[str] = set()
    names = [invent_name(random.Random(seed), taken) for seed in range(300)]
    assert len(set(names)) == len(taken) == 300
    all_names = {"".join(parts).capitalize() for parts in product(SYLLABLES.split(), repeat=3)}
    assert invent_name(random.Random(0), set(all_names)) not in all_names


@pytest.mark.parametrize("kind", synthetic.SYNTHETIC_KINDS)
def test_make_synthetic_equal_seeds_return_equal_datasets(kind):
    first, repeated, reseeded = (synthetic.make_synthetic(kind, documents=300, queries=30, seed=s) for s in (1, 1, 2))
    assert first.documents == repeated.documents
    assert first.queries == repeated.queries
    assert first.judgments.nested == repeated.judgments.nested
    assert first.documents != reseeded.documents
    assert len(first.documents) == 300
    assert len(first.queries) == 30
    assert len({document.id for document in first.documents}) == 300


@pytest.mark.parametrize("kind", [kind for kind in synthetic.SYNTHETIC_KINDS if kind != "leaky"])
def test_make_synthetic_documents_have_no_leaking_field(kind):
    """Ranking documents by position, length or a random number finds relevant ones no better than chance."""
    data = synthetic.make_synthetic(kind, documents=1000, queries=200, seed=3)
    relevant = {doc for grades in data.judgments.nested.values() for doc, grade in grades.items() if grade > 0}
    ids = [document.id for document in data.documents]
    rng = random.Random(0)
    for key_by_id in (
        {document.id: rank for rank, document in enumerate(data.documents)},
        {document.id: len(document.text) for document in data.documents},
        {document.id: rng.random() for document in data.documents},
    ):
        relevant_keys = [key_by_id[doc] for doc in relevant]
        other_keys = [key_by_id[doc] for doc in ids if doc not in relevant]
        all_keys = sorted(relevant_keys + other_keys)
        rank = {value: i for i, value in enumerate(all_keys)}
        auc = (statistics.mean(rank[v] for v in relevant_keys) - statistics.mean(rank[v] for v in other_keys)) / len(
            all_keys
        ) + 0.5
        assert abs(auc - 0.5) < 0.06


def test_make_synthetic_needles_queries_share_only_name_with_document():
    data = synthetic.make_synthetic("needles", documents=500, queries=100)
    for query, text in data.queries.items():
        (doc,) = data.judgments.nested[query]
        shared = content_words(text) & content_words(data.texts[doc])
        assert len(shared) == 1, (text, data.texts[doc])  # only the name of the entity
        assert data.answers[query] in data.texts[doc]


def test_make_synthetic_duplicates_share_target_and_newest_version_wins():
    data = synthetic.make_synthetic("duplicates", documents=300, queries=50)
    targets = data.judgments.targets
    for grades in data.judgments.nested.values():
        assert len({targets[doc][0] for doc in grades}) == 1
    assert max(len(grades) for grades in data.judgments.nested.values()) >= 3
    data = synthetic.make_synthetic("versions", documents=300, queries=50)
    years = {document.id: document.metadata["effective_year"] for document in data.documents}
    for grades in data.judgments.nested.values():
        (newest,) = [doc for doc, grade in grades.items() if grade == 2]
        assert all(years[doc] < years[newest] for doc in grades if doc != newest)
    assert any(len(grades) > 1 for grades in data.judgments.nested.values())


def test_make_synthetic_multihop_queries_do_not_name_answer():
    data = synthetic.make_synthetic("multihop", documents=300, queries=50)
    for query, text in data.queries.items():
        grades = data.judgments.nested[query]
        bridge, answer = (next(doc for doc, g in grades.items() if g == grade) for grade in (1, 2))
        assert content_words(text) & content_words(data.texts[bridge])
        assert not content_words(text) & content_words(data.texts[answer])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "low", "high", "recall"), [("scifact", 0.67, 0.69, 0.925), ("arguana", 0.39, 0.42, 0.93)]
)
def test_run_bm25_matches_published_beir_scores(shared, name, low, high, recall):
    """Anserini's BEIR baselines: SciFact nDCG@10 .679, R@100 .925; ArguAna .397 (flat) to .414 (fields), R@100 .932."""
    folder = shared(name)
    found = run(folder, ["bm25"], k=100, measures=["ndcg@10", "recall@100"])
    means = found.scores["bm25"].means
    assert low < means["ndcg@10"] < high
    assert abs(means["recall@100"] - recall) < 0.01


@pytest.mark.parametrize(
    ("name", "documents", "queries"),
    [("adi", 82, 35), ("cranfield", 1400, 225), ("vaswani", 11429, 93), ("cacm", 3204, 52), ("noveleval", 420, 21)],
)
def test_load_real_collections_have_expected_sizes(shared, name, documents, queries):
    data = ragauge.load(shared(name))
    assert (len(data.documents), len(data.queries)) == (documents, queries)
    assert Path(data.about).name == name


def test_builtin_dataset_does_not_need_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_DATA", str(tmp_path / "missing"))
    name = "synthetic:needles(documents=20, queries=2)"
    assert len(ragauge.load(name).documents) == 20
    assert ragauge.compare_tokenizers(name, "bytes").documents == 20
    with pytest.raises(BadInput, match="missing: no such folder"):
        ragauge.load("mine")
