"""`ragauge convert IN OUT`: convert judgments, runs and samples between formats."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.cli.option_checks import refuse_options
from ragauge.core.errors import BadInput
from ragauge.files import json_files, readers, samples, table_files, writers
from ragauge.files.source import InputFile


def convert(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Input file, run folder or BEIR folder; - is standard input.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="Output file; - is standard output; FOLDER/ is a BEIR folder.")
    ],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="NAME", show_default="detected", help=f"Format of IN: {', '.join(readers.FORMATS)}."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            show_default="by the ending of OUT",
            help="Format of OUT: those of --from; for samples, ragas or deepeval.",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="NAME", show_default="detected", help="Contents of IN: qrels, run or samples."),
    ] = None,
) -> None:
    """Convert judgments, runs or samples between formats.

    [dim]ragauge convert bm25.run bm25.parquet[/dim]

    [dim]ragauge convert samples.jsonl out.json --format deepeval[/dim]
    """
    if (
        kind == "samples"
        or to in samples.SAMPLE_ROW_BUILDERS
        or (kind is None and from_ is None and samples.is_samples_file(source))
    ):
        if to is not None and to not in samples.SAMPLE_ROW_BUILDERS:
            raise BadInput(
                f"--format for samples must be one of {', '.join(samples.SAMPLE_ROW_BUILDERS)}, got `{to}`",
                hint="remove --format, and use an OUT that ends in .jsonl, .csv or .parquet",
            )
        read_samples = samples.read_samples(source)
        refuse_options(context, ["from_"], "on samples, whose format is recognised")
        samples.write_samples(read_samples, target, to or "ragauge")
        return
    for name in (from_, to):
        if name is not None:
            readers.check_format(name)
    metadata = readers.read_run_metadata(source)
    is_run = metadata is not None and metadata.rows_are_hits
    file_kind = kind or ("run" if is_run else _detect_file_kind(InputFile(source), from_))
    if file_kind == "qrels":
        writers.write_judgments(readers.read_judgments(source, format=from_), target, to)
    elif file_kind == "run":
        writers.write_run(readers.read_run(source, format=from_), target, to)
    else:
        raise BadInput(f"--kind must be qrels, run or samples, got `{file_kind}`", hint="use `--kind run`")


def _detect_file_kind(source: InputFile, format_name: str | None) -> str:
    """Detect whether a file has judgments or a run: `qrels` or `run`."""
    form = format_name or readers.detect_format(source)
    if form in ("beir", "rig", "subtopics"):
        return "qrels"
    if form == "trec":
        fields = len((source.head() or [""])[0].split())
        return "run" if fields >= 5 else "qrels"
    if form == "json":
        data = json_files.read_json(source, ids=True)
        nested = data.values() if isinstance(data, dict) else []
        values = [value for docs in nested if isinstance(docs, dict) for value in docs.values()]
        return "run" if any(isinstance(value, float) for value in values) else "qrels"
    names = table_files.read_header(source, form) if form == "parquet" else table_files.read_table(source, form).columns
    if table_files.find_column(names, (*table_files.GRADE_COLUMNS[:-1], "corpus-id", "corpus_id")):
        return "qrels"
    run_columns = (*table_files.RANK_COLUMNS, *table_files.DISTANCE_COLUMNS, *table_files.SCORE_COLUMNS[1:])
    is_run = table_files.find_column(names, run_columns) or "score" in {name.lower() for name in names}
    return "run" if is_run else "qrels"
