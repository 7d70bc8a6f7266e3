"""Event loop that does not wait: if only timers are pending, its clock advances to the next timer at once.

Tests can check pauses, timeouts and back-off to the millisecond, and take no time. The code under test must not use
sockets or threads.
"""

from __future__ import annotations

import asyncio
import selectors


class _SkippingSelector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout=None):
        found = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


def run_without_waiting(coroutine):
    """Run a coroutine; return its result and the number of seconds that it would have taken."""
    selector = _SkippingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    try:
        return loop.run_until_complete(coroutine), selector.now
    finally:
        loop.close()
