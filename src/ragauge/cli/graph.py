"""`ragauge graph DATASET`: analyse a corpus as a graph, and whether graph retrieval can help."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli.options import MaxQueries, check_positive
from ragauge.cli.output import check_outputs, print_unread_notes, write_result
from ragauge.cli.progress import show_status
from ragauge.core.errors import BadInput
from ragauge.knowledge.graph.results import GraphAnalysis


def graph(  # noqa: PLR0913 - each is an option of the command
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="A dataset (`ragauge datasets` lists those that there are) or a BEIR folder; or a corpus without "
            "questions: a JSONL or TSV file, a folder of texts."
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            "-g",
            "--graph",
            help="What links documents: links, knn(neighbours=8), field(field=NAME), entities; joined by +, or again "
            "for more.  [dim]default links+knn[/dim]",
        ),
    ] = None,
    embedder: Annotated[
        str, typer.Option("-e", "--embedder", metavar="NAME", help="Embedder of the plain search and of knn links.")
    ] = "wordllama",
    start_documents: Annotated[
        int,
        typer.Option(
            metavar="N", callback=check_positive, help="Number of top documents of a plain search at which walks start."
        ),
    ] = 10,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder: test, train, dev.")] = None,
    max_queries: MaxQueries = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV on standard output: a row for each kind of links and query.")
    ] = False,
    form: Annotated[str | None, typer.Option("--format", metavar="NAME", help="Output format, e.g. markdown.")] = None,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write .html, .json, .csv or .md; again for more."),
    ] = None,
) -> None:
    """Analyse the link graph of a corpus before you use graph retrieval.

    [dim]ragauge graph pydocs --graph "knn(neighbours=8)" --graph entities -o graph.html[/dim]

    Judgments are used to say how far the answers are, and are given to no system.
    """
    if dataset is None:
        raise BadInput("nothing is given", hint="ragauge graph DATASET: a dataset, a file or a folder")
    from ragauge.core.composition import DEFAULT_GRAPH
    from ragauge.knowledge import graph as knowledge_graph

    check_outputs(out or [], as_json=as_json, as_csv=as_csv, form=form, noun=GraphAnalysis)
    with show_status(after=0.5) as watch:
        found = knowledge_graph.graph(
            dataset,
            graph or DEFAULT_GRAPH,
            embedder=embedder,
            seeds=start_documents,
            split=split,
            limit=max_queries,
            confidence=confidence,
            tell=lambda what: watch(f"{what} …"),
        )
    write_result([found], out or [], as_json=as_json, as_csv=as_csv, form=form, folded=True)
    print_unread_notes(dataset)
