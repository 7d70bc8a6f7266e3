"""Gates on judged samples: a run without scores fails, and unscored samples fail unless a rule allows them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import ragauge
from judged_builder import FAITHFULNESS, RELEVANCE, UNREADABLE, make_judged, scores
from ragauge.core.errors import BadInput, Incomparable, UnknownName
from ragauge.evaluation.indicators import Indicator, find_indicator
from ragauge.gates.rule_grammar import parse_rule
from ragauge.measures.conventions import PRESETS

NAN = math.nan
QUERIES = [f"q{i}" for i in range(10)]


def make_faithfulness_run(values, **options):
    """Build judged samples with these faithfulness values; topics alternate between even and odd."""
    result = make_judged(scores=scores({FAITHFULNESS: values}, QUERIES[: len(values)], **options), intervals={})
    topics = {query: {"topic": "odd" if i % 2 else "even"} for i, query in enumerate(QUERIES[: len(values)])}
    samples = [replace(result.samples[0], id=name, metadata=metadata) for name, metadata in topics.items()]
    return replace(result, samples=samples)


def checks_by_rule(run, rules, **options):
    return {str(check.rule): check for check in ragauge.gate(run, rules, **options)}


def test_parse_rule_unscored_names_measure_in_parentheses():
    rule = parse_rule("UNSCORED( Recall@5 ) <= 5 %", lambda name: find_indicator(name, PRESETS["default"]))
    assert str(rule) == "unscored(recall@5) <= 5%"
    assert (rule.indicator.measure, rule.indicator.source, rule.indicator.lower_is_better) == (
        "recall@5",
        "count",
        True,
    )
    nested = find_indicator("unscored(recall(of=capped)@5)", PRESETS["default"])
    assert nested.measure == "recall(of=capped)@5"
    assert Indicator("p95_ms", "latency").measure == ""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("unscored(p95_ms) <= 0", BadInput),
        ("unscored(nonsense) <= 0", UnknownName),
        ("unscored(faithfulness) not worse", BadInput),
        ("unscored(faithfulness) drop <= 0.999", BadInput),
    ],
)
def test_gate_unscored_invalid_rule_raises_error(text, error):
    with pytest.raises(error):
        ragauge.gate(make_faithfulness_run([1.0]), [text])


def test_gate_unscored_sample_fails_mean_rule():
    result = checks_by_rule(make_faithfulness_run([1.0] * 9 + [NAN]), ["faithfulness >= 0.8"])
    assert not result["faithfulness >= 0.8"].passed
    assert result["faithfulness >= 0.8"].reason == f"1 query has no faithfulness (q9): {UNREADABLE}"
    assert result["missing <= 0"].passed  # q9 is in the run, but is unscored


def test_gate_unscored_allowance_means_over_scored_samples():
    result = checks_by_rule(
        make_faithfulness_run([1.0] * 9 + [NAN]), ["faithfulness >= 0.8", "unscored(faithfulness) <= 10%"]
    )
    assert all(check.passed for check in result.values())
    assert (result["faithfulness >= 0.8"].value, result["faithfulness >= 0.8"].n) == (1.0, 9)
    share = result["unscored(faithfulness) <= 10%"]
    assert (share.value, share.limit, share.n) == (1, 1.0, 10)


def test_gate_unscored_beyond_allowance_fails_both_rules():
    result = checks_by_rule(
        make_faithfulness_run([1.0] * 8 + [NAN, NAN]), ["faithfulness >= 0.8", "unscored(faithfulness) <= 1"]
    )
    assert [check.passed for check in result.values()] == [False, False, True]


def test_gate_nothing_scored_fails_despite_allowance():
    result = checks_by_rule(
        make_faithfulness_run([NAN] * 10), ["faithfulness >= 0.001", "unscored(faithfulness) <= 10"]
    )
    assert not result["faithfulness >= 0.001"].passed
    assert result["unscored(faithfulness) <= 10"].passed


def test_gate_measure_not_judged_fails():
    run = make_faithfulness_run([1.0] * 10)
    result = checks_by_rule(
        run, ["unscored(Answer Relevancy) <= 0", "context_precision >= 0.1", "hallucination <= 0.9"]
    )
    for name in ("unscored(answer_relevance) <= 0", "context_precision >= 0.1", "hallucination <= 0.9"):
        assert not result[name].passed
        assert result[name].reason.endswith("available: faithfulness")
    with pytest.raises(UnknownName, match="unknown measure"):
        ragauge.gate(run, ["hallucinatoin <= 0"])


def test_gate_unscored_allowance_applies_to_one_measure():
    two_measures = scores({FAITHFULNESS: [1.0, NAN], RELEVANCE: [1.0, NAN]}, ["q1", "q2"])
    run = make_judged(scores=two_measures, intervals={})
    result = checks_by_rule(run, ["faithfulness >= 0.001", "answer_relevance >= 0.1", "unscored(faithfulness) <= 1"])
    assert result["faithfulness >= 0.001"].passed
    assert not result["answer_relevance >= 0.1"].passed


def test_gate_unscored_allowance_applies_in_every_stratum():
    run = make_faithfulness_run(
        [1.0, NAN, 1.0, NAN, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    )  # 2 of 10 samples are unscored, both in topic odd
    result = checks_by_rule(run, ["faithfulness >= 0.8 by topic", "unscored(faithfulness) <= 20%"])
    assert result["faithfulness >= 0.8 in topic=even"].passed
    assert not result["faithfulness >= 0.8 in topic=odd"].passed
    assert result["unscored(faithfulness) <= 20%"].passed


def test_gate_drop_pairs_samples_scored_in_both_runs():
    new = make_faithfulness_run([0.9] * 8 + [NAN, 0.0])
    base = make_faithfulness_run([0.8] * 8 + [0.0, NAN])
    result = checks_by_rule(new, ["faithfulness drop <= 0", "unscored(faithfulness) <= 10%"], baseline=base)
    drop = result["faithfulness drop <= 0"]
    assert drop.passed
    assert (drop.value, drop.baseline, drop.n) == (pytest.approx(0.9), pytest.approx(0.8), 8)
    without_allowance = checks_by_rule(new, ["faithfulness drop <= 0"], baseline=base)["faithfulness drop <= 0"]
    assert not without_allowance.passed


def test_gate_baseline_with_too_many_unscored_samples_fails():
    new, base = make_faithfulness_run([0.9] * 10), make_faithfulness_run([0.1] + [NAN] * 9)
    result = checks_by_rule(new, ["faithfulness better", "unscored(faithfulness) <= 10%"], baseline=base)
    assert not result["faithfulness better"].passed
    assert result["faithfulness better"].reason.startswith("the baseline has no value: 9 queries have no faithfulness")


def test_gate_no_common_scored_samples_fails():
    new, base = make_faithfulness_run([1.0] * 5 + [NAN] * 5), make_faithfulness_run([NAN] * 5 + [1.0] * 5)
    result = checks_by_rule(new, ["faithfulness not worse", "unscored(faithfulness) <= 50%"], baseline=base)
    assert not result["faithfulness not worse"].passed
    assert result["faithfulness not worse"].reason == "no query has a value here and in the baseline"


def test_gate_sample_missing_from_run_fails():
    result = checks_by_rule(
        make_faithfulness_run([1.0] * 4), ["faithfulness >= 0.5"], baseline=make_faithfulness_run([1.0] * 5)
    )
    assert not result["missing <= 0"].passed


def test_gate_baseline_of_other_judge_is_incomparable():
    with pytest.raises(Incomparable, match="is judged by"):
        ragauge.gate(
            make_faithfulness_run([1.0]),
            ["faithfulness not worse"],
            baseline=make_faithfulness_run([1.0], judge="lexical"),
        )


def test_gate_unscored_rule_counts_queries_of_ranking():
    qrels = {"q1": {"a": 1}, "q2": {"b": 0}}
    run = {"q1": {"a": 1.0}, "q2": {"b": 1.0}}
    result = checks_by_rule(
        run, ["recall@5 >= 0.9", "unscored(recall@5) <= 50%"], qrels=qrels, convention=PRESETS["default"]
    )
    assert result["unscored(recall@5) <= 50%"].n == 2
