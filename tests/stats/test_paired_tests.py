"""Paired tests, corrections, intervals and power: agreement with scipy and statsmodels, and simulated error rates."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ragauge.core.errors import BadInput
from ragauge.stats.comparisons import ComparisonSettings
from ragauge.stats.intervals import bca_interval, percentile_interval
from ragauge.stats.paired_tests import (
    cliffs_delta,
    cohens_d,
    correct_p_values,
    randomisation_test,
    sign_test,
    t_test,
    wilcoxon_test,
)
from ragauge.stats.power import detectable_difference, queries_needed, t_test_power
from ragauge.stats.resampling import bootstrap_means
from ragauge.stats.system_pairs import SystemPair, compare_pairs

DIFFERENCE_LISTS = st.lists(st.integers(-8, 8).map(lambda x: x / 8), min_size=2, max_size=40)


def to_column(values):
    return np.asarray(values, np.float64)[:, None]


# Tests ------------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-8, 8), min_size=2, max_size=8))
def test_randomisation_test_of_small_sample_matches_enumeration(gaps):
    differences = np.array(gaps) / 8.0
    at_least_as_large = [
        abs(np.dot(differences, pattern)) >= abs(differences.sum()) for pattern in product((1, -1), repeat=len(gaps))
    ]
    assert randomisation_test(to_column(differences))[0] == pytest.approx(np.mean(at_least_as_large))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=2, max_size=12))
def test_randomisation_test_matches_scipy(differences):
    result = stats.permutation_test(
        (np.array(differences), np.zeros(len(differences))),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=10_000,
        vectorized=True,
    )
    assert randomisation_test(to_column(differences))[0] == pytest.approx(result.pvalue, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(DIFFERENCE_LISTS, st.data())
@pytest.mark.simulation
def test_t_wilcoxon_and_sign_tests_match_scipy(gaps, data):
    base = np.array(data.draw(st.lists(st.floats(0, 1), min_size=len(gaps), max_size=len(gaps))))
    scores = base + np.array(gaps)
    difference = scores - base
    if np.std(difference) > 1e-9:
        two_sided, one_sided = t_test(to_column(difference))
        assert two_sided[0] == pytest.approx(stats.ttest_rel(scores, base).pvalue, abs=1e-9)
        assert one_sided[0] == pytest.approx(stats.ttest_rel(scores, base, alternative="greater").pvalue, abs=1e-9)
        assert cohens_d(to_column(difference))[0] == pytest.approx(difference.mean() / difference.std(ddof=1))
    exact = np.array(gaps)
    if exact.any():
        with np.errstate(all="ignore"):
            assert wilcoxon_test(to_column(exact))[0] == pytest.approx(
                _call_silently(stats.wilcoxon, exact).pvalue, abs=1e-9
            )
        up, down = int((exact > 0).sum()), int((exact < 0).sum())
        assert sign_test(to_column(exact))[0] == pytest.approx(stats.binomtest(up, up + down).pvalue, abs=1e-9)


def _call_silently(function, *arguments):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def test_paired_tests_of_zero_differences_return_p_1():
    same = np.zeros((5, 1))
    assert t_test(same)[0][0] == randomisation_test(same)[0] == wilcoxon_test(same)[0] == sign_test(same)[0] == 1
    assert cohens_d(same)[0] == 0


def test_paired_tests_constant_difference_only_t_test_returns_p_0():
    differences = np.full((30, 1), 0.25)
    assert t_test(differences)[0][0] == 0
    assert randomisation_test(differences, rounds=999)[0] == 2 / 1000
    assert np.isinf(cohens_d(differences)[0])


@given(st.lists(st.integers(0, 4), min_size=2, max_size=12), st.lists(st.integers(0, 4), min_size=2, max_size=12))
def test_cliffs_delta_by_hand(scores, base):
    expected = sum((a > b) - (a < b) for a in scores for b in base) / (len(scores) * len(base))
    assert cliffs_delta(to_column(scores), to_column(base))[0] == pytest.approx(expected)


def test_paired_tests_treat_columns_independently():
    differences = np.random.default_rng(0).normal(0.1, 1, (60, 7))
    for test in (lambda x: t_test(x)[0], randomisation_test, wilcoxon_test, sign_test, cohens_d):
        assert test(differences) == pytest.approx([test(differences[:, [j]])[0] for j in range(7)], abs=1e-15)


# Correction for multiple comparisons ------------------------------------------------------------------------------


def test_correct_p_values_holm_by_hand():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert correct_p_values(p, "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_p_values(np.array([0.6, 0.9]), "holm").tolist() == [1.0, 1.0]
    assert correct_p_values(np.array([]), "holm").tolist() == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
@pytest.mark.simulation
def test_correct_p_values_matches_statsmodels_and_scipy(p):
    multiple = pytest.importorskip("statsmodels.stats.multitest")
    values = np.array(p)
    for method, other_name in (("holm", "holm"), ("bonferroni", "bonferroni"), ("bh", "fdr_bh")):
        assert correct_p_values(values, method) == pytest.approx(
            multiple.multipletests(values, method=other_name)[1], abs=1e-12
        )
    assert correct_p_values(values, "bh") == pytest.approx(stats.false_discovery_control(values), abs=1e-12)
    assert correct_p_values(values, "none").tolist() == values.tolist()


def test_correct_p_values_ignores_nan():
    assert correct_p_values(np.array([0.02, np.nan, 0.03]), "bonferroni") == pytest.approx(
        [0.04, np.nan, 0.06], nan_ok=True
    )


# Confidence intervals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["percentile", "BCa"])
@pytest.mark.parametrize("n", [10, 47, 300])
def test_bootstrap_intervals_match_scipy(method, n):
    differences = np.random.default_rng(n).exponential(1, n) - 0.7
    expected = stats.bootstrap(
        (differences,), np.mean, n_resamples=2000, method=method, rng=np.random.default_rng(3), vectorized=True
    ).confidence_interval
    resampled = bootstrap_means(to_column(differences), 2000, seed=3)
    actual = (
        percentile_interval(resampled, 0.95)
        if method == "percentile"
        else bca_interval(to_column(differences), resampled, 0.95)
    )
    assert actual[:, 0] == pytest.approx([expected.low, expected.high], abs=1e-9)


def test_bca_interval_of_equal_values_is_a_point():
    differences = np.full((20, 1), 0.1)
    assert bca_interval(differences, bootstrap_means(differences, 200), 0.95).ravel() == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("power", [-1000, -300, -200, 200, 300, 1000])
def test_bca_interval_is_scale_invariant(power):
    differences = to_column(np.random.default_rng(5).exponential(1, 40) - 0.7)
    unscaled, equal = bca_interval(differences, bootstrap_means(differences, 500), 0.95), np.full((20, 1), 0.1)
    scaled = np.ldexp(differences, power)
    result = bca_interval(scaled, bootstrap_means(scaled, 500), 0.95)
    assert np.ldexp(result, -power).ravel() == pytest.approx(unscaled.ravel(), rel=1e-12)
    scaled_equal = np.ldexp(equal, power)
    low, high = np.ldexp(bca_interval(scaled_equal, bootstrap_means(scaled_equal, 200), 0.95), -power).ravel()
    assert low == high == pytest.approx(0.1)


# Error rates and coverage, by simulation --------------------------------------------------------------------------

N_STUDIES = 2000
"""Number of simulated studies; all are tested in one call, one per column."""


def simulate_studies(n, kind, seed=0):
    """Draw per-query differences between two equally good systems, with scores distributed like those of measures."""
    rng = np.random.default_rng(seed)
    difficulty = rng.beta(1, 1, (n, N_STUDIES))
    if kind == "graded":  # like ndcg: common difficulty per query, separate noise per system
        noise = rng.normal(0, 0.15, (2, n, N_STUDIES))
        scores, base = np.clip(difficulty + noise[0], 0, 1), np.clip(difficulty + noise[1], 0, 1)
    elif kind == "hits":  # like hit_rate: 0 or 1
        scores, base = rng.random((2, n, N_STUDIES)) < difficulty
    else:  # like mrr: the reciprocal of a rank
        scores, base = 1 / rng.geometric(0.3 + 0.6 * difficulty, (2, n, N_STUDIES))
    return scores.astype(float) - base.astype(float)


@pytest.mark.parametrize("kind", ["graded", "hits", "reciprocal"])
@pytest.mark.parametrize("test", ["t", "wilcoxon", "randomisation"])
def test_paired_tests_reject_at_nominal_rate(test, kind):
    differences = simulate_studies(50, kind)
    if test == "wilcoxon":
        differences = differences[:, :600]
    test_function = {
        "t": lambda x: t_test(x)[0],
        "wilcoxon": wilcoxon_test,
        "randomisation": lambda x: randomisation_test(x, rounds=1999),
    }[test]
    p = test_function(differences)
    rate = float((p < 0.05).mean())
    spread = 3.3 * (0.05 * 0.95 / len(p)) ** 0.5  # exceeded by random variation in 1 of 1,000 cases
    # With differences of -1, 0 and 1, the randomisation test equals the sign test: it is exact, so below its level.
    if (test, kind) == ("randomisation", "hits"):
        assert 0.005 < rate < 0.05
    else:
        assert abs(rate - 0.05) < spread + 0.005, rate


def test_sign_test_rejects_below_nominal_rate():
    rate = float((sign_test(simulate_studies(50, "graded")) < 0.05).mean())
    assert 0.015 < rate < 0.05  # discrete: with 50 queries, its attainable level is 0.033


@pytest.mark.parametrize("kind", ["graded", "hits", "reciprocal"])
@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_bootstrap_intervals_have_nominal_coverage(method, kind):
    differences = simulate_studies(60, kind, seed=1)[:, :800]
    resampled = bootstrap_means(differences, 2000)
    low, high = bca_interval(differences, resampled, 0.95) if method == "bca" else percentile_interval(resampled, 0.95)
    rate = float(((low <= 0) & (high >= 0)).mean())
    assert 0.92 < rate < 0.97, rate  # nominal: 0.95; the bootstrap of 60 values is slightly too narrow


def test_correct_p_values_holm_keeps_family_error_rate():
    p = t_test(simulate_studies(40, "graded", seed=2))[0].reshape(-1, 8)
    alarms = np.mean([(correct_p_values(family, "holm") < 0.05).any() for family in p])
    uncorrected = np.mean((p < 0.05).any(axis=1))
    assert alarms < 0.085  # 250 families at 0.05: exceeded with a probability of 0.8%
    assert uncorrected > 0.2


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("kind", ["one side", "paired", "apart"])
@pytest.mark.parametrize("effect", [0.0, 0.02, 0.05])
@pytest.mark.simulation
def test_compare_pairs_over_seeds_has_nominal_error_rates(seeds, kind, effect):
    rng = np.random.default_rng(4)
    pairs = []
    for _ in range(300):
        difficulty = rng.normal(0, 0.05, 80)
        scores = rng.normal(difficulty, 0.1, (seeds, 80)) + rng.normal(
            0, effect, (seeds, 1)
        )  # effect of a seed on all queries
        base = np.zeros((1, 80)) if kind == "one side" else rng.normal(0, 0.1, scores.shape)
        base += rng.normal(0, effect, (seeds, 1)) if kind == "apart" else 0
        pairs.append(make_pair(base, scores, seeds=[] if kind == "apart" else [str(i) for i in range(seeds)]))
    rows = compare_pairs(pairs, ComparisonSettings(rounds=400))
    inside = np.array([row.ci[0] <= 0 <= row.ci[1] for row in rows])
    assert inside.mean() > 0.925
    assert np.mean([row.p_t < 0.05 for row in rows]) < 0.075
    assert np.mean([(row.p_t >= 0.05) != covers for row, covers in zip(rows, inside, strict=True)]) < 0.05
    if (seeds, effect) == (5, 0.0):  # seeds without effect widen the interval only slightly
        averaged = compare_pairs(
            [
                make_pair(seed_pair.baseline_scores.mean(axis=0), seed_pair.system_scores.mean(axis=0))
                for seed_pair in pairs
            ],
            ComparisonSettings(rounds=400),
        )
        assert np.median([_width(a) / _width(b) for a, b in zip(rows, averaged, strict=True)]) < 1.3
    if effect == 0.05:
        averaged = compare_pairs(
            [
                make_pair(seed_pair.baseline_scores.mean(axis=0), seed_pair.system_scores.mean(axis=0))
                for seed_pair in pairs
            ],
            ComparisonSettings(rounds=400),
        )
        assert np.mean([row.ci[0] <= 0 <= row.ci[1] for row in averaged]) < 0.6


def _width(row):
    return row.ci[1] - row.ci[0]


def test_compare_pairs_equal_seeds_match_single_seed():
    base = np.random.default_rng(0).random(30)
    scores = np.random.default_rng(1).random(30)
    single = compare_pairs([make_pair(base, scores)], ComparisonSettings())[0]
    same = compare_pairs([make_pair(base, np.stack([scores] * 5), seeds=list("abcde"))], ComparisonSettings())[0]
    assert (same.wins, same.losses, same.ties) == (single.wins, single.losses, single.ties)
    assert same.p_t == pytest.approx(single.p_t, rel=0.02)
    identical = compare_pairs([make_pair(base, np.stack([base] * 7), seeds=list("abcdefg"))], ComparisonSettings())[0]
    assert (identical.wins, identical.losses, identical.p_t, identical.ci) == (0, 0, 1.0, (0.0, 0.0))


# Power ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effect", "n"), [(0.5, 34), (0.2, 100), (0.05, 1000), (1.2, 6), (0.0, 20)])
def test_t_test_power_matches_statsmodels(effect, n):
    power = pytest.importorskip("statsmodels.stats.power").TTestPower()
    assert t_test_power(effect, n) == pytest.approx(power.power(effect, n, 0.05), abs=1e-9)


def test_t_test_power_matches_simulation():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.3, 1, (60, 4000))
    assert float((t_test(differences)[0] < 0.05).mean()) == pytest.approx(t_test_power(0.3, 60), abs=0.03)


def test_detectable_difference_of_two_queries_matches_simulation():
    differences = np.random.default_rng(0).normal(detectable_difference(1.0, 2, alpha=0.001), 1, (2, 100_000))
    assert float((t_test(differences)[0] < 0.001).mean()) == pytest.approx(0.8, abs=0.01)


def test_queries_needed_inverts_detectable_difference():
    for n in (5, 50, 391, 7000):
        least = detectable_difference(0.25, n)
        assert t_test_power(least / 0.25, n) == pytest.approx(0.8, abs=1e-6)
        assert queries_needed(0.25, least) == n
    assert queries_needed(1.0, 1e-5) is None
    assert np.isnan([detectable_difference(0.0, 10), detectable_difference(0.1, 1)]).all()
    with pytest.raises(BadInput, match="cannot be detected"):
        queries_needed(0.1, 0.0)


# Pairs of systems -------------------------------------------------------------------------------------------------


def make_pair(base, scores, **options):
    base, scores = np.atleast_2d(np.array(base, float)), np.atleast_2d(np.array(scores, float))
    return SystemPair("m", "a", "b", [f"q{i}" for i in range(base.shape[1])], base, scores, **options)


def test_compare_pairs_equivalence_matches_statsmodels():
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng = np.random.default_rng(2)
    base, scores = rng.random(40), rng.random(40)
    row = compare_pairs([make_pair(base, scores)], ComparisonSettings(margin=0.15))[0]
    p, low, high = weightstats.ttost_paired(scores, base, -0.15, 0.15)
    assert row.margin is not None
    assert row.margin.p_equivalent == pytest.approx(p, abs=1e-9)
    assert row.margin.p_noninferior == pytest.approx(low[1], abs=1e-9)
    lower_is_better = compare_pairs([make_pair(base, scores, lower_is_better=True)], ComparisonSettings(margin=0.15))[0]
    assert lower_is_better.margin is not None
    assert lower_is_better.margin.p_noninferior == pytest.approx(high[1], abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=3, max_size=30))
def test_compare_pairs_ignores_float_rounding_of_differences(pairs):
    """In floating point, 0.3 - 0.2 differs from 0.2 - 0.1; ranks and signs must not depend on that."""
    scores, base = np.array(pairs).T
    row = compare_pairs([make_pair(base / 10, scores / 10)], ComparisonSettings(rounds=200))[0]
    integer_row = compare_pairs([make_pair(base, scores)], ComparisonSettings(rounds=200))[0]
    assert (row.wins, row.losses, row.ties) == (integer_row.wins, integer_row.losses, integer_row.ties)
    assert row.p_wilcoxon == pytest.approx(integer_row.p_wilcoxon, abs=1e-12)
    assert row.p_randomisation == integer_row.p_randomisation
    assert np.array(row.ci) * 10 == pytest.approx(np.array(integer_row.ci), abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=3, max_size=30), st.sampled_from([1e3, 1e12])
)
def test_compare_pairs_large_scores_of_one_query_do_not_affect_others(pairs, large):
    scores, base = np.array(pairs).T / 10
    row = compare_pairs([make_pair(base, scores)], ComparisonSettings(rounds=200))[0]
    with_large = compare_pairs([make_pair([*base, large], [*scores, large])], ComparisonSettings(rounds=200))[0]
    assert (with_large.wins, with_large.losses, with_large.ties) == (row.wins, row.losses, row.ties + 1)
    assert with_large.difference * (len(pairs) + 1) == pytest.approx(row.difference * len(pairs))
    assert with_large.p_sign == row.p_sign


def test_compare_pairs_one_large_score_keeps_eight_differences():
    row = compare_pairs([make_pair([0.1] * 8 + [1e12], [0.5] * 8 + [1e12])], ComparisonSettings(rounds=2_000))[0]
    assert (row.wins, row.losses, row.ties) == (8, 0, 1)
    assert row.difference == pytest.approx(3.2 / 9)
    assert row.p_sign == 2**-7


def test_compare_pairs_lower_is_better_swaps_wins_and_losses():
    row = compare_pairs([make_pair([5, 5, 5], [4, 4, 6], lower_is_better=True)], ComparisonSettings())[0]
    assert (row.wins, row.losses, row.ties, row.better) == (2, 1, 0, True)


def test_compare_pairs_one_query_has_nan_tests():
    row = compare_pairs([make_pair([0.5], [0.75])], ComparisonSettings())[0]
    assert row.difference == 0.25
    assert np.isnan([row.p_t, row.p_randomisation, row.p_corrected, row.ci[0], row.effect, row.detectable]).all()


def test_compare_pairs_ignores_nan_queries_per_measure():
    rows = compare_pairs([make_pair([0, np.nan, 1], [1, 1, 1]), make_pair([0, 0, 1], [1, 1, 1])], ComparisonSettings())
    assert [row.n for row in rows] == [2, 3]
    assert rows[0].difference == 0.5


def test_compare_pairs_family_is_measure_or_all():
    from dataclasses import replace

    rng = np.random.default_rng(1)
    pairs = [replace(make_pair(rng.random(20), rng.random(20)), measure=f"m{i % 2}") for i in range(4)]
    p = [row.p_t for row in compare_pairs(pairs, ComparisonSettings())]
    all_family = [
        row.p_corrected for row in compare_pairs(pairs, ComparisonSettings(correction="bonferroni", family="all"))
    ]
    measure_family = [row.p_corrected for row in compare_pairs(pairs, ComparisonSettings(correction="bonferroni"))]
    assert all_family == pytest.approx(np.minimum(1, 4 * np.array(p)))
    assert measure_family == pytest.approx(np.minimum(1, 2 * np.array(p)))


def test_comparison_settings_invalid_value_raises():
    with pytest.raises(BadInput, match=r"test must be one of t, .*, got `student`"):
        ComparisonSettings(test="student")
    for wrong in ({"confidence": 95}, {"rounds": 3}, {"margin": -0.1}, {"power": 0.01}, {"seed": -1}):
        with pytest.raises(BadInput):
            ComparisonSettings(**wrong)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_wilcoxon_test_few_queries_and_ties_match_scipy(n):
    rng = np.random.default_rng(n)
    differences = np.round(rng.normal(size=(n, 6)), 0)
    differences[0] = 1.0
    for p, column in zip(wilcoxon_test(differences), differences.T, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert p == pytest.approx(stats.wilcoxon(column).pvalue, abs=1e-12)


@pytest.mark.parametrize("power", [-995, 900])
def test_t_test_and_cohens_d_are_scale_invariant(power):
    differences = np.random.default_rng(5).normal(0.1, 1, (30, 2))
    assert t_test(np.ldexp(differences, power))[0].tolist() == t_test(differences)[0].tolist()
    assert cohens_d(np.ldexp(differences, power)).tolist() == cohens_d(differences).tolist()
