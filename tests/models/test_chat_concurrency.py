"""Adaptive concurrency of chat calls: limit, queue, pauses and cancellation, in simulated time."""

from __future__ import annotations

import asyncio

import pytest

from fast_event_loop import run_without_waiting
from ragauge.models.chats.calls import MAX_PAUSE_S, AdaptiveConcurrency


async def run_call(
    slots: AdaptiveConcurrency, seconds: float, busy_counts: list[int], *, is_retry: bool = False
) -> None:
    await slots.enter(is_retry=is_retry)
    busy_counts.append(slots.n_active)
    await asyncio.sleep(seconds)
    slots.leave()


@pytest.mark.parametrize("limit", [1, 3, 16])
def test_concurrency_never_exceeds_limit(limit):
    async def run_calls():
        slots, busy_counts = AdaptiveConcurrency(limit), []
        await asyncio.gather(*(run_call(slots, 1.0, busy_counts) for _ in range(48)))
        return slots, busy_counts

    (slots, busy_counts), seconds = run_without_waiting(run_calls())
    assert max(busy_counts) == limit
    assert seconds == pytest.approx(48 / limit)
    assert slots.n_active == 0


def test_concurrency_queue_is_fifo_with_retries_first():
    async def record_order():
        slots, entered_names = AdaptiveConcurrency(1), []
        await slots.enter()

        async def enter(name, is_retry):
            await slots.enter(is_retry=is_retry)
            entered_names.append(name)
            slots.leave()

        tasks = []
        for name, is_retry in (("a", False), ("b", False), ("again", True)):
            tasks.append(asyncio.create_task(enter(name, is_retry)))
            await asyncio.sleep(0)
        slots.leave()
        await asyncio.gather(*tasks)
        return entered_names

    assert run_without_waiting(record_order())[0] == ["again", "a", "b"]


def test_concurrency_overload_halves_limit_once_per_batch():
    async def overload_all():
        slots = AdaptiveConcurrency(16, pause=0)
        entered = [await slots.enter() for _ in range(16)]
        limits = []
        for token in entered:
            slots.record_overload(token, None)
            limits.append(slots.limit)
            slots.leave()
        slots.record_overload(await slots.enter(), None)
        limits.append(slots.limit)
        return limits

    assert run_without_waiting(overload_all())[0] == [8.0] * 16 + [4.0]


def test_concurrency_limit_stays_at_least_one():
    async def overload_repeatedly():
        slots = AdaptiveConcurrency(4, pause=0)
        for _ in range(10):
            slots.record_overload(await slots.enter(), None)
            slots.leave()
        return slots.limit

    assert run_without_waiting(overload_repeatedly())[0] == 1.0


def test_concurrency_good_replies_increase_limit_to_maximum():
    async def record_limits():
        slots = AdaptiveConcurrency(4, pause=0)
        slots.record_overload(await slots.enter(), None)
        slots.leave()
        limits = [slots.limit]
        for _ in range(20):
            slots.record_success()
            limits.append(slots.limit)
        return limits

    limits = run_without_waiting(record_limits())[0]
    assert limits[0] == 2.0
    assert limits[1:4] == pytest.approx([2.5, 2.9, 2.9 + 1 / 2.9])
    assert limits[-1] == 4.0


def test_concurrency_pause_delays_all_calls():
    async def record_starts():
        slots, began = AdaptiveConcurrency(8, random_source=lambda: 0.0), []
        loop = asyncio.get_running_loop()
        slots.record_overload(await slots.enter(), 30.0)
        slots.leave()

        async def enter():
            await slots.enter()
            began.append(loop.time())
            slots.leave()

        await asyncio.gather(*(enter() for _ in range(20)))
        return began

    began, _ = run_without_waiting(record_starts())
    assert min(began) == pytest.approx(30.0)
    assert len(began) == 20


def test_concurrency_shorter_hold_keeps_longer_one():
    async def enter_after_holds():
        slots = AdaptiveConcurrency(2)
        slots.pause(10.0)
        slots.pause(1.0)
        await slots.enter()

    assert run_without_waiting(enter_after_holds())[1] == pytest.approx(10.0)


def test_concurrency_overload_without_delay_doubles_pause_to_max():
    async def record_pauses():
        slots, waits = AdaptiveConcurrency(2, pause=1.0, random_source=lambda: 1.0), []
        loop = asyncio.get_running_loop()
        for _ in range(9):
            before = loop.time()
            entered = await slots.enter()
            waits.append(loop.time() - before)
            slots.record_overload(entered, None)
            slots.leave()
        slots.record_success()
        await slots.enter()
        return waits

    waits, _ = run_without_waiting(record_pauses())
    assert waits == pytest.approx([0, 1, 2, 4, 8, 16, 32, MAX_PAUSE_S, MAX_PAUSE_S])


def test_concurrency_shut_raises_for_all_waiting_calls():
    async def shut_while_waiting():
        slots = AdaptiveConcurrency(1)
        await slots.enter()
        waiting = [asyncio.create_task(slots.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        woken = asyncio.create_task(slots.enter(is_retry=True))
        await asyncio.sleep(0)
        slots.leave()  # assigns the slot to `woken`, which has not resumed yet
        slots.close(lambda: LookupError("no more"))
        waiting[0].cancel()
        outcomes = await asyncio.gather(woken, *waiting, return_exceptions=True)
        with pytest.raises(LookupError, match="no more"):
            await slots.enter()
        return slots.n_active, [type(outcome) for outcome in outcomes]

    assert run_without_waiting(shut_while_waiting())[0] == (
        0,
        [LookupError, asyncio.CancelledError, LookupError, LookupError],
    )


def test_concurrency_cancelled_waiting_calls_release_slots():
    async def cancel_waiting():
        slots = AdaptiveConcurrency(1)
        await slots.enter()
        waiting = [asyncio.create_task(slots.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        slots.leave()
        await waiting[1]
        # waiting[2] is cancelled after the slot is assigned to it, and before it resumes.
        slots.leave()
        waiting[2].cancel()
        await asyncio.gather(waiting[2], return_exceptions=True)
        await slots.enter()
        return slots.n_active

    assert run_without_waiting(cancel_waiting())[0] == 1
