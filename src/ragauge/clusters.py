"""A Dask cluster by its address, as an executor: reached, looked at, and left again."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import Any

from ragauge.errors import BackendFailed, BadInput, MissingExtra

LOCAL = re.compile(r"local(?::(\d+))?")
"""`local:4` are four processes on this machine, for as long as they are needed."""
THREADS = "distributed.nanny.pre-spawn-environ.POLARS_MAX_THREADS"
"""What keeps each process of a machine from having as many threads as the machine has cores."""
SECONDS = 15
"""So long a scheduler has to answer, and so long a worker may take to come."""


@contextmanager
def cluster(address: str | None) -> Iterator[Executor | None]:
    """The executor of a cluster; none where no address is given, so that whoever uses it need not ask.

    An address is that of a scheduler, `tcp://host:8786` or `tls://…`, or `local:N`.

    >>> with cluster(None) as executor:
    ...     executor is None
    True
    """
    if address is None:
        yield None
        return
    try:
        import distributed
    except ImportError:
        raise MissingExtra("a cluster", "cluster") from None
    # What a cluster says of workers that come and go is for its own log; what cannot be done is raised.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
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
            with dask.config.set({THREADS: max(1, (os.cpu_count() or 1) // workers)}):
                started = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
                )
        except RuntimeError as error:
            raise BackendFailed(
                f"the workers of {address} do not start: {_words(error)}",
                hint="they run your script too: keep what it does under `if __name__ == '__main__':`",
            ) from None
        return distributed.Client(stack.enter_context(started), set_as_default=False)
    if not re.fullmatch(r"(\w+://)?[^\s/]+:\d+", address):
        raise BadInput(f"`{address}` is no address of a cluster", hint="tcp://host:8786, or local:4")
    try:
        client = distributed.Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BackendFailed(
            f"no cluster answers at {address}: {_words(error)}",
            hint="`dask scheduler` starts one, `dask worker ADDRESS` joins it; local:4 needs neither",
        ) from None
    return client


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
            f"a worker of {address} cannot run this: {_words(error)}", hint="install ragauge on every worker"
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


def _words(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
