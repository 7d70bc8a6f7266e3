"""Run one system from start to end: build, cold start, warm-up, timed queries, close."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ragauge.errors import BackendRestarted
from ragauge.records import NOTHING, Document
from ragauge.runs.execute import MAX_RESTARTS, Answer, Job, Keep, Plan, ask, ask_async
from ragauge.seams import Retriever, evidence, is_async
from ragauge.thread_limits import limit_threads, plan_threads

T = TypeVar("T")
Opened = Callable[[], AbstractAsyncContextManager[Retriever]]


class Performed(NamedTuple):
    """Facts about a system apart from its query results."""

    cold: Answer | None
    """Result of the first warm-up query, the cold start; None if there was none."""
    evidence: Mapping[str, Any]
    """Facts that the system reports: parameters, sizes, whether an index was used."""
    threads: Mapping[str, Any] = NOTHING
    """Thread limit of the timed queries, and the number of threads that each library reported."""


def perform(
    opened: Opened,
    jobs: Sequence[Job],
    plan: Plan,
    warm: Sequence[str],
    keep: Keep,
    observed: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Performed:
    """Open a system, warm it up with other queries, and run all tasks.

    Threads are limited once the system is built. The context manager `observed` surrounds the timed queries. Works in a
    plain script and inside a running event loop, for synchronous and async systems.
    """
    if not jobs:
        return Performed(None, {})
    gone_cold: list[Answer] = []
    said: dict[str, Any] = {}
    once = replace(plan, workers=1, retries=0)
    warming = [Job(str(i), text, -1) for i, text in enumerate(warm)]
    threads: dict[str, Any] = {}

    async def whole() -> Retriever | None:
        async with contextlib.AsyncExitStack() as closing:
            with plan_threads(plan.threads):
                retriever = await closing.enter_async_context(opened())
            if not is_async(retriever):
                return retriever
            with limit_threads(plan.threads) as limit:
                await ask_async(retriever, warming, once, gone_cold.append)
                limit.apply()  # Also limit libraries that the first queries loaded.
                with observed():
                    await ask_async(retriever, jobs, plan, keep)
                threads.update(limit.describe())
            try:
                for _ in range(MAX_RESTARTS):
                    with contextlib.suppress(BackendRestarted):
                        found = evidence(retriever, jobs[0].text, plan.k)
                        said.update(await found if inspect.isawaitable(found) else found)
                        break
            except Exception as error:  # All queries have results; a failure to report facts must not discard them.
                said["error"] = f"{type(error).__name__}: {error}"
            return None

    retriever = in_a_loop(whole())
    if retriever is not None:
        with limit_threads(plan.threads) as limit:
            ask(retriever, warming, once, gone_cold.append)
            limit.apply()
            with observed():
                ask(retriever, jobs, plan, keep)
            threads.update(limit.describe())
        try:
            said.update(evidence(retriever, jobs[0].text, plan.k))
        except Exception as error:
            said["error"] = f"{type(error).__name__}: {error}"
    return Performed(gone_cold[0] if gone_cold else None, said, threads)


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; inside a running loop (a notebook), in a new thread."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(loop, task)
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(_run(loop, task))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="ragauge-loop", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return result[0]


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """Run a task to its end like asyncio.run, but react to Ctrl-C at once.

    asyncio.run would wait until the system is built, because building awaits nothing.
    """
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():  # Waiting for a task that Ctrl-C has ended would never return.
            task.cancel()
            with contextlib.suppress(BaseException):
                loop.run_until_complete(task)
        raise
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def warm_up_queries(documents: Sequence[Document], queries: Mapping[str, str], n: int, seed: int = 0) -> list[str]:
    """Build warm-up queries from words of documents, or else of shuffled queries.

    None of them is a measured query.

    >>> warm_up_queries([], {"q": "how to sort a list"}, 1)[0] in {"q": "how to sort a list"}.values()
    False
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    measured = set(queries.values())
    sources = [document.text for document in rng.sample(list(documents), min(4 * n, len(documents)))]
    sources += list(queries.values()) or ["warm up"]
    made: list[str] = []
    while len(made) < n:
        words = sources[len(made) % len(sources)].split()[:40]
        rng.shuffle(words)
        text = " ".join(words[:8]) or "warm up"
        made.append(f"{text} {len(made)}" if text in measured else text)
    return made
