"""Several things at once, so that no call is left behind that nobody wants any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each comes to, in their order. What stops one stops them all, and is raised as it was."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def each(things: Sequence[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Work on everything in turn, on so many things at a time."""
    left = iter(things)

    async def worker() -> None:
        for one in left:
            await work(one)

    await together(worker() for _ in range(min(workers, len(things))))
