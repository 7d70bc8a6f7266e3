"""`ragauge tokenizers CORPUS`: compare tokenizers on the same texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import CORPUS_HELP
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput
from ragauge.embedder_study.results import TokenizerStudy
from ragauge.output.report import Report


def tokenizers(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    corpus: Annotated[
        str | None,
        typer.Argument(help=f"Corpus: {CORPUS_HELP}."),
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

    check_outputs(TokenizerStudy, out or [], as_json=as_json, as_csv=as_csv, format_name=form)
    if as_json or as_csv or (form is not None and not out):
        refuse_options(context, ["full"], "with --json, --csv and --format, which have everything")
    with show_progress() as progress:
        found = tokenizer_study.compare_tokenizers(
            corpus,
            tokenizer or None,
            limit=token_limit,
            held_out=held_out,
            seed=seed,
            part=part,
            probes=probe or (),
            progress=progress,
        )
    report = _terminal_report(found, full=full)
    write_result([found], out or [], as_json=as_json, as_csv=as_csv, format_name=form, report=report)
    print_unread_notes(corpus)


def _terminal_report(result: TokenizerStudy, *, full: bool) -> Report:
    """Build the report for a terminal: scores, lengths and the probes of the user."""
    from ragauge.embedder_study import tokenizer_report
    from ragauge.output.text_report import TextSection, to_report

    whole = tokenizer_report.build_report(result)
    parts = [part._replace(long=False) for part in whole.parts if not part.long or (full and part.id != "probes")]
    probes = [probe.kind for probe in result.rows[0].probes if probe.kind.startswith("yours")]
    if probes and not full:
        parts.append(TextSection("pieces", "Pieces", "Pieces", rows=tokenizer_report.piece_tables(result.rows, probes)))
    return to_report(replace(whole, parts=parts))
