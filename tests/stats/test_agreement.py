"""Agreement between a judge and human raters: values from other libraries and publications, and interval coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics as sk
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.proportion import proportion_confint

from ragauge.judging.calibration.rater_statistics import human_agreement, judge_consistency, length_bias, order_bias
from ragauge.judging.calibration.results import STATISTIC_DESCRIPTIONS
from ragauge.stats.agreement import (
    ConfusionMatrix,
    best_threshold,
    compute_kappa,
    count_confusion,
    cross_fitted_verdicts,
    gwets_ac1,
    krippendorff_alpha,
    proportion,
    verdict_statistics,
)
from ragauge.stats.association import auc_difference, calibration_curve, compute_correlations, length_slope, roc_auc

RNG = np.random.default_rng(5)
PEOPLE = RNG.random(300) < 0.7
JUDGE = np.where(RNG.random(300) < 0.8, PEOPLE, ~PEOPLE)
SCORES = np.round(PEOPLE * 0.3 + RNG.random(300), 1)
LABELS = np.round(np.clip(SCORES / 2 + RNG.normal(0, 0.3, 300), 0, 1) * 3) / 3


def verdicts_from_counts(good: int, only_judge: int, only_people: int, bad: int):
    """Return verdicts of the judge and of people with these counts in their confusion matrix."""
    judge = np.repeat([True, True, False, False], [good, only_judge, only_people, bad])
    people = np.repeat([True, False, True, False], [good, only_judge, only_people, bad])
    return judge, people


def test_verdict_statistics_match_scikit_learn():
    result = verdict_statistics(JUDGE, PEOPLE)
    expected = {
        "accuracy": sk.accuracy_score(PEOPLE, JUDGE),
        "sensitivity": sk.recall_score(PEOPLE, JUDGE),
        "specificity": sk.recall_score(~PEOPLE, ~JUDGE),
        "precision": sk.precision_score(PEOPLE, JUDGE),
        "npv": sk.precision_score(~PEOPLE, ~JUDGE),
        "balanced_accuracy": sk.balanced_accuracy_score(PEOPLE, JUDGE),
        "kappa": sk.cohen_kappa_score(PEOPLE, JUDGE),
    }
    for name, value in expected.items():
        assert result[name].value == pytest.approx(value, abs=1e-12), name
    assert set(result) <= set(STATISTIC_DESCRIPTIONS)


def test_count_confusion_by_hand():
    assert count_confusion(*verdicts_from_counts(3, 4, 5, 6)) == ConfusionMatrix(3, 4, 5, 6)
    assert count_confusion(*verdicts_from_counts(3, 4, 5, 6)).n == 18


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (9, 10), (123, 400)])
def test_proportion_interval_matches_statsmodels_wilson(hits, n):
    low, high = proportion_confint(hits, n, method="wilson")
    assert proportion(hits, n)[:3] == pytest.approx((hits / n, low, high), abs=1e-9)


def test_kappa_and_gwets_ac1_by_hand():
    """If both raters call 118 of 125 samples good, kappa is negative, but AC1 is not.

    The observed agreement is 118/125 = 0.944. The agreement expected by chance is (123 * 120 + 2 * 5) / 125^2 = 0.94528
    for Cohen's kappa, and 2 * 0.972 * 0.028 = 0.054432 for Gwet's AC1.
    """
    cells = np.array([118.0, 5.0, 2.0, 0.0])
    assert float(compute_kappa(cells)) == pytest.approx((0.944 - 0.94528) / (1 - 0.94528))
    assert float(gwets_ac1(cells)) == pytest.approx((0.944 - 0.054432) / (1 - 0.054432))


def test_kappa_interval_of_large_sample_matches_statsmodels():
    judge, people = verdicts_from_counts(900, 150, 200, 750)
    result = verdict_statistics(judge, people)["kappa"]
    expected = cohens_kappa(np.array([[900, 150], [200, 750]]))
    assert result.value == pytest.approx(expected.kappa)
    assert (result.low, result.high) == pytest.approx((expected.kappa_low, expected.kappa_upp), abs=0.003)


@pytest.mark.parametrize("cells", [(0.45, 0.05, 0.1, 0.4), (0.85, 0.05, 0.05, 0.05), (0.6, 0.02, 0.02, 0.36)])
@pytest.mark.simulation
def test_kappa_and_ac1_intervals_have_nominal_coverage(cells):
    """Coverage with 300 sets of 50 samples.

    Of 300 intervals, 285 (95%) should cover the true value; fewer than 273 do so with a probability of 0.1%.
    """
    rng = np.random.default_rng(3)
    truth = {"kappa": float(compute_kappa(np.array(cells))), "ac1": float(gwets_ac1(np.array(cells)))}
    covered = dict.fromkeys(truth, 0)
    for seed in range(300):
        result = verdict_statistics(*verdicts_from_counts(*rng.multinomial(50, cells)), seed=seed)
        for name, value in truth.items():
            covered[name] += result[name].low <= value <= result[name].high
    assert min(covered.values()) >= 273


def test_verdict_statistics_perfect_agreement_has_interval_below_1():
    result = verdict_statistics(*verdicts_from_counts(10, 0, 0, 10))
    for name in ("accuracy", "kappa", "ac1", "alpha", "balanced_accuracy"):
        assert result[name].value == result[name].high == 1.0
        assert 0.5 < result[name].low < 0.9


def test_undefined_statistics_have_a_reason():
    all_good = verdict_statistics(*verdicts_from_counts(5, 0, 2, 0))
    assert [name for name in all_good if not all_good[name].defined] == [
        "specificity",
        "balanced_accuracy",
        "kappa",
        "alpha",
    ]
    assert all_good["kappa"].reason == "all human verdicts are equal"
    assert all_good["specificity"].reason == "no sample is bad according to people"
    assert all_good["ac1"].value == pytest.approx((5 / 7 - 2 * (6 / 7) * (1 / 7)) / (1 - 2 * (6 / 7) * (1 / 7)))
    no_samples = verdict_statistics(*verdicts_from_counts(0, 0, 0, 0))
    assert all(not statistic.defined and statistic.reason for statistic in no_samples.values())
    assert not roc_auc(np.array([0.1, 0.2]), np.array([True, True])).defined
    assert compute_correlations(np.ones(30), np.arange(30.0))["spearman"].reason == "all scores are the same"


def test_accuracy_all_counts_unscored_samples_as_wrong():
    result = verdict_statistics(*verdicts_from_counts(5, 1, 1, 3), unscored=10)
    assert (result["accuracy"].value, result["accuracy"].n) == (0.8, 10)
    assert (result["accuracy_all"].value, result["accuracy_all"].n) == (0.4, 20)


def test_krippendorff_alpha_two_raters_matches_published_example():
    """Example B of "Computing Krippendorff's Alpha-Reliability" (2011): ten units, alpha 0.095."""
    a, b = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert krippendorff_alpha(np.array([a, b], np.float64).T).value == pytest.approx(0.095, abs=5e-4)
    assert verdict_statistics(np.array(a, bool), np.array(b, bool))["alpha"].value == pytest.approx(0.095, abs=5e-4)


def test_krippendorff_alpha_missing_grades_matches_published_example():
    """Example C of "Computing Krippendorff's Alpha-Reliability" (2011), interval metric.

    Four observers rate twelve units; alpha is 0.849.
    """
    missing = math.nan
    votes = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, missing, missing, missing],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, missing, 3],
        [missing, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, missing],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, missing],
    ]
    result = krippendorff_alpha(np.array(votes).T)
    assert result.value == pytest.approx(0.849, abs=5e-4)
    assert result.n == 11
    assert result.low < result.value < result.high


def test_auc_and_correlations_match_scikit_learn_and_scipy():
    result = compute_correlations(SCORES, LABELS)
    assert roc_auc(SCORES, PEOPLE).value == pytest.approx(sk.roc_auc_score(PEOPLE, SCORES), abs=1e-12)
    assert result["spearman"].value == pytest.approx(stats.spearmanr(SCORES, LABELS).statistic, abs=1e-12)
    assert result["kendall"].value == pytest.approx(stats.kendalltau(SCORES, LABELS).statistic, abs=1e-12)
    assert result["pearson"].value == pytest.approx(stats.pearsonr(SCORES, LABELS).statistic, abs=1e-12)


@pytest.mark.simulation
def test_auc_and_correlation_intervals_match_bootstrap():
    rng = np.random.default_rng(8)
    drawn = rng.integers(0, 300, (1000, 300))
    statistics = {
        "auc": (roc_auc(SCORES, PEOPLE), [sk.roc_auc_score(PEOPLE[i], SCORES[i]) for i in drawn]),
        "kendall": (
            compute_correlations(SCORES, LABELS)["kendall"],
            [stats.kendalltau(SCORES[i], LABELS[i]).statistic for i in drawn],
        ),
        "spearman": (
            compute_correlations(SCORES, LABELS)["spearman"],
            [stats.spearmanr(SCORES[i], LABELS[i]).statistic for i in drawn],
        ),
    }
    for name, (found, resampled) in statistics.items():
        assert (found.low, found.high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.012), name


def test_roc_auc_interval_has_nominal_coverage():
    """Coverage with 12 good and 25 bad samples.

    Of 500 intervals, 475 (95%) should cover the true AUC; fewer than 460 do so with a probability of 0.2%.
    """
    rng = np.random.default_rng(2)
    truth, good = stats.norm.cdf(1.2 / math.sqrt(2)), np.arange(37) < 12
    covered = 0
    for _ in range(500):
        result = roc_auc(rng.normal(0, 1, 37) + 1.2 * good, good)
        covered += result.low <= truth <= result.high
    assert covered >= 460


def test_roc_auc_perfect_order_has_interval_below_1():
    result = roc_auc(np.arange(12.0), np.arange(12) >= 6)
    assert (result.value, result.high) == (1.0, 1.0)
    assert 0.6 < result.low < 0.9
    inverted = roc_auc(-np.arange(12.0), np.arange(12) >= 6)
    assert (inverted.value, inverted.low, inverted.high) == pytest.approx((0.0, 0.0, 1 - result.low))


def test_correlation_of_few_samples_has_no_interval():
    result = compute_correlations(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))["spearman"]
    assert result.value == pytest.approx(0.5)
    assert math.isnan(result.low)
    assert "too few" in result.reason


def test_grouped_duplicate_samples_keep_interval_width():
    indices = np.arange(600) // 2
    for name in ("accuracy", "kappa", "sensitivity"):
        single = verdict_statistics(JUDGE, PEOPLE)[name]
        grouped = verdict_statistics(JUDGE[indices], PEOPLE[indices], groups=indices)[name]
        ungrouped = verdict_statistics(JUDGE[indices], PEOPLE[indices])[name]
        assert grouped.high - grouped.low == pytest.approx(single.high - single.low, rel=0.03)
        assert ungrouped.high - ungrouped.low < 0.8 * (single.high - single.low)
    single, grouped = roc_auc(SCORES, PEOPLE), roc_auc(SCORES[indices], PEOPLE[indices], groups=indices)
    assert grouped[:3] == pytest.approx(single[:3], abs=0.002)
    first, second = (
        compute_correlations(SCORES, LABELS),
        compute_correlations(SCORES[indices], LABELS[indices], groups=indices),
    )
    for name, figure in first.items():
        assert second[name][:3] == pytest.approx(figure[:3], abs=0.003), name


def test_best_threshold_maximises_kappa():
    threshold = best_threshold(SCORES, PEOPLE)
    kappas = [sk.cohen_kappa_score(PEOPLE, level <= SCORES) for level in np.unique(SCORES)]
    assert sk.cohen_kappa_score(PEOPLE, threshold <= SCORES) == pytest.approx(max(kappas))
    assert math.isnan(best_threshold(np.ones(4), np.array([True, False, True, False])))


def test_cross_fitted_verdicts_of_noise_have_zero_kappa():
    rng = np.random.default_rng(1)
    kappas = []
    for seed in range(100):
        people, noise = rng.random(60) < 0.5, rng.random(60)
        verdicts, _ = cross_fitted_verdicts(noise, people, seed=seed)
        kappas.append(float(compute_kappa(np.array(count_confusion(verdicts, people), np.float64))))
    assert abs(np.mean(kappas)) < 0.05
    verdicts, thresholds = cross_fitted_verdicts(
        np.array([0.1, 0.2, 0.8, 0.9] * 10), np.array([False, False, True, True] * 10)
    )
    assert verdicts.tolist() == [False, False, True, True] * 10
    assert thresholds == (0.5, 0.5)


def test_human_agreement_compares_each_rater_with_the_others():
    """Each vote of three raters on three samples is compared with the mean of the other two votes.

    A mean of at least 0.5 is good: 8 of 9 votes agree.
    """
    votes = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    result = human_agreement(votes, 0.5)
    assert result["accuracy"].value == pytest.approx(8 / 9)
    assert result["alpha"].value == pytest.approx(krippendorff_alpha(votes).value)
    assert "accuracy_all" not in result
    assert result["auc"].value == pytest.approx(
        sk.roc_auc_score([1, 1, 1, 0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0, 1, 1, 1])
    )


def test_calibration_curve_by_hand():
    scores = np.array([0.1] * 10 + [0.9] * 10)
    people = np.array([True] * 2 + [False] * 8 + [True] * 7 + [False] * 3)
    bins, error = calibration_curve(scores, people, bins=2)
    assert [(part.score, part.share.value, part.share.n) for part in bins] == [
        (pytest.approx(0.1), 0.2, 10),
        (pytest.approx(0.9), 0.7, 10),
    ]
    assert error == pytest.approx(0.5 * 0.1 + 0.5 * 0.2)
    assert sum(part.share.n for part in calibration_curve(SCORES, PEOPLE)[0]) == 300
    assert calibration_curve(np.array([]), np.array([], bool))[0] == []


@pytest.mark.simulation
def test_length_slope_matches_statsmodels():
    import statsmodels.api as sm

    rng = np.random.default_rng(6)
    words = rng.integers(5, 300, 200).astype(np.float64)
    scores = 0.4 * LABELS[:200] + 0.002 * words + rng.normal(0, 0.1, 200) * words / 100
    result = length_slope(scores, LABELS[:200], words)
    design = sm.add_constant(np.stack([words / 100, LABELS[:200]], axis=1))
    expected = sm.OLS(scores, design).fit(cov_type="HC3", use_t=True)
    assert result.value == pytest.approx(expected.params[1])
    assert (result.low, result.high) == pytest.approx(tuple(expected.conf_int()[1]))
    assert not length_slope(scores, LABELS[:200], np.ones(200)).defined


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5)), max_size=40))
@pytest.mark.simulation
def test_verdict_statistics_lie_within_their_intervals(rows):
    judge, people = (np.array([row[i] for row in rows], bool) for i in (0, 1))
    groups = np.array([row[2] for row in rows], np.int64)
    figures = verdict_statistics(judge, people, groups=groups)
    figures["auc"] = roc_auc(groups.astype(float), people, groups=groups)
    for name, figure in figures.items():
        assert figure.defined or figure.reason, name
        if figure.defined and not figure.reason:
            assert -1 <= figure.low <= figure.value + 1e-12, name
            assert figure.value - 1e-12 <= figure.high <= 1, name


@pytest.mark.simulation
def test_auc_difference_matches_paired_bootstrap():
    rng = np.random.default_rng(4)
    other = SCORES + rng.normal(0, 0.4, 300)
    result = auc_difference(SCORES, other, PEOPLE)
    assert result.value == pytest.approx(sk.roc_auc_score(PEOPLE, SCORES) - sk.roc_auc_score(PEOPLE, other))
    drawn = rng.integers(0, 300, (1000, 300))
    differences = [sk.roc_auc_score(PEOPLE[i], SCORES[i]) - sk.roc_auc_score(PEOPLE[i], other[i]) for i in drawn]
    assert (result.low, result.high) == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=0.01)
    assert auc_difference(SCORES, SCORES, PEOPLE).value == 0.0
    assert math.isnan(auc_difference(SCORES, SCORES, PEOPLE).low)


def test_judge_consistency_by_hand():
    """Two of four samples have equal verdicts in all three replicates.

    Of the 12 pairs of replicates, 6 + 1 + 1 = 8 have equal verdicts; a pair with a NaN is not equal.
    """
    columns = np.array([[0.9, 0.8, 0.7], [0.1, 0.2, 0.1], [0.9, 0.1, 0.9], [0.6, 0.6, math.nan]])
    result = judge_consistency(columns, 0.5)
    assert result.same.value == 0.5
    assert result.pairwise.value == pytest.approx(8 / 12)
    verdicts = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, math.nan]])
    assert result.alpha.value == pytest.approx(krippendorff_alpha(verdicts).value)
    expected = [np.std(row[~np.isnan(row)], ddof=1) for row in columns]
    assert result.spread.value == pytest.approx(np.mean(expected))


def test_order_bias_by_hand():
    result = order_bias(np.array([0.9, 0.4, 0.6, 0.7]), np.array([0.8, 0.6, 0.6, math.nan]), 0.5)
    assert result.changed.value == 0.5
    assert result.shift.value == pytest.approx((-0.1 + 0.2 + 0.0) / 3)
    assert result.moved.value == pytest.approx(0.1)
    assert (result.changed.n, result.shift.n) == (4, 3)


def test_length_bias_finds_errors_that_grow_with_length():
    rng = np.random.default_rng(7)
    words = rng.integers(10, 200, 150).astype(np.float64)
    labels = (rng.random(150) < 0.5).astype(np.float64)
    scores = 0.5 * labels + 0.1 * words / 100 + rng.normal(0, 0.05, 150)
    result = length_bias(np.append(scores, math.nan), np.append(labels, 1.0), np.append(words, 50.0))
    assert result.slope.low < 0.1 < result.slope.high
    assert result.slope.n == 150
    expected = stats.spearmanr(scores - labels, words).statistic
    assert result.correlation.value == pytest.approx(expected)
