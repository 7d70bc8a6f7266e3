"""`ragauge lint CORPUS`: check a corpus for problems before it is embedded."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from ragauge.cli import console
from ragauge.cli.option_checks import allow_only_options, refuse_options
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import show_status
from ragauge.core.errors import BadInput
from ragauge.knowledge.lint.results import Lint
from ragauge.output.terminal import borderless_table


def lint(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    corpus: Annotated[
        str | None,
        typer.Argument(
            help="JSONL, TSV, CSV, JSON or Parquet (plain, .gz, .zst; - is stdin), a BEIR folder, a folder of texts "
            "(.txt, .md), or a dataset."
        ),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option("-e", "--embedder", help="What will embed it, e.g. minilm: how much is cut off?")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="FILE", help="Or a tokenizer.json of Hugging Face, or its folder.")
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
        typer.Option(help="Judgments, to find ids that are not there.  [dim]a BEIR folder has its own[/dim]"),
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="A language that documents may be in, e.g. en; again for more.")
    ] = None,
    min_chars: Annotated[int, typer.Option(metavar="N", help="Minimum length of a document in characters.")] = 32,
    max_chars: Annotated[int, typer.Option(metavar="N", help="Maximum length of a document in characters.")] = 4096,
    near_duplicate: Annotated[
        float, typer.Option(metavar="SHARE", help="Minimum Jaccard similarity of near-duplicates (3-word shingles).")
    ] = 0.8,
    problem_share: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of affected documents from which a finding is a problem.")
    ] = 0.01,
    check: Annotated[list[str] | None, typer.Option(help="Only this check; again for more.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks.")] = False,
    id_field: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the field with document ids.")] = None,
    text_field: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the field with texts.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Show what is in order, and all examples.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each finding.")] = False,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write .html, .json, .csv or .md; again for more."),
    ] = None,
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
            "nothing is given", hint="ragauge lint CORPUS: a file, a folder or a dataset; `--list` has the checks"
        )
    from ragauge.knowledge import lint

    check_outputs(out or [], as_json=as_json, as_csv=as_csv)
    if as_json or as_csv:
        refuse_options(context, ["full"], "with --json and --csv, which have everything")
    with show_status(after=0.5) as watch:
        found = lint.lint(
            corpus,
            qrels=qrels,
            embedder=embedder,
            tokenizer=tokenizer,
            limit=token_limit,
            languages=language,
            tiny=min_chars,
            giant=max_chars,
            near=near_duplicate,
            share=problem_share,
            checks=check,
            id_field=id_field,
            text_field=text_field,
            tell=lambda what: watch(f"{what} …"),
        )
    write_result([found], out or [], as_json=as_json, as_csv=as_csv, show=lambda: _print_lint(found, full=full))
    if strict and found.problems:
        raise typer.Exit(1)


def _print_lint(found: Lint, *, full: bool) -> list[str]:
    """Print findings, lengths and languages; return the columns that do not fit."""
    from ragauge.knowledge.lint import report as lint_report
    from ragauge.output import report

    told = lint_report.build_report(found)
    kept = [part for part in told.parts if part.id == "lengths" or (full and part.id == "languages")]
    pieces, left = report.render_terminal(replace(told, parts=kept), console.output_width())
    console.print_tables(*console.constrain_width([*lint_report.render_terminal(found, full=full), *pieces[3:]]))
    return left


def _print_lint_checks() -> None:
    from ragauge.knowledge.lint.checks import LINT_CHECKS

    table = borderless_table(["check", "what it looks for", "needs"], numbers=False)
    for one in LINT_CHECKS.values():
        needs = ", ".join(need for need in one.needs if need != "documents")
        table.add_row(Text(one.name), Text(one.about), Text(needs))
    console.print_tables(table)
