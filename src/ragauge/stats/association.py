"""Association of scores with labels: area under the ROC curve, correlations, calibration, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Estimate
from ragauge.stats.agreement import NO_SAMPLES, ONE_CLASS, Bools, proportion
from ragauge.stats.intervals import (
    ONE_GROUP,
    cluster_deviations,
    cluster_ids,
    cluster_resample_counts,
    design_effect,
    percentile_interval,
    variance_of_sum,
)


class CalibrationBin(NamedTuple):
    """Samples of similar score: their mean score and the share that people call good."""

    score: float
    """Mean of the scores."""
    share: Estimate
    """Share of samples that people call good."""


CORRELATION_ROUNDS = 2000
MIN_SAMPLES_FOR_INTERVAL = 20
"""Minimum number of samples, or groups of samples, for the interval of a correlation or a slope."""


def roc_auc(scores: Floats, people: Bools, confidence: float = 0.95, *, groups: Ints | None = None) -> Estimate:
    """Compute the area under the ROC curve.

    It is the probability that a good sample scores above a bad one; ties count half.

    Formula: the Mann-Whitney statistic over good times bad. Interval: DeLong's variance (that of each sample's share
    of pairs won; samples of one group together, by Obuchowski), on the log-odds scale. If that variance is 0
    (perfect order, or one sample of a class), Newcombe's interval: the values whose variance, by Hanley and McNeil,
    does not rule out the estimate, with each group counted once.
    Papers: DeLong et al., Biometrics 1988; Obuchowski, Biometrics 1997; Newcombe, Statistics in Medicine 2006.

    >>> round(roc_auc(np.array([0.9, 0.8, 0.7, 0.7]), np.array([True, True, True, False])).value, 4)
    0.8333
    """
    from scipy.special import expit, logit

    if people.all() or not people.any():
        return Estimate(math.nan, n=len(scores), reason=ONE_CLASS if len(scores) else NO_SAMPLES)
    value, influences = _auc_and_influences(scores, people)
    if cluster_ids(len(scores), groups) < 2:
        return Estimate(value, n=len(scores), reason=ONE_GROUP)
    z = cluster_deviations(confidence, groups)
    spread = _influence_deviation(influences, people, groups)
    if spread > 1e-12 and 0 < value < 1:
        half_width = z * spread / (value * (1 - value))
        low, high = (float(expit(logit(value) + sign * half_width)) for sign in (-1, 1))
    else:
        n_good, n_bad = (
            cluster_ids(int(is_class.sum()), None if groups is None else groups[is_class])
            for is_class in (people, ~people)
        )
        low, high = _newcombe_interval(value, n_good, n_bad, cluster_deviations(confidence, None))
    return Estimate(value, low, high, len(scores))


def auc_difference(
    first: Floats, second: Floats, people: Bools, confidence: float = 0.95, *, groups: Ints | None = None
) -> Estimate:
    """Compute the paired difference in AUC of two scores (DeLong)."""
    if people.all() or not people.any():
        return Estimate(math.nan, n=len(first), reason=ONE_CLASS if len(first) else NO_SAMPLES)
    (first_auc, first_influences), (second_auc, second_influences) = (
        _auc_and_influences(scores, people) for scores in (first, second)
    )
    if cluster_ids(len(first), groups) < 2:
        return Estimate(first_auc - second_auc, n=len(first), reason=ONE_GROUP)
    half_width = cluster_deviations(confidence, groups) * _influence_deviation(
        first_influences - second_influences, people, groups
    )
    if not half_width:
        return Estimate(
            first_auc - second_auc,
            n=len(first),
            reason="both rank these samples in the same order, or there are too few samples",
        )
    return Estimate(
        first_auc - second_auc, first_auc - second_auc - half_width, first_auc - second_auc + half_width, len(first)
    )


def _auc_and_influences(scores: Floats, people: Bools) -> tuple[float, Floats]:
    """Return the AUC and the influence of each sample on it.

    The influence is the sample's share of pairs won minus the mean, divided by the size of its class.
    """
    share_won = np.empty(len(scores))
    good_scores, bad_scores = scores[people], scores[~people]
    share_won[people], share_won[~people] = (
        _share_below(good_scores, bad_scores),
        1 - _share_below(bad_scores, good_scores),
    )
    value = float(share_won[people].mean())
    return value, (share_won - value) / np.where(people, len(good_scores), len(bad_scores))


def _influence_deviation(pulls: Floats, people: Bools, groups: Ints | None) -> float:
    sizes = int(people.sum()), int((~people).sum())
    if min(sizes) < 2:
        return 0.0
    if groups is not None:
        return math.sqrt(variance_of_sum(pulls, groups))
    return math.sqrt(variance_of_sum(pulls[people], None) + variance_of_sum(pulls[~people], None))


def _share_below(values: Floats, reference: Floats) -> Floats:
    """Return for each value the share of `reference` below it, ties count half."""
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return np.asarray(below / (2 * len(reference)))


def _newcombe_interval(value: float, n_good: int, n_bad: int, z: float) -> tuple[float, float]:
    extra_pairs = (n_good + n_bad) / 2 - 1

    def gap(theta: float) -> float:
        inner = 1 + extra_pairs * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return abs(theta - value) - z * math.sqrt(theta * (1 - theta) * inner / (n_good * n_bad))

    bounds = []
    for limit in (0.0, 1.0):
        inside, outside = value, limit
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if gap(middle) <= 0 else (inside, middle)
        bounds.append(limit if gap(limit) <= 0 and abs(limit - value) < 1e-12 else (inside + outside) / 2)
    return bounds[0], bounds[1]


def compute_correlations(
    scores: Floats,
    labels: Floats,
    confidence: float = 0.95,
    *,
    groups: Ints | None = None,
    rounds: int = CORRELATION_ROUNDS,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compute Spearman's, Kendall's (tau-b) and Pearson's correlation.

    Intervals of Spearman's and Pearson's are percentiles of a bootstrap over samples (or groups), with ranks
    recomputed in each resample. Kendall's uses the delta method over its three U-statistics (Newson, Stata Journal
    2002), on Fisher's z scale.
    """
    names = ("spearman", "kendall", "pearson")
    n = len(scores)
    reason = "one sample is not enough" if n == 1 else NO_SAMPLES if not n else ""
    reason = reason or (
        "all scores are the same" if np.ptp(scores) == 0 else "all labels are the same" * (not np.ptp(labels))
    )
    if reason:
        return {name: Estimate(math.nan, n=n, reason=reason) for name in names}
    (score_levels, score_ranks), (label_levels, label_ranks) = (
        np.unique(values_to_rank, return_inverse=True) for values_to_rank in (scores, labels)
    )
    all_counted = np.ones((1, n))
    values = {
        "spearman": float(
            _weighted_pearson(
                all_counted,
                _weighted_ranks(all_counted, score_ranks, len(score_levels)),
                _weighted_ranks(all_counted, label_ranks, len(label_levels)),
            )[0]
        ),
        "pearson": float(_weighted_pearson(all_counted, scores[None], labels[None])[0]),
    }
    resampled: dict[str, list[Floats]] = {name: [] for name in values}
    if cluster_ids(n, groups) >= MIN_SAMPLES_FOR_INTERVAL:
        for counts in cluster_resample_counts(n, groups, rounds, seed):
            resampled["spearman"].append(
                _weighted_pearson(
                    counts,
                    _weighted_ranks(counts, score_ranks, len(score_levels)),
                    _weighted_ranks(counts, label_ranks, len(label_levels)),
                )
            )
            resampled["pearson"].append(_weighted_pearson(counts, scores[None], labels[None]))
    estimates = {
        "kendall": _kendall_tau(score_ranks.astype(np.float64), label_ranks.astype(np.float64), confidence, groups)
    }
    for name, value in values.items():
        no_interval = _no_interval_reason(value, n, groups)
        low = high = math.nan
        if not no_interval:
            resampled_values = np.concatenate(resampled[name])
            low, high = (
                percentile_interval(resampled_values[~np.isnan(resampled_values), None], confidence).ravel().tolist()
            )
            low, high = min(low, value), max(high, value)
        estimates[name] = Estimate(value, low, high, n, no_interval)
    return {name: estimates[name] for name in names}


def _no_interval_reason(value: float, n: int, groups: Ints | None) -> str:
    number = cluster_ids(n, groups)
    if number == 1:
        return ONE_GROUP
    if number < MIN_SAMPLES_FOR_INTERVAL:
        return f"{n} samples{f' of {number} groups' if number < n else ''} are too few for an interval"
    return "the order is perfect, so no interval can be computed" if abs(value) > 1 - 1e-12 else ""


def _weighted_ranks(counts: Floats, level: np.ndarray[tuple[int], np.dtype[np.intp]], levels: int) -> Floats:
    """Compute mean ranks of weighted samples, one row per resample.

    `counts` are the numbers of times that each sample occurs.
    """
    order = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[order], np.arange(levels))
    at_level = np.add.reduceat(counts[:, order], starts, axis=1)
    middle = np.cumsum(at_level, axis=1) - at_level / 2
    return np.asarray(middle[:, level])


def _weighted_pearson(counts: Floats, x: Floats, y: Floats) -> Floats:
    """Compute Pearson's correlation for each row of counts."""
    total = counts.sum(axis=1, keepdims=True)
    x = x - (counts * x).sum(axis=1, keepdims=True) / total
    y = y - (counts * y).sum(axis=1, keepdims=True) / total
    covariance = (counts * x * y).sum(axis=1)
    variance_product = (counts * x * x).sum(axis=1) * (counts * y * y).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            np.clip(covariance / np.sqrt(np.where(variance_product > 0, variance_product, math.nan)), -1.0, 1.0)
        )


def _kendall_tau(x: Floats, y: Floats, confidence: float, groups: Ints | None) -> Estimate:
    n = len(x)
    rows = np.empty((3, n))  # per sample, mean over the others: agreeing pairs, pairs that differ in x, and in y
    step = max(1, (1 << 22) // n)
    for start in range(0, n, step):
        block = slice(start, start + step)
        dx, dy = np.sign(x[block, None] - x), np.sign(y[block, None] - y)
        rows[:, block] = (dx * dy).sum(axis=1), (dx != 0).sum(axis=1), (dy != 0).sum(axis=1)
    rows /= n - 1
    agree, differ_x, differ_y = rows.mean(axis=1)
    value = float(agree / math.sqrt(differ_x * differ_y))
    no_interval = _no_interval_reason(value, n, groups)
    if no_interval:
        return Estimate(value, n=n, reason=no_interval)
    influences = rows[0] / math.sqrt(differ_x * differ_y) - value / 2 * (rows[1] / differ_x + rows[2] / differ_y)
    spread = 2 * math.sqrt(variance_of_sum((influences - influences.mean()) / n, groups))
    half_width = cluster_deviations(confidence, groups) * spread / (1 - value**2)
    return Estimate(value, math.tanh(math.atanh(value) - half_width), math.tanh(math.atanh(value) + half_width), n)


def calibration_curve(
    scores: Floats, people: Bools, confidence: float = 0.95, *, groups: Ints | None = None, bins: int = 10
) -> tuple[Sequence[CalibrationBin], float]:
    """Compute a calibration curve and the expected calibration error (ECE).

    The bins have about equal size.

    Equal scores stay in one bin. The ECE of few samples is above 0 even for a perfect judge, so it has no interval.
    Paper: Naeini et al., AAAI 2015; bins of equal counts by Nguyen and O'Connor, EMNLP 2015.
    """
    n = len(scores)
    if not n:
        return [], math.nan
    _, level, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    bin_index = np.minimum(((np.cumsum(sizes) - sizes / 2) * bins / n).astype(np.int64), bins - 1)[level]
    curve, calibration_error = [], 0.0
    for bin_number in np.unique(bin_index):
        in_bin = bin_index == bin_number
        size, mean = int(in_bin.sum()), float(scores[in_bin].mean())
        is_good = people[in_bin].astype(np.float64)
        effect = design_effect(is_good, None if groups is None else groups[in_bin], confidence)
        good_share = proportion(int(is_good.sum()), size, confidence, effect=effect)
        curve.append(CalibrationBin(mean, good_share))
        calibration_error += size / n * abs(mean - good_share.value)
    return curve, calibration_error


def length_slope(
    scores: Floats, labels: Floats, word_counts: Floats, confidence: float = 0.95, *, groups: Ints | None = None
) -> Estimate:
    """Estimate the increase in score per 100 words at equal label, by least squares.

    Interval: Student's t with HC3 errors, which are valid if long answers vary more than short ones. For samples in
    groups CR3, which leaves out whole groups, with the number of groups minus one as degrees of freedom.
    Papers: MacKinnon and White, Journal of Econometrics 1985; Bell and McCaffrey, Survey Methodology 2002.
    """
    from scipy.special import stdtrit

    n = len(scores)
    columns = [np.ones(n), word_counts / 100, *([labels] if n and np.ptp(labels) else [])]
    design = np.stack(columns, axis=1)
    if n < MIN_SAMPLES_FOR_INTERVAL:
        return Estimate(math.nan, n=n, reason=f"{n} samples are too few for a slope")
    if np.linalg.matrix_rank(design) < len(columns):
        return Estimate(math.nan, n=n, reason="all answers have the same length")
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ scores
    value = float(coefficients[1])
    n_groups = cluster_ids(n, groups)
    if n_groups <= len(columns):
        too_few = f"{n} samples of {n_groups} groups are too few for an interval"
        return Estimate(value, n=n, reason=ONE_GROUP if n_groups == 1 else too_few)
    residuals = scores - design @ coefficients
    standard_error = math.sqrt(float((_coefficient_influences(design, inverse, residuals, groups)[:, 1] ** 2).sum()))
    degrees_of_freedom = n - len(columns) if groups is None else min(n - len(columns), n_groups - 1)
    half_width = float(stdtrit(degrees_of_freedom, (1 + confidence) / 2)) * standard_error
    return Estimate(value, value - half_width, value + half_width, n)


def _coefficient_influences(design: Floats, inverse: Floats, residuals: Floats, groups: Ints | None) -> Floats:
    """Compute the influence of each group on the coefficients.

    It is the difference between the fits with and without the group.
    """
    if groups is None:
        leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
        return np.asarray((design * (residuals / np.maximum(1 - leverage, 1e-6))[:, None]) @ inverse)
    influences = []
    for group in np.unique(groups):
        group_design = design[groups == group]
        leverage, eigenvectors = np.linalg.eigh(group_design @ inverse @ group_design.T)
        scaled_residuals = eigenvectors @ (
            (eigenvectors.T @ residuals[groups == group]) / np.maximum(1 - leverage, 1e-6)
        )
        influences.append(inverse @ group_design.T @ scaled_residuals)
    return np.array(influences)
