"""More nouns: the same systems over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from ragauge.comparisons import Comparison
from ragauge.outcomes import Mean


@dataclass(frozen=True)
class Point:
    """One measure of one system, as it stood when a run was finished."""

    when: datetime
    """In UTC."""
    folder: str
    system: str
    measure: str
    mean: Mean
    changed: str = ""
    """What else than the system differs from the point before, in words: then the two are not comparable."""
    dataset: str = ""
    """What the queries are of, by name; points of two datasets are never in one series."""


@dataclass(frozen=True, eq=False)
class Change:
    """The last point of a series against an earlier one that it can be compared with."""

    against: str
    """Which one: the `first` that can be compared, the one `before`, or the `best`."""
    since: Point
    last: Point
    lower_is_better: bool = False
    comparison: Comparison | None = None
    """Query by query; None of times, which differ from run to run for reasons that are not in the queries, and of what
    is no mean over queries."""

    @property
    def difference(self) -> float:
        """The last mean minus the earlier one."""
        return self.last.mean.value - self.since.mean.value

    @property
    def p(self) -> float:
        """Of the paired t-test, corrected for all series; NaN where there is none."""
        return float("nan") if self.comparison is None else self.comparison.p_corrected

    @property
    def better(self) -> bool:
        """Whether the last mean is the better one."""
        return self.difference < 0 if self.lower_is_better else self.difference > 0


@dataclass(frozen=True, eq=False)
class History:
    """All points, the oldest first."""

    points: Sequence[Point]
    confidence: float = 0.95
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{folder: why it could not be read}`."""
    changes: Sequence[Change] = ()
    """The last point of each series against earlier ones; none where no earlier one can be compared with it."""
    comparable: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """How many points of a series, by dataset, system and measure, can be compared with its last; that one included."""
    notes: Sequence[str] = ()

    @property
    def systems(self) -> list[str]:
        """In the order in which they first come."""
        return list(dict.fromkeys(one.system for one in self.points))

    @property
    def measures(self) -> list[str]:
        """Likewise."""
        return list(dict.fromkeys(one.measure for one in self.points))

    @property
    def datasets(self) -> list[str]:
        """Likewise."""
        return list(dict.fromkeys(one.dataset for one in self.points))

    @property
    def folders(self) -> list[str]:
        """Likewise."""
        return list(dict.fromkeys(one.folder for one in self.points))

    def series(self, system: str, measure: str, dataset: str | None = None) -> list[Point]:
        """The points of one system by one measure; of one dataset, where there are several."""
        return [
            one
            for one in self.points
            if one.system == system and one.measure == measure and dataset in (None, one.dataset)
        ]

    def change(self, system: str, measure: str, dataset: str | None = None, against: str = "before") -> Change | None:
        """How the last point of a series differs from an earlier one; None where none can be compared with it."""
        for one in self.changes:
            wanted = (one.last.system, one.last.measure, one.against) == (system, measure, against)
            if wanted and dataset in (None, one.last.dataset):
                return one
        return None

    def of(self, dataset: str) -> History:
        """The part that is of one dataset; what was skipped and the notes stay with the whole."""
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
