"""Statistics of raters: agreement of a judge, a baseline or people with labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Estimate
from ragauge.judging.calibration.results import Consistency, LengthBias, OrderBias, Rater
from ragauge.stats.agreement import (
    Bools,
    compute_kappa,
    count_confusion,
    cross_fitted_verdicts,
    krippendorff_alpha,
    proportion,
    verdict_statistics,
)
from ragauge.stats.association import compute_correlations, length_slope, roc_auc
from ragauge.stats.intervals import (
    ONE_GROUP,
    cluster_deviations,
    cluster_ids,
    design_effect,
    mean_intervals,
    variance_of_sum,
)
from ragauge.stats.margin_tests import bounded_upper_bound


def leave_one_vote_out(votes: Floats) -> tuple[Floats, Floats, Ints]:
    """Pair each vote with the mean of the other votes on its sample.

    Returns votes, means of the others, and sample positions. Samples with one vote are left out.

    >>> vote, others, sample = leave_one_vote_out(np.array([[1.0, 0.0, 1.0], [0.5, np.nan, np.nan]]))
    >>> vote.tolist(), others.tolist(), sample.tolist()
    ([1.0, 0.0, 1.0], [0.5, 1.0, 0.5], [0, 0, 0])
    """
    has_vote = ~np.isnan(votes)
    n_votes = has_vote.sum(axis=1, keepdims=True)
    total = np.where(has_vote, votes, 0.0).sum(axis=1, keepdims=True)
    used = has_vote & (n_votes > 1)
    other_means = (total - np.where(has_vote, votes, 0.0)) / np.maximum(n_votes - 1, 1)
    return votes[used], other_means[used], np.nonzero(used)[0]


def human_agreement(
    votes: Floats, threshold: float, confidence: float = 0.95, *, groups: Ints | None = None, seed: int = 0
) -> dict[str, Estimate]:
    """Compute the statistics of a person: each vote against the mean of the others.

    The votes on one sample are correlated, and so are the samples of one group. Alpha is that of all votes.
    """
    vote, other_means, sample = leave_one_vote_out(votes)
    vote_groups = sample if groups is None else groups[sample]
    good, really = vote >= threshold - 1e-9, other_means >= threshold - 1e-9
    statistics = verdict_statistics(good, really, confidence, groups=vote_groups, seed=seed)
    statistics["auc"] = roc_auc(vote, really, confidence, groups=vote_groups)
    statistics |= compute_correlations(vote, other_means, confidence, groups=vote_groups, seed=seed)
    statistics["alpha"] = krippendorff_alpha(votes, confidence, groups=groups, seed=seed)
    del statistics["accuracy_all"]
    return statistics


PERFECT_SCORE_TOLERANCE = 1e-9
"""Tolerance of thresholds, so that thirds and means of votes reach a threshold that they equal."""


@dataclass(frozen=True)
class LabelScale:
    """Labels that raters are compared with, their threshold, and correlated groups."""

    labels: Floats
    threshold: float
    groups: Ints | None = None
    confidence: float = 0.95
    seed: int = 0

    @property
    def is_good(self) -> Bools:
        """Whether people call each sample good."""
        return np.asarray(self.labels >= self.threshold - PERFECT_SCORE_TOLERANCE)

    def of(self, mask: Bools) -> LabelScale:
        """Return the scale for a subset of the samples."""
        groups = None if self.groups is None else self.groups[mask]
        return LabelScale(self.labels[mask], self.threshold, groups, self.confidence, self.seed)


def rate(name: str, kind: str, scores: Floats, ruler: LabelScale, threshold: float, about: str = "") -> Rater:
    """Rate scores with a known threshold.

    A NaN score is no verdict and counts as wrong in `accuracy_all`.
    """
    is_scored = ~np.isnan(scores)
    known_scores, scale = scores[is_scored], ruler.of(is_scored)
    verdicts = known_scores >= threshold - PERFECT_SCORE_TOLERANCE
    statistics = _rater_statistics(known_scores, verdicts, scale, ruler.of(~is_scored))
    statistics["bias"] = estimate_mean(
        known_scores - scale.labels, ruler.confidence, groups=scale.groups, seed=ruler.seed
    )
    return Rater(name, kind, statistics, count_confusion(verdicts, scale.is_good), threshold, about)


def rate_with_cross_threshold(name: str, kind: str, scores: Floats, ruler: LabelScale, about: str = "") -> Rater:
    """Rate scores without a known threshold.

    Each half of the samples uses the threshold at which the other half agrees best.
    """
    is_scored = ~np.isnan(scores)
    known_scores, scale = scores[is_scored], ruler.of(is_scored)
    verdicts, cuts = cross_fitted_verdicts(known_scores, scale.is_good, groups=scale.groups, seed=ruler.seed)
    statistics = _rater_statistics(known_scores, verdicts, scale, ruler.of(~is_scored))
    return Rater(
        name,
        kind,
        statistics,
        count_confusion(verdicts, scale.is_good),
        None,
        f"{about}; thresholds {_cuts_text(cuts)}",
    )


def kappa_with_cross_threshold(scores: Floats, ruler: LabelScale) -> tuple[float, str]:
    """Return Cohen's kappa with cross-validated thresholds, and these as text."""
    is_scored = ~np.isnan(scores)
    scale = ruler.of(is_scored)
    verdicts, cuts = cross_fitted_verdicts(scores[is_scored], scale.is_good, groups=scale.groups, seed=ruler.seed)
    cells = np.array(count_confusion(verdicts, scale.is_good), np.float64)
    return (float(compute_kappa(cells)) if is_scored.any() else math.nan), _cuts_text(cuts)


def _cuts_text(cuts: tuple[float, float]) -> str:
    return " and ".join(dict.fromkeys("none" if math.isnan(cut) else f"{cut:.2f}" for cut in cuts))


def constant_rater(ruler: LabelScale) -> Rater:
    """Return the baseline rater that always gives the majority verdict."""
    majority = bool(ruler.is_good.mean() >= 0.5)
    verdicts = np.full(len(ruler.labels), majority)
    statistics = verdict_statistics(verdicts, ruler.is_good, ruler.confidence, groups=ruler.groups, seed=ruler.seed)
    constant_statistics = {name: statistics[name] for name in ("accuracy", "sensitivity", "specificity")}
    for name, value in (("balanced_accuracy", 0.5), ("kappa", 0.0)):
        constant_statistics[name] = (
            statistics[name] if not statistics[name].defined else Estimate(value, value, value, statistics[name].n)
        )
    return Rater(
        f"always {'good' if majority else 'bad'}",
        "baseline",
        constant_statistics,
        count_confusion(verdicts, ruler.is_good),
    )


def human_rater(votes: Floats, ruler: LabelScale) -> Rater | None:
    """Return the rater that compares each person with the others.

    None without shared samples.
    """
    if not ((~np.isnan(votes)).sum(axis=1) > 1).any():
        return None
    statistics = human_agreement(votes, ruler.threshold, ruler.confidence, groups=ruler.groups, seed=ruler.seed)
    return Rater("a person", "people", statistics, about="each vote against the mean of the others")


def _rater_statistics(scores: Floats, verdicts: Bools, ruler: LabelScale, missed: LabelScale) -> dict[str, Estimate]:
    """Compute the statistics of the scored samples; `missed` are the unscored ones."""
    level, groups, seed = ruler.confidence, ruler.groups, ruler.seed
    statistics = verdict_statistics(
        verdicts, ruler.is_good, level, unscored=len(missed.labels), groups=groups, missed=missed.groups, seed=seed
    )
    statistics["auc"] = roc_auc(scores, ruler.is_good, level, groups=groups)
    statistics |= compute_correlations(scores, ruler.labels, level, groups=groups, seed=seed)
    return statistics


def estimate_mean(values: Floats, confidence: float = 0.95, *, groups: Ints | None = None, seed: int = 0) -> Estimate:
    """Estimate a mean with its BCa confidence interval.

    With groups, the interval is Student's over the number of groups, and never narrower than without groups.

    >>> values, groups = np.array([0.0, 0.2, 1.0, 0.8]), np.array([0, 0, 1, 1])
    >>> [round(number, 2) for number in estimate_mean(values, groups=groups)[:3]]
    [0.5, -4.58, 5.58]
    """
    if not len(values):
        return Estimate(math.nan, reason="no samples")
    if len(values) == 1:
        return Estimate(float(values[0]), n=1, reason="one sample is too few for an interval")
    if not np.ptp(values):
        return Estimate(float(values[0]), n=len(values), reason="all values are equal, so no interval is defined")
    if groups is not None:
        if cluster_ids(len(values), groups) < 2:
            return Estimate(float(values.mean()), n=len(values), reason=ONE_GROUP)
        parts, value = (values - values.mean()) / len(values), float(values.mean())
        variance = max(variance_of_sum(parts, groups), variance_of_sum(parts, None))
        reach = cluster_deviations(confidence, groups) * math.sqrt(variance)
        return Estimate(value, value - reach, value + reach, len(values))
    low, high = mean_intervals(values[:, None], confidence, seed=seed).ravel().tolist()
    return Estimate(float(values.mean()), low, high, len(values))


def judge_consistency(
    columns: Floats, threshold: float, confidence: float = 0.95, *, groups: Ints | None = None, seed: int = 0
) -> Consistency:
    """Measure the agreement of replicates (columns) of the same samples (rows).

    A sample with a verdict in one replicate and none (NaN) in another counts as changed. Samples without any verdict
    are left out.

    >>> found = judge_consistency(np.array([[1.0, 0.9], [0.2, 0.8], [np.nan, 0.7], [0.1, 0.3]]), 0.5)
    >>> found.same.value, found.pairwise.value, round(found.spread.value, 4)
    (0.5, 0.5, 0.2121)
    """
    has_verdict = ~np.isnan(columns).all(axis=1)
    columns, groups = columns[has_verdict], None if groups is None else groups[has_verdict]
    codes = verdict_codes(columns, threshold)
    same = (codes == codes[:, :1]).all(axis=1)
    pairs = [codes[:, i] == codes[:, j] for i, j in combinations(range(codes.shape[1]), 2)]
    is_repeated = (~np.isnan(columns)).sum(axis=1) > 1
    repeated_scores = columns[is_repeated]
    spread = np.nanstd(repeated_scores, axis=1, ddof=1) if is_repeated.any() else np.array([])
    return Consistency(
        replicates=columns.shape[1],
        same=_share_estimate(same.astype(np.float64), confidence, groups),
        pairwise=_bounded_mean_estimate(np.mean(pairs, axis=0), confidence, groups),
        alpha=krippendorff_alpha(np.where(codes < 0, math.nan, codes), confidence, groups=groups, seed=seed),
        spread=estimate_mean(spread, confidence, groups=None if groups is None else groups[is_repeated], seed=seed),
    )


def _share_estimate(hits: Floats, confidence: float, groups: Ints | None) -> Estimate:
    """Estimate a share, or conservatively a mean of values between 0 and 1."""
    return proportion(float(hits.sum()), len(hits), confidence, effect=design_effect(hits, groups, confidence))


def _bounded_mean_estimate(values: Floats, confidence: float, groups: Ints | None) -> Estimate:
    """Estimate a mean of values between 0 and 1.

    The interval has a width even if all values are 1.
    """
    if groups is not None or not len(values):
        return _share_estimate(values, confidence, groups)
    one_sided = (1 + confidence) / 2
    low, high = 1 - bounded_upper_bound(1 - values, one_sided, 1.0), bounded_upper_bound(values, one_sided, 1.0)
    return Estimate(float(values.mean()), low, high, len(values))


def verdict_codes(scores: Floats, threshold: float) -> Floats:
    """Encode verdicts: 1 for good, 0 for bad, -1 for no verdict.

    >>> verdict_codes(np.array([0.9, 0.1, np.nan]), 0.5).tolist()
    [1.0, 0.0, -1.0]
    """
    return np.where(np.isnan(scores), -1.0, np.where(scores >= threshold - PERFECT_SCORE_TOLERANCE, 1.0, 0.0))


def order_bias(
    original: Floats,
    turned: Floats,
    threshold: float,
    confidence: float = 0.95,
    *,
    groups: Ints | None = None,
    seed: int = 0,
) -> OrderBias:
    """Measure the effect of reversing the contexts.

    Samples without a verdict in both orders are left out.
    """
    has_verdict = ~(np.isnan(original) & np.isnan(turned))
    original, turned, groups = (
        original[has_verdict],
        turned[has_verdict],
        None if groups is None else groups[has_verdict],
    )
    changed = verdict_codes(original, threshold) != verdict_codes(turned, threshold)
    has_both = ~np.isnan(turned - original)
    shift, shift_groups = (turned - original)[has_both], None if groups is None else groups[has_both]
    return OrderBias(
        changed=_share_estimate(changed.astype(np.float64), confidence, groups),
        shift=estimate_mean(shift, confidence, groups=shift_groups, seed=seed),
        moved=estimate_mean(np.abs(shift), confidence, groups=shift_groups, seed=seed),
    )


def length_bias(
    scores: Floats,
    labels: Floats,
    word_counts: Floats,
    confidence: float = 0.95,
    *,
    groups: Ints | None = None,
    seed: int = 0,
) -> LengthBias:
    """Measure whether the error of the judge grows with the length of answers."""
    is_scored = ~np.isnan(scores)
    scored_groups = None if groups is None else groups[is_scored]
    error, length = scores[is_scored] - labels[is_scored], word_counts[is_scored]
    estimate = compute_correlations(error, length, confidence, groups=scored_groups, seed=seed)["spearman"]
    reasons = {
        "all scores are the same": "all errors are the same",
        "all labels are the same": "all answers have the same length",
    }
    return LengthBias(
        correlation=Estimate(*estimate[:4], reasons.get(estimate.reason, estimate.reason)),
        slope=length_slope(scores[is_scored], labels[is_scored], length, confidence, groups=scored_groups),
    )
