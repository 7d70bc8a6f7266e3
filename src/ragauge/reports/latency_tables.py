"""Tables of the latency, throughput and costs of systems."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ragauge.comparison.results import Overview, SystemSummary
from ragauge.core.stages import STAGES
from ragauge.output.numbers import join_names
from ragauge.output.tables import DOUBT_MARK, Cell, Column, Row, Table, Value

LATENCY_STATISTICS = ("p50", "p90", "p95", "p99", "mean")
STAGE_STATISTICS = ("p50", "p90", "p95", "p99", "mean", "std", "min", "max")
COST_COLUMNS = {
    "cold_ms": Column("cold ms", "ms", drop_order=3, legend="first query after the start", key="cold_ms"),
    "build_seconds": Column("build s", "ratio", drop_order=5, key="build_seconds"),
}
"""Columns of known costs; other costs are shown in files only."""
CACHED_BUILD_TEXT = "cached"
"""Shown instead of a build time if vectors of documents came from the cache."""
DROP_ORDER = {"mean": 1, "p90": 2, "p99": 4, "rerank": 6, "embed": 7, "retrieve": 8}
"""Order in which a narrow terminal drops columns."""


def build_latency_table(overview: Overview) -> Table:
    """Build the table of stage medians, percentiles of the total, throughput and costs; empty without timings."""
    timed = {name: entry for name, entry in overview.entries.items() if entry.speed is not None}
    stages = list_stages(overview)
    statistics = _known_statistics(overview)
    costs = [cost for cost in COST_COLUMNS if any(cost in entry.costs for entry in timed.values())]
    other_costs = dict.fromkeys(cost for entry in timed.values() for cost in entry.costs if cost not in COST_COLUMNS)
    columns = [Column("system", "name")]
    columns += [Column(stage, "ms", -1, DROP_ORDER.get(stage, 9)) for stage in stages]
    columns += [
        Column(f"{name} ms" if i == 0 else name, "ms", -1, DROP_ORDER.get(name, 0)) for i, name in enumerate(statistics)
    ]
    has_throughput = any(not math.isnan(throughput_of(entry)) for entry in timed.values())
    columns += [Column(_throughput_title(overview), "qps", 1)] if has_throughput else []
    columns += [COST_COLUMNS[cost] for cost in costs]
    columns += [Column(cost.replace("_", " "), _cost_style(cost), drop_order=10, key=cost) for cost in other_costs]
    counts = {"failed": count_failures, "unknown ids": count_unknown_ids}
    shown_counts = {title: count for title, count in counts.items() if any(map(count, timed.values()))}
    columns += [Column(title, "count") for title in shown_counts]
    rows: list[Row] = []
    for name, entry in timed.items():
        stage_latencies = {} if entry.speed is None else entry.speed.stages
        total = stage_latencies.get("total")
        mark = DOUBT_MARK if entry.doubts else ""
        row = [
            Cell(name),
            *(_time_cell(stage_latencies[s].p50 if s in stage_latencies else None, mark) for s in stages),
        ]
        row += [_time_cell(None if total is None else getattr(total, statistic), mark) for statistic in statistics]
        row += [_time_cell(throughput_of(entry), mark)] if has_throughput else []
        row += [_cost_cell(entry, cost) for cost in (*costs, *other_costs)]
        rows.append([*row, *(Cell(count(entry)) for count in shown_counts.values())])
    return Table(
        "latency", columns, rows, note=" ".join(f"{line[:1].upper()}{line[1:]}." for line in describe_timings(overview))
    )


def build_stages_table(overview: Overview) -> Table:
    """Build the table of latency statistics by stage."""
    columns = [Column("system", "name"), Column("stage", "name")]
    columns += [*(Column(name, "ms") for name in STAGE_STATISTICS), Column("n", "count")]
    rows: list[Row] = []
    for name, entry in overview.entries.items():
        stage_latencies = {} if entry.speed is None else entry.speed.stages
        mark = DOUBT_MARK if entry.doubts else ""
        for stage in [*(s for s in STAGES if s in stage_latencies), *(s for s in stage_latencies if s not in STAGES)]:
            values = [_time_cell(getattr(stage_latencies[stage], statistic), mark) for statistic in STAGE_STATISTICS]
            rows.append([name, stage, *values, stage_latencies[stage].n])
    note = "Milliseconds; percentiles by linear interpolation, without failed queries."
    return Table("stages", columns, rows, "Latency by stage", group_by=0, collapsed=True, note=note)


EMBEDDING_COLUMNS = {
    "dimension": Column("dimension", "count"),
    "bytes_per_vector": Column("bytes per vector", "bytes", drop_order=2),
    "parameters": Column("parameters", "count"),
    "trained": Column("trained", "name", drop_order=1),
    "limit": Column("token limit", "count", drop_order=3),
    "truncated": Column("truncated", "share", legend="share of documents longer than the token limit"),
}
"""Columns of what a manifest says of the embedder of a dense system."""


def build_embedders_table(overview: Overview) -> Table:
    """Build the table of vector sizes, model sizes and truncated documents of dense systems; empty without any."""
    described = {name: entry.embedding for name, entry in overview.entries.items() if entry.embedding}
    names = [name for name in EMBEDDING_COLUMNS if any(name in about for about in described.values())]
    columns = [Column("system", "name"), *(EMBEDDING_COLUMNS[name] for name in names)]
    rows: list[Row] = [
        [system, *(_fact_value(about.get(name)) for name in names)] for system, about in described.items()
    ]
    return Table("embedders", columns, rows)


def _fact_value(value: Any) -> Value:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _time_cell(value: float | None, mark: str) -> Cell:
    is_known = value is not None and not math.isnan(value)
    return Cell(value, mark=mark) if is_known else Cell(None, text="" if value is None else "-")


def throughput_of(entry: SystemSummary) -> float:
    """Return the throughput in queries per second; NaN if unknown."""
    return math.nan if entry.speed is None else entry.speed.throughput


def _throughput_title(overview: Overview) -> str:
    # Files of other tools state QPS as 1000 / mean ms. A run has queries per second of wall-clock time.
    is_measured = any(entry.run is not None and entry.run.timings is not None for entry in overview.entries.values())
    return "throughput" if is_measured else "QPS"


def _known_statistics(overview: Overview) -> list[str]:
    totals = [
        entry.speed.stages["total"]
        for entry in overview.entries.values()
        if entry.speed is not None and "total" in entry.speed.stages
    ]
    statistics = [name for name in LATENCY_STATISTICS if any(not math.isnan(getattr(total, name)) for total in totals)]
    return statistics or ["p50"]


def list_stages(overview: Overview) -> list[str]:
    """Return the stages with a known median, in order of execution."""
    stages_by_system = [entry.speed.stages for entry in overview.entries.values() if entry.speed is not None]
    timed = dict.fromkeys(stage for stages in stages_by_system for stage in stages if not math.isnan(stages[stage].p50))
    return [*(stage for stage in STAGES if stage in timed), *(s for s in timed if s not in (*STAGES, "total"))]


def count_failures(entry: SystemSummary) -> int:
    """Return the number of query executions that failed or timed out."""
    return len(entry.failed) if entry.speed is None else entry.speed.failed + entry.speed.timed_out


def count_unknown_ids(entry: SystemSummary) -> int:
    """Return the number of returned ids that are not in the corpus; 0 if it was not recorded."""
    counts = entry.manifest.get("unknown_ids")
    return int(counts.get("unknown") or 0) if isinstance(counts, Mapping) else 0


def is_cached_build(entry: SystemSummary, cost: str) -> bool:
    """Return whether a cost is the time of a build whose vectors came from the cache."""
    return cost == "build_seconds" and entry.is_build_cached


def _cost_style(cost: str) -> str:
    return "ms" if cost.endswith("_ms") else "bytes" if cost.endswith("_bytes") else "ratio"


def _cost_cell(entry: SystemSummary, cost: str) -> Cell:
    value = entry.costs.get(cost)
    return Cell(value, text=CACHED_BUILD_TEXT) if is_cached_build(entry, cost) else Cell(value)


def describe_timings(overview: Overview) -> list[str]:
    """Describe how latencies were measured, and which are unreliable; empty without timings."""
    if all(entry.speed is None for entry in overview.entries.values()):
        return []
    stages = list_stages(overview)
    medians = ", stages: median" * bool(stages) + " (rerank includes fusion)" * ("rerank" in stages)
    harness = overview.first_manifest.get("harness_microseconds")
    overhead = f"; overhead of the harness {harness:.0f} µs per query" if isinstance(harness, int | float) else ""
    return [f"latency in ms{medians}{overhead}", *describe_unreliable_timings(overview)]


def describe_unreliable_timings(overview: Overview) -> list[str]:
    """Explain the mark of unreliable timings in one line for all systems."""
    timings = [f"{name}: {'; '.join(entry.doubts)}" for name, entry in overview.entries.items() if entry.doubts]
    if not timings:
        return []
    return [f"{DOUBT_MARK} marks unreliable times ({join_names(timings)}); run again on an idle machine"]
