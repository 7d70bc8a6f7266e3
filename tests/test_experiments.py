"""Experiments: failures count, killed work goes on, folders can be read later, files cannot name code."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

import ragauge
from ragauge.errors import BadInput, RagaugeError, UnknownName
from ragauge.experiment_files import read_experiment
from ragauge.experiments import overhead, run
from ragauge.records import Dataset, Document, Judgments
from ragauge.reports.experiments import markdown, tables
from ragauge.runs.execute import Answer
from ragauge.runs.journal import Journal

DOCUMENTS = [Document(f"d{i}", f"word{i} and word{i + 1}") for i in range(30)]
QUERIES = {f"q{i}": f"word{i}" for i in range(12)}
DATA = Dataset("small", DOCUMENTS, QUERIES, Judgments({query: {f"d{i}": 1} for i, query in enumerate(QUERIES)}))


def right(query, k):
    return [f"d{query.removeprefix('word')}"]


def test_a_function_is_run_scored_and_timed_in_one_line():
    found = run(DATA, {"mine": right}, measures=["recall@10", "mrr"])
    assert found.scores["mine"].means == {"recall@10": 1.0, "mrr": 1.0}
    assert found.speeds["mine"].asked == 12
    assert found.speeds["mine"].stages["total"].n == 12
    assert found.runs["mine"].manifest["cold_ms"] > 0


def test_failed_queries_are_empty_rankings_that_stay_in_the_mean():
    def half(query, k):
        if int(query.removeprefix("word")) >= 6:
            raise RuntimeError("down")
        return right(query, k)

    found = run(DATA, {"half": half}, measures=["recall@10"])
    assert found.scores["half"].means["recall@10"] == 0.5
    assert found.scores["half"].n["recall@10"] == 12
    assert (found.speeds["half"].failed, found.speeds["half"].stages["total"].n) == (6, 6)
    assert "6 of 12 queries failed and count as empty rankings; the first: q6: RuntimeError: down" in found.notes[0]


def test_a_system_that_always_fails_scores_nothing_and_says_why(tmp_path):
    def never(query, k):
        raise RuntimeError("down")

    found = run(DATA, {"never": never}, measures=["recall@10"], out=tmp_path)
    assert found.scores["never"].means["recall@10"] == 0.0
    assert ragauge.evaluate(tmp_path, tmp_path / "never", ["recall@10"]).n["recall@10"] == 12


def test_inside_a_running_loop_plain_and_async_systems_work_alike():
    async def later(query, k):
        await asyncio.sleep(0)
        return right(query, k)

    async def notebook():
        return run(DATA, {"plain": right, "later": later}, measures=["recall@10"], workers=3)

    found = asyncio.run(notebook())
    assert [one.means["recall@10"] for one in found.scores.values()] == [1.0, 1.0]


def test_stages_of_the_users_own_system_are_kept():
    def staged(query, k):
        with ragauge.stage("embed"):
            pass
        with ragauge.stage("my own"):
            return right(query, k)

    found = run(DATA, {"staged": staged})
    assert set(found.speeds["staged"].stages) == {"embed", "my own", "total"}
    timings = found.runs["staged"].timings
    assert {"embed_ns", "retrieve_ns", "rerank_ns", "my own_ns", "total_ns"} <= set(timings.columns)


def test_repeats_are_all_timed_and_a_system_that_changes_its_mind_is_told_on():
    calls = []

    def wavering(query, k):
        calls.append(query)
        return right(query, k) if calls.count(query) == 1 else ["d29"]

    found = run(DATA, {"wavering": wavering}, repeats=3, warmup=0, measures=["recall@10"])
    assert found.speeds["wavering"].asked == 36
    assert found.scores["wavering"].means["recall@10"] == 1.0
    assert "12 queries got another ranking" in found.notes[0]


def test_the_folder_can_be_evaluated_later_and_holds_the_circumstances(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    found = run(DATA, {"bm25": "bm25", "mine": right}, out=tmp_path / "out", baseline="bm25")
    scores = ragauge.evaluate(tmp_path / "out", {"bm25": tmp_path / "out" / "bm25"}, ["ndcg@10"])["bm25"]
    assert scores.means["ndcg@10"] == found.scores["bm25"].means["ndcg@10"]
    manifest = json.loads((tmp_path / "out" / "bm25" / "manifest.json").read_text())
    assert manifest["system"] == {"name": "bm25", "description": "bm25"}
    assert manifest["dataset"]["documents"] == 30
    assert manifest["versions"]["ragauge"] == ragauge.__version__
    assert manifest["machine"]["cores"] == os.cpu_count()
    assert not (tmp_path / "out" / "bm25" / "journal.jsonl").exists()
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or b"sk-very-secret" not in file.read_bytes()


def test_what_is_done_is_not_done_again_unless_asked_for(tmp_path):
    calls = []

    def counted(query, k):
        calls.append(query)
        return right(query, k)

    run(DATA, {"mine": counted}, out=tmp_path, warmup=0)
    again = run(DATA, {"mine": counted}, out=tmp_path, warmup=0)
    assert len(calls) == 12
    assert "done before" in again.notes[0]
    assert again.scores["mine"].means["recall@10"] == 1.0
    run(DATA, {"mine": counted}, out=tmp_path, warmup=0, fresh=True)
    assert len(calls) == 24


def test_a_folder_with_other_work_is_not_touched(tmp_path):
    run(DATA, {"mine": right}, out=tmp_path)
    with pytest.raises(BadInput, match="another plan"):
        run(DATA, {"mine": right}, out=tmp_path, k=3)
    smaller = Dataset("small", DOCUMENTS[:20], QUERIES, DATA.judgments)
    with pytest.raises(BadInput, match="another dataset"):
        run(smaller, {"mine": right}, out=tmp_path)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_interrupted_work_goes_on_where_it_stopped(tmp_path, stop):
    calls = []

    def interrupted(query, k):
        calls.append(query)
        if len(calls) == 6:
            raise stop
        return right(query, k)

    interrupted.__qualname__ = "mine"
    with contextlib.suppress(KeyboardInterrupt):
        run(DATA, {"mine": interrupted}, out=tmp_path, warmup=0)
    found = run(DATA, {"mine": interrupted}, out=tmp_path, warmup=0, measures=["recall@10"])
    if stop is KeyboardInterrupt:
        assert len(calls) == 13  # the one in flight was asked again, no other
        assert found.scores["mine"].means["recall@10"] == 1.0
        assert "2 sessions" in found.notes[0]
    else:  # an error of the system is its answer, and interrupts nothing
        assert len(calls) == 12


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_experiments import DATA, right
from ragauge.experiments import run

def slow(query, k):
    with Path({log!r}).open("a") as log:
        log.write(query + "\\n")
    time.sleep(0.05)
    return right(query, k)

run(DATA, {{"slow": slow}}, out={out!r}, warmup=0, measures=["recall@10"])
"""


def test_after_kill_9_at_most_the_query_in_flight_is_asked_again(tmp_path):
    log = tmp_path / "log"
    code = KILLED.format(tests=str(Path(__file__).parent), log=str(log), out=str(tmp_path / "out"))
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not log.exists() or len(log.read_text().splitlines()) < 5):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    asked = len(log.read_text().splitlines())
    assert 5 <= asked < 12
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(log.read_text().splitlines()) in (12, 13)
    assert ragauge.evaluate(tmp_path / "out", tmp_path / "out" / "slow", ["recall@10"]).means["recall@10"] == 1.0


def test_a_journal_with_a_torn_line_loses_that_line_only(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, {"purpose": 1})
    journal.begin({})
    strange = Answer('q"\n\\é\u2028', 0, ["a\tb", "ü"], [float("inf"), -1e-300], stages={'x"y': 3})
    for docs in ([], [""], ["a\nb", "c"], ["", ""], ["\n"]):
        odd = Answer("odd", 0, docs, [0.1] * len(docs))
        journal.keep(odd)
    for one in (strange, Answer("q2", 0, [], [], "error", "No: \n'\""), Answer("q3", 0)):
        journal.keep(one)
    journal.close()
    path.write_bytes(path.read_bytes()[:-7])
    again = Journal(path, {"purpose": 1})
    assert [one.query for one in again.answers[5:]] == [strange.query, "q2"]
    assert [one.docs for one in again.answers[:5]] == [[], [""], ["a\nb", "c"], ["", ""], ["\n"]]
    assert again.answers[5] == strange
    again.keep(Answer("q3", 0))
    again.close()
    third = Journal(path, {"purpose": 1})
    third.close()
    assert third.answers[-1].query == "q3"
    with pytest.raises(BadInput, match="another purpose"):
        Journal(path, {"purpose": 2})


def test_an_unfinished_folder_is_named_as_such(tmp_path):
    Journal(tmp_path / "journal.jsonl", {}).close()
    with pytest.raises(BadInput, match="not finished"):
        ragauge.evaluate({"q": {"a": 1}}, tmp_path)
    (tmp_path / "other" / "bm25").mkdir(parents=True)
    with pytest.raises(BadInput, match="no run is in this folder"):
        ragauge.evaluate({"q": {"a": 1}}, tmp_path / "other")


def test_queries_that_are_documents_do_not_score_by_finding_themselves():
    documents = [*DOCUMENTS, Document("q3", "word3")]
    data = Dataset("own", documents, QUERIES, DATA.judgments)

    def self_first(query, k):
        return [*(["q3"] if query == "word3" else []), *[f"x{i}" for i in range(9)], *right(query, k)][:k]

    found = run(data, {"mine": self_first}, k=10, measures=["recall@10"])
    assert found.scores["mine"].means["recall@10"] == 1.0
    assert "own=dropped" in found.notes[0]


def test_mistakes_in_systems_are_told_before_anything_runs():
    with pytest.raises(UnknownName, match="no retriever is named `bm52`"):
        run(DATA, ["bm52"])
    with pytest.raises(UnknownName, match="`nothing`"):
        run(DATA, {"mine": right}, baseline="nothing")
    with pytest.raises(UnknownName, match="`worker`"):
        run(DATA, {"mine": right}, worker=3)
    with pytest.raises(BadInput, match="share a folder"):
        run(DATA, {"a b": right, "a/b": right})
    with pytest.raises(BadInput, match="no system"):
        run(DATA, {})


def test_folder_names_lead_nowhere_else(tmp_path):
    run(DATA, {"../../evil/../x": right}, out=tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out"]


def test_the_harness_costs_microseconds():
    assert 0 < overhead(10, 50) < 10_000  # a figure to print, not to promise: only that it is one


def test_tables_fit_a_terminal_of_80_columns():
    found = run(DATA, {"a system with a long name": "bm25", "hybrid": "hybrid(of=bm25+bm25)"}, baseline="hybrid")
    console = Console(width=80, file=io.StringIO(), color_system=None)
    for table in tables(found, 80):
        console.print(table)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 6  # two headers and twice two systems: no line was broken
    assert "p95" in lines[3]
    assert "mean" not in lines[3]
    assert "| p50 ms | p90 | p95 | p99 | mean | QPS | cold ms | build s |" in markdown(found)


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


def command(*arguments, cwd, **environment):
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **environment}
    return subprocess.run(
        [sys.executable, "-m", "ragauge", *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def test_an_experiment_file_is_run_and_leaves_its_files(tmp_path):
    (tmp_path / "test.toml").write_text(TOML)
    done = command("run", "test.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["system", "ndcg@5", "mrr", "vs", "words", "p", "better/worse"]
    out = tmp_path / "runs" / "test"
    assert {one.name for one in out.iterdir()} == {
        "report.md", "summary.csv", "scores.csv", "judgments.parquet", "words", "both"
    }  # fmt: skip
    assert pl.read_parquet(out / "both" / "timings.parquet").height == 12
    assert "| words |" in (out / "report.md").read_text()
    assert pl.read_csv(out / "scores.csv").height == 2 * 2 * 6
    manifest = json.loads((out / "both" / "manifest.json").read_text())
    assert manifest["system"]["description"] == "hybrid(of=bm25(k1=1.2)+bm25(b=0.9), weights=0.5+0.5)"
    later = command("evaluate", "runs/test", "runs/test/words", "runs/test/both", "-m", "ndcg@5", cwd=tmp_path)
    assert later.returncode == 0, later.stderr
    assert later.stdout.splitlines()[1].split()[:2] == done.stdout.splitlines()[1].split()[:2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset = ", "cannot be read"),
        ('dataset = "pydocs"', "there is no `systems`"),
        ('dataset = "pydocs"\nsystems = ["bm25"]\nreapeats = 3', "no setting in FILE is named `reapeats`"),
        ('dataset = "pydocs"\nsystems = ["bm25"]\nk = "ten"', "`k` is 'ten', not int"),
        ('dataset = "pydocs"\nsystems = ["bm25"]\nk = 0', "k is 0"),
        ('dataset = "pydocs"\n[systems]\nx = 3', "the system `x` is 3"),
        ('dataset = "pydocs"\nsystems = ["dense("]', "cannot be read"),
    ],
)
def test_a_wrong_experiment_file_gets_one_sentence(tmp_path, text, message):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(RagaugeError) as caught:
        read_experiment(str(path))
    assert message.replace("FILE", str(path)) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_cannot_name_code_but_the_command_line_can(tmp_path):
    (tmp_path / "mine.py").write_text("def search(query, k):\n    return ['d00001']\n")
    (tmp_path / "x.toml").write_text('dataset = "synthetic:needles"\nsystems = ["mine:search"]')
    done = command("run", "x.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "no retriever is named `mine:search`" in done.stderr
    done = command("run", "synthetic:needles", "-s", "own=mine:search", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["systems"]["own"]["speed"]["asked"] == 100


def test_the_command_line_says_what_is_wrong_in_one_sentence(tmp_path):
    for arguments, message in (
        (("run", "pydoc", "-s", "bm25"), "no dataset is named `pydoc`"),
        (("run", "pydocs"), "there is no system to run"),
        (("run", "synthetic:needles", "-s", "dense(embeder=minilm)"), "unexpected keyword argument 'embeder'"),
        (("run", "synthetic:needles", "-s", "bm25", "-s", "bm25"), "two systems are called `bm25`"),
        (("run", "synthetic:nedles", "-s", "bm25"), "no synthetic dataset is named `nedles`"),
        (("run", "synthetic:needles", "-s", "x=nothere:search"), "there is no module `nothere`"),
        (("datasets", "synthetic:needles", "-q", "q9999"), "no query of synthetic:needles is named `q9999`"),
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import time\ndef search(query, k):\n    time.sleep(0.1)\n    return ['d00001']\n"
    )
    arguments = [sys.executable, "-m", "ragauge", "run", "synthetic:needles", "-s", "own=mine:search", "-o", "out"]
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    journal = tmp_path / "out" / "own" / "journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not journal.exists() or journal.read_bytes().count(b"\n") < 4):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in talk
    assert "Traceback" not in talk
    assert journal.exists()
