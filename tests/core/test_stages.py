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
    with StageTimer() as watch:
        clock(1)
        with stage("retrieve"):
            clock(10)
            with stage("embed"):
                clock(100)
            clock(20)
        clock(2)
    assert watch.nanoseconds == {"embed": 100, "retrieve": 30}
    assert watch.total == 133


def test_stage_timer_sums_repeated_stages_despite_error(monkeypatch):
    clock = Clock(monkeypatch)
    with StageTimer() as watch:
        with stage("embed"):
            clock(5)
        try:
            with stage("embed"):
                clock(7)
                raise KeyError
        except KeyError:
            pass
    assert watch.nanoseconds == {"embed": 12}
    with StageTimer() as later:
        clock(1)
    assert later.nanoseconds == {}


def test_stage_without_timer_does_nothing():
    with stage("embed"):
        pass


def test_stage_timer_is_separate_per_task():
    async def one(name, turns):
        with StageTimer() as watch:
            for _ in range(turns):
                with stage(name):
                    await asyncio.sleep(0)
        return watch

    async def both():
        return await asyncio.gather(one("embed", 3), one("retrieve", 5))

    first, second = asyncio.run(both())
    assert set(first.nanoseconds) == {"embed"}
    assert set(second.nanoseconds) == {"retrieve"}


def test_stage_timer_is_separate_per_thread():
    seen = {}
    gate = threading.Barrier(2)

    def work(name):
        with StageTimer() as watch:
            gate.wait()
            with stage(name):
                gate.wait()
        seen[name] = set(watch.nanoseconds)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("embed", "rerank")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"embed": {"embed"}, "rerank": {"rerank"}}


def test_stage_timer_parallel_inner_stages_keep_outer_non_negative():
    async def part():
        with stage("embed"):
            await asyncio.sleep(0.002)

    async def query():
        with StageTimer() as watch, stage("retrieve"):
            await asyncio.gather(part(), part(), part())
        return watch

    watch = asyncio.run(query())
    assert watch.nanoseconds["retrieve"] >= 0
    assert watch.nanoseconds["embed"] > 0
