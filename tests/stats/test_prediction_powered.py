"""Estimates from few labels and many judge scores: hand-computed values and coverage of the intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ragauge.stats.intervals import t_interval
from ragauge.stats.prediction_powered import prediction_powered_mean, rogan_gladen_share


def draw_samples(rng, n, skill, rate=0.6):
    """Draw labels of 0 and 1, and scores of a judge that knows a share `skill` of the labels and guesses the rest."""
    labels = (rng.random(n) < rate).astype(np.float64)
    scores = np.where(rng.random(n) < skill, labels, rng.random(n)) * 0.8 + 0.1
    return labels, scores


def test_prediction_powered_mean_by_hand():
    """The covariance of labels 1, 0, 1, 0 and scores .8, .2, .6, .4 is .4/3; all ten scores have variance .544/9.

    The weight .4/3 / ((1 + 4/6) * .544/9) = 1.32 is cut to 1.
    """
    labels, scores = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.8, 0.2, 0.6, 0.4])
    others = np.array([0.8, 0.2, 0.6, 0.4, 0.5, 0.9])
    result, weight = prediction_powered_mean(labels, scores, others)
    assert weight == 1.0
    assert result.value == pytest.approx(0.5 + (3.4 / 6 - 0.5))
    residuals = labels - scores
    variance = residuals.var(ddof=1) * 3 / 2 / 4 + others.var(ddof=1) / 6
    assert result.high - result.value == pytest.approx(stats.t.ppf(0.975, 2) * math.sqrt(variance))


def test_prediction_powered_mean_weight_matches_formula():
    rng = np.random.default_rng(4)
    labels, scores = draw_samples(rng, 340, 0.3)
    result, weight = prediction_powered_mean(labels[:40], scores[:40], scores[40:])
    expected = np.cov(labels[:40], scores[:40])[0, 1] / ((1 + 40 / 300) * scores.var(ddof=1))
    assert 0 < expected < 1
    assert weight == pytest.approx(expected)
    assert result.value == pytest.approx(labels[:40].mean() + expected * (scores[40:].mean() - scores[:40].mean()))


def test_prediction_powered_mean_zero_weight_equals_t_interval():
    labels, scores = draw_samples(np.random.default_rng(1), 50, 0.5)
    result, weight = prediction_powered_mean(labels, scores, scores, weight=0.0)
    assert weight == 0.0
    assert result.value == labels.mean()
    assert result[1:3] == pytest.approx(t_interval(labels, 0.95))
    labels_only, weight = prediction_powered_mean(labels, scores, np.array([]))
    assert (labels_only, weight) == (result, 0.0)


def test_prediction_powered_mean_constant_judge_has_zero_weight():
    labels, _ = draw_samples(np.random.default_rng(1), 50, 0.5)
    result, weight = prediction_powered_mean(labels, np.ones(50), np.ones(500))
    assert weight == 0.0
    assert result.value == labels.mean()


def test_prediction_powered_mean_too_few_or_equal_labels_have_a_reason():
    assert prediction_powered_mean(np.ones(2), np.ones(2), np.ones(9))[0].reason == "fewer than 3 labels"
    result, _ = prediction_powered_mean(np.ones(9), np.ones(9), np.ones(9))
    assert result.value == 1.0
    assert math.isnan(result.low)
    assert "all labels are equal" in result.reason


@pytest.mark.parametrize(("n", "n_others", "skill"), [(20, 500, 0.9), (50, 500, 0.5), (40, 1000, 0.0)])
def test_prediction_powered_mean_has_nominal_coverage(n, n_others, skill):
    """Of 1,000 intervals, 950 (95%) should cover the true value; fewer than 930 do so with a probability of 0.2%.

    Intervals of the judge's scores alone cover it fewer than 800 times.
    """
    rng = np.random.default_rng(9)
    covered = judge_only = 0
    width = plain_width = 0.0
    for _ in range(1000):
        labels, scores = draw_samples(rng, n + n_others, skill)
        result, _ = prediction_powered_mean(labels[:n], scores[:n], scores[n:])
        plain, _ = prediction_powered_mean(labels[:n], scores[:n], scores[n:], weight=0.0)
        covered += result.low <= 0.6 <= result.high
        low, high = t_interval(scores, 0.95)
        judge_only += low <= 0.6 <= high
        width += result.high - result.low
        plain_width += plain.high - plain.low
    assert covered >= 930
    assert judge_only < 800
    assert width < {0.9: 0.5, 0.5: 0.9, 0.0: 1.02}[skill] * plain_width


def test_prediction_powered_mean_of_groups_has_nominal_coverage():
    """Coverage with 40 groups of three equal labels.

    Of 400 intervals, 380 (95%) should cover the true value; fewer than 367 do so with a probability of 0.2%.
    """
    rng = np.random.default_rng(10)
    groups = np.arange(1200) // 3
    covered = ungrouped = 0
    for _ in range(400):
        labels, scores = (values[groups] for values in draw_samples(rng, 400, 0.6))
        n = 120
        result, _ = prediction_powered_mean(labels[:n], scores[:n], scores[n:], groups=(groups[:n], groups[n:]))
        naive, _ = prediction_powered_mean(labels[:n], scores[:n], scores[n:])
        covered += result.low <= 0.6 <= result.high
        ungrouped += naive.low <= 0.6 <= naive.high
    assert covered >= 367
    assert ungrouped < 330


def test_rogan_gladen_share_by_hand():
    """The judge has sensitivity 8/10 and specificity 9/10, and calls 9 + 41 of all 120 samples good.

    (50/120 + 0.9 - 1) / (0.8 + 0.9 - 1) = 0.452381
    """
    people = np.repeat([True, False], 10)
    judge = np.array([True] * 8 + [False] * 2 + [True] + [False] * 9)
    result = rogan_gladen_share(judge, people, np.arange(100) < 41)
    assert result.value == pytest.approx(0.452381, abs=1e-6)
    assert result.low < 0.35
    assert result.high > 0.55


def test_rogan_gladen_share_judge_at_chance_is_undefined():
    people = np.array([True, False] * 10)
    assert "no better than chance" in rogan_gladen_share(~people, people, people).reason
    assert "all labels have the same verdict" in rogan_gladen_share(people, np.ones(20, bool), people).reason


@pytest.mark.parametrize(("n", "n_others", "sensitivity", "specificity"), [(60, 1000, 0.8, 0.9), (100, 300, 0.7, 0.7)])
def test_rogan_gladen_share_has_nominal_coverage(n, n_others, sensitivity, specificity):
    rng = np.random.default_rng(12)
    covered = 0
    for _ in range(500):
        people = rng.random(n + n_others) < 0.3
        judge = np.where(people, rng.random(n + n_others) < sensitivity, rng.random(n + n_others) >= specificity)
        result = rogan_gladen_share(judge[:n], people[:n], judge[n:])
        covered += result.low <= 0.3 <= result.high
    assert covered >= 465
