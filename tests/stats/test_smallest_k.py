"""Smallest sufficient k: what is known about each k, how many queries would decide, an acceptable level, and prices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ragauge.stats.margin_tests import loss_upper_bound, queries_to_rule_out
from ragauge.stats.smallest_k import smallest_k


def make_hits(n, **shares):
    """Return hits of n queries by k, such as `k3=0.92`; a query that is hit at one k is hit at every larger one."""
    return {int(name[1:]): np.where(np.arange(n) < round(share * n), 1.0, 0.0) for name, share in shares.items()}


def decisions(advice):
    return {int(row["k"]): advice.decide(row) for row in advice.table}


@pytest.mark.parametrize("n", [50, 200, 2000])
def test_smallest_k_loss_at_tolerance_stays_undecided(n):
    advice = smallest_k(make_hits(n, k1=0.6, k3=0.92, k10=0.94), "hit_rate")
    assert decisions(advice) == {1: "not enough", 3: "undecided", 10: "best tried"}
    assert advice.k is None
    assert "no tried k is shown to be enough" in str(advice)
    assert f"k=3 is undecided with {n} queries: its loss is 0.0200" in str(advice)
    assert "equals the tolerance, so no number of queries decides" in str(advice)


def test_smallest_k_states_queries_that_decide():
    shares = {"k1": 0.6, "k3": 0.92, "k10": 0.94}
    few = smallest_k(make_hits(100, **shares), "hit_rate", tolerance=0.03)
    needed = few.table[1]["queries_needed"]
    assert few.decide(few.table[1]) == "undecided"
    assert f"about {needed:,.0f} would decide" in str(few)
    for factor, k in ((0.8, None), (1.2, 3)):
        n = 50 * round(factor * needed / 50)
        assert smallest_k(make_hits(n, **shares), "hit_rate", tolerance=0.03).k == k


@pytest.mark.parametrize("tolerance", [0.05, 0.02, 0.01])
def test_smallest_k_without_loss_needs_clopper_pearson_queries(tolerance):
    n = {0.05: 59, 0.02: 149, 0.01: 299}[tolerance]
    for count in (15, n - 1, n):
        advice = smallest_k({3: np.ones(count), 10: np.ones(count)}, "hit_rate", tolerance)
        assert advice.k == (3 if count == n else 10)
        assert math.isnan(advice.table[0]["queries_needed"]) == (count == n)
        assert count == n or advice.table[0]["queries_needed"] == n


@pytest.mark.parametrize("mean", [0.0, 0.02])
def test_queries_to_rule_out_matches_tiled_queries(mean):
    losses = np.random.default_rng(1).normal(0, 0.15, 60).clip(-1, 1)
    losses += mean - losses.mean()
    needed = queries_to_rule_out(losses, 0.05, 0.95, 1.0)
    copies = needed / len(losses)
    assert loss_upper_bound(np.tile(losses, math.ceil(1.05 * copies)), 0.95, 1.0) <= 0.05
    assert loss_upper_bound(np.tile(losses, math.floor(0.9 * copies)), 0.95, 1.0) > 0.05


def test_smallest_k_unknown_range_needs_differing_queries():
    equal = smallest_k({1: np.ones(500), 5: np.ones(500)}, "gain", bounds=(-math.inf, math.inf))
    assert decisions(equal) == {1: "undecided", 5: "enough"}
    assert "too few of 500 queries differ" in str(equal)


def test_smallest_k_at_least_returns_interval_of_hits():
    hits = make_hits(100, k1=0.6, k3=0.92, k10=0.94)
    acceptable = smallest_k(hits, "hit_rate", at_least=0.9).acceptable
    exact = stats.beta.ppf(0.025, 92, 9), stats.beta.ppf(0.975, 93, 8)
    assert (acceptable.k, acceptable.value) == (3, 0.92)
    assert (acceptable.low, acceptable.high) == pytest.approx(exact, abs=1e-6)
    text = str(smallest_k(hits, "hit_rate", at_least=0.9))
    assert text.startswith(
        "at least 0.9: k=3, hit_rate 0.9200 (95% interval 0.8484 to 0.9648); 100 queries do not show"
    )
    enough = make_hits(int(2 * acceptable.queries_needed) // 100 * 100, k3=0.92, k10=0.94)
    assert "do not show" not in smallest_k(enough, "hit_rate", at_least=0.9).sentences()[0]


def test_smallest_k_at_least_unreached_level_names_best():
    advice = smallest_k(make_hits(100, k1=0.3, k3=0.5), "hit_rate", at_least=0.9)
    assert advice.acceptable.k is None
    assert advice.sentences()[0].startswith("no tried k reaches 0.9: at best hit_rate 0.5000 (95% interval")


def test_smallest_k_price_of_better_k_by_hand():
    tokens = {1: 100.0, 3: 300.0, 10: 1000.0}
    advice = smallest_k(make_hits(100, k1=0.6, k3=0.92, k10=0.94), "hit_rate", tokens=tokens, token_price=3.0)
    # 700 tokens at 3 dollars per million are 0.0021 dollars per query; the gain is twice 0.01
    assert advice.sentences()[-1] == (
        "k=10 instead of 3 gains 0.0200 hit_rate for 700 more tokens per query, 350 per 0.01, "
        "and for $2.1 more per 1,000 queries, $1.05 per 0.01"
    )
    assert [row["cost"] for row in advice.table] == pytest.approx([0.0003, 0.0009, 0.003])
