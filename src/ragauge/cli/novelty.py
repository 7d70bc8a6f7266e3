"""`ragauge novelty DOCS --known KB`: measure how new documents are to a corpus."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    CORPUS_HELP,
    ChartsFolder,
    ChatOptions,
    DryRun,
    FormatName,
    MaxCalls,
    MaxCost,
    OutputFilesAndReplies,
    PriceFile,
    PrintJson,
    TokenPrice,
    csv_option,
)
from ragauge.cli.output import check_outputs, print_table, print_unread_notes, split_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.files.workspace import cache_folder
from ragauge.judging.results import CostEstimate
from ragauge.knowledge.novelty.results import Novelty

FAST_EMBEDDERS = ("wordllama", "words")
"""Embedders that are as fast as a cache lookup."""


def novelty(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    documents: Annotated[
        str,
        typer.Argument(
            metavar="DOCS",
            help=f"New documents: {CORPUS_HELP}.",
        ),
    ],
    known: Annotated[
        str,
        typer.Option(
            metavar="KB", help="Known documents, in the same formats, or vectors of their chunks (.npy, .fvecs)."
        ),
    ],
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder of the chunks.")
    ] = "wordllama",
    chunk_size: Annotated[int, typer.Option(metavar="N", help="Maximum length of a chunk in characters.")] = 1000,
    chunk_overlap: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of characters that neighbouring chunks share.")
    ] = 0,
    reference_chunks: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of known chunks sampled for the percentiles.")
    ] = 2000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the sample of known chunks.")] = 0,
    chat: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--chat",
            metavar="MODEL",
            help="Judge that decides which claims are new, known or conflicting: openai:MODEL@URL, local:FILE.gguf, "
            "replay:FILE, or lexical.",
        ),
    ] = None,
    chat_options: ChatOptions = None,
    chunks_per_claim: Annotated[
        int, typer.Option(metavar="N", help="Number of nearest known chunks that each claim is compared with.")
    ] = 3,
    max_calls: MaxCalls = None,
    max_cost: MaxCost = None,
    prices: PriceFile = None,
    token_price: TokenPrice = None,
    dry_run: DryRun = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("document")] = False,
    format_name: FormatName = None,
    out: OutputFilesAndReplies = None,
    charts: ChartsFolder = None,
) -> None:
    """Measure how much new information documents add to a corpus.

    [dim]ragauge novelty new.jsonl --known corpus.jsonl[/dim]

    [dim]ragauge novelty new.jsonl --known corpus.jsonl --chat openai:gpt-4o-mini --dry-run[/dim]
    """
    from ragauge.judging.session import JudgingSettings
    from ragauge.knowledge.novelty.novelty import NoveltyOptions, estimate_novelty_cost
    from ragauge.knowledge.novelty.novelty import novelty as measure_novelty

    files, folder = split_outputs(out)
    check_outputs(
        Novelty, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, has_folder=True
    )
    if token_price is not None and prices is not None:
        raise BadInput("--token-price and --prices are mutually exclusive", hint="remove one of them")
    limits: dict[str, Any] = {
        "max_calls": max_calls,
        "max_cost": max_cost,
        "options": console.parse_name_values(chat_options or []),
        "prices": prices if token_price is None else console.parse_price(token_price),
    }
    limits = {name: value for name, value in limits.items() if value is not None}
    if chat is None and (limits or dry_run or folder is not None):
        raise BadInput("no judge given", hint="add `--chat openai:MODEL@URL`")
    if folder is not None and chat == LEXICAL_JUDGE:
        raise BadInput("the lexical judge has no replies to save", hint=f"remove -o {folder}")
    if dry_run:
        refuse_options(context, ["as_csv", "format_name", "charts", "reference_chunks", "seed"], "with --dry-run")
        if files:
            raise BadInput("-o FILE has no effect with --dry-run", hint="remove -o, or name the folder with replies")
    settings: NoveltyOptions = {
        "embedder": embedder,
        "chunk_size": chunk_size,
        "chunk_overlap": chunk_overlap,
        "reference_chunks": reference_chunks,
        "seed": seed,
        "chunks_per_claim": chunks_per_claim,
        "cache": None if embedder.startswith(FAST_EMBEDDERS) else cache_folder(),
        "judging": JudgingSettings(**limits),
    }
    with show_progress(f"replies of the judge are saved in {folder}" if folder else "") as progress:
        if dry_run and chat is not None:
            estimates = estimate_novelty_cost(documents, known, chat=chat, folder=folder, progress=progress, **settings)
        else:
            result = measure_novelty(documents, known, chat=chat, folder=folder, progress=progress, **settings)
    if dry_run:
        _print_novelty_estimate(estimates, chat or "", limits.get("options") or {}, as_json=as_json)
        return
    write_result([result], files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    print_unread_notes(documents, known)
    claims = [claim for document in result.documents for claim in document.claims]
    if claims and all(claim.state == "unscored" for claim in claims):
        sys.stderr.write(f"error: the judge gave no readable reply; {claims[0].reason}\n")
        raise typer.Exit(3)


def _print_novelty_estimate(
    estimates: Sequence[CostEstimate], chat: str, options: Mapping[str, Any], *, as_json: bool
) -> None:
    import json

    from ragauge.cli.judge import describe_estimate
    from ragauge.judging.report import build_estimate_table

    if as_json:
        console.write_data(json.dumps([estimate._asdict() for estimate in estimates], indent=2, allow_nan=False))
    elif estimates:
        print_table(build_estimate_table(estimates))
    lines = describe_estimate(estimates, chat, options) if estimates else ["no request would be sent"]
    console.print_notes(lines)
