"""Result of `reliability`: success rates of systems over repeated trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.errors import BadInput
from ragauge.core.record_types import TabularResult, record
from ragauge.core.summaries import ValueWithInterval
from ragauge.stats.reliability import Reliability


@record("ragauge-reliability", 1, derived=("success", "confidence"))
@dataclass(frozen=True, eq=False, repr=False)
class ReliabilityBySystem(TabularResult, Mapping[str, Reliability]):
    """Reliability of each system by name. With one system, it also has the attributes of its `Reliability`."""

    systems: Mapping[str, Reliability]
    texts: Mapping[str, str] = field(default_factory=lambda: EMPTY_MAPPING)
    """`{task: text}`, if known."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Date, seed and convention."""

    def __getitem__(self, system: str) -> Reliability:
        return self.systems[system]

    def __iter__(self) -> Iterator[str]:
        return iter(self.systems)

    def __len__(self) -> int:
        return len(self.systems)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.values()))

    @property
    def success(self) -> str:
        """Definition of a success, which all systems share."""
        return next(iter(self.values())).success

    @property
    def confidence(self) -> float:
        """Confidence level of all intervals."""
        return next(iter(self.values())).confidence

    @property
    def only(self) -> Reliability:
        """Result of the only system. Raises `BadInput` if there are several."""
        first, *others = self.values()
        if others:
            raise BadInput(
                f"results of {len(self)} systems; expected the name of one, in brackets", hint=f'["{first.system}"]'
            )
        return first

    @property
    def counts(self) -> Mapping[str, tuple[int, int]]:
        """Trials and successes by task of the only system."""
        return self.only.counts

    @property
    def success_rate(self) -> ValueWithInterval:
        """Success rate of the only system."""
        return self.only.success_rate

    @property
    def pass_at(self) -> Mapping[int, ValueWithInterval]:
        """pass@k of the only system, by k."""
        return self.only.pass_at

    @property
    def pass_all(self) -> Mapping[int, ValueWithInterval]:
        """pass^k of the only system, by k."""
        return self.only.pass_all

    @property
    def agreement(self) -> float:
        """Agreement of the trials of the only system."""
        return self.only.agreement

    @property
    def over(self) -> str:
        """Population of the intervals of the only system: `tasks` or `trials`."""
        return self.only.over

    @property
    def n(self) -> int:
        """Number of tasks of the only system."""
        return self.only.n

    @property
    def trials(self) -> tuple[int, int]:
        """Smallest and largest number of trials of a task, of the only system."""
        return self.only.trials

    @property
    def always(self) -> list[str]:
        """Tasks in which every trial of the only system succeeded."""
        return self.only.always

    @property
    def flaky(self) -> list[str]:
        """Tasks in which some trials of the only system succeeded."""
        return self.only.flaky

    @property
    def never(self) -> list[str]:
        """Tasks in which no trial of the only system succeeded."""
        return self.only.never

    @property
    def notes(self) -> Sequence[str]:
        """Limitations of the estimates, of all systems."""
        return list(dict.fromkeys(note for system in self.values() for note in system.notes))
