"""Export an overview as CSV, long or wide, by system or by query.

Unknown values are empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ragauge.audits.report import as_data as audit_data
from ragauge.comparison.report import as_data as comparisons_data
from ragauge.comparison.report import row_data
from ragauge.comparison.results import Curve, Entry, Overview
from ragauge.core.records import Scores
from ragauge.core.summaries import Mean, Speed
from ragauge.files.serialization import plain, without_nan
from ragauge.output.numbers import number
from ragauge.output.terminal import csv_text, direction
from ragauge.reports.summary import verdict
from ragauge.reports.systems_tables import (
    CACHED,
    UNKNOWN,
    asked,
    failures,
    is_cached_build,
    known_n,
    manifest_of,
    unknown_ids,
)
from ragauge.stats.repeated_trials import Variation

if TYPE_CHECKING:
    import polars as pl


FIGURES = ("mean", "p50", "p90", "p95", "p99", "min", "max")
"""Latency statistics that are exported."""
DATE = ("made", "reused")
"""Columns with the date of a system's results."""


def summary_csv(overview: Overview) -> str:
    """Format an overview as long CSV, one row per system and value."""
    rows = ([*row, *_date(entry)] for entry in overview.entries.values() for row in _figures(overview, entry))
    return csv_text(["system", "figure", "value", "low", "high", "n", *DATE], rows)


def _date(entry: Entry) -> list[str]:
    """Return cells with the date of a system's results and whether reused.

    They are empty if unknown.
    """
    date = entry.answered
    return ["", ""] if date is None else [date.made, str(date.reused).lower()]


def _figures(overview: Overview, entry: Entry) -> Iterator[list[str]]:
    name = entry.name
    for m in overview.measures:
        mean = entry.means.get(m, UNKNOWN)
        yield [name, m, number(mean.value), number(mean.low), number(mean.high), number(known_n(mean))]
    for m, found in entry.variation.items():
        parts = {f"variance_{part}": value for part, value in found.variances._asdict().items()}
        parts |= {"standard_error": found.error, "by_trials": found.by_trials, "unstable": found.unstable / found.n}
        for figure, value in {"trials": found.trials, **parts}.items():
            yield [name, f"{figure}({m})", number(value), "", "", str(found.n)]
    for row in () if overview.compared is None else overview.compared.rows:
        if row.system == name:
            pair = f"({row.measure}, {row.baseline})"
            yield [name, f"difference{pair}", number(row.difference), *map(number, row.ci), str(row.n)]
            yield [name, f"p_corrected{pair}", number(row.p_corrected), "", "", str(row.n)]
    if entry.speed is not None:
        for stage, one in entry.speed.stages.items():
            for figure in FIGURES:
                yield [name, f"{stage}_{figure}_ms", number(getattr(one, figure)), "", "", str(one.n)]
        yield [name, "throughput", number(entry.speed.throughput), "", "", str(entry.speed.asked)]
    if entry.doubts:
        yield [name, "unreliable_times", "; ".join(entry.doubts), "", "", "1"]
    for cost, value in entry.costs.items():
        yield [name, cost, CACHED if is_cached_build(entry, cost) else number(value), "", "", "1"]
    if entry.speed is not None:
        yield [name, "failed", str(failures(entry)), "", "", str(entry.speed.asked)]
    if unknown_ids(entry):
        yield [name, "unknown_ids", str(unknown_ids(entry)), "", "", str(entry.manifest["unknown_ids"]["returned"])]


def wide_csv(overview: Overview) -> str:
    """Format an overview as wide CSV, one row per system.

    It contains each measure with interval and n, percentiles of each stage, throughput and costs.
    """
    entries = overview.entries.values()
    stages = list(dict.fromkeys(s for one in entries if one.speed is not None for s in one.speed.stages))
    costs = list(dict.fromkeys(cost for one in entries for cost in one.costs))
    header = ["system", *(f"{m}{end}" for m in overview.measures for end in ("", "_low", "_high", "_n"))]
    header += [f"{stage}_{figure}_ms" for stage in stages for figure in FIGURES]
    header += ["throughput", "asked", "failed", *costs, *DATE]
    rows = []
    for entry in entries:
        row = [entry.name]
        for m in overview.measures:
            mean = entry.means.get(m, UNKNOWN)
            row += [number(mean.value), number(mean.low), number(mean.high), number(known_n(mean))]
        known = {} if entry.speed is None else entry.speed.stages
        for stage in stages:
            row += [number(getattr(known[stage], figure)) if stage in known else "" for figure in FIGURES]
        row += ["", "", str(len(entry.failed)) if entry.failed else ""]
        if entry.speed is not None:
            row[-3:] = [number(entry.speed.throughput), str(entry.speed.asked), str(failures(entry))]
        told = [CACHED if is_cached_build(entry, cost) else number(entry.costs.get(cost)) for cost in costs]
        rows.append([*row, *told, *_date(entry)])
    return csv_text(header, rows)


@dataclass(frozen=True)
class Asked:
    """Result of one query in one trial of one system."""

    system: str
    trial: int
    query: str
    values: dict[str, float]
    """Values by measure; NaN if unscored."""
    total_ms: float = math.nan
    status: str = ""
    """`ok`, `error` or `timeout`; empty if unknown."""


def query_executions(entry: Entry) -> Iterator[Asked]:
    """Yield the result of every query in every scored trial of a system."""
    timings = None if entry.run is None else entry.run.timings
    for trial, scores in enumerate(entry.scores):
        times = _times(timings, trial)
        columns = {m: values.tolist() for m, values in scores.values.items()}
        for i, query in enumerate(scores.queries):
            values = {m: column[i] for m, column in columns.items()}
            yield Asked(entry.name, trial, query, values, *times.get(query, (math.nan, "")))


def _times(timings: pl.DataFrame | None, trial: int) -> dict[str, tuple[float, str]]:
    """Return the latency in ms and the status by query in one trial."""
    if timings is None:
        return {}
    if "repeat" in timings.columns:
        timings = timings.filter(timings["repeat"] == trial)
    rows = timings.select("query", "total_ns", "status").iter_rows()
    return {query: (math.nan if total is None else total / 1e6, status or "") for query, total, status in rows}


def _several(overview: Overview) -> bool:
    return any(len(entry.scores) > 1 for entry in overview.entries.values())


def queries_csv(overview: Overview) -> str:
    """Format scores as long CSV, one row per system, query and measure.

    If there are several trials, each has its own rows.
    """
    several = _several(overview)

    def rows() -> Iterator[list[str]]:
        for entry in overview.entries.values():
            for trial, scores in enumerate(entry.scores):
                for m in _measures(overview, scores):
                    for query, value in zip(scores.queries, scores.values[m].tolist(), strict=True):
                        lead = [entry.name, *([str(trial)] if several else [])]
                        yield [*lead, query, m, number(value), direction(scores, m)]

    return csv_text(["run", *(["trial"] if several else []), "query", "measure", "value", "lower_is_better"], rows())


def _measures(overview: Overview, scores: Scores) -> list[str]:
    return [m for m in overview.measures if m in scores.values]


def queries_wide_csv(overview: Overview) -> str:
    """Format scores as wide CSV, one row per system, trial and query.

    It contains the query text, if known, each measure, the latency in ms and the status.
    """
    several, told = _several(overview), bool(overview.queries)
    header = ["run", *(["trial"] if several else []), "query", *(["text"] if told else [])]
    rows = (
        [
            *([one.system, str(one.trial)] if several else [one.system]),
            *([one.query, overview.queries.get(one.query, "")] if told else [one.query]),
            *(number(one.values.get(m)) for m in overview.measures),
            number(one.total_ms),
            one.status,
        ]
        for entry in overview.entries.values()
        for one in query_executions(entry)
    )
    return csv_text([*header, *overview.measures, "total_ms", "status"], rows)


SCHEMA = "ragauge-report/2"
"""Schema name and version. A new version means that fields were removed or redefined."""


def as_data(overview: Overview, *, per_query: bool = False, moved: int = 3) -> dict[str, Any]:
    """Return an overview as JSON data without rankings; NaN becomes None.

    `per_query` adds every query of each system. `moved` is the number of queries listed with each comparison, for
    those that rose most and for those that fell most.
    """
    about = manifest_of(overview)
    hashes = {**(about.get("dataset") or {}), "judgments_hash": overview.judgments_hash or None}
    data = {
        "schema": SCHEMA,
        "title": overview.title,
        "made": overview.made or None,
        "verdict": verdict(overview),
        "dataset": {
            "name": overview.dataset or None,
            "documents": overview.documents_known,
            "queries": asked(overview),
            **{name: hashes.get(name) for name in ("documents_hash", "queries_hash", "judgments_hash")},
        },
        "convention": overview.convention or None,
        "confidence": overview.confidence,
        "measures": [{"name": m, "lower_is_better": m in overview.lower_is_better} for m in overview.measures],
        "baseline": overview.baseline,
        "systems": {name: _system(overview, entry, per_query=per_query) for name, entry in overview.entries.items()},
        "comparisons": None if overview.compared is None else comparisons_data(overview.compared, moved),
        "rival": None if overview.rival is None else row_data(overview.rival, moved, overview.queries),
        "curves": [_curve(one) for one in overview.curves],
        "strata": {
            tag: [
                {"value": one.value, "n": one.n, "means": {name: _mean(mean) for name, mean in one.means.items()}}
                for one in several
            ]
            for tag, several in overview.strata.items()
        },
        "audit": None if overview.audit is None else audit_data(overview.audit),
        "failures": dict(overview.failures),
        "notes": list(overview.notes),
    }
    return dict(without_nan(plain(data)))


def _mean(mean: Mean) -> dict[str, Any]:
    return {"mean": mean.value, "n": known_n(mean), "low": mean.low, "high": mean.high}


def _system(overview: Overview, entry: Entry, *, per_query: bool) -> dict[str, Any]:
    system = entry.manifest.get("system") or {}
    found: dict[str, Any] = {
        "description": system.get("description"),
        "measures": {
            m: _mean(entry.means.get(m, UNKNOWN)) | {"unscored": _unscored(entry, m)} for m in overview.measures
        },
        "made": None if entry.answered is None else entry.answered.made,
        "reused": entry.answered is not None and entry.answered.reused,
        "trials": len(entry.scores),
        "speed": None if entry.speed is None else _speed(entry.speed),
        "costs": dict(entry.costs),
        "failed": dict(entry.failed),
        "manifest": dict(entry.manifest) or None,
    }
    if entry.variation:
        found["variation"] = {m: _variation(entry, m, one) for m, one in entry.variation.items()}
    if per_query:
        found["queries"] = [
            {
                "query": one.query,
                "trial": one.trial,
                "values": {m: one.values.get(m, math.nan) for m in overview.measures},
                "total_ms": one.total_ms,
                "status": one.status or None,
            }
            for one in query_executions(entry)
        ]
    return found


def _variation(entry: Entry, measure: str, one: Variation) -> dict[str, Any]:
    return {
        "trials": one.trials,
        "n": one.n,
        "left_out": one.left_out,
        "unstable": one.unstable,
        "means": [scores.means[measure] for scores in entry.scores],
        "mean_squares": one.squares._asdict(),
        **{name: getattr(one, name)._asdict() for name in ("estimates", "variances", "shares", "of_mean")},
        "error": one.error,
        "by_queries": one.by_queries,
        "by_trials": one.by_trials,
        "trials_enough": one.enough(),
    }


def _speed(speed: Speed) -> dict[str, Any]:
    return {
        "stages": {stage: asdict(one) for stage, one in speed.stages.items()},
        "throughput": speed.throughput,
        "asked": speed.asked,
        "failed": speed.failed,
        "timed_out": speed.timed_out,
    }


def _unscored(entry: Entry, measure: str) -> dict[str, str]:
    """Return the queries without a value in any trial, with the reason."""
    lacking = [one.unscored.get(measure, {}) for one in entry.scores if measure in one.values]
    return {query: why for query, why in lacking[0].items() if all(query in one for one in lacking)} if lacking else {}


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "measure": curve.measure,
        "k": list(curve.ks),
        "values": {name: list(values) for name, values in curve.values.items()},
        "enough": {
            name: {"k": one.k, "tolerance": one.tolerance, "confidence": one.confidence}
            for name, one in curve.enough.items()
        },
    }
