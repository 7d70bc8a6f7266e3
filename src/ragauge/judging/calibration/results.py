"""Result types of a calibration: agreement of a judge with people, and its biases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.findings import append_notes
from ragauge.core.record_types import TabularResult, record
from ragauge.core.summaries import Estimate
from ragauge.judging.results import InjectionAttempt
from ragauge.stats.agreement import ConfusionMatrix
from ragauge.stats.association import CalibrationBin

WORD_OVERLAP_RATER = "word overlap"
"""Name of the baseline that scores a sample by the share of words that two of its texts have in common."""
STATISTIC_DESCRIPTIONS = {
    "accuracy": "share of samples with the same verdict as the label",
    "accuracy_all": "accuracy, with unscored samples counted as wrong",
    "sensitivity": "share of the samples labelled good that the rater calls good",
    "specificity": "share of the samples labelled bad that the rater calls bad",
    "precision": "share of the samples that the rater calls good that are labelled good",
    "npv": "share of the samples that the rater calls bad that are labelled bad",
    "balanced_accuracy": "mean of sensitivity and specificity; 0.5 is chance level",
    "kappa": "Cohen's kappa: agreement beyond chance, from the rates of both raters",
    "ac1": "Gwet's AC1: agreement beyond chance, robust if nearly all samples are good",
    "alpha": "Krippendorff's alpha of the verdicts: agreement beyond chance, from the pooled rates",
    "auc": "probability that a good sample scores above a bad one; equal scores count half",
    "spearman": "rank correlation of scores and labels",
    "kendall": "Kendall's tau-b of scores and labels",
    "pearson": "linear correlation of scores and labels",
    "over_words": "AUC (by degree, if available) minus that of word overlap, on the same samples",
    "bias": "mean score minus mean label, on the same samples",
}
"""Descriptions of the statistics of a rater, in display order."""


@dataclass(frozen=True)
class Rater:
    """Agreement of a rater (the judge, a baseline or a person) with (other) people."""

    name: str
    kind: str
    """`judge`, `baseline` or `people`."""
    statistics: Mapping[str, Estimate]
    """Statistics by name; those that are not applicable to the rater are missing."""
    confusion: ConfusionMatrix | None = None
    threshold: float | None = None
    """Minimum score at which the rater calls a sample good; None if chosen on other samples, or without a threshold."""
    about: str = ""


@dataclass(frozen=True)
class Consistency:
    """Agreement of a judge with itself over repeated calls."""

    replicates: int
    same: Estimate
    """Share of samples with the same verdict in all replicates; no verdict counts as a verdict."""
    pairwise: Estimate
    """Probability that two replicates of a sample have the same verdict."""
    alpha: Estimate
    """Krippendorff's alpha of the available verdicts."""
    spread: Estimate
    """Mean standard deviation of the scores of a sample."""


@dataclass(frozen=True)
class OrderBias:
    """Effect of reversing the contexts, over samples with at least two of them."""

    changed: Estimate
    """Share of samples whose verdict changes, including lost verdicts."""
    shift: Estimate
    """Mean change of the score: reversed minus original order."""
    moved: Estimate
    """Mean absolute change of the score."""


@dataclass(frozen=True)
class LengthBias:
    """Length bias: whether the judge prefers long answers more than people do."""

    correlation: Estimate
    """Spearman correlation of the error (score minus label) with the number of words."""
    slope: Estimate
    """Increase of the score per 100 words at equal label."""


@dataclass(frozen=True)
class CorrectedMean:
    """Estimate of the mean label from few labels and many judged samples."""

    labels: int
    """Number of labels used."""
    judged: int
    """Number of judged samples without a label."""
    people: Estimate
    """Mean of the labels used."""
    judge: Estimate
    """Uncorrected mean of all scores of the judge."""
    powered: Estimate
    """Prediction-powered mean: the mean of the judge, corrected by the labels."""
    weight: float
    """Weight of the judge in the corrected mean, from 0 to 1."""
    rates: Estimate
    """Share of good samples, from the judge's sensitivity and specificity (Rogan and Gladen)."""
    share: Estimate
    """Share of good samples among the labels used."""
    truth: float = math.nan
    """Mean of all labels; NaN unless every sample has a label."""


class LabelledScore(NamedTuple):
    """Label and score of one sample."""

    sample: str
    label: float
    score: float
    """Score of the judge; NaN if unscored."""
    soft: float
    """Probability given by the judge; NaN if it gives none."""
    words: int
    """Number of words in the answer."""
    overlap: float = math.nan
    """Share of words found in the compared text: the baseline of the judge."""
    reason: str = ""
    """Reason for a missing score."""


@record("ragauge-calibration", 1, derived=("scored", "statistics", "confusion"))
@dataclass(frozen=True, eq=False)
class Calibration(TabularResult, report="ragauge.judging.calibration.report"):
    """Calibration of a judge on labelled samples."""

    judge: str
    dataset: str
    measure: str
    samples: int
    labelled: int
    unscored: Mapping[str, int]
    """Numbers of labelled samples without a score, by reason."""
    threshold: float
    """Minimum score of the judge at which a sample is good."""
    label_threshold: float
    """Minimum label at which a sample is good."""
    base_rate: Estimate
    """Share of good samples among the labelled ones."""
    raters: Sequence[Rater]
    """Raters: the judge first, then baselines, then people."""
    curve: Sequence[CalibrationBin] = ()
    """Calibration curve, from the lowest scores to the highest."""
    calibration_error: float = math.nan
    """Expected calibration error (ECE) over the curve."""
    consistency: Consistency | None = None
    swap: OrderBias | None = None
    verbosity: LengthBias | None = None
    corrected: CorrectedMean | None = None
    robustness: Sequence[InjectionAttempt] = ()
    stopped: str = ""
    """Reason why judging stopped early; empty if it did not."""
    people: bool = True
    """Whether the labels were given by people."""
    easy: str = ""
    """Reason why agreement on this dataset means little; empty if there is none."""
    about: str = ""
    confidence: float = 0.95
    notes: Sequence[str] = ()
    pairs: Sequence[LabelledScore] = ()
    curve_of: str = ""
    """Name of the scores that the curve is computed from."""
    identity: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Full identity of the judge."""
    provenance: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    """Time, machine and versions."""

    @property
    def scored(self) -> int:
        """Number of labelled samples with a score."""
        return self.labelled - sum(self.unscored.values())

    @property
    def statistics(self) -> Mapping[str, Estimate]:
        """Statistics of the judge."""
        return self.raters[0].statistics

    @property
    def confusion(self) -> ConfusionMatrix | None:
        """Confusion matrix of the judge."""
        return self.raters[0].confusion

    def __repr__(self) -> str:
        statistics = ", ".join(f"{name} {self.statistics[name].value:.3f}" for name in ("accuracy", "kappa", "auc"))
        text = f"Calibration({self.judge!r} on {self.dataset!r}: {statistics}; {self.scored} of {self.labelled} scored)"
        return append_notes(text, self.notes)
