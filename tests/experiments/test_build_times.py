"""Build times of systems whose vectors were cached."""

from __future__ import annotations

import csv
import io
import json

import pytest

import ragauge
from ragauge.core.documents import Document
from ragauge.core.records import Dataset, Judgments
from ragauge.gates.gate import gate
from ragauge.reports.latency_tables import build_latency_table
from ragauge.reports.overviews import OUTPUT_FORMATS, overview

# Two documents have the same text: a cache hit for the second one does not imply an older cache.
DOCUMENTS = [Document(f"d{i}", f"Document about item{min(i, 4)}.") for i in range(6)]
DATA = Dataset("small", DOCUMENTS, {"q0": "item0", "q1": "item1"}, Judgments({"q0": {"d0": 1}, "q1": {"d1": 1}}))
DENSE = "dense(embedder=words)"


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_CACHE", str(tmp_path / "cache"))
    return [ragauge.run(DATA, [DENSE, "bm25"], out=tmp_path / name, k=3) for name in ("first", "second")]


def test_build_seconds_is_missing_when_vectors_come_from_cache(two_runs):
    first, second = (run.runs[DENSE].manifest for run in two_runs)
    assert first["build_seconds"] > 0
    assert "build_cached" not in first
    assert second["build_seconds"] is None
    assert second["build_cached"] is True
    assert all(run.runs["bm25"].manifest["build_seconds"] > 0 for run in two_runs)


def test_report_cached_build_is_shown_in_every_format(two_runs):
    _, second = two_runs
    result = overview(second)
    table = build_latency_table(result)
    build_column = [column.title for column in table.columns].index("build s")
    cells = {row[0]: row[build_column] for row in table.texts()}
    assert cells[DENSE] == "cached"
    assert float(cells["bm25"]) >= 0
    long = [
        row
        for row in csv.DictReader(io.StringIO(OUTPUT_FORMATS["csv"].write([result])))
        if row["name"] == "build_seconds"
    ]
    assert {row["system"]: row["value"] for row in long}[DENSE] == "cached"
    wide = {
        row["system"]: row["build_seconds"]
        for row in csv.DictReader(io.StringIO(OUTPUT_FORMATS["wide"].write([result])))
    }
    assert wide[DENSE] == "cached"
    assert float(wide["bm25"]) > 0
    assert "| cached |" in OUTPUT_FORMATS["markdown"].write([result])
    assert "cached" in OUTPUT_FORMATS["html"].write([result])
    data = json.loads(OUTPUT_FORMATS["json"].write([result]))["systems"][DENSE]
    assert data["costs"]["build_seconds"] is None
    assert data["manifest"]["build_cached"] is True


def test_gate_build_seconds_of_cached_build_fails_with_reason(two_runs):
    _, second = two_runs
    result = gate(second.folder / "dense_embedder=words", ["build_seconds <= 600"])
    (check,) = (check for check in result.checks if "build_seconds" in str(check.rule))
    assert not check.passed
    assert check.reason.startswith("the build time is unknown: vectors came from the cache")
