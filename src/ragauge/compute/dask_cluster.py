"""Executors on Dask clusters: connect to a cluster by its address, check its workers, and disconnect."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ragauge.core.errors import BackendFailed, BadInput, MissingExtra, error_summary

SCHEDULER_ADDRESS = re.compile(r"(?:(?:tcp|tls)://)?(?P<host>[^\s/:]+|\[[^\s/]+\]):(?P<port>\d+)")
LOCAL_ADDRESS = re.compile(r"local(?::(\d+))?")
"""`local:4` stands for four worker processes on this machine, which end with the `with` block."""
POLARS_THREADS_SETTING = "distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS"
"""Dask setting for the threads of polars per worker. By default each worker would use all cores of its machine."""
SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
"""Environment variable of Python with the effect of `-P`, also for the processes that libraries start."""
LOST_WORKER_TIMEOUT_SETTING = "distributed.deploy.lost-worker-timeout"
MAX_LOCAL_STARTS = 3
"""Number of attempts to start the processes of `local:N`."""
CONNECT_TIMEOUT_S = 15
"""Time limit in seconds for a scheduler to respond and for a worker to connect."""


@contextmanager
def dask_cluster(address: str | None) -> Iterator[Executor | None]:
    """Open a Dask executor for `executor=`, closed at the end of the `with` block.

    An address is that of a scheduler, `tcp://host:8786` or `tls://…`, or `local:N` for N processes of this machine.
    The executor is None if the address is None. Raise BackendFailed if the cluster cannot be reached, has no
    workers, or has workers with other versions.

        with ragauge.dask_cluster("local:4") as executor:
            ragauge.evaluate(qrels, run, executor=executor)
    """
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise MissingExtra("a cluster (Dask)", "cluster") from None
    # Do not log lost and restarted workers; failures are raised.
    for name in ("distributed", "distributed.client"):  # the second has its own log level
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        client = stack.enter_context(_connect_client(distributed, address, stack))
        _check_worker_versions(client, address)
        yield client.get_executor(pure=False)


def _connect_client(distributed: Any, address: str, stack: ExitStack) -> Any:
    import dask

    local = LOCAL_ADDRESS.fullmatch(address)
    if local is not None:
        workers = int(local[1] or 2)
        if not workers:
            raise BadInput("a cluster needs at least 1 worker, got 0", hint="use `--cluster local:2`")
        # Replace every lost worker, no matter how long ago another one was lost.
        settings = {POLARS_THREADS_SETTING: max(1, (os.cpu_count() or 1) // workers), LOST_WORKER_TIMEOUT_SETTING: "1h"}
        stack.enter_context(dask.config.set(settings))
        stack.enter_context(_safe_module_path())
        with _delayed_interrupt():
            started = stack.enter_context(_start_local(distributed, address, workers))
        client = distributed.Client(started, set_as_default=False)
        _run_on_all_workers(client, _leave_process_group)
        return client
    match = SCHEDULER_ADDRESS.fullmatch(address)
    if match is None:
        raise BadInput(f"`{address}` is not a cluster address", hint="tcp://host:8786, or local:4")
    try:
        # Check the port first: Dask would retry a closed port until the timeout.
        with socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout=CONNECT_TIMEOUT_S):
            pass
        client = distributed.Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
    except (OSError, OverflowError, ValueError) as error:
        raise BackendFailed(
            f"no cluster responds at {address}: {error_summary(error)}",
            hint="start one with `dask scheduler` and `dask worker ADDRESS`, or use local:4",
        ) from None
    return client


def _start_local(distributed: Any, address: str, workers: int) -> Any:
    """Start a cluster on this machine; retry if a worker is killed while it starts."""
    for retries_left in reversed(range(MAX_LOCAL_STARTS)):
        try:
            return distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
            )
        except RuntimeError as error:
            if not retries_left:
                raise BackendFailed(
                    f"the workers of {address} do not start: {error_summary(error)}",
                    hint="each imports your script, so put its work under `if __name__ == '__main__':` in a file",
                ) from None
    raise BackendFailed(f"the workers of {address} do not start")


@contextmanager
def _safe_module_path() -> Iterator[None]:
    """Start all Python processes in the block with `-P`.

    Otherwise they would import a pickle.py in the current folder instead of Python's.
    """
    before = os.environ.get(SAFE_PATH_VARIABLE)
    os.environ[SAFE_PATH_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH_VARIABLE)
        if before is not None:
            os.environ[SAFE_PATH_VARIABLE] = before


@contextmanager
def _delayed_interrupt() -> Iterator[None]:
    """Delay Ctrl-C until the block ends.

    An interrupted start would leave processes behind. Processes started in the block inherit the blocked signal;
    this process ends them.
    """
    if threading.current_thread() is not threading.main_thread():  # only this thread may set a handler
        yield
        return
    from multiprocessing import resource_tracker

    received: list[int] = []
    resource_tracker.ensure_running()  # it unblocks the signal when it starts, so it has to start first
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        if received:
            raise KeyboardInterrupt


def _run_on_all_workers(client: Any, function: Callable[[], Any]) -> dict[str, Any]:
    """Run a function on each worker; retry if a worker is lost.

    Exceptions of the function are raised.
    """
    until = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        results: dict[str, Any] = client.run(function, on_error="return")
        failures = [error for error in results.values() if isinstance(error, BaseException)]
        lost = [error for error in failures if isinstance(error, OSError)]
        if failures and (len(lost) < len(failures) or time.monotonic() > until):
            raise next((error for error in failures if error not in lost), failures[0])
        if results and not failures:
            return results
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
        time.sleep(0.2)


def _leave_process_group() -> None:
    """Leave the process group of the terminal.

    Ctrl-C is for the process that started the cluster.
    """
    with suppress(PermissionError):  # the process leads its own session
        os.setpgrp()


def _check_worker_versions(client: Any, address: str) -> None:
    """Raise BackendFailed if workers have other versions.

    Scores computed with them could differ.
    """
    try:
        client.wait_for_workers(1, timeout=CONNECT_TIMEOUT_S)
    except TimeoutError:
        raise BackendFailed(f"the cluster at {address} has no workers", hint=f"dask worker {address}") from None
    own_versions = _library_versions()
    try:
        versions_by_worker = _run_on_all_workers(client, _library_versions)
    except Exception as error:  # e.g. an import that fails on the worker
        raise BackendFailed(
            f"a worker of {address} cannot run this: {error_summary(error)}", hint="install ragauge on every worker"
        ) from None
    for worker, worker_versions in versions_by_worker.items():
        differences = [
            f"{name} {worker_versions[name]}, not {version}"
            for name, version in own_versions.items()
            if worker_versions[name] != version
        ]
        if differences:
            raise BackendFailed(
                f"the worker {worker} has {'; '.join(differences)}", hint="install the same versions on all machines"
            )


def _library_versions() -> dict[str, str]:
    """Return the versions on which the last bits of a score depend."""
    import numpy as np
    import polars as pl

    import ragauge

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, "ragauge": ragauge.__version__, "numpy": np.__version__, "polars": pl.__version__}
