"""Read and write rig's reports: MultiReport of one system and ReportDiff of two."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.errors import BadInput
from ragauge.core.ids import to_id
from ragauge.core.records import MeasureDict, Scores
from ragauge.core.summaries import Mean
from ragauge.files.json_files import read_json
from ragauge.files.scores import read_scores
from ragauge.files.source import InputFile
from ragauge.reports.layouts.cells import LayoutMeasures, find_dataset_name, parse_count, parse_finite_number, to_json

V = TypeVar("V")

MEASURE_BY_RIG_NAME: Mapping[str, str] = {
    "recall": "recall",
    "precision": "precision",
    "hit_rate": "hit_rate",
    "map": "map",
    "ndcg": "ndcg(gain=exp)",
}
"""Measure behind each name, without the cutoff. `mrr` has no cutoff. Other names are not changed."""
DEFAULT_KS = (10,)
RIG_CONVENTION = "rig-code"
"""Preset of the numbers that rig writes: its code differs from its document."""
PROVENANCE_KEYS = ("dataset_id", "store_kind", "judge_fingerprint")


def measures_at(ks: Sequence[int]) -> tuple[str, ...]:
    """Return rig's measures at some cutoffs.

    >>> measures_at([5])
    ('recall@5', 'precision@5', 'hit_rate@5', 'mrr', 'map@5', 'ndcg(gain=exp)@5')
    """
    names = list(MEASURE_BY_RIG_NAME.values())
    before, after = ([f"{name}@{k}" for k in ks for name in part] for part in (names[:3], names[3:]))
    return (*before, "mrr", *after)


def to_canonical_measure(name: str) -> str:
    """Return the canonical measure behind rig's name of a metric.

    >>> to_canonical_measure("ndcg@10"), to_canonical_measure("mrr"), to_canonical_measure("faithfulness")
    ('ndcg(gain=exp)@10', 'mrr', 'faithfulness')
    """
    parts = re.fullmatch(r"(\w+)@(\d+)", name)
    return f"{MEASURE_BY_RIG_NAME[parts[1]]}@{parts[2]}" if parts and parts[1] in MEASURE_BY_RIG_NAME else name


def to_rig_name(measure: str) -> str:
    """Return rig's name of a measure.

    Raises BadInput if rig would read it as another measure.

    >>> to_rig_name("ndcg(gain=exp)@10"), to_rig_name("bpref")
    ('ndcg@10', 'bpref')
    """
    base, at, cutoff = measure.partition("@")
    name = (
        next((rig_name for rig_name, measure_name in MEASURE_BY_RIG_NAME.items() if measure_name == base), base)
        + at
        + cutoff
    )
    if to_canonical_measure(name) != measure:
        raise BadInput(
            f"rig uses the name {measure} for {to_canonical_measure(measure)}",
            hint=f"score with {to_canonical_measure(measure)}",
        )
    return name


def read_rig_report(path: str) -> Overview:
    """Read the per-query values and intervals of a MultiReport; means are computed from the values."""
    source = InputFile(path)
    (scores,) = read_scores(path)[0].values()
    if not isinstance(scores, Scores):  # A report has no seeds.
        raise BadInput("not a report of rig", file=source.label)
    report = read_json(source, ids=True)
    provenance: dict[str, Any] = {
        "iterations": {},
        "freshness": _check_object(report.get("freshness"), "freshness", source.label),
    }
    provenance |= {key: _check_optional_text(report.get(key), key, source.label) for key in PROVENANCE_KEYS}
    means: dict[str, Mean] = {}
    levels: dict[float, None] = {}
    notes: list[str] = []
    for metric in report["metrics"]:
        name = to_id(metric["metric"], "the name of a metric", source.label)
        n, stated_n = len(scores.per_query[name]), parse_count(metric.get("n"), f"n of {name}", source.label)
        if stated_n is not None and stated_n != len(metric["per_query"]):
            raise BadInput(
                f"n of {name} is {stated_n}, but per_query has {len(metric['per_query'])} queries",
                file=source.label,
                hint="check whether the file is complete",
            )
        parse_finite_number(metric.get("mean"), f"the mean of {name}", source.label)  # Raises if it is not a number.
        interval = parse_rig_interval(metric.get("ci"), f"ci of {name}", source.label)
        low, high = (interval.lower, interval.upper) if interval else (math.nan, math.nan)
        if interval:
            levels[interval.level] = None
            provenance["iterations"][to_canonical_measure(name)] = interval.iterations
            if interval.level != next(iter(levels)):
                low = high = math.nan
                notes.append(f"the interval of {name} has another level and is left out")
        means[to_canonical_measure(name)] = Mean(scores.means[name], n, low, high)
    name = provenance["store_kind"] or source.stem
    entry = SystemSummary(name, means, [with_canonical_measures(scores, name)], stated_manifest=provenance)
    rounds = next(iter(provenance["iterations"].values()), 10_000)
    return Overview(
        source.stem,
        {name: entry},
        list(means),
        RIG_CONVENTION,
        confidence=next(iter(levels), 0.95),
        dataset=provenance["dataset_id"] or "",
        notes=notes,
        rounds=rounds,
    )


def render_rig_report(overview: Overview) -> str:
    """Format an overview of one system as a MultiReport.

    Unknown values are null or omitted, as in rig.
    """
    names = rig_names_by_measure(overview)
    if len(overview.entries) != 1:
        raise BadInput(
            f"rig's report has one system, got {len(overview.entries)}: {', '.join(overview.systems)}",
            hint="name one run, or write rig-diff of two",
        )
    (entry,) = overview.entries.values()
    about = {
        "dataset_id": find_dataset_name(overview, entry),
        "store_kind": entry.stated_manifest.get("store_kind", entry.name),
        "judge_fingerprint": entry.scores[0].judge or None,
    }
    report: dict[str, Any] = {key: value for key, value in about.items() if value is not None}
    report["metrics"] = [_metric_entry(overview, entry, measure) for measure in names if measure in entry.means]
    if entry.stated_manifest.get("freshness") is not None:
        report["freshness"] = entry.stated_manifest["freshness"]
    return to_json(report)


def rig_names_by_measure(overview: Overview, layout: str = "rig") -> dict[str, str]:
    """Return the measures of an overview with rig's names.

    Raises BadInput if the convention does not fit or a system has no per-query values.
    """
    LayoutMeasures(layout, RIG_CONVENTION, tuple(overview.measures) or measures_at(DEFAULT_KS), ("rig",)).check(
        overview
    )
    for name, entry in overview.entries.items():
        if not entry.scores:
            raise BadInput(
                f"only means of {name} are known, but rig's reports have values per query", hint="give its run"
            )
    return {measure: to_rig_name(measure) for measure in overview.measures}


def mean_query_values(entry: SystemSummary, measure: str) -> dict[str, float]:
    """Return the value of each scored query, averaged over trials."""
    values_by_query: dict[str, list[float]] = {}
    for scores in entry.scores:
        for query, value in scores.per_query.get(measure, {}).items():
            values_by_query.setdefault(query, []).append(value)
    return {query: sum(values) / len(values) for query, values in values_by_query.items()}


def _metric_entry(overview: Overview, entry: SystemSummary, measure: str) -> dict[str, Any]:
    values_by_query = mean_query_values(entry, measure)
    values = np.array(list(values_by_query.values()))
    n = len(values)
    p50, p95 = np.percentile(values, [50, 95]).tolist() if n else (None, None)
    metric: dict[str, Any] = {
        "metric": to_rig_name(measure),
        "n": n,
        "mean": entry.means[measure].value,
        "stddev": float(values.std(ddof=1)) if n > 1 else None,
        "min": float(values.min()) if n else None,
        "max": float(values.max()) if n else None,
        "p50": p50,
        "p95": p95,
        "per_query": [[query, value] for query, value in values_by_query.items()],
    }
    interval = to_rig_interval(overview, entry, measure)
    return metric if interval is None else {**metric, "ci": interval}


def to_rig_interval(overview: Overview, entry: SystemSummary, measure: str) -> dict[str, float] | None:
    """Return the interval of a mean in rig's format, or None if it is unknown."""
    mean = entry.means[measure]
    if math.isnan(mean.low) or math.isnan(mean.high):
        return None
    rounds = entry.stated_manifest.get("iterations", {}).get(measure, overview.rounds)
    return {"lower": mean.low, "upper": mean.high, "level": overview.confidence, "iterations": rounds}


@dataclass(frozen=True)
class RigInterval:
    """Bootstrap confidence interval as rig writes it."""

    lower: float
    upper: float
    level: float
    iterations: int


def parse_rig_interval(value: Any, name: str, label: str) -> RigInterval | None:
    """Parse an interval; None if there is none.

    Raises BadInput if its ends are missing or reversed.
    """
    if value is None:
        return None
    interval = _check_object(value, name, label) or {}
    lower, upper, level = (
        parse_finite_number(interval.get(key), f"{key} of {name}", label) for key in ("lower", "upper", "level")
    )
    if lower is None or upper is None or level is None or not 0 < level < 1 or lower > upper:
        raise BadInput(f"{name} is not an interval", file=label, hint="lower, upper, level between 0 and 1, iterations")
    return RigInterval(
        lower, upper, level, parse_count(interval.get("iterations"), f"iterations of {name}", label) or 0
    )


def _check_object(value: Any, name: str, label: str) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"{name} must be an object", file=label)
    return value


def _check_optional_text(value: Any, name: str, label: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be text", file=label)
    return value or None


def with_canonical_measures(scores: Scores, name: str) -> Scores:
    """Return the scores of a system under canonical measure names.

    Rig's names still work as keys.
    """

    def by_measure(values: Mapping[str, V]) -> MeasureDict[V]:
        return MeasureDict(
            {to_canonical_measure(measure): value for measure, value in values.items()}, to_canonical_measure
        )

    return replace(
        scores,
        run=name,
        convention=RIG_CONVENTION,
        values=by_measure(scores.values),
        means=by_measure(scores.means),
        unscored=by_measure(scores.unscored),
    )


DIFF_SYSTEMS = ("baseline", "current")
"""Names of the two systems, which the file does not contain."""
MAX_UNCHANGED_DELTA = 1e-9
"""Largest difference of a query that counts as unchanged."""
DIFF_BUCKETS = ("winners", "losers", "unchanged")


def read_rig_diff(path: str) -> Overview:
    """Read the means of both systems, and their values on the shared queries."""
    source = InputFile(path)
    report = read_json(source, ids=True)
    rows = report.get("rows") if isinstance(report, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and "metric" in row for row in rows):
        raise BadInput(
            "not a diff of rig's reports",
            file=source.label,
            hint='{"rows": [{"metric": …, "current_mean": …, "baseline_mean": …, "query_changes": […]}]}',
        )
    means: dict[str, dict[str, Mean]] = {system: {} for system in DIFF_SYSTEMS}
    values: dict[str, dict[str, dict[str, float]]] = {system: {} for system in DIFF_SYSTEMS}
    provenance: dict[str, dict[str, Any]] = {system: {"iterations": {}} for system in DIFF_SYSTEMS}
    levels: dict[float, None] = {}
    for row in rows:
        name = to_id(row["metric"], "the name of a metric", source.label)
        measure = to_canonical_measure(name)
        if measure in values["current"]:
            raise BadInput(f"{name} appears more than once", file=source.label)
        changes = _parse_query_changes(row, name, source.label)
        for system in DIFF_SYSTEMS:
            values[system][measure] = changes[system]
            stated_mean = parse_finite_number(row.get(f"{system}_mean"), f"{system}_mean of {name}", source.label)
            interval = parse_rig_interval(row.get(f"{system}_ci"), f"{system}_ci of {name}", source.label)
            if stated_mean is None:
                continue
            low, high = math.nan, math.nan
            if interval:
                levels[interval.level] = None
                provenance[system]["iterations"][measure] = interval.iterations
                if interval.level == next(iter(levels)):
                    low, high = interval.lower, interval.upper
            means[system][measure] = Mean(stated_mean, _count_mean_queries(stated_mean, changes[system]), low, high)
    entries = {
        system: SystemSummary(
            system, means[system], _scores_from_columns(system, values[system]), stated_manifest=provenance[system]
        )
        for system in DIFF_SYSTEMS
        if means[system]
    }
    if "current" not in entries:
        raise BadInput("no row has a current_mean", file=source.label)
    return Overview(
        source.stem,
        entries,
        list(dict.fromkeys(measure for system in reversed(DIFF_SYSTEMS) for measure in means[system])),
        RIG_CONVENTION,
        confidence=next(iter(levels), 0.95),
        baseline="baseline" if "baseline" in entries else None,
        notes=["rig's file does not name the systems and contains only the queries that both have"],
    )


def render_rig_diff(overview: Overview) -> str:
    """Format the differences of two systems.

    Without a baseline, the first system is the baseline.
    """
    names = rig_names_by_measure(overview, "rig-diff")
    if len(overview.entries) != 2:
        raise BadInput(
            f"a diff of rig's reports has two systems, got {len(overview.entries)}: " + ", ".join(overview.systems),
            hint="name two runs, the baseline first",
        )
    base = overview.baseline if overview.baseline in overview.entries else overview.systems[0]
    old = overview.entries[str(base)]
    new = next(entry for name, entry in overview.entries.items() if name != base)
    judges = {entry.scores[0].judge for entry in (old, new) if entry.scores}
    if len(judges) > 1:
        raise BadInput(
            f"{old.name} and {new.name} were scored by different judges", hint="judge both with the same judge"
        )
    rows = [_diff_row(overview, measure, name, old, new) for measure, name in names.items() if measure in new.means]
    return to_json({"rows": rows})


def _diff_row(overview: Overview, measure: str, name: str, old: SystemSummary, new: SystemSummary) -> dict[str, Any]:
    before, after = mean_query_values(old, measure), mean_query_values(new, measure)
    changes: list[dict[str, Any]] = [
        {"query_id": query, "current": value, "baseline": before[query], "delta": value - before[query]}
        for query, value in after.items()
        if query in before
    ]
    changes.sort(key=lambda change: (-abs(change["delta"]), change["query_id"]))
    current = new.means[measure].value
    baseline = old.means[measure].value if measure in old.means else None
    row: dict[str, Any] = {
        "metric": name,
        "current_mean": current,
        "baseline_mean": baseline,
        "delta": None if baseline is None else current - baseline,
        **dict(zip(DIFF_BUCKETS, _count_buckets(change["delta"] for change in changes), strict=True)),
        "query_changes": changes,
    }
    for system, entry in (("current", new), ("baseline", old)):
        interval = to_rig_interval(overview, entry, measure) if measure in entry.means else None
        if interval is not None:
            row[f"{system}_ci"] = interval
    return row


def _count_buckets(deltas: Any) -> tuple[int, int, int]:
    differences = list(deltas)
    won, lost = (
        sum(delta > MAX_UNCHANGED_DELTA for delta in differences),
        sum(delta < -MAX_UNCHANGED_DELTA for delta in differences),
    )
    return won, lost, len(differences) - won - lost


def _parse_query_changes(row: Mapping[str, Any], name: str, label: str) -> dict[str, dict[str, float]]:
    """Parse the values of both systems by query."""
    entries = row.get("query_changes", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput(f"query_changes of {name} must be a list of objects", file=label)
    changes: dict[str, dict[str, float]] = {system: {} for system in DIFF_SYSTEMS}
    for change in entries:
        query = to_id(change.get("query_id"), f"a query of {name}", label)
        if query in changes["current"]:
            raise BadInput(f"{name} of query `{query}` appears more than once", file=label)
        for system in DIFF_SYSTEMS:
            value = parse_finite_number(change.get(system), f"{system} of query `{query}` by {name}", label)
            if value is None:
                raise BadInput(f"{system} of query `{query}` by {name} is missing", file=label)
            changes[system][query] = value
    return changes


def _count_mean_queries(mean: float, values: Mapping[str, float]) -> int:
    """Return the number of queries of a mean, or 0 if it is unknown.

    It is known if the given values reproduce the mean.
    """
    computed_mean = sum(values.values()) / len(values) if values else math.nan
    return len(values) if math.isclose(mean, computed_mean, rel_tol=1e-6, abs_tol=1e-9) else 0


def _scores_from_columns(system: str, columns: Mapping[str, Mapping[str, float]]) -> list[Scores]:
    queries = list(dict.fromkeys(query for column in columns.values() for query in column))
    if not queries:
        return []
    values = {m: np.array([column.get(query, math.nan) for query in queries]) for m, column in columns.items()}
    means = {m: sum(column.values()) / len(column) if column else math.nan for m, column in columns.items()}
    unscored = {
        m: {query: "no value in the file" for query in queries if query not in column} for m, column in columns.items()
    }
    return [
        Scores(
            system,
            RIG_CONVENTION,
            queries,
            MeasureDict(values, to_canonical_measure),
            MeasureDict(means, to_canonical_measure),
            MeasureDict(unscored, to_canonical_measure),
        )
    ]
