"""Run coroutines concurrently and cancel the rest if one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results in input order.

    The first exception cancels the rest and is re-raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def each(things: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Run `work` on every item, at most `workers` at a time."""
    left = iter(things)

    async def worker() -> None:
        for one in left:
            await work(one)

    await together(worker() for _ in range(min(workers, len(things))))
