"""Statistics: against exact enumeration, against scipy, by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ragauge.errors import MissingEvidence
from ragauge.experiments import run
from ragauge.records import Dataset, Judgments
from ragauge.stats.intervals import bootstrap_upper
from ragauge.stats.paired import differences, holm, randomization_test


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-8, 8), min_size=2, max_size=8))
def test_small_samples_are_enumerated_exactly(gaps):
    mine = np.array(gaps) / 8.0  # eighths: sums are exact, so that equal means are equal
    observed = abs(mine.sum())
    signs = [abs(np.dot(mine, pattern)) >= observed for pattern in product((1, -1), repeat=len(gaps))]
    assert randomization_test(mine, np.zeros(len(gaps))) == pytest.approx(
        np.mean(signs) if observed or mine.any() else 1
    )


def test_larger_samples_agree_with_the_t_test_where_that_is_right():
    rng = np.random.default_rng(5)
    base = rng.normal(0.5, 0.1, 200)
    mine = base + rng.normal(0.012, 0.08, 200)
    expected = stats.ttest_rel(mine, base).pvalue
    assert 0.005 < expected < 0.2
    assert randomization_test(mine, base) == pytest.approx(expected, abs=0.02)
    assert randomization_test(mine, base) == randomization_test(mine, base)


def test_no_difference_is_no_evidence_and_one_query_is_too_few():
    same = np.array([0.1, 0.2, 0.3])
    assert randomization_test(same, same) == 1.0
    with pytest.raises(MissingEvidence):
        randomization_test(same[:1], same[1:2])


def test_holm_by_hand():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_false_alarms_stay_below_the_level_when_nothing_differs():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        pairs = rng.random((2, 30))
        alarms += randomization_test(pairs[0], pairs[1], rounds=499) < 0.05
    assert alarms <= 20  # 10 are expected; more than 20 has a chance of one in a thousand


def test_differences_count_better_and_worse_queries():
    grades = {f"q{i}": {"a": 1} for i in range(20)}
    data = Dataset("x", [], {f"q{i}": str(i) for i in range(20)}, Judgments(grades))
    found = run(
        data,
        {"base": lambda q, k: ["a"] if int(q) < 5 else ["b"], "mine": lambda q, k: ["a"] if int(q) > 2 else ["b"]},
        baseline="base",
        measures=["recall@10"],
    )
    gap = found.differences["mine"]
    assert (gap.better, gap.worse, gap.same, gap.n) == (15, 3, 2, 20)
    assert gap.mean == pytest.approx(12 / 20)
    assert gap.p == pytest.approx(stats.binomtest(15, 18).pvalue, abs=0.005)  # with steps of one it is the sign test
    assert differences(found.scores, "base", "recall@10")["mine"].p_adjusted == gap.p


def test_the_upper_bound_covers_at_least_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = sum(bootstrap_upper(rng.binomial(1, 0.2, 80).astype(float), 0.9, rounds=500) >= 0.2 for _ in range(200))
    assert covered >= 175  # 180 are promised


@pytest.mark.parametrize(("losses", "n"), [(0, 60), (0, 300), (3, 100), (20, 200)])
def test_the_upper_bound_is_near_clopper_and_pearsons(losses, n):
    exact = stats.beta.ppf(0.95, losses + 1, n - losses)
    values = np.array([1.0] * losses + [0.0] * (n - losses))
    assert bootstrap_upper(values) == pytest.approx(exact, abs=0.012)


def test_seeing_a_small_loss_makes_nobody_surer():
    none, small = np.zeros(5), np.array([0.01, 0, 0, 0, 0])
    assert bootstrap_upper(small) >= bootstrap_upper(none) > 0.3
