"""Settings of an overview, and the keyword arguments of `overview` and `report`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.files.serialization import settings_from
from ragauge.measures.conventions import Convention
from ragauge.stats.comparisons import ComparisonSettings


class OverviewComparisonOptions(TypedDict, total=False):
    """Options of the comparisons; see `ragauge.stats.comparisons.ComparisonSettings`."""

    test: str
    correction: str
    family: str
    confidence: float
    interval: str
    rounds: int
    seed: int
    margin: float | None
    detect: float | None
    power: float
    lower_is_better: Sequence[str] | None
    higher_is_better: Sequence[str] | None


class OverviewOptions(OverviewComparisonOptions, total=False):
    """Options of an overview; see `OverviewSettings`."""

    baseline: str | None
    measures: str | Iterable[str] | None
    convention: str | Convention | None
    by: str | Sequence[str]
    dataset: str | Path | None
    title: str | None
    joined: Sequence[Result | str | Path]
    audited: bool
    common_queries: bool
    count_missing: bool
    split: str | None
    targets: Any


@dataclass(frozen=True)
class OverviewSettings:
    """Choice of measures, queries and further results of an overview."""

    baseline: str | None = None
    """System that the others are compared with; None for that of the runs."""
    measures: str | Iterable[str] | None = None
    """Measures, the first of which decides; None for those of the runs."""
    convention: str | Convention | None = None
    by: str | Sequence[str] = ()
    """Tags of the queries to split them by; empty for those that split them well."""
    dataset: str | Path | None = None
    """Dataset with the texts; None for that of the runs."""
    title: str | None = None
    joined: Sequence[Result | str | Path] = ()
    """Further results, or JSON files of them."""
    audited: bool = True
    """Whether the scores are audited."""
    common_queries: bool = False
    """Whether queries that a run lacks are left out for all."""
    count_missing: bool = False
    """Whether queries that a run lacks score 0."""
    split: str | None = None
    """Judgments of a BEIR folder."""
    targets: Any = None
    """Target map for `dr@k`, if the judgments have none."""
    comparison: dict[str, Any] = field(default_factory=dict)
    """Options of the comparisons that are not the default."""

    def __post_init__(self) -> None:
        if self.common_queries and self.count_missing:
            raise BadInput(
                "common_queries and count_missing are mutually exclusive",
                hint="remove --common-queries or --count-missing",
            )

    @classmethod
    def create(cls, options: OverviewOptions) -> OverviewSettings:
        """Create settings from keyword arguments. Raises `UnknownName` for an unknown one."""
        names = set(cls.__dataclass_fields__) - {"comparison"}
        settings = {name: value for name, value in options.items() if name in names and value is not None}
        comparison = {name: value for name, value in options.items() if name not in names}
        settings_from(ComparisonSettings, comparison)
        return cls(**settings, comparison=comparison)  # type: ignore[arg-type]

    @property
    def comparison_settings(self) -> ComparisonSettings:
        return settings_from(ComparisonSettings, self.comparison)

    @property
    def measure_names(self) -> list[str] | None:
        """Requested measures; None for those of the runs."""
        if self.measures is None:
            return None
        return [self.measures] if isinstance(self.measures, str) else list(self.measures)
