"""Reproducible randomness: random numbers that depend only on a seed, the query and the trial.

Code that repeats queries sets the trial with `set_trial`. A system draws from `query_rng` and need not know whether
it is repeated. A trial that is run again, after a crash or in another thread, draws the same numbers.
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
def set_trial(number: int) -> Iterator[None]:
    """Set the trial number for all random numbers drawn inside the block."""
    token = _current_trial.set(number)
    try:
        yield
    finally:
        _current_trial.reset(token)


def query_rng(seed: int, text: str) -> np.random.Generator:
    """Return the random number generator for one query in the present trial.

    >>> with set_trial(1):
    ...     first, again = query_rng(0, "a query").random(), query_rng(0, "a query").random()
    >>> first == again, first == query_rng(0, "a query").random(), first == query_rng(7, "a query").random()
    (True, False, False)
    """
    import numpy as np

    key = f"{seed}\n{_current_trial.get()}\n{text}".encode("utf-8", "surrogatepass")
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(key, digest_size=16).digest()))


_current_trial: ContextVar[int] = ContextVar("ragauge_trial", default=0)
"""Trial number of the present thread or task; a context variable, so that concurrent queries do not mix."""
