"""Latency percentiles of each stage, and throughput."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ragauge.core.records import Floats
from ragauge.core.summaries import Latency, Speed

if TYPE_CHECKING:
    import polars as pl


def stage_latencies_ms(timings: pl.DataFrame) -> dict[str, Floats]:
    """Return the latencies of each stage and the total, in milliseconds.

    Stages cover successful queries; the total also covers timeouts.
    """
    status = timings["status"].to_numpy()
    answered = status == "ok"
    waited = answered | (status == "timeout")
    stages = {}
    for name in timings.columns:
        if name.endswith("_ns") and name not in ("began_ns", "total_ns"):
            values = timings[name].cast(float).fill_null(math.nan).to_numpy()
            durations_ns = values[answered & ~np.isnan(values)]
            if len(durations_ns):
                stages[name.removesuffix("_ns")] = durations_ns / 1e6
    stages["total"] = timings["total_ns"].to_numpy().astype(np.float64)[waited] / 1e6
    return stages


def summarise_timings(timings: pl.DataFrame) -> Speed:
    """Summarise the timings of a run: latency, throughput, failures, timeouts.

    Columns are `status`, `session`, `began_ns`, `total_ns` and `<stage>_ns`.
    """
    status = timings["status"].to_numpy()
    return Speed(
        {stage: Latency.of(values) for stage, values in stage_latencies_ms(timings).items()},
        throughput=_throughput(timings, int((status == "ok").sum())),
        asked=len(status),
        failed=int((status == "error").sum()),
        timed_out=int((status == "timeout").sum()),
    )


def _throughput(timings: pl.DataFrame, answered: int) -> float:
    """Return the number of successful queries per second.

    Time runs from the first start to the last end of each session. Breaks between sessions are excluded. NaN if no
    time passed.
    """
    seconds = 0.0
    for session_timings in timings.partition_by("session"):
        began, total = session_timings["began_ns"].to_numpy(), session_timings["total_ns"].to_numpy()
        seconds += float((began + total).max() - began.min()) / 1e9
    return answered / seconds if seconds > 0 else math.nan
