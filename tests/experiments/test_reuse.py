"""Reuse of finished results: built-in systems are reused, user systems are run again unless reuse is requested."""

from __future__ import annotations

import csv
import json

import pytest

import ragauge
from command import command_in
from ragauge import BadInput, Dataset, Document, Judgments
from ragauge.core.components import is_reproducible
from ragauge.core.run_dates import RunDate
from ragauge.core.specs import Spec
from servers import serving


@pytest.mark.parametrize(
    ("family", "described", "expected"),
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
        ("embedders", "lm(tokenizer=bpe(vocabulary=800))", True),
    ],
)
def test_is_reproducible_only_if_every_part_is_built_in_and_local(family, described, expected):
    assert is_reproducible(family, described) is expected


def test_is_reproducible_local_model_folder_requires_hashes(tmp_path):
    described = f"dense(embedder=transformers(model='{tmp_path}'))"
    assert not is_reproducible("retrievers", described)
    assert is_reproducible("retrievers", described, files_hashed=True)
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
        found = json.loads(self.path.read_text())
        return [found[query]] if query in found else ["other"]


@pytest.fixture
def indexed(tmp_path):
    write_index(tmp_path, 8)
    return IndexReader(tmp_path / "index.json")


def run_indexed(system, out, **how):
    return ragauge.run(QUERIES, {"mine": system}, measures=["recall@5"], out=out, warmup=0, **how)


def test_run_user_object_with_changed_index_is_run_again(tmp_path, indexed):
    first = run_indexed(indexed, tmp_path / "out")
    assert first.scores["mine"].means["recall@5"] == 1.0
    write_index(tmp_path, 6)
    again = run_indexed(indexed, tmp_path / "out")
    assert again.scores["mine"].means["recall@5"] == 0.75
    assert again.runs["mine"].manifest["reused"] is False
    made = first.runs["mine"].manifest["made"]
    note = f"mine: run again; the results of {made} were replaced (add --reuse to reuse finished results)"
    assert again.notes[0] == note
    assert "run again" not in (tmp_path / "out" / "mine" / "manifest.json").read_text()


def test_run_reuse_keeps_results_of_user_object(tmp_path, indexed):
    first = run_indexed(indexed, tmp_path / "out")
    write_index(tmp_path, 6)
    asked = len(indexed.queries)
    kept = run_indexed(indexed, tmp_path / "out", reuse=True)
    assert len(indexed.queries) == asked
    assert kept.scores["mine"].means["recall@5"] == 1.0
    made = first.runs["mine"].manifest["made"]
    assert kept.notes[-1] == f"mine: reused; made {made} (run it again with --fresh)"
    stored = json.loads((tmp_path / "out" / "mine" / "manifest.json").read_text())
    assert (stored["made"], stored["reused"]) == (made, True)
    assert run_indexed(indexed, tmp_path / "out").runs["mine"].manifest["reused"] is False


def test_run_fresh_and_reuse_are_mutually_exclusive(tmp_path, indexed):
    with pytest.raises(BadInput, match="fresh and reuse are mutually exclusive"):
        run_indexed(indexed, tmp_path / "out", fresh=True, reuse=True)
    done = command_in(tmp_path)("run", "synthetic:needles", "-s", "bm25", "--fresh", "--reuse", code=2)
    assert "error: --fresh and --reuse are mutually exclusive" in done.stderr


def test_run_builtin_system_is_reused(tmp_path):
    small = "synthetic:needles(documents=30, queries=10)"
    ragauge.run(small, ["bm25"], out=tmp_path)
    again = ragauge.run(small, ["bm25"], out=tmp_path)
    assert again.runs["bm25"].manifest["reused"] is True
    assert again.notes[-1].startswith("bm25: reused; made 20")


def test_run_http_service_is_run_again(tmp_path):
    docs = ["other", "d0"]
    with serving(lambda body, headers: (200, {"documents": [{"id": doc} for doc in docs]})) as url:
        first = run_indexed(f"http(url={url})", tmp_path)
        docs += ["d1"]
        again = run_indexed(f"http(url={url})", tmp_path)
        docs += ["d2", "d3"]
        kept = run_indexed(f"http(url={url})", tmp_path, reuse=True)
    assert [one.scores["mine"].means["recall@5"] for one in (first, again, kept)] == [0.125, 0.25, 0.25]


def test_run_reused_after_change_prints_only_current_note(tmp_path):
    small = "synthetic:needles(documents=30, queries=10)"
    ragauge.run(small, {"a": "bm25"}, out=tmp_path)
    changed = ragauge.run(small, {"a": "bm25(k1=2.0)"}, out=tmp_path)
    assert changed.notes == ["a: changed since the last run (description bm25 -> bm25(k1=2.0)), so it was run again"]
    again = ragauge.run(small, {"a": "bm25(k1=2.0)"}, out=tmp_path)
    assert len(again.notes) == 1
    assert again.notes[0].startswith("a: reused; made ")
    assert ragauge.overview(tmp_path, audited=False).notes == []


def test_run_interrupted_in_later_system_resumes_and_reuses_first(tmp_path, indexed):
    def interrupted(query, k):
        raise KeyboardInterrupt

    systems = {"mine": indexed, "later": interrupted}
    with pytest.raises(KeyboardInterrupt):
        ragauge.run(QUERIES, systems, measures=["recall@5"], out=tmp_path / "out", warmup=0)
    asked = len(indexed.queries)
    assert asked == 8
    resumed = ragauge.run(
        QUERIES,
        {"mine": indexed, "later": lambda query, k: ["d1"]},
        measures=["recall@5"],
        out=tmp_path / "out",
        warmup=0,
    )
    assert len(indexed.queries) == asked
    assert resumed.runs["mine"].manifest["reused"] is True
    assert not list((tmp_path / "out").rglob("journal.jsonl"))
    run_indexed(indexed, tmp_path / "out")
    assert len(indexed.queries) == 2 * asked


def test_run_reuse_retries_failed_queries_and_keeps_original_date(tmp_path, indexed):
    indexed.path.unlink()
    write_index(tmp_path, 8)
    broken = IndexReader(indexed.path)
    search = broken.search

    def half(query, k):
        if query == "word3" and not fixed:
            raise ConnectionError("down")
        return search(query, k)

    fixed = []
    first = run_indexed(half, tmp_path / "out")
    fixed.append(True)
    again = run_indexed(half, tmp_path / "out", reuse=True)
    assert len(broken.queries) == 8
    about = again.runs["mine"].manifest
    assert (about["made"], about["reused"]) == (first.runs["mine"].manifest["made"], True)
    assert again.notes[0] == "mine: 1 queries that had failed were run again"


@pytest.fixture
def reused(tmp_path, indexed):
    """Create a folder with a new and a reused run; return it, the run dates and the expected note."""
    ragauge.run(QUERIES, {"mine": indexed}, measures=["recall@5"], out=tmp_path / "out", warmup=0)
    systems = {"mine": indexed, "new": lambda query, k: ["d1"]}
    found = ragauge.run(QUERIES, systems, measures=["recall@5"], out=tmp_path / "out", warmup=0, reuse=True)
    dates = {name: run.manifest["made"] for name, run in found.runs.items()}
    return tmp_path / "out", dates, f"rankings retrieved: mine {dates['mine']} (reused); new {dates['new']}"


def test_gate_reports_retrieval_dates_in_every_format(tmp_path, reused):
    out, dates, _ = reused
    files = ["--junit", "gate.xml", "-o", "gate.md"]
    told = command_in(tmp_path)("gate", out / "new", "-b", out / "mine", "-r", "recall@5 >= 0.1", *files)
    line = f"rankings retrieved: run {dates['new']}; baseline {dates['mine']} (reused)"
    assert f"note: {line}\n" in told.stderr
    assert f"- {line}\n" in (tmp_path / "gate.md").read_text()
    assert f'value="{line}"' in (tmp_path / "gate.xml").read_text()
    gate = ragauge.gate(out / "new", "recall@5 >= 0.1", baseline=out / "mine")
    assert gate.answers == {"run": (dates["new"], False), "baseline": (dates["mine"], True)}
    data = command_in(tmp_path)("gate", out / "mine", "-r", "recall@5 >= 0.1", "--json").stdout
    assert json.loads(data)["answers"] == {"run": {"made": dates["mine"], "reused": True}}


def test_compare_reports_retrieval_dates_in_every_format(tmp_path, reused):
    out, dates, line = reused
    compare = command_in(tmp_path, "compare", str(out), "-m", "recall@5")
    assert f"note: {line}\n" in compare("--verbose").stderr
    assert f"note: {line}\n" in compare("--csv", "--verbose").stderr
    assert f"- {line}\n" in compare("--format", "markdown").stdout
    assert f"% {line}\n" in compare("--format", "latex").stdout
    answers = json.loads(compare("--json").stdout)["answers"]
    assert answers == {
        "mine": {"made": dates["mine"], "reused": True},
        "new": {"made": dates["new"], "reused": False},
    }


@pytest.mark.slow
def test_report_shows_retrieval_dates_in_every_format(tmp_path, reused):
    out, dates, _ = reused
    report = command_in(tmp_path, "report", str(out), "--no-audit")
    assert "reused: mine" in report().stdout
    assert "reused: mine" in report("--format", "markdown").stdout
    for form in ("csv", "wide"):
        rows = list(csv.DictReader(report("--format", form).stdout.splitlines()))
        found = {row["system"]: (row["made"], row["reused"]) for row in rows}
        assert found == {"mine": (dates["mine"], "true"), "new": (dates["new"], "false")}
    systems = json.loads(report("--format", "json").stdout)["systems"]
    assert RunDate.find(systems["mine"]["manifest"]) == RunDate(dates["mine"], True)
    report("-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"{dates['mine']}, reused" in page
    assert "reused: mine" in page


@pytest.mark.slow
def test_compare_embedders_reuses_builtin_but_not_service(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    documents = [Document(f"d{i}", f"word{i} text") for i in range(12)]
    queries = {f"q{i}": f"word{i}" for i in range(12)}
    data = Dataset("words", documents, queries, Judgments({f"q{i}": {f"d{i}": 1} for i in range(12)}))
    requests = []

    def embed(body, headers):
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        requests.extend(texts)
        rows = [[float(len(text)), float(sum(map(ord, text)) % 97), 1.0] for text in texts]
        return 200, {"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)], "usage": {}, "model": "m"}

    with serving(embed) as url:
        given = {"service": f"openai(model=m, url={url}/v1)", "small": "words(dimensions=64)"}
        how = {"measures": ["recall@5"], "out": tmp_path, "memory": False, "sizes": (), "perturbations": ()}
        ragauge.compare_embedders(data, given, **how)
        asked = len(requests)
        again = ragauge.compare_embedders(data, given, **how)
        assert len(requests) > asked
        assert not any(note.startswith("service: reused") for note in again.notes)
        assert any(note.startswith("small: reused; made 20") for note in again.notes)
        asked = len(requests)
        kept = ragauge.compare_embedders(data, given, **how, reuse=True)
        assert len(requests) == asked
    assert any(note.startswith("service: reused; made 20") for note in kept.notes)
    about = json.loads((tmp_path / "service" / "manifest.json").read_text())
    assert about["reused"] is True
    assert f"service: reused; made {about['made']} (--fresh measures it again)" in kept.notes
