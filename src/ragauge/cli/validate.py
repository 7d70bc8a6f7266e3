"""`ragauge validate QRELS [RUN…]`, `ragauge validate SAMPLES`: check the data for problems."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ragauge.cli import console


def validate(
    qrels: Annotated[
        str,
        typer.Argument(
            help="Judgments, in any format that `evaluate` reads; or samples, that `judge` reads; or a folder that it "
            "wrote."
        ),
    ],
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs.")] = None,
    corpus: Annotated[
        str | None, typer.Option(help="The corpus (BEIR folder, JSONL, or ids), to find ids that it lacks.")
    ] = None,
    qrels_format: Annotated[str | None, typer.Option(help="What the judgments are, e.g. trec or subtopics.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there is a problem.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Check the format of judgments, runs or samples.

    [dim]ragauge validate qrels.txt bm25.run --corpus corpus.jsonl --strict[/dim]
    """
    from ragauge.evaluation import validation
    from ragauge.files.judged_folders import SAMPLES_FILE, is_judged_folder
    from ragauge.files.samples import is_samples_file

    if not runs and is_judged_folder(qrels):
        qrels = str(Path(qrels) / SAMPLES_FILE)
    if not runs and corpus is None and qrels_format is None and is_samples_file(qrels):
        findings = validation.validate_samples(qrels)
    else:
        findings = validation.validate_files(qrels, runs or [], corpus, qrels_format)
    problems = sum(f.problem for f in findings)
    if as_json:
        console.write_data(json.dumps([asdict(f) for f in findings], ensure_ascii=False, indent=2))
    else:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False)
        subject = None
        for f in findings:
            if f.subject != subject:
                subject = f.subject
                table.add_row("", Text(subject, style="bold", overflow="fold"))
            examples = f" ({', '.join(f.examples)}{', …' if f.count > len(f.examples) else ''})" if f.examples else ""
            mark = Text("!", style="bold red") if f.problem else Text("·", style="dim")
            table.add_row(mark, Text(f.message + examples, overflow="fold"))
        console.print_tables(table)
        console.print_notes([f"{problems} problem{'s' * (problems != 1)} found"])
    if strict and problems:
        raise typer.Exit(1)
