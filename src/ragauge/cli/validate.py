"""`ragauge validate QRELS [RUN…]`, `ragauge validate SAMPLES`: check the data for problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.options import CORPUS_HELP, QRELS_HELP, RUNS_HELP, PrintCsv, PrintJson, QrelsFormat, Split, TableFiles
from ragauge.cli.output import check_table_outputs, print_table, write_table, write_table_files
from ragauge.core.errors import BadInput
from ragauge.core.findings import Finding
from ragauge.output.numbers import pluralise
from ragauge.output.tables import Column, Row, Table


def validate(  # noqa: PLR0913 - each is an option of the command
    qrels: Annotated[
        str,
        typer.Argument(help=f"{QRELS_HELP}, or samples, or a folder of `judge`."),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN...]", help=f"{RUNS_HELP}."),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(metavar="CORPUS", help=f"Corpus, to find ids that it lacks: {CORPUS_HELP}; or one id per line."),
    ] = None,
    split: Split = None,
    qrels_format: QrelsFormat = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a problem.")] = False,
    as_json: PrintJson = False,
    as_csv: PrintCsv = False,
    out: TableFiles = None,
) -> None:
    """Check the format of judgments, runs or samples.

    [dim]ragauge validate qrels.txt bm25.run --corpus corpus.jsonl --strict[/dim]
    """
    check_table_outputs(out or [], as_json=as_json, as_csv=as_csv)
    if split is not None and not Path(qrels).is_dir():
        raise BadInput("a split does not apply to a file of judgments", file=qrels, hint="remove --split")
    from ragauge.evaluation import validation
    from ragauge.files.judged_folders import SAMPLES_FILE
    from ragauge.runs.input_kinds import InputKind, is_kind

    if not runs and is_kind(qrels, InputKind.JUDGED):
        qrels = str(Path(qrels) / SAMPLES_FILE)
    if not runs and corpus is None and qrels_format is None and split is None and is_kind(qrels, InputKind.SAMPLES):
        findings = validation.validate_samples(qrels)
    else:
        findings = validation.validate_files(qrels, runs or [], corpus, qrels_format, split)
    n_problems = sum(finding.problem for finding in findings)
    write_table_files(_data_table(findings), out or [], data=findings)
    if as_json or as_csv:
        write_table(_data_table(findings), as_json=as_json, as_csv=as_csv, data=findings)
    else:
        print_table(_findings_table(findings))
        status = "; the exit status is 0 without --strict" if n_problems and not strict else ""
        console.print_notes([f"{pluralise(n_problems, 'problem')} found{status}"])
    if strict and n_problems:
        raise typer.Exit(1)


def _findings_table(findings: Sequence[Finding]) -> Table:
    """Build the table for a terminal: problems are marked."""
    rows = [[finding.subject, "!" if finding.problem else "·", _describe_finding(finding)] for finding in findings]
    return Table("findings", [Column("file", "name"), Column("", "name"), Column("finding")], rows, group_by=0)


def _describe_finding(finding: Finding) -> str:
    more = ", …" if finding.count > len(finding.examples) else ""
    return finding.message + (f" ({', '.join(finding.examples)}{more})" if finding.examples else "")


def _data_table(findings: Sequence[Finding]) -> Table:
    """Build the table for CSV: one row per finding."""
    columns = [Column(name) for name in ("subject", "check", "problem", "count", "message", "examples")]
    rows: list[Row] = [
        [finding.subject, finding.check, finding.problem, finding.count, finding.message, ", ".join(finding.examples)]
        for finding in findings
    ]
    return Table("findings", columns, rows)
