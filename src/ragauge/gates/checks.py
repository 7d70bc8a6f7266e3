"""Checks of rules on a run and its baseline. A rule that cannot be evaluated has failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ragauge.core.records import Floats
from ragauge.evaluation.indicators import find_aggregate, find_measure, freshness_depth, split_latency_name
from ragauge.gates.results import TESTED_CONDITIONS, Rule, RuleCheck
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
    former: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Values of each tag in the baseline: `{tag: values}`."""
    common: QuerySubset = None
    """Queries that rules about a change use if the corpora differ; None for all."""


def check_rules(rules: Sequence[Rule], case: GateInput) -> list[RuleCheck]:
    """Check every rule, in every stratum if requested.

    The p-values of `not worse` rules are corrected together.
    """
    spread = dict.fromkeys(expanded for rule in rules for expanded in _expand_strata(rule, case))
    found = [_check_rule(rule, case) for rule in spread]
    open_ones = [i for i, check in enumerate(found) if check.rule.kind == "not worse" and not math.isnan(check.p)]
    after = correct_p_values(np.array([found[i].p for i in open_ones]), case.correction)
    for i, p in zip(open_ones, after.tolist(), strict=True):
        check = replace(found[i], p=p)
        found[i] = replace(check, passed=True) if p >= case.alpha else replace(check, reason=_worse_reason(check))
    return found


def _expand_strata(rule: Rule, case: GateInput) -> list[Rule]:
    if not rule.tag or rule.value is not None:
        return [rule]
    asked = case.run.queries_of(rule.figure.measure or rule.figure.name)
    here = (value for query, value in case.strata[rule.tag].items() if query in asked)
    values = {*here, *case.former.get(rule.tag, ())}
    return [replace(rule, value=value) for value in sorted(values)]


def _check_rule(rule: Rule, case: GateInput) -> RuleCheck:
    some: QuerySubset = None
    if rule.tag:
        asked = case.run.queries_of(rule.figure.measure or rule.figure.name)
        some = frozenset(q for q, value in case.strata[rule.tag].items() if value == rule.value) & asked
        if not some:
            return RuleCheck(rule, False, f"no judged query has {rule.tag}={rule.value}")
    if rule.needs_baseline and case.common is not None:
        some = case.common if some is None else some & case.common
        if not some:
            return RuleCheck(rule, False, "run and baseline have no query in common")
        if not rule.figure.splits and rule.figure.source == "measure":
            return RuleCheck(rule, False, f"{rule.figure.name} cannot be computed on the common queries alone")
    mine = case.run.read(rule.figure, some, lenient=_can_lack_values(rule, case, case.run, some))
    if mine.reason:
        return RuleCheck(rule, False, mine.reason, n=mine.n)
    shallow = _depth_reason(rule, case.run, "the run")
    if shallow:
        return RuleCheck(rule, False, shallow, mine.value, n=mine.n)
    if not rule.needs_baseline:
        check = _check_limit(rule, mine)
        absent = sorted(case.run.lacking if some is None else case.run.lacking & some)
        if check.passed or rule.figure.name != "missing":
            return check
        named = f" ({format_first_names(absent)})" if absent else ", which were not run"
        return replace(check, reason=f"the run lacks {mine.value:.0f} of {mine.n} judged queries{named}")
    if case.baseline is None:
        return RuleCheck(rule, False, NO_BASELINE_REASON, mine.value, n=mine.n)
    base = case.baseline.read(rule.figure, some, lenient=_can_lack_values(rule, case, case.baseline, some))
    reason = (
        f"the baseline has no value: {base.reason}"
        if base.reason
        else _incomparable_reason(rule, case, case.baseline, some)
    )
    check = RuleCheck(rule, False, reason, mine.value, n=mine.n, baseline=base.value)
    if reason:
        return check
    check = replace(check, difference=mine.value - base.value)
    if rule.figure.source == "measure":
        return _check_score_difference(check, case, case.baseline, some)
    if rule.figure.source == "latency":
        return _check_latency_difference(check, case, case.baseline, some)
    return _check_change(check)


def _check_limit(rule: Rule, mine: IndicatorValue) -> RuleCheck:
    """Check an indicator against a limit."""
    limit = rule.limit * mine.n / 100 if rule.percent else rule.limit
    held, words = _compare_with_limit(mine.value, rule.sign, limit)
    number = f"{rule.limit:.12g}" + "%" * rule.percent
    reason = "" if held else f"{format_significant(mine.value, limit)} is {words} {number}"
    return RuleCheck(rule, held, reason, mine.value, limit, mine.n)


def is_limit_met(rule: Rule, subject: RunIndicators, some: QuerySubset = None) -> bool:
    """Return whether a rule with a limit passes for a run."""
    found = subject.read(rule.figure, some)
    return not found.reason and _check_limit(rule, found).passed


def _can_lack_values(rule: Rule, case: GateInput, subject: RunIndicators, some: QuerySubset) -> bool:
    """Return whether a mean over part of the queries is accepted.

    It is if rules limit the number of unscored queries and all of them pass.
    """
    name, depth = rule.figure.name, freshness_depth(rule.figure.name)  # freshness at one k lacks the same queries
    mine = [
        rule
        for rule in case.unscored
        if rule.figure.measure == name or (depth is not None and freshness_depth(rule.figure.measure) == depth)
    ]
    return bool(mine) and all(is_limit_met(rule, subject, some) for rule in mine)


def _compare_with_limit(value: float, sign: str, limit: float, scale: float = 0.0) -> tuple[bool, str]:
    """Compare a value with a limit, within the tolerance.

    Also return how it violates the limit.
    """
    near = RELATIVE_TOLERANCE * max(abs(value), abs(limit), scale)
    same = abs(value - limit) <= near
    if sign in (">=", ">"):
        return (same if sign == ">=" and same else value > limit and not same), "not above" if same else "below"
    return (same if sign == "<=" and same else value < limit and not same), "not below" if same else "above"


def _incomparable_reason(rule: Rule, case: GateInput, base: RunIndicators, some: QuerySubset) -> str:
    """Return why two runs with the same data cannot be compared by a rule.

    Empty if they can.
    """
    if freshness_depth(rule.figure.name) is not None:
        return _query_mismatch_reason(rule.figure.name, case.run, base, some) or _depth_reason(
            rule, base, "the baseline"
        )
    if rule.figure.source != "measure":
        return ""
    for allowed in case.missing:
        lacking = sorted(base.lacking)
        if lacking and not is_limit_met(allowed, base):
            return (
                f"the baseline lacks {len(lacking)} of {len(base.judged)} judged queries "
                f"({format_first_names(lacking)}), "
                f"and the rule is `{allowed}`"
            )
    shallow = _depth_reason(rule, base, "the baseline")
    mine, before = case.run.depth, base.depth
    if mine is None or before is None or mine == before:
        return shallow
    measure = find_measure(rule.figure.name)
    if measure is None or (measure.cutoff is not None and measure.cutoff <= min(mine, before)):
        return ""
    asked = [indicators.manifest["plan"]["k"] for indicators in (case.run, base)]
    return f"the run was made with k={asked[0]}, the baseline with k={asked[1]}"


def _query_mismatch_reason(name: str, run: RunIndicators, base: RunIndicators, some: QuerySubset) -> str:
    """Return why freshness of two runs is not comparable, if their queries differ."""
    mine, before = (
        indicators.queries_of(name) if some is None else indicators.queries_of(name) & some
        for indicators in (run, base)
    )
    for here, there, words in ((mine, before, "the run lacks"), (before, mine, "the baseline lacks")):
        gone = sorted(there - here)
        if gone:
            other = "the baseline" if here is mine else "the run"
            return f"{words} {pluralise(len(gone), 'query')} that {other} has ({format_first_names(gone)})"
    return ""


def _depth_reason(rule: Rule, subject: RunIndicators, what: str) -> str:
    """Return why an indicator needs more documents per query than the run has.

    Empty if it does not.
    """
    measure = find_measure(rule.figure.name) if rule.figure.source == "measure" else None
    cutoff = freshness_depth(rule.figure.name) if measure is None else measure.cutoff
    judged = subject.scores.judged
    depth = subject.depth if measure is None else None if judged is None else judged.depth
    if cutoff is None or depth is None or cutoff <= depth:
        return ""
    return f"{rule.figure.name} needs {cutoff:g} documents per query, but {what} was made with k={depth:g}"


def _check_score_difference(check: RuleCheck, case: GateInput, base: RunIndicators, some: QuerySubset) -> RuleCheck:
    """Check the paired difference of a measure to the baseline."""
    name, lower = check.rule.figure.name, check.rule.figure.lower_is_better
    values = [
        {q: v for q, v in indicators.scores_of(name).per_query[name].items() if some is None or q in some}
        for indicators in (case.run, base)
    ]
    if values[0].keys() != values[1].keys() and all(
        _can_lack_values(check.rule, case, indicators, some) for indicators in (case.run, base)
    ):
        both = [query for query in values[0] if query in values[1]]
        values = [{query: value[query] for query in both} for value in values]
        check = _restrict_to_shared(check, values)
    gaps, reason = paired_score_differences(*values)
    reason = reason or ("" if len(gaps) else "no query has a value here and in the baseline")
    if reason:
        return replace(check, reason=reason)
    n = len(gaps)
    if n > 1 and find_aggregate(name) is mean:
        seen = detectable_difference(float(gaps.std(ddof=1)), n, alpha=2 * case.alpha)
        check = replace(check, ci=t_interval(gaps, 1 - 2 * case.alpha), detectable=seen)
    if check.rule.kind not in TESTED_CONDITIONS:
        return _check_change(check)
    if n < max(2, case.min_queries):
        return _fail_too_few(check, n, case)
    better = (-gaps if lower else gaps)[:, None]
    if check.rule.kind == "not worse":
        return replace(check, p=float(t_test(-better)[1][0]))
    margin = _allowed_margin(check)
    if math.isnan(margin):
        return replace(check, reason=ZERO_BASELINE_REASON)
    return _decide_by_test(replace(check, p=float(t_test(better, -margin)[1][0])), case, margin)


def _restrict_to_shared(check: RuleCheck, values: Sequence[Mapping[str, float]]) -> RuleCheck:
    """Restrict value and baseline to the queries with a value in both runs."""
    if not values[0]:
        return check
    how = find_aggregate(check.rule.figure.name) or mean
    mine, base = (float(how(np.array(list(value.values())))) for value in values)
    return replace(check, value=mine, baseline=base, difference=mine - base, n=len(values[0]))


def _check_latency_difference(check: RuleCheck, case: GateInput, base: RunIndicators, some: QuerySubset) -> RuleCheck:
    """Check a latency against the baseline's by a paired permutation test."""
    stage, statistic = split_latency_name(check.rule.figure)
    mine, before = (indicators.times(stage) for indicators in (case.run, base))
    asked = [
        set() if indicators.timings is None else set(indicators.timings["query"].to_list())
        for indicators in (case.run, base)
    ]
    gone = sorted(q for q in asked[1] - asked[0] if some is None or q in some)
    if gone:
        return replace(check, reason=f"{len(gone)} queries of the baseline were not run ({format_first_names(gone)})")
    now, then = pair_latencies(mine, before, some)
    n, figure = len(now), LATENCY_STATISTICS[statistic]
    if n > 1:
        check = replace(check, ci=bootstrap_difference(now, then, figure, 1 - 2 * case.alpha))
    if check.rule.kind not in TESTED_CONDITIONS:
        return _check_change(check)
    if n < max(2, case.min_queries):
        return _fail_too_few(check, n, case)
    if 0.5**n >= case.alpha:  # even if every query is slower, the smallest possible p-value is 0.5**n
        return replace(check, n=n, reason=f"{n} queries are too few for a test of times at alpha {case.alpha:g}")
    check = replace(check, n=n)
    if check.rule.kind == "not worse":
        return replace(check, p=paired_permutation_test(now, then, figure)[0])
    margin = _allowed_margin(check)
    if math.isnan(margin):
        return replace(check, reason=ZERO_BASELINE_REASON)
    # At the margin, the run equals the baseline with every query slower by that much.
    slower = then * (1 + check.rule.limit / 100) if check.rule.percent else then + margin
    return _decide_by_test(replace(check, p=paired_permutation_test(now, slower, figure)[1]), case, margin)


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
    held, _ = _compare_with_limit(change, check.rule.sign, margin, max(abs(check.value), abs(check.baseline)))
    limit = check.baseline - margin if falls else check.baseline + margin
    reason = ""
    if not held:
        part = f" ({format_number(change / abs(check.baseline), 'share')})" if check.baseline else ""
        word = "dropped" if falls else "rose"
        reason = f"{word} by {format_significant(change)}{part} from {format_significant(check.baseline)}"
    return replace(check, passed=held, limit=limit, reason=reason)


def _fail_too_few(check: RuleCheck, n: int, case: GateInput) -> RuleCheck:
    few = pluralise(n, "query is", "queries are")
    return replace(check, n=n, reason=f"{few} too few for a test, which needs {max(2, case.min_queries)}")


def _worse_reason(check: RuleCheck) -> str:
    return f"significantly worse than the baseline ({format_significant(check.baseline)})"


def _decide_by_test(check: RuleCheck, case: GateInput, margin: float) -> RuleCheck:
    """Pass the check if its test is significant, or give the reason."""
    if check.p < case.alpha:
        return replace(check, passed=True)
    baseline = format_significant(check.baseline)
    if check.rule.kind == "better":
        return replace(check, reason=f"not significantly better than the baseline ({baseline})")
    lost = format_significant(margin)
    return replace(check, reason=f"a loss of {lost} from the baseline ({baseline}) is not ruled out")
