"""`ragauge audit QRELS RUN…` and `ragauge audit CORPUS`: check scores and corpora for flaws."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli.option_checks import allow_only_options, refuse_options
from ragauge.cli.options import (
    CORPUS_HELP,
    ConventionName,
    FormatName,
    MinRelevantGrade,
    OutputFiles,
    PrintJson,
    QrelsFormat,
    Split,
    TargetMap,
    csv_option,
    measures_option,
    resolve_convention,
)
from ragauge.cli.output import check_outputs, print_table, print_unread_notes, write_result
from ragauge.core.findings import Audit
from ragauge.output.tables import Column, Table

JUDGMENT_OPTIONS = ("measure", "convention", "rel", "expect", "dataset", "targets", "split", "qrels_format")
"""Options that have no effect on a corpus without judgments."""


def audit(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QRELS [RUN...]",
            help="Judgments and runs, or folders written by `run`; a BEIR folder includes its texts. Several "
            "NAME=FILE with one name are trials of that system. A corpus alone is checked too. "
            "Required without --list.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None, measures_option("those of the run folder, or ndcg@10, recall@100, map, mrr, precision@10")
    ] = None,
    convention: ConventionName = "default",
    rel: MinRelevantGrade = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="MEASURE=VALUE", help="Published score to explain. Can be repeated."),
    ] = None,
    corpus: Annotated[str | None, typer.Option(metavar="CORPUS", help=f"Documents: {CORPUS_HELP}.")] = None,
    queries: Annotated[str | None, typer.Option(metavar="FILE", help="Texts of the queries: JSONL or TSV.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d", "--dataset", metavar="DATASET", help="Dataset with documents and queries, by name or folder."
        ),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            "-e", "--embedder", metavar="NAME", help="Embedder whose token limit the documents are compared with."
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", show_default="all", help="Check to run; --list shows all. Can be repeated."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show every finding, with its table.")] = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("finding")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a problem.")] = False,
    targets: TargetMap = None,
    split: Split = None,
    qrels_format: QrelsFormat = None,
) -> None:
    """Check judgments, runs and corpus for problems that make scores unreliable.

    [dim]ragauge audit qrels.txt bm25.run --corpus corpus.jsonl --expect ndcg@10=0.7439[/dim]
    """
    if listing:
        allow_only_options(context, ["listing"], "--list")
        _print_audit_checks()
        return
    from ragauge.audits.audit import audit_files, find_corpus_alone
    from ragauge.audits.report import build_report

    check_outputs(Audit, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name)
    if as_json or as_csv or (format_name is not None and not out):
        refuse_options(context, ["full"], "with --json, --csv and --format, which include all findings")
    corpus_alone = find_corpus_alone(files or [], corpus)
    if corpus_alone is not None:
        refuse_options(context, JUDGMENT_OPTIONS, "without judgments", hint="pass judgments: `ragauge audit qrels.txt`")
    print_unread_notes(corpus_alone or corpus)
    result = audit_files(
        files or [],
        corpus=corpus,
        queries=queries,
        dataset=dataset,
        measures=measure,
        convention=resolve_convention(convention, rel=rel),
        expect=expect or [],
        checks=check,
        embedder=embedder,
        targets=targets,
        qrels_format=qrels_format,
        split=split,
    )
    write_result(
        [result],
        out or [],
        as_json=as_json,
        as_csv=as_csv,
        format_name=format_name,
        report=build_report(result, all_findings=full),
    )
    if strict and result.problems:
        raise typer.Exit(1)


def _print_audit_checks() -> None:
    from ragauge.audits.checks import AUDIT_CHECKS

    columns = [Column("check", "name"), Column("what it looks for"), Column("needs")]
    rows = [[check.name, check.about, ", ".join(need.name for need in check.needs)] for check in AUDIT_CHECKS.values()]
    print_table(Table("checks", columns, rows))
