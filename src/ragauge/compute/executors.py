"""Run tasks on any `concurrent.futures.Executor`: a bounded number at a time, with results in input order.

Data that all tasks need is held by the callable. Each worker of a Dask cluster stores it once, other processes
unpickle it once each, and threads share it. The module also pickles callables for worker processes.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
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

from ragauge.core.errors import BackendFailed, BadInput, error_summary
from ragauge.files.workspace import create_temporary_file

T = TypeVar("T")

MAX_UNPICKLED_TASKS = 2
"""Maximum number of unpickled tasks cached per process."""
MIN_SPILLED_BYTES = 1 << 20
"""Minimum size in bytes of a task that is passed through a file instead of being sent with every part."""


@dataclass(frozen=True)
class PickledTask:
    """A pickled callable for worker processes, and a name under which a process caches it once unpickled."""

    name: str
    content: bytes
    file: str = ""
    """File with the bytes instead, for processes of this machine; empty if they are in `content`."""

    def __call__(self, part: Any) -> Any:
        """Run the task on one part."""
        work = _UNPICKLED_TASKS.get(self.name)
        if work is None:
            work = pickle.loads(self.content or Path(self.file).read_bytes())  # noqa: S301 - made by this very program
            for old in list(_UNPICKLED_TASKS)[: len(_UNPICKLED_TASKS) + 1 - MAX_UNPICKLED_TASKS]:
                _UNPICKLED_TASKS.pop(old, None)
            _UNPICKLED_TASKS[self.name] = work
        return work(part)


_UNPICKLED_TASKS: dict[str, Callable[[Any], Any]] = {}
"""Tasks that this process unpickled last."""


def pickle_task(work: Callable[..., Any]) -> PickledTask:
    """Pickle a callable; raise BadInput if it cannot be pickled."""
    try:
        return PickledTask(uuid.uuid4().hex, pickle.dumps(work, protocol=5))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"this work cannot be sent to another process ({error_summary(error)})",
            hint="define your functions and classes at the top level of a module, or use a ThreadPoolExecutor",
        ) from None


def spill_to_file(task: PickledTask, owner: object) -> PickledTask:
    """Move a large pickled task to a private file, deleted together with its owner."""
    if len(task.content) < MIN_SPILLED_BYTES:
        return task
    path = create_temporary_file("task")
    path.write_bytes(task.content)
    weakref.finalize(owner, path.unlink, missing_ok=True)
    return PickledTask(task.name, b"", str(path))


def identity_function(value: T) -> T:
    """Return the argument; a function that can be sent to any process."""
    return value


P = TypeVar("P")
R = TypeVar("R")

QUEUED_PER_WORKER = 4
"""Maximum number of submitted tasks per worker. No worker waits for the next task, and memory is bounded."""
MAX_RESUBMISSIONS = 3
"""Maximum number of resubmissions of a task that was lost with its worker."""
POLL_INTERVAL_S = 2.0
"""Seconds between two checks which workers a cluster has."""
NO_WORKERS_TIMEOUT_S = 60.0
"""Maximum time in seconds that a cluster may have no workers."""
SCATTER_RETRY_PAUSE_S = 0.2
"""Pause in seconds before data is sent again after a worker was lost."""


def worker_count(executor: Executor) -> int:
    """Return the number of tasks that an executor runs at a time.

    It is estimated from the number of CPUs if the executor does not report it.

    >>> worker_count(ThreadPoolExecutor(3))
    3
    """
    executor = _to_executor(executor)
    if _is_dask(executor):
        return max(1, int(sum(_dask_client(executor).nthreads().values())))
    return int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 2)


def map_ordered(
    executor: Executor,
    work: Callable[[P], R],
    parts: Iterable[P],
    *,
    heavy: bool = False,
    ahead: int = QUEUED_PER_WORKER,
) -> Iterator[R]:
    """Yield `work(part)` for each part, in input order; parts are consumed lazily.

    A task that is lost with its worker is submitted again. The first exception is raised, and the remaining tasks
    are cancelled. With `heavy`, parts are large data, which a cluster transfers separately. At most `ahead` tasks
    per worker are submitted at a time.

    >>> with ThreadPoolExecutor(2) as two:
    ...     list(map_ordered(two, abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    dispatcher = _TaskDispatcher(executor, work, heavy=heavy)
    max_waiting = max(1, ahead * worker_count(executor))
    waiting: deque[_SubmittedTask[P, R]] = deque()
    try:
        for part in parts:
            waiting.append(dispatcher.submit(part))
            while len(waiting) >= max_waiting:
                yield _wait_for_first_task(dispatcher, waiting)
        while waiting:
            yield _wait_for_first_task(dispatcher, waiting)
    finally:
        for task in waiting:
            task.future.cancel()


@dataclass
class _SubmittedTask(Generic[P, R]):
    part: P
    future: Future[R]
    work_future: Any = None
    """Future of the work on the cluster that this task uses."""
    n_losses: int = 0
    """Number of times it was lost."""


class _TaskLost(Exception):
    """A task that was lost with its worker, or with the data that it needs."""


class _TaskDispatcher(Generic[P, R]):
    """Submits tasks to an executor, together with the function to run."""

    def __init__(self, executor: Executor, work: Callable[[P], R], *, heavy: bool) -> None:
        executor = _to_executor(executor)
        self._executor = _replace_forking_pool(executor)
        self._heavy = heavy
        self._dask = _is_dask(executor)
        self._work: Any = work
        if isinstance(executor, ProcessPoolExecutor):
            self._work = spill_to_file(pickle_task(work), self)
        elif not isinstance(executor, ThreadPoolExecutor):
            self._work = pickle_task(work)
        self._work_future: Any = None
        """Future of the work on the cluster; None for other executors."""
        self._send_work()

    def _send_work(self) -> None:
        """Send the work to a cluster once.

        Workers copy it from each other. Other executors get it with each task.
        """
        if self._dask:
            import dask

            # A task, regardless of its size, because the scheduler can recompute it; scattered data is lost with its
            # workers.
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
                self._work_future = _dask_client(self._executor).submit(identity_function, self._work, pure=False)

    def _scatter_part(self, part: P) -> Any:
        """Send a part to the cluster; retry if the receiving worker has just died."""
        failure = ""
        for _ in range(MAX_RESUBMISSIONS):
            try:
                return _dask_client(self._executor).scatter([part], hash=False)[0]
            except TimeoutError:
                raise BackendFailed("the cluster has no workers left", fails_all_calls=True) from None
            except OSError as error:
                failure = error_summary(error)
            time.sleep(SCATTER_RETRY_PAUSE_S)
        raise BackendFailed(
            f"the cluster rejected the data of a task {MAX_RESUBMISSIONS} times: {failure}", fails_all_calls=True
        )

    def submit(self, part: P, times: int = 0) -> _SubmittedTask[P, R]:
        if not self._dask:
            return _SubmittedTask(part, self._submit_task(self._work, part), n_losses=times)
        work_future = self._work_future
        task_input: Any = self._scatter_part(part) if self._heavy else part
        return _SubmittedTask(part, self._submit_task(_call_work, work_future, task_input), work_future, times)

    def _submit_task(self, *call: Any) -> Future[R]:
        try:
            future: Future[R] = (self._submit_to_dask if self._dask else self._executor.submit)(*call)
        except BrokenExecutor as error:
            raise _broken_executor_error(error) from None
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise _shutdown_error() from None
        return future

    def _submit_to_dask(self, *call: Any) -> Future[R]:
        """Submit to the cluster and return a future of the standard library.

        The future of Dask's own executor never ends if a result is lost with its worker after it was announced.
        """
        import asyncio  # takes 25 ms, and only Dask needs it

        client = _dask_client(self._executor)
        # Two equal calls are two tasks: Dask must not identify them by their arguments.
        submit_options = {**getattr(self._executor, "_kwargs", {}), "pure": False}
        dask_future = client.submit(*call, **submit_options)
        future: Future[R] = asyncio.run_coroutine_threadsafe(
            _await_dask_result(dask_future, client), client.loop.asyncio_loop
        )
        future.add_done_callback(
            lambda ended_future: dask_future.cancel() if ended_future.cancelled() and not dask_future.done() else None
        )
        return future

    def resubmit(self, lost: _SubmittedTask[P, R]) -> _SubmittedTask[P, R]:
        """Submit a lost task again, and the work too if its only copy may have been lost."""
        if not self._dask:
            raise _shutdown_error() from None
        if lost.n_losses == MAX_RESUBMISSIONS:
            raise BackendFailed(
                f"a task was lost {MAX_RESUBMISSIONS + 1} times with its worker",
                hint="check whether the workers run out of memory",
                fails_all_calls=True,
            ) from None
        if lost.work_future is self._work_future:  # not sent again yet for another lost task
            self._send_work()
        return self.submit(lost.part, lost.n_losses + 1)


async def _await_dask_result(dask_future: Any, client: Any) -> Any:
    """Wait for the result of a cluster future.

    Raise BackendFailed if the cluster has no workers or no scheduler any more.
    """
    import asyncio

    # Never cancelled: a client fetches several results together, and cancelling one fetch cancels all.
    result = asyncio.ensure_future(dask_future._result())
    # Mark the exception as retrieved: no caller may wait.
    result.add_done_callback(lambda waiter: waiter.cancelled() or waiter.exception())
    idle_s = 0.0
    while not (await asyncio.wait([result], timeout=POLL_INTERVAL_S))[0]:
        try:
            idle_s = 0.0 if await client.scheduler.ncores() else idle_s + POLL_INTERVAL_S
        except OSError as error:
            raise BackendFailed(
                f"the scheduler of the cluster no longer responds: {error_summary(error)}", fails_all_calls=True
            ) from None
        if idle_s >= NO_WORKERS_TIMEOUT_S:
            raise BackendFailed(
                f"the cluster has had no worker for {idle_s:.0f} s",
                hint="start one with `dask worker ADDRESS`",
                fails_all_calls=True,
            )
    return result.result()


def _wait_for_first_task(dispatcher: _TaskDispatcher[P, R], waiting: deque[_SubmittedTask[P, R]]) -> R:
    """Wait for the result of the first submitted task, and submit lost tasks again."""
    while True:
        try:
            result = _wait_for_result(waiting[0].future)
        except _TaskLost:
            for position, task in enumerate(list(waiting)):
                if _is_lost(task.future):
                    waiting[position] = dispatcher.resubmit(task)
        else:
            waiting.popleft()
            return result


def _wait_for_result(future: Future[R]) -> R:
    """Wait for the result of a task.

    Raise BackendFailed with a readable message if the executor failed.
    """
    try:
        while not future.done():
            # Wait with a timeout: if an interrupt goes to another thread, this one would never wake up.
            wait([future], POLL_INTERVAL_S)
        return future.result()
    except CancelledError:
        raise _TaskLost from None
    except BrokenExecutor as error:
        raise _broken_executor_error(error) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "distributed":
            raise
        if type(error).__name__ != "KilledWorker":
            raise BackendFailed(f"the cluster failed: {error_summary(error)}", fails_all_calls=True) from None
        raise BackendFailed(
            f"a task crashed every worker that ran it: {error_summary(error)}",
            hint="usually they run out of memory: give each worker more memory or fewer threads",
            fails_all_calls=True,
        ) from None


def _is_lost(future: Future[Any]) -> bool:
    return future.cancelled() or (future.done() and isinstance(future.exception(), CancelledError))


def _shutdown_error() -> BackendFailed:
    return BackendFailed("the executor was shut down before all tasks were done", fails_all_calls=True)


def _broken_executor_error(error: BaseException) -> BackendFailed:
    return BackendFailed(
        f"a process of the executor ended, and its tasks are lost: {error_summary(error)}",
        hint="check whether the worker ran out of memory, and guard the script with `if __name__ == '__main__':`; "
        "a Dask cluster replaces lost workers",
        fails_all_calls=True,
    )


def _to_executor(value: Any) -> Executor:
    """Return an executor; for a Dask client, its executor."""
    if hasattr(value, "get_executor"):
        value = value.get_executor(pure=False)
    if not hasattr(value, "submit"):
        raise BadInput(
            f"{value!r} is not an executor: it has no `submit`",
            hint="use a concurrent.futures executor, or `ragauge.dask_cluster(address)`",
        )
    return value  # type: ignore[no-any-return]


_SPAWNED_POOLS: weakref.WeakKeyDictionary[Executor, Executor] = weakref.WeakKeyDictionary()


def _replace_forking_pool(executor: Executor) -> Executor:
    """Return the executor, or a spawning pool of equal size instead of a forking one.

    A forked process lacks the threads that libraries such as polars rely on, and would wait for them forever.
    """
    context = getattr(executor, "_mp_context", None)
    if not isinstance(executor, ProcessPoolExecutor) or context is None or context.get_start_method() != "fork":
        return executor
    if getattr(executor, "_shutdown_thread", False):
        raise _shutdown_error()
    if executor not in _SPAWNED_POOLS:
        initializer = getattr(executor, "_initializer", None), getattr(executor, "_initargs", ())
        pool = ProcessPoolExecutor(worker_count(executor), multiprocessing.get_context("spawn"), *initializer)
        original_shutdown = executor.shutdown

        def shutdown(wait: bool = True, *, cancel_futures: bool = False) -> None:
            pool.shutdown(wait, cancel_futures=cancel_futures)
            original_shutdown(wait, cancel_futures=cancel_futures)

        executor.shutdown = shutdown  # type: ignore[method-assign] # the two end together
        _SPAWNED_POOLS[executor] = pool
    return _SPAWNED_POOLS[executor]


def _is_dask(executor: Executor) -> bool:
    return type(executor).__module__.partition(".")[0] == "distributed"


def _dask_client(executor: Executor) -> Any:
    return getattr(executor, "_client")  # noqa: B009 - it is private, and there is no other way to it


def _call_work(work: Callable[[P], R], part: P) -> R:
    """Call the work; this is the function that a cluster runs."""
    return work(part)
