"""Reuse of finished results: built-in systems are reused, user systems are run again unless reuse is requested."""

from __future__ import annotations

import csv
import json

import pytest

import ragauge
from command import command_in
from ragauge import BadInput
from ragauge.core.components import is_reproducible
from ragauge.core.run_dates import RunDate
from ragauge.core.specs import Spec
from servers import serving


@pytest.mark.parametrize(
    ("family", "description", "expected"),
    [
        ("retrievers", "bm25(k1=1.2)", True),
        ("retrievers", "dense(embedder=words(dimensions=64), store=faiss(kind=hnsw))", True),
        ("retrievers", "pipeline(of=bm25, reranker=mmr(weight=0.5))", True),
        ("retrievers", "swarm(graph=links+knn(neighbours=8))", True),
        ("retrievers", "http(url=http://127.0.0.1:1/search)", False),
        ("retrievers", "hybrid(of=bm25+http(url=http://127.0.0.1:1/search))", False),
        ("retrievers", "dense(embedder=openai(model=m))", False),
        ("retrievers", "pipeline(of=bm25, reranker=llm(model=m))", False),
        ("retrievers", "dense(embedder=plugin_of_another_package)", False),
        ("retrievers", Spec("hybrid", {"of": [Spec("bm25"), lambda query, k: []]}), False),
        ("retrievers", lambda query, k: [], False),
        ("stores", "qdrant(url=http://127.0.0.1:6333)", False),
        ("stores", "exact", True),
    ],
)
def test_is_reproducible_only_if_every_part_is_built_in_and_local(family, description, expected):
    assert is_reproducible(family, description) is expected


def test_is_reproducible_local_model_folder_requires_hashes(tmp_path):
    description = f"dense(embedder=transformers(model='{tmp_path}'))"
    assert not is_reproducible("retrievers", description)
    assert is_reproducible("retrievers", description, files_hashed=True)
    assert is_reproducible("retrievers", "dense(embedder=transformers(model=owner/model))")


QUERIES = [(f"word{i}", f"d{i}") for i in range(8)]


def write_index(folder, n):
    (folder / "index.json").write_text(json.dumps({f"word{i}": f"d{i}" for i in range(n)}))


class IndexReader:
    """A retriever whose code stays the same while the index file that it reads changes."""

    def __init__(self, path):
        self.path = path
        self.queries = []

    def search(self, query, k):
        self.queries.append(query)
        result = json.loads(self.path.read_text())
        return [result[query]] if query in result else ["other"]


@pytest.fixture
def index_reader(tmp_path):
    write_index(tmp_path, 8)
    return IndexReader(tmp_path / "index.json")


def run_indexed(system, out, **options):
    return ragauge.run(QUERIES, {"mine": system}, measures=["recall@5"], out=out, warmup=0, **options)


def test_run_user_object_with_changed_index_is_run_again(tmp_path, index_reader):
    first = run_indexed(index_reader, tmp_path / "out")
    assert first.scores["mine"].means["recall@5"] == 1.0
    write_index(tmp_path, 6)
    second = run_indexed(index_reader, tmp_path / "out")
    assert second.scores["mine"].means["recall@5"] == 0.75
    assert second.runs["mine"].manifest["reused"] is False
    date = first.runs["mine"].manifest["made"]
    note = f"mine: run again; the results of {date} were replaced (add --reuse to reuse finished results)"
    assert second.notes[0] == note
    assert "run again" not in (tmp_path / "out" / "mine" / "manifest.json").read_text()


def test_run_reuse_keeps_results_of_user_object(tmp_path, index_reader):
    first = run_indexed(index_reader, tmp_path / "out")
    write_index(tmp_path, 6)
    n_queries = len(index_reader.queries)
    second = run_indexed(index_reader, tmp_path / "out", reuse=True)
    assert len(index_reader.queries) == n_queries
    assert second.scores["mine"].means["recall@5"] == 1.0
    date = first.runs["mine"].manifest["made"]
    assert second.notes[-1] == f"mine: reused; made {date} (run it again with --fresh)"
    stored = json.loads((tmp_path / "out" / "mine" / "manifest.json").read_text())
    assert (stored["made"], stored["reused"]) == (date, True)
    assert run_indexed(index_reader, tmp_path / "out").runs["mine"].manifest["reused"] is False


def test_run_fresh_and_reuse_are_mutually_exclusive(tmp_path, index_reader):
    with pytest.raises(BadInput, match="fresh and reuse are mutually exclusive"):
        run_indexed(index_reader, tmp_path / "out", fresh=True, reuse=True)
    process = command_in(tmp_path)("run", "synthetic:needles", "-s", "bm25", "--fresh", "--reuse", code=2)
    assert "error: --fresh and --reuse are mutually exclusive" in process.stderr


def test_run_builtin_system_is_reused(tmp_path):
    dataset = "synthetic:needles(documents=30, queries=10)"
    ragauge.run(dataset, ["bm25"], out=tmp_path)
    second = ragauge.run(dataset, ["bm25"], out=tmp_path)
    assert second.runs["bm25"].manifest["reused"] is True
    assert second.notes[-1].startswith("bm25: reused; made 20")


def test_run_http_service_is_run_again(tmp_path):
    docs = ["other", "d0"]
    with serving(lambda body, headers: (200, {"documents": [{"id": doc} for doc in docs]})) as url:
        first = run_indexed(f"http(url={url})", tmp_path)
        docs += ["d1"]
        second = run_indexed(f"http(url={url})", tmp_path)
        docs += ["d2", "d3"]
        reused = run_indexed(f"http(url={url})", tmp_path, reuse=True)
    assert [result.scores["mine"].means["recall@5"] for result in (first, second, reused)] == [0.125, 0.25, 0.25]


def test_run_reused_after_change_prints_only_current_note(tmp_path):
    dataset = "synthetic:needles(documents=30, queries=10)"
    ragauge.run(dataset, {"a": "bm25"}, out=tmp_path)
    changed = ragauge.run(dataset, {"a": "bm25(k1=2.0)"}, out=tmp_path)
    assert changed.notes == ["a: changed since the last run (description bm25 -> bm25(k1=2.0)), so it was run again"]
    reused = ragauge.run(dataset, {"a": "bm25(k1=2.0)"}, out=tmp_path)
    assert len(reused.notes) == 1
    assert reused.notes[0].startswith("a: reused; made ")
    assert ragauge.overview(tmp_path, audited=False).notes == []


def test_run_interrupted_in_later_system_resumes_and_reuses_first(tmp_path, index_reader):
    def interrupted(query, k):
        raise KeyboardInterrupt

    systems = {"mine": index_reader, "later": interrupted}
    with pytest.raises(KeyboardInterrupt):
        ragauge.run(QUERIES, systems, measures=["recall@5"], out=tmp_path / "out", warmup=0)
    n_queries = len(index_reader.queries)
    assert n_queries == 8
    resumed = ragauge.run(
        QUERIES,
        {"mine": index_reader, "later": lambda query, k: ["d1"]},
        measures=["recall@5"],
        out=tmp_path / "out",
        warmup=0,
    )
    assert len(index_reader.queries) == n_queries
    assert resumed.runs["mine"].manifest["reused"] is True
    assert not list((tmp_path / "out").rglob("journal.jsonl"))
    run_indexed(index_reader, tmp_path / "out")
    assert len(index_reader.queries) == 2 * n_queries


def test_run_reuse_retries_failed_queries_and_keeps_original_date(tmp_path, index_reader):
    index_reader.path.unlink()
    write_index(tmp_path, 8)
    broken = IndexReader(index_reader.path)
    working_search = broken.search

    def failing_once(query, k):
        if query == "word3" and not fixed:
            raise ConnectionError("down")
        return working_search(query, k)

    fixed = []
    first = run_indexed(failing_once, tmp_path / "out")
    fixed.append(True)
    second = run_indexed(failing_once, tmp_path / "out", reuse=True)
    assert len(broken.queries) == 8
    manifest = second.runs["mine"].manifest
    assert (manifest["made"], manifest["reused"]) == (first.runs["mine"].manifest["made"], True)
    assert second.notes[0] == "mine: 1 queries that had failed were run again"


@pytest.fixture
def folder_with_reuse(tmp_path, index_reader):
    """Create a folder with a new and a reused run; return it, the run dates and the expected note."""
    ragauge.run(QUERIES, {"mine": index_reader}, measures=["recall@5"], out=tmp_path / "out", warmup=0)
    systems = {"mine": index_reader, "new": lambda query, k: ["d1"]}
    result = ragauge.run(QUERIES, systems, measures=["recall@5"], out=tmp_path / "out", warmup=0, reuse=True)
    dates = {name: run.manifest["made"] for name, run in result.runs.items()}
    return tmp_path / "out", dates, f"rankings retrieved: mine {dates['mine']} (reused); new {dates['new']}"


def test_gate_reports_retrieval_dates_in_every_format(tmp_path, folder_with_reuse):
    out, dates, _ = folder_with_reuse
    files = ["--junit", "gate.xml", "-o", "gate.md"]
    process = command_in(tmp_path)("gate", out / "new", "-b", out / "mine", "-r", "recall@5 >= 0.1", *files)
    line = f"rankings retrieved: run {dates['new']}; baseline {dates['mine']} (reused)"
    assert f"note: {line}\n" in process.stderr
    assert f"- {line}\n" in (tmp_path / "gate.md").read_text()
    assert f'value="{line}"' in (tmp_path / "gate.xml").read_text()
    gate = ragauge.gate(out / "new", "recall@5 >= 0.1", baseline=out / "mine")
    assert gate.run_dates == {"run": (dates["new"], False), "baseline": (dates["mine"], True)}
    data = command_in(tmp_path)("gate", out / "mine", "-r", "recall@5 >= 0.1", "--json").stdout
    assert json.loads(data)["run_dates"] == {"run": {"made": dates["mine"], "reused": True}}


def test_compare_reports_retrieval_dates_in_every_format(tmp_path, folder_with_reuse):
    out, dates, line = folder_with_reuse
    compare = command_in(tmp_path, "compare", str(out), "-m", "recall@5")
    assert f"note: {line}\n" in compare("--verbose").stderr
    assert f"note: {line}\n" in compare("--csv", "--verbose").stderr
    assert f"- {line}\n" in compare("--format", "markdown").stdout
    assert f"% {line}\n" in compare("--format", "latex").stdout
    answers = json.loads(compare("--json").stdout)["run_dates"]
    assert answers == {
        "mine": {"made": dates["mine"], "reused": True},
        "new": {"made": dates["new"], "reused": False},
    }


@pytest.mark.slow
def test_report_shows_retrieval_dates_in_every_format(tmp_path, folder_with_reuse):
    out, dates, _ = folder_with_reuse
    report = command_in(tmp_path, "report", str(out), "--no-audit")
    assert "reused: mine" in report().stdout
    assert "reused: mine" in report("--format", "markdown").stdout
    for form in ("csv", "wide"):
        rows = list(csv.DictReader(report("--format", form).stdout.splitlines()))
        dates_by_system = {row["system"]: (row["made"], row["reused"]) for row in rows}
        assert dates_by_system == {"mine": (dates["mine"], "true"), "new": (dates["new"], "false")}
    systems = json.loads(report("--format", "json").stdout)["systems"]
    assert RunDate.find(systems["mine"]["manifest"]) == RunDate(dates["mine"], True)
    report("-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"{dates['mine']}, reused" in page
    assert "reused: mine" in page
