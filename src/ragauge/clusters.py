"""A Dask cluster by its address, as an executor: reached, looked at, and left again."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any

from ragauge.errors import BackendFailed, BadInput, MissingExtra, words_of

ADDRESS = re.compile(r"(?:(?:tcp|tls)://)?(?P<host>[^\s/:]+|\[[^\s/]+\]):(?P<port>\d+)")
LOCAL = re.compile(r"local(?::(\d+))?")
"""`local:4` are four processes on this machine, for as long as they are needed."""
THREADS = "distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS"
"""What keeps each process of a machine from having as many threads as the machine has cores."""
SECONDS = 15
"""So long a scheduler has to answer, and so long a worker may take to come."""


@contextmanager
def cluster(address: str | None) -> Iterator[Executor | None]:
    """An executor of Dask, for `executor=`, as long as the `with` lasts; None where no address is given.

    An address is that of a scheduler, `tcp://host:8786` or `tls://…`, or `local:N` for N processes of this machine.
    What cannot be reached, has no workers, or has workers with other versions raises BackendFailed.

        with ragauge.cluster("local:4") as executor:
            ragauge.evaluate(qrels, run, executor=executor)
    """
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise MissingExtra("a cluster (Dask)", "cluster") from None
    # What a cluster says of workers that come and go is for its own log; what cannot be done is raised.
    for name in ("distributed", "distributed.client"):  # the second has a level of its own
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        client = stack.enter_context(_client(distributed, address, stack))
        _same_versions(client, address)
        yield client.get_executor(pure=False)


def _client(distributed: Any, address: str, stack: ExitStack) -> Any:
    import dask

    local = LOCAL.fullmatch(address)
    if local is not None:
        workers = int(local[1] or 2)
        if not workers:
            raise BadInput("a cluster of no workers does nothing", hint="--cluster local:2")
        try:
            with dask.config.set({THREADS: max(1, (os.cpu_count() or 1) // workers)}), _deaf():
                started = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
                )
        except RuntimeError as error:
            raise BackendFailed(
                f"the workers of {address} do not start: {words_of(error)}",
                hint="each reads your script: it has to be a file, with `if __name__ == '__main__':` around its work",
            ) from None
        client = distributed.Client(stack.enter_context(started), set_as_default=False)
        client.run(os.setpgrp)  # a terminal's Ctrl-C no longer goes there, whatever listens for it
        return client
    found = ADDRESS.fullmatch(address)
    if found is None:
        raise BadInput(f"`{address}` is no address of a cluster", hint="tcp://host:8786, or local:4")
    try:
        # Dask would knock at a closed door until its time is over.
        with socket.create_connection((found["host"].strip("[]"), int(found["port"])), timeout=SECONDS):
            pass
        client = distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, OverflowError, ValueError) as error:
        raise BackendFailed(
            f"no cluster answers at {address}: {words_of(error)}",
            hint="`dask scheduler` starts one, `dask worker ADDRESS` joins it; local:4 needs neither",
        ) from None
    return client


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that begin meanwhile do not hear Ctrl-C: it is for this one, which ends them, and hears it later."""
    if threading.current_thread() is not threading.main_thread():  # nobody else may say so
        yield
        return
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _same_versions(client: Any, address: str) -> None:
    """Refuse workers that would count by other code than this."""
    try:
        client.wait_for_workers(1, timeout=SECONDS)
    except TimeoutError:
        raise BackendFailed(f"the cluster at {address} has no workers", hint=f"dask worker {address}") from None
    own = _versions()
    try:
        found = client.run(_versions)
    except Exception as error:  # whatever a worker cannot import, in its own words
        raise BackendFailed(
            f"a worker of {address} cannot run this: {words_of(error)}", hint="install ragauge on every worker"
        ) from None
    for worker, theirs in found.items():
        other = [f"{name} {theirs[name]}, not {version}" for name, version in own.items() if theirs[name] != version]
        if other:
            raise BackendFailed(f"the worker {worker} has {'; '.join(other)}", hint="install the same everywhere")


def _versions() -> dict[str, str]:
    """What decides about the last bit of a number."""
    import numpy as np
    import polars as pl

    import ragauge

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, "ragauge": ragauge.__version__, "numpy": np.__version__, "polars": pl.__version__}
