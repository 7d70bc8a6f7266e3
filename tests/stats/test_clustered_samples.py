"""Intervals for correlated samples (several answers per question): coverage with and without groups."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from ragauge.judging.calibration.rater_statistics import LabelScale, estimate_mean, judge_consistency, order_bias, rate
from ragauge.stats.agreement import krippendorff_alpha, verdict_statistics
from ragauge.stats.association import auc_difference, calibration_curve, compute_correlations, length_slope, roc_auc
from ragauge.stats.intervals import ONE_GROUP, design_effect
from ragauge.stats.prediction_powered import prediction_powered_mean, rogan_gladen_share

QUESTIONS, ANSWERS, DRAWS, BLIND = 25, 8, 150, 50
CHANGED = 0.1586552539314571
"""Probability that a standard normal variate exceeds 1."""


def drawn(rng, number):
    """Draw answers to `number` questions: groups, labels, scores, word counts and changed verdicts.

    Half of the variance of each value is common to all answers to a question.
    """
    groups = np.repeat(np.arange(number), ANSWERS)

    def mixed():
        return math.sqrt(0.5) * (rng.normal(0, 1, number)[groups] + rng.normal(0, 1, len(groups)))

    people = mixed() > 0
    return groups, people, people + 0.8 * mixed(), 50 + 20 * mixed(), mixed() > 1


@pytest.mark.simulation
def test_grouped_intervals_have_nominal_coverage():
    """Of 150 intervals, 142 (95%) should cover the true value; fewer than 133 do so with a probability of 0.1%.

    Intervals that ignore the groups cover it less often.
    """
    rng = np.random.default_rng(11)
    covered, blind = Counter(), Counter()
    for turn in range(DRAWS):
        groups, people, scores, words, changed = drawn(rng, QUESTIONS)
        more, _, others, _, _ = drawn(rng, 4 * QUESTIONS)
        labels, before, after = people.astype(np.float64), np.zeros(len(groups)), changed.astype(np.float64)
        own = np.arange(len(groups)), np.arange(len(more)) + len(groups)
        for counted, (mine, rest) in ((covered, (groups, more + QUESTIONS)), (blind, own))[: 2 if turn < BLIND else 1]:
            turned = order_bias(before, after, 0.5, groups=mine)
            steady = judge_consistency(np.stack([before, after, after], axis=1), 0.5, groups=mine)
            figures = {
                "bias": (estimate_mean(scores - labels, groups=mine), 0.0),
                "judge": (estimate_mean(scores, groups=mine), 0.5),
                "changed": (turned.changed, CHANGED),
                "shift": (turned.shift, CHANGED),
                "same": (steady.same, 1 - CHANGED),
                "pairwise": (steady.pairwise, 1 - CHANGED * 2 / 3),
                "slope": (length_slope(scores, labels, words, groups=mine), 0.0),
                "curve": (calibration_curve(words, people, groups=mine, bins=1)[0][0].share, 0.5),
                "rates": (rogan_gladen_share(scores > 0.5, people, others > 0.5, groups=(mine, rest)), 0.5),
                "powered": (prediction_powered_mean(labels, scores, others, groups=(mine, rest))[0], 0.5),
            }
            for name, (figure, truth) in figures.items():
                counted[name] += figure.low <= truth <= figure.high
    assert min(covered.values()) >= 133, covered
    assert max(blind.values()) < 0.9 * BLIND, blind


def test_estimate_mean_of_groups_by_hand():
    """The deviations from the mean 0.5 sum to -0.8 and +0.8 in the two groups.

    The variance is 2/1 * 2 * (0.8/4)^2 = 0.16, and the t quantile for 1 degree of freedom is 12.706.
    """
    found = estimate_mean(np.array([0.0, 0.2, 1.0, 0.8]), groups=np.array([3, 3, 8, 8]))
    assert found[:3] == pytest.approx((0.5, 0.5 - 12.7062 * 0.4, 0.5 + 12.7062 * 0.4), rel=1e-4)


def test_estimate_mean_groups_never_narrow_the_interval():
    values, groups = np.tile([0.0, 1.0], 50), np.arange(100) // 2
    found = estimate_mean(values, groups=groups)
    assert found.high - found.low >= 2 * 1.96 * values.std(ddof=1) / 10


def test_length_slope_of_groups_matches_jackknife():
    rng = np.random.default_rng(3)
    groups, people, scores, words, _ = drawn(rng, QUESTIONS)
    labels = people.astype(np.float64)
    design = np.stack([np.ones(len(words)), words / 100, labels], axis=1)
    every = np.linalg.lstsq(design, scores, rcond=None)[0][1]
    without = [
        np.linalg.lstsq(design[groups != one], scores[groups != one], rcond=None)[0][1] for one in range(QUESTIONS)
    ]
    spread = math.sqrt(((np.array(without) - every) ** 2).sum())
    found = length_slope(scores, labels, words, groups=groups)
    assert found.value == pytest.approx(every)
    assert (found.low, found.high) == pytest.approx((every - 2.0639 * spread, every + 2.0639 * spread), rel=1e-4)
    alone = length_slope(scores, labels, words)
    each = length_slope(scores, labels, words, groups=np.arange(len(words)))
    assert each[:3] == pytest.approx(alone[:3], rel=1e-3)


def test_design_effect_by_hand():
    assert design_effect(np.array([1.0, 0.0] * 5000), np.arange(10_000) // 2) == pytest.approx(1.0, abs=1e-3)
    assert design_effect(np.ones(300), np.arange(300) // 30) == 30.0
    assert design_effect(np.ones(4), np.array([0, 0, 0, 1])) == 10 / 4
    assert design_effect(np.array([1.0, 0.0]), np.zeros(2, np.int64)) == 2.0
    nothing = order_bias(np.zeros(300), np.zeros(300), 0.5, groups=np.arange(300) // 30).changed
    assert (nothing.low, nothing.high) == pytest.approx((0.0, 0.2775), abs=1e-4)  # Wilson interval of 0 of 10


def test_roc_auc_perfect_order_counts_groups():
    scores, people = np.repeat(np.arange(12.0), 5), np.repeat(np.arange(12) >= 6, 5)
    once = roc_auc(np.arange(12.0), np.arange(12) >= 6)
    assert roc_auc(scores, people, groups=np.repeat(np.arange(12), 5))[:3] == pytest.approx(once[:3])
    assert roc_auc(scores, people).low > once.low + 0.1


def test_accuracy_all_interval_groups_unscored_samples():
    """Ten questions with ten answers each: those of five questions are unscored, the others have correct verdicts."""
    groups, scores = np.arange(100) // 10, np.repeat([1.0, math.nan], 50)
    found = rate("", "judge", scores, LabelScale(np.ones(100), 0.5, groups), 0.5).figures["accuracy_all"]
    assert found.value == 0.5
    assert found.low < 0.21
    assert found.high > 0.79


def test_one_group_has_no_interval_and_a_reason():
    rng = np.random.default_rng(2)
    groups, people = np.zeros(60, np.int64), np.arange(60) < 30
    scores, labels = rng.random(60), people.astype(np.float64)
    alone = [
        roc_auc(scores, people, groups=groups),
        auc_difference(scores, rng.random(60), people, groups=groups),
        estimate_mean(scores, groups=groups),
        prediction_powered_mean(labels, scores, scores, groups=(groups, groups))[0],
        krippendorff_alpha(np.stack([labels, scores > 0.5], axis=1), groups=groups),
        *compute_correlations(scores, labels, groups=groups).values(),
        length_slope(scores, labels, scores, groups=groups),
    ]
    assert {one.why for one in alone} == {ONE_GROUP}
    assert all(one.defined and math.isnan(one.low) for one in alone)
    accuracy = verdict_statistics(scores > 0.5, people, groups=groups)["accuracy"]
    assert accuracy.high - accuracy.low > 0.7


def test_correlations_of_few_groups_have_no_interval():
    groups, people, scores, _, _ = drawn(np.random.default_rng(4), 10)
    found = compute_correlations(scores, people.astype(np.float64), groups=groups)
    assert {one.why for one in found.values()} == {"80 samples of 10 groups are too few for an interval"}
