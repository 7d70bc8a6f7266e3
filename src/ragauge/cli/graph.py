"""`ragauge graph DATASET`: analyse a corpus as a graph, and whether graph retrieval can help."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli.options import (
    CORPUS_HELP,
    ChartsFolder,
    Confidence,
    FormatName,
    MaxQueries,
    OutputFiles,
    PrintJson,
    Split,
    check_positive,
    csv_option,
)
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import show_progress
from ragauge.core.errors import BadInput
from ragauge.knowledge.graph.results import GraphAnalysis


def graph(  # noqa: PLR0913 - each is an option of the command
    dataset: Annotated[
        str | None,
        typer.Argument(
            help=f"Dataset (`ragauge datasets` lists them) or BEIR folder; or a corpus without queries: {CORPUS_HELP}."
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            "-g",
            "--graph",
            metavar="LINKS",
            show_default="links+knn",
            help="Links: links, knn(neighbours=8), field(field=NAME), entities; joined by +. Can be repeated.",
        ),
    ] = None,
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder of plain search and of knn links.")
    ] = "wordllama",
    start_documents: Annotated[
        int,
        typer.Option(
            metavar="N", callback=check_positive, help="Number of top documents of plain search at which walks start."
        ),
    ] = 10,
    split: Split = None,
    max_queries: MaxQueries = None,
    confidence: Confidence = 0.95,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("kind of link and query")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
) -> None:
    """Analyse the link graph of a corpus before you use graph retrieval.

    [dim]ragauge graph pydocs --graph "knn(neighbours=8)" --graph entities -o graph.html[/dim]
    """
    if dataset is None:
        raise BadInput(
            "no dataset given; expected a name, a file or a folder", hint="use `ragauge graph synthetic:graph`"
        )
    from ragauge.knowledge import graph as knowledge_graph
    from ragauge.systems.graph_corpus import DEFAULT_GRAPH

    check_outputs(GraphAnalysis, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    with show_progress() as progress:
        result = knowledge_graph.graph(
            dataset,
            graph or DEFAULT_GRAPH,
            embedder=embedder,
            seeds=start_documents,
            split=split,
            max_queries=max_queries,
            confidence=confidence,
            progress=progress,
        )
    write_result([result], out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    print_unread_notes(dataset)
