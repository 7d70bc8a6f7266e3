"""Work in parts on any `concurrent.futures.Executor`: a few parts at a time, each result taken once, and in order.

What all parts need is in the work itself, something callable that holds it. Each worker of a Dask cluster keeps one of
them, other processes unpack one each, and threads share the one that there is.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from ragauge.errors import BackendFailed, BadInput

P = TypeVar("P")
R = TypeVar("R")

AHEAD = 4
"""So many parts for each lane are given out before the first of them is back: nobody waits, and memory is bounded."""
AGAIN = 3
"""So often a part is given out once more that was lost with its worker."""


def lanes(executor: Executor) -> int:
    """How many parts an executor works on at a time, as far as it can be told.

    >>> lanes(ThreadPoolExecutor(3))
    3
    """
    if _is_dask(executor):
        return max(1, int(sum(_client(executor).nthreads().values())))
    return int(getattr(executor, "_max_workers", 0) or os.cpu_count() or 2)


def spread(
    executor: Executor, work: Callable[[P], R], parts: Iterable[P], *, heavy: bool = False, ahead: int = AHEAD
) -> Iterator[R]:
    """`work(part)` for each part, in the order of the parts, which are taken as there is room for them.

    A part that was lost with its worker is given out again; what a part raises is raised here, and the others are taken
    back. `heavy` parts are data rather than a description of it. `ahead` parts for each lane are on their way at most.

    >>> with ThreadPoolExecutor(2) as two:
    ...     list(spread(two, abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    office = _Office(executor, work, heavy=heavy)
    most = max(1, ahead * lanes(executor))
    waiting: deque[_Given[P, R]] = deque()
    try:
        for part in parts:
            waiting.append(office.give(part))
            while len(waiting) >= most:
                yield _first(office, waiting)
        while waiting:
            yield _first(office, waiting)
    finally:
        for one in waiting:
            one.future.cancel()


@dataclass
class _Given(Generic[P, R]):
    """A part that was given out."""

    part: P
    future: Future[R]
    times: int = 0
    """How often it was lost."""


class _Office(Generic[P, R]):
    """Gives parts out, each with the work that is to be done on it."""

    def __init__(self, executor: Executor, work: Callable[[P], R], *, heavy: bool) -> None:
        self._executor = executor
        self._heavy = heavy
        self._dask = _is_dask(executor)
        self._work: Any = work if isinstance(executor, ThreadPoolExecutor) else _packed(work)
        self._there: Any = None
        """The work on the cluster, where there is one."""
        self.send()

    def send(self) -> None:
        """Send the work to every worker of a cluster; anybody else gets it with each part."""
        if self._dask:
            self._there = _client(self._executor).scatter(self._work, broadcast=True, hash=False)

    def give(self, part: P, times: int = 0) -> _Given[P, R]:
        """Give a part out."""
        if not self._dask:
            return _Given(part, self._executor.submit(self._work, part), times)
        sent: Any = _client(self._executor).scatter([part], hash=False)[0] if self._heavy else part
        # Two equal calls are two calls: neither is to be looked up by what it is made of.
        submit: Any = self._executor.submit
        return _Given(part, submit(_done, self._there, sent, pure=False), times)

    def recovers(self) -> bool:
        """Whether what a worker took along when it died can be done by another."""
        return self._dask


def _first(office: _Office[P, R], waiting: deque[_Given[P, R]]) -> R:
    """The result of the part that was given out first; it waits until it is there."""
    while True:
        try:
            result = waiting[0].future.result()
        except CancelledError:
            _give_again(office, waiting)
        except BrokenExecutor as error:
            raise BackendFailed(
                f"the executor lost a process, and the rest of the work with it: {_words(error)}",
                hint="was it out of memory? On a Dask cluster another worker takes over",
            ) from None
        except Exception as error:
            if type(error).__name__ != "KilledWorker":
                raise
            raise BackendFailed(
                f"a part of the work took its workers down: {_words(error)}",
                hint="most often they have too little memory: more for each, or fewer threads on each",
            ) from None
        else:
            waiting.popleft()
            return result


def _give_again(office: _Office[P, R], waiting: deque[_Given[P, R]]) -> None:
    """Give out again what was lost; its worker may have had the only copy of the work, which is sent again too."""
    if not office.recovers():
        raise BackendFailed("the executor was shut down before the work was done") from None
    if waiting[0].times == AGAIN:
        raise BackendFailed(
            f"a part of the work was lost {AGAIN + 1} times with its worker", hint="are workers out of memory?"
        ) from None
    office.send()
    for place, one in enumerate(list(waiting)):
        if one.future.cancelled() or (one.future.done() and isinstance(one.future.exception(), CancelledError)):
            waiting[place] = office.give(one.part, one.times + 1)


def _words(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _is_dask(executor: Executor) -> bool:
    return type(executor).__module__.partition(".")[0] == "distributed"


def _client(executor: Executor) -> Any:
    return getattr(executor, "_client")  # noqa: B009 - it is private, and there is no other way to it


@dataclass(frozen=True, eq=False)
class _Packed:
    """Work for other processes: bytes, and a name by which a process that has unpacked them knows them again."""

    name: str
    content: bytes

    def __call__(self, part: Any) -> Any:
        return _unpacked(self)(part)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Packed) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def _packed(work: Callable[[P], R]) -> _Packed:
    try:
        return _Packed(uuid.uuid4().hex, pickle.dumps(work, protocol=5))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"this work cannot be sent to another process ({_words(error)})",
            hint="functions and objects of your own have to be at the top of a module; a ThreadPoolExecutor takes any",
        ) from None


@lru_cache(maxsize=4)
def _unpacked(packed: _Packed) -> Callable[[Any], Any]:
    work: Callable[[Any], Any] = pickle.loads(packed.content)  # noqa: S301 - made by this very program
    return work


def _done(work: Callable[[P], R], part: P) -> R:
    """The function that a cluster calls."""
    return work(part)
