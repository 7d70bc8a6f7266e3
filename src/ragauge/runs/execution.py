"""Run queries on a retriever in a loop, in threads or in an event loop, and time each one.

The load is a closed loop: each worker sends its next query when the last one has returned. The overhead around a search
is kept small and is measured by `runs.system_run.measure_overhead_us`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

from ragauge.compute.event_loops import map_async, run_coroutine, run_in_thread
from ragauge.compute.thread_limits import limit_this_thread, limit_threads, plan_threads
from ragauge.core.documents import EMPTY_MAPPING, Document
from ragauge.core.errors import BackendRestarted, error_summary
from ragauge.core.ids import to_id
from ragauge.core.protocols import Retriever, close_if_possible, describe_query, is_async
from ragauge.core.randomness import set_trial
from ragauge.core.settings import Above, AtLeast, AtMost, check_settings
from ragauge.core.stages import StageTimer
from ragauge.runs.results import QueryResult


@dataclass(frozen=True)
class RunSettings:
    """Settings for running queries: k, trials, workers, timeout, retries and threads."""

    k: Annotated[int, AtLeast(1), AtMost(10_000_000)] = 10
    repeats: Annotated[int, AtLeast(1), AtMost(100_000)] = 1
    """Number of trials. The rankings of the first are scored; all are saved and timed."""
    warmup: Annotated[int, AtLeast(0), AtMost(1_000_000)] = 5
    """Number of untimed warm-up queries, none of which is a measured query."""
    workers: Annotated[int, AtLeast(1), AtMost(10_000)] = 1
    timeout: Annotated[float, Above(0)] | None = None
    """Timeout of one attempt in seconds; None for no limit."""
    retries: Annotated[int, AtLeast(0), AtMost(1000)] = 0
    """Number of attempts after the first, each after a longer pause."""
    pause: Annotated[float, AtLeast(0)] = 0.1
    """Pause before the first retry in seconds; doubled for each further one."""
    threads: Annotated[int, AtLeast(1), AtMost(10_000)] = 1
    """Threads that each worker may use in numeric libraries during timed queries."""

    def __post_init__(self) -> None:
        check_settings(self)


class ExecutionOptions(TypedDict, total=False):
    """Keyword arguments for the fields of `RunSettings`; None selects the default."""

    k: int | None
    repeats: int | None
    warmup: int | None
    workers: int | None
    timeout: float | None
    retries: int | None
    pause: float | None
    threads: int | None


class QueryTask(NamedTuple):
    """Query to run in one trial."""

    query: str
    text: str
    repeat: int
    n_timeouts: int = 0
    """Number of earlier attempts that timed out."""
    first_start: int = 0
    """Start of the first attempt in ns; 0 if there was none."""


OnQueryResult = Callable[[QueryResult], None]
MAX_ERROR_CHARS = 500
MAX_RESTARTS = 3
"""Maximum number of times that a query is run again, with a new clock, because a server died and was restarted."""


def run_queries(
    retriever: Retriever, tasks: Sequence[QueryTask], settings: RunSettings, on_result: OnQueryResult
) -> None:
    """Run queries on a synchronous retriever; `on_result` is called in this thread."""
    if settings.workers > 1 or settings.timeout is not None:
        _QueryThreadPool(retriever, tasks, settings, on_result).work()
        return
    for task in tasks:
        on_result(_run_query(retriever, task, settings))


async def run_queries_async(
    retriever: Retriever, tasks: Sequence[QueryTask], settings: RunSettings, on_result: OnQueryResult
) -> None:
    """Run queries on a retriever in an event loop, `settings.workers` at a time.

    A synchronous retriever runs in threads.
    """
    direct = is_async(retriever)

    async def run_query(task: QueryTask) -> None:
        on_result(await _run_query_async(retriever, task, settings, direct=direct))

    await map_async(tasks, run_query, settings.workers)


def _run_query(
    retriever: Retriever, task: QueryTask, settings: RunSettings, worker: _QueryThread | None = None
) -> QueryResult:
    result = QueryResult(task.query, task.repeat, attempts=task.n_timeouts + 1)
    first = task.first_start
    hits: Any = ()
    restarts = 0
    while True:
        timer = StageTimer()
        failure: Exception | None = None
        if worker is not None:
            worker.begin(task, result.attempts, first)
        try:
            with set_trial(task.repeat), timer:
                hits = retriever.search(task.text, settings.k)
        except Exception as error:  # Any exception of a system is the result of this query.
            failure = error
        given_up = worker is not None and not worker.finish()
        if isinstance(failure, BackendRestarted) and not given_up and restarts < MAX_RESTARTS:
            restarts += 1
            continue
        first = first or timer.began
        if failure is None or given_up or result.attempts > settings.retries:
            return _complete_result(result, timer, first, failure, hits, settings.k)
        time.sleep(_retry_delay(settings, result.attempts))
        result.attempts += 1


async def _run_query_async(
    retriever: Retriever, task: QueryTask, settings: RunSettings, *, direct: bool
) -> QueryResult:
    result = QueryResult(task.query, task.repeat)
    first = 0
    hits: Any = ()
    restarts = 0
    while True:
        timer = StageTimer()
        failure: Exception | None = None
        try:
            with set_trial(task.repeat), timer:
                async with asyncio.timeout(settings.timeout):
                    if direct:
                        response: Any = retriever.search(task.text, settings.k)
                    else:  # A synchronous search must not block the loop.
                        response = await run_in_thread(_search_with_thread_limit, retriever, task.text, settings.k)
                    hits = await response if inspect.isawaitable(response) else response
        except TimeoutError as error:
            is_own_timeout = settings.timeout is not None and timer.total >= settings.timeout * 1e9
            failure = TimedOut(settings.timeout or 0) if is_own_timeout else error
        except Exception as error:  # Any exception of a system is the result of this query.
            failure = error
        if isinstance(failure, BackendRestarted) and restarts < MAX_RESTARTS:
            restarts += 1
            continue
        first = first or timer.began
        if failure is None or result.attempts > settings.retries:
            return _complete_result(result, timer, first, failure, hits, settings.k)
        await asyncio.sleep(_retry_delay(settings, result.attempts))
        result.attempts += 1


def _search_with_thread_limit(retriever: Retriever, text: str, k: int) -> Any:
    limit_this_thread()
    return retriever.search(text, k)


class TimedOut(Exception):
    """Error of an attempt that exceeded the timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within {seconds:g} s")


def _complete_result(
    result: QueryResult, timer: StageTimer, first: int, failure: Exception | None, hits: Any, k: int
) -> QueryResult:
    result.began = first
    result.total = timer.began + timer.total - first
    result.stages = timer.nanoseconds
    if failure is None and inspect.isawaitable(hits):
        close_if_possible(hits)
        failure = TypeError("search returned a coroutine; declare it with `async def`")
    if failure is None:
        try:
            result.docs = [to_id(hit[0], "the id of a hit") for hit in hits[:k]]
            result.scores = [float(hit[1]) for hit in hits[:k]]
            result.complete = len(hits) < k
        except (TypeError, ValueError, IndexError) as error:
            result.docs, failure = [], error
    if failure is not None:
        result.status = "timeout" if isinstance(failure, TimedOut) else "error"
        # One line of limited length: a server may return any text.
        result.error = error_summary(failure, with_class=True, all_lines=True, max_chars=MAX_ERROR_CHARS)
    return result


def _retry_delay(settings: RunSettings, attempt: int) -> float:
    """Return the pause before a retry in seconds.

    It is random, so that workers do not retry together.
    """
    return settings.pause * 2.0 ** (attempt - 1) * (1 + random.random())  # noqa: S311 - no secret


class _QueryThreadPool:
    """Threads that run queries, and a loop that gives up attempts after the timeout.

    A thread cannot be stopped from outside. After a timeout its result is ignored and another thread replaces it. The
    threads are daemons, so that the process can end.
    """

    def __init__(
        self, retriever: Retriever, tasks: Sequence[QueryTask], settings: RunSettings, on_result: OnQueryResult
    ) -> None:
        self._retriever = retriever
        self._settings = settings
        self._on_result = on_result
        self._tasks = deque(tasks)
        self._open = {(task.query, task.repeat) for task in tasks}
        self._results: queue.SimpleQueue[QueryResult] = queue.SimpleQueue()
        self._workers: list[_QueryThread] = []

    def work(self) -> None:
        """Run all queries and return when each has a result."""
        try:
            for _ in range(min(self._settings.workers, len(self._tasks))):
                self._start_thread()
            while self._open:
                self._wait_for_result()
        finally:
            self._tasks.clear()  # After Ctrl-C no thread starts another query.

    def _start_thread(self) -> None:
        worker = _QueryThread(self._retriever, self._tasks, self._settings, self._results)
        self._workers.append(worker)
        worker.start()

    def _wait_for_result(self) -> None:
        timeout = self._settings.timeout
        with contextlib.suppress(queue.Empty):
            # Wake up regularly, because a wait without timeout cannot be interrupted on every platform.
            self._accept_result(self._results.get(timeout=1.0 if timeout is None else min(1.0, timeout / 10)))
        if timeout is not None:
            now = time.perf_counter_ns()
            for worker in list(self._workers):
                task = worker.give_up_before(now - int(timeout * 1e9))
                if task is not None:
                    self._give_up_attempt(worker, task, now, TimedOut(timeout))

    def _accept_result(self, result: QueryResult) -> None:
        if (result.query, result.repeat) in self._open:
            self._open.remove((result.query, result.repeat))
            self._on_result(result)

    def _give_up_attempt(self, worker: _QueryThread, task: QueryTask, now: int, error: TimedOut) -> None:
        self._workers.remove(worker)
        first = worker.first
        if worker.attempt <= self._settings.retries:
            self._tasks.appendleft(task._replace(n_timeouts=worker.attempt, first_start=first))
        else:
            self._accept_result(
                QueryResult(
                    task.query,
                    task.repeat,
                    status="timeout",
                    error=error_summary(error, with_class=True),
                    attempts=worker.attempt,
                    began=first,
                    total=now - first,
                )
            )
        if self._tasks:
            self._start_thread()


class _QueryThread(threading.Thread):
    def __init__(
        self,
        retriever: Retriever,
        tasks: deque[QueryTask],
        settings: RunSettings,
        results: queue.SimpleQueue[QueryResult],
    ) -> None:
        super().__init__(daemon=True, name="ragauge-worker")
        self._retriever, self._tasks, self._settings, self._results = retriever, tasks, settings, results
        self._lock = threading.Lock()
        self._task: QueryTask | None = None
        """Query in progress; None between attempts."""
        self._is_wanted = True
        self.began = self.first = self.attempt = 0

    def begin(self, task: QueryTask, attempt: int, first: int) -> None:
        """Record the start of an attempt."""
        with self._lock:
            self.began = time.perf_counter_ns()
            self.first = first or self.began
            self.attempt = attempt
            self._task = task

    def finish(self) -> bool:
        """Record the end of an attempt; return whether its result is still used."""
        with self._lock:
            self._task = None
            return self._is_wanted

    def give_up_before(self, started_before: int) -> QueryTask | None:
        """Return the task if its attempt began before `started_before`, and ignore its result."""
        with self._lock:
            if self._task is None or self.began > started_before:
                return None
            self._is_wanted = False
            return self._task

    def run(self) -> None:
        limit_this_thread()
        while self._is_wanted:
            try:
                task = self._tasks.popleft()
            except IndexError:
                return
            try:
                result = _run_query(self._retriever, task, self._settings, self)
            except BaseException as error:  # Always put a result, because the pool waits for it.
                self.finish()
                message = error_summary(error, with_class=True, all_lines=True, max_chars=MAX_ERROR_CHARS)
                result = QueryResult(task.query, task.repeat, status="error", error=message)
                result.began = self.first
            if self._is_wanted:
                self._results.put(result)


T = TypeVar("T")
RetrieverOpener = Callable[[], AbstractAsyncContextManager[Retriever]]


class SystemFacts(NamedTuple):
    """Facts about a system apart from its query results."""

    cold: QueryResult | None
    """Result of the first warm-up query, the cold start; None if there was none."""
    evidence: Mapping[str, Any]
    """Facts that the system reports: parameters, sizes, whether an index was used."""
    threads: Mapping[str, Any] = EMPTY_MAPPING
    """Thread limit of the timed queries, and the number of threads that each library reported."""


def run_system(
    open_system: RetrieverOpener,
    tasks: Sequence[QueryTask],
    settings: RunSettings,
    warmup_texts: Sequence[str],
    on_result: OnQueryResult,
    observe: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> SystemFacts:
    """Open a system, warm it up with other queries, and run all tasks.

    Threads are limited once the system is built. The context manager `observe` surrounds the timed queries. Works in a
    plain script and inside a running event loop, for synchronous and async systems.
    """
    if not tasks:
        return SystemFacts(None, {})
    warmup_results: list[QueryResult] = []
    facts: dict[str, Any] = {}
    warmup_settings = replace(settings, workers=1, retries=0)
    warmup_tasks = [QueryTask(str(i), text, -1) for i, text in enumerate(warmup_texts)]
    threads: dict[str, Any] = {}

    async def open_and_run() -> Retriever | None:
        async with contextlib.AsyncExitStack() as closing:
            with plan_threads(settings.threads):
                retriever = await closing.enter_async_context(open_system())
            if not is_async(retriever):
                return retriever
            with limit_threads(settings.threads) as limit:
                await run_queries_async(retriever, warmup_tasks, warmup_settings, warmup_results.append)
                limit.apply()  # Also limit libraries that the first queries loaded.
                with observe():
                    await run_queries_async(retriever, tasks, settings, on_result)
                threads.update(limit.describe())
            try:
                for _ in range(MAX_RESTARTS):
                    with contextlib.suppress(BackendRestarted):
                        description = describe_query(retriever, tasks[0].text, settings.k)
                        facts.update(await description if inspect.isawaitable(description) else description)
                        break
            except Exception as error:  # All queries have results; a failure to report facts must not discard them.
                facts["error"] = error_summary(error, with_class=True, all_lines=True)
            return None

    retriever = run_coroutine(open_and_run())
    if retriever is not None:
        with limit_threads(settings.threads) as limit:
            run_queries(retriever, warmup_tasks, warmup_settings, warmup_results.append)
            limit.apply()
            with observe():
                run_queries(retriever, tasks, settings, on_result)
            threads.update(limit.describe())
        try:
            facts.update(describe_query(retriever, tasks[0].text, settings.k))
        except Exception as error:
            facts["error"] = error_summary(error, with_class=True, all_lines=True)
    return SystemFacts(warmup_results[0] if warmup_results else None, facts, threads)


def build_warm_up_queries(
    documents: Sequence[Document], queries: Mapping[str, str], n: int, seed: int = 0
) -> list[str]:
    """Build warm-up queries from words of documents, or else of shuffled queries.

    None of them is a measured query.

    >>> build_warm_up_queries([], {"q": "how to sort a list"}, 1)[0] in {"q": "how to sort a list"}.values()
    False
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    measured = set(queries.values())
    sources = [document.text for document in rng.sample(list(documents), min(4 * n, len(documents)))]
    sources += list(queries.values()) or ["warm up"]
    warm_ups: list[str] = []
    while len(warm_ups) < n:
        words = sources[len(warm_ups) % len(sources)].split()[:40]
        rng.shuffle(words)
        text = " ".join(words[:8]) or "warm up"
        warm_ups.append(f"{text} {len(warm_ups)}" if text in measured else text)
    return warm_ups
