"""`ragauge embedders DATASET -e NAME …`: compare embedders on the same dataset, each as a dense system of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli.options import (
    ConventionName,
    DocumentsPerQuery,
    FormatName,
    MaxQueries,
    PrintJson,
    Reuse,
    Split,
    Threads,
    baseline_option,
    csv_option,
    measures_option,
    output_option,
)
from ragauge.cli.output import split_outputs
from ragauge.cli.run import RunOutputs, finish_experiment, run_with_progress
from ragauge.comparison.results import Overview
from ragauge.core.errors import BadInput
from ragauge.datasets.folders import dataset_name
from ragauge.embedder_study.embedder_comparison import (
    DEFAULT_EMBEDDERS,
    EMBEDDER_MEASURES,
    LEXICAL_BASELINE,
    build_systems,
)
from ragauge.files.workspace import folder_name
from ragauge.runs.interruption import command_scope


def embedders(  # noqa: PLR0913 - each is an option of the command
    dataset: Annotated[str, typer.Argument(metavar="[DATASET]", help="Dataset, by name or folder.")] = "pydocs",
    embedder: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--embedder",
            metavar="EMBEDDER",
            show_default=", ".join(DEFAULT_EMBEDDERS),
            help="Embedder: wordllama, minilm, lstm, encoder(model=FOLDER), openai(model=…); NAME=… names it. "
            "Can be repeated.",
        ),
    ] = None,
    store: Annotated[str, typer.Option(metavar="STORE", help="Vector store of all embedders.")] = "exact",
    measure: Annotated[list[str] | None, measures_option(", ".join(EMBEDDER_MEASURES))] = None,
    k: DocumentsPerQuery = None,
    baseline: Annotated[str, baseline_option(LEXICAL_BASELINE)] = LEXICAL_BASELINE,
    threads: Threads = None,
    convention: ConventionName = "default",
    split: Split = None,
    max_queries: MaxQueries = None,
    out: Annotated[
        list[str] | None, output_option("Working folder, which is resumed", "runs/embedders-NAME, by the dataset")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run every embedder again, including finished ones.")] = False,
    reuse: Reuse = False,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("value of an embedder")] = False,
    format_name: FormatName = None,
) -> None:
    """Compare embedders on the same dataset.

    [dim]ragauge embedders pydocs -e minilm -e wordllama[/dim]

    [dim]ragauge embedders synthetic:needles -e wordllama -e 'small=words(dimensions=64)' -o embedders.html[/dim]
    """
    if fresh and reuse:
        raise BadInput("--fresh and --reuse are mutually exclusive", hint="leave out one of them")
    files, folder = split_outputs(out)
    outputs = RunOutputs(files, as_json=as_json, as_csv=as_csv, format_name=format_name)
    outputs.check(Overview)
    settings = {
        "dataset": dataset, "systems": build_systems(embedder or DEFAULT_EMBEDDERS, store), "baseline": baseline,
        "measures": measure or EMBEDDER_MEASURES, "k": k, "threads": threads, "convention": convention, "split": split,
        "max_queries": max_queries, "fresh": fresh, "reuse": reuse,
        "out": folder or Path("runs") / folder_name(f"embedders-{dataset_name(Path(dataset))}"),
    }  # fmt: skip
    with command_scope():  # until the report is written
        experiment = run_with_progress({name: value for name, value in settings.items() if value is not None})
        finish_experiment(experiment, outputs)
