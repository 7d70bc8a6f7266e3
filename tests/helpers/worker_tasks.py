"""Work for other processes, which import it from here; and a cluster whose workers can be killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragauge.core.errors import BadInput


@dataclass
class Workers:
    """A real cluster on this machine: processes with one thread each."""

    cluster: Any
    client: Any
    executor: Executor

    @property
    def address(self) -> str:
        """Where its scheduler is."""
        return str(self.cluster.scheduler_address)

    def kill(self, n: int) -> int:
        """Kill so many of the processes without a word; others come in their place. How many were alive.

        All are to be there first: one that is killed while it starts is not replaced.
        """
        self.client.wait_for_workers(len(self.cluster.workers), timeout=60)
        until = time.monotonic() + 60
        while any(nanny.status.name != "running" for nanny in self.cluster.workers.values()):
            if time.monotonic() > until:
                raise TimeoutError("a worker does not start")
            time.sleep(0.05)
        pids = [worker.pid for worker in self.cluster.workers.values() if worker.pid is not None][:n]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)


@contextmanager
def working(n: int = 2) -> Iterator[Workers]:
    """So many workers, gone at the end."""
    import logging

    import dask
    from distributed import Client, LocalCluster

    with (
        # Whoever is away when this time after an earlier loss is over would be given up for good.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(
            n_workers=n, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Workers(cluster, client, client.get_executor(pure=False))


class Summing:
    """Adds a part to the sum of what it holds."""

    def __init__(self, size: int, seconds: float = 0.0) -> None:
        self.numbers = np.arange(size, dtype=np.float64)
        self.seconds = seconds

    def __call__(self, part: int) -> float:
        time.sleep(self.seconds)
        return float(self.numbers.sum()) + part


def the_pid(_: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def broken(part: int) -> int:
    if part == 3:
        raise BadInput("no good", file="run.txt", line=7, hint="a better one")
    return part


def deadly(part: int) -> int:
    if part == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def touch(path: str) -> None:
    """Leave a mark."""
    open(path, "w").close()
