"""Read and write rig's ReportDiff of a system and its baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ragauge.errors import BadInput
from ragauge.formats.documents import read_json
from ragauge.formats.files import Source
from ragauge.formats.layouts.cells import as_json, count, number
from ragauge.formats.layouts.rig import CONVENTION, canonical, interval_in, interval_of, values_of, written
from ragauge.formats.rows import as_id
from ragauge.outcomes import Mean
from ragauge.overviews import Entry, Overview
from ragauge.records import ByMeasure, Scores

SIDES = ("baseline", "current")
"""Names of the two systems, which the file does not contain."""
NOISE = 1e-9
"""Largest difference of a query that counts as unchanged."""
NEAR = 1e-6
BUCKETS = ("winners", "losers", "unchanged")


def read(path: str) -> Overview:
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


def write(overview: Overview) -> str:
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
        if delta is not None and abs(delta - real) > NEAR * max(1.0, abs(real)):
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
    if abs(delta - real) > NEAR * max(1.0, abs(real)):
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
