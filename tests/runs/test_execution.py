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

TASKS = [QueryTask(f"q{i}", f"text {i}", 0) for i in range(20)]


class SyncRetriever:
    """A retriever made from a function."""

    def __init__(self, function):
        self.function = function

    def search(self, query, k):
        return self.function(query, k)


class AsyncRetriever:
    """A retriever made from an async function."""

    def __init__(self, function):
        self.function = function

    async def search(self, query, k):
        return await self.function(query, k)


def find_hits(query, k):
    return [Hit(f"{query}-{i}", 1.0 / (i + 1)) for i in range(k)]


async def find_hits_async(query, k):
    await asyncio.sleep(0)
    return find_hits(query, k)


def collect_results(retriever, tasks=TASKS, **options):
    results = []
    if isinstance(retriever, AsyncRetriever):
        asyncio.run(run_queries_async(retriever, tasks, RunSettings(**options), results.append))
    else:
        run_queries(retriever, tasks, RunSettings(**options), results.append)
    return results


EXECUTION_MODES = {
    "plain": (SyncRetriever(find_hits), {}),
    "threads": (SyncRetriever(find_hits), {"workers": 4}),
    "watched threads": (SyncRetriever(find_hits), {"workers": 2, "timeout": 30}),
    "loop": (AsyncRetriever(find_hits_async), {}),
    "loop, many": (AsyncRetriever(find_hits_async), {"workers": 8, "timeout": 30}),
}


@pytest.mark.parametrize("mode", EXECUTION_MODES)
def test_run_queries_returns_one_result_per_query(mode):
    retriever, options = EXECUTION_MODES[mode]
    answers = collect_results(retriever, k=3, **options)
    assert sorted(answer.query for answer in answers) == sorted(job.query for job in TASKS)
    for answer in answers:
        text = next(job.text for job in TASKS if job.query == answer.query)
        assert answer.docs == [f"{text}-{i}" for i in range(3)]
        assert answer.scores == [1.0, 0.5, 1 / 3]
        assert answer.status == "ok"
        assert answer.total > 0


def fail_on_odd(query, k):
    if int(query.split()[1]) % 2:
        raise ValueError(f"no {query}")
    return find_hits(query, k)


async def fail_on_odd_async(query, k):
    return fail_on_odd(query, k)


@pytest.mark.parametrize(
    ("retriever", "options"),
    [
        (SyncRetriever(fail_on_odd), {}),
        (SyncRetriever(fail_on_odd), {"workers": 3}),
        (AsyncRetriever(fail_on_odd_async), {"workers": 3}),
    ],
)
def test_run_queries_failing_query_has_error_status(retriever, options):
    answers = {item.query: item for item in collect_results(retriever, **options)}
    assert len(answers) == 20
    assert answers["q1"].status == "error"
    assert answers["q1"].error == "ValueError: no text 1"
    assert answers["q1"].docs == []
    assert sum(answer.status == "ok" for answer in answers.values()) == 10


class FailingSearch:
    """A search whose first `times` calls for each query fail."""

    def __init__(self, times):
        self.times, self.calls = times, {}

    def __call__(self, query, k):
        self.calls[query] = self.calls.get(query, 0) + 1
        if self.calls[query] <= self.times:
            raise ConnectionError("not yet")
        return find_hits(query, k)


@pytest.mark.parametrize("options", [{}, {"workers": 3}])
def test_run_queries_retries_are_counted_and_timed(options):
    search = FailingSearch(2)
    answers = collect_results(SyncRetriever(search), TASKS[:4], retries=2, pause=0.001, **options)
    assert {answer.attempts for answer in answers} == {3}
    assert {answer.status for answer in answers} == {"ok"}
    assert all(answer.total >= 3_000_000 for answer in answers)  # two pauses, of at least 1 and 2 ms


def test_run_queries_async_retries_and_keeps_last_error():
    failing = FailingSearch(3)

    async def search(query, k):
        return failing(query, k)

    answers = collect_results(AsyncRetriever(search), TASKS[:2], retries=1, pause=0.001)
    assert [(answer.status, answer.attempts, answer.error) for answer in answers] == [
        ("error", 2, "ConnectionError: not yet")
    ] * 2


def make_hanging_search(names, gate):
    def search(query, k):
        if query in names:
            gate.wait(PATIENCE_S)
        return find_hits(query, k)

    return search


@pytest.mark.parametrize("workers", [1, 2])
def test_run_queries_hanging_query_times_out(workers):
    gate = threading.Event()
    retriever = SyncRetriever(make_hanging_search({"text 3", "text 7"}, gate))
    answers = {item.query: item for item in collect_results(retriever, timeout=1, workers=workers)}
    gate.set()
    assert len(answers) == 20
    late = {name for name, answer in answers.items() if answer.status == "timeout"}
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
        return find_hits(query, k)

    answers = {item.query: item for item in collect_results(SyncRetriever(search), timeout=1, retries=1)}
    gate.set()
    assert (answers["q3"].status, answers["q3"].attempts) == ("ok", 2)
    assert answers["q3"].total >= 1_000_000_000
    assert len(answers) == 20


def test_run_queries_async_hanging_query_times_out():
    async def search(query, k):
        if query == "text 3":
            await asyncio.sleep(3600)
        return find_hits(query, k)

    answers = {item.query: item for item in collect_results(AsyncRetriever(search), timeout=1, workers=4)}
    assert {name for name, answer in answers.items() if answer.status == "timeout"} == {"q3"}


def test_run_queries_timeout_error_of_system_has_error_status():
    async def search(query, k):
        raise TimeoutError("upstream")

    answers = collect_results(AsyncRetriever(search), TASKS[:1], timeout=30)
    assert (answers[0].status, answers[0].error) == ("error", "TimeoutError: upstream")


class ConcurrencyCounter:
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
    counting, gate = ConcurrencyCounter(), threading.Barrier(3)

    def search(query, k):
        with counting:
            gate.wait(PATIENCE_S)  # returns only when three threads wait at once
        return find_hits(query, k)

    assert len(collect_results(SyncRetriever(search), TASKS[:18], workers=3)) == 18
    assert counting.most == 3


def test_run_queries_async_limits_concurrency_to_workers():
    counting = ConcurrencyCounter()

    async def search(query, k):
        with counting:
            for _ in range(5):
                await asyncio.sleep(0)
        return find_hits(query, k)

    collect_results(AsyncRetriever(search), workers=7)
    assert counting.most == 7


def test_run_queries_async_plain_search_does_not_block_event_loop():
    ticks = []
    gate = threading.Event()

    def search(query, k):
        assert gate.wait(PATIENCE_S)
        return find_hits(query, k)

    async def run_all():
        async def tick():
            for _ in range(3):
                await asyncio.sleep(0)
                ticks.append(1)
            gate.set()

        answers = []
        await asyncio.gather(run_queries_async(SyncRetriever(search), TASKS[:2], RunSettings(), answers.append), tick())
        return answers

    assert len(asyncio.run(run_all())) == 2
    assert len(ticks) == 3


def test_run_queries_coroutine_from_plain_search_has_error_status():
    answers = collect_results(SyncRetriever(find_hits_async), TASKS[:1])
    assert answers[0].status == "error"
    assert "async def" in answers[0].error


def test_run_coroutine_works_inside_running_event_loop():
    async def thread_name():
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def run_in_loop():
        return run_coroutine(thread_name())

    assert run_coroutine(thread_name()) == "MainThread"
    assert asyncio.run(run_in_loop()) == "ragauge-loop"

    async def fail():
        raise KeyError("inside")

    async def fail_in_loop():
        return run_coroutine(fail())

    with pytest.raises(KeyError, match="inside"):
        asyncio.run(fail_in_loop())


def test_run_queries_interrupted_starts_no_more_queries():
    started = []
    jobs = [QueryTask(f"q{i}", f"text {i}", 0) for i in range(10_000)]

    def search(query, k):
        started.append(query)
        time.sleep(0.01)
        return find_hits(query, k)

    def stop(answer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_queries(SyncRetriever(search), jobs, RunSettings(workers=2), stop)
    time.sleep(0.1)
    assert len(started) < len(jobs)


def test_build_warm_up_queries_excludes_measured_queries():
    queries = {f"q{i}": f"w{i}" for i in range(10)}
    documents = [Document(f"d{i}", f"w{i}") for i in range(10)]
    for corpus in (documents, []):
        warm_up = build_warm_up_queries(corpus, queries, 20)
        assert len(warm_up) == 20
        assert not set(warm_up) & set(queries.values())
    assert build_warm_up_queries(documents, queries, 5) == build_warm_up_queries(documents, queries, 5)


@pytest.mark.parametrize(
    "options", [{"k": 0}, {"repeats": 0}, {"workers": 0}, {"timeout": 0}, {"warmup": -1}, {"pause": -1}]
)
def test_run_settings_invalid_value_raises(options):
    with pytest.raises(BadInput):
        RunSettings(**options)


@pytest.mark.parametrize("error", [SystemExit("bye"), GeneratorExit(), StopIteration("over")])
@pytest.mark.parametrize("in_a_loop", [False, True])
def test_run_queries_exit_exceptions_have_error_status(error, in_a_loop):
    def search(query, k):
        raise error

    answers = []
    if in_a_loop:
        asyncio.run(run_queries_async(SyncRetriever(search), TASKS[:4], RunSettings(workers=2), answers.append))
    else:
        run_queries(SyncRetriever(search), TASKS[:4], RunSettings(workers=2), answers.append)
    assert {answer.status for answer in answers} == {"error"}
    assert len(answers) == 4


@pytest.mark.parametrize("returned", [None, 3, [3], [("a", "b")]])
@pytest.mark.parametrize("workers", [1, 2])
def test_run_queries_unreadable_hits_have_error_status(returned, workers):
    answers = collect_results(SyncRetriever(lambda query, k: returned), TASKS[:3], workers=workers)
    assert {answer.status for answer in answers} == {"error"}
    assert len(answers) == 3


def test_run_queries_timed_out_worker_makes_no_more_calls():
    gate, calls = threading.Event(), []

    def search(query, k):
        calls.append(query)
        gate.wait(PATIENCE_S)
        raise ConnectionError

    answers = collect_results(SyncRetriever(search), TASKS[:1], timeout=0.5, retries=2, pause=0.001)
    n_calls = len(calls)
    gate.set()
    time.sleep(0.1)
    assert (answers[0].status, answers[0].attempts, n_calls, len(calls)) == ("timeout", 3, 3, 3)


def test_run_queries_timeout_race_returns_one_result_per_query():
    """Searches take about as long as the timeout: whether they finish or time out, every query has one result."""

    def search(query, k):
        time.sleep(0.02)
        return find_hits(query, k)

    jobs = [QueryTask(f"q{i}", f"text {i}", 0) for i in range(60)]
    answers = collect_results(SyncRetriever(search), jobs, timeout=0.02, workers=4)
    assert sorted(answer.query for answer in answers) == sorted(job.query for job in jobs)


def test_run_queries_async_hanging_plain_searches_do_not_block_others():
    gate = threading.Event()
    hanging = {f"text {i}" for i in range(12)}
    answers = []
    asyncio.run(
        run_queries_async(
            SyncRetriever(make_hanging_search(hanging, gate)), TASKS, RunSettings(timeout=1, workers=20), answers.append
        )
    )
    gate.set()
    assert sum(answer.status == "ok" for answer in answers) == 8
    assert sum(answer.status == "timeout" for answer in answers) == 12


def test_run_queries_async_callback_error_is_raised_unchanged():
    def stop(answer):
        raise BadInput("the disk is full")

    with pytest.raises(BadInput, match="the disk is full"):
        asyncio.run(run_queries_async(AsyncRetriever(find_hits_async), TASKS, RunSettings(workers=3), stop))
