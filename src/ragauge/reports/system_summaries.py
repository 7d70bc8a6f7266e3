"""Compute means with intervals, curves over k and strata for an overview."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ragauge.comparison.results import MeasureCurve, StratumMeans, SystemSummary
from ragauge.core.errors import MissingEvidence, UnknownName
from ragauge.core.records import Dataset, Floats, MeasureDict, Run, Scores
from ragauge.core.summaries import Mean
from ragauge.datasets.queries import COMPLEXITY_LEVELS, tags_from_judgments
from ragauge.measures.conventions import Convention
from ragauge.measures.latency import stage_latencies_ms, summarise_timings
from ragauge.measures.names import Measure, parse_measure_names
from ragauge.measures.scoring import score_judged_ranks
from ragauge.runs.results import Experiment, canonical_tag
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.repeated_trials import Variation, analyse_variation, trial_intervals
from ragauge.stats.smallest_k import SmallestK, smallest_k_each

CURVE_CUTOFFS = (1, 2, 3, 5, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
CURVE_MEASURES = ("hit_rate", "recall")
MAX_STRATA = 12
MIN_SECOND_STRATUM_QUERIES = 10
"""Minimum number of queries in the second largest stratum of a tag that is shown by default."""
STRATA_ORDER = (*COMPLEXITY_LEVELS, "none", "some", "most", "one", "few", "many")
MAX_TAGS = 6
TagsByQuery = Mapping[str, Mapping[str, str]]
ScoresByTrial = Mapping[str, Sequence[Scores]]
"""`{system: scores of each trial}`."""


def summarise_systems(
    trials: ScoresByTrial, measures: Sequence[str], runs: Mapping[str, Run], confidence: float
) -> dict[str, SystemSummary]:
    """Summarise each system: means with intervals, timings, costs and failures."""
    bare = {name: SystemSummary(name, {}, scores) for name, scores in trials.items()}
    means = _means_with_intervals(bare, measures, confidence)
    systems = {}
    for name, scores in trials.items():
        run = runs.get(name)
        timings = None if run is None else run.timings
        about = {} if run is None else run.manifest
        systems[name] = SystemSummary(
            name,
            means[name],
            scores,
            run,
            None if timings is None else summarise_timings(timings),
            {} if timings is None else stage_latencies_ms(timings),
            _find_costs(about),
            {} if run is None else _find_failed_queries(run),
            variation=_variation_by_measure(bare[name], measures),
        )
    return systems


def _find_costs(about: Mapping[str, Any]) -> dict[str, float]:
    """Return the build time and the latency of the first query.

    The time of a cached build is NaN.
    """
    costs = {key: float(about[key]) for key in ("build_seconds", "cold_ms") if about.get(key) is not None}
    return {"build_seconds": math.nan, **costs} if about.get("build_cached") is True else costs


def _variation_by_measure(entry: SystemSummary, measures: Sequence[str]) -> dict[str, Variation]:
    """Compute the variance components by measure.

    Empty for a system with a single trial.
    """
    if len(entry.scores) < 2:
        return {}
    found = {m: analyse_variation(entry.table(m)) for m in measures if m in entry.scores[0].values}
    return {measure: variation for measure, variation in found.items() if variation is not None}


def restrict_to(scores: Scores, queries: Sequence[str]) -> Scores:
    """Restrict scores to some queries. A missing query scores 0."""
    places = {query: i for i, query in enumerate(scores.queries)}
    kept = {
        measure: np.array([column[places[query]] if query in places else 0.0 for query in queries])
        for measure, column in scores.values.items()
    }
    named = scores.values._canonical
    return replace(
        scores,
        queries=list(queries),
        values=MeasureDict(kept, named),
        means=MeasureDict({measure: _scored_mean(column) for measure, column in kept.items()}, named),
        unscored=MeasureDict(
            {m: {q: why for q, why in told.items() if q in set(queries)} for m, told in scores.unscored.items()}, named
        ),
        judged=None,
        notes=(),  # The notes refer to queries that are left out.
    )


def _means_with_intervals(
    systems: Mapping[str, SystemSummary], measures: Sequence[str], confidence: float
) -> dict[str, dict[str, Mean]]:
    """Compute means with intervals.

    Systems with the same number of queries are resampled together, which costs no more.
    """
    intervals: dict[str, dict[str, Mean]] = {name: {} for name in systems}
    sizes: dict[int, list[tuple[str, str, Floats]]] = {}
    for name, entry in systems.items():
        for measure in measures:
            if measure in entry.scores[0].values:
                table = entry.table(measure)
                sizes.setdefault(table.shape[1], []).append((name, measure, table))
    for rows in sizes.values():
        ends = _trial_mean_intervals([table for _, _, table in rows], confidence)
        for (name, measure, table), low, high in zip(rows, *ends.tolist(), strict=True):
            means = [scores.means[measure] for scores in systems[name].scores]
            told = float(np.mean(means))
            n = int((~np.isnan(table)).any(axis=0).sum())
            # A sum or a geometric mean has no bootstrap interval over queries.
            averages = all(_is_close(mean, _scored_mean(values)) for mean, values in zip(means, table, strict=True))
            # Rounding must not put the mean outside its interval if all values are equal.
            intervals[name][measure] = Mean(told, n, min(low, told), max(high, told)) if averages else Mean(told, n)
    return {name: {m: intervals[name][m] for m in measures if m in intervals[name]} for name in systems}


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def _trial_mean_intervals(tables: Sequence[Floats], confidence: float, rounds: int = 10_000) -> Floats:
    """Compute the interval of the mean of each table of trials by queries.

    Returns a row of lower and a row of upper ends. Resamples queries, and also trials if they differ. Queries
    without a value in some trial are left out, and the interval is then shifted to the mean of all queries.
    """
    whole = [table.mean(axis=0) for table in tables]  # NaN if any trial has no value.
    ends = mean_intervals(np.column_stack(whole), confidence, rounds=rounds)
    several: dict[bytes, list[int]] = {}
    for place, (table, values) in enumerate(zip(tables, whole, strict=True)):
        scored = ~np.isnan(values)
        if scored.sum() > 1 and (table[:, scored] != table[0, scored]).any():
            several.setdefault(scored.tobytes(), []).append(place)
    for places in several.values():
        scored = ~np.isnan(whole[places[0]])
        ends[:, places] = np.transpose(
            trial_intervals([tables[i][:, scored] for i in places], confidence, rounds=rounds)
        )
    for place, (table, values) in enumerate(zip(tables, whole, strict=True)):
        if len(table) > 1 and (np.isnan(values) & ~np.isnan(table).all(axis=0)).any():
            ends[:, place] += float(np.mean([_scored_mean(row) for row in table])) - _scored_mean(values)
    return ends


def _find_failed_queries(run: Run) -> dict[str, str]:
    """Return `{query: error}` of the queries that failed or timed out."""
    if run.timings is None:
        return {}
    rows = run.timings.filter(run.timings["status"] != "ok").select("query", "status", "error").iter_rows()
    return {query: error or ("timed out" if status == "timeout" else status) for query, status, error in rows}


def build_curves(
    trials: ScoresByTrial, rules: Convention | None, queries: Sequence[str], runs: Mapping[str, Run]
) -> list[MeasureCurve]:
    """Compute hit rate and recall over k.

    They are computed from judged ranks, else taken from the available cutoffs. A curve ends at the k that was
    requested, or at the number of returned documents if that is unknown.
    """
    counted = rules is not None and all(score.judged is not None for scores in trials.values() for score in scores)
    curves = []
    for measure in CURVE_MEASURES:
        values: dict[str, dict[int, Floats]] = {}
        for name, scores in trials.items():
            if counted and rules is not None:
                deep = max(int(scores.judged.retrieved.max(initial=0)) for scores in scores)
                asked = (runs[name].manifest.get("plan") or {}).get("k", 0) if name in runs else 0
                mine = [_scores_over_k(scores, measure, max(deep, asked), rules) for scores in scores]
            else:
                mine = [_scores_at_cutoffs(scores, measure) for scores in scores]
            shared = set.intersection(*(set(scores.values) for scores in mine))
            entry = SystemSummary(name, {}, [restrict_to(scores, queries) for scores in mine])
            if shared:
                values[name] = {int(k): entry.values(k) for k in sorted(shared, key=int)}
        ks = sorted({k for mine in values.values() for k in mine})
        if len(ks) > 1:
            means = {
                name: [_scored_mean(mine[k]) if k in mine else math.nan for k in ks] for name, mine in values.items()
            }
            label = _curve_label(trials, measure, rules if counted else None)
            curves.append(MeasureCurve(label, ks, means, _recommend_k(values, label)))
    return curves


def _curve_label(trials: ScoresByTrial, measure: str, rules: Convention | None) -> str:
    """Return the name of a measure with its options and without a cutoff, e.g. `recall(rel=2)`.

    The options are those of the convention, or without one those of the given scores if they agree.
    """
    if rules is not None:
        return str(parse_measure_names([f"{measure}@1"], rules)[0]).removesuffix("@1")
    names = [re.fullmatch(r"(.+)@\d+", value) for scores in trials.values() for value in scores[0].values]
    labels = {parts[1] for parts in names if parts and _base_measure_name(parts[1]) == measure}
    return labels.pop() if len(labels) == 1 else measure


def _scored_mean(values: Floats) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else math.nan


def _scores_over_k(scores: Scores, measure: str, depth: int, rules: Convention) -> Scores:
    """Score a run at each k up to its depth. The measures are named by k."""
    ks = [k for k in CURVE_CUTOFFS if k <= depth]
    wanted = parse_measure_names([f"{measure}@{k}" for k in ks], rules)
    judged_ranks = score_judged_ranks(scores.judged, wanted, rules)
    return _rename_measures_to_k(judged_ranks, {str(k): str(measure) for k, measure in zip(ks, wanted, strict=True)})


def _scores_at_cutoffs(scores: Scores, measure: str) -> Scores:
    """Select the scores of a measure at the available cutoffs.

    The measures are named by k.
    """
    found = {}
    for value in scores.values:
        parts = re.fullmatch(r"(.+)@(\d+)", value)
        if parts and _base_measure_name(parts[1]) == measure:
            found[parts[2]] = value
    return _rename_measures_to_k(scores, found)


def _rename_measures_to_k(scores: Scores, names: Mapping[str, str]) -> Scores:
    return replace(
        scores,
        values=MeasureDict({k: scores.values[name] for k, name in names.items()}, str),
        means=MeasureDict({k: scores.means[name] for k, name in names.items()}, str),
        unscored=MeasureDict({k: scores.unscored[name] for k, name in names.items()}, str),
    )


def _base_measure_name(name: str) -> str:
    """Return the canonical name of a measure without its cutoff.

    Returns the name itself if it is unknown.
    """
    try:
        return parse_measure_names([f"{name}@1"])[0].spec.name
    except UnknownName:
        return name


def _recommend_k(values: Mapping[str, Mapping[int, Floats]], measure: str) -> dict[str, SmallestK]:
    several = {name: mine for name, mine in values.items() if len(mine) > 1}
    try:
        return smallest_k_each(several, measure) if several else {}
    except MissingEvidence:  # Too few queries for a recommendation.
        return {}


def add_tags(tags: TagsByQuery, scores: Scores) -> dict[str, dict[str, str]]:
    """Return the tags of the queries, with those derived from the judgments."""
    found = {query: dict(tags.get(query, {})) for query in scores.queries}
    if scores.judged is not None:
        grades = scores.judged.judgments.nested
        for query, mine in found.items():
            mine.update(tags_from_judgments(grades.get(query, {}), scores.rel))
    return found


def list_tags(experiment: Experiment) -> set[str]:
    """Return the names of the tags that the queries can be split by."""
    tags = add_tags(experiment.dataset.tags, next(iter(experiment.scores.values())))
    return {tag for mine in tags.values() for tag in mine}


def check_tag(by: str, dataset: Dataset) -> None:
    """Raise UnknownName if the queries of a dataset have no such tag."""
    grades = dataset.judgments.nested
    known = {
        tag
        for query in dataset.queries
        for tag in (*dataset.tags.get(query, {}), *tags_from_judgments(grades.get(query, {})))
    }
    if canonical_tag(by, known) not in known:
        raise UnknownName("tag", by, sorted(known), hint=f"choose one of {', '.join(sorted(known)) or 'none'}")


def build_strata(
    trials: ScoresByTrial, measure: str, tags: TagsByQuery, by: Sequence[str], confidence: float
) -> dict[str, list[StratumMeans]]:
    """Compute each system's mean by stratum.

    By default, only tags that split the queries well are used.
    """
    queries = next(iter(trials.values()))[0].queries
    tables = {
        name: SystemSummary(name, {}, scores).table(measure)
        for name, scores in trials.items()
        if scores[0].queries == queries
    }
    known = {name for values in tags.values() for name in values}
    by = [canonical_tag(tag, known) for tag in by]
    for tag in by:
        if tag not in known:
            raise UnknownName("tag", tag, sorted(known), hint=f"choose one of {', '.join(sorted(known)) or 'none'}")
    found: dict[str, list[StratumMeans]] = {}
    # Both tags count relevant documents, so one of them is enough by default.
    usual = sorted(known - {"answers"} if "complexity" in known else known, key=lambda tag: (tag != "complexity", tag))
    for tag in by or usual:
        values = [tags.get(query, {}).get(tag) for query in queries]
        parts = [value for value in dict.fromkeys(values) if value is not None]
        sizes = sorted((values.count(part) for part in parts), reverse=True)
        splits_well = (
            1 < len(parts) <= MAX_STRATA and sum(sizes) * 2 > len(values) and sizes[1] >= MIN_SECOND_STRATUM_QUERIES
        )
        if not (by or (splits_well and len(found) < MAX_TAGS)):
            continue
        order = [level for level in STRATA_ORDER if level in parts] + sorted(
            (part for part in parts if part not in STRATA_ORDER), key=lambda level: -values.count(level)
        )
        found[tag] = [
            _build_stratum(level, np.array([value == level for value in values]), tables, confidence) for level in order
        ]
    return found


def _build_stratum(value: str, mask: Any, tables: Mapping[str, Floats], confidence: float) -> StratumMeans:
    mine = [table[:, mask] for table in tables.values()]
    ends = _trial_mean_intervals(mine, confidence, rounds=2_000)
    means = {}
    for name, table, low, high in zip(tables, mine, *ends.tolist(), strict=True):
        scored = int((~np.isnan(table)).any(axis=0).sum())
        means[name] = Mean(float(np.mean([_scored_mean(row) for row in table])), scored, low, high)
    return StratumMeans(value, int(mask.sum()), means)


def find_auditable_measures(measures: Sequence[str], rules: Convention) -> list[str]:
    """Return the measures with a known name, which an audit can compute."""
    found = []
    for measure in measures:
        try:
            found += [str(name) for name in parse_measure_names([measure], rules) if isinstance(name, Measure)]
        except UnknownName:
            continue
    return found
