"""`ragauge novelty DOCS --known KB`: measure how new documents are to a corpus."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import ChatOptions, TokenPrice
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import CountProgress
from ragauge.core.errors import BadInput
from ragauge.files.workspace import cache_folder

FAST_EMBEDDERS = ("wordllama", "words")
"""Embedders that are as fast as a cache lookup."""


def novelty(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    documents: Annotated[
        str,
        typer.Argument(
            metavar="DOCS",
            help="The new documents: a corpus file (JSONL, TSV), a .txt or .md file or a folder of them, a BEIR "
            "folder, a dataset by name.",
        ),
    ],
    known: Annotated[
        str,
        typer.Option(metavar="KB", help="What is known, likewise; or a file of its chunks' vectors (.npy, .fvecs)."),
    ],
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder of the chunks.")
    ] = "wordllama",
    chunk_size: Annotated[int, typer.Option(metavar="N", help="Maximum length of a chunk in characters.")] = 1000,
    chunk_overlap: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of characters that neighbouring chunks share.")
    ] = 0,
    compared: Annotated[int, typer.Option(help="Percentiles are among known documents with so many chunks.")] = 2000,
    seed: Annotated[int, typer.Option(help="Which ones of these are drawn.")] = 0,
    chat: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--chat",
            metavar="WHO",
            help="Also ask a judge which claims are new, known or conflicting, as in `judge`: openai:MODEL@URL, "
            "local:FILE.gguf, replay:FILE, or lexical.",
        ),
    ] = None,
    chat_options: ChatOptions = None,
    beside: Annotated[int, typer.Option(help="Each claim is held against so many known chunks.")] = 3,
    replies: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Keep what the judge says there; a second time costs nothing.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Maximum number of requests; probes and retries count.")] = None,
    max_cost: Annotated[float | None, typer.Option(help="Maximum cost; probes and retries count.")] = None,
    token_price: TokenPrice = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many calls and tokens the judge would take, and ask nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each document.")] = False,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help="Also write .html, .md, .json or .csv; again for more."),
    ] = None,
) -> None:
    """Measure how much new information documents add to a corpus.

    [dim]ragauge novelty drafts/ --known corpus.jsonl[/dim]

    [dim]ragauge novelty drafts/ --known corpus.jsonl --chat openai:llama3@http://localhost:11434/v1 -o new.html[/dim]

    Raw cosines differ by model: the percentiles tell how a document compares with known ones, each held against the
    others as if it were new.
    """
    from ragauge.knowledge import novelty

    check_outputs(out or [], as_json=as_json, as_csv=as_csv)
    judging: dict[str, Any] = {
        "max_calls": max_calls,
        "max_cost": max_cost,
        "options": console.parse_name_values(chat_options or []),
    }
    judging["prices"] = None if token_price is None else console.parse_price(token_price)
    judging = {name: value for name, value in judging.items() if value is not None}
    if chat is None and (judging or dry_run or replies is not None):
        raise BadInput("there is no judge to ask", hint="--chat openai:MODEL@URL")
    if dry_run:
        refuse_options(context, ["out", "as_csv", "compared", "seed"], "with --dry-run")
    how: dict[str, Any] = {
        "embedder": embedder,
        "size": chunk_size,
        "overlap": chunk_overlap,
        "beside": beside,
        "folder": replies,
    }
    if not embedder.startswith(FAST_EMBEDDERS):
        how["cache"] = cache_folder()
    with _NoveltyProgress() as watch:
        try:
            if dry_run:
                found = novelty.estimate_novelty_cost(
                    documents, known, chat=chat or "", progress=watch, **how, **judging
                )
            else:
                told = novelty.novelty(
                    documents, known, chat=chat, compared=compared, seed=seed, progress=watch, **how, **judging
                )
        except KeyboardInterrupt:
            kept = f"; what the judge said is kept in {replies}" if chat and replies else ""
            sys.stderr.write(f"\nstopped while {watch.now or 'reading'}{kept}\n")
            raise typer.Exit(130) from None
    if dry_run:
        _print_novelty_estimate(found, chat or "", judging.get("options") or {}, as_json=as_json)
        return
    write_result([told], out or [], as_json=as_json, as_csv=as_csv)
    print_unread_notes(documents, known)
    claims = [claim for one in told.documents for claim in one.claims]
    if claims and all(claim.state == "unscored" for claim in claims):
        sys.stderr.write(f"error: the judge gave no readable reply; {claims[0].why}\n")
        raise typer.Exit(3)


def _print_novelty_estimate(found: list[Any], chat: str, options: Mapping[str, Any], *, as_json: bool) -> None:
    import json

    from ragauge.cli.judge import describe_estimate
    from ragauge.judging.report_formats import render_estimate_terminal

    if as_json:
        console.write_data(json.dumps([one._asdict() for one in found], indent=2, allow_nan=False))
    elif found:
        console.print_tables(*render_estimate_terminal(found, console.stdout_console().width))
    lines = describe_estimate(found, chat, options) if found else ["the judge would not be asked anything"]
    console.print_notes([*lines, "nothing was asked"])


class _NoveltyProgress:
    """Progress display with one bar per stage."""

    def __init__(self) -> None:
        self.now = ""
        self._bar: CountProgress | None = None

    def __enter__(self) -> _NoveltyProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_bar()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report the number done of a stage; a new stage starts a new bar."""
        if what != self.now or self._bar is None:
            self._close_bar()
            self.now, self._bar = what, CountProgress(what)
        self._bar(done, total)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
