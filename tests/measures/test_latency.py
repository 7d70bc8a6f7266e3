"""Latency and throughput: percentiles, excluded errors, included timeouts, and queries per second by wall clock."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from ragauge.core.summaries import Latency
from ragauge.measures.latency import summarise_timings


def make_timings(rows):
    names = ("session", "status", "began_ns", "embed_ns", "total_ns")
    return pl.DataFrame(rows, schema=dict.fromkeys(names), orient="row", strict=False)


def test_latency_percentiles_interpolate_linearly():
    latency = Latency.of(np.arange(1.0, 12.0))  # 1 to 11: the p-th percentile is 1 + 10 p / 100
    assert (latency.p50, latency.p90, latency.p95) == (6.0, 10.0, 10.5)
    assert latency.p99 == pytest.approx(10.9)
    assert (latency.n, latency.mean, latency.min, latency.max) == (11, 6.0, 1.0, 11.0)
    assert latency.std == pytest.approx(math.sqrt(11))
    assert math.isnan(Latency.of(np.array([])).p50)
    assert Latency.of(np.array([3.0])).p99 == 3.0


def test_summarise_timings_excludes_errors_and_includes_timeouts():
    summary = summarise_timings(
        make_timings(
            [
                (1, "ok", 0, 1_000_000, 4_000_000),
                (1, "error", 4_000_000, None, 1_000),
                (1, "timeout", 5_000_000, None, 8_000_000),
            ]
        )
    )
    assert (summary.asked, summary.failed, summary.timed_out) == (3, 1, 1)
    assert summary.stages["total"].n == 2
    assert summary.stages["total"].mean == 6.0
    assert summary.stages["embed"].n == 1


def test_summarise_timings_throughput_excludes_breaks_between_sessions():
    summary = summarise_timings(
        make_timings(
            [
                (1, "ok", 0, None, 500_000_000),
                (1, "ok", 250_000_000, None, 750_000_000),  # two workers in parallel: both finish after 1 s
                (2, "ok", 10**15, None, 1_000_000_000),  # another process with its own clock: 1 s more
            ]
        )
    )
    assert summary.throughput == pytest.approx(3 / 2)


def test_summarise_timings_omits_unmarked_stage():
    assert set(summarise_timings(make_timings([(1, "ok", 0, None, 5)])).stages) == {"total"}
