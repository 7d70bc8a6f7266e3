"""`ragauge freshness RUN… --versions FILE`: measure the share of stale and conflicting results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli.output import check_outputs, write_result
from ragauge.cli.progress import show_status
from ragauge.core.errors import BadInput


def freshness(  # noqa: PLR0913 - each is an option of the command
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="A run in any format that `evaluate` reads, or a folder that `run` wrote; several stand side by side.",
        ),
    ],
    versions: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="JSONL, CSV, TSV or Parquet: doc_id, version_key, effective_timestamp, superseded_by.",
        ),
    ],
    k: Annotated[int, typer.Option("-k", help="How many documents of each query are looked at.")] = 10,
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="CORPUS",
            show_default="that of the run folder",
            help="Corpus file or folder, or dataset by name; separates copies from conflicts.",
        ),
    ] = None,
    queries: Annotated[
        str | None, typer.Option(help="The queries that a run should have (JSONL or TSV), to know what is missing.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="What began to hold later replaces nothing: 2024-05-31, or seconds."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="stale@k and conflict@k of each query, as `compare` and `gate` read them.")
    ] = False,
    out: Annotated[
        list[str] | None,
        typer.Option("-o", "--out", metavar="FILE", help="Also write .html, .md, .json or .csv; again for more."),
    ] = None,
) -> None:
    """Measure how many results are stale or contradict each other.

    [dim]ragauge freshness bm25.run --versions versions.jsonl[/dim]

    [dim]ragauge freshness runs/docs --versions versions.jsonl -o freshness.html[/dim]

    [dim]ragauge gate runs/docs/bm25 --versions versions.jsonl -r 'stale_rate@10 <= 0.05'[/dim]
    """
    from ragauge.knowledge.freshness import freshness

    check_outputs(out or [], as_json=as_json, as_csv=as_csv)
    found = []
    with show_status(after=0.5) as watch:
        for name, path in _runs_by_name(runs).items():
            watch(f"reading {name}")
            one = freshness(path, versions, k=k, documents=corpus, queries=queries, as_of=as_of)
            found.append(replace(one, run=name))
    write_result(found, out or [], as_json=as_json, as_csv=as_csv)


def _runs_by_name(runs: list[str]) -> dict[str, str]:
    """Return the runs by name: that of the user, of their folder or of the file."""
    from ragauge.files.source import InputFile
    from ragauge.runs.inputs import is_run_folder, resolve_inputs, split_name

    found: dict[str, str] = {}
    for argument in runs:
        name, path = split_name(argument)
        whole = path != "-" and Path(path).is_dir() and not is_run_folder(path)
        mine = resolve_inputs([path]).singles if whole else {name or InputFile(path).stem: path}
        for label, place in mine.items():
            if label in found:
                raise BadInput(f"two runs are called `{label}`", hint=f"NAME=FILE gives one another name: a={place}")
            found[label] = place
    return found
