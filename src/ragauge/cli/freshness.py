"""`ragauge freshness RUN… --versions FILE`: measure the share of stale and conflicting results."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli.options import CORPUS_HELP, RUNS_HELP, ChartsFolder, FormatName, OutputFiles, PrintJson, csv_option
from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import show_progress
from ragauge.compute.progress import Progress
from ragauge.core.settings import unique_by
from ragauge.knowledge.freshness.results import Freshness


def freshness(  # noqa: PLR0913 - each is an option of the command
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help=f"{RUNS_HELP}. Several runs are compared.",
        ),
    ],
    versions: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Versions (JSONL, CSV, TSV or Parquet): doc_id, version_key, effective_timestamp, superseded_by.",
        ),
    ],
    k: Annotated[int, typer.Option("-k", metavar="N", help="Number of documents checked per query.")] = 10,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            show_default="that of the run folder",
            help=f"Documents, to separate copies from conflicts: {CORPUS_HELP}.",
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Queries that a run should have (JSONL or TSV), to detect missing ones."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            show_default="the date of each run",
            help="Evaluate as of this date (2024-05-31) or time in seconds; later versions replace nothing.",
        ),
    ] = None,
    as_json: PrintJson = False,
    as_csv: Annotated[bool, csv_option("query, for `compare` and `gate`")] = False,
    format_name: FormatName = None,
    out: OutputFiles = None,
    charts: ChartsFolder = None,
) -> None:
    """Measure how many results are stale or contradict each other.

    [dim]ragauge freshness bm25.run --versions versions.jsonl[/dim]

    [dim]ragauge freshness bm25.run dense.run --versions versions.jsonl -o freshness.html[/dim]
    """
    from ragauge.knowledge.freshness import freshness

    check_outputs(Freshness, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)
    results = []
    with show_progress() as progress:
        for name, path in _runs_by_name(runs).items():
            progress(Progress("reading", subject=name))
            result = freshness(path, versions, k=k, corpus=corpus, queries=queries, as_of=as_of)
            results.append(replace(result, run=name))
    write_result(results, out or [], as_json=as_json, as_csv=as_csv, format_name=format_name, charts=charts)


def _runs_by_name(arguments: list[str]) -> dict[str, str]:
    """Return the runs by name: that of the user, of their folder or of the file."""
    from ragauge.files.source import InputFile
    from ragauge.runs.input_kinds import is_run_folder, split_path_name
    from ragauge.runs.inputs import Inputs

    named_runs: list[tuple[str, str]] = []
    for argument in arguments:
        name, path = split_path_name(argument)
        is_folder = path != "-" and Path(path).is_dir() and not is_run_folder(path)
        named_runs += Inputs.resolve(path).single_runs.items() if is_folder else [(name or InputFile(path).stem, path)]
    return dict(unique_by(named_runs, itemgetter(0), "run", hint="give one another name: `NAME=FILE`"))
