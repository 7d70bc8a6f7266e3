"""Estimates of a mean human label from few labels and many judge scores."""

from __future__ import annotations

import math

import numpy as np

from ragauge.core.records import Floats, Ints
from ragauge.core.summaries import Estimate
from ragauge.stats.agreement import Bools
from ragauge.stats.intervals import ONE_GROUP, cluster_ids, design_effect, variance_of_sum

MIN_LABELS = 3


def prediction_powered_mean(
    labels: Floats,
    scores: Floats,
    unlabelled_scores: Floats,
    confidence: float = 0.95,
    *,
    weight: float | None = None,
    groups: tuple[Ints, Ints] | None = None,
) -> tuple[Estimate, float]:
    """Estimate a mean by prediction-powered inference.

    Returns the estimate and the judge's weight.

    Formula: mean(labels) + w (mean(unlabelled scores) - mean(scores)), where `scores` are the judge's for the labelled
    samples and `unlabelled_scores` those for the rest; w = cov(labels, scores) / ((1 + n/N) var(all scores)), between
    0 and 1, minimises the variance (PPI++). Interval: Student's t times sqrt(var(labels - w scores) / n + w^2
    var(unlabelled scores) / N). It is valid for any judge: a useless one gets a weight near 0, which leaves the mean of
    the labels. Labelled samples must be a random sample of all. `groups` are the groups of the labelled and of the
    other samples; samples of one group are correlated.
    Papers: Angelopoulos et al., Prediction-powered inference, Science 2023; PPI++, arXiv 2311.01453.

    >>> figure, weight = prediction_powered_mean(np.array([1.0, 0.0, 1.0, 1.0]), np.array([0.9, 0.1, 0.8, 0.8]),
    ...     np.full(50, 0.5))
    >>> round(figure.value, 3), round(weight, 3)
    (0.6, 1.0)
    """
    from scipy.special import stdtrit

    n, n_unlabelled = len(labels), len(unlabelled_scores)
    if n < MIN_LABELS:
        return Estimate(math.nan, n=n, reason=f"fewer than {MIN_LABELS} labels"), 0.0
    tuned = weight is None
    if weight is None:
        weight = 0.0
        pooled = np.concatenate([scores, unlabelled_scores])
        spread = float(pooled.var(ddof=1))
        if n_unlabelled > 1 and spread > 0:
            joint = float(np.cov(labels, scores)[0, 1])
            weight = min(1.0, max(0.0, joint / ((1 + n / n_unlabelled) * spread)))
    if not n_unlabelled:
        weight = 0.0
    residuals = labels - weight * scores
    value = float(labels.mean()) + (weight * float(unlabelled_scores.mean() - scores.mean()) if weight else 0.0)
    n_groups = cluster_ids(n, None if groups is None else groups[0])
    if n_groups < 2:
        return Estimate(value, n=n, reason=ONE_GROUP), weight
    degrees_of_freedom = max(1, n_groups - 1 - int(tuned and weight > 0))  # the weight is fitted to the same labels
    variance = variance_of_sum((residuals - residuals.mean()) / n, None if groups is None else groups[0])
    variance *= max(1, n_groups - 1) / degrees_of_freedom
    if weight and n_unlabelled > 1:
        centred_share = (unlabelled_scores - unlabelled_scores.mean()) / n_unlabelled
        variance += weight**2 * variance_of_sum(centred_share, None if groups is None else groups[1])
    half_width = float(stdtrit(degrees_of_freedom, (1 + confidence) / 2)) * math.sqrt(variance)
    if not variance:
        return Estimate(value, n=n, reason="all labels are equal, so no interval can be computed"), weight
    return Estimate(value, value - half_width, value + half_width, n), weight


def rogan_gladen_share(
    judge: Bools,
    people: Bools,
    unlabelled_verdicts: Bools,
    confidence: float = 0.95,
    *,
    groups: tuple[Ints, Ints] | None = None,
) -> Estimate:
    """Estimate the share of good samples from a judge's verdicts.

    The estimate corrects for the error rates of the judge (Rogan-Gladen).

    Formula: (called + specificity - 1) / (sensitivity + specificity - 1), clipped to [0, 1]; sensitivity and
    specificity from the labelled samples, called from all. Interval: with z^2/2 samples of each verdict added to the
    calls and one to each of the rates, and its centre corrected for the curvature of the quotient. Each of the three
    counts as n over its design effect; `groups` are those of `prediction_powered_mean`.
    Papers: Rogan and Gladen, American Journal of Epidemiology 1978; Lang and Reiczigel, Preventive Veterinary
    Medicine 2014.

    >>> judge, people = np.array([True] * 9 + [False] * 11), np.array([True] * 8 + [False] * 11 + [True])
    >>> round(rogan_gladen_share(judge, people, np.array([True, False] * 50)).value, 3)
    0.502
    """
    from scipy.special import ndtri

    goods, n = int(people.sum()), len(people)
    bads = n - goods
    if not goods or not bads:
        return Estimate(math.nan, n=n, reason="all labels have the same verdict")
    calls, total = int(judge.sum() + unlabelled_verdicts.sum()), n + len(unlabelled_verdicts)
    sensitivity, specificity = int((judge & people).sum()) / goods, int((~judge & ~people).sum()) / bads
    if sensitivity + specificity <= 1:
        return Estimate(math.nan, n=n, reason="the judge is no better than chance, so the share cannot be estimated")
    value = min(1.0, max(0.0, (calls / total + specificity - 1) / (sensitivity + specificity - 1)))
    z = float(ndtri((1 + confidence) / 2))
    labelled_groups = None if groups is None else groups[0]
    effects = [
        design_effect(
            (judge == people)[is_class].astype(np.float64),
            None if labelled_groups is None else labelled_groups[is_class],
            confidence,
        )
        for is_class in (people, ~people)
    ]
    all_groups = None if groups is None else np.concatenate(groups)
    of_calls = design_effect(np.concatenate([judge, unlabelled_verdicts]).astype(np.float64), all_groups, confidence)
    of_goods, of_bads, of_all = goods / effects[0], bads / effects[1], total / of_calls
    called = (calls / total * of_all + z * z / 2) / (of_all + z * z)
    first, second = (sensitivity * of_goods + 1) / (of_goods + 2), (specificity * of_bads + 1) / (of_bads + 2)
    gain = first + second - 1
    if gain <= 0:
        return Estimate(value, 0.0, 1.0, n)
    middle = (called + second - 1) / gain
    of_first, of_second = first * (1 - first) / (of_goods + 2), second * (1 - second) / (of_bads + 2)
    shift = 2 * z * z * (middle * of_first - (1 - middle) * of_second)
    spread = called * (1 - called) / (of_all + z * z) + middle**2 * of_first + (1 - middle) ** 2 * of_second
    reach = z * math.sqrt(spread) / gain
    low, high = (min(1.0, max(0.0, middle + shift + sign * reach)) for sign in (-1, 1))
    return Estimate(value, min(low, value), max(high, value), n)
