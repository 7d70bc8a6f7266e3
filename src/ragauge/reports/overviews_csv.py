"""Export an overview as CSV, long or wide, by system or by query.

Unknown values are empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragauge.overviews import Entry, Overview
from ragauge.records import Scores
from ragauge.reports.overviews import CACHED, UNKNOWN, failures, is_cached_build, known_n, unknown_ids
from ragauge.reports.tables import csv_text, direction, number

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


def asked(entry: Entry) -> Iterator[Asked]:
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
        for one in asked(entry)
    )
    return csv_text([*header, *overview.measures, "total_ms", "status"], rows)
