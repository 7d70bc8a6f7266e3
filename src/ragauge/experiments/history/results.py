"""Result types of a history: points over time and the changes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from ragauge.core.summaries import Mean
from ragauge.stats.comparisons import Comparison


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


@dataclass(frozen=True, eq=False)
class HistoryChange:
    """Change from an earlier, comparable point of a series to its last point."""

    against: str
    """The earlier point: the `first` comparable one, the one `before`, or the `best`."""
    since: HistoryPoint
    last: HistoryPoint
    lower_is_better: bool = False
    comparison: Comparison | None = None
    """Paired comparison by query. None for timings, which vary between runs for other reasons, and for values that are
    not means over queries.
    """

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


@dataclass(frozen=True, eq=False)
class History:
    """Points of all series, oldest first, with the changes between them."""

    points: Sequence[HistoryPoint]
    confidence: float = 0.95
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{folder: why it could not be read}`."""
    changes: Sequence[HistoryChange] = ()
    """Comparisons of the last point of each series with earlier ones; none if no earlier one is comparable."""
    comparable: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Number of points comparable with the last one, including it, by (dataset, system, measure)."""
    notes: Sequence[str] = ()

    @property
    def systems(self) -> list[str]:
        """Systems in the order in which they first occur."""
        return list(dict.fromkeys(one.system for one in self.points))

    @property
    def measures(self) -> list[str]:
        """Measures in the order in which they first occur."""
        return list(dict.fromkeys(one.measure for one in self.points))

    @property
    def datasets(self) -> list[str]:
        """Datasets in the order in which they first occur."""
        return list(dict.fromkeys(one.dataset for one in self.points))

    @property
    def folders(self) -> list[str]:
        """Folders in the order in which they first occur."""
        return list(dict.fromkeys(one.folder for one in self.points))

    def series(self, system: str, measure: str, dataset: str | None = None) -> list[HistoryPoint]:
        """Return the points of one system and measure, optionally of one dataset only."""
        return [
            one
            for one in self.points
            if one.system == system and one.measure == measure and dataset in (None, one.dataset)
        ]

    def change(
        self, system: str, measure: str, dataset: str | None = None, against: str = "before"
    ) -> HistoryChange | None:
        """Return the change to the last point of a series, or None if there is none."""
        for one in self.changes:
            wanted = (one.last.system, one.last.measure, one.against) == (system, measure, against)
            if wanted and dataset in (None, one.last.dataset):
                return one
        return None

    def of(self, dataset: str) -> History:
        """Return the history of one dataset, without skipped folders and notes."""
        return replace(
            self,
            points=[one for one in self.points if one.dataset == dataset],
            changes=[one for one in self.changes if one.last.dataset == dataset],
            comparable={key: n for key, n in self.comparable.items() if key[0] == dataset},
            skipped={},
            notes=(),
        )

    def __repr__(self) -> str:
        return f"History({len(self.points)} points of {len(self.folders)} folders, {', '.join(self.measures)})"
