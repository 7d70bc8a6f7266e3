"""Several things at once, so that no call is left behind: neither one that is paid for nor one that nobody wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from ragauge.judges.ledger import Enough

T = TypeVar("T")


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each comes to. A limit is raised when all have ended, any other failure at once: it stops the rest."""
    limits: list[Enough] = []

    async def one(work: Coroutine[Any, Any, T]) -> list[T]:
        try:
            return [await work]
        except Enough as limit:
            limits.append(limit)
            return []

    tasks = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except BaseExceptionGroup as failures:  # what stopped one stopped them all; it is raised as it was
        raise failures.exceptions[0] from None
    if limits:
        raise limits[0]
    return [found for task in tasks for found in task.result()]


async def each(things: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Work on everything in turn, on so many things at a time."""
    left = iter(things)

    async def worker() -> None:
        for one in left:
            await work(one)

    await together(worker() for _ in range(min(workers, len(things))))
