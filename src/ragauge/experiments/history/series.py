"""Group points into series and compare the last point of each with earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge.compute.progress import ProgressCallback, no_progress, track
from ragauge.core.errors import RagaugeError
from ragauge.evaluation import indicators
from ragauge.evaluation.directions import is_lower_better
from ragauge.evaluation.indicators import Indicator
from ragauge.experiments.history.results import HistoryChange, HistoryPoint, SeriesKey
from ragauge.experiments.history.run_folders import ExperimentSummary, RunSummary, ScoreTables, load_query_values
from ragauge.measures.conventions import PRESETS
from ragauge.stats.comparisons import Comparison, ComparisonSettings
from ragauge.stats.paired_tests import correct_p_values
from ragauge.stats.system_pairs import SystemPair, compare_pairs

REFERENCE_POINTS = ("first", "before", "best")


class PointSource(NamedTuple):
    """Point of a history with the folder and run summaries it was computed from."""

    point: HistoryPoint
    experiment: ExperimentSummary
    run: RunSummary
    convention: str


Series = Mapping[SeriesKey, Sequence[PointSource]]
PairKey = tuple[SeriesKey, str]
"""A series and the folder of the earlier point."""


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


def build_series(sources: Sequence[PointSource]) -> Series:
    """Group points by dataset, system and measure, in their order.

    Each point gets a description of what differs from the previous point of its series (`changed`), and whether it is
    comparable with the last one.
    """
    series: dict[SeriesKey, list[PointSource]] = {}
    for source in sources:
        points = series.setdefault(source.point.series, [])
        changed = ", ".join(describe_differences(points[-1], source)) if points else ""
        points.append(source._replace(point=replace(source.point, changed=changed)))
    return {key: [_mark_comparable(source, points[-1]) for source in points] for key, points in series.items()}


def _mark_comparable(source: PointSource, last: PointSource) -> PointSource:
    comparable = source is last or (not math.isnan(source.point.mean.value) and not describe_differences(source, last))
    return source._replace(point=replace(source.point, comparable=comparable))


def describe_differences(before: PointSource, after: PointSource) -> list[str]:
    """Describe the differences between two points other than the system.

    Only values known for both points are compared.
    """
    old, new = before.run, after.run
    differences = []
    for noun in ("documents", "queries"):
        hashes = [run.data.get(f"{noun}_hash") for run in (old, new)]
        counts = [run.data.get(noun) for run in (old, new)]
        if None in hashes:
            hashes = counts
        if None not in hashes and hashes[0] != hashes[1]:
            differences.append(_describe_change(counts, noun) or f"other {noun}")
    is_timing = after.point.is_timing
    if not is_timing:
        if not differences and before.experiment.judgments != after.experiment.judgments:
            differences.append("other judgments")
        if before.convention and after.convention and before.convention != after.convention:
            differences.append(f"convention {before.convention} -> {after.convention}")
        if not differences and before.point.mean.n != after.point.mean.n:
            differences.append(_describe_change([before.point.mean.n, after.point.mean.n], "scored queries"))
    differences.append(_describe_change([old.plan.get("k"), new.plan.get("k")], "documents per query"))
    if is_timing:
        differences.append(_describe_change([old.plan.get("workers"), new.plan.get("workers")], "workers"))
        differences += _describe_machine_differences(old.machine, new.machine)
    return [difference for difference in differences if difference]


def _describe_change(pair: Sequence[Any], noun: str) -> str:
    """Describe a change, e.g. `10 -> 20 documents`. Empty if equal or if a value is None."""
    old, new = pair
    if old is None or new is None or old == new:
        return ""
    return f"{old:,} -> {new:,} {noun}" if isinstance(old, int) and isinstance(new, int) else f"{old} -> {new} {noun}"


def _describe_machine_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describe differences between machines.

    Memory is compared in whole GiB, because the reported bytes vary.
    """
    sizes = [machine.get("memory_bytes") for machine in (before, after)]
    memory = [round(size / 2**30) if isinstance(size, int) else None for size in sizes]
    parts = {"processor": "other processor", "system": "other operating system"}
    return [
        *(text for part, text in parts.items() if _describe_change([before.get(part), after.get(part)], "")),
        _describe_change([before.get("cores"), after.get("cores")], "cores"),
        _describe_change(memory, "GiB of memory"),
    ]


def compare_last_points(
    series: Series, settings: ComparisonSettings, progress: ProgressCallback = no_progress
) -> list[HistoryChange]:
    """Compare the last point of each series with comparable earlier ones: the first, the previous and the best."""
    pairs: list[tuple[str, PointSource, PointSource]] = []
    for points in series.values():
        last = points[-1]
        earlier = [source for source in points[:-1] if source.point.comparable]
        if not earlier or math.isnan(last.point.mean.value):
            continue
        sign = -1 if _is_lower_better(last) else 1
        best = max(earlier, key=lambda source: sign * source.point.mean.value)
        references = zip(REFERENCE_POINTS, (earlier[0], earlier[-1], best), strict=True)
        pairs += [(against, since, last) for against, since in references]
    tested = _test_pairs([(since, last) for _, since, last in pairs if _is_paired(last)], settings, progress)
    changes: list[HistoryChange] = []
    for reference in REFERENCE_POINTS:
        same = {_pair_key(since, last): (since, last) for against, since, last in pairs if against == reference}
        comparisons = {key: tested[key] for key in same if key in tested}
        p_values = np.array([comparison.p_t for comparison in comparisons.values()], np.float64)
        corrected = correct_p_values(p_values, settings.correction)
        comparisons = {
            key: replace(comparison, p_corrected=float(p))
            for (key, comparison), p in zip(comparisons.items(), corrected, strict=True)
        }
        changes += [
            HistoryChange(reference, since.point, last.point, _is_lower_better(last), comparisons.get(key))
            for key, (since, last) in same.items()
        ]
    order = list(series)
    return sorted(changes, key=lambda change: order.index(change.last.series))


def _pair_key(since: PointSource, last: PointSource) -> PairKey:
    return last.point.series, since.point.folder


def _is_lower_better(source: PointSource) -> bool:
    return indicator_for(source.point.measure).lower_is_better


def _is_paired(source: PointSource) -> bool:
    return not source.point.is_timing and indicator_for(source.point.measure).paired


def _test_pairs(
    pairs: Sequence[tuple[PointSource, PointSource]], settings: ComparisonSettings, progress: ProgressCallback
) -> dict[PairKey, Comparison]:
    """Run paired tests query by query.

    Omits a pair if a folder is unreadable or the queries differ.
    """
    pairs_by_queries: dict[tuple[str, ...], dict[PairKey, SystemPair]] = {}
    tables: ScoreTables = {}
    for since, last in track(pairs, progress, "comparing"):
        columns = []
        for source in (since, last):
            try:
                columns.append(
                    load_query_values(
                        Path(source.point.folder),
                        source.run,
                        source.point.measure,
                        source.convention,
                        source.experiment,
                        tables,
                    )
                )
            except RagaugeError:
                break
        if len(columns) < 2 or columns[0].keys() != columns[1].keys():
            continue
        queries = tuple(sorted(columns[0]))
        before, after = (np.array([[column[query] for query in queries]]) for column in columns)
        folders = since.point.folder, last.point.folder
        pair = SystemPair(last.point.measure, *folders, queries, before, after, lower_is_better=_is_lower_better(last))
        pairs_by_queries.setdefault(queries, {})[_pair_key(since, last)] = pair
    tested: dict[PairKey, Comparison] = {}
    for group in pairs_by_queries.values():
        compared = compare_pairs(list(group.values()), settings)
        # A history keeps no values of single queries.
        tested.update(zip(group, (replace(comparison, moved=()) for comparison in compared), strict=True))
    return tested
