"""Ranges of indicators, and the rejection of rules that cannot fail or cannot pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ragauge.core.errors import BadInput
from ragauge.core.records import Scores
from ragauge.evaluation.indicators import Indicator, measure_range
from ragauge.gates.results import Rule

MIN_ALPHA, MAX_ALPHA = 0.001, 0.25
"""Allowed range of alpha. Below the minimum, `not worse` would practically never fail."""
MIN_COVERAGE = 0.5
"""Minimum share of the judged queries that must have the tag of a rule `by TAG`."""


def indicator_range(indicator: Indicator, known_scores: Sequence[Scores] = ()) -> tuple[float, float]:
    """Return the smallest and the largest possible value of an indicator.

    Infinite if unknown, or if known scores exceed the range.

    >>> (indicator_range(Indicator("ndcg@10")), indicator_range(Indicator("dcg@10")),
    ...  indicator_range(Indicator("p95_ms", "latency")))
    ((0.0, 1.0), (0.0, inf), (0.0, inf))
    """
    if indicator.source in ("latency", "whole", "corpus", "count"):
        return 0.0, math.inf
    name = indicator.name
    return measure_range(name, [scores.values[name] for scores in known_scores if name in scores.values])


def check_rule_can_decide(rule: Rule, known_scores: Sequence[Scores] = ()) -> None:
    """Raise BadInput for a rule that passes, or fails, for every possible value."""
    low, high = indicator_range(rule.indicator, known_scores)
    name, span = rule.indicator.name, high - low
    if rule.kind == "limit":
        _check_limit_can_decide(rule, low, high)
        return
    if rule.kind not in ("drop", "rise", "non-inferior"):
        return
    if rule.percent and low == 0 and rule.kind != "rise" and not rule.indicator.lower_is_better and rule.limit >= 100:
        raise BadInput(
            f"rule `{rule}` cannot fail: {name} cannot fall by more than 100%",
            hint=f"`{_rule_text_with_limit(rule, 5)}`",
        )
    if not rule.percent and rule.limit >= span:
        raise BadInput(
            f"rule `{rule}` cannot fail: {name} ranges from {low:g} to {high:g}, so it changes by at most {span:g}",
            hint=f"use a margin below {span:g}, as in `{_rule_text_with_limit(rule, 0.05 * span)}`, or a percentage",
        )


def _check_limit_can_decide(rule: Rule, low: float, high: float) -> None:
    if rule.percent and rule.indicator.source == "count":
        high = 100.0
    is_lower_limit = rule.sign in (">=", ">")
    bound = low if is_lower_limit else high
    beyond = rule.limit < bound if is_lower_limit else rule.limit > bound
    if beyond or (rule.limit == bound and rule.sign in (">=", "<=")):
        unit = "%" * rule.percent
        greatest = "" if math.isinf(high) else f" to {high:g}{unit}"
        raise BadInput(
            f"rule `{rule}` cannot fail: {rule.indicator.name} ranges from {low:g}{unit}{greatest}",
            hint=f"use a limit above {low:g}" if is_lower_limit else f"use a limit below {high:g}{unit}",
        )
    best = high if is_lower_limit else low
    if rule.limit > best if is_lower_limit else rule.limit < best:
        raise BadInput(
            f"rule `{rule}` cannot pass: {rule.indicator.name} is at {'most' if is_lower_limit else 'least'} "
            f"{best:g}{'%' * rule.percent}",
            hint="use another limit",
        )


def _rule_text_with_limit(rule: Rule, limit: float) -> str:
    return str(Rule(rule.indicator, rule.kind, rule.sign, limit, rule.percent, rule.tag, rule.value))


def check_tag_coverage(rules: Sequence[Rule], strata: Mapping[str, Mapping[str, str]], n_judged: int) -> None:
    """Raise BadInput for a rule `by TAG` if too few judged queries have the tag.

    At least half of them must have it.
    """
    for rule in rules:
        if not rule.tag or rule.value is not None:
            continue
        tagged = len(strata[rule.tag])
        if tagged < MIN_COVERAGE * n_judged:
            raise BadInput(
                f"rule `{rule}` covers {tagged} of {n_judged} queries: the others have no `{rule.tag}`; "
                f"expected at least {MIN_COVERAGE:.0%}",
                hint=f"tag more queries (--tags FILE), or name a value, as in `in {rule.tag}=VALUE`",
            )
