"""`ragauge stress`: standard output, standard error, exit codes, and interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from command import run_python
from ragauge.core.documents import Document
from ragauge.store_stress.plan import write_documents
from waiting import PATIENCE_S, wait_while_running

HELPERS = Path(__file__).parents[1] / "helpers"
DOCUMENTS = [Document(f"d{i}", f"Document {i} is about item{i}.", f"Title {i}", {"place": i}) for i in range(1, 11)]
SHORT_TEST = [
    "--embedder",
    "words(dimensions=64)",
    "--kills",
    "0",
    "--batch-size",
    "4",
    "--max-queries",
    "4",
    "--mode",
    "one by one",
]


def make_environment(folder: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1", "COLUMNS": "80", "TMPDIR": str(folder)}


def ragauge(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(["-m", "ragauge", "stress", *arguments], folder, make_environment(folder))


@pytest.fixture
def folder(tmp_path):
    write_documents(tmp_path / "corpus.jsonl", DOCUMENTS)
    return tmp_path


@pytest.mark.engine
def test_stress_failing_store_exits_with_3_and_prints_its_error(folder):
    store = "faulty_document_store:Faulty(fault='raise on a word', word=item6)"
    done = ragauge(folder, "--store", store, "--corpus", "corpus.jsonl", *SHORT_TEST, "-o", "stress.json")
    assert done.returncode == 3
    assert "\n\nValueError: cannot tokenise 'd6':\n\tunexpected  item6\n\n" in done.stderr
    assert "after 5 documents (d6); error message:" in done.stderr
    assert "shortest failing prefix: 6 documents. With 5 documents it did not fail" in done.stderr
    assert "Failure one by one" in done.stdout
    assert json.loads((folder / "stress.json").read_text())["modes"][0]["broken"]["prefix"] == 6
    (reproducer_folder,) = (path for path in folder.iterdir() if path.is_dir())
    again = ragauge(
        folder,
        "--store",
        store,
        "--corpus",
        f"{reproducer_folder.name}/one-by-one",
        *SHORT_TEST,
        "--no-bisect",
        "--json",
    )
    assert again.returncode == 3
    data = json.loads(again.stdout)
    assert data["documents"] == 6
    assert data["modes"][0]["broken"]["error"] == "ValueError: cannot tokenise 'd6':\n\tunexpected  item6"
    assert data["read_back"] == {"one by one": {}}


@pytest.mark.parametrize(("fault", "code"), [("raise once", 0), ("drop once", 3)])
@pytest.mark.engine
def test_stress_unreproduced_failure_exits_3_only_if_documents_are_lost(folder, fault, code):
    store = f"faulty_document_store:Faulty(fault='{fault}', at=6, word='failed')"
    done = ragauge(folder, "--store", store, "--corpus", "corpus.jsonl", *SHORT_TEST)
    assert done.returncode == code
    messages = {
        0: "note: " + store + " one by one: failure while putting not reproduced in 4 attempts: OSError: database is",
        3: "not reproduced in 4 attempts; it is a failure because documents were lost or altered\n",
    }
    assert messages[code] in done.stderr
    assert ("Not reproduced one by one" in done.stdout) == (code == 0)


@pytest.mark.engine
def test_stress_queries_without_relevant_documents_are_explained(folder):
    rows = [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(1, 11)]
    (folder / "small" / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").rename(folder / "small" / "corpus.jsonl")
    lines = "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
    (folder / "small" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)
    queries = "".join(json.dumps({"_id": f"q{i}", "text": f"item{i}"}) + "\n" for i in range(1, 11))
    (folder / "small" / "queries.jsonl").write_text(queries)
    arguments = ["--store", "memory", "--corpus", "small", *SHORT_TEST, "--max-queries", "10"]
    done = ragauge(folder, *arguments, "--max-documents", "4")
    assert done.returncode == 0, done.stderr
    reason = (
        "Measures are means over 4 of 10 queries: the other 6 have no relevant document among the 4 documents put in."
    )
    assert reason in done.stdout.replace("\n", " ")
    assert "Measures are means over 10 queries." in ragauge(folder, *arguments).stdout.replace("\n", " ")


@pytest.mark.engine
def test_stress_several_stores_with_one_failure_exits_with_3(folder):
    stores = ["--store", "memory", "--store", "faulty_document_store:Faulty(fault=drop, at=3)"]
    done = ragauge(folder, *stores, "--corpus", "corpus.jsonl", *SHORT_TEST, "--no-bisect", "-o", "stress.html")
    assert done.returncode == 3
    assert "failed: reading back" in " ".join(done.stdout.split())
    assert any(line.startswith("memory ") and line.endswith(" passed") for line in done.stdout.splitlines())
    assert "`d3` (document 3) is lost" in done.stderr
    assert "Stress test of memory" in (folder / "stress.html").read_text()


@pytest.mark.engine
def test_stress_sound_store_exits_with_0_and_prints_csv(folder):
    done = ragauge(folder, "--store", "memory", "--corpus", "corpus.jsonl", *SHORT_TEST, "--csv")
    assert done.returncode == 0
    assert done.stdout.startswith("store,mode,name,value\nmemory,one by one,documents,10.0\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "sqlite-vek", "--corpus", "corpus.jsonl"], "did you mean `sqlite-vec`?"),
        (["--corpus", "corpus.jsonl"], "no store given"),
        (["--store", "memory"], "no corpus given"),
        (["--store", "memory", "--corpus", "broken.json"], "broken.json:2"),
        (["--store", "memory", "--corpus", "nameless.json"], "nameless.json"),
        (
            ["--store", "memory", "--corpus", "korpus.jsonl"],
            "hint: did you mean corpus.jsonl or corpus.csv?",
        ),
        (["--store", "memory", "--corpus", "corpus.csv"], "corpus.csv has no documents"),
        (
            ["--store", "memory", "--corpus", "corpus.jsonl", "--kill-at", "-5"],
            "--kill-at must be at least 0, got -5",
        ),
        (
            ["--store", "memory", "--corpus", "corpus.jsonl", "--kills", "-1"],
            "--kills must be at least 0, got -1",
        ),
        # The option is rejected before the documents are read: the file does not exist.
        (["--store", "memory(a=1)", "--corpus", "korpus.jsonl"], "the document store memory has no option 'a'"),
    ],
)
def test_stress_invalid_input_exits_with_2(folder, arguments, message):
    (folder / "broken.json").write_text('{"type": "bundle",\n "objects": [}')
    (folder / "corpus.csv").write_text("id,text\n")
    (folder / "nameless.json").write_text('{"type": "bundle", "id": "bundle--1", "objects": [{"type": "malware"}]}')
    done = ragauge(folder, *arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.engine
def test_stress_interrupted_removes_processes_and_folders(folder, signal_number, code):
    arguments = ["--store", "faulty_document_store:Faulty(fault=hang, at=5)", "--corpus", "corpus.jsonl", *SHORT_TEST]
    command = [sys.executable, "-m", "ragauge", "stress", *arguments]
    with subprocess.Popen(command, cwd=folder, env=make_environment(folder), stderr=subprocess.PIPE) as process:
        parent = psutil.Process(process.pid)
        children: list[psutil.Process] = []

        def find_workers():
            children[:] = [child for child in parent.children() if "stress.worker" in " ".join(child.cmdline())]
            return children

        wait_while_running(process, find_workers, "a worker process")
        process.send_signal(signal_number)
        _, error_output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert b"its processes and folders were removed" in error_output
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive
    assert not list(folder.glob("ragauge-stress-*"))


def test_stress_interrupted_while_reading_names_the_step(folder):
    os.mkfifo(folder / "bundle.json")  # nothing is written to the pipe, so reading it blocks
    command = [sys.executable, "-m", "ragauge", "stress", "--store", "memory", "--corpus", "bundle.json", *SHORT_TEST]
    with subprocess.Popen(command, cwd=folder, env=make_environment(folder), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"reading bundle.json\n"
        process.send_signal(signal.SIGINT)
        _, error_output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"stopped at reading bundle.json" in error_output


@pytest.mark.engine
def test_stress_all_zero_vectors_are_noted_and_not_a_failure(tmp_path):
    pytest.importorskip("sqlite_vec")
    texts = ["", "!!!", "one apple", "two pears", "three plums"]
    write_documents(tmp_path / "corpus.jsonl", [Document(f"d{i}", text) for i, text in enumerate(texts)])
    done = ragauge(tmp_path, "--store", "sqlite-vec", "--corpus", "corpus.jsonl", *SHORT_TEST)
    assert done.returncode == 0, done.stderr
    assert "note: 2 documents have an all-zero vector of the embedder `words-64`, replaced" in done.stderr
    assert "note: 1 query is not run: the embedder `words-64` gives an all-zero vector, which" in done.stderr


def test_stress_embedder_that_gives_only_zeros_exits_with_2(tmp_path):
    write_documents(tmp_path / "corpus.jsonl", [Document(f"d{i}", "!!!") for i in range(3)])
    done = ragauge(tmp_path, "--store", "memory", "--corpus", "corpus.jsonl", *SHORT_TEST)
    assert done.returncode == 2
    assert (
        "the embedder `words-64` returns an all-zero vector for each of the 3 documents of corpus.jsonl" in done.stderr
    )
