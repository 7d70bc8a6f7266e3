"""Trials: random draws of a system depend only on its seed, the query and the trial number, not on the execution."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ragauge.core.documents import Document, Hit
from ragauge.core.randomness import query_rng, set_trial
from ragauge.core.records import Dataset, Judgments
from ragauge.core.specs import Spec
from ragauge.experiments.rag_evaluator import RAGEvaluator
from ragauge.experiments.run import run
from ragauge.knowledge.gain.snapshot_systems import SnapshotRunner
from ragauge.runs import folder
from waiting import count_lines, wait_while_running

IDS = [f"d{i}" for i in range(12)]
DOCUMENTS = [Document(name, f"text of {name}", metadata={"even": i % 2 == 0}) for i, name in enumerate(IDS)]
QUERIES = {f"q{i}": f"query number {i}" for i in range(8)}
DATA = Dataset("chancy", DOCUMENTS, QUERIES, Judgments({query: {"d0": 1} for query in QUERIES}))
TRIALS, K = 3, 5


def draw_expected(text, number, seed=7):
    """Return the permutation that a trial draws, computed from the definition without ragauge."""
    digest = hashlib.blake2b(f"{seed}\n{number}\n{text}".encode(), digest_size=16).digest()
    return [IDS[i] for i in np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(IDS))]


def search_randomly(query, k):
    """Return a random permutation of the documents; a system without state."""
    rows = query_rng(7, query).permutation(len(IDS))[:k].tolist()
    return [Hit(IDS[i], 1.0 - rank / 100, DOCUMENTS[i].text, DOCUMENTS[i].metadata) for rank, i in enumerate(rows)]


async def search_later(query, k):
    await asyncio.sleep(0.001)
    return search_randomly(query, k)


def search_slowly(query, k):
    time.sleep(query_rng(1, query).random() / 200)
    return search_randomly(query, k)


def make_failing_search():
    seen = set()

    def search(query, k):
        hits = search_randomly(query, k)
        key = (query, hits[0].id)
        if key not in seen:
            seen.add(key)
            raise RuntimeError("not yet")
        return hits

    return search


def make_hanging_search():
    seen = set()

    def search(query, k):
        hits = search_randomly(query, k)
        if query.endswith("3") and query not in seen:
            seen.add(query)
            time.sleep(4)
        return hits

    return search


def read_rankings(result, name="mine"):
    """Return `{(query, trial): documents}` of a stored run."""
    rows = folder.find_successful_results(result.runs[name])
    return {(row.query, row.repeat): row.docs for row in rows}


EXPECTED_RANKINGS = {(query, j): draw_expected(text, j)[:K] for query, text in QUERIES.items() for j in range(TRIALS)}


@pytest.mark.parametrize(
    ("system", "options"),
    [
        (search_randomly, {}),
        (search_randomly, {"warmup": 0}),
        (search_slowly, {"workers": 4}),
        (search_randomly, {"timeout": 30.0}),
        (search_later, {}),
        (search_later, {"workers": 4}),
        (search_later, {"workers": 4, "timeout": 30.0}),
        (make_failing_search(), {"retries": 1, "pause": 0.0, "warmup": 0}),
        (make_failing_search(), {"retries": 1, "pause": 0.0, "warmup": 0, "workers": 3}),
        (make_hanging_search(), {"retries": 1, "pause": 0.0, "warmup": 0, "workers": 2, "timeout": 2.0}),
    ],
    ids=lambda one: "+".join(one) or "plain" if isinstance(one, dict) else one.__name__,
)
@pytest.mark.slow
def test_run_trials_are_independent_of_execution(system, options):
    result = run(DATA, {"mine": system}, k=K, repeats=TRIALS, measures=["recall@5"], **options)
    assert read_rankings(result) == EXPECTED_RANKINGS


def test_run_trials_differ_and_are_separate_runs():
    result = run(DATA, {"mine": search_randomly}, k=K, repeats=TRIALS, measures=["recall@5"])
    for number, trial in enumerate(result.runs["mine"].differing()):
        docs_by_query = {query: trial.table.filter(trial.table["query"] == query)["doc"].to_list() for query in QUERIES}
        assert docs_by_query == {query: EXPECTED_RANKINGS[query, number] for query in QUERIES}
    assert len({tuple(EXPECTED_RANKINGS["q0", j]) for j in range(TRIALS)}) == TRIALS


def test_run_trials_inside_running_loop_are_equal():
    async def run_in_loop():
        return run(
            DATA, {"mine": search_randomly, "later": search_later}, k=K, repeats=TRIALS, workers=2, measures=["mrr"]
        )

    result = asyncio.run(run_in_loop())
    assert read_rankings(result) == read_rankings(result, "later") == EXPECTED_RANKINGS


def test_run_resumes_interrupted_trials_identically(tmp_path):
    calls = []

    def search(query, k):
        calls.append(query)
        if len(calls) == 11:  # in the second trial
            raise KeyboardInterrupt
        return search_randomly(query, k)

    options = {"k": K, "repeats": TRIALS, "warmup": 0, "measures": ["mrr"], "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        run(DATA, {"mine": search}, **options)
    result = run(DATA, {"mine": search}, **options, workers=1)
    assert len(calls) == len(QUERIES) * TRIALS + 1
    assert read_rankings(result) == EXPECTED_RANKINGS


KILLED_PROGRAM = """
import sys, time
from pathlib import Path
sys.path[:0] = {tests!r}
from test_randomness import DATA, K, TRIALS, search_randomly
from ragauge.experiments.run import run

def search(query, k):
    if Path({hang!r}).exists() and len(Path({journal!r}).read_bytes().splitlines()) >= 12:
        time.sleep(3600)  # until it is killed
    return search_randomly(query, k)

run(DATA, {{"mine": search}}, k=K, repeats=TRIALS, warmup=0, measures=["mrr"], out={out!r})
"""


def test_run_resumes_trials_identically_after_kill_9(tmp_path):
    journal = tmp_path / "mine" / "journal.jsonl"
    tests = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]
    hang = tmp_path / "hang"
    hang.touch()
    code = KILLED_PROGRAM.format(tests=tests, out=str(tmp_path), journal=str(journal), hang=str(hang))
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_while_running(process, lambda: count_lines(journal) >= 12, "12 lines of the journal")
    process.send_signal(signal.SIGKILL)
    process.wait()
    hang.unlink()
    subprocess.run([sys.executable, "-c", code], check=True)
    stored_run = folder.read_run_folder(tmp_path / "mine")
    assert stored_run.manifest["sessions"] == 2
    assert {
        (row.query, row.repeat): row.docs for row in folder.find_successful_results(stored_run)
    } == EXPECTED_RANKINGS


def reverse_randomly(query, hits):
    """Rerank the hits: reverse them with a probability of 1/2, a random draw per query and trial."""
    return list(reversed(hits)) if query_rng(3, query).random() < 0.5 else list(hits)


def is_reversed(text, number):
    digest = hashlib.blake2b(f"3\n{number}\n{text}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).random() < 0.5


@pytest.mark.parametrize("system", [search_randomly, search_later])
@pytest.mark.parametrize("workers", [1, 3])
def test_composite_system_parts_share_trial(system, workers):
    systems = {
        "pipeline": Spec("pipeline", {"of": system, "reranker": reverse_randomly, "depth": K}),
        "filtered": Spec("filtered", {"of": system, "even": True}),
        "hybrid": Spec("hybrid", {"of": [system, search_randomly], "depth": K}),
    }
    result = run(DATA, systems, k=K, repeats=TRIALS, workers=workers, measures=["mrr"])
    assert read_rankings(result, "hybrid") == EXPECTED_RANKINGS  # fuses two equal rankings
    for (query, number), docs in read_rankings(result, "pipeline").items():
        first = EXPECTED_RANKINGS[query, number]
        assert docs == (first[::-1] if is_reversed(QUERIES[query], number) else first)
    even = {document.id for document in DOCUMENTS if document.metadata["even"]}
    for (query, number), docs in read_rankings(result, "filtered").items():
        # The system searches at increasing depths, and gets the same order at each depth.
        assert docs == [doc for doc in draw_expected(QUERIES[query], number) if doc in even][:K]


def test_single_evaluation_uses_first_trial():
    first = {query: draw_expected(text, 0) for query, text in QUERIES.items()}
    pairs = [(text, first[query][0]) for query, text in QUERIES.items()]
    (evaluation,) = asyncio.run(RAGEvaluator().evaluate_k_range(pairs, [1], search_randomly))
    assert evaluation["metrics"]["hit_rate"] == 1.0
    runner = SnapshotRunner(lambda documents: search_randomly, QUERIES, DATA.judgments)
    for _ in range(2):  # equal draws make snapshots comparable
        assert runner.run_on_snapshot(DOCUMENTS, K, "one").rankings == {q: tuple(docs[:K]) for q, docs in first.items()}


def test_set_trial_nested_blocks_restore_outer_trial():
    def draw():
        return query_rng(0, "a").random()

    plain = draw()
    with set_trial(1):
        one = draw()
        with set_trial(2):
            two = draw()
        assert draw() == one
    assert draw() == plain
    with set_trial(0):
        assert draw() == plain
    assert len({plain, one, two}) == 3


def test_query_rng_accepts_lone_surrogate():
    assert query_rng(0, "half \ud800").random() == query_rng(0, "half \ud800").random()
