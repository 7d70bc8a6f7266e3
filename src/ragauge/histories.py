"""More nouns: the same systems over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ragauge.overviews import Mean


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


@dataclass(frozen=True, eq=False)
class History:
    """All points, the oldest first."""

    points: Sequence[Point]
    confidence: float = 0.95
    skipped: Mapping[str, str] = field(default_factory=dict)
    """`{folder: why it could not be read}`."""

    @property
    def systems(self) -> list[str]:
        """In the order in which they first come."""
        return list(dict.fromkeys(one.system for one in self.points))

    @property
    def measures(self) -> list[str]:
        """Likewise."""
        return list(dict.fromkeys(one.measure for one in self.points))

    def series(self, system: str, measure: str) -> list[Point]:
        """The points of one system by one measure."""
        return [one for one in self.points if one.system == system and one.measure == measure]
