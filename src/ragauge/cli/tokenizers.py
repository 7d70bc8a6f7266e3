"""`ragauge tokenizers CORPUS`: compare tokenizers on the same texts."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    CORPUS_HELP,
    ChartsFolder,
    DocumentPart,
    FormatName,
    OutputFiles,
    PrintJson,
    csv_option,
)
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput
from ragauge.embedder_study.results import TokenizerStudy


def tokenizers(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    corpus: Annotated[
        str | None,
        typer.Argument(metavar="CORPUS", help=f"Corpus: {CORPUS_HELP}. Required."),
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--tokenizer",
            metavar="TOKENIZER",
            show_default="all that need no file",
            help="Tokenizer: bytes, characters, words, bpe(vocabulary=8000), wordpiece, unigram, "
            "file(path=tokenizer.json), transformers(model=FOLDER), minilm, …; NAME=… names it. Can be repeated.",
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
            metavar="SHARE",
            show_default="0.1 if a tokenizer is trained, or 0",
            help="Share of the documents used only for counting; 0 trains and counts on all documents.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the selection of held-out documents.")] = 0,
    part: DocumentPart = "whole",
    probe: Annotated[
        list[str] | None,
        typer.Option("-p", "--probe", metavar="TEXT", help="Text whose tokens are shown. Can be repeated."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Show the tokens of all probes, and the words with the most tokens.")
    ] = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("tokenizer")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
) -> None:
    """Compare tokenizers on the same texts: token counts, coverage, losses.

    [dim]ragauge tokenizers pydocs -t bytes -t "bpe(vocabulary=8000)" -t minilm --probe "naïve 東京"[/dim]
    """
    if corpus is None:
        raise BadInput(
            "no corpus given; expected a file, a folder or a dataset", hint="use `ragauge tokenizers pydocs`"
        )
    from ragauge.embedder_study import tokenizer_study
    from ragauge.embedder_study.tokenizer_report import build_report

    check_outputs(TokenizerStudy, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    if as_json or as_csv or (format_name is not None and not out):
        refuse_options(context, ["full"], "with --json, --csv and --format, which include everything")
    with show_progress() as progress:
        result = tokenizer_study.compare_tokenizers(
            corpus,
            tokenizer or None,
            token_limit=token_limit,
            held_out=held_out,
            seed=seed,
            part=part,
            probes=probe or (),
            progress=progress,
        )
    report = build_report(result, full=full)
    write_result(
        [result], out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, report=report
    )
    print_unread_notes(corpus)
