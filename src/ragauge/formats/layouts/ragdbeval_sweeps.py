"""Write a store benchmark as RAGdbEval's results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ragauge.formats.layouts import ragdbeval
from ragauge.outcomes import Mean, Speed
from ragauge.overviews import Entry, Overview
from ragauge.sweeps import Point, Sweep

AT = {0.90: "qps_at_recall_90", 0.95: "qps_at_recall_95", 0.99: "qps_at_recall_99"}


def write(sweep: Sweep, convention: str = ragdbeval.CODE) -> str:
    """Format a store benchmark as RAGdbEval's JSON. Unknown values are null."""
    return ragdbeval.write(overview(sweep, convention))


def write_csv(sweep: Sweep, convention: str = ragdbeval.CODE) -> str:
    """Format a store benchmark as RAGdbEval's CSV, which has no column for failures."""
    return ragdbeval.write_csv(overview(sweep, convention))


def overview(sweep: Sweep, convention: str = ragdbeval.CODE) -> Overview:
    """Return the overview of a store benchmark that the layout is written from.

    All known exact neighbours of a query (100 unless k is larger) are relevant, as in RAGdbEval. Its document
    divides recall by their number, its code by min(k, their number). Precision is divided by k in the document, and
    by the number of returned documents in the code. `mrr` has depth 100 and is omitted if fewer neighbours were
    searched for.
    """
    entries = {}
    for one in (point for point in sweep.points if not point.is_floor):
        name = f"{one.configuration.name}={one.configuration}" if one.configuration.name else str(one.configuration)
        told = _told(sweep, one, name)
        speed = Speed({"total": one.latency}, one.qps, one.latency.n, 0, 0)
        means = _means(sweep, one, ragdbeval.MEASURES[convention])
        entries[name] = Entry(name, means, speed=speed, costs=_costs(sweep, one), told=told)
    failures = {str(one.configuration): f"{one.stage}: {one.message}" for one in sweep.failures}
    made = str(sweep.circumstances.get("made") or "")
    wanted = ragdbeval.MEASURES[convention].values()
    measures = [name for name in wanted if any(name in one.means for one in entries.values())]
    return Overview(sweep.data, entries, measures, convention, dataset=sweep.data, failures=failures, made=made)


def _means(sweep: Sweep, one: Point, wanted: Mapping[str, str]) -> dict[str, Mean]:
    # k never exceeds the number of known neighbours, so min(k, number of relevant ones) is k.
    known = {name.replace("precision@", "recall(of=capped)@"): value for name, value in one.quality.items()}
    # If all k are relevant, all k were returned. Benchmarks of earlier versions lack precision(of=retrieved).
    whole = {name: value for name, value in one.quality.items() if name.startswith("precision@") and value == 1}
    known |= {name.replace("@", "(of=retrieved)@"): value for name, value in whole.items()}
    found = {mine: (known | dict(one.quality)).get(mine, math.nan) for mine in wanted.values()}
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
        # Some stores only queue inserted vectors and do the work when they index.
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
        "finished": one.made or about.get("made"),
        "database": one.configuration.store,
        "dataset": {"name": sweep.data},
        "index_config": options or None,
        "plan": {"repeats": sweep.repeats},
        "machine": about.get("machine"),
        "warnings": [*one.clock.doubts, *one.notes, *([f"reused; made {one.made}"] if one.reused else [])] or None,
        "random_seed": about.get("seed"),
    }
