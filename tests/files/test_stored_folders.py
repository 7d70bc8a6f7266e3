"""Recorded folders and caches: runs are resumed, and stored results and replies are reused."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ragauge.core.errors import BadInput
from ragauge.experiments.run import run
from ragauge.judging.judge import judge
from ragauge.models.embedders import CachedEmbedder
from ragauge.store_benchmarks.neighbour_cache import find_exact_neighbours
from ragauge.store_benchmarks.results import VectorSet
from result_folders import DATA

STORED = Path(__file__).parent / "stored"


@pytest.fixture
def stored_folder(tmp_path):
    """Return a copy of the stored folders, with databases built from their SQL text."""
    folder = tmp_path / "stored"
    shutil.copytree(STORED, folder)
    for text in folder.rglob("*.sql"):
        with closing(sqlite3.connect(text.with_suffix(".sqlite"))) as base:
            base.executescript(text.read_text(encoding="utf-8"))
        text.unlink()
    return folder


def test_run_stored_journal_is_resumed_with_its_results(stored_folder):
    result = run(DATA, {"bm25": "bm25"}, out=stored_folder / "run", warmup=0, measures=["mrr@10"])
    manifest = json.loads((stored_folder / "run" / "bm25" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["sessions"] == 2
    assert manifest["made"] == "2026-11-18T22:59:41+00:00"
    timings = pl.read_parquet(stored_folder / "run" / "bm25" / "timings.parquet").rows_by_key("query", named=True)
    assert (timings["q4"][0]["began_ns"], timings["q4"][0]["total_ns"]) == (872850068471, 217209)
    assert result.scores["bm25"].means["mrr@10"] == 1.0


def test_run_stored_journal_of_other_settings_raises_with_difference(stored_folder):
    path = stored_folder / "run" / "bm25" / "journal.jsonl"
    before = path.read_bytes()
    with pytest.raises(BadInput, match="k 10 -> 3"):
        run(DATA, {"bm25": "bm25"}, out=stored_folder / "run", warmup=0, k=3)
    with pytest.raises(BadInput, match="queries 30 -> 5"):
        run(DATA, {"bm25": "bm25"}, out=stored_folder / "run", warmup=0, max_queries=5)
    assert path.read_bytes() == before


def test_judge_stored_replies_are_reused_without_request(stored_folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    sample = {
        "id": "s1",
        "question": "How high is the tower?",
        "answer": "The tower is 330 m high. It is in Paris.",
        "contexts": ["The tower is 330 m high."],
    }
    result = judge(
        [sample],
        ["faithfulness", "answer_relevance"],
        chat="openai:test@http://127.0.0.1:36621/v1",
        folder=stored_folder / "judged",
        embedder="words(dimensions=4)",
        max_calls=3,  # all three are stored: no other request is allowed
    )
    assert {name: values.tolist() for name, values in result.scores.values.items()} == {
        "faithfulness": [1.0],
        "answer_relevance": [0.0],
    }
    assert {step.step: (step.calls, step.cached_calls) for step in result.ledger} == {
        "claims": (1, 1),
        "support": (1, 1),
        "questions": (1, 1),
    }


def test_find_exact_neighbours_reuses_stored_neighbours(stored_folder, monkeypatch):
    monkeypatch.setattr("ragauge.store_benchmarks.neighbour_cache._compute_exact_neighbours", None)
    base = np.arange(24, dtype=np.float32).reshape(8, 3) % 7
    result = find_exact_neighbours(VectorSet("stored", base, base[:2] + 1, "l2"), 2, cache=stored_folder / "cache")
    assert result.neighbours.tolist() == [[5, 0], [6, 1]]


def test_cached_embedder_reuses_stored_vectors(stored_folder):
    class UnavailableEmbedder:
        name = "words-4"

        def embed(self, texts):
            raise AssertionError(f"{len(texts)} vectors were computed again")

    cached = CachedEmbedder(UnavailableEmbedder(), stored_folder / "cache" / "embeddings")
    assert cached.embed(["one", "two"]).shape == (2, 4)
    assert cached.hits == 2
