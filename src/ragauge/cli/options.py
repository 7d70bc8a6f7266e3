"""Command-line options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from ragauge.core.errors import BadInput
from ragauge.measures.conventions import Convention, find_convention

CORPUS_HELP = (
    "file (JSONL, TSV, CSV, JSON, Parquet; plain, .gz, .zst), text file (.txt, .md, .rst) or folder of them, BEIR "
    "folder, STIX bundle, or dataset by name"
)
"""Inputs that every command with a corpus reads."""


def check_positive(parameter: typer.CallbackParam, value: int | None) -> int | None:
    """Raise BadInput if the value of an option is below 1."""
    if value is not None and value < 1:
        option = max(parameter.opts, key=len)
        raise BadInput(f"{option} must be at least 1, got {value}", hint=f"use `{option} 1` or a larger number")
    return value


def resolve_convention(name: str, *, rel: float | None = None, depth: int | None = None) -> Convention:
    """Return the convention of `-C`, with the values of `--rel` and `--depth` if given."""
    given = {"rel": rel, "depth": depth}
    return find_convention(name).but(**{option: value for option, value in given.items() if value is not None})


_CONVENTION = typer.Option(
    "-C",
    "--convention",
    metavar="NAME[,OPTION=VALUE…]",
    help="Scoring convention: default, trec9, beir, ranx, rig, ann, … (CONVENTIONS.md); options follow after commas, "
    "e.g. trec9,ties=ranked.",
)
ConventionName = Annotated[str, _CONVENTION]
OptionalConventionName = Annotated[str | None, _CONVENTION]
MinRelevantGrade = Annotated[
    float | None,
    typer.Option("-l", "--rel", metavar="GRADE", help="Minimum grade that counts as relevant. [dim]default 1[/dim]"),
]
LowerIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        "--lower-is-better",
        metavar="MEASURE",
        help="A measure of unknown direction for which lower values are better. Can be repeated.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads per worker of BLAS, OpenMP, torch and ONNX Runtime while queries are timed.  [dim]default 1[/dim]"
    ),
]
HigherIsBetter = Annotated[
    list[str] | None,
    typer.Option(
        "--higher-is-better",
        metavar="MEASURE",
        help="A measure of unknown direction for which higher values are better. Can be repeated.",
    ),
]
DocumentsPerQuery = Annotated[
    int | None,
    typer.Option(
        "-k", help="Documents requested per query.  [dim]default the deepest cutoff of the measures, at least 10[/dim]"
    ),
]
MaxQueries = Annotated[
    int | None,
    typer.Option(
        "--max-queries",
        metavar="N",
        callback=check_positive,
        help="Maximum number of queries; the first ones are used.",
    ),
]
ChatOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--chat-option", metavar="NAME=VALUE", help="Option of the chat model, e.g. temperature=0. Can be repeated."
    ),
]
TokenPrice = Annotated[
    str | None,
    typer.Option("--token-price", metavar="IN,OUT", help="US dollars per million input and output tokens."),
]
JudgeWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", callback=check_positive, show_default="16", help="Maximum number of concurrent calls."
    ),
]
VerdictFormat = Annotated[
    str | None,
    typer.Option(
        "--verdict-format",
        metavar="NAME",
        show_default="json",
        help="Format of the verdicts: json, or tokens (one word per claim or chunk, with its probability).",
    ),
]
CommonQueries = Annotated[
    bool, typer.Option("--common-queries", help="Compare only the queries that all systems have.")
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse",
        help="Reuse finished results of your own functions, plug-ins and services instead of running them again.",
    ),
]
SaveBaseline = Annotated[
    str | None,
    typer.Option(
        "--save-baseline",
        metavar="FOLDER",
        help="Also save the runs with their judgments as a small baseline folder for `ragauge gate`.",
    ),
]
OutputFiles = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--out",
        metavar="FILE",
        help="Output file; its ending is the format: .html, .json, .csv, .md or .tex. Can be repeated.",
    ),
]
OutputFilesAndReplies = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--out",
        metavar="PATH",
        help="Output file (.html, .json, .csv, .md or .tex), or a folder in which replies of the chat model are saved; "
        "saved replies are not requested again. Can be repeated, with at most one folder.",
    ),
]
OutputFilesAndFolder = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--out",
        metavar="PATH",
        help="Folder of the results, or a file (.html, .json, .csv, .md or .tex) to write in addition. Can be "
        "repeated, with at most one folder.  [dim]default judged/ and the name of samples and model[/dim]",
    ),
]
PrintJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrintCsv = Annotated[bool, typer.Option("--csv", help="Print CSV: one row per row of the table.")]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Print this format, or write it to the file of -o: html, json, csv, markdown or latex.",
    ),
]
ChartsFolder = Annotated[
    str | None, typer.Option("--charts", metavar="FOLDER", help="Write every chart to this folder, as SVG and PNG.")
]
