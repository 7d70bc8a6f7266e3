"""Result types of a calibration: agreement of a judge with people, and its biases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragauge.core.documents import EMPTY_MAPPING
from ragauge.core.summaries import Estimate
from ragauge.judging.results import InjectionAttempt
from ragauge.stats.agreement import ConfusionMatrix
from ragauge.stats.association import CalibrationBin

STATISTIC_DESCRIPTIONS = {
    "accuracy": "the share of samples with people's verdict",
    "accuracy_all": "the same, with samples that have no verdict counted as wrong",
    "sensitivity": "of what people call good, the share that it calls good",
    "specificity": "of what people call bad, the share that it calls bad",
    "precision": "of what it calls good, the share that people call good",
    "npv": "of what it calls bad, the share that people call bad",
    "balanced_accuracy": "the mean of sensitivity and specificity; 0.5 is no better than guessing",
    "kappa": "Cohen's: agreement beyond that of two who guess at these rates",
    "ac1": "Gwet's AC1: the same with a rate of guessing that stays sensible where nearly all is good",
    "alpha": "Krippendorff's, of verdicts: chance is drawn from both together",
    "auc": "the chance that a good sample scores above a bad one; equal scores count half",
    "spearman": "rank correlation of scores and labels",
    "kendall": "Kendall's tau-b: pairs in the same order less pairs in the other one",
    "pearson": "linear correlation of scores and labels",
    "over_words": "its AUC (by degree, where it has one) less that of counting words, over the same samples",
    "bias": "its mean less that of people, over the same samples",
}
"""Descriptions of the statistics of a rater, in display order."""


@dataclass(frozen=True)
class Rater:
    """Agreement of a rater (the judge, a baseline or a person) with (other) people."""

    name: str
    kind: str
    """`judge`, `baseline` or `people`."""
    figures: Mapping[str, Estimate]
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
    why: str = ""
    """Reason for a missing score."""


@dataclass(frozen=True, eq=False)
class Calibration:
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
    identity: Mapping[str, object] = field(default_factory=lambda: EMPTY_MAPPING)

    @property
    def scored(self) -> int:
        """Number of labelled samples with a score."""
        return self.labelled - sum(self.unscored.values())

    @property
    def figures(self) -> Mapping[str, Estimate]:
        """Statistics of the judge."""
        return self.raters[0].figures

    @property
    def confusion(self) -> ConfusionMatrix | None:
        """Confusion matrix of the judge."""
        return self.raters[0].confusion

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {self.figures[name].value:.3f}" for name in ("accuracy", "kappa", "auc"))
        return f"Calibration({self.judge!r} on {self.dataset!r}: {told}; {self.scored} of {self.labelled} scored)"
