"""Processes of ragauge import nothing from the current folder, except modules that the user names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragauge.core.errors import BadInput
from ragauge.core.plugins import import_user_object

PLANTED_MODULES = ("json", "multiprocessing", "numpy", "pickle", "ragauge", "re", "signal", "typing")
OWN_STORE = """
import numpy as np

class Store:
    def __init__(self, *, metric="l2"):
        self.ids, self.vectors = [], None
    def add(self, ids, vectors):
        self.ids, self.vectors = list(ids), np.asarray(vectors)
    def search(self, vectors, k):
        distances = ((vectors[:, None] - self.vectors) ** 2).sum(-1)
        order = np.argsort(distances, axis=1)[:, :k]
        return [[self.ids[i] for i in row] for row in order], np.take_along_axis(distances, order, 1)

from ragauge.stores.document_stores import MemoryDocumentStore as Documents
"""
BENCH = ("bench", "clustered", "--max-vectors", "50", "--max-queries", "5", "--repeats", "1", "--store")
STRESS = ("stress", "--corpus", "corpus.jsonl", "--mode", "in batches", "--store")


@pytest.fixture
def planted_folder(tmp_path, monkeypatch):
    """Folder with modules that write a file when any process imports them, a store and small inputs."""
    for name in PLANTED_MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    (tmp_path / "own_store.py").write_text(OWN_STORE)
    (tmp_path / "qrels.txt").write_text("q1 0 a 1\nq1 0 b 0\n")
    (tmp_path / "a.run").write_text("q1 Q0 a 1 2.0 x\n")
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "one two"}\n{"id": "b", "text": "three four"}\n')
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as the installed program does, which lies in another folder."""
    program = folder / "bin" / "ragauge"
    program.parent.mkdir()
    program.write_text("from ragauge.cli import main\nif __name__ == '__main__':\n    main()\n")
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((*BENCH, "exact"), marks=pytest.mark.engine),
        pytest.param((*BENCH, "own_store:Store"), marks=pytest.mark.engine),
        pytest.param((*STRESS, "memory", "--kills", "1"), marks=pytest.mark.engine),
        pytest.param((*STRESS, "own_store:Documents", "--kills", "1"), marks=pytest.mark.engine),
        pytest.param(("evaluate", "qrels.txt", "a.run", "--cluster", "local:1"), marks=pytest.mark.cluster),
    ],
)
def test_command_imports_nothing_from_the_current_folder(planted_folder, arguments):
    done = run_command(planted_folder, *arguments)
    assert not (planted_folder / "imported").exists(), (planted_folder / "imported").read_text()
    assert done.returncode == 0, done.stderr


def test_import_user_object_appends_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "search_of_mine.py").write_text("def search(): ...\n")
    assert import_user_object("search_of_mine:search").__name__ == "search"
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


def test_import_user_object_shadowed_by_python_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "colorsys.py").write_text("def search(): ...\n")
    with pytest.raises(BadInput, match=r"`colorsys` is .*, not colorsys.py in the current folder") as caught:
        import_user_object("colorsys:search")
    assert caught.value.hint == "rename your file"
