"""Result types of a history: points over time and the changes between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.record_types import TabularResult, json_form, record
from ragauge.core.summaries import Mean
from ragauge.stats.comparisons import Comparison

SeriesKey = tuple[str, str, str]
"""Dataset, system and measure of a series."""


@json_form(flattened={"mean": ("mean", "n", "low", "high")})
@dataclass(frozen=True)
class HistoryPoint:
    """Mean of one measure of one system at the time a run finished."""

    when: datetime
    """Time at which the run finished, in UTC."""
    folder: str
    system: str
    measure: str
    mean: Mean
    changed: str = ""
    """Description of what differs from the previous point other than the system. If not empty, they are not comparable.
    """
    dataset: str = ""
    """Name of the dataset. Points of different datasets are never in one series."""
    unit: str = ""
    """`ms`, `s`, `queries/s` or `count`; empty for scores."""
    comparable: bool = True
    """Whether it is the last point of its series, or comparable with it."""

    @property
    def series(self) -> SeriesKey:
        """Dataset, system and measure."""
        return self.dataset, self.system, self.measure

    @property
    def is_timing(self) -> bool:
        """Whether it is a time or a throughput."""
        return self.unit in ("ms", "s", "queries/s")


@json_form(derived=("dataset", "system", "measure", "difference", "better", "p"))
@dataclass(frozen=True, eq=False)
class HistoryChange:
    """Change from an earlier, comparable point of a series to its last point."""

    against: str
    """The earlier point: the `first` comparable one, the one `before`, or the `best`."""
    since: HistoryPoint
    last: HistoryPoint
    lower_is_better: bool = False
    comparison: Comparison | None = None
    """Paired comparison by query, without the single queries. None for timings, which vary between runs for other
    reasons, and for values that are not means over queries.
    """

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return self.last.dataset

    @property
    def system(self) -> str:
        """Name of the system."""
        return self.last.system

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return self.last.measure

    @property
    def difference(self) -> float:
        """Last mean minus the earlier one."""
        return self.last.mean.value - self.since.mean.value

    @property
    def p(self) -> float:
        """p-value of the paired t-test, corrected over all series; NaN without a test."""
        return float("nan") if self.comparison is None else self.comparison.p_corrected

    @property
    def better(self) -> bool:
        """Whether the last mean is the better one."""
        return self.difference < 0 if self.lower_is_better else self.difference > 0


@record("ragauge-history", 2, supplied={"summary": "The most important change in one sentence."})
@dataclass(frozen=True, eq=False)
class History(TabularResult):
    """Points of all series, oldest first, with the changes between them."""

    points: Sequence[HistoryPoint]
    confidence: float = 0.95
    skipped: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """`{folder: reason}` of folders that could not be read."""
    changes: Sequence[HistoryChange] = ()
    """Comparisons of the last point of each series with earlier ones; none if no earlier one is comparable."""
    notes: Sequence[str] = ()
    """What limits the points, and which measures lack values."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Date, version and convention."""

    @property
    def alpha(self) -> float:
        """Significance level of the tests."""
        return 1 - self.confidence

    @property
    def comparable(self) -> Mapping[SeriesKey, int]:
        """Number of points comparable with the last one, including it, by dataset, system and measure."""
        return Counter(point.series for point in self.points if point.comparable)

    @property
    def systems(self) -> list[str]:
        """Systems in the order in which they first occur."""
        return list(dict.fromkeys(point.system for point in self.points))

    @property
    def measures(self) -> list[str]:
        """Measures in the order in which they first occur."""
        return list(dict.fromkeys(point.measure for point in self.points))

    @property
    def datasets(self) -> list[str]:
        """Datasets in the order in which they first occur."""
        return list(dict.fromkeys(point.dataset for point in self.points))

    @property
    def folders(self) -> list[str]:
        """Folders in the order in which they first occur."""
        return list(dict.fromkeys(point.folder for point in self.points))

    def series(self, system: str, measure: str, dataset: str | None = None) -> list[HistoryPoint]:
        """Return the points of one system and measure, optionally of one dataset only."""
        return [
            point
            for point in self.points
            if point.system == system and point.measure == measure and dataset in (None, point.dataset)
        ]

    def change(
        self, system: str, measure: str, dataset: str | None = None, against: str = "before"
    ) -> HistoryChange | None:
        """Return the change to the last point of a series, or None if there is none."""
        for change in self.changes:
            is_wanted = (change.system, change.measure, change.against) == (system, measure, against)
            if is_wanted and dataset in (None, change.dataset):
                return change
        return None

    def of(self, dataset: str) -> History:
        """Return the history of one dataset, without skipped folders and notes."""
        return replace(
            self,
            points=[point for point in self.points if point.dataset == dataset],
            changes=[change for change in self.changes if change.dataset == dataset],
            skipped=EMPTY_MAPPING,
            notes=(),
        )

    def __repr__(self) -> str:
        return f"History({len(self.points)} points of {len(self.folders)} folders, {', '.join(self.measures)})"
