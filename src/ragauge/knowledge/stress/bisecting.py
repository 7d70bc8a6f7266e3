"""The shortest prefix of some inputs that still fails, and whether to believe it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

TIMES = 3
"""Number of attempts with the prefix that was found, and with all inputs before a failure counts as not reproduced."""
NOT_REPRODUCED = "not reproduced"


class Shortest(NamedTuple):
    """What bisection found."""

    prefix: int | None
    """It fails; one less did not, or was not tried (see `tried`). None if the failure was not reproduced."""
    tried: list[tuple[int, bool]]
    steady: bool | None
    doubt: str = ""


def shortest(fails: Callable[[int], bool], whole: int, *, guess: int | None = None, least: int = 0) -> Shortest:
    """The shortest prefix of `whole` inputs that fails.

    Formula: bisection between a prefix that fails and one that does not, first at `guess` and one less; the prefix
    that is found is tried 3 times in all. All inputs are tried 3 times before a failure is not reproduced.
    Rule: it is the shortest where a longer prefix fails whenever a shorter one does. Three shorter ones are tried, and
    where one of them fails, the search goes on below it; a prefix that fails only sometimes is said to.

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
        # A prefix that fails below one that does not: the search starts anew under it.
        doubt = "some longer prefixes did not break it, and a shorter prefix that was not tried may break it"
        low, high = least - 1, lower
    again = [fails(high) for _ in range(TIMES - 1)]
    tried += [(high, one) for one in again]
    steady = all(again)
    if not steady:
        doubt = f"this prefix broke it {1 + sum(again)} times of {TIMES}"
    return Shortest(high, tried, steady, doubt)
