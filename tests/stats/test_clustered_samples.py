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

N_QUESTIONS, N_ANSWERS, N_DRAWS, N_UNGROUPED = 25, 8, 150, 50
P_ABOVE_1 = 0.1586552539314571
"""Probability that a standard normal variate exceeds 1."""


def draw_answers(rng, n_questions):
    """Draw answers to `n_questions` questions: groups, labels, scores, word counts and changed verdicts.

    Half of the variance of each value is common to all answers to a question.
    """
    groups = np.repeat(np.arange(n_questions), N_ANSWERS)

    def draw_correlated():
        return math.sqrt(0.5) * (rng.normal(0, 1, n_questions)[groups] + rng.normal(0, 1, len(groups)))

    people = draw_correlated() > 0
    return groups, people, people + 0.8 * draw_correlated(), 50 + 20 * draw_correlated(), draw_correlated() > 1


@pytest.mark.simulation
def test_grouped_intervals_have_nominal_coverage():
    """Of 150 intervals, 142 (95%) should cover the true value; fewer than 133 do so with a probability of 0.1%.

    Intervals that ignore the groups cover it less often.
    """
    rng = np.random.default_rng(11)
    covered, ungrouped = Counter(), Counter()
    for i in range(N_DRAWS):
        groups, people, scores, words, changed = draw_answers(rng, N_QUESTIONS)
        other_groups, _, other_scores, _, _ = draw_answers(rng, 4 * N_QUESTIONS)
        labels, before, after = people.astype(np.float64), np.zeros(len(groups)), changed.astype(np.float64)
        singletons = np.arange(len(groups)), np.arange(len(other_groups)) + len(groups)
        for counted, (labelled_groups, unlabelled_groups) in (
            (covered, (groups, other_groups + N_QUESTIONS)),
            (ungrouped, singletons),
        )[: 2 if i < N_UNGROUPED else 1]:
            order = order_bias(before, after, 0.5, groups=labelled_groups)
            consistency = judge_consistency(np.stack([before, after, after], axis=1), 0.5, groups=labelled_groups)
            intervals = {
                "bias": (estimate_mean(scores - labels, groups=labelled_groups), 0.0),
                "judge": (estimate_mean(scores, groups=labelled_groups), 0.5),
                "changed": (order.changed, P_ABOVE_1),
                "shift": (order.shift, P_ABOVE_1),
                "same": (consistency.same, 1 - P_ABOVE_1),
                "pairwise": (consistency.pairwise, 1 - P_ABOVE_1 * 2 / 3),
                "slope": (length_slope(scores, labels, words, groups=labelled_groups), 0.0),
                "curve": (calibration_curve(words, people, groups=labelled_groups, bins=1)[0][0].share, 0.5),
                "rates": (
                    rogan_gladen_share(
                        scores > 0.5, people, other_scores > 0.5, groups=(labelled_groups, unlabelled_groups)
                    ),
                    0.5,
                ),
                "powered": (
                    prediction_powered_mean(labels, scores, other_scores, groups=(labelled_groups, unlabelled_groups))[
                        0
                    ],
                    0.5,
                ),
            }
            for name, (interval, truth) in intervals.items():
                counted[name] += interval.low <= truth <= interval.high
    assert min(covered.values()) >= 133, covered
    assert max(ungrouped.values()) < 0.9 * N_UNGROUPED, ungrouped


def test_estimate_mean_of_groups_by_hand():
    """The deviations from the mean 0.5 sum to -0.8 and +0.8 in the two groups.

    The variance is 2/1 * 2 * (0.8/4)^2 = 0.16, and the t quantile for 1 degree of freedom is 12.706.
    """
    result = estimate_mean(np.array([0.0, 0.2, 1.0, 0.8]), groups=np.array([3, 3, 8, 8]))
    assert result[:3] == pytest.approx((0.5, 0.5 - 12.7062 * 0.4, 0.5 + 12.7062 * 0.4), rel=1e-4)


def test_estimate_mean_groups_never_narrow_the_interval():
    values, groups = np.tile([0.0, 1.0], 50), np.arange(100) // 2
    result = estimate_mean(values, groups=groups)
    assert result.high - result.low >= 2 * 1.96 * values.std(ddof=1) / 10


def test_length_slope_of_groups_matches_jackknife():
    rng = np.random.default_rng(3)
    groups, people, scores, words, _ = draw_answers(rng, N_QUESTIONS)
    labels = people.astype(np.float64)
    design = np.stack([np.ones(len(words)), words / 100, labels], axis=1)
    slope = np.linalg.lstsq(design, scores, rcond=None)[0][1]
    jackknife = [
        np.linalg.lstsq(design[groups != group], scores[groups != group], rcond=None)[0][1]
        for group in range(N_QUESTIONS)
    ]
    spread = math.sqrt(((np.array(jackknife) - slope) ** 2).sum())
    result = length_slope(scores, labels, words, groups=groups)
    assert result.value == pytest.approx(slope)
    assert (result.low, result.high) == pytest.approx((slope - 2.0639 * spread, slope + 2.0639 * spread), rel=1e-4)
    ungrouped = length_slope(scores, labels, words)
    singletons = length_slope(scores, labels, words, groups=np.arange(len(words)))
    assert singletons[:3] == pytest.approx(ungrouped[:3], rel=1e-3)


def test_design_effect_by_hand():
    assert design_effect(np.array([1.0, 0.0] * 5000), np.arange(10_000) // 2) == pytest.approx(1.0, abs=1e-3)
    assert design_effect(np.ones(300), np.arange(300) // 30) == 30.0
    assert design_effect(np.ones(4), np.array([0, 0, 0, 1])) == 10 / 4
    assert design_effect(np.array([1.0, 0.0]), np.zeros(2, np.int64)) == 2.0
    unchanged = order_bias(np.zeros(300), np.zeros(300), 0.5, groups=np.arange(300) // 30).changed
    assert (unchanged.low, unchanged.high) == pytest.approx((0.0, 0.2775), abs=1e-4)  # Wilson interval of 0 of 10


def test_roc_auc_perfect_order_counts_groups():
    scores, people = np.repeat(np.arange(12.0), 5), np.repeat(np.arange(12) >= 6, 5)
    expected = roc_auc(np.arange(12.0), np.arange(12) >= 6)
    assert roc_auc(scores, people, groups=np.repeat(np.arange(12), 5))[:3] == pytest.approx(expected[:3])
    assert roc_auc(scores, people).low > expected.low + 0.1


def test_accuracy_all_interval_groups_unscored_samples():
    """Ten questions with ten answers each: those of five questions are unscored, the others have correct verdicts."""
    groups, scores = np.arange(100) // 10, np.repeat([1.0, math.nan], 50)
    result = rate("", "judge", scores, LabelScale(np.ones(100), 0.5, groups), 0.5).statistics["accuracy_all"]
    assert result.value == 0.5
    assert result.low < 0.21
    assert result.high > 0.79


def test_one_group_has_no_interval_and_a_reason():
    rng = np.random.default_rng(2)
    groups, people = np.zeros(60, np.int64), np.arange(60) < 30
    scores, labels = rng.random(60), people.astype(np.float64)
    estimates = [
        roc_auc(scores, people, groups=groups),
        auc_difference(scores, rng.random(60), people, groups=groups),
        estimate_mean(scores, groups=groups),
        prediction_powered_mean(labels, scores, scores, groups=(groups, groups))[0],
        krippendorff_alpha(np.stack([labels, scores > 0.5], axis=1), groups=groups),
        *compute_correlations(scores, labels, groups=groups).values(),
        length_slope(scores, labels, scores, groups=groups),
    ]
    assert {estimate.reason for estimate in estimates} == {ONE_GROUP}
    assert all(estimate.defined and math.isnan(estimate.low) for estimate in estimates)
    accuracy = verdict_statistics(scores > 0.5, people, groups=groups)["accuracy"]
    assert accuracy.high - accuracy.low > 0.7


def test_correlations_of_few_groups_have_no_interval():
    groups, people, scores, _, _ = draw_answers(np.random.default_rng(4), 10)
    result = compute_correlations(scores, people.astype(np.float64), groups=groups)
    assert {estimate.reason for estimate in result.values()} == {"80 samples of 10 groups are too few for an interval"}
