"""`ragauge audit QRELS RUN…`: check scores for suspicious causes."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ragauge.cli import console
from ragauge.cli.option_checks import allow_only_options, refuse_options
from ragauge.cli.options import CORPUS_HELP, ConventionName, MinRelevantGrade, resolve_convention
from ragauge.core.errors import BadInput
from ragauge.output.terminal import borderless_table


def audit(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="QRELS [RUN...]",
            help="Judgments and runs as in evaluate, or folders that `run` wrote; a BEIR folder brings its texts. "
            "NAME=FILE again is the same system asked again.",
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "-m", "--measure", help="A measure; again for more.  [dim]default the run's, or as evaluate[/dim]"
        ),
    ] = None,
    convention: ConventionName = "default",
    rel: MinRelevantGrade = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="MEASURE=VALUE", help="A number from a paper or a tool, to be explained; again for more."),
    ] = None,
    corpus: Annotated[str | None, typer.Option(help=f"Documents: {CORPUS_HELP}.")] = None,
    queries: Annotated[str | None, typer.Option(help="The texts of the queries: JSONL or TSV.")] = None,
    dataset: Annotated[
        str | None, typer.Option("-d", "--dataset", help="Dataset with documents and queries, by name or folder.")
    ] = None,
    check: Annotated[list[str] | None, typer.Option(help="Only this check; again for more.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show the tables of what is in order, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    markdown: Annotated[str | None, typer.Option(metavar="FILE", help="Write it all as Markdown.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a problem.")] = False,
    targets: Annotated[str | None, typer.Option(help="A target map for dr@k.")] = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder: test, train, dev.")] = None,
    qrels_format: Annotated[str | None, typer.Option(help="What the judgments are, e.g. trec or subtopics.")] = None,
) -> None:
    """Check judgments, runs and corpus for problems that make scores unreliable.

    [dim]ragauge audit qrels.txt bm25.run --corpus corpus.jsonl --expect ndcg@10=0.7439[/dim]
    """
    if listing:
        allow_only_options(context, ["listing"], "--list")
        _print_audit_checks()
        return
    if not files:
        raise BadInput("nothing is given", hint="ragauge audit QRELS RUN…, or a folder that `ragauge run` wrote")
    if as_json:
        refuse_options(context, ["full"], "with --json, which has every finding in full")
    from ragauge.audits import audit_files, report

    found = audit_files(
        files,
        corpus=corpus,
        queries=queries,
        dataset=dataset,
        measures=measure,
        convention=resolve_convention(convention, rel=rel),
        expect=expect or [],
        checks=check,
        targets=targets,
        qrels_format=qrels_format,
        split=split,
    )
    if markdown is not None:
        from ragauge.files.workspace import atomic_write

        with atomic_write(markdown) as out:
            out.write(report.render_audit_markdown(found).encode("utf-8", "replace"))
    if as_json:
        console.write_data(report.audit_to_json(found))
    else:
        console.print_tables(*console.constrain_width(report.render_audit_terminal(found, full=full)))
    wrote = [] if markdown is None else [f"wrote {markdown}"]
    console.print_notes([*found.notes, *wrote, report.summarise_audit(found)])
    if strict and found.problems:
        raise typer.Exit(1)


def _print_audit_checks() -> None:
    from ragauge.audits.checks import AUDIT_CHECKS

    table = borderless_table(["check", "what it looks for", "needs"], numbers=False)
    for one in AUDIT_CHECKS.values():
        table.add_row(Text(one.name), Text(one.about), Text(", ".join(need.name for need in one.needs)))
    console.print_tables(table)
