"""Read and write rig's reports: MultiReport of one system and ReportDiff of two."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ragauge.comparison.results import Entry, Overview
from ragauge.core.errors import BadInput
from ragauge.core.records import ByMeasure, Scores
from ragauge.core.summaries import Mean
from ragauge.files.json_files import read_json
from ragauge.files.scores import read_scores
from ragauge.files.source import Source
from ragauge.files.table_rows import as_id
from ragauge.reports.layouts.cells import Wanted, as_json, count, dataset_of, number

V = TypeVar("V")

MEASURES: Mapping[str, str] = {
    "recall": "recall",
    "precision": "precision",
    "hit_rate": "hit_rate",
    "map": "map",
    "ndcg": "ndcg(gain=exp)",
}
"""Measure behind each name, without the cutoff. `mrr` has no cutoff. Other names are not changed."""
KS = (10,)
CONVENTION = "rig-code"
"""Preset of the numbers that rig writes: its code differs from its document."""
ABOUT = ("dataset_id", "store_kind", "judge_fingerprint")
NEAR = 5e-4
"""Maximum difference between a stated mean and the mean of the stated values, relative above 1."""


def measures(ks: Sequence[int]) -> tuple[str, ...]:
    """Return rig's measures at some cutoffs.

    >>> measures([5])
    ('recall@5', 'precision@5', 'hit_rate@5', 'mrr', 'map@5', 'ndcg(gain=exp)@5')
    """
    names = list(MEASURES.values())
    before, after = ([f"{name}@{k}" for k in ks for name in part] for part in (names[:3], names[3:]))
    return (*before, "mrr", *after)


def canonical(name: str) -> str:
    """Return the canonical measure behind rig's name of a metric.

    >>> canonical("ndcg@10"), canonical("mrr"), canonical("faithfulness")
    ('ndcg(gain=exp)@10', 'mrr', 'faithfulness')
    """
    parts = re.fullmatch(r"(\w+)@(\d+)", name)
    return f"{MEASURES[parts[1]]}@{parts[2]}" if parts and parts[1] in MEASURES else name


def name_of(measure: str) -> str:
    """Return rig's name of a measure.

    Raises BadInput if rig would read it as another measure.

    >>> name_of("ndcg(gain=exp)@10"), name_of("bpref")
    ('ndcg@10', 'bpref')
    """
    base, at, cutoff = measure.partition("@")
    name = next((told for told, mine in MEASURES.items() if mine == base), base) + at + cutoff
    if canonical(name) != measure:
        raise BadInput(f"by {measure} rig means {canonical(measure)}", hint=f"score by {canonical(measure)}")
    return name


def read(path: str) -> Overview:
    """Read the per-query values, means and intervals of a MultiReport.

    Raises BadInput if the stated numbers contradict each other.
    """
    source = Source(path)
    (scores,) = read_scores(path)[0].values()
    if not isinstance(scores, Scores):  # A report has no seeds.
        raise BadInput("this is no report of rig", file=source.label)
    report = read_json(source, ids=True)
    told: dict[str, Any] = {"iterations": {}, "freshness": _object(report.get("freshness"), "freshness", source.label)}
    told |= {key: _text(report.get(key), key, source.label) for key in ABOUT}
    means: dict[str, Mean] = {}
    levels: dict[float, None] = {}
    notes: list[str] = []
    for one in report["metrics"]:
        name = as_id(one["metric"], "the name of a metric", source.label)
        n, stated = len(scores.per_query[name]), count(one.get("n"), f"n of {name}", source.label)
        if stated is not None and stated != len(one["per_query"]):
            raise BadInput(
                f"n of {name} is {stated}, and per_query has {len(one['per_query'])} queries",
                file=source.label,
                hint="is the file whole?",
            )
        _agree(number(one.get("mean"), f"the mean of {name}", source.label), scores.means[name], name, source.label)
        interval = interval_in(one.get("ci"), f"ci of {name}", source.label)
        low, high = (interval.lower, interval.upper) if interval else (math.nan, math.nan)
        if interval:
            levels[interval.level] = None
            told["iterations"][canonical(name)] = interval.iterations
            if interval.level != next(iter(levels)):
                low = high = math.nan
                notes.append(f"the interval of {name} is of another level and left out")
        means[canonical(name)] = Mean(scores.means[name], n, low, high)
    name = told["store_kind"] or source.stem
    entry = Entry(name, means, [renamed(scores, name)], told=told)
    rounds = next(iter(told["iterations"].values()), 10_000)
    return Overview(
        source.stem,
        {name: entry},
        list(means),
        CONVENTION,
        confidence=next(iter(levels), 0.95),
        dataset=told["dataset_id"] or "",
        notes=notes,
        rounds=rounds,
    )


def write(overview: Overview) -> str:
    """Format an overview of one system as a MultiReport.

    Unknown values are null or omitted, as in rig.
    """
    names = written(overview)
    if len(overview.entries) != 1:
        raise BadInput(
            f"a report of rig is of one system, and here are {len(overview.entries)}: {', '.join(overview.systems)}",
            hint="name one run, or write rig-diff of two",
        )
    (entry,) = overview.entries.values()
    about = {
        "dataset_id": dataset_of(overview, entry),
        "store_kind": entry.told.get("store_kind", entry.name),
        "judge_fingerprint": entry.scores[0].judge or None,
    }
    report: dict[str, Any] = {key: value for key, value in about.items() if value is not None}
    report["metrics"] = [_metric(overview, entry, measure) for measure in names if measure in entry.means]
    if entry.told.get("freshness") is not None:
        report["freshness"] = entry.told["freshness"]
    return as_json(report)


def written(overview: Overview, layout: str = "rig") -> dict[str, str]:
    """Return the measures of an overview with rig's names.

    Raises BadInput if the convention does not fit or a system has no per-query values.
    """
    Wanted(layout, CONVENTION, tuple(overview.measures) or measures(KS), ("rig",)).check(overview)
    for name, entry in overview.entries.items():
        if not entry.scores:
            raise BadInput(f"of {name} only means are known, and rig's reports have every query", hint="give its run")
    return {measure: name_of(measure) for measure in overview.measures}


def values_of(entry: Entry, measure: str) -> dict[str, float]:
    """Return the value of each scored query, averaged over trials."""
    found: dict[str, list[float]] = {}
    for scores in entry.scores:
        for query, value in scores.per_query.get(measure, {}).items():
            found.setdefault(query, []).append(value)
    return {query: sum(values) / len(values) for query, values in found.items()}


def _metric(overview: Overview, entry: Entry, measure: str) -> dict[str, Any]:
    pairs = values_of(entry, measure)
    values = np.array(list(pairs.values()))
    n = len(values)
    p50, p95 = np.percentile(values, [50, 95]).tolist() if n else (None, None)
    found: dict[str, Any] = {
        "metric": name_of(measure),
        "n": n,
        "mean": entry.means[measure].value,
        "stddev": float(values.std(ddof=1)) if n > 1 else None,
        "min": float(values.min()) if n else None,
        "max": float(values.max()) if n else None,
        "p50": p50,
        "p95": p95,
        "per_query": [[query, value] for query, value in pairs.items()],
    }
    interval = interval_of(overview, entry, measure)
    return found if interval is None else {**found, "ci": interval}


def interval_of(overview: Overview, entry: Entry, measure: str) -> dict[str, float] | None:
    """Return the interval of a mean in rig's format, or None if it is unknown."""
    mean = entry.means[measure]
    if math.isnan(mean.low) or math.isnan(mean.high):
        return None
    rounds = entry.told.get("iterations", {}).get(measure, overview.rounds)
    return {"lower": mean.low, "upper": mean.high, "level": overview.confidence, "iterations": rounds}


@dataclass(frozen=True)
class Interval:
    """Bootstrap confidence interval as rig writes it."""

    lower: float
    upper: float
    level: float
    iterations: int


def interval_in(held: Any, what: str, label: str) -> Interval | None:
    """Parse an interval; None if there is none.

    Raises BadInput if its ends are missing or reversed.
    """
    if held is None:
        return None
    told = _object(held, what, label) or {}
    lower, upper, level = (number(told.get(key), f"{key} of {what}", label) for key in ("lower", "upper", "level"))
    if lower is None or upper is None or level is None or not 0 < level < 1 or lower > upper:
        raise BadInput(f"{what} is no interval", file=label, hint="lower, upper, level between 0 and 1, iterations")
    return Interval(lower, upper, level, count(told.get("iterations"), f"iterations of {what}", label) or 0)


def _object(held: Any, what: str, label: str) -> dict[str, Any] | None:
    if held is not None and not isinstance(held, dict):
        raise BadInput(f"{what} is no object", file=label)
    return held


def _text(held: Any, what: str, label: str) -> str | None:
    if held is not None and not isinstance(held, str):
        raise BadInput(f"{what} is no text", file=label)
    return held or None


def _agree(stated: float | None, found: float, name: str, label: str) -> None:
    """Raise BadInput if a stated mean is not the mean of the stated values."""
    if stated is not None and abs(stated - found) > NEAR * max(1.0, abs(found)):
        raise BadInput(f"the mean of {name} is {stated:g}, and that of per_query {found:g}", file=label)


def renamed(scores: Scores, name: str) -> Scores:
    """Return the scores of a system under canonical measure names.

    Rig's names still work as keys.
    """

    def by_measure(values: Mapping[str, V]) -> ByMeasure[V]:
        return ByMeasure({canonical(one): value for one, value in values.items()}, canonical)

    return replace(
        scores,
        run=name,
        convention=CONVENTION,
        values=by_measure(scores.values),
        means=by_measure(scores.means),
        unscored=by_measure(scores.unscored),
    )


SIDES = ("baseline", "current")
"""Names of the two systems, which the file does not contain."""
NOISE = 1e-9
"""Largest difference of a query that counts as unchanged."""
DIFF_TOLERANCE = 1e-6
BUCKETS = ("winners", "losers", "unchanged")


def read_diff(path: str) -> Overview:
    """Read the means of both systems, and their values on the shared queries."""
    source = Source(path)
    report = read_json(source, ids=True)
    rows = report.get("rows") if isinstance(report, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and "metric" in row for row in rows):
        raise BadInput(
            "this is no diff of rig's reports",
            file=source.label,
            hint='{"rows": [{"metric": …, "current_mean": …, "baseline_mean": …, "query_changes": […]}]}',
        )
    means: dict[str, dict[str, Mean]] = {side: {} for side in SIDES}
    values: dict[str, dict[str, dict[str, float]]] = {side: {} for side in SIDES}
    told: dict[str, dict[str, Any]] = {side: {"iterations": {}} for side in SIDES}
    levels: dict[float, None] = {}
    for row in rows:
        name = as_id(row["metric"], "the name of a metric", source.label)
        measure = canonical(name)
        if measure in values["current"]:
            raise BadInput(f"{name} comes twice", file=source.label)
        changes = _changes(row, name, source.label)
        for side in SIDES:
            values[side][measure] = changes[side]
            stated = number(row.get(f"{side}_mean"), f"{side}_mean of {name}", source.label)
            interval = interval_in(row.get(f"{side}_ci"), f"{side}_ci of {name}", source.label)
            if stated is None:
                continue
            low, high = math.nan, math.nan
            if interval:
                levels[interval.level] = None
                told[side]["iterations"][measure] = interval.iterations
                if interval.level == next(iter(levels)):
                    low, high = interval.lower, interval.upper
            means[side][measure] = Mean(stated, _number_of(stated, changes[side]), low, high)
        _check_delta(row, name, means, measure, source.label)
    entries = {
        side: Entry(side, means[side], _scores(side, values[side]), told=told[side]) for side in SIDES if means[side]
    }
    if "current" not in entries:
        raise BadInput("no row has a current_mean", file=source.label)
    return Overview(
        source.stem,
        entries,
        list(dict.fromkeys(measure for side in reversed(SIDES) for measure in means[side])),
        CONVENTION,
        confidence=next(iter(levels), 0.95),
        baseline="baseline" if "baseline" in entries else None,
        notes=["rig does not say which systems were compared, and keeps only the queries that both have"],
    )


def write_diff(overview: Overview) -> str:
    """Format the differences of two systems.

    Without a baseline, the first system is the baseline.
    """
    names = written(overview, "rig-diff")
    if len(overview.entries) != 2:
        raise BadInput(
            f"a diff of rig's reports is of two systems, and here are {len(overview.entries)}: "
            + ", ".join(overview.systems),
            hint="name two runs, the baseline first",
        )
    base = overview.baseline if overview.baseline in overview.entries else overview.systems[0]
    old = overview.entries[str(base)]
    new = next(entry for name, entry in overview.entries.items() if name != base)
    judges = {entry.scores[0].judge for entry in (old, new) if entry.scores}
    if len(judges) > 1:
        raise BadInput(f"{old.name} and {new.name} were scored by different judges", hint="rig refuses that too")
    rows = [_row(overview, measure, name, old, new) for measure, name in names.items() if measure in new.means]
    return as_json({"rows": rows})


def _row(overview: Overview, measure: str, name: str, old: Entry, new: Entry) -> dict[str, Any]:
    before, after = values_of(old, measure), values_of(new, measure)
    changes: list[dict[str, Any]] = [
        {"query_id": query, "current": value, "baseline": before[query], "delta": value - before[query]}
        for query, value in after.items()
        if query in before
    ]
    changes.sort(key=lambda one: (-abs(one["delta"]), one["query_id"]))
    current = new.means[measure].value
    baseline = old.means[measure].value if measure in old.means else None
    row: dict[str, Any] = {
        "metric": name,
        "current_mean": current,
        "baseline_mean": baseline,
        "delta": None if baseline is None else current - baseline,
        **dict(zip(BUCKETS, _buckets(one["delta"] for one in changes), strict=True)),
        "query_changes": changes,
    }
    for side, entry in (("current", new), ("baseline", old)):
        interval = interval_of(overview, entry, measure) if measure in entry.means else None
        if interval is not None:
            row[f"{side}_ci"] = interval
    return row


def _buckets(deltas: Any) -> tuple[int, int, int]:
    known = list(deltas)
    won, lost = sum(one > NOISE for one in known), sum(one < -NOISE for one in known)
    return won, lost, len(known) - won - lost


def _changes(row: Mapping[str, Any], name: str, label: str) -> dict[str, dict[str, float]]:
    """Parse the values of both systems by query.

    Raises BadInput if the row is inconsistent.
    """
    held = row.get("query_changes", [])
    if not isinstance(held, list) or not all(isinstance(one, dict) for one in held):
        raise BadInput(f"query_changes of {name} are no list of objects", file=label)
    found: dict[str, dict[str, float]] = {side: {} for side in SIDES}
    for one in held:
        query = as_id(one.get("query_id"), f"a query of {name}", label)
        if query in found["current"]:
            raise BadInput(f"{name} of query `{query}` comes twice", file=label)
        for side in SIDES:
            value = number(one.get(side), f"{side} of query `{query}` by {name}", label)
            if value is None:
                raise BadInput(f"{side} of query `{query}` by {name} is missing", file=label)
            found[side][query] = value
        delta = number(one.get("delta"), f"delta of query `{query}` by {name}", label)
        real = found["current"][query] - found["baseline"][query]
        if delta is not None and abs(delta - real) > DIFF_TOLERANCE * max(1.0, abs(real)):
            raise BadInput(f"delta of query `{query}` by {name} is {delta:g}, and the values give {real:g}", file=label)
    if held:
        real_buckets = _buckets(found["current"][query] - found["baseline"][query] for query in found["current"])
        for bucket, real_count in zip(BUCKETS, real_buckets, strict=True):
            stated = count(row.get(bucket), f"{bucket} of {name}", label)
            if stated is not None and stated != real_count:
                raise BadInput(
                    f"{name} has {stated} {bucket}, and query_changes {real_count}",
                    file=label,
                    hint="is the file whole?",
                )
    return found


def _check_delta(
    row: Mapping[str, Any], name: str, means: Mapping[str, Mapping[str, Mean]], measure: str, label: str
) -> None:
    delta = number(row.get("delta"), f"delta of {name}", label)
    if delta is None or not all(measure in means[side] for side in SIDES):
        return
    real = means["current"][measure].value - means["baseline"][measure].value
    if abs(delta - real) > DIFF_TOLERANCE * max(1.0, abs(real)):
        raise BadInput(f"delta of {name} is {delta:g}, and the means give {real:g}", file=label)


def _number_of(mean: float, values: Mapping[str, float]) -> int:
    """Return the number of queries of a mean, or 0 if it is unknown.

    It is known if the given values reproduce the mean.
    """
    here = sum(values.values()) / len(values) if values else math.nan
    return len(values) if math.isclose(mean, here, rel_tol=1e-6, abs_tol=1e-9) else 0


def _scores(side: str, columns: Mapping[str, Mapping[str, float]]) -> list[Scores]:
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
            side,
            CONVENTION,
            queries,
            ByMeasure(values, canonical),
            ByMeasure(means, canonical),
            ByMeasure(unscored, canonical),
        )
    ]
