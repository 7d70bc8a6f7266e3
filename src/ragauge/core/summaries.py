"""Summaries of values: estimates with intervals, latency percentiles, throughput."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Estimate(NamedTuple):
    """A value with its confidence interval and number of samples.

    NaN is undefined, and `reason` says why.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    reason: str = ""

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


def percentiles(values: NDArray[Any], percents: Sequence[float]) -> list[float]:
    """Compute percentiles by linear interpolation; NaN without values."""
    import numpy as np

    return [float(value) for value in np.percentile(values, percents)] if len(values) else [math.nan] * len(percents)


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

    @classmethod
    def of(cls, milliseconds: NDArray[Any]) -> Latency:
        """Summarise the latencies of one stage, in milliseconds.

        Formula: the p-th percentile of n sorted values is at position (n - 1) p / 100, interpolated linearly.

        >>> import numpy as np
        >>> Latency.of(np.array([1.0, 2.0, 3.0, 4.0])).p50
        2.5
        """
        n = len(milliseconds)
        if not n:
            return cls(0, *[math.nan] * 8)
        p50, p90, p95, p99 = percentiles(milliseconds, (50, 90, 95, 99))
        spread = float(milliseconds.std(ddof=1)) if n > 1 else math.nan
        low, high = float(milliseconds.min()), float(milliseconds.max())
        return cls(n, float(milliseconds.mean()), p50, p90, p95, p99, spread, low, high)


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
