"""Agreement of two raters on good or bad: shares with Wilson intervals, and chance-corrected agreement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Estimate
from ragauge.stats.intervals import ONE_GROUP, cluster_ids, cluster_resample_counts, design_effect, percentile_interval


class ConfusionMatrix(NamedTuple):
    """Confusion matrix of judge and people; a sample is good at or above a threshold."""

    both_good: int
    """True positives."""
    only_judge: int
    """False positives: good for the judge only."""
    only_people: int
    """False negatives: good for people only."""
    both_bad: int
    """True negatives."""

    @property
    def n(self) -> int:
        """Total number of samples."""
        return sum(self)


Bools = NDArray[np.bool_]
DIRICHLET_DRAWS = 10_000
NO_SAMPLES = "no samples"
ONE_CLASS = "all human verdicts are equal"


def count_confusion(judge: Bools, people: Bools) -> ConfusionMatrix:
    """Count the four combinations of the two verdicts.

    >>> count_confusion(np.array([True, True, False]), np.array([True, False, False]))
    ConfusionMatrix(both_good=1, only_judge=1, only_people=0, both_bad=1)
    """
    cells = [judge & people, judge & ~people, ~judge & people, ~judge & ~people]
    return ConfusionMatrix(*(int(cell.sum()) for cell in cells))


def proportion(
    hits: float, n: int, confidence: float = 0.95, *, empty: str = NO_SAMPLES, effect: float = 1.0
) -> Estimate:
    """Estimate a proportion with Wilson's interval.

    The interval is valid for few samples and near 0 and 1.

    Formula: the shares p with |p - hits/n| <= z sqrt(p (1 - p) / m), where m is n, or n over the design effect of
    correlated samples.
    Paper: Wilson, JASA 1927.

    >>> [round(number, 4) for number in proportion(9, 10)[:3]]
    [0.9, 0.5958, 0.9821]
    """
    from scipy.special import ndtri

    if not n:
        return Estimate(math.nan, reason=empty)
    z, p, m = float(ndtri((1 + confidence) / 2)), hits / n, n / effect
    middle = (p + z * z / (2 * m)) / (1 + z * z / m)
    reach = z / (1 + z * z / m) * math.sqrt(p * (1 - p) / m + z * z / (4 * m * m))
    # At both ends the bound is exact, where rounding would exclude the estimate.
    return Estimate(p, 0.0 if not hits else middle - reach, 1.0 if hits == n else middle + reach, n)


def compute_kappa(cells: Floats) -> Floats:
    """Compute Cohen's kappa of tables of four cells each.

    Formula: (observed - expected) / (1 - expected). The expected agreement is from the rate of each rater.

    >>> round(float(compute_kappa(np.array([20.0, 5.0, 10.0, 15.0]))), 4)
    0.4
    """
    both_good, only_judge, only_people, both_bad = _cell_shares(cells)
    judge_good, people_good = both_good + only_judge, both_good + only_people
    return _chance_corrected(both_good + both_bad, judge_good * people_good + (1 - judge_good) * (1 - people_good))


def gwets_ac1(cells: Floats) -> Floats:
    """Compute Gwet's AC1 of tables of four cells each.

    The expected agreement is 2 q (1 - q), q the share of good verdicts of both raters.

    >>> round(float(gwets_ac1(np.array([118.0, 5.0, 2.0, 0.0]))), 4)
    0.9408
    """
    both_good, only_judge, only_people, both_bad = _cell_shares(cells)
    rate = both_good + (only_judge + only_people) / 2
    return _chance_corrected(both_good + both_bad, 2 * rate * (1 - rate))


def scotts_pi(cells: Floats) -> Floats:
    """Compute Scott's pi of tables of four cells each.

    It is the limit of Krippendorff's alpha of two raters for many samples.
    """
    both_good, only_judge, only_people, both_bad = _cell_shares(cells)
    rate = both_good + (only_judge + only_people) / 2
    return _chance_corrected(both_good + both_bad, rate**2 + (1 - rate) ** 2)


def balanced_accuracy(cells: Floats) -> Floats:
    """Compute the mean of sensitivity and specificity."""
    both_good, only_judge, only_people, both_bad = _cell_shares(cells)
    with np.errstate(invalid="ignore"):
        return np.asarray((both_good / (both_good + only_people) + both_bad / (both_bad + only_judge)) / 2)


def _cell_shares(cells: Floats) -> tuple[Floats, ...]:
    shares = np.asarray(cells / cells.sum(axis=-1, keepdims=True))
    return tuple(shares[..., i] for i in range(4))


def _chance_corrected(observed: Floats, expected: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((observed - expected) / (1 - expected))


def verdict_statistics(
    judge: Bools,
    people: Bools,
    confidence: float = 0.95,
    *,
    unscored: int = 0,
    groups: Ints | None = None,
    missed: Ints | None = None,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compute all agreement statistics of a judge's verdicts with those of people.

    `unscored` samples have no verdict of the judge (`missed`: their groups); they count as wrong in `accuracy_all`.
    Shares have Wilson's interval. Intervals of kappa, AC1, alpha and balanced accuracy are quantiles over tables
    drawn from the Dirichlet distribution of the four cells with 0.5 added to each (Jeffreys' prior). At 20 to 200
    samples they cover in 93% to 99% of cases. Unlike those from standard errors or a bootstrap, they have a positive
    width for perfect agreement. Samples of one group count as fewer.
    """
    agrees = judge == people

    def agreement_of(mask: Bools, empty: str) -> Estimate:
        masked_groups = None if groups is None else groups[mask]
        effect = design_effect(agrees[mask].astype(np.float64), masked_groups, confidence)
        return proportion(int(agrees[mask].sum()), int(mask.sum()), confidence, empty=empty, effect=effect)

    n = len(judge)
    effect = design_effect(agrees.astype(np.float64), groups, confidence)
    all_groups = None if groups is None or missed is None else np.concatenate([groups, missed])
    unscored_hits = np.zeros(0 if all_groups is None else unscored)
    effect_of_all = design_effect(
        np.concatenate([agrees, unscored_hits]), groups if all_groups is None else all_groups, confidence
    )
    statistics = {
        "accuracy": agreement_of(np.ones(n, np.bool_), NO_SAMPLES),
        "accuracy_all": proportion(int(agrees.sum()), n + unscored, confidence, effect=effect_of_all),
        "sensitivity": agreement_of(people, "no sample is good according to people"),
        "specificity": agreement_of(~people, "no sample is bad according to people"),
        "precision": agreement_of(judge, "no sample is good according to the judge"),
        "npv": agreement_of(~judge, "no sample is bad according to the judge"),
    }
    cells = np.array(count_confusion(judge, people), np.float64)
    dirichlet_draws = np.random.default_rng(seed).standard_gamma(cells / effect + 0.5, (DIRICHLET_DRAWS, 4))
    missing_reason = NO_SAMPLES if not n else "one sample is not enough" if n < 2 else ""
    one_class = missing_reason or (ONE_CLASS if people.all() or not people.any() else "")
    chance_corrected: dict[str, tuple[Callable[[Floats], Floats], str]] = {
        "balanced_accuracy": (balanced_accuracy, one_class),
        "kappa": (compute_kappa, one_class),
        "ac1": (gwets_ac1, missing_reason),
        "alpha": (scotts_pi, one_class),
    }
    for name, (function, reason) in chance_corrected.items():
        if reason:
            statistics[name] = Estimate(math.nan, n=n, reason=reason)
            continue
        value = float(function(cells))
        if name == "alpha":
            value = 1 - (1 - value) * (2 * n - 1) / (2 * n)  # expected agreement draws two verdicts without replacement
        low, high = percentile_interval(function(dirichlet_draws)[:, None], confidence).ravel().tolist()
        statistics[name] = Estimate(value, min(low, value), max(high, value), n)
    return statistics


def krippendorff_alpha(
    ratings: Floats, confidence: float = 0.95, *, groups: Ints | None = None, rounds: int = 2000, seed: int = 0
) -> Estimate:
    """Compute Krippendorff's alpha of raters (columns) on samples (rows).

    NaN is a missing rating. Formula: 1 - observed / expected, both means of (x - y)^2: over pairs of ratings of one
    sample (weighted by 1/(m - 1) for m ratings), and over all pairs. For verdicts of 0 and 1 that is nominal alpha,
    for grades interval alpha. Samples with one rating are left out. The interval is a bootstrap over samples, or
    groups.
    Paper: Hayes and Krippendorff, Communication Methods and Measures 2007.

    >>> round(krippendorff_alpha(np.array([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])).value, 4)
    0.5333
    """
    is_rated = ~np.isnan(ratings)
    has_two_ratings = is_rated.sum(axis=1) > 1
    if has_two_ratings.sum() < 2:
        return Estimate(math.nan, n=int(has_two_ratings.sum()), reason="fewer than two samples have two ratings")
    values = np.where(is_rated, ratings, 0.0)[has_two_ratings]
    n_ratings = is_rated[has_two_ratings].sum(axis=1).astype(np.float64)
    total, squares = values.sum(axis=1), (values**2).sum(axis=1)
    rows = np.stack([2 * (n_ratings * squares - total**2) / (n_ratings - 1), n_ratings, total, squares], axis=1)

    def compute_alpha(sums: Floats) -> Floats:
        disagreement, count, rating_sum, squared = (sums[..., i] for i in range(4))
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = 2 * (count * squared - rating_sum**2) / (count * (count - 1))
            return np.asarray(1 - (disagreement / count) / np.where(expected > 1e-12, expected, math.nan))

    value = float(compute_alpha(rows.sum(axis=0)))
    if math.isnan(value):
        return Estimate(math.nan, n=int(has_two_ratings.sum()), reason="all ratings are the same")
    if value > 1 - 1e-12:
        return Estimate(
            1.0, n=int(has_two_ratings.sum()), reason="all replicates agree, so no interval can be computed"
        )
    kept_groups = None if groups is None else groups[has_two_ratings]
    if cluster_ids(len(rows), kept_groups) < 2:
        return Estimate(value, n=len(rows), reason=ONE_GROUP)
    if kept_groups is not None:
        _, group_index = np.unique(kept_groups, return_inverse=True)
        rows = np.stack([np.bincount(group_index, weights=column) for column in rows.T], axis=1)
    resampled_alphas = np.concatenate(
        [compute_alpha(counts @ rows) for counts in cluster_resample_counts(len(rows), None, rounds, seed)]
    )
    low, high = percentile_interval(resampled_alphas[~np.isnan(resampled_alphas), None], confidence).ravel().tolist()
    return Estimate(value, min(low, value), max(high, value), int(has_two_ratings.sum()))


def best_threshold(scores: Floats, people: Bools) -> float:
    """Find the threshold on scores that agrees best with people.

    Agreement is measured by Cohen's kappa. Among several it is in the middle of the widest gap between scores. NaN
    if none is better than chance.

    >>> best_threshold(np.array([0.1, 0.4, 0.8, 0.9]), np.array([False, False, True, True]))
    0.6000000000000001
    """
    order = np.argsort(scores, kind="stable")
    levels, first = np.unique(scores[order], return_index=True)
    if len(levels) < 2 or people.all() or not people.any():
        return math.nan
    below_good = np.concatenate([[0], np.cumsum(people[order])])[first[1:]]
    below = first[1:]
    goods, n = int(people.sum()), len(people)
    tables = np.stack([goods - below_good, (n - below) - (goods - below_good), below_good, below - below_good], axis=1)
    values = compute_kappa(tables.astype(np.float64))
    best = float(values.max())
    if not best > 0:
        return math.nan
    gaps = np.where(values >= best - 1e-12, np.diff(levels), -1.0)
    best_index = int(gaps.argmax())
    return float((levels[best_index] + levels[best_index + 1]) / 2)


def cross_fitted_verdicts(
    scores: Floats, people: Bools, *, groups: Ints | None = None, seed: int = 0
) -> tuple[Bools, tuple[float, float]]:
    """Convert scores to verdicts without a known threshold, by two-fold cross-fitting.

    Each half uses the threshold that agrees best in the other half, so that no sample or group influences its own
    verdict. If a half has no useful threshold, the other half gets its majority label. Returns the verdicts and both
    thresholds.
    """
    _, group = (None, np.arange(len(scores))) if groups is None else np.unique(groups, return_inverse=True)
    first_half = np.random.default_rng(seed).permutation(int(group.max(initial=-1)) + 1)[group] % 2 == 0
    verdicts = np.zeros(len(scores), np.bool_)
    thresholds = []
    for is_tested in (first_half, ~first_half):
        threshold = best_threshold(scores[~is_tested], people[~is_tested])
        thresholds.append(threshold)
        verdicts[is_tested] = (
            scores[is_tested] >= threshold
            if not math.isnan(threshold)
            else bool(2 * people[~is_tested].sum() >= (~is_tested).sum())
        )
    return verdicts, (thresholds[0], thresholds[1])
