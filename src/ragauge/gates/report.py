"""Report of a gate, and its JUnit XML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as Xml

from ragauge.core.run_dates import describe_run_dates
from ragauge.core.text import one_line
from ragauge.gates.results import Gate, RuleCheck
from ragauge.output.numbers import format_distinct, format_interval, format_level, format_number, pluralise
from ragauge.output.report import Block, Paragraph, Report, ResultReporter, Section, TableBuilder
from ragauge.output.tables import Cell, Column, Row, Table

TEST_OUTCOMES = {
    "not worse": ("being worse is not shown", "being worse is shown"),
    "better": ("being better is shown", "being better is not shown"),
    "non-inferior": ("being worse by {} is ruled out", "being worse by {} is not ruled out"),
}
"""Outcome of a test by kind of rule: if it passed, and if it failed."""
UNIT_STYLES: Mapping[str, str] = {"ms": "ms", "s": "seconds", "queries/s": "ms", "count": "number"}
"""Style of an indicator by its unit; others are scores."""
CHANGE_STYLES: Mapping[str, str] = {
    "ms": "signed ms",
    "s": "signed seconds",
    "queries/s": "signed ms",
    "count": "signed ms",
}
"""Style of the change of an indicator by its unit; others are scores."""


def format_value_and_limit(check: RuleCheck) -> tuple[str, str]:
    """Format value and limit with enough digits to show which is larger."""
    return format_distinct(check.value, check.limit, _value_style(check))


def _value_style(check: RuleCheck) -> str:
    return UNIT_STYLES.get(check.rule.indicator.unit, "score")


def _relative_change(check: RuleCheck) -> tuple[float, float, float, str]:
    """Return the difference to the baseline, the ends of its interval, and their style.

    They are relative to the baseline if the rule is a percentage.
    """
    if check.rule.percent and check.baseline:
        difference, low, high = (number / abs(check.baseline) for number in (check.difference, *check.ci))
        return difference, low, high, "signed share"
    return check.difference, *check.ci, CHANGE_STYLES.get(check.rule.indicator.unit, "signed")


def describe_test_outcome(check: RuleCheck) -> str:
    """Describe what the test of a rule shows; empty without a test.

    >>> from ragauge.evaluation.indicators import Indicator
    >>> from ragauge.gates.results import Rule
    >>> describe_test_outcome(RuleCheck(Rule(Indicator("mrr"), "non-inferior", limit=0.02), True, p=0.01))
    'being worse by 0.02 is ruled out'
    """
    if not check.is_tested:
        return ""
    margin = format_number(check.rule.limit, "number") + "%" * check.rule.percent
    return TEST_OUTCOMES[check.rule.kind][not check.passed].format(margin)


def summarise_gate(gate: Gate) -> str:
    """Summarise the result of a gate in one sentence.

    >>> summarise_gate(Gate("bm25", []))
    'bm25 FAILED: no rule was checked.'
    """
    if gate.error is not None:
        return f"{gate.run} FAILED: the rules could not be evaluated."
    if not gate.checks:
        return f"{gate.run} FAILED: no rule was checked."
    against = "" if gate.baseline is None else f" (baseline {gate.baseline})"
    if gate.passed:
        return f"{gate.run} passed {pluralise(len(gate.checks), 'rule')}{against}."
    return f"{gate.run} FAILED {len(gate.failed)} of {pluralise(len(gate.checks), 'rule')}{against}."


def build_report(gate: Gate) -> Report:
    sections = [
        Section("rules", "Rules", [_build_rules_table(gate)] if gate.checks else [], "Rules"),
        Section("failures", "Reasons", _describe_failures(gate), "Reasons"),
    ]
    return Report(
        "gate",
        "Gate",
        summarise_gate(gate),
        [section for section in sections if section.blocks],
        [gate.run, *([f"convention {gate.convention}"] if gate.convention else [])],
        notes=[*describe_run_dates(gate.run_dates), *gate.notes],
        provenance={"made": max((date.made for date in gate.run_dates.values()), default=None)},
    )


def _build_rules_table(gate: Gate) -> Table:
    """Build the table with one row per rule; columns about the baseline only if a rule needs it."""
    compared = any(not math.isnan(check.baseline) for check in gate.checks)
    tested = any(check.is_tested for check in gate.checks)
    columns = [
        Column("", "text"),
        Column("rule", "text"),
        Column("value", "number"),
        Column("limit", "number", legend="value that the rule requires"),
        Column("n", "count", drop_order=4, legend="number of queries"),
    ]
    if compared:
        level = f"{format_level(1 - 2 * gate.alpha)} interval"
        columns += [
            Column("baseline", "number", drop_order=2),
            Column("change", "number"),
            Column(level, "number", drop_order=1, legend="confidence interval of the change, for a one-sided test"),
        ]
    if tested:
        columns.append(Column("p", "p", drop_order=3, legend=_describe_test(gate)))
    rows: list[Row] = []
    for check in gate.checks:
        value, limit = format_value_and_limit(check)
        row = [
            Cell("pass" if check.passed else "FAIL", tone="good" if check.passed else "bad"),
            Cell(check.rule_text),
            Cell(check.value, text=value),
            Cell(check.limit, text=limit),
            Cell(check.n or None),
        ]
        if compared:
            difference, low, high, style = _relative_change(check)
            interval = Cell(low, text=format_interval(low, high, style))
            row += [Cell(check.baseline, _value_style(check)), Cell(difference, style), interval]
        rows.append([*row, Cell(check.p)] if tested else row)
    return Table("rules", columns, rows)


def _describe_test(gate: Gate) -> str:
    """Describe the tests behind the p-values, for those rules that have one."""
    sources = {check.rule.indicator.source for check in gate.checks if check.is_tested}
    names = {"measure": "paired t-test", "latency": "paired permutation test of times"}
    tests = " or ".join(name for source, name in names.items() if source in sources)
    corrected = "" if gate.correction == "none" else f", `not worse` corrected by {gate.correction}"
    return f"one-sided {tests}{corrected}; significant below {format_number(gate.alpha, 'number')}"


def _describe_failures(gate: Gate) -> list[Block]:
    if gate.error is not None:
        return [Paragraph(text, warning=True) for text in (gate.error.message, gate.error.hint) if text]
    rows: list[Row] = [[check.rule_text, check.reason] for check in gate.failed]
    return [Table("reasons", [Column("failed rule"), Column("reason")], rows)] if rows else []


def build_rules_table(gate: Gate) -> Table:
    """Build the table with one row per rule and exact numbers."""
    numbers = ("value", "limit", "n", "baseline", "difference", "ci_low", "ci_high", "p", "detectable")
    columns = [Column("run"), Column("rule"), Column("passed"), *map(Column, numbers), Column("reason")]
    rows: list[Row] = [
        [
            gate.run,
            check.rule_text,
            check.passed,
            check.value,
            check.limit,
            check.n,
            check.baseline,
            check.difference,
            *check.ci,
            check.p,
            check.detectable,
            check.reason,
        ]
        for check in gate.checks
    ]
    return Table("rules", columns, rows)


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per rule", build_rules_table)})


def render_gate_junit(gate: Gate) -> bytes:
    """Render a gate as JUnit XML with one test case per rule; an error is a case of its own."""
    cases = []
    for check in gate.checks:
        case = _junit_case(check.rule_text)
        text = _describe_check(check)
        if not check.passed:
            failure = Xml.SubElement(case, "failure", message=one_line(check.reason), type="CheckFailed")
            failure.text = one_line(text)
        elif text:
            Xml.SubElement(case, "system-out").text = one_line(text)
        cases.append(case)
    if gate.error is not None:
        case = _junit_case("the rules can be evaluated")
        element = Xml.SubElement(case, "error", message=one_line(gate.error.message), type=gate.error.kind)
        element.text = one_line(gate.error.hint)
        return _junit_suite(gate, [case], errors=1)
    return _junit_suite(gate, cases, failures=len(gate.failed))


def _describe_check(check: RuleCheck) -> str:
    """Describe the numbers of a check in one line."""
    value, limit = format_value_and_limit(check)
    difference, low, high, style = _relative_change(check)
    facts = {
        "value": "" if math.isnan(check.value) else value,
        "limit": "" if math.isnan(check.limit) else limit,
        "n": str(check.n or ""),
    }
    parts = [", ".join(f"{name} {text}" for name, text in facts.items() if text)]
    if not math.isnan(difference):
        interval = "" if math.isnan(low) else f" {format_interval(low, high, style)}"
        baseline = format_number(check.baseline, _value_style(check))
        parts.append(f"baseline {baseline}, change {format_number(difference, style)}{interval}")
    if check.is_tested:
        parts.append(f"{describe_test_outcome(check)}, p {format_number(check.p, 'p')}")
    return "; ".join(filter(None, parts))


def _junit_case(name: str) -> Xml.Element:
    return Xml.Element("testcase", classname="ragauge.gate", name=one_line(name), time="0")


def _junit_suite(gate: Gate, cases: Sequence[Xml.Element], failures: int = 0, errors: int = 0) -> bytes:
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors), "skipped": "0", "time": "0"}
    root = Xml.Element("testsuites", counts)
    suite = Xml.SubElement(root, "testsuite", {"name": one_line(f"ragauge gate {gate.run}"), **counts})
    notes = describe_run_dates(gate.run_dates)
    if notes:
        properties = Xml.SubElement(suite, "properties")
        for note in notes:
            Xml.SubElement(properties, "property", name="note", value=one_line(note))
    suite.extend(cases)
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
