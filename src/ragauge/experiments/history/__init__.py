"""Collect scores and latencies of systems over time from run folders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError, UnknownName
from ragauge.core.summaries import Mean
from ragauge.evaluation import indicators, parse_measures
from ragauge.evaluation.indicators import Indicator
from ragauge.experiments.history.rescoring import rescore_run
from ragauge.experiments.history.results import History, HistoryPoint
from ragauge.experiments.history.run_folders import (
    ExperimentSummary,
    FileTimes,
    MeanWithSpread,
    RunSummary,
    find_experiment_folders,
    mean_from_scores,
    read_experiment_summary,
    read_run_timings,
)
from ragauge.experiments.history.series import (
    HistoryProgressCallback,
    PointSource,
    build_series,
    compare_last_points,
    indicator_for,
)
from ragauge.measures.conventions import PRESETS, find_convention, parse_convention
from ragauge.measures.latency import stage_latencies_ms, summarise_timings
from ragauge.measures.names import Measure
from ragauge.stats.comparisons import ComparisonSettings
from ragauge.stats.intervals import quantile_interval

T = TypeVar("T")


def history(
    folders: str | Path | Iterable[str | Path] = "runs",
    *,
    measures: str | Iterable[str] | None = None,
    systems: str | Iterable[str] | None = None,
    datasets: str | Iterable[str] | None = None,
    convention: str | None = None,
    confidence: float = 0.95,
    watch: HistoryProgressCallback | None = None,
) -> History:
    """Return how measures of systems changed over time.

    Searches the given folders and their subfolders for results of `run`. `measures` are names of measures or of
    timings (`p95_ms`, `throughput`); the default is the measures that each folder was scored by. A measure that a
    folder lacks is computed from its run. If `convention` is given, all measures are computed under it.

    `watch` is called with the current step, the number of items done and their total.
    """
    method = ComparisonSettings(confidence=confidence)
    given = [folders] if isinstance(folders, str | Path) else list(folders)
    if not given:
        raise BadInput("no folder is given", hint="runs")
    rules = None if convention is None else find_convention(convention)
    wanted = None if measures is None else [_find_history_indicator(one) for one in _names_list(measures)]
    found, skipped = find_experiment_folders(given)
    kept: dict[str, ExperimentSummary] = {}
    stands: list[PointSource] = []
    for folder, entry in _iterate_with_progress(_read_folders(found, skipped), "reads", len(found), watch):
        kept[folder] = entry
    chosen = _select_runs(kept, systems, datasets)
    for folder, entry, told in _iterate_with_progress(iter(chosen), "scores", len(chosen), watch):
        rule = rules.name if rules is not None else entry.convention
        try:
            for name, tally, timed, under in _requested_values(Path(folder), entry, told, wanted, rule, method):
                mean = Mean(tally.value, tally.n, *_value_interval(tally, method.confidence))
                dataset = str(told.data.get("name", ""))
                point = HistoryPoint(told.finished, folder, told.name, name, mean, "", dataset)
                stands.append(PointSource(point, entry, told, timed, under))
        except RagaugeError as error:
            skipped[str(Path(folder) / told.place)] = error.message
    if not stands:
        raise _no_runs_error(given, skipped)
    stands.sort(key=lambda one: (one.point.when, one.point.folder))
    series = build_series(stands)
    changes, comparable = compare_last_points(series, method, watch)
    points = [one.point for mine in series.values() for one in mine]
    return History(
        sorted(points, key=lambda one: (one.when, one.folder)),
        confidence,
        skipped,
        changes,
        comparable,
        _history_notes(stands, chosen if wanted is None else ()),
    )


def _names_list(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _find_history_indicator(name: str) -> Indicator:
    found = indicators.find_indicator(name, PRESETS["default"])
    if found.source == "count":
        raise BadInput(f"`{name}` has no history", hint=f"a measure, or one of {', '.join(indicators.TIMING_NAMES)}")
    return found


def _iterate_with_progress(
    things: Iterator[T], what: str, total: int, watch: HistoryProgressCallback | None
) -> Iterator[T]:
    for done, one in enumerate(things):
        if watch is not None:
            watch(what, done, total)
        yield one


def _read_folders(found: Mapping[str, FileTimes], skipped: dict[str, str]) -> Iterator[tuple[str, ExperimentSummary]]:
    """Yield the summary of each folder that can be read."""
    for folder, changed in found.items():
        try:
            entry = read_experiment_summary(Path(folder), changed)
        except RagaugeError as error:
            skipped[folder] = error.message
            continue
        yield folder, entry
        skipped.update({str(Path(folder) / place): why for place, why in entry.problems.items()})


def _select_runs(
    kept: Mapping[str, ExperimentSummary], systems: str | Iterable[str] | None, datasets: str | Iterable[str] | None
) -> list[tuple[str, ExperimentSummary, RunSummary]]:
    everything = [(folder, entry, told) for folder, entry in kept.items() for told in entry.systems]
    for what, names, of in (
        ("system", systems, lambda told: told.name),
        ("dataset", datasets, lambda told: str(told.data.get("name", ""))),
    ):
        if names is None or not everything:
            continue
        asked, there = _names_list(names), dict.fromkeys(of(told) for _, _, told in everything)
        for name in asked:
            if name not in there:
                raise UnknownName(what, name, there, hint=f"there are {', '.join(list(there)[:10])}")
        everything = [one for one in everything if of(one[2]) in asked]
    return everything


def _no_runs_error(given: Sequence[str | Path], skipped: Mapping[str, str]) -> BadInput:
    where = ", ".join(map(str, given))
    if skipped:
        folder, why = next(iter(skipped.items()))
        return BadInput(f"nothing that can be read is below {where}: {why if folder in why else f'{folder}: {why}'}")
    return BadInput(f"no folder that `ragauge run` wrote is below {where}", hint="ragauge run pydocs -s bm25")


def _requested_values(
    folder: Path,
    entry: ExperimentSummary,
    told: RunSummary,
    wanted: Sequence[Indicator] | None,
    convention: str,
    method: ComparisonSettings,
) -> Iterator[tuple[str, MeanWithSpread, bool, str]]:
    """Yield the requested values of a system.

    Each is a tuple of name, value, whether it is a timing, and the convention ("" if unknown). An error is raised
    only after all available values are yielded.
    """
    asked = _default_indicators(entry, told, convention) if wanted is None else wanted
    if not asked:
        raise MissingEvidence("; ".join(dict.fromkeys(told.uncounted.values())))
    timed = [one for one in asked if one.source != "measure"]
    own = told.tallies if convention == entry.convention else {}
    rules = parse_convention(convention)
    names = {
        one: one.name if rules is None or one.name in own else _canonical_measure_name(one.name, rules.name)
        for one in asked
        if one.source == "measure"
    }
    lacks = [name for name in names.values() if name not in own]
    computed: dict[str, MeanWithSpread] = {}
    failed: RagaugeError | None = None
    try:
        if timed:
            computed.update(_compute_timing_values(folder / told.place, told, timed, method.confidence))
        if lacks:
            scores = rescore_run(folder, told.place, lacks, convention, entry.judgments)
            computed.update({one: mean_from_scores(scores, one) for one in scores.measures})
    except RagaugeError as error:
        failed = error
    for one in asked:
        is_time = one.source != "measure"
        name = one.name if is_time else names[one]
        if not is_time and name in own:
            yield name, own[name], False, convention or ("" if told.scored else "default")
        elif name in computed:
            yield name, computed[name], is_time, convention or "default"
    if failed is not None:  # Raise last, so that the values above are kept.
        raise failed


def _default_indicators(entry: ExperimentSummary, told: RunSummary, convention: str) -> list[Indicator]:
    """Return the indicators that a run was scored by and that can be computed.

    Another convention may make measures available that could not be computed under the original one.
    """
    more = [
        one for one in told.uncounted if convention != entry.convention and indicators.find_measure(one) is not None
    ]
    return [indicator_for(one) for one in (*told.tallies, *more)]


@lru_cache(maxsize=1000)
def _canonical_measure_name(measure: str, convention: str) -> str:
    one = parse_measures(measure, parse_convention(convention) or PRESETS["default"])[0]
    return str(one) if isinstance(one, Measure) else one.__name__


def _compute_timing_values(
    run: Path, told: RunSummary, wanted: Sequence[Indicator], confidence: float
) -> dict[str, MeanWithSpread]:
    """Compute timing values of a run. The value is NaN if the run lacks the stage."""
    timings = read_run_timings(run)
    stages = {} if timings is None else stage_latencies_ms(timings)
    found: dict[str, MeanWithSpread] = {}
    for one in wanted:
        tally = MeanWithSpread(math.nan, 0)
        if one.name in told.costs:
            cost = told.costs[one.name]
            tally = tally if cost is None else MeanWithSpread(cost, 1)
        elif one.source == "whole" and timings is not None:
            whole = summarise_timings(timings)
            tally = MeanWithSpread(whole.throughput, whole.asked - whole.failed - whole.timed_out)
        elif one.source == "latency":
            stage, statistic = indicators.split_latency_name(one)
            values = stages.get(stage, np.empty(0))
            tally = tally if not len(values) else _compute_latency_statistic(values, statistic, confidence)
        found[one.name] = tally
    return found


def _compute_latency_statistic(values: Any, statistic: str, confidence: float) -> MeanWithSpread:
    n = len(values)
    if statistic == "mean":
        return MeanWithSpread(float(values.mean()), n, float(values.std(ddof=1)) if n > 1 else math.nan)
    if statistic == "max":
        return MeanWithSpread(float(values.max()), n)
    share = int(statistic[1:]) / 100
    return MeanWithSpread(float(np.quantile(values, share)), n, math.nan, *quantile_interval(values, share, confidence))


def _value_interval(tally: MeanWithSpread, confidence: float) -> tuple[float, float]:
    """Return Student's t interval of a mean, or the stored interval of a percentile."""
    if math.isnan(tally.deviation):
        return tally.low, tally.high
    from scipy.special import stdtrit

    reach = float(stdtrit(tally.n - 1, (1 + confidence) / 2)) * tally.deviation / math.sqrt(tally.n)
    return tally.value - reach, tally.value + reach


def _history_notes(
    stands: Sequence[PointSource], chosen: Sequence[tuple[str, ExperimentSummary, RunSummary]]
) -> list[str]:
    """Describe what limits the points, and which measures lack values."""
    notes = []
    left: dict[tuple[str, str], set[str]] = {}
    there: dict[tuple[str, str], set[str]] = {}
    for one in stands:
        there.setdefault((one.point.folder, one.told.place), set()).add(one.point.measure)
    for folder, _, told in chosen:
        known = there.get((folder, told.place), set())
        for measure, why in told.uncounted.items():
            if known and measure not in known:  # Runs without any value are reported as skipped.
                left.setdefault((measure, why), set()).add(folder)
    for (measure, why), those in left.items():
        notes.append(
            f"{measure} is left out of {len(those)} folder{'s' * (len(those) != 1)} without scores of it: {why}"
        )
    unknown = {one.point.folder for one in stands if not one.convention and not one.timed}
    if unknown:
        notes.append(f"under which convention {len(unknown)} of the folders were scored is not known")
    undirected = list(dict.fromkeys(m for one in stands if not indicator_for(m := one.point.measure).direction_known))
    if undirected:
        notes.append(f"direction unknown, higher assumed to be better: {', '.join(undirected)}")
    shallow: dict[tuple[str, int], None] = {}
    for one in stands:
        k = one.told.plan.get("k")
        if (
            isinstance(k, int)
            and not one.timed
            and _measure_cutoff(one.point.measure) > k
            and math.isnan(one.point.mean.value)
        ):
            shallow[one.point.measure, k] = None
    notes += [f"{measure} is undefined for runs made with k={k}" for measure, k in shallow]
    return notes


@lru_cache(maxsize=1000)
def _measure_cutoff(measure: str) -> int:
    """Return the cutoff of a measure, or 0 if it has none."""
    found = indicators.find_measure(measure)
    return 0 if found is None else int(found.cutoff or 0)
