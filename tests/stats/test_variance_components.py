"""Variance components of trials and queries: mean squares, derived estimates, and intervals over both."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from ragauge.stats.intervals import mean_intervals
from ragauge.stats.repeated_trials import (
    VarianceComponents,
    Variation,
    analyse_variation,
    mean_squares,
    seed_variance_share,
    trial_intervals,
)

SHROUT_FLEISS = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], dtype=float
)
"""Six targets by four judges (Shrout and Fleiss, Psychological Bulletin 1979, table 2)."""


def drawn(rng, n, trials, queries=0.0, between=0.0, rest=0.0):
    """Draw a table of trials by queries; the components have these standard deviations."""
    table = rng.normal(0, queries, n) + rng.normal(0, between, trials)[:, None]
    return table + rng.normal(0, rest, (trials, n))


def test_mean_squares_match_published_table():
    found = mean_squares(SHROUT_FLEISS.T)
    assert [round(one, 2) for one in found] == [11.24, 32.49, 1.02]


def test_analyse_variation_query_share_matches_published_icc():
    found = analyse_variation(SHROUT_FLEISS.T)
    assert round(found.shares.queries, 2) == 0.29  # ICC(2,1)
    assert sum(found.shares) == pytest.approx(1)


def test_mean_squares_match_explicit_sums_of_squares():
    table = np.random.default_rng(3).normal(size=(4, 7))
    grand = sum(table.ravel()) / 28
    of_query = [sum(table[:, q]) / 4 for q in range(7)]
    of_trial = [sum(table[t]) / 7 for t in range(4)]
    rest = sum((table[t, q] - of_query[q] - of_trial[t] + grand) ** 2 for t, q in product(range(4), range(7)))
    found = mean_squares(table)
    assert found.queries == pytest.approx(4 * sum((one - grand) ** 2 for one in of_query) / 6)
    assert found.trials == pytest.approx(7 * sum((one - grand) ** 2 for one in of_trial) / 3)
    assert found.rest == pytest.approx(rest / 18)


def test_analyse_variation_matches_statsmodels_mixed_model():
    statsmodels = pytest.importorskip("statsmodels.api")
    pandas = pytest.importorskip("pandas")
    table = drawn(np.random.default_rng(5), 40, 6, 1.0, 0.5, 0.4)
    rows = [(f"q{q}", f"t{t}", table[t, q]) for t, q in product(range(6), range(40))]
    frame = pandas.DataFrame(rows, columns=["query", "trial", "value"])
    parts = {"query": "0 + C(query)", "trial": "0 + C(trial)"}
    model = statsmodels.MixedLM.from_formula("value ~ 1", frame, groups=np.ones(240), vc_formula=parts)
    fitted = model.fit(reml=True)
    found = analyse_variation(table)
    assert not found.below  # without negative estimates, REML and mean squares agree on complete tables
    assert list(found.variances) == pytest.approx([*fitted.vcomp, fitted.scale], rel=1e-3)


@pytest.mark.parametrize("deviations", [(1.0, 0.5, 0.8), (0.3, 0.0, 1.0), (0.0, 0.7, 0.5)])
def test_analyse_variation_estimates_are_unbiased(deviations):
    rng = np.random.default_rng(7)
    found = np.array([analyse_variation(drawn(rng, 12, 4, *deviations)).estimates for _ in range(3_000)])
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - np.square(deviations)) < 4 * error).all()


def test_analyse_variation_error_matches_simulated_variance_of_mean():
    rng = np.random.default_rng(11)
    tables = [drawn(rng, 10, 5, 1.0, 0.6, 0.8) for _ in range(4_000)]
    truth = 1.0 / 10 + 0.36 / 5 + 0.64 / 50
    assert np.var([one.mean() for one in tables]) == pytest.approx(truth, rel=0.1)
    # Negative estimates count as 0, so the mean is slightly above the true variance.
    told = float(np.mean([analyse_variation(one).error ** 2 for one in tables]))
    assert truth * 0.97 < told < truth * 1.06


def test_variation_components_and_shares_by_hand():
    found = Variation(4, 10, VarianceComponents(queries=9.0, trials=21.0, rest=1.0), 10)
    assert found.variances == VarianceComponents(2.0, 2.0, 1.0)
    assert found.of_mean == pytest.approx((0.2, 0.5, 0.025))
    assert found.error == pytest.approx(math.sqrt(0.725))
    assert found.by_queries == pytest.approx(0.225 / 0.725)
    assert found.by_trials == pytest.approx(0.525 / 0.725)
    assert found.shares == pytest.approx((0.4, 0.4, 0.2))


def test_variation_negative_estimate_counts_as_zero():
    found = Variation(4, 10, VarianceComponents(queries=9.0, trials=0.5, rest=1.0), 10)
    assert found.estimates == VarianceComponents(2.0, -0.05, 1.0)
    assert found.variances == VarianceComponents(2.0, 0.0, 1.0)
    assert found.below == ["trials"]


@pytest.mark.parametrize("squares", [(9.0, 21.0, 1.0), (9.0, 0.5, 1.0), (2.0, 1.0, 1.9), (50.0, 2.0, 0.5)])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_variation_enough_returns_fewest_trials(squares, share):
    found = Variation(4, 10, VarianceComponents(*squares), 10)

    def part(trials):
        chance = found.variances.trials / trials + found.variances.rest / (10 * trials)
        return chance / (found.variances.queries / 10 + chance)

    enough = found.enough(share)
    assert part(enough) <= share + 1e-9
    assert enough == 1 or part(enough - 1) > share


def test_variation_enough_without_query_variance_returns_none():
    assert Variation(4, 10, VarianceComponents(0.5, 2.0, 1.0), 10).enough() is None
    assert Variation(4, 10, VarianceComponents(2.0, 0.0, 0.0), 0).enough() == 1


def test_analyse_variation_equal_trials_have_zero_trial_variance():
    values = np.array([0.1, 0.7, 0.3])
    found = analyse_variation(np.stack([values] * 3))
    assert found.unstable == 0
    assert found.variances == pytest.approx((values.var(ddof=1), 0, 0))
    assert found.by_trials == 0
    assert found.error == pytest.approx(values.std(ddof=1) / math.sqrt(3))


def test_analyse_variation_constant_values_have_nan_shares():
    found = analyse_variation(np.full((2, 3), 0.5))
    assert found.error == 0
    assert math.isnan(found.by_trials)
    assert all(map(math.isnan, found.shares))


def test_analyse_variation_ignores_queries_with_nan():
    table = np.array([[1.0, math.nan, 2.0], [3.0, 0.5, 8.0]])
    found = analyse_variation(table)
    assert (found.n, found.left_out, found.unstable) == (2, 1, 2)
    assert found.squares == mean_squares(table[:, [0, 2]])


@pytest.mark.parametrize("table", [[[0.1, 0.2, 0.3]], [[0.1], [0.2]], [[0.1, math.nan], [0.2, 0.3]]])
def test_analyse_variation_one_trial_or_query_returns_none(table):
    assert analyse_variation(np.array(table)) is None


def test_seed_variance_share_of_one_system_equals_trial_share():
    side = drawn(np.random.default_rng(2), 30, 5, 1.0, 0.6, 0.3)
    found = analyse_variation(side)
    assert not found.below
    assert seed_variance_share([side]) == pytest.approx(found.by_trials)


def test_seed_variance_share_of_two_systems_by_hand():
    mine, base = np.array([[1.0, 2.0], [3.0, 8.0]]), np.array([[0.0, 4.0], [2.0, 6.0], [4.0, 8.0]])
    # The query means differ by 2 - 2 = 0 and 5 - 6 = -1: their variance is 1/2, that of the mean of two queries 1/4.
    # The mean squares of mine are 16 and 4; divided by its 2 x 2 values, they are 4 and 1.
    # The mean squares of base are 2 x 4 and 0; divided by its 6 values, they are 4/3 and 0.
    assert seed_variance_share([mine, -base]) == pytest.approx(1.0)  # 1/4 - 1 is below 0, so the query variance is 0
    assert seed_variance_share([mine * [[1.0, 3.0]], -base]) == pytest.approx(_by_hand(mine * [[1.0, 3.0]], base))


def _by_hand(mine, base):
    parts = [analyse_variation(one) for one in (mine, base)]
    rest = sum(one.squares.rest / (one.trials * one.n) for one in parts)
    chance = sum(one.of_mean.trials + one.of_mean.rest for one in parts)
    queries = max(0.0, (mine.mean(axis=0) - base.mean(axis=0)).var(ddof=1) / 2 - rest)
    return chance / (queries + chance)


def test_trial_intervals_cover_better_than_query_intervals():
    rng = np.random.default_rng(17)
    tables = [0.5 + drawn(rng, 25, 5, 0.1, 0.1, 0.05) for _ in range(120)]
    over_both = [low <= 0.5 <= high for low, high in (trial_intervals([one], 0.95, rounds=500)[0] for one in tables)]
    low, high = mean_intervals(np.column_stack([one.mean(axis=0) for one in tables]), rounds=500)
    assert np.mean(over_both) > 0.9
    assert np.mean((low <= 0.5) & (high >= 0.5)) < 0.7


def test_trial_intervals_of_shares_lie_within_0_and_1():
    low, high = trial_intervals([np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]])], 0.95)[0]
    assert 0 <= low < 0.75 < high <= 1
