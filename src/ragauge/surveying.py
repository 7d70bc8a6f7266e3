"""What an overview is put together from: means with intervals, curves over k, strata, and what failed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragauge.datasets.strata import COMPLEXITY, by_answers
from ragauge.errors import MissingEvidence, UnknownName
from ragauge.measures.conventions import Convention
from ragauge.measures.names import Measure, parse_all
from ragauge.measures.scoring import score
from ragauge.measures.speed import milliseconds, speed
from ragauge.outcomes import Advice
from ragauge.overviews import Curve, Entry, Mean, Stratum
from ragauge.records import Floats, Run, Scores
from ragauge.stats.enough import enough_each
from ragauge.stats.intervals import mean_intervals

KS = (1, 2, 3, 5, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
OVER_K = ("hit_rate", "recall")
MOST_STRATA = 12
MOST_TAGS = 6
Tags = Mapping[str, Mapping[str, str]]
Trials = Mapping[str, Sequence[Scores]]
"""`{system: scores of each time it was asked}`."""


def entries(trials: Trials, measures: Sequence[str], runs: Mapping[str, Run], confidence: float) -> dict[str, Entry]:
    """Each system with its means, and what its run knows."""
    means = _means(trials, measures, confidence)
    found = {}
    for name, scores in trials.items():
        run = runs.get(name)
        timings = None if run is None else run.timings
        about = {} if run is None else run.manifest
        found[name] = Entry(
            name,
            means[name],
            scores,
            run,
            None if timings is None else speed(timings),
            {} if timings is None else milliseconds(timings),
            {key: float(about[key]) for key in ("build_seconds", "cold_ms") if about.get(key) is not None},
            {} if run is None else _failed(run),
        )
    return found


def averaged(scores: Sequence[Scores], measure: str) -> Floats:
    """A value for each query of the first scores: its mean over all times that it was asked and scored."""
    first = scores[0]
    columns = []
    for one in scores:
        known = dict(zip(one.queries, one.values[measure].tolist(), strict=True)) if measure in one.values else {}
        columns.append([known.get(query, math.nan) for query in first.queries])
    values = np.array(columns)
    scored = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(scored, values, 0.0).sum(axis=0) / scored.sum(axis=0))


def _means(trials: Trials, measures: Sequence[str], confidence: float) -> dict[str, dict[str, Mean]]:
    """Means with intervals; systems that have the same queries are resampled together, since that costs no more."""
    found: dict[str, dict[str, Mean]] = {name: {} for name in trials}
    sizes: dict[int, list[tuple[str, str, Floats]]] = {}
    for name, scores in trials.items():
        for measure in measures:
            if measure in scores[0].values:
                values = averaged(scores, measure)
                sizes.setdefault(len(values), []).append((name, measure, values))
    for rows in sizes.values():
        ends = mean_intervals(np.column_stack([values for _, _, values in rows]), confidence)
        for (name, measure, values), low, high in zip(rows, *ends.tolist(), strict=True):
            told = float(np.mean([one.means[measure] for one in trials[name]]))
            n = int((~np.isnan(values)).sum())
            plain = _mean(values)
            averages = math.isclose(told, plain, rel_tol=1e-9, abs_tol=1e-12)  # a sum or a geometric mean does not
            found[name][measure] = Mean(told, n, low, high) if averages else Mean(told, n)
    return {name: {m: found[name][m] for m in measures if m in found[name]} for name in trials}


def _failed(run: Run) -> dict[str, str]:
    """The queries that ended in an error or were given up, and what was said."""
    if run.timings is None:
        return {}
    rows = run.timings.filter(run.timings["status"] != "ok").select("query", "status", "error").iter_rows()
    return {query: error or ("timed out" if status == "timeout" else status) for query, status, error in rows}


def curves(trials: Trials, rules: Convention | None) -> list[Curve]:
    """Hit rate and recall over k, counted again from the judged ranks; else from the cutoffs that the scores have."""
    firsts = {name: scores[0] for name, scores in trials.items()}
    counted = rules is not None and all(one.judged is not None for one in firsts.values())
    found = []
    for measure in OVER_K:
        if counted and rules is not None:
            depth = max(int(one.judged.retrieved.max(initial=0)) for one in firsts.values())
            ks = [k for k in KS if k <= depth]
            values = {name: _over_k(one, measure, ks, rules) for name, one in firsts.items()}
        else:
            ks, values = _cutoffs(firsts, measure)
        if len(ks) > 1:
            means = {name: [_mean(mine[k]) for k in ks] for name, mine in values.items()}
            found.append(Curve(measure, ks, means, _advice(values, measure)))
    return found


def _mean(values: Floats) -> float:
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if len(scored) else math.nan


def _over_k(scores: Scores, measure: str, ks: Sequence[int], rules: Convention) -> dict[int, Floats]:
    wanted = parse_all([f"{measure}@{k}" for k in ks], rules)
    values = score(scores.judged, wanted, rules).values
    return {k: values[str(one)] for k, one in zip(ks, wanted, strict=True)}


def _cutoffs(firsts: Mapping[str, Scores], measure: str) -> tuple[list[int], dict[str, dict[int, Floats]]]:
    """The cutoffs at which all have a measure, under whatever name of it."""
    found: dict[str, dict[int, Floats]] = {}
    for name, scores in firsts.items():
        for told, column in scores.values.items():
            parts = re.fullmatch(r"(.+)@(\d+)", told)
            if parts and _base(parts[1]) == measure:
                found.setdefault(name, {})[int(parts[2])] = column
    shared = set.intersection(*map(set, found.values())) if len(found) == len(firsts) else set()
    return sorted(shared), found


def _base(name: str) -> str:
    """The canonical name of a measure without a cutoff; the name as it is where it has none."""
    try:
        return parse_all([f"{name}@1"])[0].spec.name
    except UnknownName:
        return name


def _advice(values: Mapping[str, Mapping[int, Floats]], measure: str) -> dict[str, Advice]:
    try:
        return enough_each(values, measure)
    except MissingEvidence:  # too few queries to recommend anything
        return {}


def tagged(tags: Tags, scores: Scores) -> dict[str, dict[str, str]]:
    """The tags of the queries, and those that follow from the judgments."""
    found = {query: dict(tags.get(query, {})) for query in scores.queries}
    if scores.judged is not None:
        grades = scores.judged.judgments.nested
        for query, mine in found.items():
            mine.update(by_answers(grades.get(query, {}), scores.rel))
    return found


def strata(trials: Trials, measure: str, tags: Tags, by: Sequence[str], confidence: float) -> dict[str, list[Stratum]]:
    """Each system's mean in parts of the queries, for each tag that is asked for; else for those that split well."""
    queries = next(iter(trials.values()))[0].queries
    columns = {name: averaged(scores, measure) for name, scores in trials.items() if scores[0].queries == queries}
    known = {name for values in tags.values() for name in values}
    for tag in by:
        if tag not in known:
            raise UnknownName("tag", tag, sorted(known), hint=f"there are {', '.join(sorted(known)) or 'none'}")
    found: dict[str, list[Stratum]] = {}
    for tag in by or sorted(known):
        values = [tags.get(query, {}).get(tag) for query in queries]
        parts = [value for value in dict.fromkeys(values) if value is not None]
        splits_well = 1 < len(parts) <= MOST_STRATA and values.count(None) * 2 < len(values)
        if not (by or (splits_well and len(found) < MOST_TAGS)):
            continue
        order = [one for one in COMPLEXITY if one in parts] + sorted(
            (one for one in parts if one not in COMPLEXITY), key=lambda one: -values.count(one)
        )
        found[tag] = [_stratum(one, np.array([value == one for value in values]), columns, confidence) for one in order]
    return found


def _stratum(value: str, mask: Any, columns: Mapping[str, Floats], confidence: float) -> Stratum:
    mine = np.column_stack([column[mask] for column in columns.values()])
    ends = mean_intervals(mine, confidence, rounds=2_000)
    means = {}
    for name, column, low, high in zip(columns, mine.T, *ends.tolist(), strict=True):
        means[name] = Mean(_mean(column), int((~np.isnan(column)).sum()), low, high)
    return Stratum(value, int(mask.sum()), means)


def audited_by(measures: Sequence[str], rules: Convention) -> list[str]:
    """The measures that an audit can count: those with a name that is known."""
    found = []
    for one in measures:
        try:
            found += [str(name) for name in parse_all([one], rules) if isinstance(name, Measure)]
        except UnknownName:
            continue
    return found
