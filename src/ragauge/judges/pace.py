"""How many calls are made at a time: as many as are allowed, fewer while the endpoint says that it is too much.

One more for every round of good replies, half as many once it is overloaded, and a pause that all share.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

LONGEST_PAUSE = 60.0
"""Seconds, where the endpoint does not say how long."""
Chance = Callable[[], float]
"""A number between 0 and 1, another one each time."""


class Pace:
    """Places for calls, in one event loop. Who came first goes first; who is there again goes before all others."""

    def __init__(self, most: int, *, pause: float = 0.5, chance: Chance = random.random) -> None:
        self.most = most
        self.limit = float(most)
        """How many may be under way now; it is never below 1."""
        self.busy = 0
        """How many are under way."""
        self._pause = pause
        self._chance = chance
        self._until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._round = 0
        """Counts slow-downs: a failure of a call that began before the last one says nothing new."""
        self._in_a_row = 0
        self._end: Callable[[], Exception] | None = None
        """Why nobody is let in any more."""

    async def enter(self, *, again: bool = False) -> int:
        """Wait for a place; what comes back is to be handed to `well` or `overloaded`."""
        loop = asyncio.get_running_loop()
        if (ended := self._ended()) is not None:
            raise ended
        if self._open(loop) and (again or not self._waiting):
            self.busy += 1
            return self._round
        place: asyncio.Future[None] = loop.create_future()
        if again:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        self._wake()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it had its place when it was told to stop
                self.leave()
            raise
        if (ended := self._ended()) is not None:
            self.leave()
            raise ended
        return self._round

    def leave(self) -> None:
        """Give the place back."""
        self.busy -= 1
        self._wake()

    def shut(self, why: Callable[[], Exception]) -> None:
        """Let nobody in any more, neither who waits nor who comes: each is told why."""
        self._end = why
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self.busy += 1  # which is given back as soon as it is told
                place.set_result(None)

    def well(self) -> None:
        """A good reply came: a whole round of them makes room for one more."""
        self._in_a_row = 0
        if self.limit < self.most:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            self._wake()

    def overloaded(self, entered: int, after: float | None) -> None:
        """A call that entered then was too much: half as many, after a pause."""
        if entered == self._round:
            self._round += 1
            self._in_a_row += 1
            self.limit = max(1.0, self.limit / 2)
            if after is None:
                longest = min(LONGEST_PAUSE, self._pause * 2.0 ** (self._in_a_row - 1))
                self.hold(longest * (0.5 + 0.5 * self._chance()))
        if after is not None:
            # Others were told the same moment.
            self.hold(after + self._pause * self._chance())

    def hold(self, seconds: float) -> None:
        """Let nobody in for so long."""
        if seconds > 0:
            self._until = max(self._until, asyncio.get_running_loop().time() + seconds)

    def _ended(self) -> Exception | None:
        return None if self._end is None else self._end()

    def _open(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self.busy < int(self.limit) and loop.time() >= self._until

    def _wake(self) -> None:
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        while self._waiting and self._open(loop):
            place = self._waiting.popleft()
            if not place.done():  # as those are that nobody waits for any more
                self.busy += 1
                place.set_result(None)
        if self._waiting and loop.time() < self._until:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(self._until, self._again)

    def _again(self) -> None:
        self._timer = None
        self._wake()
