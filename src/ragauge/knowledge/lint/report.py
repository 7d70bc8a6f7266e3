"""Report of a lint."""

from __future__ import annotations

from dataclasses import replace

from ragauge.core.findings import Finding
from ragauge.knowledge.lint.charts import build_language_chart, build_length_chart
from ragauge.knowledge.lint.results import Lint
from ragauge.output.numbers import format_number, pluralise
from ragauge.output.report import (
    FILES_ONLY,
    Block,
    Charts,
    Findings,
    Paragraph,
    Report,
    ResultReporter,
    Section,
    TableBuilder,
)
from ragauge.output.tables import Column, Row, Table, table_of_finding, table_of_findings

LENGTH_STATISTICS = {"n": 0, "min": 4, "p5": 1, "p50": 0, "mean": 0, "p95": 3, "max": 0, "total": 2}
"""Statistics of text lengths, with the order in which a narrow terminal drops their columns."""
UNKNOWN_LANGUAGE = "?"


def summarise_lint(result: Lint) -> str:
    """Summarise the result in one sentence.

    >>> summarise_lint(Lint("docs", 3, [Finding("docs", "empty", True, 1, "…")], {"orphans": "no judgments"}))
    '1 problem in 3 documents: empty (1). 1 check was skipped.'
    """
    skipped = f" {pluralise(len(result.skipped), 'check was', 'checks were')} skipped." if result.skipped else ""
    documents = pluralise(result.documents, "document")
    if not result.problems:
        return f"No problem in {documents}.{skipped}"
    names = [f"{finding.check} ({finding.count:,})" if finding.count else finding.check for finding in result.problems]
    return f"{pluralise(len(names), 'problem')} in {documents}: {', '.join(names)}.{skipped}"


def build_report(result: Lint, *, all_findings: bool = False) -> Report:
    """Build the report of a lint.

    With `all_findings`, a terminal shows all examples and the languages.
    """
    subject = [result.corpus, pluralise(result.documents, "document")]
    if result.embedder:
        limit = "" if result.limit is None else f", limit {result.limit:,}"
        subject.append(f"tokens of {result.embedder}{limit}")
    sections = [
        _findings_section(result, all_findings=all_findings),
        _evidence_section(result),
        _lengths_section(result),
        _languages_section(result, all_findings=all_findings),
        _duration_section(result),
    ]
    return Report(
        "lint",
        "Lint",
        summarise_lint(result),
        [section for section in sections if section.blocks],
        subject,
        notes=result.notes,
        provenance={**result.provenance, "thresholds": result.thresholds},
    )


def _findings_section(result: Lint, *, all_findings: bool) -> Section:
    findings = []
    for finding in result.findings:
        label = _finding_label(finding, result)
        # The subject of most findings is the corpus, which the title names; a label may name it too.
        is_named = finding.subject == result.corpus or label != finding.check
        findings.append(replace(finding, check=label, subject="" if is_named else finding.subject))
    max_examples = max((len(finding.examples) for finding in findings), default=0)
    return Section(
        "findings", "Findings", [Findings(findings, result.skipped, max_examples if all_findings else 3)], "Findings"
    )


def _finding_label(finding: Finding, result: Lint) -> str:
    """Return the name of a finding, with its file if that is ambiguous.

    >>> files = [Finding(f"qrels/{name}.tsv", "orphans", False, 0, "…") for name in ("test", "train")]
    >>> _finding_label(files[0], Lint("docs", 3, files)), _finding_label(files[0], Lint("docs", 3, files[:1]))
    ('orphans (test.tsv)', 'orphans')
    """
    subjects = {other.subject for other in result.findings if other.check == finding.check}
    if len(subjects) == 1 or finding.subject == result.corpus:
        return finding.check
    return f"{finding.check} ({finding.subject.rpartition('/')[2]})"


def _evidence_section(result: Lint) -> Section:
    """Tables of evidence, and all examples."""
    blocks: list[Block] = [
        table_of_finding(finding.table, finding.check, finding.check)
        for finding in result.problems
        if finding.table is not None
    ]
    examples = [[_finding_label(finding, result), text] for finding in result.findings for text in finding.examples]
    if examples:
        columns = [Column("check", "name"), Column("example")]
        blocks.append(Table("examples", columns, examples, "All examples", collapsed=True))
    return Section("evidence", "Evidence", blocks, "Evidence", FILES_ONLY)


def _lengths_section(result: Lint) -> Section:
    counted = {unit: statistics for unit, statistics in result.lengths.items() if statistics.get("n")}
    if not counted:
        return Section("lengths", "Lengths", [])
    columns = [Column("unit", "name")]
    columns += [Column(name, "count", drop_order=order) for name, order in LENGTH_STATISTICS.items()]
    rows: list[Row] = [
        [unit, *(statistics[name] for name in LENGTH_STATISTICS)] for unit, statistics in counted.items()
    ]
    blocks: list[Block] = [Table("lengths", columns, rows), Charts(lambda: build_length_chart(result))]
    if result.lost.get("of"):
        share = format_number(result.lost["tokens"] / result.lost["of"], "share")
        text = (
            f"{result.embedder} reads at most {pluralise(result.limit or 0, 'token')} per text: "
            f"{result.lost['documents']:,} of {pluralise(result.documents, 'document')} are truncated, and "
            f"{result.lost['tokens']:,} of {result.lost['of']:,} tokens ({share}) are lost."
        )
        blocks.insert(0, Paragraph(text))
    return Section("lengths", "Lengths", blocks, "Lengths")


def _languages_section(result: Lint, *, all_findings: bool) -> Section:
    if len(result.languages) < 2:
        return Section("languages", "Languages", [])
    columns = [Column("language", "name"), Column("documents", "count"), Column("share", "share")]
    rows: list[Row] = [[name, count, count / max(1, result.documents)] for name, count in result.languages.items()]
    blocks: list[Block] = [Table("languages", columns, rows), Charts(lambda: build_language_chart(result))]
    if UNKNOWN_LANGUAGE in result.languages:
        blocks.append(Paragraph(f"{UNKNOWN_LANGUAGE}: the text is too short or too mixed to identify its language."))
    formats = FILES_ONLY | {"terminal"} if all_findings else FILES_ONLY
    return Section("languages", "Languages", blocks, "Languages", formats)


def _duration_section(result: Lint) -> Section:
    columns = [Column("check", "name"), Column("seconds", "seconds")]
    table = Table("time", columns, list(result.seconds.items()), "Seconds per check", collapsed=True)
    return Section("time", "Time", [table] if result.seconds else [], formats=FILES_ONLY)


def build_findings_table(result: Lint) -> Table:
    """Build the table with one row per finding; examples are separated by ` | `."""
    return table_of_findings(result.findings, "corpus")


REPORTER = ResultReporter(build_report, {"csv": TableBuilder("one row per finding", build_findings_table)})
