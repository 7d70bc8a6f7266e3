"""Stages: inner ones count for themselves, concurrent queries do not mix, nobody has to look on."""

from __future__ import annotations

import asyncio
import threading

from ragauge.core import stages
from ragauge.core.stages import StageTimer, stage


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0
        monkeypatch.setattr(stages, "perf_counter_ns", lambda: self.now)

    def __call__(self, nanoseconds):
        self.now += nanoseconds


def test_an_inner_stage_is_taken_out_of_the_outer_one(monkeypatch):
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


def test_a_stage_that_comes_twice_adds_up_and_survives_an_error(monkeypatch):
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


def test_without_a_stopwatch_stages_cost_nothing_and_break_nothing():
    with stage("embed"):
        pass


def test_tasks_at_the_same_time_keep_to_their_own_stopwatch():
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


def test_threads_keep_to_their_own_stopwatch():
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


def test_parallel_parts_of_one_query_never_make_the_stage_around_them_negative():
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
