"""Reports of a gate for a terminal, as Markdown, JUnit XML and JSON data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as Xml

from rich.table import Table
from rich.text import Text

from ragauge.core.errors import RagaugeError
from ragauge.core.run_dates import describe_run_dates
from ragauge.core.text import one_line
from ragauge.evaluation.indicators import Indicator
from ragauge.files.serialization import replace_nan
from ragauge.gates.results import Gate, RuleCheck
from ragauge.output.markdown import escape_markdown, render_markdown_table
from ragauge.output.numbers import format_number, format_score
from ragauge.output.terminal import borderless_table

MAX_LINE_CHARS = 100
"""Maximum length of a readable line, in characters."""
FIXED_COLUMN_CHARS = 12
"""Characters per line used by the mark and the gaps between columns."""
TEST_OUTCOME_TEXTS = {
    "not worse": ("being worse is not shown", "being worse is shown"),
    "better": ("being better is shown", "being better is not shown"),
    "non-inferior": ("being worse by {} is ruled out", "being worse by {} is not ruled out"),
}
"""Outcome of a test by kind of rule: if it passed, and if it failed."""


def format_indicator(figure: Indicator, value: float) -> str:
    """Format an indicator with its significant digits.

    >>> (format_indicator(Indicator("ndcg@10"), 0.5), format_indicator(Indicator("p95_ms"), 12.345),
    ...  format_indicator(Indicator("missing"), 3))
    ('0.5000', '12.3', '3')
    """
    if math.isnan(value):
        return ""
    if figure.source == "count" or figure.name.startswith("num_") or figure.name in ("failed", "missing", "queries"):
        return f"{value:.6g}"
    return (
        format_number(value, "ms") if figure.name.endswith(("_ms", "_seconds", "throughput")) else format_score(value)
    )


def format_value_and_limit(check: RuleCheck) -> tuple[str, str]:
    """Format value and limit with enough digits to show which is larger."""
    texts = [format_indicator(check.rule.figure, number) for number in (check.value, check.limit)]
    if texts[0] == texts[1] and abs(check.value - check.limit) > 0:
        for digits in range(5, 16):
            texts = [f"{number:.{digits}f}" for number in (check.value, check.limit)]
            if texts[0] != texts[1]:
                break
    return texts[0], texts[1]


def comparison_lines(check: RuleCheck) -> list[str]:
    """Describe the baseline, the difference with its interval, and the test result.

    In percent if the rule is.

    >>> from ragauge.gates.results import Rule
    >>> rule = Rule(Indicator("mrr"), "not worse")
    >>> comparison_lines(RuleCheck(rule, True, value=0.5, baseline=0.51, difference=-0.01, ci=(-0.03, 0.01), p=0.2,
    ...     n=40))
    ['baseline 0.5100, change -0.0100 [-0.0300, +0.0100]', 'being worse is not shown, p 0.200']
    """
    if math.isnan(check.difference):
        return []
    rule = check.rule
    numbers = [check.difference, *check.ci]
    if rule.percent and check.baseline:
        parts = [f"{100 * number / abs(check.baseline):+.2f}%" for number in numbers]
    else:
        parts = [f"{number:+.4f}" if rule.figure.source == "measure" else f"{number:+.3g}" for number in numbers]
    interval = "" if math.isnan(check.ci[0]) else f" [{parts[1]}, {parts[2]}]"
    lines = [f"baseline {format_indicator(rule.figure, check.baseline)}, change {parts[0]}{interval}"]
    if not math.isnan(check.p):
        words = TEST_OUTCOME_TEXTS[rule.kind][not check.passed].format(f"{rule.limit:.12g}" + "%" * rule.percent)
        lines.append(f"{words}, p {format_number(check.p, 'p')}")
    return lines


def failure_reason(check: RuleCheck) -> str:
    """Return the reason for a failure, unless the shown numbers explain it."""
    value, limit = format_value_and_limit(check)
    names = check.rule.figure.name == "missing"  # The reason names the queries.
    return "" if not math.isnan(check.p) or (limit and value != limit and not names) else check.reason


def build_checks_table(gate: Gate, width: int) -> Table:
    """Build a table with one row per check.

    Its evidence and reason for failure are below it.
    """
    heads = ["value", "limit", "n"]
    numbers = [[*format_value_and_limit(check), str(check.n or "")] for check in gate.checks]
    taken = FIXED_COLUMN_CHARS + sum(max(map(len, column)) for column in zip(heads, *numbers, strict=True))
    room = max(24, min(width, MAX_LINE_CHARS if width <= 200 else 80) - taken)
    found = borderless_table(["", "check", *heads])
    found.columns[1].justify = "left"
    for check, (value, limit, n) in zip(gate.checks, numbers, strict=True):
        lines = [Text(line) for line in _wrap_text(str(check.rule), room)]
        lines += [Text(line, style="dim") for text in comparison_lines(check) for line in _wrap_text(text, room)]
        lines += [Text(line, style="red") for line in _wrap_text(failure_reason(check), room)]
        mark = Text("pass", style="green") if check.passed else Text("FAIL", style="bold red")
        found.add_row(mark, lines[0], Text(value), Text(limit), Text(n, style="dim"))
        for line in lines[1:]:
            found.add_row("", line, "", "", "")
    return found


def _wrap_text(text: str, room: int) -> list[str]:
    return textwrap.wrap(one_line(text), room, break_on_hyphens=False)


def summarise_gate(gate: Gate) -> str:
    """Summarise the result of a gate in one line.

    >>> summarise_gate(Gate("bm25", []))
    'bm25 FAILED: nothing was checked'
    """
    against = "" if gate.baseline is None else f" (baseline {gate.baseline})"
    if gate.passed:
        return f"{gate.run} passed {_checks_text(len(gate.checks))}{against}"
    if not gate.checks:
        return f"{gate.run} FAILED: nothing was checked"
    return f"{gate.run} FAILED {len(gate.failed)} of {_checks_text(len(gate.checks))}{against}"


def _checks_text(n: int) -> str:
    return f"{n} check{'s' * (n != 1)}"


def gate_report_notes(gate: Gate) -> list[str]:
    """Return notes on how to read the numbers, and the notes of the gate."""
    tested = [check for check in gate.checks if not math.isnan(check.p)]
    notes = [*describe_run_dates(gate.answers), f"convention {gate.convention}"]
    if any(not math.isnan(check.ci[0]) for check in gate.checks):
        notes.append(
            f"in brackets: the {1 - 2 * gate.alpha:.0%} interval of the change, which a one-sided test goes by"
        )
    if any(check.rule.figure.source == "measure" for check in tested):
        notes.append(f"p below {gate.alpha:g} shows it: paired t-test, one-sided" + _correction_text(gate))
    if any(check.rule.figure.source == "latency" for check in tested):
        notes.append(
            f"p of times: queries swapped between the runs, one-sided{_correction_text(gate)}, below {gate.alpha:g} "
            f"too; "
            "it knows nothing of a machine that was busier in one of them"
        )
    return [*notes, *gate.notes]


def _correction_text(gate: Gate) -> str:
    return "" if gate.correction == "none" else f", `not worse` corrected by {gate.correction}"


def render_gate_markdown(gate: Gate) -> str:
    """Render a gate as Markdown."""
    rows = [
        [
            "pass" if check.passed else "FAIL",
            str(check.rule),
            *format_value_and_limit(check),
            str(check.n or ""),
            "; ".join(comparison_lines(check)),
            "" if check.passed else check.reason,
        ]
        for check in gate.checks
    ]
    return "\n".join(
        [
            f"## Gate: {escape_markdown(summarise_gate(gate))}",
            "",
            *render_markdown_table(
                ["", "check", "value", "limit", "n", "against the baseline", "reason"], rows, numbers=False
            ),
            "",
            *(f"- {escape_markdown(note)}" for note in gate_report_notes(gate)),
            "",
        ]
    )


def render_undecided_markdown(run: str, error: RagaugeError) -> str:
    """Render a gate that could not be evaluated, which is a failure, as Markdown."""
    return f"## Gate: {escape_markdown(run)} FAILED: it could not be decided\n\n{escape_markdown(error.message)}\n"


def render_gate_junit(gate: Gate) -> bytes:
    """Render a gate as JUnit XML with one test case per check."""
    cases = []
    for check in gate.checks:
        case = _junit_case(str(check.rule))
        value, limit = format_value_and_limit(check)
        said = [("value", value), ("limit", limit), ("n", str(check.n or ""))]
        text = "; ".join([", ".join(f"{name} {one}" for name, one in said if one), *comparison_lines(check)])
        if not check.passed:
            failure = Xml.SubElement(case, "failure", message=one_line(check.reason), type="CheckFailed")
            failure.text = one_line(text)
        elif text:
            Xml.SubElement(case, "system-out").text = one_line(text)
        cases.append(case)
    return _junit_suite(gate.run, cases, failures=len(gate.failed), notes=describe_run_dates(gate.answers))


def render_undecided_junit(run: str, error: RagaugeError) -> bytes:
    """Render a gate that could not be evaluated as JUnit XML."""
    case = _junit_case("the gate can be decided")
    kind = type(error).__name__
    Xml.SubElement(case, "error", message=one_line(error.message), type=kind).text = one_line(error.hint or "")
    return _junit_suite(run, [case], errors=1)


def _junit_case(name: str) -> Xml.Element:
    return Xml.Element("testcase", classname="ragauge.gate", name=one_line(name), time="0")


def _junit_suite(
    run: str, cases: Sequence[Xml.Element], failures: int = 0, errors: int = 0, notes: Sequence[str] = ()
) -> bytes:
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors), "skipped": "0", "time": "0"}
    root = Xml.Element("testsuites", counts)
    suite = Xml.SubElement(root, "testsuite", {"name": one_line(f"ragauge gate {run}"), **counts})
    if notes:
        properties = Xml.SubElement(suite, "properties")
        for note in notes:
            Xml.SubElement(properties, "property", name="note", value=one_line(note))
    suite.extend(cases)
    Xml.indent(root)
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def gate_to_dict(gate: Gate) -> dict[str, Any]:
    """Convert a gate to JSON data."""
    checks = [
        {
            "rule": str(check.rule),
            "figure": check.rule.figure.name,
            "kind": check.rule.kind,
            "stratum": f"{check.rule.tag}={check.rule.value}" if check.rule.tag else None,
            "passed": check.passed,
            "value": check.value,
            "limit": check.limit,
            "n": check.n,
            "baseline": check.baseline,
            "difference": check.difference,
            "ci": None if math.isnan(check.ci[0]) else list(check.ci),
            "p": check.p,
            "detectable": check.detectable,
            "reason": check.reason or None,
        }
        for check in gate.checks
    ]
    data = {
        "passed": gate.passed,
        "run": gate.run,
        "baseline": gate.baseline,
        "convention": gate.convention,
        "alpha": gate.alpha,
        "correction": gate.correction,
        "checks": checks,
        "answers": {name: date._asdict() for name, date in gate.answers.items()},
        "notes": list(gate.notes),
    }
    return dict(replace_nan(data))
