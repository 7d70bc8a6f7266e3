"""Checks of rules on a run and its baseline. A rule that cannot be evaluated has failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ragauge.core.records import Floats
from ragauge.evaluation.indicators import find_aggregate, find_measure
from ragauge.gates.results import TESTED_CONDITIONS, Rule, RuleCheck
from ragauge.gates.rule_ranges import indicator_range
from ragauge.gates.run_indicators import (
    IndicatorValue,
    QuerySubset,
    RunIndicators,
    format_first_names,
    pair_latencies,
    paired_score_differences,
)
from ragauge.measures.registry import mean
from ragauge.output.numbers import format_number, format_significant, pluralise
from ragauge.stats.intervals import t_interval
from ragauge.stats.margin_tests import (
    MIN_DIFFERING_QUERIES,
    loss_upper_bound,
    margin_p_value,
    queries_without_difference,
)
from ragauge.stats.paired_tests import bootstrap_difference, correct_p_values, paired_permutation_test, t_test
from ragauge.stats.power import detectable_difference

RELATIVE_TOLERANCE = 1e-12
"""Relative tolerance of comparisons with a limit: the mean of a million values has a smaller error."""


NO_BASELINE_REASON = "no baseline given; name an earlier run with --baseline (baseline=)"


def _row_percentile(percent: int) -> Callable[[Floats], Floats]:
    return lambda rows: np.asarray(np.percentile(rows, percent, axis=1))


LATENCY_STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda rows: np.asarray(rows.mean(axis=1)),
    "max": lambda rows: np.asarray(rows.max(axis=1)),
    **{f"p{percent}": _row_percentile(percent) for percent in (50, 90, 95, 99)},
}


@dataclass(frozen=True, eq=False)
class GateInput:
    """Input of the checks: the run, its baseline, and the settings of the tests."""

    run: RunIndicators
    baseline: RunIndicators | None = None
    alpha: float = 0.05
    correction: str = "none"
    min_queries: int = 5
    """Minimum number of queries for a test; with fewer, it would always pass."""
    missing: Sequence[Rule] = ()
    """Rules on the number of missing queries, for the run and its baseline."""
    unscored: Sequence[Rule] = ()
    """Rules on the number of queries without a value, for the run and its baseline.

    Without such a rule, no query may be unscored.
    """
    strata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Values of each tag: `{tag: {query: value}}`."""
    baseline_tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Values of each tag in the baseline: `{tag: values}`."""
    common_queries: QuerySubset = None
    """Queries that rules about a change use if the corpora differ; None for all."""


def check_rules(rules: Sequence[Rule], gate_input: GateInput) -> list[RuleCheck]:
    """Check every rule, in every stratum if requested.

    The p-values of `not worse` rules are corrected together.
    """
    expanded_rules = dict.fromkeys(expanded for rule in rules for expanded in _expand_strata(rule, gate_input))
    checks = [_check_rule(rule, gate_input) for rule in expanded_rules]
    undecided = [i for i, check in enumerate(checks) if check.rule.kind == "not worse" and not math.isnan(check.p)]
    after = correct_p_values(np.array([checks[i].p for i in undecided]), gate_input.correction)
    for i, p in zip(undecided, after.tolist(), strict=True):
        check = replace(checks[i], p=p)
        checks[i] = (
            replace(check, passed=True) if p >= gate_input.alpha else replace(check, reason=_worse_reason(check))
        )
    return checks


def _expand_strata(rule: Rule, gate_input: GateInput) -> list[Rule]:
    if not rule.tag or rule.value is not None:
        return [rule]
    values = {*gate_input.strata[rule.tag].values(), *gate_input.baseline_tags.get(rule.tag, ())}
    return [replace(rule, value=value) for value in sorted(values)]


def _check_rule(rule: Rule, gate_input: GateInput) -> RuleCheck:
    subset: QuerySubset = None
    if rule.tag:
        subset = frozenset(q for q, value in gate_input.strata[rule.tag].items() if value == rule.value)
        if not subset:
            return RuleCheck(rule, False, f"no judged query has {rule.tag}={rule.value}")
    if rule.needs_baseline and gate_input.common_queries is not None:
        subset = gate_input.common_queries if subset is None else subset & gate_input.common_queries
        if not subset:
            return RuleCheck(rule, False, "run and baseline have no query in common")
        if not rule.indicator.splits and rule.indicator.source == "measure":
            return RuleCheck(rule, False, f"{rule.indicator.name} cannot be computed on the common queries alone")
    current = gate_input.run.read(
        rule.indicator, subset, lenient=_can_lack_values(rule, gate_input, gate_input.run, subset)
    )
    if current.reason:
        return RuleCheck(rule, False, current.reason, n=current.n)
    shallow = _depth_reason(rule, gate_input.run, "the run")
    if shallow:
        return RuleCheck(rule, False, shallow, current.value, n=current.n)
    if not rule.needs_baseline:
        check = _check_limit(rule, current)
        return check if check.passed else _name_absent_queries(check, gate_input.run, current, subset)
    if gate_input.baseline is None:
        return RuleCheck(rule, False, NO_BASELINE_REASON, current.value, n=current.n)
    base = gate_input.baseline.read(
        rule.indicator, subset, lenient=_can_lack_values(rule, gate_input, gate_input.baseline, subset)
    )
    reason = (
        f"the baseline has no value: {base.reason}"
        if base.reason
        else _incomparable_reason(rule, gate_input, gate_input.baseline)
    )
    check = RuleCheck(rule, False, reason, current.value, n=current.n, baseline=base.value)
    if reason:
        return check
    check = replace(check, difference=current.value - base.value)
    if rule.indicator.source == "measure":
        return _check_score_difference(check, gate_input, gate_input.baseline, subset)
    if rule.indicator.source == "latency":
        return _check_latency_difference(check, gate_input, gate_input.baseline, subset)
    return _check_change(check)


def _name_absent_queries(
    check: RuleCheck, run: RunIndicators, current: IndicatorValue, subset: QuerySubset
) -> RuleCheck:
    """Name the queries that make a limit on `missing` or `empty` fail."""
    if check.rule.indicator.name == "missing":
        queries, verb, unnamed = run.missing_queries, "lacks", ", which were not run"
    elif check.rule.indicator.name == "empty":
        queries, verb, unnamed = run.empty_queries, "has no document for", ""
    else:
        return check
    absent = sorted(queries if subset is None else queries & subset)
    named = f" ({format_first_names(absent)})" if absent else unnamed
    return replace(check, reason=f"the run {verb} {current.value:.0f} of {current.n} judged queries{named}")


def _check_limit(rule: Rule, current: IndicatorValue) -> RuleCheck:
    """Check an indicator against a limit."""
    limit = rule.limit * current.n / 100 if rule.percent else rule.limit
    is_met, comparison = _compare_with_limit(current.value, rule.sign, limit)
    number = f"{rule.limit:.12g}" + "%" * rule.percent
    reason = "" if is_met else f"{format_significant(current.value, limit)} is {comparison} {number}"
    return RuleCheck(rule, is_met, reason, current.value, limit, current.n)


def is_limit_met(rule: Rule, subject: RunIndicators, subset: QuerySubset = None) -> bool:
    """Return whether a rule with a limit passes for a run."""
    indicator_value = subject.read(rule.indicator, subset)
    return not indicator_value.reason and _check_limit(rule, indicator_value).passed


def _can_lack_values(rule: Rule, gate_input: GateInput, subject: RunIndicators, subset: QuerySubset) -> bool:
    """Return whether a mean over part of the queries is accepted.

    It is if rules limit the number of unscored queries and all of them pass.
    """
    unscored_rules = [one for one in gate_input.unscored if one.indicator.measure == rule.indicator.name]
    return bool(unscored_rules) and all(is_limit_met(one, subject, subset) for one in unscored_rules)


def _compare_with_limit(value: float, sign: str, limit: float, scale: float = 0.0) -> tuple[bool, str]:
    """Compare a value with a limit, within the tolerance.

    Also return how it violates the limit.
    """
    tolerance = RELATIVE_TOLERANCE * max(abs(value), abs(limit), scale)
    is_equal = abs(value - limit) <= tolerance
    if sign in (">=", ">"):
        return (
            is_equal if sign == ">=" and is_equal else value > limit and not is_equal
        ), "not above" if is_equal else "below"
    return (
        is_equal if sign == "<=" and is_equal else value < limit and not is_equal
    ), "not below" if is_equal else "above"


def _incomparable_reason(rule: Rule, gate_input: GateInput, base: RunIndicators) -> str:
    """Return why two runs with the same data cannot be compared by a rule.

    Empty if they can.
    """
    if rule.indicator.source != "measure":
        return ""
    for allowed in gate_input.missing:
        lacking = sorted(base.missing_queries)
        if lacking and not is_limit_met(allowed, base):
            return (
                f"the baseline lacks {len(lacking)} of {len(base.expected_queries)} judged queries "
                f"({format_first_names(lacking)}), "
                f"and the rule is `{allowed}`"
            )
    measure = find_measure(rule.indicator.name)
    if measure is None or measure.cutoff is not None:
        return _depth_reason(rule, base, "the baseline")
    return _unequal_depth_reason(gate_input.run, base)


def _unequal_depth_reason(run: RunIndicators, base: RunIndicators) -> str:
    """Return why whole rankings of two runs cannot be compared: one was cut where the other one continues.

    Empty if they can, or if a depth is unknown.
    """
    run_depth, base_depth = run.depth, base.depth
    if run_depth is None or base_depth is None:
        return ""
    if run_depth >= base.longest_ranking and base_depth >= run.longest_ranking:
        return ""
    ks = [run_indicators.manifest["plan"]["k"] for run_indicators in (run, base)]
    return f"the run was made with k={ks[0]}, the baseline with k={ks[1]}"


def _depth_reason(rule: Rule, subject: RunIndicators, label: str) -> str:
    """Return why an indicator needs more documents per query than the run has.

    Empty if it does not.
    """
    measure = find_measure(rule.indicator.name) if rule.indicator.source == "measure" else None
    cutoff = None if measure is None else measure.cutoff
    depth = None if subject.scores.judged is None else subject.scores.judged.depth
    if cutoff is None or depth is None or cutoff <= depth:
        return ""
    return f"{rule.indicator.name} needs {cutoff:g} documents per query, but {label} was made with k={depth:g}"


def _check_score_difference(
    check: RuleCheck, gate_input: GateInput, base: RunIndicators, subset: QuerySubset
) -> RuleCheck:
    """Check the paired difference of a measure to the baseline."""
    name, lower = check.rule.indicator.name, check.rule.indicator.lower_is_better
    values = [
        {q: v for q, v in run_indicators.scores.per_query[name].items() if subset is None or q in subset}
        for run_indicators in (gate_input.run, base)
    ]
    if values[0].keys() != values[1].keys() and all(
        _can_lack_values(check.rule, gate_input, run_indicators, subset) for run_indicators in (gate_input.run, base)
    ):
        shared_queries = [query for query in values[0] if query in values[1]]
        values = [{query: value[query] for query in shared_queries} for value in values]
        check = _restrict_to_shared(check, values)
    differences, reason = paired_score_differences(*values)
    reason = reason or ("" if len(differences) else "no query has a value here and in the baseline")
    if reason:
        return replace(check, reason=reason)
    n = len(differences)
    if n > 1 and find_aggregate(name) is mean:
        detectable = detectable_difference(float(differences.std(ddof=1)), n, alpha=2 * gate_input.alpha)
        interval = t_interval(differences, 1 - 2 * gate_input.alpha)
        check = replace(check, ci=_limit_to_bounds(interval, name, check.baseline), detectable=detectable)
    if check.rule.kind not in TESTED_CONDITIONS:
        return _check_change(check)
    if n < max(2, gate_input.min_queries):
        return _fail_too_few(check, n, gate_input)
    better = (-differences if lower else differences)[:, None]
    if check.rule.kind == "not worse":
        return replace(check, p=float(t_test(-better)[1][0]))
    margin = _allowed_margin(check)
    if math.isnan(margin):
        return replace(check, reason=ZERO_BASELINE_REASON)
    if check.rule.kind == "better":
        return _decide_by_test(replace(check, p=float(t_test(better)[1][0])), gate_input, margin)
    low, high = indicator_range(check.rule.indicator, [gate_input.run.scores, base.scores])
    return _check_non_inferior(check, -better[:, 0], gate_input, margin, high - low)


def _check_non_inferior(
    check: RuleCheck, losses: Floats, gate_input: GateInput, margin: float, max_loss: float
) -> RuleCheck:
    """Check that a mean loss of at least the margin is ruled out; the interval agrees with the p-value."""
    p = margin_p_value(losses, margin, max_loss)
    if math.isnan(p):
        n_differing, name = int(np.count_nonzero(losses)), check.rule.indicator.name
        reason = f"{n_differing} of {len(losses)} queries differ; a margin of {name}, whose range is unknown, needs "
        return replace(check, ci=(math.nan, math.nan), reason=f"{reason}{MIN_DIFFERING_QUERIES}")
    gain, loss = (loss_upper_bound(values, 1 - gate_input.alpha, max_loss) for values in (-losses, losses))
    ci = (-gain, loss) if check.rule.indicator.lower_is_better else (-loss, gain)
    check = _decide_by_test(replace(check, p=p, ci=ci), gate_input, margin)
    needed = queries_without_difference(margin, max_loss, gate_input.alpha)
    if check.passed or needed is None or len(losses) >= needed:
        return check
    return replace(check, reason=f"{check.reason}; even without any difference, this needs {needed:,} queries")


def _limit_to_bounds(interval: tuple[float, float], name: str, baseline: float) -> tuple[float, float]:
    """Limit the interval of a change to changes that the bounds of the measure allow."""
    measure = find_measure(name)
    if measure is None:
        return interval
    lowest, highest = (bound - baseline for bound in measure.bounds)
    return max(interval[0], lowest), min(interval[1], highest)


def _restrict_to_shared(check: RuleCheck, values: Sequence[Mapping[str, float]]) -> RuleCheck:
    """Restrict value and baseline to the queries with a value in both runs."""
    if not values[0]:
        return check
    aggregate = find_aggregate(check.rule.indicator.name) or mean
    run_value, base_value = (float(aggregate(np.array(list(value.values())))) for value in values)
    return replace(check, value=run_value, baseline=base_value, difference=run_value - base_value, n=len(values[0]))


def _check_latency_difference(
    check: RuleCheck, gate_input: GateInput, base: RunIndicators, subset: QuerySubset
) -> RuleCheck:
    """Check a latency against the baseline's by a paired permutation test."""
    run_times, baseline_times = (
        run_indicators.times(check.rule.indicator.stage) for run_indicators in (gate_input.run, base)
    )
    executed = [
        set() if run_indicators.timings is None else set(run_indicators.timings["query"].to_list())
        for run_indicators in (gate_input.run, base)
    ]
    not_run = sorted(q for q in executed[1] - executed[0] if subset is None or q in subset)
    if not_run:
        return replace(
            check, reason=f"{len(not_run)} queries of the baseline were not run ({format_first_names(not_run)})"
        )
    run_latencies, base_latencies = pair_latencies(run_times, baseline_times, subset)
    n, statistic = len(run_latencies), LATENCY_STATISTICS[check.rule.indicator.statistic]
    if n > 1:
        check = replace(
            check, ci=bootstrap_difference(run_latencies, base_latencies, statistic, 1 - 2 * gate_input.alpha)
        )
    if check.rule.kind not in TESTED_CONDITIONS:
        return _check_change(check)
    if n < max(2, gate_input.min_queries):
        return _fail_too_few(check, n, gate_input)
    if 0.5**n >= gate_input.alpha:  # even if every query is slower, the smallest possible p-value is 0.5**n
        return replace(check, n=n, reason=f"{n} queries are too few for a test of times at alpha {gate_input.alpha:g}")
    check = replace(check, n=n)
    if check.rule.kind == "not worse":
        return replace(check, p=paired_permutation_test(run_latencies, base_latencies, statistic)[0])
    margin = _allowed_margin(check)
    if math.isnan(margin):
        return replace(check, reason=ZERO_BASELINE_REASON)
    # At the margin, the run equals the baseline with every query slower by that much.
    slower = base_latencies * (1 + check.rule.limit / 100) if check.rule.percent else base_latencies + margin
    return _decide_by_test(
        replace(check, p=paired_permutation_test(run_latencies, slower, statistic)[1]), gate_input, margin
    )


ZERO_BASELINE_REASON = "the value of the baseline is 0, so the change has no percentage"


def _allowed_margin(check: RuleCheck) -> float:
    """Return the loss that a rule allows; 0 for `better`, NaN for a percentage of 0."""
    if not check.rule.percent:
        return check.rule.limit
    return abs(check.baseline) * check.rule.limit / 100 if check.baseline else math.nan


def _check_change(check: RuleCheck) -> RuleCheck:
    """Check a drop or a rise against its limit."""
    margin = _allowed_margin(check)
    if math.isnan(margin):
        return replace(check, reason=ZERO_BASELINE_REASON)
    falls = check.rule.kind == "drop"
    change = -check.difference if falls else check.difference
    is_met, _ = _compare_with_limit(change, check.rule.sign, margin, max(abs(check.value), abs(check.baseline)))
    limit = check.baseline - margin if falls else check.baseline + margin
    reason = ""
    if not is_met:
        part = f" ({format_number(change / abs(check.baseline), 'share')})" if check.baseline else ""
        word = "dropped" if falls else "rose"
        reason = f"{word} by {format_significant(change)}{part} from {format_significant(check.baseline)}"
    return replace(check, passed=is_met, limit=limit, reason=reason)


def _fail_too_few(check: RuleCheck, n: int, gate_input: GateInput) -> RuleCheck:
    count_text = pluralise(n, "query is", "queries are")
    return replace(check, n=n, reason=f"{count_text} too few for a test, which needs {max(2, gate_input.min_queries)}")


def _worse_reason(check: RuleCheck) -> str:
    return f"significantly worse than the baseline ({format_significant(check.baseline)})"


def _decide_by_test(check: RuleCheck, gate_input: GateInput, margin: float) -> RuleCheck:
    """Pass the check if its test is significant, or give the reason."""
    if check.p < gate_input.alpha:
        return replace(check, passed=True)
    baseline = format_significant(check.baseline)
    if check.rule.kind == "better":
        return replace(check, reason=f"not significantly better than the baseline ({baseline})")
    lost = format_significant(margin)
    return replace(check, reason=f"a loss of {lost} from the baseline ({baseline}) is not ruled out")
