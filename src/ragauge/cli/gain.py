"""`ragauge gain --before KB --add DOCS`: measure how added documents change retrieval and answers."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import require_any_option
from ragauge.cli.options import ChatOptions, MaxQueries
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import show_status
from ragauge.core import plugins
from ragauge.core.errors import BadInput
from ragauge.core.samples import LEXICAL_JUDGE


def gain(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="KB",
            help="What is there: a corpus (JSONL, TSV), a folder, a dataset.  [dim]default that of --dataset[/dim]",
        ),
    ] = None,
    after: Annotated[str | None, typer.Option(metavar="KB", help="What is there afterwards, likewise.")] = None,
    add: Annotated[str | None, typer.Option(metavar="DOCS", help="Or what comes to it: a corpus, likewise.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "-d", "--dataset", help="Whose queries and judgments tell.  [dim]default those of --after or --before[/dim]"
        ),
    ] = None,
    system: Annotated[
        str,
        typer.Option(
            "-s", "--system", help="As in run: bm25, dense, hybrid …; module:function makes one from documents."
        ),
    ] = "bm25",
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "-w",
            "--weight",
            metavar="TERM=WEIGHT",
            help="A measure, context_recall or novelty, and how much it counts; again for more.  "
            "[dim]default a third each of recall@k, context_recall and novelty[/dim]",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Documents a query.")] = 10,
    chat: Annotated[
        str, typer.Option("-c", "--chat", metavar="WHO", help="Who judges context_recall, as in judge.")
    ] = LEXICAL_JUDGE,
    chat_options: ChatOptions = None,
    replies: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Keep what the chat says here, and ask nothing twice.")
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option(help="Maximum number of requests to the chat; probes and retries count.")
    ] = None,
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder with which novelty is measured.")
    ] = "wordllama",
    novelty: Annotated[str, typer.Option(help="Which definition of it: mean, least, lexical.")] = "mean",
    attribution: Annotated[
        str,
        typer.Option(
            help="What is lost without each document: rebuilt (the system is), dropped (from a deeper ranking), none, "
            "or auto, the exact way where it is not too long."
        ),
    ] = "auto",
    best_batch: Annotated[
        int, typer.Option(metavar="N", help="Number of documents of the best batch to find; 0 finds none.")
    ] = 10,
    before_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="What was returned before: no system is built.")
    ] = None,
    after_run: Annotated[str | None, typer.Option(metavar="RUN", help="What was returned afterwards.")] = None,
    convention: Annotated[str, typer.Option("-C", "--convention", help="As in evaluate.")] = "default",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder: test, train, dev.")] = None,
    max_queries: MaxQueries = None,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write .html, .json, .csv or .md; again for more."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output: a row for each document.")] = False,
) -> None:
    """Measure how added documents change retrieval quality.

    [dim]ragauge gain --before kb.jsonl --add new.jsonl --dataset questions/[/dim]

    [dim]ragauge gain --before old/ --after new/ -w recall@10=0.5 -w mrr=0.5 -o gain.html[/dim]

    The same queries are put to the system built on both; neither knowledge base is written to.
    """
    from ragauge.knowledge import gain

    check_outputs(out or [], as_json=as_json, as_csv=as_csv)
    require_any_option(context, {name: ["chat"] for name in ("chat_options", "replies", "max_calls")})
    judging: dict[str, Any] = {
        "options": console.parse_name_values(chat_options or []), "folder": replies, "max_calls": max_calls,
    }  # fmt: skip
    own = re.fullmatch(r"[\w.]+:[\w.]+", system)
    how: dict[str, Any] = {
        "weights": _parse_measure_weights(weight), "k": k, "chat": chat, "embedder": embedder, "novelty": novelty,
        "limit": max_queries, "attribution": attribution, "batch": best_batch,
        "convention": convention, "confidence": confidence, "split": split,
        "before_run": before_run, "after_run": after_run,
        "judging": {name: value for name, value in judging.items() if value is not None},
    }  # fmt: skip
    with show_status(after=0.5) as watch:
        how["progress"] = lambda what, done, total: watch(f"{what}: {done:,} of {total:,}" if total > 1 else what)
        try:
            found = gain.gain(
                before,
                after,
                add=add,
                dataset=dataset,
                system=plugins.import_user_object(system) if own else system,
                **how,
            )
        except KeyboardInterrupt:
            sys.stderr.write("\nstopped; nothing was written\n")
            raise typer.Exit(130) from None
    write_result([found], out or [], as_json=as_json, as_csv=as_csv)
    print_unread_notes(before, after, add)


def _parse_measure_weights(given: list[str] | None) -> dict[str, float] | None:
    """Parse the measures and their weights.

    >>> _parse_measure_weights(["recall@10=0.5", "ndcg(gain=exp)@10=1"])
    {'recall@10': 0.5, 'ndcg(gain=exp)@10': 1.0}
    """
    if not given:
        return None
    found: dict[str, float] = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        try:
            weight = float(value) if equals else None
        except ValueError:
            weight = None
        if weight is None or not name.strip():
            raise BadInput(f"`--weight {text}` weighs nothing", hint="--weight recall@10=0.5")
        if name.strip() in found:
            raise BadInput(f"`{name.strip()}` has two weights", hint="one for each term")
        found[name.strip()] = weight
    return found
