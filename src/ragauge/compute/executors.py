"""Run tasks on any `concurrent.futures.Executor`: a bounded number at a time, with results in input order.

Data that all tasks need is held by the callable. Each worker of a Dask cluster stores it once, other processes
unpickle it once each, and threads share it. The module also pickles callables for worker processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ragauge.core.errors import BackendFailed, BadInput, words_of
from ragauge.files.workspace import create_temporary_file

T = TypeVar("T")

KEPT = 2
"""Maximum number of unpickled tasks cached per process."""
LARGE = 1 << 20
"""Minimum size in bytes of a task that is passed through a file instead of being sent with every part."""


@dataclass(frozen=True)
class Parcel:
    """A pickled callable for worker processes, and a name under which a process caches it once unpickled."""

    name: str
    content: bytes
    file: str = ""
    """File with the bytes instead, for processes of this machine; empty if they are in `content`."""

    def __call__(self, part: Any) -> Any:
        """Run the task on one part."""
        work = _UNPACKED.get(self.name)
        if work is None:
            work = pickle.loads(self.content or Path(self.file).read_bytes())  # noqa: S301 - made by this very program
            for old in list(_UNPACKED)[: len(_UNPACKED) + 1 - KEPT]:
                _UNPACKED.pop(old, None)
            _UNPACKED[self.name] = work
        return work(part)


_UNPACKED: dict[str, Callable[[Any], Any]] = {}
"""Tasks that this process unpickled last."""


def packed(work: Callable[..., Any]) -> Parcel:
    """Pickle a callable; raise BadInput if it cannot be pickled."""
    try:
        return Parcel(uuid.uuid4().hex, pickle.dumps(work, protocol=5))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"this work cannot be sent to another process ({words_of(error)})",
            hint="functions and objects of your own have to be at the top of a module; a ThreadPoolExecutor takes any",
        ) from None


def in_a_file(parcel: Parcel, owner: object) -> Parcel:
    """Move a large pickled task to a private file, deleted together with its owner."""
    if len(parcel.content) < LARGE:
        return parcel
    number, path = create_temporary_file("task")
    with open(number, "wb") as file:
        file.write(parcel.content)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    return Parcel(parcel.name, b"", str(path))


def itself(thing: T) -> T:
    """Return the argument; a function that can be sent to any process."""
    return thing


P = TypeVar("P")
R = TypeVar("R")

AHEAD = 4
"""Maximum number of submitted tasks per worker. No worker waits for the next task, and memory is bounded."""
AGAIN = 3
"""Maximum number of resubmissions of a task that was lost with its worker."""
LOOK = 2.0
"""Seconds between two checks which workers a cluster has."""
PATIENCE = 60.0
"""Maximum time in seconds that a cluster may have no workers."""
PAUSE = 0.2
"""Seconds until a cluster has noticed that a worker is gone."""


def lanes(executor: Executor) -> int:
    """Return the number of tasks that an executor runs at a time.

    It is an estimate if the executor does not tell.

    >>> lanes(ThreadPoolExecutor(3))
    3
    """
    executor = _executor(executor)
    if _is_dask(executor):
        return max(1, int(sum(_client(executor).nthreads().values())))
    return int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 2)


def spread(
    executor: Executor, work: Callable[[P], R], parts: Iterable[P], *, heavy: bool = False, ahead: int = AHEAD
) -> Iterator[R]:
    """Yield `work(part)` for each part, in input order; parts are consumed lazily.

    A task that is lost with its worker is submitted again. The first exception is raised, and the remaining tasks
    are cancelled. With `heavy`, parts are large data, which a cluster transfers separately. At most `ahead` tasks
    per worker are submitted at a time.

    >>> with ThreadPoolExecutor(2) as two:
    ...     list(spread(two, abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    office = _Office(executor, work, heavy=heavy)
    most = max(1, ahead * lanes(executor))
    waiting: deque[_Given[P, R]] = deque()
    try:
        for part in parts:
            waiting.append(office.give(part))
            while len(waiting) >= most:
                yield _first(office, waiting)
        while waiting:
            yield _first(office, waiting)
    finally:
        for one in waiting:
            one.future.cancel()


class Errands(Generic[P, R]):
    """Tasks on an executor for asyncio code: `await tasks(part)` submits a task and returns its result.

    The caller bounds the number of concurrent tasks. A cancelled await cancels its task. `idle` tasks mostly wait
    and call `secede`.
    """

    def __init__(self, executor: Executor, work: Callable[[P], R], *, heavy: bool = False, idle: bool = False) -> None:
        self._office = _Office(executor, work, heavy=heavy, idle=idle)
        self._heavy = heavy
        self.make_room = idle and _is_dask(_executor(executor))
        """Whether more tasks than there are workers can run at a time."""

    async def __call__(self, part: P) -> R:
        """Submit a task and return its result.

        A task that is lost with its worker is submitted again.
        """
        # Sending large data takes long and would block the event loop.
        given = await asyncio.to_thread(self._office.give, part) if self._heavy else self._office.give(part)
        while True:
            waiting = asyncio.wrap_future(given.future)
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                waiting.cancel()
                raise
            if not waiting.cancelled():
                waiting.exception()  # mark as retrieved; it is raised below
            try:
                return _result(given.future)
            except _Lost:
                given = await asyncio.to_thread(self._office.again, given)


def stand_aside() -> None:
    """Let a Dask worker start another task while this one only waits.

    Other executors are not affected.
    """
    if "distributed" in sys.modules:
        with contextlib.suppress(ValueError):  # not running on a worker
            sys.modules["distributed"].secede()


@dataclass
class _Given(Generic[P, R]):
    """A submitted task."""

    part: P
    future: Future[R]
    there: Any = None
    """Future of the work on the cluster that this task uses."""
    times: int = 0
    """Number of times it was lost."""


class _Lost(Exception):
    """A task that was lost with its worker, or with the data that it needs."""


class _Office(Generic[P, R]):
    """Submits tasks to an executor, together with the function to run."""

    def __init__(self, executor: Executor, work: Callable[[P], R], *, heavy: bool, idle: bool = False) -> None:
        executor = _executor(executor)
        self._executor = _unforked(executor)
        self._heavy = heavy
        self._idle = idle
        self._workers: list[str] = []
        self._looked = -LOOK
        self._turn = 0
        self._dask = _is_dask(executor)
        self._work: Any = work
        if isinstance(executor, ProcessPoolExecutor):
            self._work = in_a_file(packed(work), self)
        elif not isinstance(executor, ThreadPoolExecutor):
            self._work = packed(work)
        self._sending = threading.Lock()
        self._there: Any = None
        """Future of the work on the cluster; None for other executors."""
        self._send()

    def _send(self) -> None:
        """Send the work to a cluster once.

        Workers copy it from each other. Other executors get it with each task.
        """
        if self._dask:
            import dask

            # A task, regardless of its size, because the scheduler can recompute it; scattered data is lost with its
            # workers.
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
                self._there = _client(self._executor).submit(itself, self._work, pure=False)

    def _scattered(self, part: P) -> Any:
        """Send a part to the cluster; retry if the receiving worker has just died."""
        failure = ""
        for _ in range(AGAIN):
            try:
                return _client(self._executor).scatter([part], hash=False)[0]
            except TimeoutError:
                raise BackendFailed("the cluster has no workers any more", final=True) from None
            except OSError as error:
                failure = words_of(error)
            time.sleep(PAUSE)
        raise BackendFailed(f"the cluster takes no work: {failure}", final=True)

    def give(self, part: P, times: int = 0) -> _Given[P, R]:
        """Submit the task for one part."""
        if not self._dask:
            return _Given(part, self._submitted(self._work, part), times=times)
        there = self._there
        sent: Any = self._scattered(part) if self._heavy else part
        return _Given(part, self._submitted(_done, there, sent), there, times)

    def _submitted(self, *what: Any) -> Future[R]:
        try:
            future: Future[R] = (self._followed if self._dask else self._executor.submit)(*what)
        except BrokenExecutor as error:
            raise _broken(error) from None
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise _shut_down() from None
        return future

    def _followed(self, *what: Any) -> Future[R]:
        """Submit to the cluster and return a future of the standard library.

        The future of Dask's own executor never ends if a result is lost with its worker after it was announced.
        """
        client = _client(self._executor)
        # Two equal calls are two tasks: Dask must not identify them by their arguments.
        how = {**self._whose(client), **getattr(self._executor, "_kwargs", {}), "pure": False}
        there = client.submit(*what, **how)
        future: Future[R] = asyncio.run_coroutine_threadsafe(_coming(there, client), client.loop.asyncio_loop)
        future.add_done_callback(lambda own: there.cancel() if own.cancelled() and not there.done() else None)
        return future

    def _whose(self, client: Any) -> dict[str, Any]:
        """Choose workers in turn for idle tasks.

        The scheduler regards them as free and would give all tasks to one worker.
        """
        if not self._idle:
            return {}
        if time.monotonic() - self._looked >= LOOK:  # workers come and go
            self._workers, self._looked = sorted(client.nthreads()), time.monotonic()
        self._turn += 1
        turn = self._workers[self._turn % len(self._workers)] if self._workers else None
        return {} if turn is None else {"workers": [turn], "allow_other_workers": True}

    def again(self, lost: _Given[P, R]) -> _Given[P, R]:
        """Submit a lost task again, and the work too if its only copy may have been lost."""
        if not self._dask:
            raise _shut_down() from None
        if lost.times == AGAIN:
            raise BackendFailed(
                f"a part of the work was lost {AGAIN + 1} times with its worker",
                hint="are workers out of memory?",
                final=True,
            ) from None
        with self._sending:
            if lost.there is self._there:  # no other thread has sent it since
                self._send()
        return self.give(lost.part, lost.times + 1)


async def _coming(there: Any, client: Any) -> Any:
    """Wait for the result of a cluster future.

    Raise BackendFailed if the cluster has no workers or no scheduler any more.
    """
    # Never cancelled: a client fetches several results together, and cancelling one fetch cancels all.
    result = asyncio.ensure_future(there._result())
    result.add_done_callback(lambda one: one.cancelled() or one.exception())  # mark as retrieved: no caller may wait
    alone = 0.0
    while not (await asyncio.wait([result], timeout=LOOK))[0]:
        try:
            alone = 0.0 if await client.scheduler.ncores() else alone + LOOK
        except OSError as error:
            raise BackendFailed(
                f"the cluster's scheduler does not answer any more: {words_of(error)}", final=True
            ) from None
        if alone >= PATIENCE:
            raise BackendFailed(
                f"the cluster has had no worker for {alone:.0f} s", hint="`dask worker ADDRESS` joins one", final=True
            )
    return result.result()


def _first(office: _Office[P, R], waiting: deque[_Given[P, R]]) -> R:
    """Wait for the result of the first submitted task, and submit lost tasks again."""
    while True:
        try:
            result = _result(waiting[0].future)
        except _Lost:
            for place, one in enumerate(list(waiting)):
                if _is_lost(one.future):
                    waiting[place] = office.again(one)
        else:
            waiting.popleft()
            return result


def _result(future: Future[R]) -> R:
    """Wait for the result of a task.

    Raise BackendFailed with a readable message if the executor failed.
    """
    try:
        while not future.done():
            # Wait with a timeout: if an interrupt goes to another thread, this one would never wake up.
            wait([future], LOOK)
        return future.result()
    except CancelledError:
        raise _Lost from None
    except BrokenExecutor as error:
        raise _broken(error) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        if type(error).__name__ != "KilledWorker":
            raise BackendFailed(f"the cluster failed: {words_of(error)}", final=True) from None
        raise BackendFailed(
            f"a part of the work took its workers down: {words_of(error)}",
            hint="most often they have too little memory: more for each, or fewer threads on each",
            final=True,
        ) from None


def _is_lost(future: Future[Any]) -> bool:
    return future.cancelled() or (future.done() and isinstance(future.exception(), CancelledError))


def _shut_down() -> BackendFailed:
    return BackendFailed("the executor was shut down before the work was done", final=True)


def _broken(error: BaseException) -> BackendFailed:
    return BackendFailed(
        f"the executor lost a process, and the rest of the work with it: {words_of(error)}",
        hint="was it out of memory, or has the script no `if __name__ == '__main__':`? On a Dask cluster another one "
        "takes over",
        final=True,
    )


def _executor(given: Any) -> Executor:
    """Return an executor; for a Dask client, its executor."""
    if hasattr(given, "get_executor"):
        given = given.get_executor(pure=False)
    if not hasattr(given, "submit"):
        raise BadInput(f"{given!r} is no executor: it has no `submit`", hint="`ragauge.cluster(address)` gives one")
    return given  # type: ignore[no-any-return]


_INSTEAD: weakref.WeakKeyDictionary[Executor, Executor] = weakref.WeakKeyDictionary()


def _unforked(executor: Executor) -> Executor:
    """Return the executor, or a spawning pool of equal size instead of a forking one.

    A forked process lacks the threads that libraries such as polars rely on, and would wait for them forever.
    """
    context = getattr(executor, "_mp_context", None)
    if not isinstance(executor, ProcessPoolExecutor) or context is None or context.get_start_method() != "fork":
        return executor
    if getattr(executor, "_shutdown_thread", False):
        raise _shut_down()
    if executor not in _INSTEAD:
        first = getattr(executor, "_initializer", None), getattr(executor, "_initargs", ())
        pool = ProcessPoolExecutor(lanes(executor), multiprocessing.get_context("spawn"), *first)
        own = executor.shutdown

        def shutdown(wait: bool = True, *, cancel_futures: bool = False) -> None:
            pool.shutdown(wait, cancel_futures=cancel_futures)
            own(wait, cancel_futures=cancel_futures)

        executor.shutdown = shutdown  # type: ignore[method-assign] # the two end together
        _INSTEAD[executor] = pool
    return _INSTEAD[executor]


def _is_dask(executor: Executor) -> bool:
    return type(executor).__module__.partition(".")[0] == "distributed"


def _client(executor: Executor) -> Any:
    return getattr(executor, "_client")  # noqa: B009 - it is private, and there is no other way to it


def _done(work: Callable[[P], R], part: P) -> R:
    """Call the work; this is the function that a cluster runs."""
    return work(part)
