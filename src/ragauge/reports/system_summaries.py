"""Compute means with intervals, curves over k and strata for an overview."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ragauge.comparison.results import MeasureCurve, StratumMeans, SystemSummary
from ragauge.core.errors import MissingEvidence, UnknownName
from ragauge.core.records import Dataset, Floats, MeasureDict, Run, Scores
from ragauge.core.summaries import Mean
from ragauge.datasets.queries import COMPLEXITY_LEVELS, tags_from_judgments
from ragauge.evaluation.indicators import find_measure, measure_range
from ragauge.measures.conventions import Convention
from ragauge.measures.latency import stage_latencies_ms, summarise_timings
from ragauge.measures.names import Measure, parse_measure_names
from ragauge.measures.scoring import score_judged_ranks
from ragauge.runs.results import Experiment, canonical_tag
from ragauge.stats.intervals import mean_intervals
from ragauge.stats.repeated_trials import Variation, analyse_variation, trial_intervals
from ragauge.stats.smallest_k import SmallestK, smallest_k

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
        manifest = {} if run is None else run.manifest
        systems[name] = SystemSummary(
            name,
            means[name],
            scores,
            run,
            None if timings is None else summarise_timings(timings),
            {} if timings is None else stage_latencies_ms(timings),
            _find_costs(manifest),
            {} if run is None else _find_failed_queries(run),
            variation=_variation_by_measure(bare[name], measures),
        )
    return systems


def _find_costs(manifest: Mapping[str, Any]) -> dict[str, float]:
    """Return the build time and the latency of the first query.

    The time of a cached build is NaN.
    """
    costs = {key: float(manifest[key]) for key in ("build_seconds", "cold_ms") if manifest.get(key) is not None}
    return {"build_seconds": math.nan, **costs} if manifest.get("build_cached") is True else costs


def _variation_by_measure(entry: SystemSummary, measures: Sequence[str]) -> dict[str, Variation]:
    """Compute the variance components by measure.

    Empty for a system with a single trial.
    """
    if len(entry.scores) < 2:
        return {}
    variations = {m: analyse_variation(entry.table(m)) for m in measures if m in entry.scores[0].values}
    return {measure: variation for measure, variation in variations.items() if variation is not None}


def restrict_to(scores: Scores, queries: Sequence[str]) -> Scores:
    """Restrict scores to some queries. A missing query scores 0."""
    places = {query: i for i, query in enumerate(scores.queries)}
    columns = {
        measure: np.array([column[places[query]] if query in places else 0.0 for query in queries])
        for measure, column in scores.values.items()
    }
    canonical = scores.values._canonical
    return replace(
        scores,
        queries=list(queries),
        values=MeasureDict(columns, canonical),
        means=MeasureDict({measure: _scored_mean(column) for measure, column in columns.items()}, canonical),
        unscored=MeasureDict(
            {
                m: {q: reason for q, reason in reasons.items() if q in set(queries)}
                for m, reasons in scores.unscored.items()
            },
            canonical,
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
            mean_value = float(np.mean(means))
            n = int((~np.isnan(table)).any(axis=0).sum())
            # A sum or a geometric mean has no bootstrap interval over queries.
            averages = all(_is_close(mean, _scored_mean(values)) for mean, values in zip(means, table, strict=True))
            # Rounding must not put the mean outside its interval if all values are equal.
            intervals[name][measure] = (
                Mean(mean_value, n, min(low, mean_value), max(high, mean_value)) if averages else Mean(mean_value, n)
            )
    return {name: {m: intervals[name][m] for m in measures if m in intervals[name]} for name in systems}


def _is_close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _trial_mean_intervals(tables: Sequence[Floats], confidence: float, rounds: int = 10_000) -> Floats:
    """Compute the interval of the mean of each table of trials by queries.

    Returns a row of lower and a row of upper ends. Resamples queries, and also trials if they differ. Queries
    without a value in some trial are left out, and the interval is then shifted to the mean of all queries.
    """
    query_means = [table.mean(axis=0) for table in tables]  # NaN if any trial has no value.
    ends = mean_intervals(np.column_stack(query_means), confidence, rounds=rounds)
    groups: dict[bytes, list[int]] = {}
    for index, (table, values) in enumerate(zip(tables, query_means, strict=True)):
        scored = ~np.isnan(values)
        if scored.sum() > 1 and (table[:, scored] != table[0, scored]).any():
            groups.setdefault(scored.tobytes(), []).append(index)
    for indices in groups.values():
        scored = ~np.isnan(query_means[indices[0]])
        ends[:, indices] = np.transpose(
            trial_intervals([tables[i][:, scored] for i in indices], confidence, rounds=rounds)
        )
    for index, (table, values) in enumerate(zip(tables, query_means, strict=True)):
        if len(table) > 1 and (np.isnan(values) & ~np.isnan(table).all(axis=0)).any():
            ends[:, index] += float(np.mean([_scored_mean(row) for row in table])) - _scored_mean(values)
    return ends


def _find_failed_queries(run: Run) -> dict[str, str]:
    """Return `{query: error}` of the queries that failed or timed out."""
    if run.timings is None:
        return {}
    rows = run.timings.filter(run.timings["status"] != "ok").select("query", "status", "error").iter_rows()
    return {query: error or ("timed out" if status == "timeout" else status) for query, status, error in rows}


def build_curves(
    trials: ScoresByTrial, convention: Convention | None, queries: Sequence[str], runs: Mapping[str, Run]
) -> list[MeasureCurve]:
    """Compute hit rate and recall over k.

    They are computed from judged ranks, else taken from the available cutoffs. A curve ends at the k that was
    requested, or at the number of returned documents if that is unknown.
    """
    has_judged_ranks = convention is not None and all(
        score.judged is not None for scores in trials.values() for score in scores
    )
    curves = []
    for measure in CURVE_MEASURES:
        values: dict[str, dict[int, Floats]] = {}
        for name, scores in trials.items():
            if has_judged_ranks and convention is not None:
                max_retrieved = max(int(scores.judged.retrieved.max(initial=0)) for scores in scores)
                requested_k = (runs[name].manifest.get("plan") or {}).get("k", 0) if name in runs else 0
                curve = [
                    _scores_over_k(scores, measure, max(max_retrieved, requested_k), convention) for scores in scores
                ]
            else:
                curve = [_scores_at_cutoffs(scores, measure) for scores in scores]
            shared = set.intersection(*(set(scores.values) for scores in curve))
            entry = SystemSummary(name, {}, [restrict_to(scores, queries) for scores in curve])
            if shared:
                values[name] = {int(k): entry.values(k) for k in sorted(shared, key=int)}
        ks = sorted({k for curve in values.values() for k in curve})
        if len(ks) > 1:
            means = {
                name: [_scored_mean(curve[k]) if k in curve else math.nan for k in ks] for name, curve in values.items()
            }
            label = _curve_label(trials, measure, convention if has_judged_ranks else None)
            curves.append(MeasureCurve(label, ks, means, _recommend_k(values, label)))
    return curves


def _curve_label(trials: ScoresByTrial, measure: str, convention: Convention | None) -> str:
    """Return the name of a measure with its options and without a cutoff, e.g. `recall(rel=2)`.

    The options are those of the convention, or without one those of the given scores if they agree.
    """
    if convention is not None:
        parsed = parse_measure_names([f"{measure}@1"], convention)
    else:
        parsed = [
            found for scores in trials.values() for name in scores[0].values if (found := _find_cutoff(name, measure))
        ]
    labels = {str(replace(found, cutoff=None)) for found in parsed}
    return labels.pop() if len(labels) == 1 else measure


def _find_cutoff(name: str, measure: str) -> Measure | None:
    """Parse a name if it is that of a measure of this kind with a cutoff."""
    measure_found = find_measure(name)
    return (
        measure_found
        if measure_found is not None and measure_found.spec.name == measure and measure_found.cutoff is not None
        else None
    )


def _scored_mean(values: Floats) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else math.nan


def _scores_over_k(scores: Scores, measure: str, depth: int, convention: Convention) -> Scores:
    """Score a run at each k up to its depth. The measures are named by k."""
    ks = [k for k in CURVE_CUTOFFS if k <= depth]
    measures = parse_measure_names([f"{measure}@{k}" for k in ks], convention)
    judged_ranks = score_judged_ranks(scores.judged, measures, convention)
    return _rename_measures_to_k(judged_ranks, {str(k): str(measure) for k, measure in zip(ks, measures, strict=True)})


def _scores_at_cutoffs(scores: Scores, measure: str) -> Scores:
    """Select the scores of a measure at the available cutoffs.

    The measures are named by k.
    """
    found = {name: _find_cutoff(name, measure) for name in scores.values}
    return _rename_measures_to_k(
        scores, {f"{parsed.cutoff:g}": name for name, parsed in found.items() if parsed is not None}
    )


def _rename_measures_to_k(scores: Scores, names: Mapping[str, str]) -> Scores:
    return replace(
        scores,
        values=MeasureDict({k: scores.values[name] for k, name in names.items()}, str),
        means=MeasureDict({k: scores.means[name] for k, name in names.items()}, str),
        unscored=MeasureDict({k: scores.unscored[name] for k, name in names.items()}, str),
    )


def _recommend_k(values: Mapping[str, Mapping[int, Floats]], measure: str) -> dict[str, SmallestK]:
    curves = {name: curve for name, curve in values.items() if len(curve) > 1}
    try:
        return {
            name: smallest_k(curve, measure, bounds=measure_range(measure, curve.values()))
            for name, curve in curves.items()
        }
    except MissingEvidence:  # Too few queries for a recommendation.
        return {}


def add_tags(tags: TagsByQuery, scores: Scores) -> dict[str, dict[str, str]]:
    """Return the tags of the queries, with those derived from the judgments."""
    tags_by_query = {query: dict(tags.get(query, {})) for query in scores.queries}
    if scores.judged is not None:
        grades = scores.judged.judgments.nested
        for query, query_tags in tags_by_query.items():
            query_tags.update(tags_from_judgments(grades.get(query, {}), scores.rel))
    return tags_by_query


def list_tags(experiment: Experiment) -> set[str]:
    """Return the names of the tags that the queries can be split by."""
    tags = add_tags(experiment.dataset.tags, next(iter(experiment.scores.values())))
    return {tag for query_tags in tags.values() for tag in query_tags}


def check_tag(requested_tag: str, dataset: Dataset) -> None:
    """Raise UnknownName if the queries of a dataset have no such tag."""
    grades = dataset.judgments.nested
    tag_names = {
        tag
        for query in dataset.queries
        for tag in (*dataset.tags.get(query, {}), *tags_from_judgments(grades.get(query, {})))
    }
    if canonical_tag(requested_tag, tag_names) not in tag_names:
        raise UnknownName("tag", requested_tag, sorted(tag_names))


def build_strata(
    trials: ScoresByTrial, measure: str, tags: TagsByQuery, requested_tags: Sequence[str], confidence: float
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
    tag_names = {name for values in tags.values() for name in values}
    requested_tags = [canonical_tag(tag, tag_names) for tag in requested_tags]
    for tag in requested_tags:
        if tag not in tag_names:
            raise UnknownName("tag", tag, sorted(tag_names))
    strata: dict[str, list[StratumMeans]] = {}
    # Both tags count relevant documents, so one of them is enough by default.
    default_tags = sorted(
        tag_names - {"answers"} if "complexity" in tag_names else tag_names, key=lambda tag: (tag != "complexity", tag)
    )
    for tag in requested_tags or default_tags:
        values = [tags.get(query, {}).get(tag) for query in queries]
        parts = [value for value in dict.fromkeys(values) if value is not None]
        sizes = sorted((values.count(part) for part in parts), reverse=True)
        splits_well = (
            1 < len(parts) <= MAX_STRATA and sum(sizes) * 2 > len(values) and sizes[1] >= MIN_SECOND_STRATUM_QUERIES
        )
        if not (requested_tags or (splits_well and len(strata) < MAX_TAGS)):
            continue
        order = [level for level in STRATA_ORDER if level in parts] + sorted(
            (part for part in parts if part not in STRATA_ORDER), key=lambda level: -values.count(level)
        )
        strata[tag] = [
            _build_stratum(level, np.array([value == level for value in values]), tables, confidence) for level in order
        ]
    return strata


def _build_stratum(value: str, mask: Any, tables: Mapping[str, Floats], confidence: float) -> StratumMeans:
    masked_tables = [table[:, mask] for table in tables.values()]
    ends = _trial_mean_intervals(masked_tables, confidence, rounds=2_000)
    means = {}
    for name, table, low, high in zip(tables, masked_tables, *ends.tolist(), strict=True):
        scored = int((~np.isnan(table)).any(axis=0).sum())
        means[name] = Mean(float(np.mean([_scored_mean(row) for row in table])), scored, low, high)
    return StratumMeans(value, int(mask.sum()), means)


def find_auditable_measures(measures: Sequence[str], convention: Convention) -> list[str]:
    """Return the measures with a known name, which an audit can compute."""
    auditable = []
    for measure in measures:
        try:
            auditable += [str(name) for name in parse_measure_names([measure], convention) if isinstance(name, Measure)]
        except UnknownName:
            continue
    return auditable
