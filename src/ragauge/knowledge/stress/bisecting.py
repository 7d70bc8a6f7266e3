"""Search for the shortest failing prefix of the documents, and its reproducer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

TIMES = 3
"""Attempts with the prefix found, and with all inputs before a failure counts as not reproduced."""
NOT_REPRODUCED = "not reproduced"


class Shortest(NamedTuple):
    """Result of the search for the shortest failing prefix."""

    prefix: int | None
    """Length of a failing prefix; None if the failure was not reproduced.

    The prefix with one input less did not fail, or was not tried (see `tried`).
    """
    tried: list[tuple[int, bool]]
    steady: bool | None
    doubt: str = ""


def shortest(fails: Callable[[int], bool], whole: int, *, guess: int | None = None, least: int = 0) -> Shortest:
    """Find the shortest prefix of `whole` inputs that fails.

    Formula: bisection between a failing and a passing prefix, first at `guess` and at one input less. The prefix
    found is tried 3 times in all. All inputs are tried 3 times before the failure counts as not reproduced.
    Rule: the result is the shortest if every prefix longer than a failing one fails too. Three shorter prefixes are
    tried as a check; if one fails, the search continues below it. `doubt` says if a prefix fails only sometimes.

    >>> shortest(lambda n: n >= 16, 2500, guess=20).prefix
    16
    >>> shortest(lambda n: False, 100)
    Shortest(prefix=None, tried=[(100, False), (100, False), (100, False)], steady=False, doubt='not reproduced')
    """
    tried: list[tuple[int, bool]] = []
    known: dict[int, bool] = {}

    def broke(n: int) -> bool:
        if n not in known:
            known[n] = fails(n)
            tried.append((n, known[n]))
        return known[n]

    high = whole if guess is None else max(least, min(guess, whole))
    if not broke(high):
        if high == whole or not broke(whole):
            while len(again := [failed for n, failed in tried if n == whole]) < TIMES and not any(again):
                tried.append((whole, fails(whole)))
            if not any(again):
                return Shortest(None, tried, steady=False, doubt=NOT_REPRODUCED)
            return Shortest(whole, tried, steady=False, doubt=f"this prefix broke it 1 time of {len(again)}")
        low, high = high, whole
    elif guess is None or high == least:
        low = least - 1
    elif not broke(high - 1):
        low = high - 1
    else:
        low, high = least - 1, high - 1
    doubt = ""
    while True:
        while high - low > 1:
            middle = (low + high) // 2
            if broke(middle):
                high = middle
            else:
                low = middle
        shorter = [n for share in (0.75, 0.5, 0.25) if least <= (n := int(high * share)) < high - 1]
        lower = next((n for n in shorter if broke(n)), None)
        if lower is None:
            break
        # A shorter prefix fails although a longer one did not: search again below it.
        doubt = "some longer prefixes did not break it, and a shorter prefix that was not tried may break it"
        low, high = least - 1, lower
    again = [fails(high) for _ in range(TIMES - 1)]
    tried += [(high, one) for one in again]
    steady = all(again)
    if not steady:
        doubt = f"this prefix broke it {1 + sum(again)} times of {TIMES}"
    return Shortest(high, tried, steady, doubt)
