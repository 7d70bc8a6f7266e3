"""Statistics of raters: agreement of a judge, a baseline or people with labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ragauge.calibrations import Figure, Rater
from ragauge.records import Floats, Ints
from ragauge.stats.agreement import Bools, confusion, cross_cut, kappa_of, verdict_figures
from ragauge.stats.association import auc, correlations
from ragauge.stats.ceiling import people_figures
from ragauge.stats.clusters import ONE_GROUP, deviations, separate, variance_of_sum
from ragauge.stats.intervals import mean_intervals

EDGE = 1e-9
"""Tolerance of thresholds, so that thirds and means of votes reach a threshold that they equal."""


@dataclass(frozen=True)
class Ruler:
    """Labels that raters are compared with, their threshold, and correlated groups."""

    labels: Floats
    threshold: float
    groups: Ints | None = None
    confidence: float = 0.95
    seed: int = 0

    @property
    def good(self) -> Bools:
        """Whether people call each sample good."""
        return np.asarray(self.labels >= self.threshold - EDGE)

    def of(self, kept: Bools) -> Ruler:
        """Return the scale for a subset of the samples."""
        groups = None if self.groups is None else self.groups[kept]
        return Ruler(self.labels[kept], self.threshold, groups, self.confidence, self.seed)


def rated(name: str, kind: str, scores: Floats, ruler: Ruler, threshold: float, about: str = "") -> Rater:
    """Rate scores with a known threshold.

    A NaN score is no verdict and counts as wrong in `accuracy_all`.
    """
    known = ~np.isnan(scores)
    mine, held = scores[known], ruler.of(known)
    verdicts = mine >= threshold - EDGE
    figures = _figures(mine, verdicts, held, ruler.of(~known))
    figures["bias"] = mean_figure(mine - held.labels, ruler.confidence, groups=held.groups, seed=ruler.seed)
    return Rater(name, kind, figures, confusion(verdicts, held.good), threshold, about)


def rated_by_cut(name: str, kind: str, scores: Floats, ruler: Ruler, about: str = "") -> Rater:
    """Rate scores without a known threshold.

    Each half of the samples uses the threshold at which the other half agrees best.
    """
    known = ~np.isnan(scores)
    mine, held = scores[known], ruler.of(known)
    verdicts, cuts = cross_cut(mine, held.good, groups=held.groups, seed=ruler.seed)
    figures = _figures(mine, verdicts, held, ruler.of(~known))
    return Rater(name, kind, figures, confusion(verdicts, held.good), None, f"{about}, cut at {_told(cuts)}")


def kappa_by_cut(scores: Floats, ruler: Ruler) -> tuple[float, str]:
    """Return Cohen's kappa with cross-validated thresholds, and these as text."""
    known = ~np.isnan(scores)
    held = ruler.of(known)
    verdicts, cuts = cross_cut(scores[known], held.good, groups=held.groups, seed=ruler.seed)
    cells = np.array(confusion(verdicts, held.good), np.float64)
    return (float(kappa_of(cells)) if known.any() else math.nan), _told(cuts)


def _told(cuts: tuple[float, float]) -> str:
    return " and ".join(dict.fromkeys("none" if math.isnan(cut) else f"{cut:.2f}" for cut in cuts))


def always(ruler: Ruler) -> Rater:
    """Return the baseline rater that always gives the majority verdict."""
    most = bool(ruler.good.mean() >= 0.5)
    verdicts = np.full(len(ruler.labels), most)
    figures = verdict_figures(verdicts, ruler.good, ruler.confidence, groups=ruler.groups, seed=ruler.seed)
    kept = {name: figures[name] for name in ("accuracy", "sensitivity", "specificity")}
    for name, value in (("balanced_accuracy", 0.5), ("kappa", 0.0)):
        kept[name] = figures[name] if not figures[name].defined else Figure(value, value, value, figures[name].n)
    return Rater(f"always {'good' if most else 'bad'}", "baseline", kept, confusion(verdicts, ruler.good))


def among_people(votes: Floats, ruler: Ruler) -> Rater | None:
    """Return the rater that compares each person with the others.

    None without shared samples.
    """
    if not ((~np.isnan(votes)).sum(axis=1) > 1).any():
        return None
    figures = people_figures(votes, ruler.threshold, ruler.confidence, groups=ruler.groups, seed=ruler.seed)
    return Rater("a person", "people", figures, about="each vote against the mean of the others")


def _figures(scores: Floats, verdicts: Bools, ruler: Ruler, missed: Ruler) -> dict[str, Figure]:
    """Compute the statistics of the scored samples; `missed` are the unscored ones."""
    level, groups, seed = ruler.confidence, ruler.groups, ruler.seed
    figures = verdict_figures(
        verdicts, ruler.good, level, unscored=len(missed.labels), groups=groups, missed=missed.groups, seed=seed
    )
    figures["auc"] = auc(scores, ruler.good, level, groups=groups)
    figures |= correlations(scores, ruler.labels, level, groups=groups, seed=seed)
    return figures


def mean_figure(values: Floats, confidence: float = 0.95, *, groups: Ints | None = None, seed: int = 0) -> Figure:
    """Estimate a mean with its BCa confidence interval.

    With groups, the interval is Student's over the number of groups, and never narrower than without groups.

    >>> values, groups = np.array([0.0, 0.2, 1.0, 0.8]), np.array([0, 0, 1, 1])
    >>> [round(number, 2) for number in mean_figure(values, groups=groups)[:3]]
    [0.5, -4.58, 5.58]
    """
    if not len(values):
        return Figure(math.nan, why="there is no sample")
    if len(values) == 1:
        return Figure(float(values[0]), n=1, why="one sample does not tell how far it may be off")
    if not np.ptp(values):
        return Figure(
            float(values[0]), n=len(values), why="all are the same, which does not tell how far it may be off"
        )
    if groups is not None:
        if separate(len(values), groups) < 2:
            return Figure(float(values.mean()), n=len(values), why=ONE_GROUP)
        parts, value = (values - values.mean()) / len(values), float(values.mean())
        variance = max(variance_of_sum(parts, groups), variance_of_sum(parts, None))
        reach = deviations(confidence, groups) * math.sqrt(variance)
        return Figure(value, value - reach, value + reach, len(values))
    low, high = mean_intervals(values[:, None], confidence, seed=seed).ravel().tolist()
    return Figure(float(values.mean()), low, high, len(values))
