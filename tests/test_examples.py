"""Example files: the CI workflow in a new repository, the Dockerfile and the notebooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from notebooks import NOTEBOOKS, run_notebook
from workflow_steps import WorkflowRepository

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
PASSED = {"Baseline of the base branch": 0, "Run of this branch": 0, "Gate": 0, "Summary": 0}


def add_document(folder):
    """Add a document with a query, as a pull request would."""
    data = folder / "data" / "handbook"
    for file, line in {
        "corpus.jsonl": json.dumps({"_id": "theme", "title": "Theme", "text": "The dark theme is in the menu View."}),
        "queries.jsonl": json.dumps({"_id": "q25", "text": "How do I choose the dark theme?"}),
        "qrels/test.tsv": "q25\ttheme\t1",
    }.items():
        with (data / file).open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")


@pytest.mark.slow
@pytest.mark.representative
def test_workflow_new_repository_and_added_documents_pass(tmp_path):
    repository = WorkflowRepository(tmp_path)
    empty = repository.git("rev-parse", "HEAD")
    repository.copy_example()
    assert repository.run_steps(empty) == PASSED, repository.output  # the first pull request has no baseline
    assert "mine passed 3 rules" in repository.summary.read_text()
    for name in ("runs", "gate.md", "gate.xml"):
        repository.git("clean", "-fdq", name)
    repository.git("worktree", "remove", "--force", "../base")
    repository.commit("the example")
    base = repository.git("rev-parse", "HEAD")
    add_document(repository.folder)
    assert repository.run_steps(base) == PASSED, repository.output
    summary = repository.summary.read_text()
    assert "changed corpus (16 documents, now 17)" in summary
    assert "24 queries of both runs" in summary
    assert sum(file.stat().st_size for file in (repository.folder / "baseline").rglob("*") if file.is_file()) < 100_000


@pytest.mark.slow
def test_workflow_worse_retriever_fails_gate(tmp_path):
    repository = WorkflowRepository(tmp_path)
    repository.copy_example()
    repository.commit("the example")
    base = repository.git("rev-parse", "HEAD")
    search = repository.folder / "search.py"
    search.write_text(search.read_text().replace("-len(wanted", "len(wanted"))
    codes = repository.run_steps(base)
    assert codes == {**PASSED, "Gate": 1}, repository.output
    assert "FAIL" in repository.summary.read_text()


def test_dockerfile_is_short_and_copies_build_files():
    lines = (ROOT / "examples" / "Dockerfile").read_text().splitlines()
    assert len(lines) < 25
    copied = " ".join(line for line in lines if line.startswith("COPY") and "--from" not in line)
    assert all(name in copied for name in ("pyproject.toml", "README.md", "LICENSE", "src"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_outputs_match_stored_outputs(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # a downloaded notebook has no files next to it
    notebook = json.loads(path.read_text(encoding="utf-8"))
    stored = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert run_notebook(notebook) == stored
    assert any("text/html" in output.get("data", {}) for outputs in stored for output in outputs)
    assert path.stat().st_size < 50_000
