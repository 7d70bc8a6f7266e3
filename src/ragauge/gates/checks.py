"""Checks of rules on a run and its baseline. A rule that cannot be evaluated has failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ragauge.core.records import Floats
from ragauge.evaluation.indicators import aggregate_of, depth_of_age, measure_of, stage_of
from ragauge.gates.results import TESTED, Check, Rule
from ragauge.gates.run_indicators import Reading, Some, Subject, paired_times, paired_values, some_of
from ragauge.measures.registry import mean
from ragauge.stats.intervals import t_interval
from ragauge.stats.paired_tests import corrected, gap_interval, swap_test, t_test
from ragauge.stats.power import detectable

TOLERANCE = 1e-12
"""Relative tolerance of comparisons with a limit: the mean of a million values has a smaller error."""


NO_BASELINE = "no baseline given; name an earlier run with --baseline (baseline=)"


def _percentile(percent: int) -> Callable[[Floats], Floats]:
    return lambda rows: np.asarray(np.percentile(rows, percent, axis=1))


STATISTICS: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda rows: np.asarray(rows.mean(axis=1)),
    "max": lambda rows: np.asarray(rows.max(axis=1)),
    **{f"p{percent}": _percentile(percent) for percent in (50, 90, 95, 99)},
}


@dataclass(frozen=True, eq=False)
class Case:
    """Input of the checks: the run, its baseline, and the settings of the tests."""

    run: Subject
    baseline: Subject | None = None
    alpha: float = 0.05
    correction: str = "none"
    least: int = 5
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
    common: Some = None
    """Queries that rules about a change use if the corpora differ; None for all."""


def check_all(rules: Sequence[Rule], case: Case) -> list[Check]:
    """Check every rule, in every stratum if requested.

    The p-values of `not worse` rules are corrected together.
    """
    spread = dict.fromkeys(one for rule in rules for one in _spread(rule, case))
    found = [_checked(one, case) for one in spread]
    open_ones = [i for i, check in enumerate(found) if check.rule.kind == "not worse" and not math.isnan(check.p)]
    after = corrected(np.array([found[i].p for i in open_ones]), case.correction)
    for i, p in zip(open_ones, after.tolist(), strict=True):
        check = replace(found[i], p=p)
        found[i] = replace(check, passed=True) if p >= case.alpha else replace(check, reason=_worse(check))
    return found


def _spread(rule: Rule, case: Case) -> list[Rule]:
    if not rule.tag or rule.value is not None:
        return [rule]
    asked = case.run.queries_of(rule.figure.measure or rule.figure.name)
    here = (value for query, value in case.strata[rule.tag].items() if query in asked)
    values = {*here, *case.former.get(rule.tag, ())}
    return [replace(rule, value=value) for value in sorted(values)]


def _checked(rule: Rule, case: Case) -> Check:
    some: Some = None
    if rule.tag:
        asked = case.run.queries_of(rule.figure.measure or rule.figure.name)
        some = frozenset(q for q, value in case.strata[rule.tag].items() if value == rule.value) & asked
        if not some:
            return Check(rule, False, f"no judged query has {rule.tag}={rule.value}")
    if rule.needs_baseline and case.common is not None:
        some = case.common if some is None else some & case.common
        if not some:
            return Check(rule, False, "no query is in the run and in the baseline")
        if not rule.figure.splits and rule.figure.source == "measure":
            return Check(rule, False, f"{rule.figure.name} cannot be computed on the common queries alone")
    mine = case.run.read(rule.figure, some, lenient=_may_lack(rule, case, case.run, some))
    if mine.reason:
        return Check(rule, False, mine.reason, n=mine.n)
    shallow = _shallow(rule, case.run, "the run")
    if shallow:
        return Check(rule, False, shallow, mine.value, n=mine.n)
    if not rule.needs_baseline:
        check = _limited(rule, mine)
        absent = sorted(case.run.lacking if some is None else case.run.lacking & some)
        if check.passed or rule.figure.name != "missing":
            return check
        named = f" ({some_of(absent)})" if absent else ", which it was not asked"
        return replace(check, reason=f"the run lacks {mine.value:.0f} of {mine.n} judged queries{named}")
    if case.baseline is None:
        return Check(rule, False, NO_BASELINE, mine.value, n=mine.n)
    base = case.baseline.read(rule.figure, some, lenient=_may_lack(rule, case, case.baseline, some))
    reason = f"the baseline has none: {base.reason}" if base.reason else _unlike(rule, case, case.baseline, some)
    check = Check(rule, False, reason, mine.value, n=mine.n, baseline=base.value)
    if reason:
        return check
    check = replace(check, difference=mine.value - base.value)
    if rule.figure.source == "measure":
        return _by_values(check, case, case.baseline, some)
    if rule.figure.source == "latency":
        return _by_times(check, case, case.baseline, some)
    return _changed(check)


def _limited(rule: Rule, mine: Reading) -> Check:
    """Check an indicator against a limit."""
    limit = rule.limit * mine.n / 100 if rule.percent else rule.limit
    held, words = _holds(mine.value, rule.sign, limit)
    number = f"{rule.limit:.12g}" + "%" * rule.percent
    reason = "" if held else f"{_plain(mine.value, limit)} is {words} {number}"
    return Check(rule, held, reason, mine.value, limit, mine.n)


def allows(rule: Rule, subject: Subject, some: Some = None) -> bool:
    """Return whether a rule with a limit passes for a run."""
    found = subject.read(rule.figure, some)
    return not found.reason and _limited(rule, found).passed


def _may_lack(rule: Rule, case: Case, subject: Subject, some: Some) -> bool:
    """Return whether a mean over part of the queries is accepted.

    It is if rules limit the number of unscored queries and all of them pass.
    """
    name, depth = rule.figure.name, depth_of_age(rule.figure.name)  # freshness at one k lacks the same queries
    mine = [
        one
        for one in case.unscored
        if one.figure.measure == name or (depth is not None and depth_of_age(one.figure.measure) == depth)
    ]
    return bool(mine) and all(allows(one, subject, some) for one in mine)


def _holds(value: float, sign: str, limit: float, scale: float = 0.0) -> tuple[bool, str]:
    """Compare a value with a limit, within the tolerance.

    Also return how it violates the limit.
    """
    near = TOLERANCE * max(abs(value), abs(limit), scale)
    same = abs(value - limit) <= near
    if sign in (">=", ">"):
        return (same if sign == ">=" and same else value > limit and not same), "not above" if same else "below"
    return (same if sign == "<=" and same else value < limit and not same), "not below" if same else "above"


def _unlike(rule: Rule, case: Case, base: Subject, some: Some) -> str:
    """Return why two runs with the same data cannot be compared by a rule.

    Empty if they can.
    """
    if depth_of_age(rule.figure.name) is not None:
        return _other_queries(rule.figure.name, case.run, base, some) or _shallow(rule, base, "the baseline")
    if rule.figure.source != "measure":
        return ""
    for allowed in case.missing:
        lacking = sorted(base.lacking)
        if lacking and not allows(allowed, base):
            return (
                f"the baseline lacks {len(lacking)} of {len(base.judged)} judged queries ({some_of(lacking)}), "
                f"and the rule is `{allowed}`"
            )
    shallow = _shallow(rule, base, "the baseline")
    mine, before = case.run.depth, base.depth
    if mine is None or before is None or mine == before:
        return shallow
    measure = measure_of(rule.figure.name)
    if measure is None or (measure.cutoff is not None and measure.cutoff <= min(mine, before)):
        return ""
    asked = [one.manifest["plan"]["k"] for one in (case.run, base)]
    return f"the run was made with k={asked[0]}, the baseline with k={asked[1]}"


def _other_queries(name: str, run: Subject, base: Subject, some: Some) -> str:
    """Return why freshness of two runs is not comparable, if their queries differ."""
    mine, before = (one.queries_of(name) if some is None else one.queries_of(name) & some for one in (run, base))
    for here, there, words in ((mine, before, "the run lacks"), (before, mine, "the baseline lacks")):
        gone = sorted(there - here)
        if gone:
            other = "the baseline" if here is mine else "the run"
            few = "1 query" if len(gone) == 1 else f"{len(gone)} queries"
            return f"{words} {few} that {other} has ({some_of(gone)})"
    return ""


def _shallow(rule: Rule, subject: Subject, what: str) -> str:
    """Return why an indicator needs more documents per query than the run has.

    Empty if it does not.
    """
    measure = measure_of(rule.figure.name) if rule.figure.source == "measure" else None
    cutoff = depth_of_age(rule.figure.name) if measure is None else measure.cutoff
    judged = subject.scores.judged
    depth = subject.depth if measure is None else None if judged is None else judged.depth
    if cutoff is None or depth is None or cutoff <= depth:
        return ""
    return f"{rule.figure.name} needs {cutoff:g} documents per query, but {what} was made with k={depth:g}"


def _by_values(check: Check, case: Case, base: Subject, some: Some) -> Check:
    """Check the paired difference of a measure to the baseline."""
    name, lower = check.rule.figure.name, check.rule.figure.lower_is_better
    values = [
        {q: v for q, v in one.scores_of(name).per_query[name].items() if some is None or q in some}
        for one in (case.run, base)
    ]
    if values[0].keys() != values[1].keys() and all(_may_lack(check.rule, case, one, some) for one in (case.run, base)):
        both = [query for query in values[0] if query in values[1]]
        values = [{query: one[query] for query in both} for one in values]
        check = _of_both(check, values)
    gaps, reason = paired_values(*values)
    reason = reason or ("" if len(gaps) else "no query has a value here and in the baseline")
    if reason:
        return replace(check, reason=reason)
    n = len(gaps)
    if n > 1 and aggregate_of(name) is mean:
        seen = detectable(float(gaps.std(ddof=1)), n, alpha=2 * case.alpha)
        check = replace(check, ci=t_interval(gaps, 1 - 2 * case.alpha), detectable=seen)
    if check.rule.kind not in TESTED:
        return _changed(check)
    if n < max(2, case.least):
        return _too_few(check, n, case)
    better = (-gaps if lower else gaps)[:, None]
    if check.rule.kind == "not worse":
        return replace(check, p=float(t_test(-better)[1][0]))
    margin = _margin(check)
    if math.isnan(margin):
        return replace(check, reason=OF_NOTHING)
    return _shown(replace(check, p=float(t_test(better, -margin)[1][0])), case, margin)


def _of_both(check: Check, values: Sequence[Mapping[str, float]]) -> Check:
    """Restrict value and baseline to the queries with a value in both runs."""
    if not values[0]:
        return check
    how = aggregate_of(check.rule.figure.name) or mean
    mine, base = (float(how(np.array(list(one.values())))) for one in values)
    return replace(check, value=mine, baseline=base, difference=mine - base, n=len(values[0]))


def _by_times(check: Check, case: Case, base: Subject, some: Some) -> Check:
    """Check a latency against the baseline's by a paired permutation test."""
    stage, statistic = stage_of(check.rule.figure)
    mine, before = (one.times(stage) for one in (case.run, base))
    asked = [set() if one.timings is None else set(one.timings["query"].to_list()) for one in (case.run, base)]
    gone = sorted(q for q in asked[1] - asked[0] if some is None or q in some)
    if gone:
        return replace(check, reason=f"{len(gone)} queries were not asked that the baseline was ({some_of(gone)})")
    now, then = paired_times(mine, before, some)
    n, figure = len(now), STATISTICS[statistic]
    if n > 1:
        check = replace(check, ci=gap_interval(now, then, figure, 1 - 2 * case.alpha))
    if check.rule.kind not in TESTED:
        return _changed(check)
    if n < max(2, case.least):
        return _too_few(check, n, case)
    if 0.5**n >= case.alpha:  # even if every query is slower, the smallest possible p-value is 0.5**n
        return replace(check, n=n, reason=f"{n} queries are too few for a test of times at alpha {case.alpha:g}")
    check = replace(check, n=n)
    if check.rule.kind == "not worse":
        return replace(check, p=swap_test(now, then, figure)[0])
    margin = _margin(check)
    if math.isnan(margin):
        return replace(check, reason=OF_NOTHING)
    # At the margin, the run equals the baseline with every query slower by that much.
    slower = then * (1 + check.rule.limit / 100) if check.rule.percent else then + margin
    return _shown(replace(check, p=swap_test(now, slower, figure)[1]), case, margin)


OF_NOTHING = "the baseline's figure is 0, of which there is no percentage"


def _margin(check: Check) -> float:
    """Return the loss that a rule allows; 0 for `better`, NaN for a percentage of 0."""
    if not check.rule.percent:
        return check.rule.limit
    return abs(check.baseline) * check.rule.limit / 100 if check.baseline else math.nan


def _changed(check: Check) -> Check:
    """Check a drop or a rise against its limit."""
    margin = _margin(check)
    if math.isnan(margin):
        return replace(check, reason=OF_NOTHING)
    falls = check.rule.kind == "drop"
    change = -check.difference if falls else check.difference
    held, _ = _holds(change, check.rule.sign, margin, max(abs(check.value), abs(check.baseline)))
    limit = check.baseline - margin if falls else check.baseline + margin
    reason = ""
    if not held:
        part = f", {100 * change / abs(check.baseline):.3g}%" if check.baseline else ""
        word = "dropped" if falls else "rose"
        reason = f"it {word} by {_plain(change)}{part}, from {_plain(check.baseline)}"
    return replace(check, passed=held, limit=limit, reason=reason)


def _too_few(check: Check, n: int, case: Case) -> Check:
    few = f"{n} queries are" if n != 1 else "1 query is"
    return replace(check, n=n, reason=f"{few} too few for a test, which needs {max(2, case.least)}")


def _worse(check: Check) -> str:
    return f"worse than the baseline ({_plain(check.baseline)}) by more than chance would make it"


def _shown(check: Check, case: Case, margin: float) -> Check:
    """Pass the check if its test is significant, or give the reason."""
    if check.p < case.alpha:
        return replace(check, passed=True)
    if check.rule.kind == "better":
        return replace(check, reason=f"not shown to be better than the baseline ({_plain(check.baseline)})")
    return replace(check, reason=f"not shown to be within {_plain(margin)} of the baseline ({_plain(check.baseline)})")


def _plain(value: float, apart_from: float = math.nan) -> str:
    """Format a number with six digits, or enough to differ from another number.

    >>> _plain(12345.678), _plain(0.4, 0.4), _plain(0.39999999, 0.4)
    ('12345.7', '0.4', '0.39999999')
    """
    digits = range(6, 17) if value != apart_from else range(6, 7)
    return next((t for d in digits if (t := f"{value:.{d}g}") != f"{apart_from:.{d}g}"), f"{value:.6g}")
