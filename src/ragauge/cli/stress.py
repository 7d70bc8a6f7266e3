"""`ragauge stress --store NAME --corpus FILE`: test the durability of a document store under load and kills."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli import console
from ragauge.cli.option_checks import refuse_options
from ragauge.cli.options import (
    CORPUS_HELP,
    ChartsFolder,
    FormatName,
    OutputFiles,
    PrintJson,
    check_positive,
    csv_option,
)
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.compute.progress import OVERALL, Progress, ProgressCallback
from ragauge.core import plugins
from ragauge.core.errors import BadInput, MissingExtra
from ragauge.core.text import one_line
from ragauge.files.workspace import folder_name
from ragauge.output.numbers import pluralise
from ragauge.output.report import clean_texts
from ragauge.store_stress.minimal_failure import describe_confidence
from ragauge.store_stress.plan import INGESTION_MODES, StressSettings
from ragauge.store_stress.report import explain_unreproduced
from ragauge.store_stress.results import StoreFailure, StressTest
from ragauge.store_stress.stress import (
    StressData,
    check_libraries,
    check_options,
    load_stress_data,
    resolve_store_name,
    stress_store,
)

DEFAULT_SETTINGS = StressSettings()


def stress(  # noqa: PLR0913 - each is an option of the command
    context: typer.Context,
    store: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Document store: sqlite-vec, chroma, pgvector(index=hnsw), module:Class …, or `all`. Can be repeated.",
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            help=f"Documents: {CORPUS_HELP}.",
        ),
    ] = None,
    max_documents: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="all",
            callback=check_positive,
            help="Maximum number of documents; the first ones are used.",
        ),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODE",
            show_default="both",
            help=f"Ingestion mode: `{INGESTION_MODES[0]}` or `{INGESTION_MODES[1]}`. Can be repeated.",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(metavar="N", callback=check_positive, help="Number of documents per batch.")
    ] = DEFAULT_SETTINGS.batch,
    commit_every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="once, at the end; earlier before a kill",
            help="Number of documents between commits.",
        ),
    ] = None,
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder of documents and queries.")
    ] = "wordllama",
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of documents per query.")] = DEFAULT_SETTINGS.k,
    max_queries: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of queries, drawn at random.")
    ] = DEFAULT_SETTINGS.queries,
    kills: Annotated[
        int, typer.Option(metavar="N", help="Number of kills during ingestion, per ingestion mode.")
    ] = DEFAULT_SETTINGS.kills,
    kill_at: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            show_default="drawn at random",
            help="Kill after this number of documents instead of --kills. Can be repeated.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of a single call in seconds.")
    ] = DEFAULT_SETTINGS.timeout,
    seed: Annotated[
        int,
        typer.Option(metavar="N", help="Seed of the sample of queries and of the kills."),
    ] = DEFAULT_SETTINGS.seed,
    bisect: Annotated[
        bool, typer.Option("--bisect/--no-bisect", help="Search for the shortest prefix of the documents that fails.")
    ] = True,
    reproducer: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            show_default="stress-STORE",
            help="Folder for the shortest failing prefix and the command that repeats the failure.",
        ),
    ] = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("ingestion mode and value")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
) -> None:
    """Stress-test a document store; exit with 3 if documents are lost or altered.

    [dim]ragauge stress --store sqlite-vec --corpus corpus.jsonl[/dim]
    """
    files = out or []
    check_outputs(StressTest, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    if kill_at:
        refuse_options(context, ["kills"], "with --kill-at, which gives the number of kills")
    stores = _resolve_stores(store or [])
    settings = StressSettings(
        mode or INGESTION_MODES, batch_size, commit_every, k, max_queries, kills, kill_at or None, timeout, seed, bisect
    )
    if corpus is None:
        raise BadInput("no corpus given", hint="add `--corpus corpus.jsonl`")
    results: list[StressTest] = []
    try:
        with show_progress("its processes and folders were removed", lines=True) as progress:
            data = load_stress_data(corpus, embedder, settings, max_documents=max_documents, progress=progress)
            _stress_each_store(stores, data, settings, reproducer, results, progress, every="all" in (store or []))
    finally:  # if interrupted, the results of finished stores are printed
        if results:
            write_result(results, files, as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
        for result in results:
            for failure in result.failures:
                _print_store_failure(result, failure)
    if any(result.broken is not None for result in results):
        raise typer.Exit(3)


def _resolve_stores(named: Sequence[str]) -> list[str]:
    """Resolve store names, and check their libraries and options."""
    known_stores = plugins.plugin_names("document_stores")
    requested = [store for name in named for store in (known_stores if name == "all" else [name])]
    if not requested:
        raise BadInput("no store given", hint=f"add `--store {known_stores[0]}`, or `--store all`")
    check_libraries([name for name in named if name != "all" and ":" not in name])
    stores = [resolve_store_name(store) for store in dict.fromkeys(requested)]
    check_options(stores)
    return stores


def _stress_each_store(
    stores: Sequence[str],
    data: StressData,
    settings: StressSettings,
    reproducer: str | None,
    results: list[StressTest],
    progress: ProgressCallback,
    *,
    every: bool,
) -> None:
    for number, name in enumerate(stores):
        if len(stores) > 1:
            progress(Progress("stores", number, len(stores), stage=OVERALL))
        folder = Path(reproducer or f"stress-{folder_name(name)}")
        folder = folder / folder_name(name) if reproducer is not None and len(stores) > 1 else folder
        try:
            results.append(stress_store(name, data, settings, reproducer=folder, progress=progress))
        except MissingExtra as error:
            if not every:
                raise
            console.print_notes([f"{name} is left out: {error.message} ({error.hint})"])


def _print_store_failure(result: StressTest, failure: StoreFailure) -> None:
    """Print the original error of a store; control characters are replaced."""
    document = f" ({one_line(failure.document)})" if failure.document else ""
    message = "no error message; wrong result" if failure.silent else "error message"
    lines = [
        f"error: {result.store} failed {failure.mode} while {failure.stage}, after "
        f"{pluralise(failure.after, 'document')}{document}; {message}:",
        "",
        clean_texts(failure.error),
        "",
    ]
    if failure.reproduced is False:
        attempts = pluralise(len(failure.tried), "attempt")
        lines.append(f"not reproduced in {attempts}; it is a failure because {explain_unreproduced(failure)}")
    elif failure.prefix is not None:
        prefix = "shortest failing prefix" if failure.is_shortest else "shortest known failing prefix"
        lines.append(f"{prefix}: {pluralise(failure.prefix, 'document')}. {describe_confidence(failure)}")
    elif failure.doubt:
        lines.append(f"no shorter prefix: {failure.doubt}")
    if failure.reproducer:
        lines.append(f"hint: these documents are in {failure.reproducer}; to repeat the failure: {failure.command}")
    sys.stderr.write("\n".join(lines) + "\n")
