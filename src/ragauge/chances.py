"""Chance that comes again: what a system draws hangs on its seed, on the query, and on which time that is asked.

Whoever asks a query several times opens a `trial`; the system draws from `generator` without knowing whether anybody
repeats it. So a trial that is asked again after a crash, or in another thread, is the same trial.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@contextmanager
def trial(number: int) -> Iterator[None]:
    """What is drawn inside belongs to the time with this number."""
    token = _trial.set(number)
    try:
        yield
    finally:
        _trial.reset(token)


def generator(seed: int, text: str) -> np.random.Generator:
    """Where a system draws from for one query.

    >>> with trial(1):
    ...     first, again = generator(0, "a query").random(), generator(0, "a query").random()
    >>> first == again, first == generator(0, "a query").random(), first == generator(7, "a query").random()
    (True, False, False)
    """
    import numpy as np

    told = f"{seed}\n{_trial.get()}\n{text}".encode("utf-8", "surrogatepass")
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(told, digest_size=16).digest()))


_trial: ContextVar[int] = ContextVar("ragauge_trial", default=0)
"""Which time the query of this thread or task is asked; a context variable, so that concurrent queries do not mix."""
