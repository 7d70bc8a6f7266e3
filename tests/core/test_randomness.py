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
from ragauge.experiments import run
from ragauge.experiments.rag_evaluator import RAGEvaluator
from ragauge.knowledge.gain.snapshot_systems import SnapshotRunner
from ragauge.runs import folder
from waiting import count_lines, wait_while_running

IDS = [f"d{i}" for i in range(12)]
DOCUMENTS = [Document(name, f"text of {name}", metadata={"even": i % 2 == 0}) for i, name in enumerate(IDS)]
QUERIES = {f"q{i}": f"query number {i}" for i in range(8)}
DATA = Dataset("chancy", DOCUMENTS, QUERIES, Judgments({query: {"d0": 1} for query in QUERIES}))
TRIALS, K = 3, 5


def expected(text, number, seed=7):
    """Return the permutation that a trial draws, computed from the definition without ragauge."""
    digest = hashlib.blake2b(f"{seed}\n{number}\n{text}".encode(), digest_size=16).digest()
    return [IDS[i] for i in np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(IDS))]


def drawn(query, k):
    """Return a random permutation of the documents; a system without state."""
    rows = query_rng(7, query).permutation(len(IDS))[:k].tolist()
    return [Hit(IDS[i], 1.0 - at / 100, DOCUMENTS[i].text, DOCUMENTS[i].metadata) for at, i in enumerate(rows)]


async def drawn_later(query, k):
    await asyncio.sleep(0.001)
    return drawn(query, k)


def slowly(query, k):
    time.sleep(query_rng(1, query).random() / 200)
    return drawn(query, k)


def failing_first():
    seen = set()

    def search(query, k):
        found = drawn(query, k)
        key = (query, found[0].id)
        if key not in seen:
            seen.add(key)
            raise RuntimeError("not yet")
        return found

    return search


def hanging_first():
    seen = set()

    def search(query, k):
        found = drawn(query, k)
        if query.endswith("3") and query not in seen:
            seen.add(query)
            time.sleep(4)
        return found

    return search


def rankings(found, name="mine"):
    """Return `{(query, trial): documents}` of a stored run."""
    answers = folder.find_successful_results(found.runs[name])
    return {(one.query, one.repeat): one.docs for one in answers}


ORACLE = {(query, j): expected(text, j)[:K] for query, text in QUERIES.items() for j in range(TRIALS)}


@pytest.mark.parametrize(
    ("system", "how"),
    [
        (drawn, {}),
        (drawn, {"warmup": 0}),
        (slowly, {"workers": 4}),
        (drawn, {"timeout": 30.0}),
        (drawn_later, {}),
        (drawn_later, {"workers": 4}),
        (drawn_later, {"workers": 4, "timeout": 30.0}),
        (failing_first(), {"retries": 1, "pause": 0.0, "warmup": 0}),
        (failing_first(), {"retries": 1, "pause": 0.0, "warmup": 0, "workers": 3}),
        (hanging_first(), {"retries": 1, "pause": 0.0, "warmup": 0, "workers": 2, "timeout": 2.0}),
    ],
    ids=lambda one: "+".join(one) or "plain" if isinstance(one, dict) else one.__name__,
)
@pytest.mark.slow
def test_run_trials_are_independent_of_execution(system, how):
    found = run(DATA, {"mine": system}, k=K, repeats=TRIALS, measures=["recall@5"], **how)
    assert rankings(found) == ORACLE


def test_run_trials_differ_and_are_separate_runs():
    found = run(DATA, {"mine": drawn}, k=K, repeats=TRIALS, measures=["recall@5"])
    for number, one in enumerate(found.runs["mine"].differing()):
        kept = {query: one.table.filter(one.table["query"] == query)["doc"].to_list() for query in QUERIES}
        assert kept == {query: ORACLE[query, number] for query in QUERIES}
    assert len({tuple(ORACLE["q0", j]) for j in range(TRIALS)}) == TRIALS


def test_run_trials_inside_running_loop_are_equal():
    async def notebook():
        return run(DATA, {"mine": drawn, "later": drawn_later}, k=K, repeats=TRIALS, workers=2, measures=["mrr"])

    found = asyncio.run(notebook())
    assert rankings(found) == rankings(found, "later") == ORACLE


def test_run_resumes_interrupted_trials_identically(tmp_path):
    calls = []

    def mine(query, k):
        calls.append(query)
        if len(calls) == 11:  # in the second trial
            raise KeyboardInterrupt
        return drawn(query, k)

    how = {"k": K, "repeats": TRIALS, "warmup": 0, "measures": ["mrr"], "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        run(DATA, {"mine": mine}, **how)
    found = run(DATA, {"mine": mine}, **how, workers=1)
    assert len(calls) == len(QUERIES) * TRIALS + 1
    assert rankings(found) == ORACLE


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = {tests!r}
from test_randomness import DATA, K, TRIALS, drawn
from ragauge.experiments import run

def mine(query, k):
    if Path({hang!r}).exists() and len(Path({journal!r}).read_bytes().splitlines()) >= 12:
        time.sleep(3600)  # until it is killed
    return drawn(query, k)

run(DATA, {{"mine": mine}}, k=K, repeats=TRIALS, warmup=0, measures=["mrr"], out={out!r})
"""


def test_run_resumes_trials_identically_after_kill_9(tmp_path):
    journal = tmp_path / "mine" / "journal.jsonl"
    tests = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]
    hang = tmp_path / "hang"
    hang.touch()
    code = KILLED.format(tests=tests, out=str(tmp_path), journal=str(journal), hang=str(hang))
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_while_running(process, lambda: count_lines(journal) >= 12, "12 lines of the journal")
    process.send_signal(signal.SIGKILL)
    process.wait()
    hang.unlink()
    subprocess.run([sys.executable, "-c", code], check=True)
    kept = folder.read_run_folder(tmp_path / "mine")
    assert kept.manifest["sessions"] == 2
    assert {(one.query, one.repeat): one.docs for one in folder.find_successful_results(kept)} == ORACLE


def reversed_by_chance(query, hits):
    """Rerank the hits: reverse them with a probability of 1/2, a random draw per query and trial."""
    return list(reversed(hits)) if query_rng(3, query).random() < 0.5 else list(hits)


def turned(text, number):
    digest = hashlib.blake2b(f"3\n{number}\n{text}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).random() < 0.5


@pytest.mark.parametrize("system", [drawn, drawn_later])
@pytest.mark.parametrize("workers", [1, 3])
def test_composite_system_parts_share_trial(system, workers):
    named = {
        "pipeline": Spec("pipeline", {"of": system, "reranker": reversed_by_chance, "depth": K}),
        "filtered": Spec("filtered", {"of": system, "even": True}),
        "hybrid": Spec("hybrid", {"of": [system, drawn], "depth": K}),
    }
    found = run(DATA, named, k=K, repeats=TRIALS, workers=workers, measures=["mrr"])
    assert rankings(found, "hybrid") == ORACLE  # fuses two equal rankings
    for (query, number), docs in rankings(found, "pipeline").items():
        first = ORACLE[query, number]
        assert docs == (first[::-1] if turned(QUERIES[query], number) else first)
    even = {document.id for document in DOCUMENTS if document.metadata["even"]}
    for (query, number), docs in rankings(found, "filtered").items():
        # The system searches at increasing depths, and gets the same order at each depth.
        assert docs == [one for one in expected(QUERIES[query], number) if one in even][:K]


def test_single_evaluation_uses_first_trial():
    first = {query: expected(text, 0) for query, text in QUERIES.items()}
    pairs = [(text, first[query][0]) for query, text in QUERIES.items()]
    (told,) = asyncio.run(RAGEvaluator().evaluate_k_range(pairs, [1], drawn))
    assert told["metrics"]["hit_rate"] == 1.0
    shadow = SnapshotRunner(lambda documents: drawn, QUERIES, DATA.judgments)
    for _ in range(2):  # equal draws make snapshots comparable
        assert shadow.answers(DOCUMENTS, K, "one").rankings == {q: tuple(docs[:K]) for q, docs in first.items()}


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
