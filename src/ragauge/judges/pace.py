"""Adapt the number of concurrent calls to what the endpoint accepts.

The limit rises by one per round of successful replies and is halved on overload, followed by a pause for all calls.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable

LONGEST_PAUSE = 60.0
"""Maximum pause in seconds, if the endpoint does not say how long to wait."""
Chance = Callable[[], float]
"""Function that returns a random number between 0 and 1."""


class Pace:
    """Slots for concurrent calls in one event loop, in order of arrival; retries go first."""

    def __init__(self, most: int, *, pause: float = 0.5, chance: Chance = random.random) -> None:
        self.most = most
        self.limit = float(most)
        """Number of calls allowed at a time now; at least 1."""
        self.busy = 0
        """Number of calls in progress."""
        self._pause = pause
        self._chance = chance
        self._until = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._round = 0
        """Number of slow-downs. Failures of calls that began before the last slow-down are ignored."""
        self._in_a_row = 0
        self._end: Callable[[], Exception] | None = None
        """Returns the exception for new and waiting calls once the slots are closed."""

    async def enter(self, *, again: bool = False) -> int:
        """Wait for a slot and return the number of slow-downs, for `overloaded`."""
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
            if not place.cancelled():  # The slot was assigned before the cancellation.
                self.leave()
            raise
        if (ended := self._ended()) is not None:
            self.leave()
            raise ended
        return self._round

    def leave(self) -> None:
        """Release the slot."""
        self.busy -= 1
        self._wake()

    def shut(self, why: Callable[[], Exception]) -> None:
        """Refuse all waiting and future calls with the exception that `why` returns."""
        self._end = why
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self.busy += 1  # Released by enter(), which raises.
                place.set_result(None)

    def well(self) -> None:
        """Record a successful reply; a full round of them raises the limit by one."""
        self._in_a_row = 0
        if self.limit < self.most:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)
            self._wake()

    def overloaded(self, entered: int, after: float | None) -> None:
        """Record an overload: halve the limit and pause for `after` or random seconds.

        `entered` is what `enter` returned for the call.
        """
        if entered == self._round:
            self._round += 1
            self._in_a_row += 1
            self.limit = max(1.0, self.limit / 2)
            if after is None:
                longest = min(LONGEST_PAUSE, self._pause * 2.0 ** (self._in_a_row - 1))
                self.hold(longest * (0.5 + 0.5 * self._chance()))
        if after is not None:
            # Other clients were probably given the same time: add a random part.
            self.hold(after + self._pause * self._chance())

    def hold(self, seconds: float) -> None:
        """Start no calls for a number of seconds."""
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
            if not place.done():  # The waiting call may have been cancelled.
                self.busy += 1
                place.set_result(None)
        if self._waiting and loop.time() < self._until:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(self._until, self._again)

    def _again(self) -> None:
        self._timer = None
        self._wake()
