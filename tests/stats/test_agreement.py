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

SEED = np.random.default_rng(5)
PEOPLE = SEED.random(300) < 0.7
JUDGE = np.where(SEED.random(300) < 0.8, PEOPLE, ~PEOPLE)
SCORES = np.round(PEOPLE * 0.3 + SEED.random(300), 1)
LABELS = np.round(np.clip(SCORES / 2 + SEED.normal(0, 0.3, 300), 0, 1) * 3) / 3


def spelled(good: int, only_judge: int, only_people: int, bad: int):
    """Return verdicts of the judge and of people with these counts in their confusion matrix."""
    judge = np.repeat([True, True, False, False], [good, only_judge, only_people, bad])
    people = np.repeat([True, False, True, False], [good, only_judge, only_people, bad])
    return judge, people


def test_verdict_statistics_match_scikit_learn():
    found = verdict_statistics(JUDGE, PEOPLE)
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
        assert found[name].value == pytest.approx(value, abs=1e-12), name
    assert set(found) <= set(STATISTIC_DESCRIPTIONS)


def test_count_confusion_by_hand():
    assert count_confusion(*spelled(3, 4, 5, 6)) == ConfusionMatrix(3, 4, 5, 6)
    assert count_confusion(*spelled(3, 4, 5, 6)).n == 18


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
    judge, people = spelled(900, 150, 200, 750)
    found = verdict_statistics(judge, people)["kappa"]
    theirs = cohens_kappa(np.array([[900, 150], [200, 750]]))
    assert found.value == pytest.approx(theirs.kappa)
    assert (found.low, found.high) == pytest.approx((theirs.kappa_low, theirs.kappa_upp), abs=0.003)


@pytest.mark.parametrize("cells", [(0.45, 0.05, 0.1, 0.4), (0.85, 0.05, 0.05, 0.05), (0.6, 0.02, 0.02, 0.36)])
@pytest.mark.simulation
def test_kappa_and_ac1_intervals_have_nominal_coverage(cells):
    """Coverage with 300 sets of 50 samples.

    Of 300 intervals, 285 (95%) should cover the true value; fewer than 273 do so with a probability of 0.1%.
    """
    rng = np.random.default_rng(3)
    truth = {"kappa": float(compute_kappa(np.array(cells))), "ac1": float(gwets_ac1(np.array(cells)))}
    covered = dict.fromkeys(truth, 0)
    for turn in range(300):
        found = verdict_statistics(*spelled(*rng.multinomial(50, cells)), seed=turn)
        for name, value in truth.items():
            covered[name] += found[name].low <= value <= found[name].high
    assert min(covered.values()) >= 273


def test_verdict_statistics_perfect_agreement_has_interval_below_1():
    found = verdict_statistics(*spelled(10, 0, 0, 10))
    for name in ("accuracy", "kappa", "ac1", "alpha", "balanced_accuracy"):
        assert found[name].value == found[name].high == 1.0
        assert 0.5 < found[name].low < 0.9


def test_undefined_statistics_have_a_reason():
    alone = verdict_statistics(*spelled(5, 0, 2, 0))
    assert [name for name in alone if not alone[name].defined] == ["specificity", "balanced_accuracy", "kappa", "alpha"]
    assert alone["kappa"].why == "all human verdicts are equal"
    assert alone["specificity"].why == "no sample is bad according to people"
    assert alone["ac1"].value == pytest.approx((5 / 7 - 2 * (6 / 7) * (1 / 7)) / (1 - 2 * (6 / 7) * (1 / 7)))
    nobody = verdict_statistics(*spelled(0, 0, 0, 0))
    assert all(not one.defined and one.why for one in nobody.values())
    assert not roc_auc(np.array([0.1, 0.2]), np.array([True, True])).defined
    assert compute_correlations(np.ones(30), np.arange(30.0))["spearman"].why == "all scores are the same"


def test_accuracy_all_counts_unscored_samples_as_wrong():
    found = verdict_statistics(*spelled(5, 1, 1, 3), unscored=10)
    assert (found["accuracy"].value, found["accuracy"].n) == (0.8, 10)
    assert (found["accuracy_all"].value, found["accuracy_all"].n) == (0.4, 20)


def test_krippendorff_alpha_two_raters_matches_published_example():
    """Example B of "Computing Krippendorff's Alpha-Reliability" (2011): ten units, alpha 0.095."""
    a, b = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert krippendorff_alpha(np.array([a, b], np.float64).T).value == pytest.approx(0.095, abs=5e-4)
    assert verdict_statistics(np.array(a, bool), np.array(b, bool))["alpha"].value == pytest.approx(0.095, abs=5e-4)


def test_krippendorff_alpha_missing_grades_matches_published_example():
    """Example C of "Computing Krippendorff's Alpha-Reliability" (2011), interval metric.

    Four observers rate twelve units; alpha is 0.849.
    """
    gap = math.nan
    votes = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, gap, gap, gap],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, gap, 3],
        [gap, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, gap],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, gap],
    ]
    found = krippendorff_alpha(np.array(votes).T)
    assert found.value == pytest.approx(0.849, abs=5e-4)
    assert found.n == 11
    assert found.low < found.value < found.high


def test_auc_and_correlations_match_scikit_learn_and_scipy():
    found = compute_correlations(SCORES, LABELS)
    assert roc_auc(SCORES, PEOPLE).value == pytest.approx(sk.roc_auc_score(PEOPLE, SCORES), abs=1e-12)
    assert found["spearman"].value == pytest.approx(stats.spearmanr(SCORES, LABELS).statistic, abs=1e-12)
    assert found["kendall"].value == pytest.approx(stats.kendalltau(SCORES, LABELS).statistic, abs=1e-12)
    assert found["pearson"].value == pytest.approx(stats.pearsonr(SCORES, LABELS).statistic, abs=1e-12)


@pytest.mark.simulation
def test_auc_and_correlation_intervals_match_bootstrap():
    rng = np.random.default_rng(8)
    drawn = rng.integers(0, 300, (1000, 300))
    kinds = {
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
    for name, (found, resampled) in kinds.items():
        assert (found.low, found.high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=0.012), name


def test_roc_auc_interval_has_nominal_coverage():
    """Coverage with 12 good and 25 bad samples.

    Of 500 intervals, 475 (95%) should cover the true AUC; fewer than 460 do so with a probability of 0.2%.
    """
    rng = np.random.default_rng(2)
    truth, good = stats.norm.cdf(1.2 / math.sqrt(2)), np.arange(37) < 12
    covered = 0
    for _ in range(500):
        found = roc_auc(rng.normal(0, 1, 37) + 1.2 * good, good)
        covered += found.low <= truth <= found.high
    assert covered >= 460


def test_roc_auc_perfect_order_has_interval_below_1():
    found = roc_auc(np.arange(12.0), np.arange(12) >= 6)
    assert (found.value, found.high) == (1.0, 1.0)
    assert 0.6 < found.low < 0.9
    upside = roc_auc(-np.arange(12.0), np.arange(12) >= 6)
    assert (upside.value, upside.low, upside.high) == pytest.approx((0.0, 0.0, 1 - found.low))


def test_correlation_of_few_samples_has_no_interval():
    found = compute_correlations(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))["spearman"]
    assert found.value == pytest.approx(0.5)
    assert math.isnan(found.low)
    assert "too few" in found.why


def test_grouped_duplicate_samples_keep_interval_width():
    twice = np.arange(600) // 2
    for name in ("accuracy", "kappa", "sensitivity"):
        once = verdict_statistics(JUDGE, PEOPLE)[name]
        doubled = verdict_statistics(JUDGE[twice], PEOPLE[twice], groups=twice)[name]
        blind = verdict_statistics(JUDGE[twice], PEOPLE[twice])[name]
        assert doubled.high - doubled.low == pytest.approx(once.high - once.low, rel=0.03)
        assert blind.high - blind.low < 0.8 * (once.high - once.low)
    once, doubled = roc_auc(SCORES, PEOPLE), roc_auc(SCORES[twice], PEOPLE[twice], groups=twice)
    assert doubled[:3] == pytest.approx(once[:3], abs=0.002)
    first, second = (
        compute_correlations(SCORES, LABELS),
        compute_correlations(SCORES[twice], LABELS[twice], groups=twice),
    )
    for name, figure in first.items():
        assert second[name][:3] == pytest.approx(figure[:3], abs=0.003), name


def test_best_threshold_maximises_kappa():
    cut = best_threshold(SCORES, PEOPLE)
    every = [sk.cohen_kappa_score(PEOPLE, level <= SCORES) for level in np.unique(SCORES)]
    assert sk.cohen_kappa_score(PEOPLE, cut <= SCORES) == pytest.approx(max(every))
    assert math.isnan(best_threshold(np.ones(4), np.array([True, False, True, False])))


def test_cross_fitted_verdicts_of_noise_have_zero_kappa():
    rng = np.random.default_rng(1)
    found = []
    for turn in range(100):
        people, noise = rng.random(60) < 0.5, rng.random(60)
        verdicts, _ = cross_fitted_verdicts(noise, people, seed=turn)
        found.append(float(compute_kappa(np.array(count_confusion(verdicts, people), np.float64))))
    assert abs(np.mean(found)) < 0.05
    verdicts, cuts = cross_fitted_verdicts(
        np.array([0.1, 0.2, 0.8, 0.9] * 10), np.array([False, False, True, True] * 10)
    )
    assert verdicts.tolist() == [False, False, True, True] * 10
    assert cuts == (0.5, 0.5)


def test_human_agreement_compares_each_rater_with_the_others():
    """Each vote of three raters on three samples is compared with the mean of the other two votes.

    A mean of at least 0.5 is good: 8 of 9 votes agree.
    """
    votes = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    found = human_agreement(votes, 0.5)
    assert found["accuracy"].value == pytest.approx(8 / 9)
    assert found["alpha"].value == pytest.approx(krippendorff_alpha(votes).value)
    assert "accuracy_all" not in found
    assert found["auc"].value == pytest.approx(
        sk.roc_auc_score([1, 1, 1, 0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0, 1, 1, 1])
    )


def test_calibration_curve_by_hand():
    scores = np.array([0.1] * 10 + [0.9] * 10)
    people = np.array([True] * 2 + [False] * 8 + [True] * 7 + [False] * 3)
    bins, error = calibration_curve(scores, people, bins=2)
    assert [(one.score, one.share.value, one.share.n) for one in bins] == [
        (pytest.approx(0.1), 0.2, 10),
        (pytest.approx(0.9), 0.7, 10),
    ]
    assert error == pytest.approx(0.5 * 0.1 + 0.5 * 0.2)
    assert sum(one.share.n for one in calibration_curve(SCORES, PEOPLE)[0]) == 300
    assert calibration_curve(np.array([]), np.array([], bool))[0] == []


@pytest.mark.simulation
def test_length_slope_matches_statsmodels():
    import statsmodels.api as sm

    rng = np.random.default_rng(6)
    words = rng.integers(5, 300, 200).astype(np.float64)
    scores = 0.4 * LABELS[:200] + 0.002 * words + rng.normal(0, 0.1, 200) * words / 100
    found = length_slope(scores, LABELS[:200], words)
    design = sm.add_constant(np.stack([words / 100, LABELS[:200]], axis=1))
    theirs = sm.OLS(scores, design).fit(cov_type="HC3", use_t=True)
    assert found.value == pytest.approx(theirs.params[1])
    assert (found.low, found.high) == pytest.approx(tuple(theirs.conf_int()[1]))
    assert not length_slope(scores, LABELS[:200], np.ones(200)).defined


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5)), max_size=40))
@pytest.mark.simulation
def test_verdict_statistics_lie_within_their_intervals(rows):
    judge, people = (np.array([row[i] for row in rows], bool) for i in (0, 1))
    groups = np.array([row[2] for row in rows], np.int64)
    figures = verdict_statistics(judge, people, groups=groups)
    figures["auc"] = roc_auc(groups.astype(float), people, groups=groups)
    for name, one in figures.items():
        assert one.defined or one.why, name
        if one.defined and not one.why:
            assert -1 <= one.low <= one.value + 1e-12, name
            assert one.value - 1e-12 <= one.high <= 1, name


@pytest.mark.simulation
def test_auc_difference_matches_paired_bootstrap():
    rng = np.random.default_rng(4)
    other = SCORES + rng.normal(0, 0.4, 300)
    found = auc_difference(SCORES, other, PEOPLE)
    assert found.value == pytest.approx(sk.roc_auc_score(PEOPLE, SCORES) - sk.roc_auc_score(PEOPLE, other))
    drawn = rng.integers(0, 300, (1000, 300))
    gaps = [sk.roc_auc_score(PEOPLE[i], SCORES[i]) - sk.roc_auc_score(PEOPLE[i], other[i]) for i in drawn]
    assert (found.low, found.high) == pytest.approx(np.quantile(gaps, [0.025, 0.975]), abs=0.01)
    assert auc_difference(SCORES, SCORES, PEOPLE).value == 0.0
    assert math.isnan(auc_difference(SCORES, SCORES, PEOPLE).low)


def test_judge_consistency_by_hand():
    """Two of four samples have equal verdicts in all three replicates.

    Of the 12 pairs of replicates, 6 + 1 + 1 = 8 have equal verdicts; a pair with a NaN is not equal.
    """
    columns = np.array([[0.9, 0.8, 0.7], [0.1, 0.2, 0.1], [0.9, 0.1, 0.9], [0.6, 0.6, math.nan]])
    found = judge_consistency(columns, 0.5)
    assert found.same.value == 0.5
    assert found.pairwise.value == pytest.approx(8 / 12)
    verdicts = np.array([[1, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, math.nan]])
    assert found.alpha.value == pytest.approx(krippendorff_alpha(verdicts).value)
    expected = [np.std(row[~np.isnan(row)], ddof=1) for row in columns]
    assert found.spread.value == pytest.approx(np.mean(expected))


def test_order_bias_by_hand():
    found = order_bias(np.array([0.9, 0.4, 0.6, 0.7]), np.array([0.8, 0.6, 0.6, math.nan]), 0.5)
    assert found.changed.value == 0.5
    assert found.shift.value == pytest.approx((-0.1 + 0.2 + 0.0) / 3)
    assert found.moved.value == pytest.approx(0.1)
    assert (found.changed.n, found.shift.n) == (4, 3)


def test_length_bias_finds_errors_that_grow_with_length():
    rng = np.random.default_rng(7)
    words = rng.integers(10, 200, 150).astype(np.float64)
    labels = (rng.random(150) < 0.5).astype(np.float64)
    scores = 0.5 * labels + 0.1 * words / 100 + rng.normal(0, 0.05, 150)
    found = length_bias(np.append(scores, math.nan), np.append(labels, 1.0), np.append(words, 50.0))
    assert found.slope.low < 0.1 < found.slope.high
    assert found.slope.n == 150
    expected = stats.spearmanr(scores - labels, words).statistic
    assert found.correlation.value == pytest.approx(expected)
