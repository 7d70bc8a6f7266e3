"""Input of embedder studies: errors before measuring, no secrets in outputs, notes on omissions, custom objects."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from ragauge.cli.app import build_app
from ragauge.core.components import check_spec
from ragauge.core.documents import Document
from ragauge.core.errors import BadInput, RagaugeError, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.embedder_study import compare_embedders
from ragauge.embedder_study.plan import StudySettings
from ragauge.files.workspace import check_writable
from ragauge.models.embedders.openai import OpenAIEmbedder

DATA = "synthetic:needles(documents=60, queries=8)"
SMALL = "small=words(dimensions=32)"
QUICK = {"stores": ("exact",), "dimensions": (), "sizes": (), "perturbations": (), "memory": False}
SECRET = "pw123secret"


class Letters:
    """Embedder that counts vowels; it has no name."""

    def embed(self, texts):
        return np.array([[1 + text.count(letter) for letter in "aeiou"] for text in texts], np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Use an empty cache for each test."""
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def run_command(tmp_path, monkeypatch):
    """Run the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        done = CliRunner().invoke(build_app(), list(map(str, arguments)))
        if done.exception is not None:
            raise done.exception
        return done

    return call


@pytest.fixture
def fruit_data():
    """Three documents and two queries."""
    documents = [Document("a", "an apple"), Document("b", "a pear"), Document("c", "plums too")]
    return Dataset("fruit", documents, {"q1": "apple", "q2": "plum"}, Judgments({"q1": {"a": 1}, "q2": {"c": 1}}))


@pytest.fixture
def refuse_measuring(monkeypatch):
    """Fail the test if an embedder is measured."""

    def refuse(name, spec, context):
        pytest.fail(f"{name} was measured")

    monkeypatch.setattr("ragauge.embedder_study.measure_embedder", refuse)


# Secrets.


@pytest.mark.slow
def test_cli_embedders_store_passwords_appear_in_no_output(run_command, tmp_path):
    done = run_command(
        "embedders", DATA, "-e", SMALL, "--quick", "--store", f"pgvector(dsn='postgresql://u:{SECRET}@127.0.0.1:9/x')",
        "--store", f"pgvector(dsn='host=127.0.0.1 port=9 password={SECRET}')",
        "--store", f"qdrant(url='http://u:{SECRET}@127.0.0.1:9', api_key={SECRET})",
        "--store", "exact", "--out", "study", "-o", "page.html", "-o", "all.json", "-o", "all.md", "-o", "all.csv",
    )  # fmt: skip
    files = [entry for entry in tmp_path.rglob("*") if entry.is_file() and "cache" not in entry.parts]
    assert {"study.json", "page.html", "all.json", "all.md"} <= {entry.name for entry in files}
    assert any(entry.parent.name == "measurements" for entry in files)
    assert [entry.name for entry in files if SECRET.encode() in entry.read_bytes()] == []
    assert SECRET not in done.stdout + done.stderr
    data = json.loads((tmp_path / "all.json").read_text())
    stores = [entry["store"] for entry in data["embedders"][0]["stores"]]
    assert stores == [
        "pgvector(dsn=…)", "pgvector(dsn=…) 2", "qdrant(url=http://127.0.0.1:9, api_key=…)", "exact",
    ]  # fmt: skip
    assert data["provenance"]["plan"]["stores"][0] == "pgvector(dsn=…)"


@pytest.mark.slow
def test_compare_embedders_unnamed_embedder_name_has_no_secrets(fruit_data, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    steps = []
    spec = f"openai(url='http://user:{SECRET}@127.0.0.1:9/v1')"
    study = compare_embedders(fruit_data, ["words(dimensions=32)", spec], baseline=spec, progress=steps.append, **QUICK)
    assert list(study.failures) == ["openai(url=http://127.0.0.1:9/v1)"]
    assert SECRET not in str(study)
    assert SECRET not in str(steps)
    assert SECRET not in OpenAIEmbedder("m", url=f"http://user:{SECRET}@127.0.0.1:9/v1").name
    with pytest.raises(BadInput, match="must not have a query") as error:
        OpenAIEmbedder("m", url=f"http://user:{SECRET}@127.0.0.1:9/v1?key={SECRET}")
    assert SECRET not in str(error.value)


def test_compare_embedders_invalid_option_error_has_no_secrets(fruit_data):
    with pytest.raises(BadInput) as error:
        compare_embedders(fruit_data, [f"openai(url='http://u:{SECRET}@h/v1', batch=many)"], **QUICK)
    assert "batch must be a number, got many" in error.value.message
    assert SECRET not in str(error.value)


def test_compare_embedders_baseline_spelling_ignores_white_space(fruit_data):
    study = compare_embedders(fruit_data, ["words( dimensions=32 )"], baseline="words(dimensions = 32)", **QUICK)
    assert study.baseline == "words(dimensions=32)"


# Errors before measuring.


@pytest.mark.usefixtures("refuse_measuring")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lm(kind=foo)", "foo"),
        ("lm(tokenizer=bpee)", "unknown tokenizer `bpee`"),
        ("words(foo=1)", "no option `foo`"),
        ("minilm(foo=1)", "no option `foo`"),
        ("encoder", "needs the option `model`"),
        ("words(dimensions=many)", "dimensions must be a number, got many"),
        ("bm25(foo=1)", "no option `foo`"),
    ],
)
def test_cli_embedders_invalid_option_raises_before_measuring(run_command, spec, message):
    with pytest.raises(RagaugeError) as error:
        run_command("embedders", DATA, "-e", SMALL, "-e", spec, "--quick")
    assert message in error.value.message
    assert error.value.exit_code == 2


@pytest.mark.usefixtures("refuse_measuring")
def test_compare_embedders_invalid_option_value_raises_before_measuring(fruit_data):
    pytest.importorskip("wordllama")
    with pytest.raises(BadInput, match="no vectors of 3 dimensions"):
        compare_embedders(fruit_data, ["words(dimensions=32)", "wordllama(dimensions=3)"], **QUICK)


def test_check_spec_store_options_are_checked_without_opening():
    check_spec("stores", "pgvector(index=hnsw, dsn=nowhere)")
    with pytest.raises(BadInput, match="indx"):
        check_spec("stores", "pgvector(indx=hnsw)")
    with pytest.raises(BadInput, match="indx"):
        compare_embedders("no/such/folder", "words", stores=["exact", "pgvector(indx=hnsw)"])


def test_compare_embedders_broken_embedder_is_a_failure_alone(fruit_data):
    class Short(Letters):
        def embed(self, texts):
            return super().embed(texts)[1:]

    study = compare_embedders(fruit_data, {"short": Short(), "letters": Letters()}, **QUICK)
    assert list(study.failures) == ["short"]
    assert [embedder.name for embedder in study.embedders] == ["letters", "bm25", "chance"]


@pytest.mark.usefixtures("refuse_measuring")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "tokenizer"], "unknown output format `tokenizer`"),
        (["--format", "tokenization", "-m", "ndcg@10"], "no system has a measure of the layout of tokenization"),
        (["--format", "tokenization", "-C", "default"], "the scores follow the convention default"),
        (["--seed", "-1"], "--seed must be at least 0, got -1"),
        (["--out", "afile"], "afile: is a file, not a folder"),
        (["--out", "afile/study"], "afile/study: cannot be written: afile is a file, not a folder"),
        (["-o", "afile/x.html"], "afile/x.html: cannot be written: afile is a file, not a folder"),
        (["--charts", "afile"], "afile: is a file, not a folder"),
    ],
)
def test_cli_embedders_unwritable_output_raises_before_measuring(run_command, tmp_path, arguments, message):
    (tmp_path / "afile").write_text("something")
    with pytest.raises(RagaugeError) as error:
        run_command("embedders", DATA, "-e", SMALL, "--quick", *arguments)
    assert message in error.value.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["afile"]


def test_check_writable_creates_no_file(tmp_path):
    for path, folder in ((tmp_path / "a" / "b.html", False), (tmp_path / "c" / "d", True), (tmp_path, True)):
        check_writable(str(path), folder=folder)
    check_writable("-")
    assert list(tmp_path.iterdir()) == []
    if os.geteuid() == 0:
        return  # root may write to any folder
    tmp_path.chmod(0o500)
    with pytest.raises(BadInput, match="not allowed"):
        check_writable(str(tmp_path / "x.html"))


def test_cli_embedders_tokenization_format_accepts_own_measures(run_command):
    done = run_command("embedders", DATA, "-e", SMALL, "--quick", "-m", "recall@10", "--format", "tokenization")
    header, first, *_ = done.stdout.splitlines()
    assert "recall@10" in header.split(",")
    assert first.startswith("small,8,")


def test_cli_tokenizers_rejects_format_of_embedders(run_command):
    with pytest.raises(UnknownName, match="unknown output format `long`"):
        run_command("tokenizers", DATA, "-t", "bytes", "--format", "long")


def test_study_and_tokenizers_negative_seed_raises_error(run_command):
    with pytest.raises(BadInput, match=r"seed must be between 0 and .*, got -1"):
        StudySettings(seed=-1)
    with pytest.raises(BadInput, match="seed must be at least 0, got -1"):
        run_command("tokenizers", DATA, "-t", "bpe(vocabulary=300)", "--seed", "-1")


# Notes on omissions.


def test_compare_embedders_notes_missing_dimensions(fruit_data):
    embedders = {"small": "words(dimensions=16)", "large": "words(dimensions=64)"}
    study = compare_embedders(fruit_data, embedders, **{**QUICK, "dimensions": (8, 32, 9999)})
    assert [note for note in study.notes if "dimensions" in note] == [
        "vectors have fewer than 32 dimensions: small (16)",
        "vectors have fewer than 9,999 dimensions: small (16), large (64)",
    ]
    assert {row.dimension for row in study.find("large").compressed} == {8, 32, 64}


def test_compare_embedders_notes_unused_and_reused_results(fruit_data, tmp_path):
    embedders = {"small": "words(dimensions=16)", "large": "words(dimensions=64)"}
    first = compare_embedders(fruit_data, embedders, out=tmp_path, **QUICK)
    assert first.notes == []
    other_seed = compare_embedders(fruit_data, {"small": embedders["small"]}, out=tmp_path, **QUICK, seed=1)
    # Four results are saved, all with another seed. `large` is not requested, so three count as not used.
    assert other_seed.notes == ["3 saved results with other settings or of another version not used"]
    reused = compare_embedders(fruit_data, embedders, out=tmp_path, **QUICK)
    assert len(reused.notes) == 4
    assert all(": reused; made 20" in note for note in reused.notes)
    assert compare_embedders(fruit_data, embedders, out=tmp_path, **QUICK, seed=2, fresh=True).notes == []


# Custom objects.


def test_compare_embedders_unnamed_object_has_given_or_class_name(fruit_data, tmp_path):
    study = compare_embedders(fruit_data, {"mine": Letters()}, out=tmp_path, **QUICK)
    assert study.find("mine").model == "mine"
    assert compare_embedders(fruit_data, [Letters()], **QUICK).find("Letters").model == "Letters"

    class TrainableLetters(Letters):
        seen = 0

        def fitted(self, texts, progress=None):
            TrainableLetters.seen = len(texts)
            return Letters()

    assert compare_embedders(fruit_data, {"learner": TrainableLetters()}, **QUICK).find("learner").train_seconds >= 0
    assert TrainableLetters.seen == 3


def test_compare_embedders_not_an_embedder_raises_with_hint(fruit_data):
    class Sentences:
        def encode(self, texts):
            return np.ones((len(texts), 2))

    with pytest.raises(BadInput, match="Sentences is not an embedder: it has no `embed`") as error:
        compare_embedders(fruit_data, {"mine": Sentences()})
    assert "embed = model.encode" in (error.value.hint or "")
    with pytest.raises(BadInput, match="object is not an embedder") as error:
        compare_embedders(fruit_data, {"mine": object()})
    assert "one vector per text" in (error.value.hint or "")
    with pytest.raises(BadInput, match="the class Letters is not an embedder") as error:
        compare_embedders(fruit_data, {"mine": Letters})
    assert "Letters(…)" in (error.value.hint or "")


def test_compare_embedders_hints_name_no_cli_options(fruit_data):
    for embedders, hint in (
        ([], "choose one of words"),
        ([Letters(), Letters()], '{"Letters": …, "other": …} gives them names'),
        (["words", "words"], "other=words"),
    ):
        with pytest.raises(BadInput) as error:
            compare_embedders(fruit_data, embedders)
        assert hint in (error.value.hint or "")
        assert "--" not in (error.value.hint or "")
    with pytest.raises(BadInput) as error:
        compare_embedders(fruit_data, "words", part="title")
    assert "`whole`" in (error.value.hint or "")
    with pytest.raises(UnknownName):
        compare_embedders(fruit_data, "words", baseline="minilm")
