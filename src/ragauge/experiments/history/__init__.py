"""Collect scores and latencies of systems over time from run folders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ragauge import __version__
from ragauge.compute.progress import ProgressCallback, no_progress, track
from ragauge.core.errors import BadInput, MissingEvidence, RagaugeError, UnknownName
from ragauge.core.summaries import Mean
from ragauge.evaluation import indicators, parse_measures
from ragauge.evaluation.indicators import Indicator
from ragauge.experiments.history.rescoring import rescore_run
from ragauge.experiments.history.results import History, HistoryPoint
from ragauge.experiments.history.run_folders import (
    ExperimentSummary,
    MeanWithSpread,
    RunSummary,
    find_experiment_folders,
    mean_from_scores,
    read_experiment_summary,
    read_run_timings,
)
from ragauge.experiments.history.series import (
    PointSource,
    build_series,
    compare_last_points,
    indicator_for,
)
from ragauge.measures.conventions import PRESETS, find_convention, parse_convention
from ragauge.measures.latency import stage_latencies_ms, summarise_timings
from ragauge.measures.names import Measure
from ragauge.output.numbers import pluralise
from ragauge.runs.folder import utc_now
from ragauge.stats.comparisons import ComparisonSettings
from ragauge.stats.intervals import quantile_interval


def history(
    folders: str | Path | Iterable[str | Path] = "runs",
    *,
    measures: str | Iterable[str] | None = None,
    systems: str | Iterable[str] | None = None,
    datasets: str | Iterable[str] | None = None,
    convention: str | None = None,
    confidence: float = 0.95,
    progress: ProgressCallback = no_progress,
) -> History:
    """Return how measures of systems changed over time.

    Searches the given folders and their subfolders for results of `run`. `measures` are names of measures or of
    timings (`p95_ms`, `throughput`); the default is the measures that each folder was scored by. A measure that a
    folder lacks is computed from its run. If `convention` is given, all measures are computed under it.
    """
    settings = ComparisonSettings(confidence=confidence)
    paths = [folders] if isinstance(folders, str | Path) else list(folders)
    if not paths:
        raise BadInput("no folder given", hint="ragauge history runs")
    rules = None if convention is None else find_convention(convention)
    requested_indicators = (
        None if measures is None else [_find_history_indicator(name) for name in _names_list(measures)]
    )
    experiment_folders, skipped = find_experiment_folders(paths)
    experiments: dict[str, ExperimentSummary] = {}
    sources: list[PointSource] = []
    for folder, file_times in track(list(experiment_folders.items()), progress, "reading"):
        try:
            experiments[folder] = read_experiment_summary(Path(folder), file_times)
        except RagaugeError as error:
            skipped[folder] = error.message
        else:
            problems = experiments[folder].problems.items()
            skipped.update({str(Path(folder) / run_name): reason for run_name, reason in problems})
    selected = _select_runs(experiments, systems, datasets)
    for folder, experiment, run in track(selected, progress, "scoring"):
        rule = rules.name if rules is not None else experiment.convention
        try:
            for value in _requested_values(Path(folder), experiment, run, requested_indicators, rule, settings):
                mean = Mean(value.mean.value, value.mean.n, *_value_interval(value.mean, settings.confidence))
                dataset = str(run.data.get("name", ""))
                unit = indicator_for(value.name).unit
                point = HistoryPoint(run.finished, folder, run.name, value.name, mean, dataset=dataset, unit=unit)
                sources.append(PointSource(point, experiment, run, value.convention))
        except RagaugeError as error:
            skipped[str(Path(folder) / run.folder_name)] = error.message
    if not sources:
        raise _no_runs_error(paths, skipped)
    sources.sort(key=lambda source: (source.point.when, source.point.folder))
    series = build_series(sources)
    points = [source.point for in_series in series.values() for source in in_series]
    return History(
        sorted(points, key=lambda point: (point.when, point.folder)),
        confidence,
        skipped,
        compare_last_points(series, settings, progress),
        _history_notes(sources, selected if requested_indicators is None else ()),
        {"made": utc_now(), "ragauge": __version__, "convention": None if rules is None else rules.name},
    )


def _names_list(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _find_history_indicator(name: str) -> Indicator:
    indicator = indicators.find_indicator(name, PRESETS["default"])
    if indicator.source == "count":
        raise BadInput(
            f"`{name}` has no history; expected a measure or a time",
            hint=f"use a measure, or one of {', '.join(indicators.TIMING_NAMES)}",
        )
    return indicator


SelectedRun = tuple[str, ExperimentSummary, RunSummary]
"""Folder and summary of an experiment, and one of its runs."""


def _select_runs(
    experiments: Mapping[str, ExperimentSummary],
    systems: str | Iterable[str] | None,
    datasets: str | Iterable[str] | None,
) -> list[SelectedRun]:
    """Select the runs of the given systems and datasets; raise UnknownName for a name without a run."""
    runs = [(folder, experiment, run) for folder, experiment in experiments.items() for run in experiment.systems]
    for noun, names, name_of in (
        ("system", systems, lambda run: run.name),
        ("dataset", datasets, lambda run: str(run.data.get("name", ""))),
    ):
        if names is None or not runs:
            continue
        requested, known_names = _names_list(names), dict.fromkeys(name_of(run) for _, _, run in runs)
        for name in requested:
            if name not in known_names:
                raise UnknownName(noun, name, known_names, hint=f"choose one of {', '.join(list(known_names)[:10])}")
        runs = [selected for selected in runs if name_of(selected[2]) in requested]
    return runs


def _no_runs_error(folders: Sequence[str | Path], skipped: Mapping[str, str]) -> BadInput:
    searched = ", ".join(map(str, folders))
    if skipped:
        folder, reason = next(iter(skipped.items()))
        problem = reason if folder in reason else f"{folder}: {reason}"
        return BadInput(f"no readable result of `ragauge run` in {searched}: {problem}")
    return BadInput(f"no result of `ragauge run` in {searched}", hint="ragauge run pydocs -s bm25")


class _RequestedValue(NamedTuple):
    """Value of one measure or time of a run."""

    name: str
    mean: MeanWithSpread
    convention: str
    """Convention of its scores; empty if unknown."""


def _requested_values(
    folder: Path,
    experiment: ExperimentSummary,
    run: RunSummary,
    requested: Sequence[Indicator] | None,
    convention: str,
    settings: ComparisonSettings,
) -> Iterator[_RequestedValue]:
    """Yield the requested values of a system.

    An error is raised only after all available values are yielded.
    """
    selected = _default_indicators(experiment, run, convention) if requested is None else requested
    if not selected:
        raise MissingEvidence("; ".join(dict.fromkeys(run.uncomputed.values())))
    timings = [indicator for indicator in selected if indicator.source != "measure"]
    stored_values = run.means if convention == experiment.convention else {}
    rules = parse_convention(convention)
    names = {
        indicator: indicator.name
        if rules is None or indicator.name in stored_values
        else _canonical_measure_name(indicator.name, rules.name)
        for indicator in selected
        if indicator.source == "measure"
    }
    missing = [name for name in names.values() if name not in stored_values]
    computed: dict[str, MeanWithSpread] = {}
    failure: RagaugeError | None = None
    try:
        if timings:
            computed.update(_compute_timing_values(folder / run.folder_name, run, timings, settings.confidence))
        if missing:
            scores = rescore_run(folder, run.folder_name, missing, convention, experiment.judgments)
            computed.update({measure: mean_from_scores(scores, measure) for measure in scores.measures})
    except RagaugeError as error:
        failure = error
    for indicator in selected:
        name = names.get(indicator, indicator.name)
        if indicator in names and name in stored_values:
            yield _RequestedValue(
                name, stored_values[name], convention or ("" if run.has_current_scores else "default")
            )
        elif name in computed:
            yield _RequestedValue(name, computed[name], convention or "default")
    if failure is not None:  # Raise last, so that the values above are kept.
        raise failure


def _default_indicators(experiment: ExperimentSummary, run: RunSummary, convention: str) -> list[Indicator]:
    """Return the indicators that a run was scored by and that can be computed.

    Another convention may make measures available that could not be computed under the original one.
    """
    more = [
        measure
        for measure in run.uncomputed
        if convention != experiment.convention and indicators.find_measure(measure) is not None
    ]
    return [indicator_for(measure) for measure in (*run.means, *more)]


@lru_cache(maxsize=1000)
def _canonical_measure_name(name: str, convention: str) -> str:
    measure = parse_measures(name, parse_convention(convention) or PRESETS["default"])[0]
    return str(measure) if isinstance(measure, Measure) else measure.__name__


def _compute_timing_values(
    folder: Path, run: RunSummary, timing_indicators: Sequence[Indicator], confidence: float
) -> dict[str, MeanWithSpread]:
    """Compute timing values of a run. The value is NaN if the run lacks the stage."""
    timings = read_run_timings(folder)
    stages = {} if timings is None else stage_latencies_ms(timings)
    values_by_name: dict[str, MeanWithSpread] = {}
    for indicator in timing_indicators:
        value = MeanWithSpread(math.nan, 0)
        if indicator.name in run.costs:
            cost = run.costs[indicator.name]
            value = value if cost is None else MeanWithSpread(cost, 1)
        elif indicator.source == "whole" and timings is not None:
            speed = summarise_timings(timings)
            value = MeanWithSpread(speed.throughput, speed.asked - speed.failed - speed.timed_out)
        elif indicator.source == "latency":
            latencies = stages.get(indicator.stage, np.empty(0))
            if len(latencies):
                value = _compute_latency_statistic(latencies, indicator.statistic, confidence)
        values_by_name[indicator.name] = value
    return values_by_name


def _compute_latency_statistic(values: Any, statistic: str, confidence: float) -> MeanWithSpread:
    n = len(values)
    if statistic == "mean":
        return MeanWithSpread(float(values.mean()), n, float(values.std(ddof=1)) if n > 1 else math.nan)
    if statistic == "max":
        return MeanWithSpread(float(values.max()), n)
    share = int(statistic[1:]) / 100
    return MeanWithSpread(float(np.quantile(values, share)), n, math.nan, *quantile_interval(values, share, confidence))


def _value_interval(mean: MeanWithSpread, confidence: float) -> tuple[float, float]:
    """Return Student's t interval of a mean, or the stored interval of a percentile."""
    if math.isnan(mean.deviation):
        return mean.low, mean.high
    from scipy.special import stdtrit

    margin = float(stdtrit(mean.n - 1, (1 + confidence) / 2)) * mean.deviation / math.sqrt(mean.n)
    return mean.value - margin, mean.value + margin


def _history_notes(sources: Sequence[PointSource], selected: Sequence[SelectedRun]) -> list[str]:
    """Describe what limits the points, and which measures lack values."""
    notes = []
    scored: dict[tuple[str, str], set[str]] = {}
    for source in sources:
        scored.setdefault((source.point.folder, source.run.folder_name), set()).add(source.point.measure)
    unscored: dict[tuple[str, str], set[str]] = {}
    for folder, _, run in selected:
        scored_measures = scored.get((folder, run.folder_name), set())
        for measure, reason in run.uncomputed.items():
            if scored_measures and measure not in scored_measures:  # Runs without any value are reported as skipped.
                unscored.setdefault((measure, reason), set()).add(folder)
    for (measure, reason), folders in unscored.items():
        notes.append(f"{measure} is left out of {pluralise(len(folders), 'folder')} without scores of it: {reason}")
    unknown = {source.point.folder for source in sources if not source.convention and not source.point.is_timing}
    if unknown:
        notes.append(f"unknown convention of the scores in {pluralise(len(unknown), 'folder')}")
    measures = dict.fromkeys(source.point.measure for source in sources)
    undirected = [measure for measure in measures if not indicator_for(measure).direction_known]
    if undirected:
        notes.append(f"direction unknown, higher assumed to be better: {', '.join(undirected)}")
    shallow: dict[tuple[str, int], None] = {}
    for source in sources:
        k, point = source.run.plan.get("k"), source.point
        if isinstance(k, int) and math.isnan(point.mean.value) and _measure_cutoff(point.measure) > k:
            shallow[point.measure, k] = None
    notes += [f"{measure} is undefined for runs made with k={k}" for measure, k in shallow]
    return notes


@lru_cache(maxsize=1000)
def _measure_cutoff(name: str) -> int:
    """Return the cutoff of a measure, or 0 if it has none."""
    measure = indicators.find_measure(name)
    return 0 if measure is None else int(measure.cutoff or 0)
