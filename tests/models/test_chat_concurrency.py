"""Adaptive concurrency of chat calls: limit, queue, pauses and cancellation, in simulated time."""

from __future__ import annotations

import asyncio

import pytest

from fast_event_loop import run_without_waiting
from ragauge.models.chats.calls import MAX_PAUSE_S, AdaptiveConcurrency


async def run_call(
    pace: AdaptiveConcurrency, seconds: float, busy_counts: list[int], *, is_retry: bool = False
) -> None:
    await pace.enter(is_retry=is_retry)
    busy_counts.append(pace.busy)
    await asyncio.sleep(seconds)
    pace.leave()


@pytest.mark.parametrize("limit", [1, 3, 16])
def test_concurrency_never_exceeds_limit(limit):
    async def run_calls():
        pace, busy_counts = AdaptiveConcurrency(limit), []
        await asyncio.gather(*(run_call(pace, 1.0, busy_counts) for _ in range(48)))
        return pace, busy_counts

    (pace, busy_counts), seconds = run_without_waiting(run_calls())
    assert max(busy_counts) == limit
    assert seconds == pytest.approx(48 / limit)
    assert pace.busy == 0


def test_concurrency_queue_is_fifo_with_retries_first():
    async def record_order():
        pace, entered_names = AdaptiveConcurrency(1), []
        await pace.enter()

        async def enter(name, is_retry):
            await pace.enter(is_retry=is_retry)
            entered_names.append(name)
            pace.leave()

        tasks = []
        for name, is_retry in (("a", False), ("b", False), ("again", True)):
            tasks.append(asyncio.create_task(enter(name, is_retry)))
            await asyncio.sleep(0)
        pace.leave()
        await asyncio.gather(*tasks)
        return entered_names

    assert run_without_waiting(record_order())[0] == ["again", "a", "b"]


def test_concurrency_overload_halves_limit_once_per_batch():
    async def overload_all():
        pace = AdaptiveConcurrency(16, pause=0)
        entered = [await pace.enter() for _ in range(16)]
        limits = []
        for token in entered:
            pace.overloaded(token, None)
            limits.append(pace.limit)
            pace.leave()
        pace.overloaded(await pace.enter(), None)
        limits.append(pace.limit)
        return limits

    assert run_without_waiting(overload_all())[0] == [8.0] * 16 + [4.0]


def test_concurrency_limit_stays_at_least_one():
    async def overload_repeatedly():
        pace = AdaptiveConcurrency(4, pause=0)
        for _ in range(10):
            pace.overloaded(await pace.enter(), None)
            pace.leave()
        return pace.limit

    assert run_without_waiting(overload_repeatedly())[0] == 1.0


def test_concurrency_good_replies_increase_limit_to_maximum():
    async def record_limits():
        pace = AdaptiveConcurrency(4, pause=0)
        pace.overloaded(await pace.enter(), None)
        pace.leave()
        limits = [pace.limit]
        for _ in range(20):
            pace.well()
            limits.append(pace.limit)
        return limits

    limits = run_without_waiting(record_limits())[0]
    assert limits[0] == 2.0
    assert limits[1:4] == pytest.approx([2.5, 2.9, 2.9 + 1 / 2.9])
    assert limits[-1] == 4.0


def test_concurrency_pause_delays_all_calls():
    async def record_starts():
        pace, began = AdaptiveConcurrency(8, chance=lambda: 0.0), []
        loop = asyncio.get_running_loop()
        pace.overloaded(await pace.enter(), 30.0)
        pace.leave()

        async def enter():
            await pace.enter()
            began.append(loop.time())
            pace.leave()

        await asyncio.gather(*(enter() for _ in range(20)))
        return began

    began, _ = run_without_waiting(record_starts())
    assert min(began) == pytest.approx(30.0)
    assert len(began) == 20


def test_concurrency_shorter_hold_keeps_longer_one():
    async def enter_after_holds():
        pace = AdaptiveConcurrency(2)
        pace.hold(10.0)
        pace.hold(1.0)
        await pace.enter()

    assert run_without_waiting(enter_after_holds())[1] == pytest.approx(10.0)


def test_concurrency_overload_without_delay_doubles_pause_to_max():
    async def record_pauses():
        pace, waits = AdaptiveConcurrency(2, pause=1.0, chance=lambda: 1.0), []
        loop = asyncio.get_running_loop()
        for _ in range(9):
            before = loop.time()
            entered = await pace.enter()
            waits.append(loop.time() - before)
            pace.overloaded(entered, None)
            pace.leave()
        pace.well()
        await pace.enter()
        return waits

    waits, _ = run_without_waiting(record_pauses())
    assert waits == pytest.approx([0, 1, 2, 4, 8, 16, 32, MAX_PAUSE_S, MAX_PAUSE_S])


def test_concurrency_shut_raises_for_all_waiting_calls():
    async def shut_while_waiting():
        pace = AdaptiveConcurrency(1)
        await pace.enter()
        waiting = [asyncio.create_task(pace.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        woken = asyncio.create_task(pace.enter(is_retry=True))
        await asyncio.sleep(0)
        pace.leave()  # assigns the slot to `woken`, which has not resumed yet
        pace.shut(lambda: LookupError("no more"))
        waiting[0].cancel()
        outcomes = await asyncio.gather(woken, *waiting, return_exceptions=True)
        with pytest.raises(LookupError, match="no more"):
            await pace.enter()
        return pace.busy, [type(outcome) for outcome in outcomes]

    assert run_without_waiting(shut_while_waiting())[0] == (
        0,
        [LookupError, asyncio.CancelledError, LookupError, LookupError],
    )


def test_concurrency_cancelled_waiting_calls_release_slots():
    async def cancel_waiting():
        pace = AdaptiveConcurrency(1)
        await pace.enter()
        waiting = [asyncio.create_task(pace.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        pace.leave()
        await waiting[1]
        # waiting[2] is cancelled after the slot is assigned to it, and before it resumes.
        pace.leave()
        waiting[2].cancel()
        await asyncio.gather(waiting[2], return_exceptions=True)
        await pace.enter()
        return pace.busy

    assert run_without_waiting(cancel_waiting())[0] == 1
