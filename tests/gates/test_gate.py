"""Gates: every kind of rule on constructed scores, and no rule passes if it cannot be evaluated."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, ttest_rel

import ragauge
from command import command_in
from ragauge.core.documents import Document, Hit
from ragauge.core.errors import BadInput, CheckFailed, Incomparable, UnknownName
from ragauge.core.records import Dataset, Judgments, MeasureDict, Run, Scores
from ragauge.evaluation.indicators import Indicator, find_indicator
from ragauge.gates.report import build_report, describe_test_outcome, format_value_and_limit, render_gate_junit
from ragauge.gates.results import Gate, GateError, Rule, RuleCheck
from ragauge.gates.rule_grammar import parse_rule, read_gate_file, rule_texts
from ragauge.measures.conventions import PRESETS
from ragauge.reports.registry import read_results
from ragauge.stats.intervals import t_interval
from ragauge.stats.paired_tests import paired_permutation_test
from written_results import format_results

ROOT = Path(__file__).parents[2]


def make_scores(name="run", lower=(), convention="default", judge="", **columns):
    """Build scores of the queries q0, q1, … from lists of values per measure; `_at_` in a name means `@`."""
    n = max(map(len, columns.values()))
    values = {m.replace("_at_", "@"): np.array(column, float) for m, column in columns.items()}
    unscored = {
        m: {f"q{i}": "the measure returned no number" for i, v in enumerate(column.tolist()) if math.isnan(v)}
        for m, column in values.items()
    }
    means = {m: float(np.nanmean(c)) if not np.isnan(c).all() else math.nan for m, c in values.items()}
    return Scores(
        name,
        convention,
        [f"q{i}" for i in range(n)],
        MeasureDict(values, str),
        MeasureDict(means, str),
        MeasureDict(unscored, str),
        lower_is_better=frozenset(lower),
        judge=judge,
    )


def check_rule(run, rule, **settings):
    """Return the check of a single rule."""
    return ragauge.gate(run, rule, **settings).checks[0]


def rule_passes(run, rule, **settings):
    return check_rule(run, rule, **settings).passed


def make_timings(milliseconds, status=None, stage=None):
    """Build the timings of the queries q0, q1, …, run one after the other."""
    n = len(milliseconds)
    total = [int(millisecond * 1e6) for millisecond in milliseconds]
    return pl.DataFrame(
        {
            "query": [f"q{i}" for i in range(n)],
            "repeat": [0] * n,
            "session": [1] * n,
            "status": status or ["ok"] * n,
            "error": [None] * n,
            "attempts": [1] * n,
            "began_ns": [sum(total[:i]) for i in range(n)],
            "embed_ns": [None] * n if stage is None else [int(stage_ms * 1e6) for stage_ms in stage],
            "total_ns": total,
        }
    )


# Rule grammar


def parse_text(text):
    return parse_rule(text, lambda name: find_indicator(name, PRESETS["default"]))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("ndcg@10 >= 0.40", "ndcg@10 >= 0.4"),
        ("nDCG@10>=.4", "ndcg@10 >= 0.4"),
        ("P_10 > 1e-1", "precision@10 > 0.1"),
        ("Hit Rate@5 ≥ 0.5", "hit_rate@5 >= 0.5"),
        ("recall(of=capped)@10 < 1", "recall(of=capped)@10 < 1"),
        ("unj@10 <= 0.1", "unjudged@10 <= 0.1"),
        ("  RR   Drop<=0.01 ", "mrr drop <= 0.01"),
        ("mrr drops < 2 %", "mrr drop < 2%"),
        ("mrr drop <= -0.01", "mrr drop <= -0.01"),
        ("p95_ms RISE <= 10%", "p95_ms rise <= 10%"),
        ("Embed_P95_ms <= 3", "Embed_p95_ms <= 3"),
        ("total_p50_ms <= 3", "p50_ms <= 3"),
        ("mrr NOT  worse", "mrr not worse"),
        ("map better", "map better"),
        ("map noninferior by 0.02", "map non-inferior by 0.02"),
        ("map Non-Inferior by 2% by topic", "map non-inferior by 2% by topic"),
        ("map not worse in topic = files and folders", "map not worse in topic=files and folders"),
        ("ndcg@10 >= 0.4 by complexity", "ndcg@10 >= 0.4 by complexity"),
        ("failed <= 1%", "failed <= 1%"),
        ("queries >= 100", "queries >= 100"),
        ("throughput drop <= 5%", "throughput drop <= 5%"),
    ],
)
def test_parse_rule_spellings_have_one_canonical_form(text, canonical):
    assert str(parse_text(text)) == canonical
    assert parse_text(canonical) == parse_text(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with an indicator"),
        (">= 0.4", "begins with an indicator"),
        ("ndcg@10", "after `ndcg@10` comes >= x"),
        ("ndcg@10 => 0.4", "cannot be read from `=> 0.4` on"),
        ("ndcg@10 == 0.4", "cannot be read from `== 0.4` on"),
        ("ndcg@10 >= good", "after `ndcg@10 >=` comes a number"),
        ("ndcg@10 >= 1e999", "a number"),
        ("ndcg@10 >= nan", "after `ndcg@10 >=` comes a number"),
        ("ndcg@10 >= 0,4", "after `ndcg@10 >= 0` comes the end"),
        ("ndcg@10 drop >= 0.1", "after `ndcg@10 drop` comes <= and a number"),
        ("ndcg@10 non-inferior 0.1", "after `ndcg@10 non-inferior` comes `by`"),
        ("ndcg@10 non-inferior by 0", "the margin must be above 0"),
        ("ndcg@10 not worse in topic", "after `ndcg@10 not worse in` comes TAG=VALUE"),
        ("ndcg@10 not worse by topic=files", "comes a tag"),
        ("ndcg@10 >= 40%", "`ndcg@10 >= 0.4`"),
        ("p95_ms drop <= 5", "`p95_ms rise <= 5`"),
        ("ndcg@10 rise <= 0.1", "`ndcg@10 drop <= 0.1`"),
        ("unjudged@10 drop <= 0.1", "`unjudged@10 rise <= 0.1`"),
        ("throughput not worse", "`throughput drop <= 5%`"),
        ("gm_map not worse", "cannot be tested"),
        ("f1(of=means)@5 better", "cannot be tested"),
        ("throughput >= 3 by topic", "whole run"),
        ("f1(of=means)@5 >= 0.3 by topic", "whole run"),
    ],
)
def test_parse_rule_invalid_rule_names_position_of_error(text, message):
    with pytest.raises(BadInput) as error:
        parse_text(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ndcg@10 not worse by 0.02", "hint: `ndcg@10 non-inferior by 0.02`"),
        ("P_10 not worse by 2 % by topic", "hint: `precision@10 non-inferior by 2 % by topic`"),
        ("ndcg@10 better by 0.02", "hint: `ndcg@10 drop <= -0.02` requires a mean that is better by 0.02"),
        ("p95_ms better by 5", "hint: `p95_ms rise <= -5` requires"),
        ("ndcg@10 not worse than bm25", "with `--baseline bm25` (-b)"),
        ("ndcg@10 non-inferior to runs/bm25 by 0.02", "with `--baseline runs/bm25` (-b)"),
        ("ndcg@10 drop <= 2% from bm25", "with `--baseline bm25` (-b)"),
        ("mrr@ten >= 0.4", "`ten` in `mrr@ten` is not a cutoff\nhint: a cutoff is a number, as in mrr@10"),
        ("recall(of=capped)@k >= 0.4", "hint: a cutoff is a number, as in recall@10"),
        ("iprec@half >= 0.4", "as in iprec_at_recall@0.5"),
        ("bpref@all >= 0.4", "hint: use bpref"),
    ],
)
def test_parse_rule_near_miss_hints_at_valid_rule(text, hint):
    with pytest.raises(BadInput) as error:
        parse_text(text)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("ndgc@10 >= 0.4", "`ndcg@10`"),
        ("ndcg10 >= 0.4", "`ndcg@10`"),
        ("nDCG-5 >= 0.4", "`ndcg@5`"),
        ("Hit Rate3 >= 0.4", "`hit rate@3`"),
        ("f110 >= 0.4", "`f1@10`"),
        ("p95 <= 50", "`p95_ms`"),
        ("mising <= 1", "`missing`"),
        ("latency <= 50", "`p95_ms`"),
        ("Mean response time <= 50", "`mean_ms`"),
        ("qps >= 50", "`throughput`"),
    ],
)
def test_parse_rule_unknown_indicator_suggests_name(text, guess):
    with pytest.raises(UnknownName, match="did you mean") as error:
        parse_text(text)
    assert guess in str(error.value)


NUMBERS = st.floats(0.001, 100).map(lambda number: float(f"{number:.6g}"))
RULES = st.builds(
    lambda figure, condition, number, percent, scope: f"{figure} {condition.format(f'{number:.6g}{percent}')}{scope}",
    st.sampled_from(["ndcg@10", "recall(of=capped)@5", "map", "mrr@20"]),
    st.sampled_from(["drop <= {}", "drop < {}", "not worse", "better", "non-inferior by {}"]),
    NUMBERS,
    st.sampled_from(["", "%"]),
    st.sampled_from(["", " by topic", " in topic=a b"]),
)


@given(RULES)
def test_parse_rule_round_trip(text):
    assert str(parse_text(text)) == text


def test_rule_texts_table_equals_rules():
    table = {
        "ndcg@10": {"at_least": 0.4, "drop": "2%", "not_worse": True},
        "p95_ms": {"below": 50, "rise": 3, "noninferior": 1.5},
        "mrr": {"better": True, "by": "topic"},
        "map": {"above": 1e-7, "at_most": 1, "in": "topic=files"},
    }
    assert [str(parse_text(text)) for text in rule_texts(table)] == [
        "ndcg@10 >= 0.4",
        "ndcg@10 drop <= 2%",
        "ndcg@10 not worse",
        "p95_ms < 50",
        "p95_ms rise <= 3",
        "p95_ms non-inferior by 1.5",
        "mrr better by topic",
        "map > 1e-07 in topic=files",
        "map <= 1 in topic=files",
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"mrr": {"atleast": 0.4}}, "`at_least`"),
        ({"mrr": {"not_worse": False}}, "remove the key"),
        ({"mrr": {"at_least": True}}, "must be a number"),
        ({"mrr": {}}, "no condition"),
        ({"mrr": 0.4}, "must be a table"),
        ({"mrr": {"at_least": math.nan}}, "comes a number"),
        (3, "cannot be read from int"),
        ([3], "cannot be read from list"),
    ],
)
def test_gate_invalid_rule_table_raises_error(table, message):
    with pytest.raises(ragauge.RagaugeError, match=re.escape(message)):
        ragauge.gate(make_scores(mrr=[0.5]), table)


# Limits and changes


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("mrr >= 0.5", True),
        ("mrr > 0.5", False),
        ("mrr <= 0.5", True),
        ("mrr < 0.5", False),
        ("mrr >= 0.501", False),
        ("mrr > 0.499", True),
        ("mrr <= 0.499", False),
        ("mrr < 0.501", True),
    ],
)
def test_gate_limit_compares_mean_with_number(rule, expected):
    check = check_rule(make_scores(mrr=[0.25, 0.75]), rule)
    assert (check.passed, check.value, check.n) == (expected, 0.5, 2)
    assert bool(check.reason) is not expected


def test_gate_limit_tolerates_rounding_of_mean():
    values = [0.1, 0.7, 0.4, 0.3, 0.5]
    below = make_scores(mrr=values)
    object.__setattr__(below, "means", MeasureDict({"mrr": 0.39999999999999997}, str))
    assert rule_passes(below, "mrr >= 0.40")
    assert not rule_passes(below, "mrr < 0.40")
    assert not rule_passes(make_scores(mrr=[0.4 - 1e-9]), "mrr >= 0.40")


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=30))
def test_gate_run_passes_at_its_own_mean(values):
    run = make_scores(mrr=values)
    mean = run.means["mrr"]
    assert rule_passes(run, f"mrr >= {mean!r}")
    assert rule_passes(run, f"mrr <= {mean!r}")
    assert not rule_passes(run, f"mrr >= {mean + 0.001!r}")
    assert not rule_passes(run, f"mrr <= {mean - 0.001!r}")


@pytest.mark.parametrize(
    ("rule", "expected", "limit"),
    [
        ("mrr drop <= 0.1", True, 0.4),
        ("mrr drop < 0.1", False, 0.4),
        ("mrr drop <= 0.09", False, 0.41),
        ("mrr drop <= 20%", True, 0.4),
        ("mrr drop <= 19%", False, 0.405),
        ("mrr drop <= -0.1", False, 0.6),
    ],
)
def test_gate_drop_is_relative_to_baseline(rule, expected, limit):
    check = check_rule(make_scores(mrr=[0.3, 0.5]), rule, baseline=make_scores("old", mrr=[0.4, 0.6]))
    assert check.passed is expected
    assert check.limit == pytest.approx(limit)
    assert check.difference == pytest.approx(-0.1)
    assert check.baseline == pytest.approx(0.5)


def test_gate_rise_applies_to_lower_is_better_measures():
    new, old = make_scores(lower=["cost"], cost=[0.3, 0.5]), make_scores("old", lower=["cost"], cost=[0.2, 0.4])
    assert rule_passes(new, "cost rise <= 0.1", baseline=old)
    assert not rule_passes(new, "cost rise <= 30%", baseline=old)
    assert rule_passes(old, "cost rise <= 0", baseline=new)
    with pytest.raises(BadInput, match="cost is a lower-is-better measure"):
        ragauge.gate(new, "cost drop <= 0.1", baseline=old)


def test_gate_percentage_of_zero_baseline_fails():
    zero, nonzero = make_scores("old", mrr=[0.0, 0.0]), make_scores(mrr=[0.2, 0.4])
    for rule, settings in (("mrr drop <= 5%", {}), ("mrr non-inferior by 5%", {"min_queries": 2})):
        check = check_rule(nonzero, rule, baseline=zero, **settings)
        assert not check.passed
        assert "the change has no percentage" in check.reason


def test_gate_rule_options_override_convention():
    qrels, run = {"q": dict.fromkeys("abcd", 1)}, {"q": {"a": 2.0, "b": 1.0}}
    rules = ["recall@2 >= 1", "recall(of=relevant)@2 <= 0.5", "recall(of=capped)@2 >= 1"]
    result = ragauge.gate(run, rules, qrels=qrels, convention="ragdbeval-capped")
    assert [check.value for check in result.checks[:2]] == [1.0, 0.5]
    assert [str(check.rule) for check in result.checks] == [
        "recall(of=capped)@2 >= 1",
        "recall@2 <= 0.5",
        "missing <= 0",
    ]
    capped = ragauge.evaluate(qrels, run, ["recall@2"], "ragdbeval-capped")
    assert rule_passes(capped, "recall@2 >= 1")
    assert (
        check_rule(capped, "recall(of=relevant)@2 >= 0.001").reason
        == "no scores of recall@2; available: recall(of=capped)@2"
    )


# Significance tests

NEW_VALUES = [0.1, 0.5, 0.4, 0.9, 0.3, 0.6, 0.2, 0.5]
OLD_VALUES = [0.3, 0.6, 0.6, 0.9, 0.5, 0.6, 0.4, 0.5]


def test_gate_not_worse_matches_scipy_one_sided_t_test():
    check = check_rule(make_scores(mrr=NEW_VALUES), "mrr not worse", baseline=make_scores("old", mrr=OLD_VALUES))
    assert check.p == pytest.approx(ttest_rel(NEW_VALUES, OLD_VALUES, alternative="less").pvalue, abs=1e-12)
    assert not check.passed
    assert "worse than the baseline" in check.reason
    assert check.ci == pytest.approx(tuple(ttest_rel(NEW_VALUES, OLD_VALUES).confidence_interval(0.9)), abs=1e-12)
    assert check.ci[1] < 0
    reverse = check_rule(make_scores(mrr=OLD_VALUES), "mrr not worse", baseline=make_scores("old", mrr=NEW_VALUES))
    assert reverse.p == pytest.approx(ttest_rel(OLD_VALUES, NEW_VALUES, alternative="less").pvalue, abs=1e-12)
    assert reverse.passed
    assert rule_passes(
        make_scores(mrr=NEW_VALUES), "mrr not worse", baseline=make_scores("old", mrr=OLD_VALUES), alpha=0.001
    )


def test_gate_better_matches_scipy_one_sided_t_test():
    up = check_rule(make_scores(mrr=OLD_VALUES), "mrr better", baseline=make_scores("old", mrr=NEW_VALUES))
    assert up.p == pytest.approx(ttest_rel(OLD_VALUES, NEW_VALUES, alternative="greater").pvalue, abs=1e-12)
    assert up.passed
    assert not rule_passes(make_scores(mrr=OLD_VALUES), "mrr better", baseline=make_scores("old", mrr=OLD_VALUES))
    assert not rule_passes(make_scores(mrr=NEW_VALUES), "mrr better", baseline=make_scores("old", mrr=OLD_VALUES))


@pytest.mark.parametrize(("rule", "margin"), [("by 0.15", 0.15), ("by 30%", 0.3 * 0.55), ("by 0.3", 0.3)])
def test_gate_non_inferior_matches_scipy_t_test_with_margin(rule, margin):
    new, old = NEW_VALUES * 2, OLD_VALUES * 2
    run, baseline = make_scores(gain=new), make_scores("old", gain=old)
    check = check_rule(run, f"gain non-inferior {rule}", baseline=baseline, higher_is_better=["gain"])
    differences = np.array(new) - np.array(old)
    assert check.p == pytest.approx(ttest_1samp(differences, -margin, alternative="greater").pvalue, abs=1e-12)
    assert check.passed == (check.p < 0.05)
    assert (check.ci[0] > -margin) == check.passed


@pytest.mark.parametrize(("rule", "n"), [("by 0.05", 59), ("by 0.02", 149), ("by 0.01", 299), ("by 2%", 299)])
def test_gate_non_inferior_without_difference_needs_queries(rule, n):
    for count in (5, 15, n - 1, n):
        same = [0.5] * count
        check = check_rule(make_scores(mrr=same), f"mrr non-inferior {rule}", baseline=make_scores("old", mrr=same))
        limit = 0.01 if "%" in rule else float(rule.removeprefix("by "))
        assert check.passed == (count == n) == (check.ci[0] > -limit)
        assert (f"even without any difference, this needs {n} queries" in check.reason) == (count < n)


def test_gate_non_inferior_better_run_needs_fewer_queries():
    run, baseline = make_scores(mrr=[0.8] * 30), make_scores("old", mrr=[0.7] * 30)
    check = check_rule(run, "mrr non-inferior by 0.05", baseline=baseline)
    assert (check.passed, check.reason) == (True, "")


def test_gate_non_inferior_of_unknown_range_needs_differences():
    old = [0.5] * 30
    for n_differing, passes in ((0, False), (9, False), (10, True)):
        new = [0.51] * n_differing + old[n_differing:]
        run, baseline = make_scores(gain=new), make_scores("old", gain=old)
        check = check_rule(run, "gain non-inferior by 0.1", baseline=baseline, higher_is_better=["gain"])
        assert check.passed == passes
        assert math.isnan(check.p) == (not passes)
        reason = f"{n_differing} of 30 queries differ; a margin of gain, whose range is unknown, needs 10"
        assert check.reason == ("" if passes else reason)


def test_gate_tests_lower_is_better_measures_in_reverse():
    low = make_scores(lower=["cost"], cost=NEW_VALUES * 2)
    high = make_scores("old", lower=["cost"], cost=OLD_VALUES * 2)
    assert rule_passes(low, "cost not worse", baseline=high)
    assert rule_passes(low, "cost better", baseline=high)
    assert rule_passes(low, "cost non-inferior by 0.01", baseline=high)
    assert not rule_passes(high, "cost not worse", baseline=low)
    assert not rule_passes(high, "cost better", baseline=low)
    assert not rule_passes(high, "cost non-inferior by 0.05", baseline=low)
    assert rule_passes(high, "cost non-inferior by 0.5", baseline=low)


def test_gate_equal_run_is_not_worse_but_not_non_inferior():
    run, same = make_scores(mrr=NEW_VALUES), make_scores(mrr=NEW_VALUES)
    result = ragauge.gate(run, ["mrr not worse", "mrr non-inferior by 0.001", "mrr drop <= 0"], baseline=same)
    assert [check.passed for check in result.checks[:3]] == [True, False, True]


def test_gate_note_states_detectable_loss_of_weakest_stratum():
    rng = np.random.default_rng(3)
    base = rng.random(40)
    run = base + rng.normal(0, 0.02, 40) + np.where(np.arange(40) < 8, rng.normal(0, 0.2, 40), 0)
    tags = {f"q{i}": {"lang": "de" if i < 8 else "en"} for i in range(40)}
    settings = {"baseline": make_scores("old", mrr=base), "tags": tags}
    result = ragauge.gate(make_scores(mrr=run), ["mrr not worse", "mrr not worse by lang"], **settings)
    overall, de, en = (check.detectable for check in result.checks[:3])
    assert result.passed
    assert de > overall > en
    losses = f"mrr {overall:.4f}, mrr {de:.4f} in lang=de (8 queries)"
    assert result.notes[-1] == f"`not worse` detects these losses with 80% power: {losses}"


def test_gate_test_with_too_few_queries_fails():
    run, old = make_scores(mrr=[0.5] * 4), make_scores("old", mrr=[0.1] * 4)
    for rule in ("mrr not worse", "mrr better", "mrr non-inferior by 0.1"):
        check = check_rule(run, rule, baseline=old)
        assert not check.passed
        assert "4 queries are too few" in check.reason
    assert rule_passes(run, "mrr not worse", baseline=old, min_queries=4)


def test_gate_holm_correction_applies_only_to_not_worse():
    rng = np.random.default_rng(4)
    old = {f"m{i}": rng.random(20) for i in range(4)}
    new = {name: column - 0.02 + 0.06 * rng.standard_normal(20) for name, column in old.items()}
    new_run, old_run = make_scores(**new), make_scores("old", **old)
    rules = [f"m{i} not worse" for i in range(4)] + ["m0 better"]
    plain = ragauge.gate(new_run, rules, baseline=old_run).checks
    holm = ragauge.gate(new_run, rules, baseline=old_run, correction="holm").checks
    order = np.argsort([check.p for check in plain[:4]])
    expected = np.maximum.accumulate([plain[i].p * (4 - place) for place, i in enumerate(order)])
    assert [holm[i].p for i in order] == pytest.approx(np.minimum(1, expected))
    assert [plain[i].passed for i in order] == [False, False, True, True]
    assert [holm[i].passed for i in order] == [False, True, True, True]
    assert holm[4].p == plain[4].p


def test_gate_not_worse_keeps_false_positive_rate():
    rng = np.random.default_rng(11)
    rounds, failed = 300, 0
    for _ in range(rounds):
        base = rng.beta(0.5, 0.5, 30)
        run = np.clip(base + rng.normal(0, 0.1, 30), 0, None)
        new_scores = np.clip(base + rng.normal(0, 0.1, 30), 0, None)
        failed += not rule_passes(make_scores(mrr=run), "mrr not worse", baseline=make_scores("old", mrr=new_scores))
    assert 0.01 < failed / rounds < 0.05 + 3 * math.sqrt(0.05 * 0.95 / rounds)


# Strata


def test_gate_rule_applies_to_strata():
    run = make_scores(mrr=[0.2, 0.4, 0.8, 1.0])
    tags = {"q0": {"lang": "de"}, "q1": {"lang": "de"}, "q2": {"lang": "en"}, "q3": {"lang": "en"}}
    result = ragauge.gate(run, ["mrr >= 0.5", "mrr >= 0.5 in lang=en", "mrr >= 0.5 by lang"], tags=tags)
    assert [(str(check.rule), check.passed, check.n) for check in result.checks[:4]] == [
        ("mrr >= 0.5", True, 4),
        ("mrr >= 0.5 in lang=en", True, 2),
        ("mrr >= 0.5 in lang=de", False, 2),
        ("missing <= 0", True, 4),
    ]
    assert result.checks[2].value == pytest.approx(0.3)


def test_gate_strata_default_to_query_complexity():
    qrels = {"q1": {"a": 1}, "q2": dict.fromkeys("abcdefgh", 1)}
    result = ragauge.gate({"q1": {"a": 1.0}, "q2": {"x": 1.0}}, "mrr >= 0.5 by complexity", qrels=qrels)
    assert {str(check.rule): check.passed for check in result.checks[:2]} == {
        "mrr >= 0.5 in complexity=complex": False,
        "mrr >= 0.5 in complexity=simple": True,
    }


def test_gate_empty_stratum_fails_and_unknown_tag_raises_error():
    run = make_scores(mrr=[0.5, 0.5])
    check = check_rule(run, "mrr >= 0.1 in lang=fr", tags={"q0": {"lang": "de"}})
    assert (check.passed, check.reason) == (False, "no judged query has lang=fr")
    with pytest.raises(UnknownName, match="unknown tag `topic`"):
        ragauge.gate(run, "mrr >= 0.1 by topic", tags={"q0": {"lang": "de"}})


def test_gate_sums_and_geometric_means_of_strata_by_hand():
    qrels = {"q1": {"a": 1, "b": 1}, "q2": {"c": 1}}
    result = ragauge.gate(
        {"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 1.0}},
        ["num_rel_ret >= 3", "num_rel_ret >= 2 in answers=few", "gm_map >= 0.9 in answers=one"],
        qrels=qrels,
    )
    assert [check.value for check in result.checks[:3]] == [3, 2, 1]
    assert result.passed


# Latency


def latency_inputs(milliseconds, **options):
    return {"timings": make_timings(milliseconds, **options)}


def test_gate_latency_limits_by_hand():
    run = make_scores(mrr=[1.0] * 4)
    rules = {
        "p50_ms <= 2.5": 2.5,
        "mean_ms <= 2.5": 2.5,
        "max_ms <= 4": 4,
        "p90_ms <= 3.7": 3.7,
        "embed_mean_ms <= 0.5": 0.5,
        "throughput >= 400": 400,
        "failed <= 0": 0,
    }
    result = ragauge.gate(run, list(rules), **latency_inputs([1, 2, 3, 4], stage=[0.5] * 4))
    assert result.passed
    assert [check.value for check in result.checks[: len(rules)]] == pytest.approx(list(rules.values()))
    assert not rule_passes(run, "p50_ms < 2.5", **latency_inputs([1, 2, 3, 4]))
    assert not rule_passes(run, "p95_ms <= 3.8", **latency_inputs([1, 2, 3, 4]))


def test_gate_build_figures_come_from_manifest(tmp_path):
    run = Run(pl.DataFrame({"query": ["q"], "doc": ["a"], "score": [1.0]}), "run", None, {"cold_ms": 7.0})
    result = ragauge.gate(run, ["cold_ms <= 7", "build_seconds <= 60"], qrels={"q": {"a": 1}})
    assert [check.passed for check in result.checks[:2]] == [True, False]
    assert "build_seconds is not recorded" in result.checks[1].reason


def test_gate_failed_queries_fail_by_default():
    run = make_scores(mrr=[1.0] * 4)
    status = ["ok", "ok", "error", "timeout"]
    result = ragauge.gate(run, "p50_ms <= 100", **latency_inputs([1, 2, 0.1, 90], status=status))
    assert [(str(check.rule), check.passed) for check in result.checks] == [
        ("p50_ms <= 100", True),
        ("missing <= 0", True),
        ("failed <= 0", False),
    ]
    assert rule_passes(run, "failed <= 50%", **latency_inputs([1, 2, 0.1, 90], status=status))
    assert not rule_passes(run, "failed <= 49%", **latency_inputs([1, 2, 0.1, 90], status=status))
    assert rule_passes(run, "failed <= 2", **latency_inputs([1, 2, 0.1, 90], status=status))


def test_gate_missing_timings_fail_latency_rules():
    result = ragauge.gate(make_scores(mrr=[1.0]), ["p95_ms <= 50", "throughput >= 1", "failed <= 0", "cold_ms <= 1"])
    assert not any(check.passed for check in result.checks[:4])
    assert "no timings" in result.checks[0].reason
    check = check_rule(make_scores(mrr=[1.0]), "embed_p95_ms <= 50", **latency_inputs([1.0]))
    assert "unknown stage `embed`" in check.reason
    with pytest.raises(BadInput, match="the timings lack query, repeat"):
        ragauge.gate(make_scores(mrr=[1.0]), "p95_ms <= 50", timings=pl.DataFrame({"status": []}))


def test_gate_slower_run_fails_unless_within_margin():
    rng = np.random.default_rng(0)
    old_ms = rng.lognormal(1, 0.5, 60)
    new_ms = old_ms * 1.1 * rng.lognormal(0, 0.02, 60)
    run = make_scores(mrr=[1.0] * 60)
    rules = ["p95_ms not worse", "p50_ms not worse", "mean_ms not worse", "mean_ms better", "max_ms rise <= 5%"]
    slower = ragauge.gate(run, rules, baseline=run, **latency_inputs(new_ms), baseline_timings=make_timings(old_ms))
    assert not any(check.passed for check in slower.checks[:5])
    faster = ragauge.gate(run, rules, baseline=run, **latency_inputs(old_ms), baseline_timings=make_timings(new_ms))
    assert all(check.passed for check in faster.checks[:5])
    margins = ["p95_ms non-inferior by 40%", "p50_ms non-inferior by 1", "p50_ms non-inferior by 5%"]
    within = ragauge.gate(run, margins, baseline=run, **latency_inputs(new_ms), baseline_timings=make_timings(old_ms))
    assert [check.passed for check in within.checks[:3]] == [True, True, False]


def test_paired_permutation_test_matches_all_permutations():
    scores, base = np.array([3.0, 1, 4, 1, 5, 9, 2, 6]), np.array([2.0, 1, 5, 3, 3, 4, 4, 1])
    for figure in (lambda rows: rows.mean(axis=1), lambda rows: np.percentile(rows, 90, axis=1)):
        observed = figure(scores[None])[0] - figure(base[None])[0]
        differences = []
        for swaps in itertools.product([False, True], repeat=8):
            swapped, swapped_base = np.where(swaps, base, scores), np.where(swaps, scores, base)
            differences.append(figure(swapped[None])[0] - figure(swapped_base[None])[0])
        higher, lower = paired_permutation_test(scores[:, None], base[:, None], figure)
        assert higher == pytest.approx(np.mean(np.array(differences) >= observed - 1e-9), abs=0.02)
        assert lower == pytest.approx(np.mean(np.array(differences) <= observed + 1e-9), abs=0.02)


@pytest.mark.simulation
@pytest.mark.representative
def test_paired_permutation_test_keeps_false_positive_rate():
    rng = np.random.default_rng(5)
    rounds, failed = 100, 0
    for _ in range(rounds):
        typical = rng.lognormal(1, 0.6, (20, 1))
        new, old = typical * rng.lognormal(0, 0.3, (20, 2)), typical * rng.lognormal(0, 0.3, (20, 2))
        failed += paired_permutation_test(new, old, lambda rows: np.percentile(rows, 90, axis=1))[0] < 0.05
    assert 0 < failed / rounds < 0.05 + 3 * math.sqrt(0.05 * 0.95 / rounds)


# Rules that cannot be evaluated

QRELS = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}}
COMPLETE_RUN = {"q1": {"a": 1.0}, "q2": {"b": 1.0}, "q3": {"c": 1.0}}
INCOMPLETE_RUN = {"q1": {"a": 1.0}, "q2": {"b": 1.0}}


def checks_by_rule(result):
    return {str(check.rule): check for check in result.checks}


def test_gate_missing_measure_fails():
    check = check_rule(make_scores(mrr=[1.0]), "ndcg@10 >= 0.001")
    assert (check.passed, check.reason) == (False, "no scores of ndcg@10; available: mrr")
    check = check_rule(make_scores(mrr=[1.0]), "own >= 0.001", baseline=make_scores("old", mrr=[1.0], own=[1.0]))
    assert (check.passed, check.reason) == (False, "no scores of own; available: mrr")
    with pytest.raises(UnknownName, match="unknown measure `own`"):
        ragauge.gate(make_scores(mrr=[1.0]), "own >= 0.001")


def test_gate_nan_and_infinite_values_fail():
    for rule in ("mrr >= 0.001", "mrr <= 0.9", "mrr < 1"):
        assert not rule_passes(make_scores(mrr=[math.nan, math.nan]), rule)
        check = check_rule(make_scores(mrr=[1.0, math.nan]), rule)
        assert (check.passed, check.reason) == (False, "1 query has no mrr (q1): the measure returned no number")
    infinite = make_scores(mrr=[1.0, math.inf])
    assert not rule_passes(infinite, "mrr >= 0.001")


def test_gate_missing_query_fails_unless_allowed():
    result = ragauge.gate(INCOMPLETE_RUN, "mrr >= 0.5", qrels=QRELS)
    assert checks_by_rule(result)["mrr >= 0.5"].passed
    assert checks_by_rule(result)["missing <= 0"].reason == "the run lacks 1 of 3 judged queries (q3)"
    assert not result.passed
    assert ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "missing <= 1"], qrels=QRELS).passed
    assert ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "missing <= 34%"], qrels=QRELS).passed
    assert not ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "missing <= 33%"], qrels=QRELS).passed
    assert not ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "queries >= 3"], qrels=QRELS).passed
    assert not ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "missing > 0"], qrels=QRELS).passed
    assert not ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "missing <= 1 in answers=one"], qrels=QRELS).passed
    assert not ragauge.gate(INCOMPLETE_RUN, ["mrr >= 0.5", "missing <= 1 by answers"], qrels=QRELS).passed


@pytest.mark.parametrize("convention", ["trec9", "default", "pgvectordb"])
def test_gate_missing_query_fails_in_every_convention(convention):
    result = ragauge.gate(INCOMPLETE_RUN, "recall@5 >= 0.001", qrels=QRELS, convention=convention)
    assert not checks_by_rule(result)["missing <= 0"].passed
    allowed = ragauge.gate(INCOMPLETE_RUN, ["recall@5 >= 0.001", "missing <= 1"], qrels=QRELS, convention=convention)
    assert allowed.passed is (convention != "pgvectordb")


def test_gate_empty_run_fails():
    for empty in ({}, Run(pl.DataFrame(schema={"query": pl.String, "doc": pl.String, "score": pl.Float64}))):
        result = ragauge.gate(empty, "mrr >= 0.001", qrels=QRELS)
        assert not result.passed
        assert checks_by_rule(result)["missing <= 0"].value == 3


def test_gate_missing_queries_fail_lower_is_better_limit():
    check = check_rule(INCOMPLETE_RUN, ["unjudged@5 <= 0.5", "missing <= 1"], qrels=QRELS)
    assert not check.passed
    assert check.reason == "1 queries without any document count as 0, which is the best unjudged@5 (q3)"


def test_gate_missing_baseline_fails_rules_of_change():
    for rule in ("mrr drop <= 0.999", "mrr not worse", "mrr better", "mrr non-inferior by 0.999"):
        check = check_rule(COMPLETE_RUN, rule, qrels=QRELS)
        assert (check.passed, check.reason) == (
            False,
            "no baseline given; name an earlier run with --baseline (baseline=)",
        )


def test_gate_baseline_with_missing_queries_fails():
    check = check_rule(COMPLETE_RUN, "mrr drop <= 0.1", qrels=QRELS, baseline=INCOMPLETE_RUN)
    assert not check.passed
    assert check.reason == "the baseline lacks 1 of 3 judged queries (q3), and the rule is `missing <= 0`"
    assert rule_passes(COMPLETE_RUN, ["mrr drop <= 0.1", "missing <= 1"], qrels=QRELS, baseline=INCOMPLETE_RUN)


def test_gate_fewer_queries_than_baseline_fails():
    larger, smaller = make_scores("old", mrr=[0.5] * 6), make_scores(mrr=[0.9] * 5)
    result = ragauge.gate(smaller, ["mrr drop <= 0", "mrr not worse"], baseline=larger)
    assert not any(check.passed for check in result.checks)
    assert result.checks[0].reason == "1 queries have no value, but have one in the baseline (q5)"
    assert checks_by_rule(result)["missing <= 0"].reason == "the run lacks 1 of 6 judged queries (q5)"
    with_extra_query = check_rule(larger, "mrr drop <= 0.999", baseline=smaller)
    assert with_extra_query.reason == "the baseline has no value for 1 queries (q5)"


def test_gate_measure_without_target_map_fails():
    check = check_rule(COMPLETE_RUN, ["dr@5 >= 0.001"], qrels=QRELS)
    assert not check.passed
    assert "target map" in check.reason


def test_gate_runs_of_different_depth_compare_only_to_common_depth():
    table = pl.DataFrame({"query": list(COMPLETE_RUN), "doc": list("abc"), "score": [1.0] * 3})
    shallow, deep = (Run(table, name, None, {"plan": {"k": k}}) for name, k in (("old", 10), ("new", 100)))
    for rule, reason in (
        ("recall@100 drop <= 0", "the baseline has no value: recall@100 is undefined: the run was made with k=10"),
        ("mrr drop <= 0", "the run was made with k=100, the baseline with k=10"),
        ("recall@10 drop <= 0", ""),
    ):
        check = check_rule(deep, rule, qrels=QRELS, baseline=shallow)
        assert (check.passed, check.reason) == (not reason, reason)


def shallow_run(name="new", k=10, **provenance):
    table = pl.DataFrame({"query": list(COMPLETE_RUN), "doc": list("abc"), "score": [1.0] * 3})
    return Run(table, name, None, {"plan": {"k": k}, **provenance})


@pytest.mark.parametrize("rule", ["recall@11 >= 0.001", "recall@11 drop <= 0.999", "recall@11 >= 0.001 by answers"])
def test_gate_measure_deeper_than_run_fails(rule):
    check = check_rule(shallow_run(), rule, qrels=QRELS, baseline=shallow_run("old"))
    assert (check.passed, check.reason) == (False, "recall@11 is undefined: the run was made with k=10")
    assert rule_passes(shallow_run(), rule.replace("11", "10"), qrels=QRELS, baseline=shallow_run("old"))
    assert rule_passes(shallow_run(), rule, qrels=QRELS, baseline=COMPLETE_RUN) is False


def test_gate_measure_deeper_than_baseline_fails():
    check = check_rule(COMPLETE_RUN, "recall@11 drop <= 0.999", qrels=QRELS, baseline=shallow_run("old"))
    reason = "the baseline has no value: recall@11 is undefined: the run was made with k=10"
    assert (check.passed, check.reason) == (False, reason)
    assert rule_passes(COMPLETE_RUN, "recall@11 >= 0.001", qrels=QRELS, baseline=shallow_run("old"))


def test_gate_run_that_ranks_all_documents_has_any_depth():
    complete = shallow_run(dataset={"name": "docs", "documents": 10})
    assert rule_passes(complete, "recall@11 >= 1", qrels=QRELS)
    for documents in (11, 0):
        incomplete = shallow_run(dataset={"name": "docs", "documents": documents})
        assert not rule_passes(incomplete, "recall@11 >= 1", qrels=QRELS)
    deeper = shallow_run("old", k=20, dataset={"name": "docs", "documents": 10})
    assert rule_passes(complete, ["recall@100 drop <= 0"], qrels=QRELS, baseline=deeper)


class LimitedRetriever:
    """Return the relevant document of a query first, and at most `limit` documents."""

    def __init__(self, limit):
        self.limit = limit

    def search(self, query, k):
        relevant = int(query.removeprefix("word"))
        documents = [relevant, *(i for i in range(30) if i != relevant)]
        return [Hit(f"d{i}", 1 / rank) for rank, i in enumerate(documents[: min(k, self.limit)], 1)]


@pytest.fixture(scope="module")
def limited_runs(tmp_path_factory):
    """Folders of retrievers whose rankings are complete (at most 8 documents) or cut at k."""
    folder = tmp_path_factory.mktemp("limited")
    queries = {f"q{i}": f"word{i}" for i in range(15)}
    documents = [Document(f"d{i}", f"word{i}") for i in range(30)]
    dataset = Dataset("docs", documents, queries, Judgments({f"q{i}": {f"d{i}": 1} for i in range(15)}))
    for k in (5, 10, 20):
        systems = {f"complete{k}": LimitedRetriever(min(8, k - 1)), f"cut{k}": LimitedRetriever(100)}
        ragauge.run(dataset, systems, k=k, out=folder / f"k{k}")
    return {path.name: str(path) for path in folder.glob("k*/c*")}


@pytest.mark.parametrize(
    ("names", "comparable"),
    [
        (("complete10", "cut10"), True),
        (("complete5", "cut20"), True),  # nothing is unknown below the rankings of the smaller k
        (("complete20", "cut10"), True),  # no ranking of the larger k continues below the smaller one
        (("complete20", "cut5"), False),
        (("cut10", "cut20"), False),
    ],
)
def test_gate_complete_rankings_compare_at_any_depth(limited_runs, names, comparable):
    for run, baseline in itertools.permutations(names):
        checks = ragauge.gate(
            limited_runs[run], ["mrr not worse", "mrr drop <= 0"], baseline=limited_runs[baseline]
        ).checks[:2]
        ks = [int(re.sub(r"\D", "", name)) for name in (run, baseline)]
        reason = "" if comparable else f"the run was made with k={ks[0]}, the baseline with k={ks[1]}"
        assert [(check.passed, check.reason) for check in checks] == [(comparable, reason)] * 2


def test_compare_complete_rankings_add_no_depth_note(limited_runs):
    def find_depth_notes(*names):
        notes = ragauge.compare([limited_runs[name] for name in names], measures=["mrr"]).notes
        return [note for note in notes if "for that reason alone" in note]

    assert not find_depth_notes("complete10", "cut10")
    assert find_depth_notes("cut10", "cut20")


def test_gate_shallow_run_without_k_adds_note():
    result = ragauge.gate(
        COMPLETE_RUN, ["recall@5 >= 1", "recall@1 >= 1", "ndcg@3 drop <= 0"], qrels=QRELS, baseline=dict(COMPLETE_RUN)
    )
    assert result.passed
    assert [note for note in result.notes if "at most" in note] == [
        "run: at most 1 document per query, so recall@5, ndcg@3 are computed at depth 1"
    ]
    assert not ragauge.gate(COMPLETE_RUN, "recall@1 >= 1", qrels=QRELS).notes


def test_gate_without_rules_raises_error():
    for no_rules in ([], {}):
        with pytest.raises(BadInput, match="no rules given"):
            ragauge.gate(COMPLETE_RUN, no_rules, qrels=QRELS)
    assert not Gate("run", []).passed


def test_gate_truth_value_and_raise_if_failed():
    assert ragauge.gate(COMPLETE_RUN, "mrr >= 1", qrels=QRELS)
    assert not ragauge.gate(COMPLETE_RUN, "mrr > 1", qrels=QRELS)
    ragauge.gate(COMPLETE_RUN, "mrr >= 1", qrels=QRELS).raise_if_failed()
    with pytest.raises(CheckFailed) as error:
        ragauge.gate(INCOMPLETE_RUN, ["mrr >= 1", "mrr >= 0.1"], qrels=QRELS).raise_if_failed()
    assert str(error.value).splitlines() == [
        "run: 2 of 3 checks failed",
        "  mrr >= 1: 0.666667 is below 1",
        "  missing <= 0: the run lacks 1 of 3 judged queries (q3)",
    ]
    assert isinstance(error.value, AssertionError)
    assert error.value.exit_code == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0}, "got 0"),
        ({"alpha": 0.5}, "alpha must be between 0.001 and 0.25, got 0.5"),
        ({"alpha": math.nan}, "got nan"),
        ({"correction": "hom"}, "correction must be one of holm"),
        ({"min_queries": 1}, "min_queries must be at least 2, got 1"),
        ({"convention": "trec8"}, "unknown convention"),
    ],
)
def test_gate_invalid_settings_raise_error(settings, message):
    with pytest.raises(ragauge.RagaugeError, match=message):
        ragauge.gate(COMPLETE_RUN, "mrr >= 0.001", qrels=QRELS, **settings)


def test_gate_several_runs_or_missing_judgments_raise_error():
    with pytest.raises(BadInput, match="expected one run, got"):
        ragauge.gate({"a": COMPLETE_RUN, "b": COMPLETE_RUN}, "mrr >= 0.001", qrels=QRELS)
    with pytest.raises(BadInput, match="no judgments"):
        ragauge.gate(COMPLETE_RUN, "mrr >= 0.001")


# Incomparable runs


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"convention": "trec9"}, "convention `default`, old under `trec9`"),
        ({"judge": "llama"}, "`people`, old by `llama`"),
    ],
)
def test_gate_other_convention_or_judge_is_incomparable(other, message):
    with pytest.raises(Incomparable, match=message):
        ragauge.gate(make_scores(mrr=[1.0]), "mrr >= 0.001", baseline=make_scores("old", mrr=[1.0], **other))


def test_gate_other_judgments_are_incomparable():
    old = ragauge.evaluate({**QRELS, "q3": {"d": 1}}, COMPLETE_RUN, ["mrr"])
    with pytest.raises(Incomparable, match="1 of 3 with different grades"):
        ragauge.gate(ragauge.evaluate(QRELS, COMPLETE_RUN, ["mrr"]), "mrr >= 0.001", baseline=old)


def test_gate_other_documents_are_incomparable():
    table = pl.DataFrame({"query": list(COMPLETE_RUN), "doc": list("abc"), "score": [1.0] * 3})
    dataset = {"name": "docs", "documents": 3, "queries": 3, "documents_hash": "1", "queries_hash": "2"}
    new = Run(table, "new", None, {"dataset": dataset})
    old = Run(table, "old", None, {"dataset": {**dataset, "documents": 4, "documents_hash": "0"}})
    with pytest.raises(Incomparable, match="3 documents, old on `docs` with 4: they are not the same documents"):
        ragauge.gate(new, "mrr >= 0.001", qrels=QRELS, baseline=old)
    assert ragauge.gate(
        new, "mrr >= 0.001", qrels=QRELS, baseline=Run(table, "same", None, {"dataset": dataset})
    ).passed


# Experiments and folders


def first_documents(query, k):
    return [f"d{i:05}" for i in range(k)]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Run two systems on a synthetic dataset into a folder."""
    folder = tmp_path_factory.mktemp("runs") / "needles"
    data = "synthetic:needles(documents=60, queries=12)"
    return ragauge.run(data, {"bm25": "bm25", "fixed": first_documents}, baseline="bm25", k=5, out=folder)


def test_gate_experiment_compares_two_of_its_systems(experiment):
    result = ragauge.gate(experiment, ["recall@5 not worse", "p95_ms <= 60000", "recall@5 >= 0.01 by answers"])
    assert (result.run, result.baseline) == ("fixed", "bm25")
    assert [check.passed for check in result.checks[:2]] == [False, True]
    passing = ragauge.gate(experiment, ["recall@5 >= 0.9", "build_seconds <= 600"], system="bm25", baseline="fixed")
    assert passing.passed
    with pytest.raises(UnknownName, match="did you mean `bm25`"):
        ragauge.gate(experiment, "mrr@5 >= 0.001", system="bm24")
    with pytest.raises(BadInput, match="expected the name of one system"):
        ragauge.gate(experiment, "mrr@5 >= 0.001", baseline=make_scores(mrr=[1.0]))


def test_gate_run_folder_provides_judgments_timings_and_baseline(experiment):
    folder = experiment.folder
    rules = ["recall@5 >= 0.9", "recall@5 not worse", "retrieve_p95_ms <= 60000", "failed <= 0"]
    assert ragauge.gate(folder / "bm25", rules, baseline="fixed").passed
    assert ragauge.gate(folder / "bm25", rules, baseline=folder / "fixed").passed
    with pytest.raises(BadInput, match="expected one run, got"):
        ragauge.gate(folder, rules)


def make_repeated_run(*rankings, status=None):
    """Build a run with these rankings of query q, one per repeat; query r always has the same ranking."""
    rows = [
        (query, repeat, doc, rank + 1, -float(rank))
        for repeat, docs in enumerate(rankings)
        for query, ranking in (("q", docs), ("r", "a"))
        for rank, doc in enumerate(ranking)
    ]
    table = pl.DataFrame(rows, ["query", "repeat", "doc", "rank", "score"], orient="row")
    first_repeat = table.filter(pl.col("repeat") == 0).drop("repeat")
    return Run(first_repeat, "shaky", None, {}, table.filter(pl.col("repeat") > 0))


def test_gate_differing_repeats_use_mean_per_query():
    qrels = {"q": {"a": 1}, "r": {"a": 1}}
    shaky = make_repeated_run("a", "xa", "xyza", "xyzw")
    result = ragauge.gate(
        shaky, ["mrr >= 0.7", "num_rel_ret >= 1.7", "gm_map > 0.5", "f1(of=means)@1 > 0.6"], qrels=qrels
    )
    q = (1 + 1 / 2 + 1 / 4 + 0) / 4
    gm_map = sum(math.sqrt(value) for value in (1, 1 / 2, 1 / 4, 1e-5)) / 4  # one per trial; 1e-5 is the least value
    means = [(q + 1) / 2, 0.75 + 1, gm_map, (1 + 3 * 0.5) / 4]
    assert [check.value for check in result.checks[:4]] == pytest.approx(means)
    assert (
        "shaky: mean over 4 trials, whose rankings differ (mrr 0.5000 to 1.0000, num_rel_ret 1.0000 to 2.0000, "
        "gm_map 0.0032 to 1.0000 and 1 more)" in result.notes
    )
    base = make_repeated_run("a", "a")
    against = ragauge.gate(shaky, "mrr drop <= 0.999", qrels=qrels, baseline=base)
    assert against.checks[0].difference == pytest.approx((q - 1) / 2)
    assert not any("trials" in note for note in ragauge.gate(base, "mrr >= 1", qrels=qrels).notes)


@pytest.mark.parametrize("convention", ["default", "trec9"])
def test_gate_query_missing_in_one_repeat_is_missing(convention):
    result = ragauge.gate(
        make_repeated_run("a", ""), ["mrr >= 0.001"], qrels={"q": {"a": 1}, "r": {"a": 1}}, convention=convention
    )
    assert checks_by_rule(result)["missing <= 0"].reason == "the run lacks 1 of 2 judged queries (q)"
    assert checks_by_rule(result)["mrr >= 0.001"].value == (0.75 if convention == "default" else 1)


def test_gate_experiment_uses_all_repeats(tmp_path):
    chance = random.Random(1)

    def shaky(query, k):
        return [f"d{i:05}" for i in chance.sample(range(60), k)]

    data = "synthetic:needles(documents=60, queries=12)"
    options = {"k": 20, "repeats": 3, "warmup": 0}
    result = ragauge.run(data, {"shaky": shaky}, measures=["recall@20", "mrr"], out=tmp_path / "runs", **options)
    trials = [
        ragauge.evaluate(result.dataset.judgments, trial, ["recall@20"]).means["recall@20"]
        for trial in result.runs["shaky"].trials()
    ]
    assert len(set(trials)) > 1
    for run in (result, tmp_path / "runs" / "shaky"):
        gate = ragauge.gate(run, "recall@20 >= 0.001")
        assert gate.checks[0].value == pytest.approx(np.mean(trials))
        assert any("shaky: mean over 3 trials, whose rankings differ" in note for note in gate.notes)


def test_gate_stratum_tagged_only_in_baseline_fails(experiment, tmp_path):
    from ragauge.files.writers import write_queries

    def copy(name, tags):
        for file in ("manifest.json", "run.parquet", "timings.parquet"):
            target = tmp_path / name / "bm25" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((experiment.folder / "bm25" / file).read_bytes())
        (tmp_path / name / "judgments.parquet").write_bytes((experiment.folder / "judgments.parquet").read_bytes())
        write_queries(experiment.dataset.queries, tags, str(tmp_path / name / "queries.parquet"))
        return tmp_path / name / "bm25"

    queries = list(experiment.dataset.queries)
    old = copy("old", {query: {"lang": "de" if i % 2 else "en"} for i, query in enumerate(queries)})
    new = copy("new", {query: {"lang": "en"} for query in queries})
    result = ragauge.gate(new, "recall@5 >= 0.001 by lang", baseline=old)
    assert [(check.rule.value, check.passed) for check in result.checks[:2]] == [("de", False), ("en", True)]


def test_gate_change_interval_stays_within_bounds_of_measure():
    qrels = {f"q{i}": {"a": 1} for i in range(6)}
    old = {query: {"a": 2.0} if i < 2 else {"b": 2.0, "a": 1.0} for i, query in enumerate(qrels)}
    new = {query: {"b": 2.0} if i < 5 else {"b": 2.0, "a": 1.0} for i, query in enumerate(qrels)}
    check = ragauge.gate(new, "mrr drop <= 99%", qrels=qrels, baseline=old).checks[0]
    differences = np.array([-1.0, -1.0, -0.5, -0.5, -0.5, 0.0])
    low, high = t_interval(differences, 0.9)
    assert low < -check.baseline < high < 0  # the unlimited interval has changes to less than 0
    assert check.ci == pytest.approx((-check.baseline, high))


def test_gate_accepts_score_tables(tmp_path):
    (tmp_path / "new.csv").write_text("query,faithfulness\n" + "".join(f"q{i},0.{i}\n" for i in range(6)))
    (tmp_path / "old.csv").write_text("query,faithfulness\n" + "".join(f"q{i},0.{i}\n" for i in range(7)))
    new, old = str(tmp_path / "new.csv"), str(tmp_path / "old.csv")
    assert ragauge.gate(new, "faithfulness >= 0.25").passed
    (tmp_path / "same.csv").write_bytes((tmp_path / "old.csv").read_bytes())
    assert ragauge.gate(old, "faithfulness not worse", baseline=str(tmp_path / "same.csv")).passed
    assert not ragauge.gate(new, "faithfulness not worse", baseline=old).passed


# Reports


def make_check(**changes):
    rule = Rule(Indicator("mrr"), "limit", ">=", 0.4)
    return RuleCheck(
        **{"rule": rule, "passed": False, "reason": "too low", "value": 0.39996, "limit": 0.4, "n": 3, **changes}
    )


def test_format_value_and_limit_has_digits_that_distinguish_them():
    assert format_value_and_limit(make_check()) == ("0.39996", "0.40000")
    assert format_value_and_limit(make_check(value=0.5)) == ("0.5000", "0.4000")
    assert format_value_and_limit(make_check(value=math.nan, limit=math.nan)) == ("-", "-")


def test_gate_report_has_reason_of_failed_rule_in_every_format():
    gate = Gate("run", [make_check(reason="no <b> here"), make_check(passed=True, reason="")])
    report = build_report(gate)
    assert report.summary == "run FAILED 1 of 2 rules."
    (table,) = report.sections[1].blocks
    assert list(table.rows) == [["mrr >= 0.4", "no <b> here"]]
    assert "| mrr >= 0.4 | no &lt;b> here |" in format_results(gate, "markdown")
    assert "no <b> here" in format_results(gate, "csv")
    assert "no \\textless{}b\\textgreater{} here" in format_results(gate, "latex")
    assert "no &lt;b&gt; here" in format_results(gate, "html")


@pytest.mark.parametrize(
    ("kind", "passed", "wording"),
    [
        ("not worse", True, "being worse is not shown"),
        ("not worse", False, "being worse is shown"),
        ("better", True, "being better is shown"),
        ("better", False, "being better is not shown"),
        ("non-inferior", True, "being worse by 4% is ruled out"),
        ("non-inferior", False, "being worse by 4% is not ruled out"),
    ],
)
def test_describe_test_outcome_in_words_and_numbers(kind, passed, wording):
    rule = Rule(Indicator("mrr"), kind, limit=4, percent=kind == "non-inferior")
    check = make_check(rule=rule, passed=passed, limit=math.nan, baseline=0.5, difference=-0.1, ci=(-0.2, 0.05), p=0.25)
    change, interval = ("-20.0%", "[-40.0%, +10.0%]") if rule.percent else ("-0.1000", "[-0.2000, +0.0500]")
    assert describe_test_outcome(check) == wording
    junit = render_gate_junit(Gate("run", [check])).decode()
    assert f"baseline 0.5000, change {change} {interval}; {wording}, p 0.250" in junit
    (table,) = build_report(Gate("run", [check])).sections[0].blocks
    assert table.texts()[0][5:] == ["0.5000", change, interval, "0.250"]


def test_render_gate_junit_escapes_invalid_characters():
    rule = Rule(Indicator("mrr"), "limit", ">=", 0.4, tag="x", value="<&\x00\x1b\ud800\"'\n>")
    gate = Gate("r\x07un", [make_check(rule=rule, reason="a < b & \x00 c"), make_check(passed=True, reason="")])
    root = ElementTree.fromstring(render_gate_junit(gate))
    assert (root.tag, root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == (
        "testsuites",
        "2",
        "1",
        "0",
    )
    (suite,) = root
    bad, good = suite.findall("testcase")
    assert bad.find("failure").attrib["message"] == "a < b & \ufffd c"
    assert good.find("failure") is None
    error = GateError.describe(Incomparable("two\x00 things", hint="<one>"))
    failed = ElementTree.fromstring(render_gate_junit(Gate("run", [], error=error)))
    assert failed.attrib["errors"] == "1"
    assert failed.find("testsuite/testcase/error").attrib["type"] == "Incomparable"


def test_gate_markdown_is_escaped():
    rule = Rule(Indicator("mrr"), "limit", ">=", 0.4, tag="x", value="a|b<script>")
    text = format_results(Gate("run", [make_check(rule=rule)]), "markdown")
    assert "| **FAIL** | mrr >= 0.4 in x=a\\|b&lt;script> | 0.39996 | 0.40000 | 3 |" in text


def test_gate_json_round_trip(tmp_path):
    by_topic = Rule(Indicator("p95_ms", "latency", True, unit="ms"), "rise", "<=", 10, tag="x", value="a")
    error = GateError("BadInput", "no such file", "check the path")
    for gate in (Gate("run", [make_check(), make_check(rule=by_topic, value=math.nan)]), Gate("run", [], error=error)):
        ragauge.report(gate, tmp_path / "gate.json")
        (restored,) = read_results(tmp_path / "gate.json")
        assert repr(restored) == repr(gate)
        assert [check.rule for check in restored.checks] == [check.rule for check in gate.checks]
        assert restored.error == gate.error
    assert not restored.passed


# Command line


@pytest.fixture
def gate_command(tmp_path):
    """Write judgments and runs to a folder; return a function that runs `gate` there."""
    queries = [f"q{i}" for i in range(8)]
    (tmp_path / "qrels.txt").write_text("".join(f"{q} 0 a 1\n" for q in queries))
    (tmp_path / "new.run").write_text("".join(f"{q} Q0 a 1 2 new\n{q} Q0 b 2 1 new\n" for q in queries))
    old = "".join(f"{q} Q0 {'ab'[i % 2]} 1 2 old\n{q} Q0 {'ba'[i % 2]} 2 1 old\n" for i, q in enumerate(queries))
    (tmp_path / "old.run").write_text(old)
    (tmp_path / "short.run").write_text("".join(f"{q} Q0 a 1 2 short\n" for q in queries[1:]))
    (tmp_path / "empty.run").write_text("")

    return command_in(tmp_path, "gate")


def test_cli_gate_pass_prints_table_and_exits_with_0(gate_command):
    process = gate_command("qrels.txt", "new.run", "-b", "old.run", "-r", "mrr >= 0.9", "-r", "ndcg@10 not worse")
    assert process.stdout.splitlines() == [
        "Gate: new, convention default",
        "new passed 3 rules (baseline old).",
        "",
        "Rules",
        "      rule                value   limit  n  baseline   change        90% interval      p",
        "pass  mrr >= 0.9         1.0000  0.9000  8         -        -                   -      -",
        "pass  ndcg@10 not worse  1.0000       -  8    0.8155  +0.1845  [+0.0524, +0.1845]  0.983",
        "pass  missing <= 0            0       0  8         -        -                   -      -",
    ]


def test_cli_gate_failed_rule_exits_with_1_and_reason(gate_command):
    process = gate_command(
        "qrels.txt", "old.run", "-b", "new.run", "-r", "mrr drop <= 1%", "-r", "mrr not worse", code=1
    )
    assert "FAIL  mrr drop <= 1%  0.7500  0.9900  8    1.0000   -25.0%     [-42.9%, -7.1%]" in process.stdout
    assert "mrr drop <= 1%  dropped by 0.25 (25.0%) from 1" in process.stdout
    assert gate_command("qrels.txt", "short.run", "-r", "mrr >= 0.1", code=1).stdout.count("FAIL  ") == 1
    assert "no baseline" in gate_command("qrels.txt", "new.run", "-r", "mrr better", code=1).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["qrels.txt", "new.run"], "no rules given"),
        (["qrels.txt", "new.run", "-r", "mrr => 0.4"], "cannot be read from"),
        (["qrels.txt", "new.run", "-r", "mmr >= 0.4"], "did you mean `mrr`"),
        (["qrels.txt", "none.run", "-r", "mrr >= 0.4"], "none.run"),
        (["qrels.txt", "empty.run", "-r", "mrr >= 0.001"], "no rows"),
        (["qrels.txt", "new.run", "-b", "none.run", "-r", "mrr >= 0.4"], "none.run"),
        (["new.run", "-r", "mrr >= 0.4"], "no run given"),
        (["qrels.txt", "new.run", "old.run", "-r", "mrr >= 0.4"], "expected QRELS and one RUN, got 3 files"),
        (["qrels.txt", "new.run", "--rules", "none.toml"], "no such file"),
        (["qrels.txt", "new.run", "-r", "mrr >= 0.4", "--junit", "-"], "cannot write to standard output"),
        (["qrels.txt", "new.run", "-r", "mrr >= 0.4", "-C", "default,ties"], "must be OPTION=VALUE"),
    ],
)
def test_cli_gate_invalid_input_exits_with_2(gate_command, arguments, message):
    assert message in gate_command(*arguments, code=2).stderr


def test_cli_gate_incomparable_exits_with_4_and_writes_error_files(gate_command, experiment, tmp_path):
    other = "synthetic:needles(documents=60, queries=12, seed=1)"
    ragauge.run(other, {"bm25": "bm25"}, k=5, out=tmp_path / "other")
    files = ["--junit", "gate.xml", "-o", "gate.md"]
    rules = ["-r", "recall@5 not worse", *files]
    process = gate_command(experiment.folder / "bm25", "-b", tmp_path / "other" / "bm25", *rules, code=4)
    assert "not the same documents" in process.stderr
    assert process.stdout == ""
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().attrib["errors"] == "1"
    assert "the rules could not be evaluated" in (tmp_path / "gate.md").read_text()
    assert gate_command(experiment.folder / "bm25", "-b", "fixed", *rules).returncode == 0
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().attrib["errors"] == "0"


def test_cli_gate_json_has_null_for_nan(gate_command):
    process = gate_command("qrels.txt", "new.run", "-r", "mrr not worse", "-r", "p95_ms <= 5", "--json", code=1)
    result = json.loads(process.stdout)
    assert result["passed"] is False
    assert [check["reason"] != "" for check in result["checks"]] == [True, True, False, True]
    assert result["schema"] == "ragauge-gate/1"
    check = result["checks"][0]
    assert check.pop("rule")["kind"] == "not worse"
    assert check | {"reason": ""} == {
        "rule_text": "mrr not worse",
        "passed": False,
        "value": 1.0,
        "limit": None,
        "n": 8,
        "baseline": None,
        "difference": None,
        "ci": [None, None],
        "p": None,
        "detectable": None,
        "reason": "",
    }


def test_cli_gate_options_override_rules_file(gate_command, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.run").write_text((tmp_path / "old.run").read_text())
    (tmp_path / "sub" / "gate.toml").write_text(
        'baseline = "base.run"\nalpha = 0.01\nrules = ["mrr >= 0.9"]\nconvention = "default,ties=ranked"\n'
        '[measures."ndcg@10"]\nat_least = 0.5\nnot_worse = true\n'
    )
    result = json.loads(
        gate_command("qrels.txt", "new.run", "--rules", "sub/gate.toml", "-r", "map > 0", "--json").stdout
    )
    assert [check["rule_text"] for check in result["checks"]] == [
        "mrr >= 0.9",
        "ndcg@10 >= 0.5",
        "ndcg@10 not worse",
        "map > 0",
        "missing <= 0",
    ]
    assert (result["alpha"], result["baseline"], result["convention"]) == (0.01, "base", "default, ties=ranked")
    with_options = gate_command(
        "qrels.txt", "new.run", "--rules", "sub/gate.toml", "--alpha", "0.1", "-b", "old.run", "--json"
    )
    assert (json.loads(with_options.stdout)["alpha"], json.loads(with_options.stdout)["baseline"]) == (0.1, "old")
    python = ragauge.gate(tmp_path / "new.run", tmp_path / "sub" / "gate.toml", qrels=tmp_path / "qrels.txt")
    assert python.passed
    assert (python.alpha, python.baseline, python.convention) == (0.01, "base", "default, ties=ranked")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = ['mrr >= 1']", "did you mean `rules`"),
        ("rules = 'mrr >= 1'", "must be list, got"),
        ("rules = [1]", "cannot be read from list"),
        ("alpha = true", "must be int or float, got"),
        ("rules = [", "the TOML cannot be read"),
        ("[measures.mrr]\nat_last = 1", "did you mean `at_least`"),
    ],
)
def test_read_gate_file_invalid_content_raises_error(tmp_path, text, message):
    path = tmp_path / "gate.toml"
    path.write_text(text)
    with pytest.raises(ragauge.RagaugeError, match=message) as error:
        read_gate_file(str(path))
    assert "gate.toml" in str(error.value) or "at_least" in message


def test_cli_gate_tags_from_table(gate_command, tmp_path):
    (tmp_path / "tags.csv").write_text(
        "query_id,lang\n" + "".join(f"q{i},{'de' if i % 2 else 'en'}\n" for i in range(8))
    )
    process = gate_command("qrels.txt", "old.run", "-r", "mrr >= 0.9 by lang", "--tags", "tags.csv", code=1)
    assert re.findall(r"(pass|FAIL)  mrr >= 0.9 in lang=(\w+)", process.stdout) == [("FAIL", "de"), ("pass", "en")]


def test_ci_examples_are_valid_and_match_docs():
    page = (ROOT / "docs" / "gates.md").read_text()
    examples = ROOT / "examples" / "ci"
    for file, language in (("gate.toml", "toml"), ("gate.yml", "yaml")):
        assert f"```{language}\n{(examples / file).read_text()}```" in page
    settings = read_gate_file(str(examples / "gate.toml"))
    assert [str(parse_text(text)) for text in settings["rules"]][-2:] == ["map >= 0.3", "map non-inferior by 0.15"]
    steps = pytest.importorskip("yaml").safe_load((examples / "gate.yml").read_text())["jobs"]["gate"]["steps"]
    assert "ragauge gate runs/handbook/mine --rules gate.toml" in " ".join(step.get("run", "") for step in steps)


# pytest plugin and incomplete runs


def run_pytest(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.docs
def test_pytest_plugin_docs_example_works(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "gates.md").read_text(), re.S)
    (example,) = [block for block in blocks if "ragauge_gate" in block]
    (tmp_path / "test_search.py").write_text(example)
    no_plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    process = run_pytest(tmp_path, "-p", "ragauge.cli.pytest_plugin", **no_plugins)
    assert process.returncode == 0, process.stdout
    (tmp_path / "test_search.py").write_text(example.replace(">= 0.9", "> 1"))
    process = run_pytest(tmp_path, "-p", "ragauge.cli.pytest_plugin", **no_plugins)
    assert process.returncode == 1
    assert "mrr > 1: 1 is not above 1" in process.stdout
    assert "pytest_plugin.py" not in process.stdout
    assert "gates.py" not in process.stdout


def test_pytest_plugin_is_found_by_entry_point(tmp_path):
    metadata = tmp_path / "site" / "somebody-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nragauge_by_hand = ragauge.cli.pytest_plugin\n")
    (tmp_path / "test_it.py").write_text("def test_it(ragauge_gate):\n    assert callable(ragauge_gate)\n")
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    assert run_pytest(tmp_path, "-p", "ragauge_by_hand", **environment).returncode == 0
    assert "fixture 'ragauge_gate' not found" in run_pytest(tmp_path, "-p", "no:ragauge_by_hand", **environment).stdout


def test_pytest_plugin_imports_no_heavy_modules():
    code = "import ragauge.cli.pytest_plugin, sys; print([m for m in ('numpy', 'polars', 'rich') if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_gate_system_without_results_fails(tmp_path):
    def broken(query, k):
        raise RuntimeError("down")

    data = ragauge.load("synthetic:needles(documents=40, queries=10)")
    systems = {"broken": broken, "empty": lambda q, k: [], "bm25": "bm25"}
    ragauge.run(data, systems, out=tmp_path / "x", allow_failures=True)
    result = ragauge.gate(str(tmp_path / "x" / "broken"), ["unjudged@10 <= 0.1", "build_seconds <= 500"])
    assert [check.passed for check in result.checks] == [False, True, True, False]
    assert "10 queries without any document count as 0" in result.checks[0].reason
    assert str(result.checks[-1].rule) == "failed <= 0"
    empty = ragauge.gate(
        str(tmp_path / "x" / "empty"), ["num_nonrel_judged_ret <= 3", "unjudged@10 not worse"], baseline="bm25"
    )
    assert not any(check.passed for check in empty.checks[:2])
    assert ragauge.gate(str(tmp_path / "x" / "bm25"), ["recall@10 >= 0.1"]).passed


def test_gate_queries_not_run_are_missing(tmp_path):
    data = "synthetic:needles(documents=40, queries=10)"
    ragauge.run(data, {"bm25": "bm25"}, max_queries=4, out=tmp_path / "x")
    result = ragauge.gate(str(tmp_path / "x" / "bm25"), ["recall@10 >= 0.1"])
    assert [check.reason for check in result.failed] == ["the run lacks 6 of 10 judged queries, which were not run"]
    assert ragauge.gate(str(tmp_path / "x" / "bm25"), ["recall@10 >= 0.1", "missing <= 6"]).passed


def test_gate_stratum_only_in_tags_fails():
    qrels = {f"q{i}": {"a": 1} for i in range(6)}
    tags = {f"q{i}": {"area": "a" if i < 6 else "b"} for i in range(9)}
    result = ragauge.gate({query: {"a": 1.0} for query in qrels}, ["mrr >= 0.5 by area"], qrels=qrels, tags=tags)
    assert [(str(check.rule), check.passed) for check in result.checks[:2]] == [
        ("mrr >= 0.5 in area=a", True),
        ("mrr >= 0.5 in area=b", False),
    ]


def test_gate_rounding_difference_is_no_loss(tmp_path):
    for name, value in (("old", 0.1 + 0.2), ("new", 0.3)):
        rows = [f"{i},{value!r}" for i in range(20)]
        (tmp_path / f"{name}.csv").write_text("query,mrr\n" + "\n".join(rows) + "\n")
    result = ragauge.gate(tmp_path / "new.csv", ["mrr not worse", "mrr drop <= 0"], baseline=tmp_path / "old.csv")
    assert result.passed


@pytest.mark.parametrize(
    "settings",
    [{"alpha": "x"}, {"min_queries": "3"}, {"tags": 5}, {"convention": "nothing"}],
    ids=lambda options: next(iter(options)),
)
def test_gate_settings_of_wrong_type_raise_error(settings):
    with pytest.raises(ragauge.RagaugeError):
        ragauge.gate({"q": {"a": 1.0}}, ["mrr >= 0.5"], qrels={"q": {"a": 1}}, **settings)


# Rules that cannot fail or cannot pass


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("ndcg@10 drop <= 5", "cannot fail: ndcg@10 ranges from 0 to 1, so it changes by at most 1"),
        ("ndcg@10 drop <= 1", "cannot fail: ndcg@10 ranges from 0 to 1"),
        ("ndcg@10 drop <= 100%", "cannot fail: ndcg@10 cannot fall by more than 100%"),
        ("ndcg@10 non-inferior by 5", "cannot fail: ndcg@10 ranges from 0 to 1"),
        ("unjudged@10 rise <= 1", r"cannot fail: unjudged@10 ranges from 0 to 1"),
        ("ndcg@10 >= 0", "cannot fail: ndcg@10 ranges from 0 to 1"),
        ("ndcg@10 > -1", "cannot fail: ndcg@10 ranges from 0 to 1"),
        ("ndcg@10 > 1.5", "cannot pass: ndcg@10 is at most 1"),
        ("ndcg@10 <= -0.1", "cannot pass: ndcg@10 is at least 0"),
        ("unjudged@10 <= 20", "cannot fail: unjudged@10 ranges from 0 to 1"),
        ("p95_ms >= 0", "cannot fail: p95_ms ranges from 0"),
        ("failed <= 100%", "cannot fail: failed ranges from 0% to 100%"),
    ],
)
def test_gate_rule_that_cannot_fail_raises_error(rule, message):
    with pytest.raises(BadInput, match=message):
        ragauge.gate(COMPLETE_RUN, rule, qrels=QRELS, baseline=INCOMPLETE_RUN)


@pytest.mark.parametrize(
    "rule",
    [
        "ndcg@10 drop <= 0.99",
        "dcg@10 drop <= 5",
        "mrr > 0",
        "mrr >= 1",
        "num_rel_ret drop <= 100",
        "p95_ms rise <= 900%",
    ],
)
def test_gate_rule_that_can_fail_is_accepted(rule):
    assert ragauge.gate(COMPLETE_RUN, rule, qrels=QRELS, baseline=dict(COMPLETE_RUN)).checks


def test_gate_score_table_of_percentages_sets_range(tmp_path):
    for name in ("new", "old"):
        (tmp_path / f"{name}.csv").write_text("query,recall\n" + "".join(f"q{i},{50 + i}\n" for i in range(6)))
    assert ragauge.gate(tmp_path / "new.csv", ["recall drop <= 5", "recall >= 40"], baseline=tmp_path / "old.csv")


@pytest.mark.parametrize("alpha", [1e-300, 1e-4])
def test_gate_too_small_alpha_raises_error(alpha):
    with pytest.raises(BadInput, match="alpha must be between 0\\.001 and 0\\.25, got"):
        ragauge.gate(COMPLETE_RUN, "mrr not worse", qrels=QRELS, baseline=INCOMPLETE_RUN, alpha=alpha)


def test_gate_run_as_its_own_baseline_raises_error(tmp_path, gate_command):
    (tmp_path / "link.run").symlink_to(tmp_path / "new.run")
    for baseline in ("new.run", "./new.run", "link.run"):
        process = gate_command("qrels.txt", "new.run", "-b", baseline, "-r", "mrr not worse", code=2)
        assert "the run is its own baseline" in " ".join(process.stderr.split())
    with pytest.raises(BadInput, match="its own baseline"):
        ragauge.gate(COMPLETE_RUN, "mrr not worse", qrels=QRELS, baseline=COMPLETE_RUN)


def test_gate_stratified_rule_that_covers_few_queries_raises_error():
    run, old = make_scores(mrr=[0.5] * 40), make_scores("old", mrr=[0.5] * 40)
    two_tags = {f"q{i}": {"topic": "a"} for i in range(2)}
    with pytest.raises(BadInput, match="covers 2 of 40 queries: the others have no `topic`; expected at least 50%"):
        ragauge.gate(run, "mrr drop <= 0.1 by topic", baseline=old, tags=two_tags)
    assert ragauge.gate(run, "mrr drop <= 0.1 in topic=a", baseline=old, tags=two_tags)
    assert ragauge.gate(
        run, "mrr drop <= 0.1 by topic", baseline=old, tags={f"q{i}": {"topic": "a"} for i in range(20)}
    )


def test_gate_latency_test_with_too_few_queries_fails():
    run = make_scores(mrr=[1.0] * 6)
    slow, quick = make_timings([9.0] * 6), make_timings([1.0] * 6)
    settings = {"baseline": make_scores("old", mrr=[1.0] * 6), "timings": slow, "baseline_timings": quick}
    result = ragauge.gate(run, "mean_ms not worse", alpha=0.01, **settings)
    assert result.checks[0].reason == "6 queries are too few for a test of times at alpha 0.01"
    assert not ragauge.gate(run, "mean_ms not worse", alpha=0.05, **settings)


# Changed corpus


def make_run_folder(tmp_path, name, documents, queries, best=1):
    """Create a run folder with its own corpus; the relevant document of each query is at rank `best`."""
    corpus = [Document(f"d{i}", f"word{i}") for i in range(documents)]
    query_texts = {f"q{i}": f"word{i}" for i in range(queries)}
    grades = {query: {f"d{i}": 1} for i, query in enumerate(query_texts)}

    def search(query, k):
        number = query.strip().removeprefix("word")
        others = [f"d{i}" for i in range(documents) if str(i) != number]
        return [*others[: best - 1], f"d{number}", *others[best - 1 :]][:k]

    data = Dataset("docs", corpus, query_texts, Judgments(grades))
    ragauge.run(data, {"mine": search}, measures=["mrr@10"], out=tmp_path / name, warmup=0)
    return str(tmp_path / name / "mine")


def test_gate_changed_corpus_compares_common_queries(tmp_path):
    old, new = make_run_folder(tmp_path, "old", 30, 10), make_run_folder(tmp_path, "new", 40, 12)
    with pytest.raises(Incomparable, match="not the same documents") as refused:
        ragauge.gate(new, "mrr@10 not worse", baseline=old)
    assert "--allow-changed-corpus" in str(refused.value)
    result = ragauge.gate(new, ["mrr@10 drop <= 0.01", "mrr@10 >= 0.9"], baseline=old, allow_changed_corpus=True)
    assert result.passed
    assert [check.n for check in result.checks[:2]] == [10, 12]
    assert result.notes[0] == (
        "changed corpus (30 documents, now 40): rules about a change are computed on the 10 queries of both runs; "
        "left out: 2 only in the run"
    )
    assert "not whether the system or the documents changed them" in result.notes[1]
    worse = make_run_folder(tmp_path, "worse", 40, 12, best=3)
    assert not ragauge.gate(worse, "mrr@10 not worse", baseline=old, allow_changed_corpus=True)


def test_gate_same_corpus_has_no_changed_corpus_note(tmp_path):
    old, new = make_run_folder(tmp_path, "old", 30, 10), make_run_folder(tmp_path, "new", 30, 10)
    result = ragauge.gate(new, ["mrr@10 drop <= 0.01", "documents drop <= 0"], baseline=old, allow_changed_corpus=True)
    assert result.passed
    assert not [note for note in result.notes if "corpus" in note]


def test_gate_documents_rule_fails_if_corpus_loses_one(tmp_path):
    old, new = make_run_folder(tmp_path, "old", 30, 10), make_run_folder(tmp_path, "new", 29, 10)
    rules = ["documents drop <= 0", "documents >= 30", "documents drop <= 5%"]
    result = ragauge.gate(new, rules, baseline=old, allow_changed_corpus=True)
    assert [(check.passed, check.value) for check in result.checks[:3]] == [(False, 29), (False, 29), (True, 29)]
    unknown = ragauge.gate({"q": {"a": 1.0}}, "documents >= 1", qrels={"q": {"a": 1}})
    assert "the number of documents is unknown" in unknown.checks[0].reason


def test_gate_changed_corpus_fails_if_queries_are_missing(tmp_path):
    old, new = make_run_folder(tmp_path, "old", 30, 10), make_run_folder(tmp_path, "new", 40, 8)
    result = ragauge.gate(new, "mrr@10 drop <= 0.01", baseline=old, allow_changed_corpus=True)
    assert checks_by_rule(result)["missing <= 0"].reason.startswith("the run lacks 2 of 10 judged queries")
    assert checks_by_rule(result)["mrr@10 drop <= 0.01"].passed


def test_cli_gate_changed_corpus_option_and_file_setting(tmp_path, gate_command):
    old, new = make_run_folder(tmp_path, "old", 30, 10), make_run_folder(tmp_path, "new", 40, 12)
    process = gate_command(new, "-b", old, "-r", "mrr@10 not worse", "--allow-changed-corpus")
    assert "computed on the 10 queries of both runs" in " ".join(process.stderr.split())
    (tmp_path / "changed.toml").write_text('rules = ["mrr@10 not worse"]\nallow_changed_corpus = true\n')
    gate_command(new, "-b", old, "--rules", tmp_path / "changed.toml")
    gate_command(new, "-b", old, "-r", "mrr@10 not worse", code=4)


def test_cli_gate_missing_baseline_hints_how_to_create_one(tmp_path, gate_command):
    process = gate_command("qrels.txt", "new.run", "-b", "baselines/docs/mine", "-r", "mrr not worse", code=2)
    output = " ".join(process.stderr.split())
    assert "baselines/docs/mine: the baseline does not exist; expected an earlier run" in output
    assert "ragauge run DATASET -s NAME=SYSTEM --save-baseline baselines/docs" in output
    process = gate_command("qrels.txt", "new.run", "-r", "mrr not worse", code=1)
    output = " ".join((process.stdout + process.stderr).split())
    assert "no baseline given; name an earlier run with --baseline" in output
    assert "ragauge run DATASET -s NAME=SYSTEM --save-baseline baselines/docs" in output


@pytest.mark.parametrize(
    ("setting", "rule"),
    [({"alpha": 0.01}, "mrr >= 0.4"), ({"correction": "holm"}, "mrr better"), ({"min_queries": 3}, "mrr drop <= 0.9")],
    ids=["alpha", "correction", "min_queries"],
)
def test_gate_setting_without_rule_that_uses_it_raises_error(setting, rule):
    name = next(iter(setting))
    with pytest.raises(BadInput, match=f"{name} has no effect on these rules; expected .*`mrr not worse`") as caught:
        ragauge.gate(COMPLETE_RUN, rule, qrels=QRELS, baseline=INCOMPLETE_RUN, **setting)
    assert caught.value.hint == f"remove --{name.replace('_', '-')}"
    ragauge.gate(COMPLETE_RUN, "mrr not worse", qrels=QRELS, baseline=INCOMPLETE_RUN, **setting)


def test_gate_empty_counts_queries_without_documents(tmp_path):
    qrels = {f"q{i}": {"d1": 1} for i in range(4)}
    run = {"q0": {"d1": 1.0}, "q1": {"d2": 1.0}, "q2": {}}
    gate = ragauge.gate(ragauge.evaluate(qrels, run, ["mrr"]), ["empty <= 1", "empty <= 50%", "missing <= 9"])
    assert [(check.passed, check.value) for check in gate.checks[:2]] == [(False, 2), (True, 2)]
    assert gate.checks[0].reason == "the run has no document for 2 of 4 judged queries (q2, q3)"
