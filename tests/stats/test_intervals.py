"""Intervals of means between 0 and 1: exact values for shares, and simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ragauge.stats.intervals import bounded_mean_interval


@pytest.mark.parametrize(("n", "hits"), [(30, 30), (30, 0), (30, 17), (8, 7), (200, 199)])
def test_bounded_mean_interval_of_shares_matches_clopper_pearson(n, hits):
    exact = stats.binomtest(hits, n).proportion_ci(0.95)
    values = np.array([1.0] * hits + [0.0] * (n - hits))
    assert bounded_mean_interval(values) == pytest.approx((exact.low, exact.high), abs=1e-9)
    almost_binary = values * (1 - 1e-9)  # so that weights are drawn
    assert bounded_mean_interval(almost_binary) == pytest.approx((exact.low, exact.high), abs=0.01)


def draw_mostly_perfect(rng):
    return np.where(rng.random(30) < 0.97, 1.0, 0.5)


POPULATIONS = {
    "mostly perfect": (draw_mostly_perfect, 0.985),
    "skewed": (lambda rng: rng.beta(2.0, 1.0, 30), 2 / 3),
    "bimodal": (lambda rng: rng.beta(0.3, 0.3, 30), 0.5),
}
"""Samples of 30 values, and the mean of their population."""


@pytest.mark.parametrize("population", POPULATIONS)
def test_bounded_mean_interval_covers_at_nominal_level(population):
    """Nominal coverage is 380 of 400 samples; the bound is lower by 2.3 standard deviations of the simulation."""
    draw, mean = POPULATIONS[population]
    rng = np.random.default_rng(11)
    intervals = [bounded_mean_interval(draw(rng), rounds=2000, seed=seed) for seed in range(400)]
    assert sum(low <= mean <= high for low, high in intervals) >= 370


def test_bounded_mean_interval_covers_where_plain_bootstrap_fails():
    rng = np.random.default_rng(12)
    plain = bounded = 0
    for seed in range(200):
        values = draw_mostly_perfect(rng)
        resampled = values[rng.integers(0, 30, (1000, 30))].mean(axis=1)
        plain += np.quantile(resampled, 0.025) <= 0.985 <= np.quantile(resampled, 0.975)
        low, high = bounded_mean_interval(values, rounds=2000, seed=seed)
        bounded += low <= 0.985 <= high
    assert plain < 130
    assert bounded > 185
