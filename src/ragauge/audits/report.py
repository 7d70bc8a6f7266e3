"""Report of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ragauge.audits.comparability import CONVENTIONS_FINDING
from ragauge.core.findings import EXPECTED_FINDING, Audit, Finding
from ragauge.output.numbers import join_names, pluralise
from ragauge.output.report import (
    ALL_FORMATS,
    FILES_ONLY,
    Block,
    Findings,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Column, Row, Table, table_of_finding, table_of_findings

FINDINGS_WITH_TABLE = (CONVENTIONS_FINDING, EXPECTED_FINDING)
"""Findings that have a section of their own, even without a problem."""
TABLE_NOTES = {CONVENTIONS_FINDING: "The presets are described in CONVENTIONS.md."}
"""Notes below the table of a finding, by the name of the finding."""
MAX_SUBJECTS = 2
"""Maximum number of subjects without a problem that a terminal lists one by one."""


def summarise_audit(audit: Audit) -> str:
    """Summarise the numbers of problems and of skipped checks in one sentence.

    >>> summarise_audit(Audit([Finding("run", "ties", True, 1, "…")], {"orphans": "no corpus"}))
    '1 problem found, 1 check skipped.'
    """
    skipped = f", {pluralise(len(audit.skipped), 'check')} skipped" if audit.skipped else ""
    return f"{pluralise(len(audit.problems), 'problem')} found{skipped}."


def build_report(audit: Audit, *, all_findings: bool = False) -> Report:
    """Build the report of an audit: expected scores, problems by subject, other findings, and skipped checks.

    With `all_findings`, a terminal shows every finding without a problem, and its table.
    """
    expected = [finding for finding in audit.findings if finding.check == EXPECTED_FINDING]
    problems = [finding for finding in audit.problems if finding.check != EXPECTED_FINDING]
    presets = [finding for finding in audit.findings if finding.check == CONVENTIONS_FINDING and not finding.problem]
    passed = [f for f in audit.findings if not f.problem and f.check not in FINDINGS_WITH_TABLE]
    subjects = list(dict.fromkeys(finding.subject for finding in problems))
    sections = [
        Section("expected", "Expected scores", _finding_blocks(expected), "Expected scores"),
        *(
            Section(
                f"problems-{number}",
                f"Problems of {subject}",
                _finding_blocks([finding for finding in problems if finding.subject == subject]),
                "Problems" if number == 1 else "",
            )
            for number, subject in enumerate(subjects, 1)
        ),
        Section("conventions", "Conventions", _finding_blocks(presets), "Conventions"),
        Section(
            "passed",
            "No problem",
            [_build_passed_table(passed)] if passed else [],
            "No problem",
            ALL_FORMATS if all_findings else FILES_ONLY,
        ),
        Section(
            "evidence",
            "Evidence without a problem",
            [table for finding in passed for table in _evidence_tables(finding, f"{finding.check}: {finding.subject}")],
            formats=ALL_FORMATS if all_findings else FILES_ONLY,
        ),
        Section("skipped", "Skipped checks", _skipped_blocks(audit), "Skipped"),
    ]
    if not all_findings and passed:
        condensed = Section("passed", "No problem", [_condense_passed(passed)], formats=frozenset({"terminal"}))
        sections.insert(-1, condensed)
    return Report(
        "audit",
        "Audit",
        summarise_audit(audit),
        [section for section in sections if section.blocks],
        [join_names(audit.runs)] if audit.runs else [],
        notes=audit.notes,
    )


def _finding_blocks(findings: Sequence[Finding]) -> list[Block]:
    """Return each finding, followed by its table; the subject is in the title of the section.

    Effect and remedy of a finding that is not a problem are paragraphs, because not every format shows them with it.
    """
    blocks: list[Block] = []
    for finding in findings:
        displayed = replace(finding, subject="", message=_message_with_examples(finding), examples=())
        if not finding.problem:
            displayed = replace(displayed, remedy="")
        blocks.append(Findings([displayed]))
        if not finding.problem:
            effect = f"Effect: {finding.effect}" if finding.effect else ""
            blocks += [Paragraph(text) for text in (effect, finding.remedy) if text]
        blocks += _evidence_tables(finding)
    return blocks


def _message_with_examples(finding: Finding) -> str:
    more = ", …" if finding.count > len(finding.examples) else ""
    return finding.message + (f" ({', '.join(finding.examples)}{more})" if finding.examples else "")


def _evidence_tables(finding: Finding, title: str = "") -> list[Table]:
    if finding.table is None or not finding.table.rows:
        return []
    table = table_of_finding(finding.table, title, finding.check.replace(" ", "-"))
    return [replace(table, note=TABLE_NOTES.get(finding.check, ""))]


def _build_passed_table(findings: Sequence[Finding]) -> Table:
    rows: list[Row] = [[f.check, f.subject, _message_with_examples(f)] for f in findings]
    return Table("passed", [Column("check", "name"), Column("subject", "name"), Column("result")], rows, group_by=0)


def _condense_passed(findings: Sequence[Finding]) -> Table:
    """Build the table of findings without a problem; checks of many subjects share a row."""
    rows: list[Row] = []
    shared: dict[tuple[str, ...], list[str]] = {}
    for kind in dict.fromkeys(finding.check for finding in findings):
        several = [finding for finding in findings if finding.check == kind]
        if len(several) > MAX_SUBJECTS:
            shared.setdefault(tuple(finding.subject for finding in several), []).append(kind)
            continue
        for finding in several:
            subject = f"{finding.subject}: " if len(several) > 1 else ""
            rows.append([kind, f"{subject}{_message_with_examples(finding)}"])
    rows += [[", ".join(names), f"no problem in {join_names(subjects)}"] for subjects, names in shared.items()]
    return Table("passed", [Column("", "text"), Column("")], rows)


def _skipped_blocks(audit: Audit) -> list[Block]:
    """Return the skipped checks by reason."""
    checks: dict[str, list[str]] = {}
    for name, reason in audit.skipped.items():
        checks.setdefault(reason, []).append(name)
    rows: list[Row] = [[", ".join(names), reason] for reason, names in checks.items()]
    return [Table("skipped", [Column(""), Column("")], rows)] if rows else []


def build_findings_table(audit: Audit) -> Table:
    """Build the table with one row per finding; examples are separated by ` | `."""
    return table_of_findings(audit.findings, "subject")


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per finding", build_findings_table)})
