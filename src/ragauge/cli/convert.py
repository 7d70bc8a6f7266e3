"""`ragauge convert IN OUT`: convert judgments, runs and samples between formats."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge import formats
from ragauge.cli.applicability import refuse
from ragauge.errors import BadInput
from ragauge.formats import columns, documents, samples, writing
from ragauge.formats.files import Source


def convert(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="IN", help="A file or BEIR folder; - is standard input.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to write; - is standard output; FOLDER/ is BEIR.")
    ],
    from_: Annotated[str | None, typer.Option("--from", help=f"What IN is: {', '.join(formats.FORMATS)}.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="What OUT becomes, by its ending otherwise; of samples: ragas, deepeval.")
    ] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="qrels, run or samples, where IN could be either.")] = None,
) -> None:
    """Convert judgments, runs, or samples (question, answer, contexts) between formats.

    [dim]ragauge convert run.trec.gz run.parquet[/dim]
    [dim]ragauge convert samples.jsonl out.json --to deepeval[/dim]
    """
    if kind == "samples" or to in samples.FORMS or (kind is None and from_ is None and samples.is_samples(source)):
        if to is not None and to not in samples.FORMS:
            hint = f"one of {', '.join(samples.FORMS)}; the ending of OUT says whether it is a table"
            raise BadInput(f"samples cannot be written as {to}", hint=hint)
        refuse(context, ["from_"], "on samples, whose format is recognised")
        samples.write_samples(samples.read_samples(source), target, to or "ragauge")
        return
    for name in (from_, to):
        if name is not None:
            formats.known(name)
    what = kind or _kind(Source(source), from_)
    if what == "qrels":
        writing.write_judgments(formats.read_judgments(source, format=from_), target, to)
    elif what == "run":
        writing.write_run(formats.read_run(source, format=from_), target, to)
    else:
        raise BadInput(f"`--kind {what}` is unknown", hint="qrels, run or samples")


def _kind(source: Source, format_: str | None) -> str:
    """Detect whether a file has judgments or a run: `qrels` or `run`."""
    form = format_ or formats.guess(source)
    if form in ("beir", "rig", "subtopics"):
        return "qrels"
    if form == "trec":
        fields = len((source.head() or [""])[0].split())
        if fields >= 5:
            return "run"
        return "qrels"
    if form == "json":
        thing = documents.read_json(source, ids=True)
        nested = thing.values() if isinstance(thing, dict) else []
        values = [v for docs in nested if isinstance(docs, dict) for v in docs.values()]
        return "run" if any(isinstance(v, float) for v in values) else "qrels"
    names = columns.header(source, form) if form == "parquet" else columns.read_table(source, form).columns
    graded = columns.find(names, (*columns.GRADE[:-1], "corpus-id", "corpus_id"))
    ranked = columns.find(names, (*columns.RANK, *columns.DISTANCE, *columns.SCORE[1:]))
    if graded:
        return "qrels"
    if ranked or "score" in {n.lower() for n in names}:
        return "run"
    return "qrels"
