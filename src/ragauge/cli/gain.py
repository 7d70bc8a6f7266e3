"""`ragauge gain --before KB --add DOCS`: measure how added documents change retrieval and answers."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import require_any_option
from ragauge.cli.options import (
    CORPUS_HELP,
    ChartsFolder,
    ChatOptions,
    Confidence,
    ConventionName,
    FormatName,
    MaxCalls,
    MaxCost,
    MaxQueries,
    OutputFilesAndReplies,
    PriceFile,
    PrintJson,
    Split,
    TokenPrice,
    csv_option,
)
from ragauge.cli.output import check_outputs, print_unread_notes, split_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.core import plugins
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE
from ragauge.core.settings import unique_by
from ragauge.knowledge.gain.results import Gain

CHAT_ONLY_OPTIONS = ("chat_options", "max_calls", "max_cost", "prices", "token_price")
"""Options without effect unless a chat model is the judge."""


def gain(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="KB",
            show_default="that of --dataset",
            help=f"Documents before: {CORPUS_HELP}.",
        ),
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="KB", help="Documents after, in the same formats.")] = None,
    add: Annotated[
        str | None,
        typer.Option(metavar="DOCS", help="Documents added to --before, in the same formats, instead of --after."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d",
            "--dataset",
            metavar="DATASET",
            show_default="that of --after or --before",
            help="Dataset with queries, judgments and reference answers.",
        ),
    ] = None,
    system: Annotated[
        str,
        typer.Option(
            "-s",
            "--system",
            metavar="NAME",
            help="Retrieval system: bm25, dense, hybrid, …; or module:function, which builds one from documents.",
        ),
    ] = "bm25",
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "-w",
            "--weight",
            metavar="TERM=WEIGHT",
            show_default="1/3 each for recall@k, context_recall and novelty",
            help="Weight of a term: a ranking measure, context_recall or novelty. Can be repeated.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of documents per query.")] = 10,
    chat: Annotated[
        str,
        typer.Option(
            "-c",
            "--chat",
            metavar="MODEL",
            help="Judge of context_recall: openai:MODEL@URL, local:FILE.gguf, replay:FILE, or lexical.",
        ),
    ] = LEXICAL_JUDGE,
    chat_options: ChatOptions = None,
    max_calls: MaxCalls = None,
    max_cost: MaxCost = None,
    prices: PriceFile = None,
    token_price: TokenPrice = None,
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder for novelty.")
    ] = "wordllama",
    novelty: Annotated[
        str, typer.Option(metavar="NAME", help="Definition of novelty: mean, least or lexical.")
    ] = "mean",
    before_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Run before, instead of a system that is built.")
    ] = None,
    after_run: Annotated[str | None, typer.Option(metavar="RUN", help="Run after.")] = None,
    convention: ConventionName = "default",
    confidence: Confidence = 0.95,
    split: Split = None,
    max_queries: MaxQueries = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("changed query")] = False,
    format_name: FormatName = None,
    out: OutputFilesAndReplies = None,
    charts: ChartsFolder = None,
) -> None:
    """Measure how added documents change retrieval quality.

    [dim]ragauge gain --before corpus.jsonl --add new.jsonl --dataset dataset/[/dim]

    [dim]ragauge gain --before dataset/ --add new.jsonl -w recall@10=0.5 -w mrr=0.5 -o gain.html[/dim]
    """
    from ragauge.judging.session import JudgingSettings
    from ragauge.knowledge.gain.gain import gain as measure_gain

    files, folder = split_outputs(out)
    check_outputs(Gain, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts, has_folder=True)
    require_any_option(context, {name: ["chat"] for name in CHAT_ONLY_OPTIONS})
    if token_price is not None and prices is not None:
        raise BadInput("--token-price and --prices are mutually exclusive", hint="remove one of them")
    if folder is not None and chat == LEXICAL_JUDGE:
        raise BadInput("the lexical judge has no replies to save", hint=f"remove -o {folder}, or add --chat")
    limits: dict[str, Any] = {
        "options": console.parse_name_values(chat_options or []),
        "max_calls": max_calls,
        "max_cost": max_cost,
        "prices": prices if token_price is None else console.parse_price(token_price),
    }
    with show_progress("no result was written") as progress:
        result = measure_gain(
            before,
            after,
            add=add,
            dataset=dataset,
            system=plugins.import_user_object(system) if plugins.is_user_object(system) else system,
            weights=_parse_measure_weights(weight),
            k=k,
            chat=chat,
            judging=JudgingSettings(**{name: value for name, value in limits.items() if value is not None}),
            folder=folder,
            embedder=embedder,
            novelty=novelty,
            max_queries=max_queries,
            convention=convention,
            confidence=confidence,
            split=split,
            before_run=before_run,
            after_run=after_run,
            progress=progress,
        )
    write_result([result], files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    print_unread_notes(before, after, add)


def _parse_measure_weights(texts: list[str] | None) -> dict[str, float] | None:
    """Parse the measures and their weights.

    >>> _parse_measure_weights(["recall@10=0.5", "ndcg(gain=exp)@10=1"])
    {'recall@10': 0.5, 'ndcg(gain=exp)@10': 1.0}
    """
    if not texts:
        return None
    weights: list[tuple[str, float]] = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            weight = float(value) if equals else None
        except ValueError:
            weight = None
        if weight is None or not name.strip():
            raise BadInput(f"--weight must be TERM=WEIGHT, got `{text}`", hint="use `--weight recall@10=0.5`")
        weights.append((name.strip(), weight))
    return dict(unique_by(weights, itemgetter(0), "weight", hint="give each term one weight"))
