"""`ragauge tokenizers CORPUS`: compare tokenizers on the same texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import show_status
from ragauge.core.errors import BadInput
from ragauge.embedder_study.results import TokenizerStudy


def tokenizers(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    corpus: Annotated[
        str | None,
        typer.Argument(help="A JSONL or TSV file, a BEIR folder, a folder of texts (.txt, .md), or a dataset."),
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--tokenizer",
            help="bytes, characters, words, bpe(vocabulary=8000), wordpiece, unigram, file(path=tokenizer.json), "
            "transformers(model=FOLDER), minilm …, or NAME=…; again for more.  "
            "[dim]default all that need no file[/dim]",
        ),
    ] = None,
    token_limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default="that of the tokenizer", help="Maximum number of tokens that a model reads."
        ),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            help="The part of the documents to count on, from which none learns; 0 learns from all and counts all.  "
            "[dim]default 0.1 where one learns[/dim]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="For the documents that are held out.")] = 0,
    part: Annotated[str, typer.Option(help="What of a document: whole, text or title.")] = "whole",
    probe: Annotated[
        list[str] | None, typer.Option("-p", "--probe", metavar="TEXT", help="Show the pieces of this; again for more.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show the pieces of all probes, and the longest words.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each tokenizer.")] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="Output format, e.g. tokenizer (table of the tokenization study)."
        ),
    ] = None,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write .html, .json, .csv or .md; again for more."),
    ] = None,
) -> None:
    """Compare tokenizers on the same texts: token counts, coverage, losses.

    [dim]ragauge tokenizers pydocs -t bytes -t "bpe(vocabulary=8000)" -t minilm --probe "naïve 東京"[/dim]
    """
    if corpus is None:
        raise BadInput("nothing is given", hint="ragauge tokenizers CORPUS: a file, a folder or a dataset")
    from ragauge.embedder_study import tokenizer_study

    check_outputs(out or [], as_json=as_json, as_csv=as_csv, form=form, noun=TokenizerStudy)
    if as_json or as_csv or (form is not None and not out):
        refuse_options(context, ["full"], "with --json, --csv and --format, which have everything")
    with show_status(after=0.5) as watch:
        found = tokenizer_study.compare_tokenizers(
            corpus,
            tokenizer or None,
            limit=token_limit,
            held_out=held_out,
            seed=seed,
            part=part,
            probes=probe or (),
            tell=lambda what: watch(f"{what} …"),
        )
    write_result(
        [found], out or [], as_json=as_json, as_csv=as_csv, form=form, show=lambda: _print_tokenizers(found, full=full)
    )
    print_unread_notes(corpus)


def _print_tokenizers(found: TokenizerStudy, *, full: bool) -> list[str]:
    """Print scores, lengths and requested probes; return columns that do not fit."""
    from ragauge.embedder_study import tokenizer_report
    from ragauge.output import report
    from ragauge.output.report import Section

    told = tokenizer_report.build_report(found)
    parts = [part._replace(long=False) for part in told.parts if not part.long or (full and part.id != "probes")]
    asked = [one.kind for one in found.rows[0].probes if one.kind.startswith("yours")]
    if asked and not full:
        parts.append(Section("pieces", "Pieces", "Pieces", rows=tokenizer_report.piece_tables(found.rows, asked)))
    pieces, left = report.render_terminal(replace(told, parts=parts), console.output_width())
    console.print_tables(*console.constrain_width(pieces[:-1]))
    return left
