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


def draw_table(rng, n, trials, queries=0.0, between=0.0, rest=0.0):
    """Draw a table of trials by queries; the components have these standard deviations."""
    table = rng.normal(0, queries, n) + rng.normal(0, between, trials)[:, None]
    return table + rng.normal(0, rest, (trials, n))


def test_mean_squares_match_published_table():
    result = mean_squares(SHROUT_FLEISS.T)
    assert [round(square, 2) for square in result] == [11.24, 32.49, 1.02]


def test_analyse_variation_query_share_matches_published_icc():
    result = analyse_variation(SHROUT_FLEISS.T)
    assert round(result.shares.queries, 2) == 0.29  # ICC(2,1)
    assert sum(result.shares) == pytest.approx(1)


def test_mean_squares_match_explicit_sums_of_squares():
    table = np.random.default_rng(3).normal(size=(4, 7))
    grand = sum(table.ravel()) / 28
    of_query = [sum(table[:, q]) / 4 for q in range(7)]
    of_trial = [sum(table[t]) / 7 for t in range(4)]
    rest = sum((table[t, q] - of_query[q] - of_trial[t] + grand) ** 2 for t, q in product(range(4), range(7)))
    result = mean_squares(table)
    assert result.queries == pytest.approx(4 * sum((mean - grand) ** 2 for mean in of_query) / 6)
    assert result.trials == pytest.approx(7 * sum((mean - grand) ** 2 for mean in of_trial) / 3)
    assert result.rest == pytest.approx(rest / 18)


def test_analyse_variation_matches_statsmodels_mixed_model():
    statsmodels = pytest.importorskip("statsmodels.api")
    pandas = pytest.importorskip("pandas")
    table = draw_table(np.random.default_rng(5), 40, 6, 1.0, 0.5, 0.4)
    rows = [(f"q{q}", f"t{t}", table[t, q]) for t, q in product(range(6), range(40))]
    frame = pandas.DataFrame(rows, columns=["query", "trial", "value"])
    parts = {"query": "0 + C(query)", "trial": "0 + C(trial)"}
    model = statsmodels.MixedLM.from_formula("value ~ 1", frame, groups=np.ones(240), vc_formula=parts)
    fitted = model.fit(reml=True)
    result = analyse_variation(table)
    assert not result.below  # without negative estimates, REML and mean squares agree on complete tables
    assert list(result.variances) == pytest.approx([*fitted.vcomp, fitted.scale], rel=1e-3)


@pytest.mark.parametrize("deviations", [(1.0, 0.5, 0.8), (0.3, 0.0, 1.0), (0.0, 0.7, 0.5)])
def test_analyse_variation_estimates_are_unbiased(deviations):
    rng = np.random.default_rng(7)
    result = np.array([analyse_variation(draw_table(rng, 12, 4, *deviations)).estimates for _ in range(3_000)])
    error = result.std(axis=0) / math.sqrt(len(result))
    assert (np.abs(result.mean(axis=0) - np.square(deviations)) < 4 * error).all()


def test_analyse_variation_error_matches_simulated_variance_of_mean():
    rng = np.random.default_rng(11)
    tables = [draw_table(rng, 10, 5, 1.0, 0.6, 0.8) for _ in range(4_000)]
    truth = 1.0 / 10 + 0.36 / 5 + 0.64 / 50
    assert np.var([table.mean() for table in tables]) == pytest.approx(truth, rel=0.1)
    # Negative estimates count as 0, so the mean is slightly above the true variance.
    mean_estimate = float(np.mean([analyse_variation(table).error ** 2 for table in tables]))
    assert truth * 0.97 < mean_estimate < truth * 1.06


def test_variation_components_and_shares_by_hand():
    result = Variation(4, 10, VarianceComponents(queries=9.0, trials=21.0, rest=1.0), 10)
    assert result.variances == VarianceComponents(2.0, 2.0, 1.0)
    assert result.of_mean == pytest.approx((0.2, 0.5, 0.025))
    assert result.error == pytest.approx(math.sqrt(0.725))
    assert result.by_queries == pytest.approx(0.225 / 0.725)
    assert result.by_trials == pytest.approx(0.525 / 0.725)
    assert result.shares == pytest.approx((0.4, 0.4, 0.2))


def test_variation_negative_estimate_counts_as_zero():
    result = Variation(4, 10, VarianceComponents(queries=9.0, trials=0.5, rest=1.0), 10)
    assert result.estimates == VarianceComponents(2.0, -0.05, 1.0)
    assert result.variances == VarianceComponents(2.0, 0.0, 1.0)
    assert result.below == ["trials"]


@pytest.mark.parametrize("squares", [(9.0, 21.0, 1.0), (9.0, 0.5, 1.0), (2.0, 1.0, 1.9), (50.0, 2.0, 0.5)])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_variation_enough_returns_fewest_trials(squares, share):
    result = Variation(4, 10, VarianceComponents(*squares), 10)

    def part(trials):
        chance = result.variances.trials / trials + result.variances.rest / (10 * trials)
        return chance / (result.variances.queries / 10 + chance)

    enough = result.enough(share)
    assert part(enough) <= share + 1e-9
    assert enough == 1 or part(enough - 1) > share


def test_variation_enough_without_query_variance_returns_none():
    assert Variation(4, 10, VarianceComponents(0.5, 2.0, 1.0), 10).enough() is None
    assert Variation(4, 10, VarianceComponents(2.0, 0.0, 0.0), 0).enough() == 1


def test_analyse_variation_equal_trials_have_zero_trial_variance():
    values = np.array([0.1, 0.7, 0.3])
    result = analyse_variation(np.stack([values] * 3))
    assert result.unstable == 0
    assert result.variances == pytest.approx((values.var(ddof=1), 0, 0))
    assert result.by_trials == 0
    assert result.error == pytest.approx(values.std(ddof=1) / math.sqrt(3))


def test_analyse_variation_constant_values_have_nan_shares():
    result = analyse_variation(np.full((2, 3), 0.5))
    assert result.error == 0
    assert math.isnan(result.by_trials)
    assert all(map(math.isnan, result.shares))


def test_analyse_variation_ignores_queries_with_nan():
    table = np.array([[1.0, math.nan, 2.0], [3.0, 0.5, 8.0]])
    result = analyse_variation(table)
    assert (result.n, result.left_out, result.unstable) == (2, 1, 2)
    assert result.squares == mean_squares(table[:, [0, 2]])


@pytest.mark.parametrize("table", [[[0.1, 0.2, 0.3]], [[0.1], [0.2]], [[0.1, math.nan], [0.2, 0.3]]])
def test_analyse_variation_one_trial_or_query_returns_none(table):
    assert analyse_variation(np.array(table)) is None


def test_seed_variance_share_of_one_system_equals_trial_share():
    side = draw_table(np.random.default_rng(2), 30, 5, 1.0, 0.6, 0.3)
    result = analyse_variation(side)
    assert not result.below
    assert seed_variance_share([side]) == pytest.approx(result.by_trials)


def test_seed_variance_share_of_two_systems_by_hand():
    system, base = np.array([[1.0, 2.0], [3.0, 8.0]]), np.array([[0.0, 4.0], [2.0, 6.0], [4.0, 8.0]])
    # The query means differ by 2 - 2 = 0 and 5 - 6 = -1: their variance is 1/2, that of the mean of two queries 1/4.
    # The mean squares of mine are 16 and 4; divided by its 2 x 2 values, they are 4 and 1.
    # The mean squares of base are 2 x 4 and 0; divided by its 6 values, they are 4/3 and 0.
    assert seed_variance_share([system, -base]) == pytest.approx(1.0)  # 1/4 - 1 is below 0, so the query variance is 0
    assert seed_variance_share([system * [[1.0, 3.0]], -base]) == pytest.approx(
        _compute_share(system * [[1.0, 3.0]], base)
    )


def _compute_share(system, base):
    parts = [analyse_variation(scores) for scores in (system, base)]
    rest = sum(part.squares.rest / (part.trials * part.n) for part in parts)
    trial_variance = sum(part.of_mean.trials + part.of_mean.rest for part in parts)
    queries = max(0.0, (system.mean(axis=0) - base.mean(axis=0)).var(ddof=1) / 2 - rest)
    return trial_variance / (queries + trial_variance)


def test_trial_intervals_cover_better_than_query_intervals():
    rng = np.random.default_rng(17)
    tables = [0.5 + draw_table(rng, 25, 5, 0.1, 0.1, 0.05) for _ in range(120)]
    over_both = [
        low <= 0.5 <= high for low, high in (trial_intervals([table], 0.95, rounds=500)[0] for table in tables)
    ]
    low, high = mean_intervals(np.column_stack([table.mean(axis=0) for table in tables]), rounds=500)
    assert np.mean(over_both) > 0.9
    assert np.mean((low <= 0.5) & (high >= 0.5)) < 0.7


def test_trial_intervals_of_shares_lie_within_0_and_1():
    low, high = trial_intervals([np.array([[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]])], 0.95)[0]
    assert 0 <= low < 0.75 < high <= 1
