"""Experiments: failed queries count, interrupted runs resume, folders can be read later, files cannot refer to code."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import ragauge
from command import run_python
from ragauge.core import plugins
from ragauge.core.documents import Document
from ragauge.core.errors import BackendFailed, BadInput, RagaugeError, UnknownName
from ragauge.core.records import Dataset, Judgments
from ragauge.experiments.experiment_file import read_experiment
from ragauge.experiments.run import run
from ragauge.files.writers import write_run
from ragauge.runs import system_run
from ragauge.runs.journal import Journal, WorkKey
from ragauge.runs.results import QueryResult
from ragauge.runs.system_run import measure_overhead_us
from waiting import PATIENCE_S, count_lines, wait_while_running

DOCUMENTS = [Document(f"d{i}", f"word{i} and word{i + 1}") for i in range(30)]
QUERIES = {f"q{i}": f"word{i}" for i in range(12)}
DATA = Dataset("small", DOCUMENTS, QUERIES, Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}))


def right(query, k):
    return [f"d{query.removeprefix('word')}"]


def test_run_function_is_scored_and_timed():
    result = run(DATA, {"mine": right}, measures=["recall@10", "mrr"])
    assert result.scores["mine"].means == {"recall@10": 1.0, "mrr": 1.0}
    assert result.speeds["mine"].asked == 12
    assert result.speeds["mine"].stages["total"].n == 12
    assert result.runs["mine"].manifest["cold_ms"] > 0


def test_run_failed_queries_count_as_empty_rankings_in_mean():
    def failing_half(query, k):
        if int(query.removeprefix("word")) >= 6:
            raise RuntimeError("down")
        return right(query, k)

    result = run(DATA, {"half": failing_half}, measures=["recall@10"])
    assert result.scores["half"].means["recall@10"] == 0.5
    assert result.scores["half"].n["recall@10"] == 12
    assert (result.speeds["half"].failed, result.speeds["half"].stages["total"].n) == (6, 6)
    message = "6 of 12 queries failed and count as empty rankings; first: q6: RuntimeError: down"
    assert result.notes[0] == f"half: {message}"
    assert result.failures["half"].message == "half: 6 of 12 queries failed; first: q6: RuntimeError: down"
    assert result.scores["half"].failures == {f"q{i}": "RuntimeError: down" for i in range(6, 12)}
    shown = f"Scores('half', default: recall@10 0.5000 (n=12); {message})"
    assert repr(result) == f"{shown}\nnote: half: returned at most 1 document per query; 10 were requested"


def always_failing(query, k):
    raise RuntimeError("down")


def test_run_all_queries_failed_raises_first_error(tmp_path):
    with pytest.raises(BackendFailed, match="never: 12 of 12 queries failed; first: q0: RuntimeError: down") as error:
        run(DATA, {"mine": right, "never": always_failing}, measures=["recall@10"], out=tmp_path)
    assert "allow_failures=True" in error.value.hint
    result = run(
        DATA, {"mine": right, "never": always_failing}, measures=["recall@10"], out=tmp_path, allow_failures=True
    )
    # The note names both systems, unless their runs began in different seconds.
    rerun_notes = [note for note in result.notes if "run again" in note]
    assert all(any(name in note.partition(": ")[0] for note in rerun_notes) for name in ("mine", "never"))
    assert result.scores["never"].means["recall@10"] == 0.0
    assert "12 of 12 queries failed" in repr(result)
    later = ragauge.evaluate(tmp_path, tmp_path / "never", ["recall@10"])
    assert later.n["recall@10"] == 12
    assert later.failures == result.scores["never"].failures
    assert "12 of 12 queries failed" in later.notes[0]


def test_cli_run_all_queries_failed_exits_with_3(tmp_path):
    (tmp_path / "broken.py").write_text("def search(query, k):\n    raise RuntimeError('down')\n")
    args = ("run", "synthetic:needles", "-s", "bm25", "-s", "mine=broken:search", "--max-queries", "5", "-o", "x")
    process = run_cli(*args, cwd=tmp_path)
    assert process.returncode == 3
    assert "error: mine: 5 of 5 queries failed; first: " in process.stderr
    assert "bm25 " in process.stdout
    evaluation = run_cli("evaluate", "x", "-m", "mrr", cwd=tmp_path)
    assert "mine: 5 of 5 queries failed and count as empty rankings" in evaluation.stderr


def test_run_inside_event_loop_accepts_sync_and_async_systems():
    async def search_async(query, k):
        await asyncio.sleep(0)
        return right(query, k)

    async def run_in_loop():
        return run(DATA, {"plain": right, "later": search_async}, measures=["recall@10"], workers=3)

    result = asyncio.run(run_in_loop())
    assert [score.means["recall@10"] for score in result.scores.values()] == [1.0, 1.0]


def test_run_keeps_custom_stages_of_user_system():
    def staged(query, k):
        with ragauge.stage("embed"):
            pass
        with ragauge.stage("my own"):
            return right(query, k)

    result = run(DATA, {"staged": staged})
    assert set(result.speeds["staged"].stages) == {"embed", "my own", "total"}
    timings = result.runs["staged"].timings
    assert {"embed_ns", "retrieve_ns", "rerank_ns", "my own_ns", "total_ns"} <= set(timings.columns)


def test_run_repeats_are_timed_and_changed_rankings_are_noted():
    calls = []

    def wavering(query, k):
        calls.append(query)
        return right(query, k) if calls.count(query) == 1 else ["d29"]

    result = run(DATA, {"wavering": wavering}, repeats=3, warmup=0, measures=["recall@10"])
    assert result.speeds["wavering"].asked == 36
    assert result.scores["wavering"].trial_means["recall@10"] == [1.0, 0.0, 0.0]
    assert "12 queries have different rankings" in result.notes[0]


def test_run_folder_can_be_evaluated_later_and_has_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    result = run(DATA, {"bm25": "bm25", "mine": right}, out=tmp_path / "out", baseline="bm25")
    scores = ragauge.evaluate(tmp_path / "out", {"bm25": tmp_path / "out" / "bm25"}, ["ndcg@10"])["bm25"]
    assert scores.means["ndcg@10"] == result.scores["bm25"].means["ndcg@10"]
    manifest = json.loads((tmp_path / "out" / "bm25" / "manifest.json").read_text())
    assert manifest["system"] == {"name": "bm25", "description": "bm25"}
    assert manifest["dataset"]["documents"] == 30
    assert manifest["versions"]["ragauge"] == ragauge.__version__
    assert manifest["machine"]["cores"] == os.cpu_count()
    assert not (tmp_path / "out" / "bm25" / "journal.jsonl").exists()
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or b"sk-very-secret" not in file.read_bytes()


def test_run_reuse_skips_finished_queries_and_fresh_repeats_them(tmp_path):
    calls = []

    def counting(query, k):
        calls.append(query)
        return right(query, k)

    run(DATA, {"mine": counting}, out=tmp_path, warmup=0)
    reused = run(DATA, {"mine": counting}, out=tmp_path, warmup=0, reuse=True)
    assert len(calls) == 12
    assert "mine: reused; made 20" in reused.notes[-1]
    assert reused.scores["mine"].means["recall@10"] == 1.0
    run(DATA, {"mine": counting}, out=tmp_path, warmup=0, fresh=True)
    assert len(calls) == 24


def test_run_folder_with_other_settings_or_dataset_raises_error(tmp_path):
    run(DATA, {"mine": right}, out=tmp_path)
    with pytest.raises(BadInput, match="other work \\(k 10 -> 3\\)"):
        run(DATA, {"mine": right}, out=tmp_path, k=3)
    smaller = Dataset("small", DOCUMENTS[:20], QUERIES, DATA.judgments)
    with pytest.raises(BadInput, match="finished run of other documents; expected 20 documents"):
        run(smaller, {"mine": right}, out=tmp_path)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_run_interrupted_resumes_after_last_finished_query(tmp_path, stop):
    calls = []

    def interrupted(query, k):
        calls.append(query)
        if len(calls) == 6:
            raise stop
        return right(query, k)

    interrupted.__qualname__ = "mine"
    with contextlib.suppress(KeyboardInterrupt):
        run(DATA, {"mine": interrupted}, out=tmp_path, warmup=0)
    result = run(DATA, {"mine": interrupted}, out=tmp_path, warmup=0, measures=["recall@10"])
    if stop is KeyboardInterrupt:
        assert len(calls) == 13  # only the interrupted query was run again
        assert result.scores["mine"].means["recall@10"] == 1.0
        assert "2 sessions" in result.notes[0]
    else:  # an error of the system is stored as its result; the same command runs it again
        assert len(calls) == 24
        assert result.notes[0].startswith("mine: run again; the results of ")
        assert result.scores["mine"].means["recall@10"] == 1.0


SLOW_RUN_SCRIPT = """
import sys, time
from pathlib import Path
sys.path[:0] = {tests!r}
from test_experiments import DATA, right
from ragauge.experiments.run import run

def slow(query, k):
    with Path({log!r}).open("a") as log:
        log.write(query + "\\n")
    if len(Path({log!r}).read_text().splitlines()) == 5:
        time.sleep(3600)  # until it is killed
    return right(query, k)

run(DATA, {{"slow": slow}}, out={out!r}, warmup=0, measures=["recall@10"])
"""


@pytest.mark.crash
@pytest.mark.representative
def test_run_after_sigkill_repeats_at_most_one_query(tmp_path):
    log = tmp_path / "log"
    code = SLOW_RUN_SCRIPT.format(
        tests=[str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")],
        log=str(log),
        out=str(tmp_path / "out"),
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_while_running(process, lambda: count_lines(log) == 5, "five queries")
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert count_lines(log) == 12 + 1
    assert ragauge.evaluate(tmp_path / "out", tmp_path / "out" / "slow", ["recall@10"]).means["recall@10"] == 1.0


def test_journal_truncated_line_loses_only_that_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    key = WorkKey({"plan": {"k": 10}}, {"system": {"name": "mine"}})
    journal = Journal(path, key)
    journal.begin_session({})
    special = QueryResult('q"\n\\é\u2028', 0, ["a\tb", "ü"], [float("inf"), -1e-300], stages={'x"y': 3})
    for i, docs in enumerate(([], [""], ["a\nb", "c"], ["", ""], ["\n"])):
        unusual = QueryResult(f"odd {i}", 0, docs, [0.1] * len(docs))
        journal.append(unusual)
    journal.append(unusual)  # a repeated line is read once
    for entry in (special, QueryResult("q2", 0, [], [], "error", "No: \n'\""), QueryResult("q3", 0)):
        journal.append(entry)
    journal.close()
    path.write_bytes(path.read_bytes()[:-7])
    reopened = Journal(path, key)
    assert [result.query for result in reopened.results[5:]] == [special.query, "q2"]
    assert [result.docs for result in reopened.results[:5]] == [[], [""], ["a\nb", "c"], ["", ""], ["\n"]]
    assert reopened.results[5] == special
    reopened.append(QueryResult("q3", 0))
    reopened.close()
    third = Journal(path, key)
    third.close()
    assert third.results[-1].query == "q3"
    with pytest.raises(BadInput, match="k 10 -> 3"):
        Journal(path, key._replace(required={"plan": {"k": 3}}))
    other = Journal(path, key._replace(optional={"system": {"name": "other"}}))
    other.close()
    assert (other.results, other.replaced) == ([], "name mine -> other")


def test_evaluate_unfinished_run_folder_raises_error(tmp_path):
    Journal(tmp_path / "journal.jsonl", WorkKey()).close()
    with pytest.raises(BadInput, match="not finished"):
        ragauge.evaluate({"q": {"a": 1}}, tmp_path)
    (tmp_path / "other" / "bm25").mkdir(parents=True)
    with pytest.raises(BadInput, match="no run is in this folder"):
        ragauge.evaluate({"q": {"a": 1}}, tmp_path / "other")


def test_run_query_that_is_document_is_removed_from_its_ranking():
    documents = [*DOCUMENTS, Document("q3", "word3"), Document("q4", "another text under the id of a query")]
    data = Dataset("own", documents, QUERIES, DATA.judgments)

    def self_first(query, k):
        same_query = ["q3"] if query == "word3" else []
        return [*same_query, *(f"d{20 + i}" for i in range(9)), *right(query, k)][:k]

    result = run(data, {"mine": self_first}, k=10, measures=["recall@10"])
    assert result.scores["mine"].means["recall@10"] == 1.0
    assert result.notes == ["1 query is also a document of the corpus; each is left out of its own ranking"]


def test_run_shared_query_and_document_ids_do_not_remove_documents():
    documents = [Document(str(i), f"word{i} here") for i in range(1, 9)]
    queries = {str(i): f"where is word{i}" for i in range(1, 9)}
    data = Dataset("numbered", documents, queries, Judgments({q: {q: 1} for q in queries}))
    result = run(data, {"bm25": "bm25"}, measures=["mrr@10"])
    assert result.scores["bm25"].means["mrr@10"] == 1.0
    assert result.notes == []


@pytest.mark.parametrize(
    "scores",
    [
        [1.0, 1.0, 1.0],
        [1.0, 1 - 1e-12, 1 - 1e-12],
        [-math.inf, -math.inf, -math.inf],
        [0.5, -sys.float_info.max, -sys.float_info.max],
        [math.inf, math.inf, 1e300],
        [0.0, -0.0, 0.25],
    ],
)
def test_run_scores_keep_returned_order_in_every_tool(tmp_path, scores):
    def tied(query, k):
        return list(zip(["d28", f"d{query.removeprefix('word')}", "d29"], scores, strict=True))

    result = run(DATA, {"tied": tied}, measures=["mrr@10"], out=tmp_path / "out")
    assert result.scores["tied"].means["mrr@10"] == 0.5
    single = result.runs["tied"].table["score"].cast(pl.Float32)
    assert single.is_finite().all()
    write_run(result.runs["tied"], str(tmp_path / "tied.run"))
    for path in (tmp_path / "out" / "tied", tmp_path / "tied.run"):
        for convention in ("default", "trec9", "beir", "ranx", "sklearn"):
            scored = ragauge.evaluate(tmp_path / "out", path, ["ndcg@1", "ndcg@2"], convention)
            assert scored.means["ndcg@1"] == 0, convention
            assert scored.means["ndcg@2"] == pytest.approx(1 / math.log2(3)), convention
    rankings = {}
    for line in (tmp_path / "tied.run").read_text().splitlines():
        query, _, doc, _, score, _ = line.split()
        rankings.setdefault(query, {})[doc] = float(score)
    grades = {query: dict(docs) for query, docs in DATA.judgments.nested.items()}
    pytrec_eval = pytest.importorskip("pytrec_eval")
    evaluator = pytrec_eval.RelevanceEvaluator(grades, {"recip_rank"})  # it compares in single precision
    assert {one["recip_rank"] for one in evaluator.evaluate(rankings).values()} == {0.5}


def test_run_duplicate_documents_count_once_and_are_noted(tmp_path):
    def duplicating(query, k):
        return ["d29", "d29", *right(query, k)]

    result = run(DATA, {"again": duplicating, "mine": right}, measures=["mrr@10"], out=tmp_path)
    assert result.scores["again"].means["mrr@10"] == pytest.approx(1 / 3)
    assert any(note.startswith("again: 12 hits repeat a document") for note in result.notes)


def test_run_unasked_judged_queries_are_not_scored():
    half_of_queries = Dataset("half", DOCUMENTS, {q: QUERIES[q] for q in list(QUERIES)[:6]}, DATA.judgments)
    result = run(half_of_queries, {"mine": right}, measures=["recall@10"])
    assert (result.scores["mine"].means["recall@10"], result.scores["mine"].n["recall@10"]) == (1.0, 6)
    assert result.notes == [
        "6 judged queries are not run and not scored",
        "mine: returned at most 1 document per query; 10 were requested",
    ]
    assert run(DATA, {"mine": right}, max_queries=3).speeds["mine"].asked == 3


@pytest.mark.parametrize(
    ("grades", "note"),
    [
        ({"gone": 1}, "1 of 2 relevant documents is not in the corpus and cannot be found, e.g. `gone`"),
        ({"gone": 2, "lost": 1}, "2 of 3 relevant documents are not in the corpus and cannot be found, e.g. `gone`"),
        ({"gone": 0}, None),  # A document that is judged irrelevant changes no score.
    ],
)
def test_run_notes_relevant_documents_missing_from_corpus(grades, note):
    data = Dataset("gaps", DOCUMENTS, {"q": "word0"}, Judgments({"q": {"d0": 1, **grades}}))
    notes = [text for text in run(data, {"mine": right}, measures=["recall@10"]).notes if "corpus" in text]
    assert notes == ([note] if note else [])


def test_run_k_defaults_to_deepest_cutoff_and_rejects_smaller_k():
    depths = []

    def deep(query, k):
        depths.append(k)
        return right(query, k)

    run(DATA, {"deep": deep}, measures=["recall@25", "ndcg@5"])
    assert set(depths) == {25}
    with pytest.raises(BadInput, match="recall@25 needs 25 documents per query, but -k is 10"):
        run(DATA, {"deep": deep}, measures=["recall@25"], k=10)


def test_run_unknown_ids_and_empty_rankings_are_noted():
    result = run(DATA, {"strange": lambda q, k: ["d1", "doc#1"], "nothing": lambda q, k: None})
    message = "12 of 24 returned ids are not in the corpus; returned: `doc#1`; corpus: `d0`, `d1`, `d2`"
    assert f"strange: {message}" in result.notes
    assert "nothing: 12 of 12 queries returned no documents" in result.notes


def test_run_failures_in_later_trials_are_reported_in_notes():
    calls = []

    def fails_later(query, k):
        calls.append(query)
        if query == "word3" and calls.count(query) == 2:
            raise RuntimeError("down")
        return right(query, k)

    result = run(DATA, {"mine": fails_later}, repeats=3, warmup=0, measures=["recall@10"])
    assert result.runs["mine"].failures == {"q3": "RuntimeError: down"}
    assert "1 of 12 queries failed" in result.failures["mine"].message
    assert "1 of 12 queries failed" in repr(result)
    assert result.scores["mine"].trial_means["recall@10"] == pytest.approx([1.0, 11 / 12, 1.0])
    assert result.notes == [
        "mine: 1 queries failed in a later trial; their latencies are excluded",
        "mine: returned at most 1 document per query; 10 were requested",
    ]


def test_run_changed_code_is_run_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "changing.py"
    module.write_text("def search(query, k):\n    return ['d29']\n")
    first = run(
        DATA, {"mine": importlib.import_module("changing").search}, out=tmp_path / "out", measures=["recall@10"]
    )
    assert first.scores["mine"].means["recall@10"] == 0.0
    module.write_text("def search(query, k):\n    return ['d' + query.removeprefix('word')]  # better\n")
    importlib.invalidate_caches()
    changed = importlib.reload(importlib.import_module("changing")).search
    second = run(DATA, {"mine": changed}, out=tmp_path / "out", measures=["recall@10"])
    assert second.scores["mine"].means["recall@10"] == 1.0
    assert "mine: changed since the last run (code " in second.notes[0]


def test_run_changed_description_is_run_again_and_others_are_reused(tmp_path):
    run(DATA, {"a": "bm25", "b": "bm25(k1=1.2)"}, out=tmp_path)
    result = run(DATA, {"a": "bm25", "b": "bm25(k1=2.0)"}, out=tmp_path)
    assert "a: reused; made " in result.notes[0]
    assert "description bm25(k1=1.2) -> bm25(k1=2.0)" in result.notes[1]


def test_run_invalid_option_raises_error_before_creating_folder(tmp_path):
    with pytest.raises(BadInput, match="no option `stor`"):
        run(DATA, {"mine": right, "d": "dense(stor=faiss)"}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="k1 must be a number, got x"):
        run(DATA, {"b": "bm25(k1=x)"}, out=tmp_path / "out")
    assert run(DATA, {"b": "bm25(k1=1.2)"}, out=tmp_path / "out").scores["b"].n["ndcg@10"] == 12


def test_run_unbuildable_system_fails_alone(tmp_path):
    systems = {"mine": right, "bad": "http(url=ftp://x)"}
    with pytest.raises(BadInput, match="bad: `ftp://x`"):
        run(DATA, systems, baseline="mine")
    result = run(DATA, systems, out=tmp_path, baseline="mine", allow_failures=True)
    assert list(result.scores) == ["mine"]
    assert "bad: not run: bad: `ftp://x`" in repr(result)
    assert result.failures["bad"].message.startswith("bad: ")
    process = run_cli("run", "synthetic:needles", "-s", "bm25", "-s", "bad=http(url=ftp://x)", "-o", "x", cwd=tmp_path)
    assert process.returncode == 2
    assert "error: bad: `ftp://x` is not an http or https URL" in process.stderr
    assert "bm25 " in process.stdout
    assert (tmp_path / "x" / "report.md").exists()


@pytest.mark.slow
def test_run_missing_library_raises_working_install_command(tmp_path):
    (tmp_path / "wordllama.py").write_text("raise ImportError('not installed')\n")
    metadata = tmp_path / "ragauge-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ragauge\nVersion: 0.1\n")
    clone = tmp_path / "my clone"
    clone.mkdir()
    code = "import ragauge; ragauge.run('synthetic:needles', {'mine': lambda q, k: ['d00001'], 'dense': 'dense'})"
    paths = [str(tmp_path), *sys.path]

    def read_hint():
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-c", code]
        process = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert process.returncode == 1
        assert "needs an optional library" in process.stderr
        return process.stderr.strip().splitlines()[-1]

    assert read_hint() == "hint: pip install 'ragauge[wordllama]'"
    (metadata / "direct_url.json").write_text(json.dumps({"dir_info": {}, "url": clone.as_uri()}))
    assert read_hint() == "hint: pip install 'ragauge[wordllama]'"  # the clone has no pyproject.toml
    (clone / "pyproject.toml").write_text("")
    assert read_hint() == f"hint: pip install '{clone}[wordllama]'"


def test_run_corrupt_manifest_raises_error_and_invalid_ids_are_accepted(tmp_path):
    result = run(
        DATA, {"odd": lambda q, k: ["half a \ud83d character", *right(q, k)]}, out=tmp_path, measures=["mrr@10"]
    )
    assert result.scores["odd"].means["mrr@10"] == 0.5
    (tmp_path / "odd" / "manifest.json").write_text("{")
    with pytest.raises(BadInput, match="is corrupt or incomplete"):
        run(DATA, {"odd": right}, out=tmp_path)


def test_cli_run_secrets_in_url_are_not_written_or_printed(tmp_path):
    system = 'http(url="http://user:hunter2@127.0.0.1:9/s?api_key=SEKRET", timeout=1)'
    process = run_cli("run", "synthetic:needles(queries=2)", "-s", system, "-o", "out", cwd=tmp_path)
    assert process.returncode == 3
    outputs = [process.stdout, process.stderr, *map(str, tmp_path.rglob("*"))]
    outputs += [file.read_bytes().decode("utf-8", "replace") for file in tmp_path.rglob("*") if file.is_file()]
    for text in outputs:
        assert "hunter2" not in text
        assert "SEKRET" not in text


def test_cli_run_json_is_valid_when_all_queries_failed(tmp_path):
    (tmp_path / "down.py").write_text("def search(query, k):\n    raise OSError('down')\n")
    process = run_cli("run", "synthetic:needles", "-s", "x=down:search", "--json", cwd=tmp_path)
    assert process.returncode == 3
    result = json.loads(process.stdout, parse_constant=pytest.fail)
    assert result["systems"]["x"]["speed"]["stages"]["total"]["p50"] is None


def test_cli_run_by_tag_splits_results(tmp_path):
    process = run_cli("run", "synthetic:duplicates", "-s", "bm25", "--by", "answers", cwd=tmp_path)
    assert "ndcg@10 by answers" in process.stdout
    assert "by answers" in (tmp_path / "runs" / "synthetic_duplicates" / "report.md").read_text()
    process = run_cli("run", "synthetic:duplicates", "-s", "bm25", "--by", "topic", cwd=tmp_path)
    assert (process.returncode, "unknown tag `topic`" in process.stderr) == (2, True)
    other = run_cli("run", "synthetic:duplicates", "-s", "bm25", "--by", "topic", "-o", "other", cwd=tmp_path)
    assert other.returncode == 2
    assert not (tmp_path / "other").exists()  # the command fails before the run


def test_run_invalid_arguments_raise_error():
    with pytest.raises(UnknownName, match="unknown retriever `bm52`"):
        run(DATA, ["bm52"])
    with pytest.raises(UnknownName, match="`nothing`"):
        run(DATA, {"mine": right}, baseline="nothing")
    with pytest.raises(UnknownName, match="`worker`"):
        run(DATA, {"mine": right}, worker=3)
    with pytest.raises(BadInput, match="k must be between 1 and 10,000,000, got 0"):
        run(DATA, {"mine": right}, k=0)
    with pytest.raises(BadInput, match="share a folder"):
        run(DATA, {"a b": right, "a/b": right})
    with pytest.raises(BadInput, match="no system"):
        run(DATA, {})


def test_run_system_name_with_parent_path_stays_in_output_folder(tmp_path):
    run(DATA, {"../../evil/../x": right}, out=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_measure_overhead_returns_microseconds():
    assert 0 < measure_overhead_us(10, 50) < 10_000  # only the magnitude: the value depends on the machine


def test_run_harness_overhead_is_measured_once_for_all_systems(monkeypatch):
    measured = []
    system_run._measured_overhead_us.cache_clear()
    monkeypatch.setattr(system_run, "measure_overhead_us", lambda k: measured.append(k) or 12.5)
    result = run(DATA, {"first": right, "second": right}, measures=["recall@10"])
    system_run._measured_overhead_us.cache_clear()
    assert measured == [10]
    assert [run.manifest["harness_microseconds"] for run in result.runs.values()] == [12.5, 12.5]


TOML = """
dataset = "synthetic:needles(documents=60, queries=6)"
k = 5
measures = ["ndcg@5", "mrr"]
baseline = "words"
repeats = 2

[systems.words]
kind = "bm25"
k1 = 1.2

[systems.both]
kind = "hybrid"
of = ["words", "bm25(b=0.9)"]
weights = [0.5, 0.5]
"""


def run_cli(*arguments, cwd, **environment):
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **environment}
    return run_python(["-m", "ragauge", *arguments], cwd, env)


def test_cli_run_experiment_file_writes_expected_files(tmp_path):
    (tmp_path / "test.toml").write_text(TOML)
    process = run_cli("run", "test.toml", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    table = process.stdout.partition("\nSystems\n")[2].splitlines()
    assert table[0].split() == ["system", "ndcg@5", "mrr", "vs", "words", "p", "better/worse"]
    out = tmp_path / "runs" / "test"
    assert {path.name for path in out.iterdir()} == {
        "report.html", "report.md", "summary.csv", "scores.csv", "judgments.parquet", "queries.parquet",
        "experiment.json", "targets.json",
        "words", "both",
    }  # fmt: skip
    assert pl.read_parquet(out / "both" / "timings.parquet").height == 12
    assert "| words |" in (out / "report.md").read_text()
    assert pl.read_csv(out / "scores.csv").height == 2 * 2 * 6
    manifest = json.loads((out / "both" / "manifest.json").read_text())
    assert manifest["system"]["description"] == "hybrid(of=bm25(k1=1.2)+bm25(b=0.9), weights=0.5+0.5)"
    later = run_cli("evaluate", "runs/test", "runs/test/words", "runs/test/both", "-m", "ndcg@5", cwd=tmp_path)
    assert later.returncode == 0, later.stderr
    assert later.stdout.splitlines()[1].split()[:2] == table[1].split()[:2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset = ", "cannot be read"),
        ('dataset = "pydocs"', "missing `systems`"),
        ('dataset = "pydocs"\nsystems = ["bm25"]\nreapeats = 3', "unknown setting `reapeats` of FILE"),
        ('dataset = "pydocs"\nsystems = ["bm25"]\nk = "ten"', "`k` must be int, got 'ten'"),
        ('dataset = "pydocs"\nsystems = ["bm25"]\nk = 0', "k must be between 1 and 10,000,000, got 0"),
        ('dataset = "pydocs"\n[systems]\nx = 3', "the system `x` must be a table, got 3"),
        ('dataset = "pydocs"\nsystems = ["dense("]', "cannot be read"),
    ],
)
def test_read_experiment_invalid_file_raises_one_line_error(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(RagaugeError) as caught:
        read_experiment(str(path))
    assert message.replace("FILE", str(path)) in caught.value.message
    assert "\n" not in caught.value.message


def test_cli_run_user_code_is_accepted_only_on_command_line(tmp_path):
    (tmp_path / "mine.py").write_text("def search(query, k):\n    return ['d00001']\n")
    (tmp_path / "x.toml").write_text('dataset = "synthetic:needles"\nsystems = ["mine:search"]')
    process = run_cli("run", "x.toml", cwd=tmp_path)
    assert process.returncode == 2
    assert "unknown retriever `mine:search`" in process.stderr
    process = run_cli("run", "synthetic:needles", "-s", "own=mine:search", "--json", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["systems"]["own"]["speed"]["asked"] == 100


@pytest.mark.slow
def test_cli_run_invalid_arguments_print_error_and_exit_with_2(tmp_path):
    (tmp_path / "wrong.py").write_text("def search(:\n")
    (tmp_path / "folder.toml").mkdir()
    for arguments, message in (
        (("run", "pydoc", "-s", "bm25"), "unknown dataset `pydoc`"),
        (("run", "pydocs"), "no system given"),
        (("run", "synthetic:needles", "-s", "dense(embeder=minilm)"), "no option `embeder`"),
        (("run", "synthetic:needles", "-s", "bm25", "-s", "bm25"), "system `bm25` appears more than once"),
        (("run", "synthetic:nedles", "-s", "bm25"), "unknown synthetic dataset `nedles`"),
        (("run", "synthetic:needles", "-s", "x=nothere:search"), "there is no module `nothere`"),
        (("run", "synthetic:needles", "-s", "x=wrong:search"), "the module `wrong` cannot be imported: SyntaxError"),
        (("run", "synthetic:needles", "-s", "bm25", "-o", "wrong.py"), "wrong.py: expected a file that ends in"),
        (("run", "synthetic:needles", "-s", "report.md=bm25"), "cannot be named `report.md`"),
        (("run", "synthetic:needles", "-s", "filtered(of=bm25)"), "needs at least one option NAME=VALUE"),
        (("run", "synthetic:needles", "-s", "hybrid(weights=0.7,0.3)"), "joined by +"),
        (("run", "folder.toml"), "cannot be read"),
        (("datasets", "synthetic:needles", "--query", "q9999"), "unknown query `q9999` of synthetic:needles"),
    ):
        process = run_cli(*arguments, cwd=tmp_path)
        assert process.returncode == 2, arguments
        assert message in process.stderr
        assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_cli_run_sigint_exits_with_130_and_resume_hint(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time\ndef search(query, k):\n    time.sleep(0.1)\n    return ['d00001']\n"
    )
    arguments = [sys.executable, "-m", "ragauge", "run", "synthetic:needles", "-s", "own=mine:search", "-o", "out"]
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    journal = tmp_path / "out" / "own" / "journal.jsonl"
    wait_while_running(process, lambda: count_lines(journal) >= 4, "four lines of the journal")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "to resume, run the same command" in stderr
    assert "Traceback" not in stderr
    assert journal.exists()


SLOW_BUILD_SCRIPT = """
import sys, time
import ragauge
from ragauge.core.specs import Spec

class Slow:
    name = "slow"

    def embed(self, texts):
        sys.stderr.write("embedding\\n")
        sys.stderr.flush()
        time.sleep(3600)

ragauge.run("synthetic:needles", {"slow": Spec("dense", {"embedder": Slow()})})
"""


def test_run_sigint_while_building_system_raises_keyboard_interrupt(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_BUILD_SCRIPT)
    process = subprocess.Popen([sys.executable, "slow.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "embedding\n"
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert "KeyboardInterrupt" in stderr


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import os\nimport nothere\n", "ModuleNotFoundError: No module named 'nothere' ({file}:2)"),
        ("def f():\n    raise KeyError('x')\nf()\n", "KeyError: 'x' ({file}:2)"),
        ("def f(:\n", "SyntaxError: invalid syntax ({file}:1)"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 ({file}:2)"),
    ],
)
def test_import_user_object_failing_module_error_includes_cause(tmp_path, monkeypatch, code, cause):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"failing_{abs(hash(code))}.py"
    file.write_text(code)
    with pytest.raises(BadInput) as error:
        plugins.import_user_object(f"{file.stem}:search")
    assert error.value.message == f"the module `{file.stem}` cannot be imported: {cause.format(file=file)}"
    with pytest.raises(BadInput, match="there is no module `nothere`"):
        plugins.import_user_object("nothere:search")


def test_run_library_with_failing_import_error_includes_cause(tmp_path, monkeypatch):
    (tmp_path / "wordllama.py").write_text("raise ImportError('libblas.so.3: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    with pytest.raises(ragauge.MissingExtra, match=r"needs an optional library \(libblas\.so\.3: cannot open"):
        run(DATA, {"b": "dense"})
