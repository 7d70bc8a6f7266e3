"""Summaries of values: estimates with intervals, latency percentiles, throughput."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Estimate(NamedTuple):
    """A value with its confidence interval and number of samples.

    NaN is undefined, and `why` is the reason.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    why: str = ""

    @property
    def defined(self) -> bool:
        """Whether the value is defined."""
        return not math.isnan(self.value)


class Mean(NamedTuple):
    """Mean over `n` queries with its confidence interval; `low` and `high` are NaN if unknown.

    `n` is 0 if a file does not say over how many queries the mean was computed.
    """

    value: float
    n: int
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Latency:
    """Latency of one stage over `n` queries, in ms; percentiles by linear interpolation."""

    n: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    std: float
    min: float
    max: float


@dataclass(frozen=True)
class Speed:
    """Latency by stage, throughput, and failures of a system."""

    stages: Mapping[str, Latency]
    """Latency by stage, and `total`; stages that a system does not have are missing."""
    throughput: float
    """Queries per second of wall-clock time, over all workers; 1000 / mean ms in files of other systems."""
    asked: int
    failed: int
    """Number of queries that ended in an error. They are not in the percentiles, because a quick error is not fast."""
    timed_out: int
    """Number of queries that timed out. The time until the timeout is in the percentiles of `total`."""


class ValueWithInterval(NamedTuple):
    """Value with its confidence interval."""

    value: float
    low: float
    high: float
