"""Tests against a margin: worked bounds, agreement with Clopper and Pearson, and levels at small n by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ragauge.stats import margin_tests
from ragauge.stats.margin_tests import (
    bounded_p_value,
    loss_upper_bound,
    margin_p_value,
    queries_without_difference,
)
from ragauge.stats.paired_tests import t_test


@pytest.mark.parametrize(("margin", "n"), [(0.05, 59), (0.02, 149), (0.01, 299)])
def test_equal_queries_rule_out_margin_as_worked_by_hand(margin, n):
    # If a share `margin` of all queries loses 1, n queries contain none of them with probability (1 - margin)^n.
    assert (1 - margin) ** n < 0.05 < (1 - margin) ** (n - 1)
    for count, is_ruled_out in ((n - 1, False), (n, True)):
        p, bound = margin_p_value(np.zeros(count), margin, 1.0), loss_upper_bound(np.zeros(count), 0.95, 1.0)
        assert p == pytest.approx((1 - margin) ** count, rel=1e-12)
        assert bound == pytest.approx(1 - 0.05 ** (1 / count), rel=1e-6)  # Clopper and Pearson's bound for 0 of n
        assert (p < 0.05) == (bound < margin) == is_ruled_out
    assert queries_without_difference(margin, 1.0) == n


def test_queries_without_difference_depends_on_range_and_level():
    assert queries_without_difference(5.0, 100.0) == 59
    assert queries_without_difference(0.05, 1.0, alpha=0.01) == 90
    assert queries_without_difference(0.05, math.inf) is None
    assert queries_without_difference(0.0, 1.0) is None


@pytest.mark.parametrize(("losses", "n"), [(0, 60), (0, 300), (3, 100), (20, 200)])
def test_loss_upper_bound_of_hits_matches_clopper_pearson(losses, n):
    values = np.array([1.0] * losses + [0.0] * (n - losses))
    exact = stats.beta.ppf(0.95, losses + 1, n - losses)
    assert loss_upper_bound(values, 0.95, 1.0) == pytest.approx(exact, abs=1e-6)
    assert bounded_p_value(values, 0.1, 1.0) == pytest.approx(stats.binom.cdf(losses, n, 0.1), rel=1e-9)


@pytest.mark.parametrize("n", [2, 7, 60])
def test_bounded_p_value_matches_random_weights_on_the_simplex(n):
    rng = np.random.default_rng(n)
    losses = np.where(rng.random(n) < 0.3, 0.0, rng.normal(0.02, 0.2, n).clip(-1, 1))
    means = rng.dirichlet(np.ones(n + 1), 100_000) @ np.append(losses, 1.0)
    for margin in np.quantile(means, [0.05, 0.5, 0.95]):
        assert bounded_p_value(losses, margin, 1.0) == pytest.approx((means >= margin).mean(), abs=0.006)


def test_bounded_p_value_of_many_queries_matches_exact(monkeypatch):
    rng = np.random.default_rng(3)
    losses = rng.normal(0.0, 0.2, 400).clip(-1, 1)
    margins = (-0.02, 0.0, float(np.append(losses, 1.0).mean()), 0.02, 0.03)
    exact = [bounded_p_value(losses, margin, 1.0) for margin in margins]
    monkeypatch.setattr(margin_tests, "MAX_EXACT_CELLS", 0)
    assert [bounded_p_value(losses, margin, 1.0) for margin in margins] == pytest.approx(exact, rel=0.01)


def test_margin_p_value_near_zero_variance_is_not_certainty():
    losses = np.array([0.0] * 14 + [0.001])
    assert float(t_test(-losses[:, None], -0.01)[1][0]) < 1e-20
    assert margin_p_value(losses, 0.01, 1.0) > 0.5


def test_margin_p_value_without_bounds_needs_differing_queries():
    losses = np.array([0.1, -0.2] * 4 + [0.1] + [0.0] * 40)
    assert math.isnan(margin_p_value(losses, 0.5, math.inf))
    assert loss_upper_bound(losses, 0.95, math.inf) == math.inf
    losses[-1] = 0.1
    expected = stats.ttest_1samp(-losses, -0.5, alternative="greater").pvalue
    assert margin_p_value(losses, 0.5, math.inf) == pytest.approx(expected)


@pytest.mark.parametrize("max_loss", [1.0, math.inf])
def test_loss_upper_bound_agrees_with_margin_p_value(max_loss):
    losses = np.random.default_rng(5).normal(0.02, 0.1, 80).clip(-1, 1)
    bound = loss_upper_bound(losses, 0.95, max_loss)
    assert margin_p_value(losses, bound, max_loss) == pytest.approx(0.05, rel=1e-4)


# Levels, by simulation --------------------------------------------------------------------------------------------

N_STUDIES = 600


def draw_losses(kind, mean, shape, rng):
    """Draw losses of at most 1 with a given mean; in small samples most of them are below it."""
    if kind == "beta":
        return rng.beta(0.1, 0.1 * (1 - mean) / mean, shape)
    gain = {"rare": 0.0, "rare and noise": 0.0, "rare and small gains": 0.02, "rare and gains": 0.2}[kind]
    share = (mean + gain) / (1 + gain)
    usual = rng.normal(0, 0.005, shape) if kind == "rare and noise" else np.full(shape, -gain)
    return np.where(rng.random(shape) < share, 1.0, usual)


@pytest.mark.slow
@pytest.mark.simulation
@pytest.mark.parametrize("n", [5, 10, 20, 40, 70, 100])
@pytest.mark.parametrize("kind", ["rare", "rare and noise", "rare and small gains", "rare and gains", "beta"])
def test_margin_p_value_keeps_level_for_rare_large_losses(kind, n):
    for factor in (1.0001, 2.0):  # just above the loss that n equal queries rule out, where a false decision is easiest
        margin = min(0.9, factor * (1 - 0.05 ** (1 / n)))
        studies = draw_losses(kind, margin, (N_STUDIES, n), np.random.default_rng(n))  # the true loss is the margin
        rate = np.mean([margin_p_value(losses, margin, 1.0) < 0.05 for losses in studies])
        assert rate <= 0.05 + 3.3 * (0.05 * 0.95 / N_STUDIES) ** 0.5


@pytest.mark.simulation
def test_t_test_alone_exceeds_level_for_rare_large_losses():
    margin = 1.0001 * (1 - 0.05 ** (1 / 50))
    studies = draw_losses("rare and noise", margin, (N_STUDIES, 50), np.random.default_rng(1))
    assert (t_test(-studies.T, -margin)[1] < 0.05).mean() > 0.1


@pytest.mark.simulation
def test_margin_p_value_of_equal_systems_has_power():
    rng = np.random.default_rng(2)
    studies = np.where(rng.random((N_STUDIES, 200)) < 0.5, rng.normal(0, 0.1, (N_STUDIES, 200)), 0.0)
    assert np.mean([margin_p_value(losses, 0.05, 1.0) < 0.05 for losses in studies]) > 0.9
