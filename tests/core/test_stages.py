"""Timing of stages: nested stages are counted once, concurrent queries are separate, and a timer is optional."""

from __future__ import annotations

import asyncio
import threading

from ragauge.core import stages
from ragauge.core.stages import StageTimer, stage


class Clock:
    """Clock that advances only when it is called."""

    def __init__(self, monkeypatch):
        self.now = 0
        monkeypatch.setattr(stages, "perf_counter_ns", lambda: self.now)

    def __call__(self, nanoseconds):
        self.now += nanoseconds


def test_stage_timer_subtracts_inner_from_outer_stage(monkeypatch):
    clock = Clock(monkeypatch)
    with StageTimer() as timer:
        clock(1)
        with stage("retrieve"):
            clock(10)
            with stage("embed"):
                clock(100)
            clock(20)
        clock(2)
    assert timer.nanoseconds == {"embed": 100, "retrieve": 30}
    assert timer.total == 133


def test_stage_timer_sums_repeated_stages_despite_error(monkeypatch):
    clock = Clock(monkeypatch)
    with StageTimer() as timer:
        with stage("embed"):
            clock(5)
        try:
            with stage("embed"):
                clock(7)
                raise KeyError
        except KeyError:
            pass
    assert timer.nanoseconds == {"embed": 12}
    with StageTimer() as second_timer:
        clock(1)
    assert second_timer.nanoseconds == {}


def test_stage_without_timer_does_nothing():
    with stage("embed"):
        pass


def test_stage_timer_is_separate_per_task():
    async def run_stages(name, repeats):
        with StageTimer() as timer:
            for _ in range(repeats):
                with stage(name):
                    await asyncio.sleep(0)
        return timer

    async def run_both_tasks():
        return await asyncio.gather(run_stages("embed", 3), run_stages("retrieve", 5))

    first, second = asyncio.run(run_both_tasks())
    assert set(first.nanoseconds) == {"embed"}
    assert set(second.nanoseconds) == {"retrieve"}


def test_stage_timer_is_separate_per_thread():
    stages_by_thread = {}
    barrier = threading.Barrier(2)

    def run_stage(name):
        with StageTimer() as timer:
            barrier.wait()
            with stage(name):
                barrier.wait()
        stages_by_thread[name] = set(timer.nanoseconds)

    threads = [threading.Thread(target=run_stage, args=(name,)) for name in ("embed", "rerank")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stages_by_thread == {"embed": {"embed"}, "rerank": {"rerank"}}


def test_stage_timer_parallel_inner_stages_keep_outer_non_negative():
    async def run_inner_stage():
        with stage("embed"):
            await asyncio.sleep(0.002)

    async def run_query():
        with StageTimer() as timer, stage("retrieve"):
            await asyncio.gather(run_inner_stage(), run_inner_stage(), run_inner_stage())
        return timer

    timer = asyncio.run(run_query())
    assert timer.nanoseconds["retrieve"] >= 0
    assert timer.nanoseconds["embed"] > 0
