"""An event loop that does not wait: where nothing is left to do but to wait, its clock leaps to the next moment.

Pauses, time-outs and back-off can be tested to the millisecond, and take no time. For what has no sockets or threads.
"""

from __future__ import annotations

import asyncio
import selectors


class _Leaping(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout=None):
        found = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


def leaping(coroutine):
    """What a coroutine gives, and the seconds that it would have taken."""
    selector = _Leaping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    try:
        return loop.run_until_complete(coroutine), selector.now
    finally:
        loop.close()
