"""Worker processes: typed results and errors, crashes, time limits, groups with a common start, and services."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ragauge.compute.progress import Progress
from ragauge.compute.workers import (
    GroupFailure,
    LibraryError,
    Worker,
    WorkerDied,
    WorkerLimits,
    WorkerService,
    WorkerTimeout,
    call_worker,
    gather_results,
    worker_group,
)
from ragauge.core.errors import BackendFailed, BadInput, MissingExtra
from worker_functions import SumResult, SumTask, TakenNumbers

HELPERS = {"PYTHONPATH": str(Path(__file__).parents[1] / "helpers")}
LIMITS = WorkerLimits(120.0, environment=HELPERS)


def wait_until(condition) -> bool:
    return any(condition() or time.sleep(0.05) for _ in range(1200))


def test_call_worker_returns_a_typed_result_and_progress():
    steps = []
    result = call_worker("worker_functions:add", SumTask([1, 2.5]), SumResult, LIMITS, progress=steps.append)
    assert (result.total, type(result)) == (3.5, SumResult)
    assert result.pid != os.getpid()
    assert steps == [Progress("add", 0, 2), Progress("add", 1, 2)]


def test_call_worker_key_is_not_in_arguments():
    result = call_worker("worker_functions:add", SumTask([1], key="hunter22hunter22"), SumResult, LIMITS)
    assert "worker_functions:add" in result.arguments
    assert "hunter22" not in result.arguments


def test_call_worker_error_keeps_class_message_and_hint():
    with pytest.raises(BadInput, match=r"^a\.txt:3: cannot be used") as caught:
        call_worker("worker_functions:fail", "input", type(None), LIMITS)
    assert (type(caught.value), caught.value.hint, caught.value.line) == (BadInput, "use b.txt", 3)
    with pytest.raises(MissingExtra, match="a store needs an optional library") as caught:
        call_worker("worker_functions:fail", "extra", type(None), LIMITS)
    assert "[faiss]" in caught.value.hint


def test_call_worker_library_error_becomes_cause():
    with pytest.raises(BackendFailed, match="the store failed") as caught:
        call_worker("worker_functions:fail", "wrapped", type(None), LIMITS)
    assert isinstance(caught.value.__cause__, LibraryError)
    assert str(caught.value.__cause__) == "OSError: disk\nfull"
    with pytest.raises(BackendFailed) as caught:
        call_worker("worker_functions:fail", "library", type(None), LIMITS)
    assert caught.value.message == r"KeyError: 'first\nsecond'"


def test_call_worker_killed_process_raises_with_last_log_line():
    with pytest.raises(WorkerDied) as caught:
        call_worker("worker_functions:fail", "kill", type(None), LIMITS)
    assert caught.value.message == "the process was ended by SIGKILL; last line of its log: last line"


def test_worker_beyond_time_limit_is_killed():
    with Worker("worker_functions:fail", "hang", WorkerLimits(0.5, environment=HELPERS)) as worker:
        with pytest.raises(WorkerTimeout, match=r"no result within 0\.5 s"):
            worker.result(type(None))
        assert worker.is_alive
    assert not worker.is_alive


def test_worker_ends_with_a_killed_parent(tmp_path):
    code = (
        "from ragauge.compute.workers import *\n"
        f"s = WorkerService('worker_functions:serve', {str(tmp_path / 'pid')!r}, WorkerLimits(120.0))\n"
        "print(s.read_address(), flush=True); import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=os.environ | HELPERS
    )
    assert parent.stdout == "http://127.0.0.1:1\n", parent.stderr
    pid = int((tmp_path / "pid").read_text())
    assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


def test_worker_service_serves_until_it_is_closed(tmp_path):
    service = WorkerService("worker_functions:serve", str(tmp_path / "pid"), LIMITS)
    assert service.read_address() == "http://127.0.0.1:1"
    assert service.is_alive
    service.close()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_worker_group_starts_together_and_shares_numbers():
    with worker_group("worker_functions:take_numbers", [0, 1], LIMITS, shared_numbers=300) as workers:
        results = gather_results(workers, TakenNumbers)
    assert results[0].start_ns == results[1].start_ns
    assert sorted(results[0].numbers + results[1].numbers) == list(range(300))
    assert min(len(result.numbers) for result in results) > 0


def test_worker_group_failure_names_failed_worker():
    group = worker_group("worker_functions:fail_second", [0, 1], LIMITS)
    with pytest.raises(GroupFailure, match="no store here") as caught, group:
        pass
    assert caught.value.index == 1
