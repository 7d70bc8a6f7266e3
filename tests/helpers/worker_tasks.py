"""Tasks for worker processes, which import this module, and a Dask cluster whose workers can be killed."""

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
    """Dask cluster on this machine: worker processes with one thread each."""

    cluster: Any
    client: Any
    executor: Executor

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return str(self.cluster.scheduler_address)

    def kill(self, n: int) -> int:
        """Kill up to `n` worker processes with SIGKILL and return their number; the cluster replaces them.

        All workers must be running first, because a worker that is killed while it starts is not replaced.
        """
        self.client.wait_for_workers(len(self.cluster.workers), timeout=60)
        deadline = time.monotonic() + 60
        while any(nanny.status.name != "running" for nanny in self.cluster.workers.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("a worker does not start")
            time.sleep(0.05)
        pids = [worker.pid for worker in self.cluster.workers.values() if worker.pid is not None][:n]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)


@contextmanager
def start_cluster(n: int = 2) -> Iterator[Workers]:
    """Start a cluster of `n` workers, which is closed at the end of the block."""
    import logging

    import dask
    from distributed import Client, LocalCluster

    with (
        # This long after a loss Dask removes the worker for good if it is absent. With a short time, that check could
        # coincide with the restart after a later kill.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        LocalCluster(
            n_workers=n, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield Workers(cluster, client, client.get_executor(pure=False))


class SumNumbers:
    """Task that returns the sum of its numbers plus the argument, after `seconds`."""

    def __init__(self, size: int, seconds: float = 0.0) -> None:
        self.numbers = np.arange(size, dtype=np.float64)
        self.seconds = seconds

    def __call__(self, part: int) -> float:
        time.sleep(self.seconds)
        return float(self.numbers.sum()) + part


def get_pid(_: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def raise_on_three(part: int) -> int:
    if part == 3:
        raise BadInput("no good", file="run.txt", line=7, hint="a better one")
    return part


def kill_on_two(part: int) -> int:
    if part == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def touch(path: str) -> None:
    """Create an empty file, which shows that the task ran."""
    open(path, "w").close()
