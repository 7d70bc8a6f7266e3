"""Sentences on the fastest store, with each filter and in comparison with the second."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.reports.sweeps_acceptance import failing
from ragauge.reports.sweeps_filters import (
    FilterKey,
    best_with_filter,
    list_filters,
    name_filter,
    name_setting,
    operating_points,
    without_filters,
)
from ragauge.reports.tables import counted, format_share, rate
from ragauge.sweeps import LEVEL, Point, Sweep

SIMILAR, SIMILAR_ONCE = 0.05, 0.2
"""Maximum relative difference in QPS of stores that are about equally fast, with repeats and without."""
SENTENCES = 2
"""Maximum number of filters that get one sentence each."""


def compare_speeds(head: str, qps: float, second: str, next_qps: float, both: Sequence[Point]) -> str:
    """Complete a sentence on the fastest store with its lead over the second."""
    spreads = [one.qps_spread for one in both if math.isfinite(one.qps_spread)]
    doubt = "; these times are doubtful" if any(one.clock.doubts for one in both) else ""
    if spreads and qps <= next_qps * (1 + max(spreads)):
        return f"{head}, but {second} ({rate(next_qps)}) is within what one store differs from time to time{doubt}."
    if qps < next_qps * (1 + (SIMILAR if spreads else SIMILAR_ONCE)):
        return f"{head}, about as many as {second} ({rate(next_qps)}){doubt}."
    return f"{head}, {qps / next_qps:.1f} times as many as {second}{doubt}."


def describe_filters(sweep: Sweep, stores: Sequence[str]) -> list[str]:
    """Name the fastest store with each filter, in one sentence per filter.

    If there are many filters, one sentence covers all of them. Stores that fail a requested rate or update are not
    recommended, unless all of them do.
    """
    keys = list_filters(sweep)
    others = list(failing(without_filters(sweep), stores))
    best = {key: best_with_filter(sweep, key, others) for key in keys}
    if len(keys) <= SENTENCES:
        return [_describe_filter(sweep, key, found, len(stores)) for key, found in best.items()]
    named: dict[str, list[str]] = {}
    for (name, selectivity), found in best.items():
        fastest = found[0].configuration.series if found else ""
        named.setdefault(fastest, []).append(f"`{name}`" if name else format_share(selectivity))
    told = [f"{', '.join(filters)}: {fastest or 'none'}" for fastest, filters in named.items()]
    return [f"Fastest store at recall {LEVEL:g} with the filter {'; '.join(told)}."]


def _describe_filter(sweep: Sweep, key: FilterKey, best: Sequence[Point], n_stores: int) -> str:
    head = f"With {name_filter(key)}"
    if not best:
        nearest = max(operating_points(sweep, key), key=lambda one: one.filters[0].recall)
        result = nearest.filters[0]
        wrong = f" and {counted(result.wrong, 'row')} that do not match" if result.wrong else ""
        told = f"{name_setting(nearest)} comes nearest, with recall {result.recall:.3f}{wrong}"
        return f"{head} no store reaches recall {LEVEL:g}{' with matching rows only' if wrong else ''}; {told}."
    first = best[0]
    among = " of those that pass everything else" if len(best) < len(best_with_filter(sweep, key)) else ""
    head += f" {name_setting(first)} is the fastest at recall {LEVEL:g}{among}: {rate(first.qps)} queries per second"
    if len(best) == 1:
        return f"{head}; no other store gets there." if n_stores > 1 and not among else f"{head}."
    return compare_speeds(head, first.qps, name_setting(best[1]), best[1].qps, best[:2])
