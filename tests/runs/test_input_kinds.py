"""Kinds of inputs: detection from paths, names and objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from input_cases import INPUTS, write_inputs
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.records import Dataset, Judgments, Run
from ragauge.runs.input_kinds import ALL_KINDS, InputKind, is_kind, resolve_input, split_path_name
from ragauge.runs.inputs import Inputs

KINDS = {
    "bm25.run": "run",
    "run.json": "corpus",  # Nested objects can be a run, judgments or texts by id.
    "experiment/bm25": "run",
    "experiment": "experiment",
    "unfinished": "corpus",  # It contains no input: the reader of the last kind of folder reports the error.
    "qrels.txt": "judgments",
    "beir": "dataset",
    "corpus.jsonl": "corpus",
    "corpus.ndjson": "corpus",
    "corpus.csv": "corpus",
    "corpus.tsv": "corpus",
    "corpus.json": "corpus",
    "corpus.parquet": "corpus",
    "texts_md": "corpus",
    "texts_rst": "corpus",
    "texts_txt": "corpus",
    "page.md": "corpus",
    "queries.jsonl": "queries",
    "scores.csv": "scores",
    "samples.jsonl": "samples",
    "judged": "judged samples",
    "vectors.npy": "vectors",
    "result.json": "result",
    "empty.txt": "corpus",
    "missing.run": "dataset",  # No such file: it can be the name of a dataset.
}


@pytest.fixture(scope="module")
def input_folder(tmp_path_factory):
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def test_resolve_input_detects_every_path(input_folder, monkeypatch):
    monkeypatch.chdir(input_folder)
    assert {name: resolve_input(name).kind.value for name in INPUTS} == KINDS


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Run(pl.DataFrame(), "bm25"), InputKind.RUN),
        (Dataset("small", [], {}, Judgments({})), InputKind.DATASET),
        (Judgments({"q": {"a": 1}}), InputKind.JUDGMENTS),
        ([Document("a", "text")], InputKind.CORPUS),
        (np.zeros((2, 3)), InputKind.VECTORS),
        (pl.DataFrame({"query_id": ["q"], "doc_id": ["a"], "relevance": [1]}), InputKind.JUDGMENTS),
        (pl.DataFrame({"query": ["q"], "doc": ["a"], "rank": [1]}), InputKind.RUN),
        ({"q": {"a": 1.0}}, InputKind.RUN),
        ("synthetic:needles(documents=50, queries=5)", InputKind.DATASET),
        ("pydocs", InputKind.DATASET),
        ("-", InputKind.CORPUS),
    ],
)
def test_resolve_input_detects_objects_and_names(value, kind):
    assert resolve_input(value).kind is kind


def test_resolve_input_expected_kinds_resolve_ambiguity(input_folder):
    path = input_folder / "run.json"
    for kind in (InputKind.RUN, InputKind.JUDGMENTS, InputKind.CORPUS):
        assert resolve_input(path, expected=[kind]).kind is kind
    assert resolve_input({"q": {"a": 1}}, expected=[InputKind.JUDGMENTS]).kind is InputKind.JUDGMENTS
    with pytest.raises(BadInput, match=r"expected one of run, got an object of type ndarray"):
        resolve_input(np.zeros((2, 3)), expected=[InputKind.RUN])


def test_resolve_input_returns_facts_and_name(input_folder):
    assert resolve_input(input_folder / "result.json").facts["schema"] == "ragauge-audit"
    assert resolve_input(input_folder / "experiment" / "bm25").name == "bm25"
    assert resolve_input(input_folder / "scores.csv", name="mine").name == "mine"
    assert resolve_input("pydocs").name == "pydocs"


def test_resolve_input_covers_all_kinds(input_folder):
    kinds = {resolve_input(input_folder / name).kind for name in INPUTS if (input_folder / name).exists()}
    assert kinds == ALL_KINDS
    assert is_kind(input_folder / "judged", InputKind.JUDGED)
    assert not is_kind(input_folder / "judged", InputKind.RUN)


def test_split_path_name_accepts_equal_signs_in_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b.run").touch()
    assert split_path_name("a=b.run") == ("", "a=b.run")
    assert split_path_name("mine=a=b.run") == ("mine", "a=b.run")
    assert split_path_name("dense(embedder=minilm)=x.run") == ("dense(embedder=minilm)", "x.run")
    assert split_path_name("runs/k=10.run") == ("", "runs/k=10.run")


def test_inputs_resolve_paths_and_objects_equally(input_folder):
    by_path = Inputs.resolve(input_folder / "qrels.txt", input_folder / "bm25.run")
    by_object = Inputs.resolve(by_path.judgments(), {"bm25": by_path.open_runs()["bm25"][0]})
    assert by_path.judgments().nested == by_object.judgments().nested
    assert by_path.open_runs()["bm25"][0].nested == by_object.open_runs()["bm25"][0].nested
    experiment = Inputs.resolve(input_folder / "experiment")
    assert sorted(experiment.run_sources) == ["bm25", "reversed"]
    assert (len(experiment.query_texts), experiment.dataset_name) == (6, "small")
    assert [table.kind for table in Inputs.resolve(input_folder / "judged", tables=[InputKind.JUDGED]).tables] == [
        "judged samples"
    ]


def test_inputs_resolve_adds_baseline_path_to_runs(input_folder):
    values, named = (
        [input_folder / "qrels.txt", input_folder / "bm25.run"],
        {"baseline": str(input_folder / "experiment" / "reversed")},
    )
    result = Inputs.resolve(*values, named=named)
    assert (list(result.run_sources), result.requested_baseline) == (["bm25", "reversed"], "reversed")
    with pytest.raises(BadInput, match=r"run `.*bm25.run` appears more than once"):
        Inputs.resolve(*values, input_folder / "bm25.run")
