"""Format counts, scores, changes and lists of names for people to read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def counted(n: int, noun: str) -> str:
    """Format a count with its noun in singular or plural.

    >>> counted(1, "query"), counted(1200, "query"), counted(2, "way")
    ('1 query', '1,200 queries', '2 ways')
    """
    many = noun if n == 1 else f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{n:,} {many}"


def change(measure: str, before: float, after: float) -> str:
    """Format a score before and after a change.

    Return an empty string if the two are equal to four decimals, or if one of them is NaN.

    >>> change("ndcg@10", 0.7384, 0.7439), change("map", 0.5, 0.50001)
    ('ndcg@10 0.7384 to 0.7439', '')
    """
    if math.isnan(before) or math.isnan(after) or f"{before:.4f}" == f"{after:.4f}":
        return ""
    return f"{measure} {before:.4f} to {after:.4f}"


def changes(names: Iterable[str], before: Iterable[float], after: Iterable[float]) -> str:
    """Format all scores that change as one comma-separated text."""
    return ", ".join(filter(None, (change(*one) for one in zip(names, before, after, strict=True))))


def some(names: Sequence[str], most: int = 5) -> tuple[str, ...]:
    """Return the first `most` names."""
    return tuple(names[:most])


def listed(names: Sequence[str], most: int = 5) -> str:
    """Join the first `most` names with commas and add how many more there are.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def percent(share: float) -> str:
    """Format a share as a percentage, with one decimal below 10%.

    >>> percent(0.9302), percent(0.0123), percent(0.0)
    ('93%', '1.2%', '0%')
    """
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"
