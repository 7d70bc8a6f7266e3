"""Format numbers, intervals, counts and lists of names, so that the same number reads the same everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ragauge.core.text import join_names as join_names  # noqa: PLC0414 - belongs to the other formats

MISSING = "-"
"""Text of a value that is undefined or unknown."""


class NumberStyle(NamedTuple):
    """How numbers of one kind are written."""

    format: Callable[[float], str]
    """Text of a finite number."""
    vega: str = ".4f"
    """Format of the number in a tooltip of a chart."""


def _format_share(share: float) -> str:
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return "<0.1%" if 0 < share < 0.0005 else ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def _format_signed_share(share: float) -> str:
    return f"{round(share, 3) + 0.0:+.1%}"


def _format_recall(recall: float) -> str:
    """Format with four decimals; 1.0000 only if it is exactly 1."""
    return "0.9999" if 0.99995 <= recall < 1 else f"{recall:.4f}"


def _format_selectivity(share: float) -> str:
    """Format a percentage with three significant digits; 100% only if it is exactly 1."""
    return ">99.9%" if 0.9995 <= share < 1 else f"{100 * share:.3g}%"


def _format_significant(value: float) -> str:
    """Format about three significant digits, at most three decimals."""
    size = abs(value)
    decimals = 3 - sum(size >= bound for bound in (1, 10, 100))
    return f"{value:,.{decimals}f}"


def _format_bytes(size: float) -> str:
    if size < 1000:
        return f"{size:.0f} B"
    for limit, unit in ((1e6, "kB"), (1e9, "MB"), (1e12, "GB")):
        if size < limit:
            return f"{1000 * size / limit:.3g} {unit}"
    return f"{size / 1e12:,.1f} TB"


def _format_large(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value / 1000:.0f}k" if value >= 10_000 else f"{value:,.0f}"


def _format_money(cost: float) -> str:
    if cost == 0:
        return "$0"
    decimals = 2 if cost >= 1 else max(2, 1 - math.floor(math.log10(cost)))
    return f"${cost:,.{decimals}f}"


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


def _signed(format_value: Callable[[float], str]) -> Callable[[float], str]:
    """Return a function that formats a difference with its sign."""
    return lambda value: f"{'-' if value < 0 else '+'}{format_value(abs(value))}"


def _format_duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


MIN_SHOWN_P = 0.001
"""Smallest p-value that is shown as a number."""
NUMBER_STYLES: Mapping[str, NumberStyle] = {
    "score": NumberStyle(lambda value: f"{round(value, 4) + 0.0:.4f}"),
    "recall": NumberStyle(_format_recall),
    "signed": NumberStyle(lambda value: f"{round(value, 4) + 0.0:+.4f}", "+.4f"),
    "statistic": NumberStyle(lambda value: f"{round(value, 3) + 0.0:.3f}", ".3f"),
    "effect": NumberStyle(lambda value: f"{round(value, 2) + 0.0:+.2f}", "+.2f"),
    "share": NumberStyle(_format_share, ".1%"),
    "selectivity": NumberStyle(_format_selectivity, ".3~%"),
    "signed share": NumberStyle(_format_signed_share, "+.1%"),
    "p": NumberStyle(lambda p: f"{p:.3f}" if p >= MIN_SHOWN_P else f"<{MIN_SHOWN_P:g}", ".3f"),
    "ms": NumberStyle(_format_significant, ",.3~r"),
    "seconds": NumberStyle(_format_significant, ",.3~r"),
    "signed ms": NumberStyle(_signed(_format_significant), "+,.3~r"),
    "signed seconds": NumberStyle(_signed(_format_significant), "+,.3~r"),
    "duration": NumberStyle(_format_duration, ",.3~r"),
    "bytes": NumberStyle(_format_bytes, ".3~s"),
    "count": NumberStyle(lambda count: f"{count:,.0f}", ",d"),
    "signed count": NumberStyle(_signed(lambda count: f"{count:,.0f}"), "+,d"),
    "large": NumberStyle(_format_large, ".3~s"),
    "mean count": NumberStyle(lambda count: f"{count:,.1f}", ",.1f"),
    "qps": NumberStyle(_format_rate, ",.0f"),
    "signed qps": NumberStyle(_signed(_format_rate), "+,.0f"),
    "money": NumberStyle(_format_money, "$,.4~f"),
    "ratio": NumberStyle(lambda ratio: f"{ratio:,.2f}", ",.2f"),
    "number": NumberStyle(lambda value: f"{value:.6g}", ",.6~r"),
}
"""Styles of numbers by name. Undefined numbers are a dash in every style."""


def format_number(value: float | None, style: str = "score") -> str:
    """Format a number in one of `NUMBER_STYLES`; None and NaN are a dash.

    >>> format_number(0.5), format_number(-0.00001, "signed"), format_number(math.nan), format_number(None, "ms")
    ('0.5000', '+0.0000', '-', '-')
    >>> [format_number(share, "share") for share in (0.0, 0.0001, 0.0042, 0.123, 0.9996, 1.0)]
    ['0%', '<0.1%', '0.4%', '12.3%', '>99.9%', '100%']
    >>> [format_number(share, "selectivity") for share in (0.0100025, 0.5, 0.99999, 1.0, 0.00012345)]
    ['1%', '50%', '>99.9%', '100%', '0.0123%']
    >>> [format_number(recall, "recall") for recall in (0.99999, 1.0, 0.5)]
    ['0.9999', '1.0000', '0.5000']
    >>> [format_number(ms, "ms") for ms in (0.0123, 1.5, 12.34, 250.0, 4133.2)]
    ['0.012', '1.50', '12.3', '250', '4,133']
    >>> format_number(1472, "count"), format_number(4133.2, "qps"), format_number(2.51, "qps")
    ('1,472', '4,133', '2.5')
    >>> format_number(900, "bytes"), format_number(5_300, "bytes"), format_number(1_690_000, "bytes")
    ('900 B', '5.3 kB', '1.69 MB')
    >>> [format_number(cost, "money") for cost in (12.3456, 0.00123, 0.000072, 0.0)]
    ['$12.35', '$0.0012', '$0.000072', '$0']
    >>> [format_number(seconds, "duration") for seconds in (42.3, 200, 7300)]
    ['42 s', '3 min', '2.0 h']
    >>> [format_number(n, "large") for n in (980, 512_000, 22_713_216)]
    ['980', '512k', '22.7M']
    """
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return NUMBER_STYLES[style].format(value)


def format_interval(low: float, high: float, style: str = "score") -> str:
    """Format a confidence interval in brackets; a dash if it is undefined.

    >>> format_interval(0.1, 0.25), format_interval(0.1, 0.25, "signed"), format_interval(math.nan, math.nan)
    ('[0.1000, 0.2500]', '[+0.1000, +0.2500]', '-')
    """
    if math.isnan(low) or math.isnan(high):
        return MISSING
    return f"[{format_number(low, style)}, {format_number(high, style)}]"


def format_p_value(p: float) -> str:
    """Format a p-value as a comparison.

    >>> format_p_value(0.0312), format_p_value(0.00004)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {format_number(p, 'p')}"


def pluralise(n: int, singular: str, plural: str = "") -> str:
    """Format a count with its noun in singular or plural.

    >>> pluralise(1, "query"), pluralise(1200, "query"), pluralise(2, "way"), pluralise(0, "index", "indices")
    ('1 query', '1,200 queries', '2 ways', '0 indices')
    """
    if n == 1:
        return f"1 {singular}"
    return f"{n:,} {plural or (f'{singular[:-1]}ies' if singular.endswith('ry') else f'{singular}s')}"


def format_exact(value: float | None) -> str:
    """Format a number with all its digits, for machines; empty for None and NaN."""
    return "" if value is None or math.isnan(value) else repr(value)


def first_few(names: Sequence[str], max_names: int = 5) -> tuple[str, ...]:
    return tuple(names[:max_names])


def join_with_and(parts: Sequence[str]) -> str:
    """Join words with commas and "and".

    >>> join_with_and(["a"]), join_with_and(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


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
    return ", ".join(filter(None, map(format_change, names, before, after)))


def format_score(value: float) -> str:
    """Format a score: four decimals, and a dash for NaN.

    >>> format_score(0.5), format_score(math.nan)
    ('0.5000', '-')
    """
    return format_number(value, "score")


def format_level(share: float) -> str:
    """Format a confidence level as a percentage, with as few digits as it needs.

    >>> format_level(0.95), format_level(0.999)
    ('95%', '99.9%')
    """
    return f"{100 * share:.6g}%"


def format_distinct(value: float, other: float, style: str = "score") -> tuple[str, str]:
    """Format two numbers in a style, or with as many decimals as they need to differ.

    >>> format_distinct(0.5, 0.4), format_distinct(0.39996, 0.4), format_distinct(1, 1, "count")
    (('0.5000', '0.4000'), ('0.39996', '0.40000'), ('1', '1'))
    """
    texts = format_number(value, style), format_number(other, style)
    if texts[0] == texts[1] and abs(value - other) > 0:
        for digits in range(5, 16):
            texts = f"{value:.{digits}f}", f"{other:.{digits}f}"
            if texts[0] != texts[1]:
                break
    return texts


def format_significant(value: float, apart_from: float = math.nan) -> str:
    """Format a number with six significant digits, or as many as it needs to differ from another number.

    >>> format_significant(12345.678), format_significant(0.4, 0.4), format_significant(0.39999999, 0.4)
    ('12345.7', '0.4', '0.39999999')
    """
    digits = range(6, 17) if value != apart_from else range(6, 7)
    texts = (f"{value:.{digit}g}" for digit in digits if f"{value:.{digit}g}" != f"{apart_from:.{digit}g}")
    return next(texts, f"{value:.6g}")
