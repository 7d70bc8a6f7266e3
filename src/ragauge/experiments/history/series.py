"""Group points into series and compare the last point of each with earlier ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.core.errors import RagaugeError
from ragauge.evaluation import indicators
from ragauge.evaluation.directions import is_lower_better
from ragauge.evaluation.indicators import Indicator
from ragauge.experiments.history.results import HistoryChange, HistoryPoint
from ragauge.experiments.history.run_folders import ExperimentSummary, RunSummary, ScoreTables, load_query_values
from ragauge.measures.conventions import PRESETS
from ragauge.stats.comparisons import Comparison, ComparisonSettings
from ragauge.stats.paired_tests import correct_p_values
from ragauge.stats.system_pairs import SystemPair, compare_pairs

HistoryProgressCallback = Callable[[str, int, int], None]
"""Progress callback with the current step, the number of items done, and their total."""
REFERENCE_POINTS = ("first", "before", "best")


class PointSource(NamedTuple):
    """Point of a history with the run and folder summaries it was computed from."""

    point: HistoryPoint
    kept: ExperimentSummary
    told: RunSummary
    timed: bool
    convention: str


@lru_cache(maxsize=1000)
def indicator_for(measure: str) -> Indicator:
    """Return the indicator with a given name.

    A user-defined measure has only its name.
    """
    try:
        return replace(indicators.find_indicator(measure, PRESETS["default"]), name=measure)
    except RagaugeError:
        lower = is_lower_better(measure)
        return Indicator(measure, lower_is_better=bool(lower), direction_known=lower is not None)


def build_series(stands: Sequence[PointSource]) -> dict[tuple[str, str, str], list[PointSource]]:
    """Group points by dataset, system and measure, in their order.

    Each point's `changed` describes what differs from the previous point of its series.
    """
    found: dict[tuple[str, str, str], list[PointSource]] = {}
    for one in stands:
        mine = found.setdefault((one.point.dataset, one.point.system, one.point.measure), [])
        words = describe_differences(mine[-1], one) if mine else []
        mine.append(one._replace(point=replace(one.point, changed=", ".join(words))))
    return found


def describe_differences(before: PointSource, after: PointSource) -> list[str]:
    """Describe the differences between two points other than the system.

    Only values known for both points are compared.
    """
    (mine, theirs), words = (after.told, before.told), []
    for what in ("documents", "queries"):
        hashes = [one.data.get(f"{what}_hash") for one in (theirs, mine)]
        counts = [one.data.get(what) for one in (theirs, mine)]
        if None in hashes:
            hashes = counts
        if None not in hashes and hashes[0] != hashes[1]:
            words.append(_describe_change(counts, what) or f"other {what}")
    if not after.timed:
        if not words and before.kept.judgments != after.kept.judgments:
            words.append("other judgments")
        if before.convention and after.convention and before.convention != after.convention:
            words.append(f"convention {before.convention} -> {after.convention}")
        if not words and before.point.mean.n != after.point.mean.n:
            words.append(_describe_change([before.point.mean.n, after.point.mean.n], "scored queries"))
    words.append(_describe_change([theirs.plan.get("k"), mine.plan.get("k")], "documents a query"))
    if after.timed:
        words.append(_describe_change([theirs.plan.get("workers"), mine.plan.get("workers")], "workers"))
        words += _machine_differences(theirs.machine, mine.machine)
    return [word for word in words if word]


def _describe_change(pair: Sequence[Any], what: str) -> str:
    """Describe a change, e.g.

    `10 -> 20 documents`. Empty if equal or if a value is None.
    """
    old, new = pair
    if old is None or new is None or old == new:
        return ""
    return f"{old:,} -> {new:,} {what}" if isinstance(old, int) and isinstance(new, int) else f"{old} -> {new} {what}"


def _machine_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describe differences between machines.

    Memory is compared in whole GiB, because the reported bytes vary.
    """
    sizes = [one.get("memory_bytes") for one in (before, after)]
    memory = [round(one / 2**30) if isinstance(one, int) else None for one in sizes]
    others = [
        f"other {what}" for what in ("processor", "system") if _describe_change([before.get(what), after.get(what)], "")
    ]
    return [
        *(one.replace("other system", "other operating system") for one in others),
        _describe_change([before.get("cores"), after.get("cores")], "cores"),
        _describe_change(memory, "GiB of memory"),
    ]


def compare_last_points(
    series: Mapping[tuple[str, str, str], list[PointSource]],
    method: ComparisonSettings,
    watch: HistoryProgressCallback | None = None,
) -> tuple[list[HistoryChange], dict[tuple[str, str, str], int]]:
    """Compare the last point of each series with comparable earlier ones.

    These are the first, the previous and the best one. Returns the changes and the number of comparable points by
    series.
    """
    comparable: dict[tuple[str, str, str], int] = {}
    couples: list[tuple[str, PointSource, PointSource]] = []
    for key, mine in series.items():
        last = mine[-1]
        earlier = [
            one for one in mine[:-1] if not describe_differences(one, last) and not math.isnan(one.point.mean.value)
        ]
        comparable[key] = 1 + len(earlier)
        if not earlier or math.isnan(last.point.mean.value):
            continue
        sign = -1 if _is_lower_better(last) else 1
        best = max(earlier, key=lambda one: sign * one.point.mean.value)
        couples += [
            (kind, one, last) for kind, one in zip(REFERENCE_POINTS, (earlier[0], earlier[-1], best), strict=True)
        ]
    tested = _test_pairs([(since, last) for _, since, last in couples if _is_paired(last)], method, watch)
    changes: list[HistoryChange] = []
    for kind in REFERENCE_POINTS:
        those = [(since, last) for one, since, last in couples if one == kind]
        rows = {
            place: row
            for place, row in ((place, tested.get(place)) for place in map(_pair_ids, those))
            if row is not None
        }
        p = correct_p_values(np.array([row.p_t for row in rows.values()], np.float64), method.correction)
        rows = {place: replace(row, p_corrected=float(one)) for (place, row), one in zip(rows.items(), p, strict=True)}
        changes += [
            HistoryChange(kind, one.point, last.point, _is_lower_better(last), rows.get(_pair_ids((one, last))))
            for one, last in those
        ]
    order = list(series)
    return sorted(changes, key=lambda one: order.index(_series_key(one.last))), comparable


def _pair_ids(couple: tuple[PointSource, PointSource]) -> tuple[int, int]:
    return id(couple[0]), id(couple[1])


def _series_key(point: HistoryPoint) -> tuple[str, str, str]:
    return point.dataset, point.system, point.measure


def _is_lower_better(one: PointSource) -> bool:
    return indicator_for(one.point.measure).lower_is_better


def _is_paired(one: PointSource) -> bool:
    return not one.timed and indicator_for(one.point.measure).paired


def _test_pairs(
    couples: Sequence[tuple[PointSource, PointSource]],
    method: ComparisonSettings,
    watch: HistoryProgressCallback | None,
) -> dict[tuple[int, int], Comparison]:
    """Run paired tests query by query.

    Omits a pair if a folder is unreadable or the queries differ.
    """
    alike: dict[tuple[str, ...], dict[tuple[int, int], SystemPair]] = {}
    tables: ScoreTables = {}
    for done, (since, last) in enumerate(couples):
        if watch is not None:
            watch("compares", done, len(couples))
        columns = []
        for one in (since, last):
            try:
                columns.append(
                    load_query_values(
                        Path(one.point.folder), one.told, one.point.measure, one.convention, one.kept, tables
                    )
                )
            except RagaugeError:
                break
        if len(columns) < 2 or columns[0].keys() != columns[1].keys():
            continue
        queries = tuple(sorted(columns[0]))
        base, mine = (np.array([[column[query] for query in queries]]) for column in columns)
        names = since.point.folder, last.point.folder
        pair = SystemPair(last.point.measure, *names, queries, base, mine, lower_is_better=_is_lower_better(last))
        alike.setdefault(queries, {})[_pair_ids((since, last))] = pair
    found: dict[tuple[int, int], Comparison] = {}
    for group in alike.values():
        found.update(zip(group, compare_pairs(list(group.values()), method), strict=True))
    return found
