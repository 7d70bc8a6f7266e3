"""Settings of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ragauge.core.settings import Above, AtLeast, AtMost, check_settings
from ragauge.judging.session import JudgingOptions


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of a calibration; None selects the default."""

    measure: str | None = None
    """Measure to judge; by default the one that the labels are about."""
    threshold: Annotated[float, Above(0), AtMost(1)] | None = None
    """Minimum score of a good sample; by default 1 for shares of claims with binary labels, the label threshold for
    graded labels, else 0.5."""
    label_threshold: Annotated[float, Above(0), AtMost(1)] | None = None
    """Minimum label of a good sample; by default that of the dataset, or 0.5."""
    replicates: Annotated[int, AtLeast(1), AtMost(1000)] = 1
    """Number of judge calls per labelled sample."""
    swap: bool = True
    """Whether samples with several contexts are judged again with the contexts in reverse order."""
    labels: Annotated[int, AtLeast(1)] | None = None
    """Number of random labels used for the corrected mean; the other samples count as unlabelled."""
    max_samples: int | None = None
    """Number of samples, drawn at random."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_settings(self)


class CalibrationOptions(JudgingOptions, total=False):
    """Keyword arguments of a calibration: the fields of `CalibrationSettings`, and those of `JudgingSettings`."""

    measure: str | None
    threshold: float | None
    label_threshold: float | None
    replicates: int
    swap: bool
    labels: int | None
    seed: int
