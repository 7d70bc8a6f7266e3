"""Format counts, scores, changes and lists of names for people to read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def pluralise(n: int, noun: str) -> str:
    """Format a count with its noun in singular or plural.

    >>> pluralise(1, "query"), pluralise(1200, "query"), pluralise(2, "way")
    ('1 query', '1,200 queries', '2 ways')
    """
    many = noun if n == 1 else f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{n:,} {many}"


def format_change(measure: str, before: float, after: float) -> str:
    """Format a score before and after a change.

    Return an empty string if the two are equal to four decimals, or if one of them is NaN.

    >>> format_change("ndcg@10", 0.7384, 0.7439), format_change("map", 0.5, 0.50001)
    ('ndcg@10 0.7384 to 0.7439', '')
    """
    if math.isnan(before) or math.isnan(after) or f"{before:.4f}" == f"{after:.4f}":
        return ""
    return f"{measure} {before:.4f} to {after:.4f}"


def format_changes(names: Iterable[str], before: Iterable[float], after: Iterable[float]) -> str:
    """Format all scores that change as one comma-separated text."""
    return ", ".join(filter(None, (format_change(*one) for one in zip(names, before, after, strict=True))))


def first_few(names: Sequence[str], most: int = 5) -> tuple[str, ...]:
    """Return the first `most` names."""
    return tuple(names[:most])


def join_names(names: Sequence[str], most: int = 5) -> str:
    """Join the first `most` names with commas and add how many more there are.

    >>> join_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def format_percent(share: float) -> str:
    """Format a share as a percentage, with one decimal below 10%.

    >>> format_percent(0.9302), format_percent(0.0123), format_percent(0.0)
    ('93%', '1.2%', '0%')
    """
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def format_score(value: float, measure: str = "") -> str:
    """Format a score: four decimals, integers for counts, and a dash for NaN.

    >>> format_score(0.5), format_score(3.0, "num_ret"), format_score(math.nan)
    ('0.5000', '3', '-')
    """
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if measure.startswith("num_") else f"{value:.4f}"


def count_noun(number: int, one: str, several: str = "") -> str:
    """Format a count with its noun in singular or plural.

    >>> count_noun(1, "query", "queries"), count_noun(1200, "document")
    ('1 query', '1,200 documents')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def format_exact(value: float | None) -> str:
    """Format a number with all its digits, for machines; empty for None and NaN."""
    return "" if value is None or math.isnan(value) else repr(value)


def format_p_value(p: float) -> str:
    """Format a p-value with three decimals, small ones as `<0.001`.

    >>> format_p_value(0.0004), format_p_value(0.03)
    ('<0.001', '0.030')
    """
    return "-" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def format_qps(qps: float) -> str:
    """Format queries per second.

    Numbers below 10 have one decimal, and NaN is a dash.

    >>> format_qps(4133.2), format_qps(2.51), format_qps(math.nan)
    ('4,133', '2.5', '-')
    """
    return "-" if math.isnan(qps) else f"{qps:,.0f}" if qps >= 10 else f"{qps:.1f}"


def format_milliseconds(value: float | None) -> str:
    """Format milliseconds with about three significant digits.

    None and NaN are a dash.

    >>> format_milliseconds(0.0123), format_milliseconds(1.5), format_milliseconds(250.0), format_milliseconds(None)
    ('0.012', '1.50', '250', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    decimals = 3 - sum(value >= bound for bound in (1, 10, 100))
    return f"{value:.{decimals}f}"


def format_rate(rate: float) -> str:
    """Format a rate as percent with one decimal; a dash for NaN.

    >>> format_rate(0.03125), format_rate(math.nan), format_rate(0.00004), format_rate(0.0)
    ('3.1%', '-', '<0.1%', '0.0%')
    """
    if math.isnan(rate):
        return "-"
    return "<0.1%" if 0 < rate < 0.0005 else f"{100 * rate:.1f}%"
