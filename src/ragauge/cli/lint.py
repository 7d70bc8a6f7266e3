"""`ragauge lint CORPUS`: check a corpus for problems before it is embedded."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli.option_checks import allow_only_options, refuse_options
from ragauge.cli.options import CORPUS_HELP, ChartsFolder, FormatName, OutputFiles, PrintJson, csv_option
from ragauge.cli.output import check_outputs, print_table, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput
from ragauge.knowledge.lint.results import Lint
from ragauge.output.tables import Column, Table


def lint(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    corpus: Annotated[
        str | None,
        typer.Argument(help=f"Corpus: {CORPUS_HELP}; - is standard input."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            "-e", "--embedder", metavar="NAME", help="Embedder whose tokens and token limit apply, e.g. minilm."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Hugging Face tokenizer.json, or its folder, instead of an embedder."),
    ] = None,
    token_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="that of the embedder or tokenizer",
            help="Maximum number of tokens that the embedder reads.",
        ),
    ] = None,
    qrels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Judgments; documents that are not in the corpus are reported. A BEIR folder has its own.",
        ),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Allowed language of the documents, e.g. en. Can be repeated."),
    ] = None,
    min_chars: Annotated[int, typer.Option(metavar="N", help="Minimum length of a document in characters.")] = 32,
    max_chars: Annotated[int, typer.Option(metavar="N", help="Maximum length of a document in characters.")] = 4096,
    near_duplicate: Annotated[
        float, typer.Option(metavar="SHARE", help="Minimum Jaccard similarity of near-duplicates (3-word shingles).")
    ] = 0.8,
    problem_share: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of affected documents from which a finding is a problem.")
    ] = 0.01,
    check: Annotated[
        list[str] | None, typer.Option(metavar="NAME", show_default="all", help="Check to run. Can be repeated.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks.")] = False,
    id_field: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the field with document ids.")] = None,
    text_field: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the field with texts.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Show all examples and the languages.")] = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("finding")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a problem.")] = False,
) -> None:
    """Check a corpus for problems before it is embedded.

    [dim]ragauge lint corpus.jsonl --embedder minilm --qrels qrels.txt -o lint.html[/dim]
    """
    if listing:
        allow_only_options(context, ["listing"], "--list")
        _print_lint_checks()
        return
    if corpus is None:
        raise BadInput(
            "no corpus given; expected a file, a folder or a dataset", hint="use `ragauge lint corpus.jsonl`"
        )
    from ragauge.knowledge import lint
    from ragauge.knowledge.lint.report import build_report

    check_outputs(Lint, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    if as_json or as_csv or (format_name is not None and not out):
        refuse_options(context, ["full"], "with --json, --csv and --format, which include all findings")
    with show_progress() as progress:
        result = lint.lint(
            corpus,
            qrels=qrels,
            embedder=embedder,
            tokenizer=tokenizer,
            token_limit=token_limit,
            languages=language,
            min_chars=min_chars,
            max_chars=max_chars,
            near_duplicate=near_duplicate,
            problem_share=problem_share,
            checks=check,
            id_field=id_field,
            text_field=text_field,
            progress=progress,
        )
    write_result(
        [result],
        out or [],
        as_json=as_json,
        as_csv=as_csv,
        format_name=format_name,
        charts=charts,
        report=build_report(result, all_findings=full),
    )
    if strict and result.problems:
        raise typer.Exit(1)


def _print_lint_checks() -> None:
    from ragauge.knowledge.lint.checks import LINT_CHECKS

    columns = [Column("check", "name"), Column("what it looks for"), Column("needs")]
    rows = [
        [check.name, check.about, ", ".join(need.name for need in check.needs if need.name != "documents")]
        for check in LINT_CHECKS.values()
    ]
    print_table(Table("checks", columns, rows))
