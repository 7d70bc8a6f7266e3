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
    source: Annotated[str, typer.Argument(metavar="IN", help="A file or BEIR folder; - is standard input.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write; - is standard output; FOLDER/ is BEIR.")
    ],
    from_: Annotated[str | None, typer.Option("--from", help=f"What IN is: {', '.join(readers.FORMATS)}.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            show_default="by the ending of OUT",
            help="Format of OUT: those of --from; for samples, ragas or deepeval.",
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="qrels, run or samples, where IN could be either.")] = None,
) -> None:
    """Convert judgments, runs or samples between formats.

    [dim]ragauge convert run.trec.gz run.parquet[/dim]
    [dim]ragauge convert samples.jsonl out.json --format deepeval[/dim]
    """
    if (
        kind == "samples"
        or to in samples.SAMPLE_ROW_BUILDERS
        or (kind is None and from_ is None and samples.is_samples_file(source))
    ):
        if to is not None and to not in samples.SAMPLE_ROW_BUILDERS:
            hint = f"one of {', '.join(samples.SAMPLE_ROW_BUILDERS)}; the ending of OUT says whether it is a table"
            raise BadInput(f"samples cannot be written as {to}", hint=hint)
        refuse_options(context, ["from_"], "on samples, whose format is recognised")
        samples.write_samples(samples.read_samples(source), target, to or "ragauge")
        return
    for name in (from_, to):
        if name is not None:
            readers.check_format(name)
    what = kind or _detect_file_kind(InputFile(source), from_)
    if what == "qrels":
        writers.write_judgments(readers.read_judgments(source, format=from_), target, to)
    elif what == "run":
        writers.write_run(readers.read_run(source, format=from_), target, to)
    else:
        raise BadInput(f"`--kind {what}` is unknown", hint="qrels, run or samples")


def _detect_file_kind(source: InputFile, format_: str | None) -> str:
    """Detect whether a file has judgments or a run: `qrels` or `run`."""
    form = format_ or readers.detect_format(source)
    if form in ("beir", "rig", "subtopics"):
        return "qrels"
    if form == "trec":
        fields = len((source.head() or [""])[0].split())
        if fields >= 5:
            return "run"
        return "qrels"
    if form == "json":
        thing = json_files.read_json(source, ids=True)
        nested = thing.values() if isinstance(thing, dict) else []
        values = [v for docs in nested if isinstance(docs, dict) for v in docs.values()]
        return "run" if any(isinstance(v, float) for v in values) else "qrels"
    names = table_files.read_header(source, form) if form == "parquet" else table_files.read_table(source, form).columns
    graded = table_files.find_column(names, (*table_files.GRADE_COLUMNS[:-1], "corpus-id", "corpus_id"))
    ranked = table_files.find_column(
        names, (*table_files.RANK_COLUMNS, *table_files.DISTANCE_COLUMNS, *table_files.SCORE_COLUMNS[1:])
    )
    if graded:
        return "qrels"
    if ranked or "score" in {n.lower() for n in names}:
        return "run"
    return "qrels"
