"""A sweep of vector stores as RAGdbEval's results: an experiment for each configuration."""

from __future__ import annotations

import math
from typing import Any

from ragauge.formats.layouts import ragdbeval
from ragauge.outcomes import Mean, Speed
from ragauge.overviews import Entry, Overview
from ragauge.sweeps import Point, Sweep

CUTS = (1, 10, 50, 100)
"""The k that the layout has columns for."""
AT = {0.90: "qps_at_recall_90", 0.95: "qps_at_recall_95", 0.99: "qps_at_recall_99"}


def write(sweep: Sweep) -> str:
    """The JSON; what is not known is null."""
    return ragdbeval.write(overview(sweep))


def write_csv(sweep: Sweep) -> str:
    """The table, which has no place for what failed."""
    return ragdbeval.write_csv(overview(sweep))


def overview(sweep: Sweep) -> Overview:
    """The sweep as what its layout is written from.

    Its recall@k is the share of the k nearest that were found, which is recall(of=k)@k here: among exactly k relevant
    ones, dividing by the smaller of both numbers is dividing by k. Its precision is over what came back, which is the
    same where all k did, as where each is among the 100 nearest. Its mrr is left out below k = 100: ours takes the 100
    nearest for relevant, and two meanings of relevant in a row would be one too many.
    """
    entries = {}
    for one in (point for point in sweep.points if not point.is_floor):
        name = f"{one.configuration.name}={one.configuration}" if one.configuration.name else str(one.configuration)
        told = _told(sweep, one, name)
        speed = Speed({"total": one.latency}, one.qps, one.latency.n, 0, 0)
        entries[name] = Entry(name, _means(sweep, one), speed=speed, costs=_costs(sweep, one), told=told)
    failures = {str(one.configuration): f"{one.stage}: {one.message}" for one in sweep.failures}
    made = str(sweep.circumstances.get("made") or "")
    measures = [name for name in ragdbeval.WANTED.measures if any(name in one.means for one in entries.values())]
    return Overview(
        sweep.data, entries, measures, ragdbeval.WANTED.convention, dataset=sweep.data, failures=failures, made=made
    )


def _means(sweep: Sweep, one: Point) -> dict[str, Mean]:
    found = {mine: one.quality[mine] for mine in ragdbeval.QUALITY.values() if mine in one.quality}
    for k in CUTS:
        if f"recall(of=k)@{k}" in one.quality:
            found[f"recall(of=capped)@{k}"] = one.quality[f"recall(of=k)@{k}"]
            if one.quality.get(f"precision@{k}") == 1:
                found[f"precision(of=retrieved)@{k}"] = one.quality[f"recall(of=k)@{k}"]
    return {name: Mean(value, sweep.queries) for name, value in found.items() if math.isfinite(value)}


def _costs(sweep: Sweep, one: Point) -> dict[str, float]:
    made, series = one.build, one.configuration.series
    flat_out = [load.qps for load in one.loads if load.rate is None]
    found: dict[str, float | None] = {
        "build_seconds": made.seconds,
        "cold_ms": made.cold_open_ms + made.cold_first_ms,
        "index_size_bytes": made.disk_bytes,
        "disk_bytes": made.disk_bytes,
        "ram_bytes_steady": made.memory_bytes,
        "bytes_per_vector": made.bytes_per_vector,
        "qps_max": max([one.qps, *flat_out]),
        # Some stores only queue what they are given, and do the work when they index.
        "insert_throughput_batch": made.vectors / made.seconds if made.seconds > 0 else None,
        **{AT[at.recall]: at.qps for at in sweep.reached if at.store == series and at.recall in AT},
    }
    for change in one.changes:
        column = "insert_latency_single_ms" if change.operation == "insert" else f"{change.operation}_latency_ms"
        found[column] = change.latency.mean
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


def _told(sweep: Sweep, one: Point, name: str) -> dict[str, Any]:
    about = sweep.circumstances
    _, _, options = str(one.configuration).partition(":")
    return {
        "experiment_name": name,
        "finished": about.get("made"),
        "database": one.configuration.store,
        "dataset": {"name": sweep.data},
        "index_config": options or None,
        "plan": {"repeats": sweep.repeats},
        "machine": about.get("machine"),
        "error_message": "; ".join([*one.clock.doubts, *one.notes]) or None,
        "random_seed": about.get("seed"),
    }
