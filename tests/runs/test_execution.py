"""Execution of queries: one result per query despite errors, with threads, event loops, timeouts and retries."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ragauge.compute.event_loops import run_coroutine
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput
from ragauge.runs.execution import QueryTask, RunSettings, build_warm_up_queries, run_queries, run_queries_async
from waiting import PATIENCE_S

JOBS = [QueryTask(f"q{i}", f"text {i}", 0) for i in range(20)]


class Plain:
    """A retriever made from a function."""

    def __init__(self, function):
        self.function = function

    def search(self, query, k):
        return self.function(query, k)


class Later:
    """A retriever made from an async function."""

    def __init__(self, function):
        self.function = function

    async def search(self, query, k):
        return await self.function(query, k)


def found(query, k):
    return [Hit(f"{query}-{i}", 1.0 / (i + 1)) for i in range(k)]


async def found_later(query, k):
    await asyncio.sleep(0)
    return found(query, k)


def asked(retriever, jobs=JOBS, **how):
    answers = []
    if isinstance(retriever, Later):
        asyncio.run(run_queries_async(retriever, jobs, RunSettings(**how), answers.append))
    else:
        run_queries(retriever, jobs, RunSettings(**how), answers.append)
    return answers


WAYS = {
    "plain": (Plain(found), {}),
    "threads": (Plain(found), {"workers": 4}),
    "watched threads": (Plain(found), {"workers": 2, "timeout": 30}),
    "loop": (Later(found_later), {}),
    "loop, many": (Later(found_later), {"workers": 8, "timeout": 30}),
}


@pytest.mark.parametrize("way", WAYS)
def test_run_queries_returns_one_result_per_query(way):
    retriever, how = WAYS[way]
    answers = asked(retriever, k=3, **how)
    assert sorted(one.query for one in answers) == sorted(job.query for job in JOBS)
    for one in answers:
        text = next(job.text for job in JOBS if job.query == one.query)
        assert one.docs == [f"{text}-{i}" for i in range(3)]
        assert one.scores == [1.0, 0.5, 1 / 3]
        assert one.status == "ok"
        assert one.total > 0


def fails_on_odd(query, k):
    if int(query.split()[1]) % 2:
        raise ValueError(f"no {query}")
    return found(query, k)


async def fails_on_odd_later(query, k):
    return fails_on_odd(query, k)


@pytest.mark.parametrize(
    ("retriever", "how"),
    [(Plain(fails_on_odd), {}), (Plain(fails_on_odd), {"workers": 3}), (Later(fails_on_odd_later), {"workers": 3})],
)
def test_run_queries_failing_query_has_error_status(retriever, how):
    answers = {one.query: one for one in asked(retriever, **how)}
    assert len(answers) == 20
    assert answers["q1"].status == "error"
    assert answers["q1"].error == "ValueError: no text 1"
    assert answers["q1"].docs == []
    assert sum(one.status == "ok" for one in answers.values()) == 10


class Flaky:
    """A search whose first `times` calls for each query fail."""

    def __init__(self, times):
        self.times, self.calls = times, {}

    def __call__(self, query, k):
        self.calls[query] = self.calls.get(query, 0) + 1
        if self.calls[query] <= self.times:
            raise ConnectionError("not yet")
        return found(query, k)


@pytest.mark.parametrize("how", [{}, {"workers": 3}])
def test_run_queries_retries_are_counted_and_timed(how):
    flaky = Flaky(2)
    answers = asked(Plain(flaky), JOBS[:4], retries=2, pause=0.001, **how)
    assert {one.attempts for one in answers} == {3}
    assert {one.status for one in answers} == {"ok"}
    assert all(one.total >= 3_000_000 for one in answers)  # two pauses, of at least 1 and 2 ms


def test_run_queries_async_retries_and_keeps_last_error():
    flaky = Flaky(3)

    async def later(query, k):
        return flaky(query, k)

    answers = asked(Later(later), JOBS[:2], retries=1, pause=0.001)
    assert [(one.status, one.attempts, one.error) for one in answers] == [("error", 2, "ConnectionError: not yet")] * 2


def hangs_on(names, gate):
    def search(query, k):
        if query in names:
            gate.wait(PATIENCE_S)
        return found(query, k)

    return search


@pytest.mark.parametrize("workers", [1, 2])
def test_run_queries_hanging_query_times_out(workers):
    gate = threading.Event()
    retriever = Plain(hangs_on({"text 3", "text 7"}, gate))
    answers = {one.query: one for one in asked(retriever, timeout=1, workers=workers)}
    gate.set()
    assert len(answers) == 20
    late = {name for name, one in answers.items() if one.status == "timeout"}
    assert late == {"q3", "q7"}
    assert answers["q3"].error == "TimedOut: no answer within 1 s"
    assert answers["q3"].total >= 1_000_000_000


def test_run_queries_timed_out_query_is_retried():
    calls = []
    gate = threading.Event()

    def search(query, k):
        calls.append(query)
        if query == "text 3" and calls.count(query) == 1:
            gate.wait(PATIENCE_S)
        return found(query, k)

    answers = {one.query: one for one in asked(Plain(search), timeout=1, retries=1)}
    gate.set()
    assert (answers["q3"].status, answers["q3"].attempts) == ("ok", 2)
    assert answers["q3"].total >= 1_000_000_000
    assert len(answers) == 20


def test_run_queries_async_hanging_query_times_out():
    async def search(query, k):
        if query == "text 3":
            await asyncio.sleep(3600)
        return found(query, k)

    answers = {one.query: one for one in asked(Later(search), timeout=1, workers=4)}
    assert {name for name, one in answers.items() if one.status == "timeout"} == {"q3"}


def test_run_queries_timeout_error_of_system_has_error_status():
    async def search(query, k):
        raise TimeoutError("upstream")

    answers = asked(Later(search), JOBS[:1], timeout=30)
    assert (answers[0].status, answers[0].error) == ("error", "TimeoutError: upstream")


class Counting:
    """A context manager that counts how many callers are inside at the same time."""

    def __init__(self):
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def __enter__(self):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_):
        with self.lock:
            self.inside -= 1


def test_run_queries_uses_as_many_threads_as_workers():
    counting, gate = Counting(), threading.Barrier(3)

    def search(query, k):
        with counting:
            gate.wait(PATIENCE_S)  # returns only when three threads wait at once
        return found(query, k)

    assert len(asked(Plain(search), JOBS[:18], workers=3)) == 18
    assert counting.most == 3


def test_run_queries_async_limits_concurrency_to_workers():
    counting = Counting()

    async def search(query, k):
        with counting:
            for _ in range(5):
                await asyncio.sleep(0)
        return found(query, k)

    asked(Later(search), workers=7)
    assert counting.most == 7


def test_run_queries_async_plain_search_does_not_block_event_loop():
    ticks = []
    gate = threading.Event()

    def search(query, k):
        assert gate.wait(PATIENCE_S)
        return found(query, k)

    async def whole():
        async def tick():
            for _ in range(3):
                await asyncio.sleep(0)
                ticks.append(1)
            gate.set()

        answers = []
        await asyncio.gather(run_queries_async(Plain(search), JOBS[:2], RunSettings(), answers.append), tick())
        return answers

    assert len(asyncio.run(whole())) == 2
    assert len(ticks) == 3


def test_run_queries_coroutine_from_plain_search_has_error_status():
    answers = asked(Plain(found_later), JOBS[:1])
    assert answers[0].status == "error"
    assert "async def" in answers[0].error


def test_run_coroutine_works_inside_running_event_loop():
    async def work():
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def notebook():
        return run_coroutine(work())

    assert run_coroutine(work()) == "MainThread"
    assert asyncio.run(notebook()) == "ragauge-loop"

    async def breaks():
        raise KeyError("inside")

    async def broken_notebook():
        return run_coroutine(breaks())

    with pytest.raises(KeyError, match="inside"):
        asyncio.run(broken_notebook())


def test_run_queries_interrupted_starts_no_more_queries():
    begun = []
    jobs = [QueryTask(f"q{i}", f"text {i}", 0) for i in range(10_000)]

    def search(query, k):
        begun.append(query)
        time.sleep(0.01)
        return found(query, k)

    def stop(answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_queries(Plain(search), jobs, RunSettings(workers=2), stop)
    time.sleep(0.1)
    assert len(begun) < len(jobs)


def test_build_warm_up_queries_excludes_measured_queries():
    queries = {f"q{i}": f"w{i}" for i in range(10)}
    documents = [Document(f"d{i}", f"w{i}") for i in range(10)]
    for given in (documents, []):
        warm = build_warm_up_queries(given, queries, 20)
        assert len(warm) == 20
        assert not set(warm) & set(queries.values())
    assert build_warm_up_queries(documents, queries, 5) == build_warm_up_queries(documents, queries, 5)


@pytest.mark.parametrize(
    "how", [{"k": 0}, {"repeats": 0}, {"workers": 0}, {"timeout": 0}, {"warmup": -1}, {"pause": -1}]
)
def test_run_settings_invalid_value_raises(how):
    with pytest.raises(BadInput):
        RunSettings(**how)


@pytest.mark.parametrize("way", [SystemExit("bye"), GeneratorExit(), StopIteration("over")])
@pytest.mark.parametrize("in_a_loop", [False, True])
def test_run_queries_exit_exceptions_have_error_status(way, in_a_loop):
    def search(query, k):
        raise way

    answers = []
    if in_a_loop:
        asyncio.run(run_queries_async(Plain(search), JOBS[:4], RunSettings(workers=2), answers.append))
    else:
        run_queries(Plain(search), JOBS[:4], RunSettings(workers=2), answers.append)
    assert {one.status for one in answers} == {"error"}
    assert len(answers) == 4


@pytest.mark.parametrize("what", [None, 3, [3], [("a", "b")]])
@pytest.mark.parametrize("workers", [1, 2])
def test_run_queries_unreadable_hits_have_error_status(what, workers):
    answers = asked(Plain(lambda query, k: what), JOBS[:3], workers=workers)
    assert {one.status for one in answers} == {"error"}
    assert len(answers) == 3


def test_run_queries_timed_out_worker_makes_no_more_calls():
    gate, calls = threading.Event(), []

    def search(query, k):
        calls.append(query)
        gate.wait(PATIENCE_S)
        raise ConnectionError

    answers = asked(Plain(search), JOBS[:1], timeout=0.5, retries=2, pause=0.001)
    made = len(calls)
    gate.set()
    time.sleep(0.1)
    assert (answers[0].status, answers[0].attempts, made, len(calls)) == ("timeout", 3, 3, 3)


def test_run_queries_timeout_race_returns_one_result_per_query():
    """Searches take about as long as the timeout: whether they finish or time out, every query has one result."""

    def search(query, k):
        time.sleep(0.02)
        return found(query, k)

    jobs = [QueryTask(f"q{i}", f"text {i}", 0) for i in range(60)]
    answers = asked(Plain(search), jobs, timeout=0.02, workers=4)
    assert sorted(one.query for one in answers) == sorted(job.query for job in jobs)


def test_run_queries_async_hanging_plain_searches_do_not_block_others():
    gate = threading.Event()
    hanging = {f"text {i}" for i in range(12)}
    answers = []
    asyncio.run(
        run_queries_async(Plain(hangs_on(hanging, gate)), JOBS, RunSettings(timeout=1, workers=20), answers.append)
    )
    gate.set()
    assert sum(one.status == "ok" for one in answers) == 8
    assert sum(one.status == "timeout" for one in answers) == 12


def test_run_queries_async_callback_error_is_raised_unchanged():
    def stop(answer):
        raise BadInput("the disk is full")

    with pytest.raises(BadInput, match="the disk is full"):
        asyncio.run(run_queries_async(Later(found_later), JOBS, RunSettings(workers=3), stop))
