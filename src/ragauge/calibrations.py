"""The nouns of believing a judge: how far it agrees with people (`Calibration`), each number as a `Figure`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ragauge.records import NOTHING
from ragauge.verdicts import Canary

FIGURES = {
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
"""Every figure of a rater, in the order in which it is shown."""


class Figure(NamedTuple):
    """A number, how far it may be off, and what it is over. NaN is undefined, and `why` says why."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    why: str = ""

    @property
    def defined(self) -> bool:
        """Whether there is a number."""
        return not math.isnan(self.value)


class Confusion(NamedTuple):
    """How often judge and people said what, good being the verdict from a threshold on."""

    both_good: int
    """True positives."""
    only_judge: int
    """False positives: bad, says everybody else."""
    only_people: int
    """False negatives."""
    both_bad: int
    """True negatives."""

    @property
    def n(self) -> int:
        """All of them."""
        return sum(self)


class Bin(NamedTuple):
    """Samples of about the same score: what it promised, and what people said."""

    score: float
    """The mean of the scores."""
    share: Figure
    """The share that people call good."""


@dataclass(frozen=True)
class Rater:
    """One who gives scores: the judge, a baseline, or a person; and how that agrees with (other) people."""

    name: str
    kind: str
    """`judge`, `baseline` or `people`."""
    figures: Mapping[str, Figure]
    """By name, as in FIGURES; what makes no sense for this one is not there."""
    confusion: Confusion | None = None
    threshold: float | None = None
    """From which score on it says good; None where the cut was chosen on other samples, or there is none."""
    about: str = ""


@dataclass(frozen=True)
class Consistency:
    """What a judge says of the same samples when it is asked again."""

    replicates: int
    same: Figure
    """The share of samples with one verdict in all replicates; having none is a verdict of its own."""
    pairwise: Figure
    """The chance that two replicates of a sample give the same verdict."""
    alpha: Figure
    """Krippendorff's, of the verdicts that there are."""
    spread: Figure
    """The mean standard deviation of a sample's scores."""


@dataclass(frozen=True)
class Swap:
    """What a judge says when the contexts stand in the other order, over samples that have at least two."""

    changed: Figure
    """The share of samples whose verdict is another one; losing it counts."""
    shift: Figure
    """The mean change of the score, reversed less as given."""
    moved: Figure
    """The mean size of that change."""


@dataclass(frozen=True)
class Verbosity:
    """Whether a judge likes long answers more than people do."""

    correlation: Figure
    """Spearman's, of its error (score less label) with the number of words."""
    slope: Figure
    """How much the score rises for 100 words more, at the same label of people."""


@dataclass(frozen=True)
class Corrected:
    """The mean that people would give, from few labels and many judged samples."""

    labels: int
    """How many labels were used."""
    judged: int
    """How many samples without a label were judged beside them."""
    people: Figure
    """The mean of these labels alone."""
    judge: Figure
    """The judge's mean over everything that it scored, taken at its word."""
    powered: Figure
    """Prediction-powered: the judge's mean, put right by the labels."""
    weight: float
    """How much the judge counts in it: 0 is not at all, 1 fully."""
    rates: Figure
    """The share of good samples, from the judge's sensitivity and specificity (Rogan and Gladen)."""
    share: Figure
    """The same from these labels alone."""
    truth: float = math.nan
    """The mean of all labels, where more are known than were used."""


class Pair(NamedTuple):
    """One sample: what people said, and the judge."""

    sample: str
    label: float
    score: float
    """NaN where there is none."""
    soft: float
    """The judge's degree of certainty, where it has one."""
    words: int
    """Of the answer."""
    overlap: float = math.nan
    """The share of its words that are found where they should be: what the judge has to beat."""
    why: str = ""
    """Why there is no score."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Whether a judge may be believed, on samples that somebody labelled."""

    judge: str
    dataset: str
    measure: str
    samples: int
    labelled: int
    unscored: Mapping[str, int]
    """How many labelled samples have no score, by the reason."""
    threshold: float
    """From which score of the judge on a sample is good."""
    label_threshold: float
    """From which label on it is."""
    base_rate: Figure
    """The share of labelled samples that are good."""
    raters: Sequence[Rater]
    """The judge first, then baselines, then people among themselves."""
    curve: Sequence[Bin] = ()
    """From the lowest scores to the highest."""
    calibration_error: float = math.nan
    """The mean distance of scores and shares over the curve (ECE)."""
    consistency: Consistency | None = None
    swap: Swap | None = None
    verbosity: Verbosity | None = None
    corrected: Corrected | None = None
    robustness: Sequence[Canary] = ()
    stopped: str = ""
    """Why judging ended before everything was asked, where it did."""
    people: bool = True
    """Whether the labels are people's."""
    easy: str = ""
    """Why agreement here says little, where it does."""
    about: str = ""
    confidence: float = 0.95
    notes: Sequence[str] = ()
    pairs: Sequence[Pair] = ()
    curve_of: str = ""
    """What scores the curve is of."""
    identity: Mapping[str, object] = field(default_factory=lambda: NOTHING)

    @property
    def scored(self) -> int:
        """How many labelled samples have a score."""
        return self.labelled - sum(self.unscored.values())

    @property
    def figures(self) -> Mapping[str, Figure]:
        """Those of the judge."""
        return self.raters[0].figures

    @property
    def confusion(self) -> Confusion | None:
        """That of the judge."""
        return self.raters[0].confusion

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {self.figures[name].value:.3f}" for name in ("accuracy", "kappa", "auc"))
        return f"Calibration({self.judge!r} on {self.dataset!r}: {told}; {self.scored} of {self.labelled} scored)"
